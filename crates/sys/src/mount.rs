//! Mounts by file descriptor: the new mount API, idmapped clones, and `/proc/self/mountinfo`.
//!
//! Everything is built detached and attached last, so a recipe that fails half-way leaves nothing behind:
//!
//! ```text
//! FsContext::open("overlay") -> set_* -> create() -> DetachedMount -> attach(path)
//! DetachedMount::clone_of(path) -> idmap(userns) -> attach(path), or use its fd directly
//! ```
//!
//! Dropping a [`DetachedMount`] that was never attached unmounts it.
//!
//! A detached mount is a mount like any other for those who hold its descriptor: `fsconfig` options that take
//! a path accept `/proc/self/fd/<n>` of it, and a folder in it can be opened relative to the descriptor.

mod table;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount as rx;
pub use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags};
pub use table::{MountEntry, find_mount, mount_table, mounts_below};

/// A mount operation that failed: what was attempted, what the kernel's log for it said, and the errno.
#[derive(Debug, thiserror::Error)]
#[error("failed to {attempt}{}", log.as_deref().map(|l| format!(" ({l})")).unwrap_or_default())]
pub struct MountError {
    attempt: String,
    log: Option<String>,
    source: io::Error,
}

impl MountError {
    fn new(attempt: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { attempt: attempt.into(), log: None, source: source.into() }
    }

    /// The errno behind the failure.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// Whether the mount is in use.
    pub fn is_busy(&self) -> bool {
        self.raw_os_error() == Some(libc::EBUSY)
    }
}

/// A filesystem being configured (`fsopen`), not yet a mount.
#[derive(Debug)]
pub struct FsContext {
    fd: OwnedFd,
    kind: String,
}

impl FsContext {
    /// Opens a configuration context for the filesystem type `kind`, such as `overlay` or `proc`.
    pub fn open(kind: &str) -> Result<Self, MountError> {
        let fd = rx::fsopen(kind, rx::FsOpenFlags::FSOPEN_CLOEXEC)
            .map_err(|e| MountError::new(format!("open filesystem type `{kind}`"), e))?;
        Ok(Self { fd, kind: kind.to_owned() })
    }

    /// Sets an option without a value, such as `ro`.
    pub fn flag(self, key: &str) -> Result<Self, MountError> {
        match rx::fsconfig_set_flag(&self.fd, key) {
            Ok(()) => Ok(self),
            Err(e) => Err(self.failed(format!("set option `{key}` of {}", self.kind), e)),
        }
    }

    /// Sets an option to a string; `source` is one of them.
    ///
    /// The kernel takes at most 255 bytes here.
    pub fn option(self, key: &str, value: impl AsRef<Path>) -> Result<Self, MountError> {
        let value = value.as_ref();
        match rx::fsconfig_set_string(&self.fd, key, value) {
            Ok(()) => Ok(self),
            Err(e) => Err(self.failed(format!("set option `{key}={}` of {}", value.display(), self.kind), e)),
        }
    }

    /// Sets an option to an open descriptor; overlayfs takes its layers so from kernel 6.13 on.
    pub fn option_fd(self, key: &str, value: BorrowedFd<'_>) -> Result<Self, MountError> {
        match rx::fsconfig_set_fd(&self.fd, key, value) {
            Ok(()) => Ok(self),
            Err(e) => Err(self.failed(format!("set option `{key}` of {} to a descriptor", self.kind), e)),
        }
    }

    /// Makes the superblock and a detached mount of it.
    pub fn create(self, attributes: MountAttrFlags) -> Result<DetachedMount, MountError> {
        rx::fsconfig_create(&self.fd).map_err(|e| self.failed(format!("create a {} filesystem", self.kind), e))?;
        let fd = rx::fsmount(&self.fd, rx::FsMountFlags::FSMOUNT_CLOEXEC, attributes)
            .map_err(|e| self.failed(format!("mount a {} filesystem", self.kind), e))?;
        Ok(DetachedMount { fd })
    }

