//! The sandbox's clocks.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use roost_sys::process::{Namespaces, unshare};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustix::time::{ClockId, clock_gettime};

/// Starts the boot clock and the monotonic clock of this process at zero; the wall clock stays the host's.
///
/// The uptime inside is then the sandbox's own. An image carries both clocks on, and so does a fork.
pub(super) fn start() -> io::Result<()> {
    match unshare(Namespaces::TIME) {
        // On a kernel without time namespaces the clocks stay the host's.
        Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => return Ok(()),
        made => made?,
    }
    // Whole seconds down: neither clock may begin before zero.
    let seconds = |clock| clock_gettime(clock).tv_sec;
    let offsets = format!("monotonic -{} 0\nboottime -{} 0\n", seconds(ClockId::Monotonic), seconds(ClockId::Boottime));
    fs::write("/proc/self/timens_offsets", offsets)?;
    let made =
        rustix::fs::openat(CWD, "/proc/self/ns/time_for_children", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(move_into_link_name_space(made.as_fd(), Some(LinkNameSpaceType::Time))?)
}
