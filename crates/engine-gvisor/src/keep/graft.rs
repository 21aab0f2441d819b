//! Gives a sandbox its root in what was made before anybody knew whose it would be.
//!
//! The gofer chose its root when it was created: a folder with nothing in it. A mount that becomes the root of its mount namespace
//! becomes the root of every process that had the old one, so of the gofer too, which has opened nothing there so far.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use roost_engine_group::Frame;
use roost_sys::mount::{DetachedMount, UnmountFlags, pivot_root, unmount};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, ThreadNameSpaceType, move_into_link_name_space, move_into_thread_name_spaces};
use serde::Deserialize;

use super::place::{self, NEW_ROOT};
use super::protocol::{Failure, Graft, Step};
use super::{GUEST, GUEST_SOURCE, STATE};

/// Waits for the daemon's word and puts everything in place; says whether there is memory to restore. This process ends up in
/// the gofer's mount namespace.
pub(super) fn when_told(socket: BorrowedFd<'_>, child: BorrowedFd<'_>) -> Result<bool, Failure> {
    let Graft { guest, sandbox } = Frame::read(socket).map_err(Failure::of(Step::Talk))?;
    let root = place::overlay(&sandbox).map_err(Failure::of(Step::Overlay))?;
    let grafted = || {
        // For the gofer, and for whoever asks in the place which one it is.
        let (inside, shown) = (place::read_only(&guest)?, place::read_only(&guest)?);
        let image = sandbox.image.as_deref().map(place::read_only).transpose()?;
        move_into_thread_name_spaces(child, ThreadNameSpaceType::MOUNT)?;
        shown.attach(GUEST_SOURCE).map_err(io::Error::other)?;
        if let Some(image) = image {
            image.attach("/image").map_err(io::Error::other)?;
        }
        place::describe(&sandbox)?;
        become_root(&root)?;
        // As the gofer sees it: no link on the sandbox's disk leads out of there.
        let place = Path::new(GUEST);
        place.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::OpenOptions::new().create(true).append(true).open(place)?;
        inside.attach(place).map_err(io::Error::other)
    };
    grafted().map_err(Failure::of(Step::Graft))?;
    Ok(sandbox.image.is_some())
}

fn become_root(root: &DetachedMount) -> io::Result<()> {
    let (namespace, old_root) = gofer()?;
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Mount))?;
    rustix::process::fchdir(&old_root)?;
    rustix::process::chroot(".")?;
    root.attach(NEW_ROOT).map_err(io::Error::other)?;
    rustix::process::chdir(NEW_ROOT)?;
    pivot_root(".", ".").map_err(io::Error::other)?;
    unmount(".", UnmountFlags::DETACH).map_err(io::Error::other)?;
    Ok(rustix::process::chdir("/")?)
}

/// The gofer's mount namespace and its root.
fn gofer() -> io::Result<(OwnedFd, OwnedFd)> {
    #[derive(Deserialize)]
    struct State {
        #[serde(rename = "goferPid")]
        gofer: u32,
    }
    let State { gofer } = serde_json::from_slice(&fs::read(STATE)?)?;
    let open = |name: &str, flags: OFlags| {
        rustix::fs::openat(CWD, format!("/proc/{gofer}/{name}"), flags | OFlags::CLOEXEC, Mode::empty())
    };
    Ok((open("ns/mnt", OFlags::RDONLY)?, open("root", OFlags::PATH | OFlags::DIRECTORY)?))
}