    /// The same for one that has to be writable.
    ///
    /// An overlay that finds no room for its work folder is mounted all the same, read-only and without a word.
    pub fn create_writable(self, attributes: MountAttrFlags) -> Result<DetachedMount, MountError> {
        let attempt = format!("make a {} filesystem writable", self.kind);
        let made = self.create(attributes)?;
        match rustix::fs::fstatvfs(&made.fd) {
            Ok(found) if found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) => {
                Err(MountError::new(attempt, rustix::io::Errno::NOSPC))
            }
            Ok(_) => Ok(made),
            Err(error) => Err(MountError::new(attempt, error)),
        }
    }

    fn failed(&self, attempt: String, errno: rustix::io::Errno) -> MountError {
        MountError { attempt, log: self.kernel_log(), source: errno.into() }
    }

    /// The context's descriptor hands out one message per read, `e `, `w ` or `i ` first.
    fn kernel_log(&self) -> Option<String> {
        let mut lines = Vec::new();
        let mut buffer = [0_u8; 512];
        while let Ok(n) = rustix::io::read(&self.fd, &mut buffer) {
            if n == 0 || lines.len() == 8 {
                break;
            }
            lines.push(String::from_utf8_lossy(&buffer[..n]).trim_end().to_owned());
        }
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

/// A mount that is attached nowhere yet and goes away with its descriptor unless it is attached.
#[derive(Debug)]
pub struct DetachedMount {
    fd: OwnedFd,
}

impl DetachedMount {
    /// Clones the mount that `path` is in, with `path` as its root: a detached bind mount.
    pub fn clone_of(path: impl AsRef<Path>) -> Result<Self, MountError> {
        Self::clone_at(CWD, path.as_ref(), rx::OpenTreeFlags::empty())
    }

    /// Like [`DetachedMount::clone_of`], with everything mounted below.
    pub fn clone_of_tree(path: impl AsRef<Path>) -> Result<Self, MountError> {
        Self::clone_at(CWD, path.as_ref(), rx::OpenTreeFlags::AT_RECURSIVE)
    }

    /// Clones the folder or file behind a descriptor.
    pub fn clone_of_fd(fd: impl AsFd) -> Result<Self, MountError> {
        Self::clone_at(fd, Path::new(""), rx::OpenTreeFlags::AT_EMPTY_PATH)
    }

    /// Clones `path` seen from the folder `dir`; a symlink as last component is not followed.
    pub fn clone_beneath(dir: impl AsFd, path: impl AsRef<Path>) -> Result<Self, MountError> {
        Self::clone_at(dir, path.as_ref(), rx::OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
    }

    fn clone_at(dir: impl AsFd, path: &Path, extra: rx::OpenTreeFlags) -> Result<Self, MountError> {
        let flags = rx::OpenTreeFlags::OPEN_TREE_CLONE | rx::OpenTreeFlags::OPEN_TREE_CLOEXEC | extra;
        let fd = rx::open_tree(dir, path, flags)
            .map_err(|e| MountError::new(format!("clone the mount of `{}`", path.display()), e))?;
        Ok(Self { fd })
    }

    /// Maps the owners of the mount's files by the user namespace behind `userns`.
    ///
    /// Works only while the mount is detached, and once: a mount that is idmapped already is refused. A clone
    /// of an idmapped mount inherits its map, so clone from the plain mount. The file's uid on disk is taken
    /// as the uid *inside* the namespace.
    pub fn idmap(&self, userns: BorrowedFd<'_>) -> Result<(), MountError> {
        self.change(&AttributeChange::default().idmap(userns), false)
    }

    /// Changes attributes of this mount, and with `recursive` of all mounts below it.
    pub fn change(&self, change: &AttributeChange<'_>, recursive: bool) -> Result<(), MountError> {
        let recursive = if recursive { libc::AT_RECURSIVE } else { 0 };
        mount_setattr(self.fd.as_fd(), c"", libc::AT_EMPTY_PATH | recursive, change)
            .map_err(|e| MountError::new(format!("change a detached mount ({change:?})"), e))
    }

    /// Attaches the mount at `target`, which must exist; the descriptor stays usable.
    pub fn attach(&self, target: impl AsRef<Path>) -> Result<(), MountError> {
        self.attach_at(CWD, target)
    }

    /// Attaches the mount at `target` seen from the folder `dir`; an empty `target` is `dir` itself.
    pub fn attach_at(&self, dir: impl AsFd, target: impl AsRef<Path>) -> Result<(), MountError> {
        let target = target.as_ref();
        let mut flags = rx::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        if target.as_os_str().is_empty() {
            flags |= rx::MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        }
        rx::move_mount(&self.fd, "", dir, target, flags)
            .map_err(|e| MountError::new(format!("attach a mount at `{}`", target.display()), e))
    }

    /// A path by which this process (and calls that resolve paths in it) reaches the mount's root.
    ///
    /// Needs a mounted `/proc`; valid while this value lives.
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }
}

impl AsFd for DetachedMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<DetachedMount> for OwnedFd {
    fn from(mount: DetachedMount) -> Self {
        mount.fd
    }
}

/// What to change on a mount with `mount_setattr`.
#[derive(Debug, Default, Clone, Copy)]
pub struct AttributeChange<'a> {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: Option<BorrowedFd<'a>>,
}

