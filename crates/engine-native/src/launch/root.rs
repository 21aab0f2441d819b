//! The root of a sandbox: an overlay whose layers have their owners shifted into the sandbox's range of ids.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use roost_sys::mount::{AttributeChange, DetachedMount, FsContext, MountAttrFlags, MountError};
use roost_sys::process::{Cloned, Namespaces, clone_process, with_filesystem_ids};
use roost_sys::tree;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::parent::Timings;
use super::protocol::{Failure, Layers, Step};

/// What an overlay that syncs nothing leaves in its work folder.
const VOLATILE_MARK: &str = "work/incompat";

/// Users and groups of a sandbox: 0 to 65535 inside, a range of its own outside.
pub(crate) const ID_RANGE: u32 = 65_536;

/// Leaves the host's mount namespace.
pub(super) fn isolate_mounts() -> Result<(), Failure> {
    roost_sys::mount::isolate().map_err(Failure::of(Step::Isolate))
}

/// The guest's program, to be seen read-only.
pub(super) fn guest_mount(program: &Path) -> Result<DetachedMount, MountError> {
    let guest = DetachedMount::clone_of(program)?;
    let read_only =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    guest.change(&AttributeChange::default().set(read_only), false)?;
    Ok(guest)
}

/// What is put over parts of the system that say too much about the host. It comes from the host: a sandbox cannot change
/// it, and does not have to save it.
#[derive(Debug)]
pub(super) struct Masks {
    /// An empty file that stays one.
    pub(super) file: DetachedMount,
    /// An empty folder that stays one.
    pub(super) folder: DetachedMount,
}

impl Masks {
    pub(super) fn make() -> Result<Self, MountError> {
        let inert =
            MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NOSUID;
        let file = DetachedMount::clone_of("/dev/null")?;
        file.change(&AttributeChange::default().set(inert), false)?;
        let folder = FsContext::open("tmpfs")?.option("source", "mask")?.option("size", "4k")?.create(inert)?;
        Ok(Self { file, folder })
    }
}

/// Opens a namespace of a process.
pub(super) fn namespace(pid: Pid, name: &str) -> io::Result<OwnedFd> {
    let path = format!("/proc/{}/ns/{name}", pid.as_raw_nonzero());
    Ok(rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Says which users and groups of the host those in a new user namespace are.
pub(super) fn map_ids(pid: Pid, base: u32) -> io::Result<()> {
    let map = format!("0 {base} {ID_RANGE}");
    ["uid_map", "gid_map"]
        .into_iter()
        .try_for_each(|file| fs::write(format!("/proc/{}/{file}", pid.as_raw_nonzero()), &map))
}

/// A user namespace that nobody is in, for its map alone; `None` in the process that was made to be its first member,
/// which has nothing more to do.
pub(super) fn ids_only_namespace(base: u32) -> io::Result<Option<OwnedFd>> {
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match clone_process(Namespaces::USER, None)? {
        Cloned::Child => {
            drop(go);
            rustix::io::read(&wait, &mut [0; 1])?;
            Ok(None)
        }
        Cloned::Parent { pid, .. } => {
            let made = map_ids(pid, base).and_then(|()| namespace(pid, "user"));
            drop(go);
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED)?;
            made.map(Some)
        }
    }
}

/// The template below, the sandbox's own folders above, both with owners shifted into the sandbox's range.
pub(super) fn mount_root(
    layers: &Layers,
    userns: BorrowedFd<'_>,
    timings: &mut Timings,
) -> Result<DetachedMount, Failure> {
    let layer = |path: &Path| {
        let layer = DetachedMount::clone_of(path)?;
        layer.idmap(userns)?;
        // Overlayfs takes layers only from mounts of this namespace; in place over the original nobody else sees it.
        layer.attach(path)?;
        Ok(layer)
    };
    let lower = layer(&layers.lower).map_err(Failure::of::<roost_sys::mount::MountError>(Step::Layers))?;
    let disk = layer(&layers.subvolume).map_err(Failure::of::<roost_sys::mount::MountError>(Step::Layers))?;
    timings.done(Step::Layers);

    // By descriptor: no path of the host's has to be escaped, nor shows up in the sandbox's own mount table.
    let overlay = || {
        let disk = disk.proc_path();
        let context = FsContext::open("overlay")?;
        // Without it the end of every sandbox has the kernel write out the whole pool, for the sake of files that go next.
        let context = if layers.lasting { context } else { context.flag("volatile")? };
        context
            .option("source", "roost")?
            .option("lowerdir", lower.proc_path())?
            .option("upperdir", disk.join("root"))?
            .option("workdir", disk.join("work"))?
            .option("index", "off")?
            .option("redirect_dir", "on")?
            .option("metacopy", "off")?
            .option("xino", "on")?
            .create_writable(MountAttrFlags::empty())
    };
    // As plain root the kernel could not make its work folder, whose owner would have no id on the disk.
    let mounted = with_filesystem_ids(layers.uid_base, layers.uid_base, || {
        let work = layers.subvolume.join("work");
        match fs::create_dir(&work) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Failure::of(Step::Overlay)(e));
            }
            _ => {}
        }
        // The mark of such a sandbox that has run before: the kernel takes the disk for one that lost what was not written
        // out. It has not, unless the machine fell, and then nobody starts a run again.
        match tree::remove(&work.join(VOLATILE_MARK)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Failure::of(Step::Overlay)(e)),
            _ => {}
        }
        overlay().map_err(Failure::of(Step::Overlay))
    });
    let root = mounted.map_err(Failure::of(Step::Overlay))??;
    timings.done(Step::Overlay);
    Ok(root)
}
