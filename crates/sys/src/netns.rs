//! Network namespaces: making them, pinning them to a path, and running code inside one.
//!
//! The network namespace belongs to a thread, not to a process, so everything here changes or reads
//! only the calling thread. Sockets keep the namespace they were made in; that is how a thread that
//! visits a namespace for three syscalls can serve the rest of the process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// `f_type` of the filesystem whose files are namespaces.
const NSFS_MAGIC: i64 = 0x6e73_6673;

/// Opens the network namespace of the calling thread.
pub fn current() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes a new, empty network namespace that lives as long as the returned descriptor (or a pin of it).
pub fn create() -> io::Result<OwnedFd> {
    let maker = std::thread::Builder::new().name("netns-create".to_owned()).spawn(|| {
        unshare()?;
        current()
    })?;
    match maker.join() {
        Ok(result) => result,
        Err(_) => Err(io::Error::other("the thread that made a network namespace panicked")),
    }
}

/// Moves the calling thread into a new, empty network namespace, for good.
pub fn unshare() -> io::Result<()> {
    // SAFETY: the only flag is NEWNET, which leaves the file descriptor table shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// Moves the calling thread into the network namespace `target`, for good.
pub fn enter(target: impl AsFd) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(target.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Runs `work` with the calling thread inside `target`, then returns the thread to `home`.
///
/// The process aborts if the way back fails: a thread in the wrong network would hand out sockets of
/// a sandbox as if they were the host's.
pub fn visit<T>(home: impl AsFd, target: impl AsFd, work: impl FnOnce() -> T) -> io::Result<T> {
    struct WayBack<'a>(BorrowedFd<'a>);

    impl Drop for WayBack<'_> {
        fn drop(&mut self) {
            if enter(self.0).is_err() {
                std::process::abort();
            }
        }
    }

    enter(target)?;
    let _way_back = WayBack(home.as_fd());
    Ok(work())
}

/// Binds the namespace to `path` (made if it is missing), so that it outlives every process.
pub fn pin(netns: impl AsFd, path: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    // Not truncated: a left-over file is empty, and a namespace cannot be.
    std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    let source = format!("/proc/thread-self/fd/{}", netns.as_fd().as_raw_fd());
    rustix::mount::mount_bind(source, path)?;
    Ok(())
}

/// Opens the namespace pinned at `path`, or `None` if nothing is pinned there.
pub fn open_pinned(path: &Path) -> io::Result<Option<OwnedFd>> {
    let file = match rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let is_namespace = rustix::fs::fstatfs(&file)?.f_type == NSFS_MAGIC;
    Ok(is_namespace.then_some(file))
}

/// Removes the pin and its file; nothing happens if there is none.
pub fn unpin(path: &Path) -> io::Result<()> {
    while open_pinned(path)?.is_some() {
        rustix::mount::unmount(path, UnmountFlags::DETACH)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> std::path::PathBuf {
        std::fs::read_link("/proc/thread-self/ns/net").unwrap()
    }

    #[test]
    fn a_visit_ends_at_home() {
        let home = current().unwrap();
        let before = identity();
        let other = create().unwrap();
        let inside = visit(&home, &other, identity).unwrap();
        assert_ne!(inside, before);
        assert_eq!(identity(), before);
    }

    #[test]
    fn a_visit_that_panics_ends_at_home_too() {
        let home = current().unwrap();
        let before = identity();
        let other = create().unwrap();
        let panicked = std::panic::catch_unwind(|| visit(&home, &other, || panic!("inside")));
        assert!(panicked.is_err());
        assert_eq!(identity(), before);
    }

    #[test]
    fn a_pin_keeps_the_namespace() {
        struct Unpin(std::path::PathBuf);
        impl Drop for Unpin {
            fn drop(&mut self) {
                drop(unpin(&self.0));
            }
        }

        let path = std::env::temp_dir().join(format!("roost-netns-{}", std::process::id()));
        let guard = Unpin(path.clone());
        let home = current().unwrap();
        let made = create().unwrap();
        let expected = visit(&home, &made, identity).unwrap();
        pin(&made, &path).unwrap();
        drop(made);

        let found = open_pinned(&path).unwrap().expect("pinned");
        assert_eq!(visit(&home, &found, identity).unwrap(), expected);

        unpin(&path).unwrap();
        assert!(!path.exists());
        assert!(open_pinned(&path).unwrap().is_none());
        unpin(&path).unwrap();
        drop(guard);
    }

    #[test]
    fn an_ordinary_file_is_no_namespace() {
        let file = std::env::temp_dir().join(format!("roost-netns-plain-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let opened = open_pinned(&file);
        std::fs::remove_file(&file).unwrap();
        assert!(opened.unwrap().is_none());
    }
}