impl<'a> AttributeChange<'a> {
    /// Turns these attributes on.
    pub fn set(mut self, attributes: MountAttrFlags) -> Self {
        self.set |= u64::from(attributes.bits());
        self
    }

    /// Turns these attributes off.
    pub fn clear(mut self, attributes: MountAttrFlags) -> Self {
        self.clear |= u64::from(attributes.bits());
        self
    }

    /// Sets the propagation type.
    pub fn propagation(mut self, propagation: MountPropagationFlags) -> Self {
        self.propagation = u64::from(propagation.bits());
        self
    }

    /// Maps owners by this user namespace.
    pub fn idmap(mut self, userns: BorrowedFd<'a>) -> Self {
        self.set |= MOUNT_ATTR_IDMAP;
        self.userns = Some(userns);
        self
    }
}

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// `struct mount_attr` of the kernel, version 0.
#[repr(C)]
struct RawMountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

fn mount_setattr(
    dir: BorrowedFd<'_>,
    path: &std::ffi::CStr,
    flags: libc::c_int,
    change: &AttributeChange<'_>,
) -> io::Result<()> {
    let raw = RawMountAttr {
        attr_set: change.set,
        attr_clr: change.clear,
        propagation: change.propagation,
        userns_fd: change.userns.map_or(0, |fd| u64::from(fd.as_raw_fd().unsigned_abs())),
    };
    // SAFETY: `path` is NUL-terminated, `raw` is a live `mount_attr` of the size passed, and both descriptors
    // are borrowed for the call; the kernel only reads.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const raw,
            size_of::<RawMountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Changes attributes of the mount at `path`, and with `recursive` of all mounts below it.
pub fn change_attributes(
    path: impl AsRef<Path>,
    change: &AttributeChange<'_>,
    recursive: bool,
) -> Result<(), MountError> {
    let path = path.as_ref();
    let attempt = || format!("change the mount at `{}`", path.display());
    let c_path =
        std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).map_err(|e| MountError::new(attempt(), e))?;
    let recursive = if recursive { libc::AT_RECURSIVE } else { 0 };
    mount_setattr(CWD, &c_path, recursive, change).map_err(|e| MountError::new(attempt(), e))
}

/// Mounts a filesystem type that needs no more than plain options and attaches it at `target`.
pub fn mount_simple(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
    target: impl AsRef<Path>,
) -> Result<(), MountError> {
    let mut context = FsContext::open(kind)?;
    for (key, value) in options {
        context = context.option(key, value)?;
    }
    context.create(attributes)?.attach(target)
}

/// Unmounts `target` (`umount2`), never following a symlink as its last component.
pub fn unmount(target: impl AsRef<Path>, flags: UnmountFlags) -> Result<(), MountError> {
    let target = target.as_ref();
    rx::unmount(target, flags | UnmountFlags::NOFOLLOW)
        .map_err(|e| MountError::new(format!("unmount `{}`", target.display()), e))
}

/// Gives the calling thread a mount namespace of its own. Mounts made from here on stay invisible to all others, and no
/// namespace that is made elsewhere copies them.
pub fn isolate() -> Result<(), MountError> {
    crate::process::unshare(crate::process::Namespaces::MOUNT)
        .map_err(|e| MountError::new("leave the host's mount namespace".to_owned(), e))?;
    let private = AttributeChange::default().propagation(MountPropagationFlags::PRIVATE);
    change_attributes("/", &private, true)
}

/// Makes `new_root` the root of this mount namespace and hangs the old one at `put_old`.
///
/// `pivot_root(".", ".")` from inside the new root stacks the old root on top of it, to be unmounted with
/// [`UnmountFlags::DETACH`]; no folder for it is needed then.
pub fn pivot_root(new_root: impl AsRef<Path>, put_old: impl AsRef<Path>) -> Result<(), MountError> {
    let (new_root, put_old) = (new_root.as_ref(), put_old.as_ref());
    rustix::process::pivot_root(new_root, put_old)
        .map_err(|e| MountError::new(format!("pivot the root to `{}`", new_root.display()), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn failure_names_the_attempt() {
        let error = FsContext::open("no-such-fs").expect_err("unknown type");
        assert_eq!(error.to_string(), "failed to open filesystem type `no-such-fs`");
    }

    /// A child in a user namespace that maps 0..65536 to 0x70000000 on; it ends with its stdin.
    struct UserNamespace {
        child: Child,
        file: std::fs::File,
    }

    impl UserNamespace {
        fn new() -> Self {
            let mut child = Command::new("unshare")
                .args(["--user", "sh", "-c", "echo ready; exec cat"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("unshare starts");
            let mut line = String::new();
            BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("ready");
            for map in ["uid_map", "gid_map"] {
                let path = format!("/proc/{}/{map}", child.id());
                std::fs::write(path, "0 1879048192 65536").expect("map is written");
            }
            let file = std::fs::File::open(format!("/proc/{}/ns/user", child.id())).expect("ns file");
            Self { child, file }
        }
    }

    impl Drop for UserNamespace {
        fn drop(&mut self) {
            drop(self.child.stdin.take());
            self.child.wait().expect("child ends");
        }
    }

    #[test]
    fn idmapped_clone_shifts_owners_and_is_used_by_descriptor() {
        let userns = UserNamespace::new();
        // A superblock of its own, never attached to the host's tree.
        let tmpfs = FsContext::open("tmpfs").unwrap().option("mode", "755").unwrap();
        let tmpfs = tmpfs.create(MountAttrFlags::empty()).unwrap();
        std::fs::write(tmpfs.proc_path().join("file"), "x").unwrap();

        let clone = DetachedMount::clone_of_fd(&tmpfs).unwrap();
        clone.idmap(userns.file.as_fd()).unwrap();
        let seen = std::fs::metadata(clone.proc_path().join("file")).unwrap();
        assert_eq!((seen.uid(), seen.gid()), (0x7000_0000, 0x7000_0000));

        let read_only = AttributeChange::default().set(MountAttrFlags::MOUNT_ATTR_RDONLY);
        clone.change(&read_only, false).unwrap();
        let refused = std::fs::write(clone.proc_path().join("other"), "x").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert!(clone.idmap(userns.file.as_fd()).is_err(), "a second idmap is refused");
    }
}
