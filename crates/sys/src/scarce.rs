//! Things of the kernel that come from tables with an end: one function for each makes one of them.
//!
//! The attacks of `roost doctor --attack` fill such tables, and check that neighbours and the host still get theirs.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Makes a timer of this process that is never armed. It lives until the process ends.
pub fn timer() -> io::Result<()> {
    // SAFETY: all fields of `sigevent` are integers and pointers for which zero is valid.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_NONE;
    let mut timer: libc::c_int = 0;
    // SAFETY: the kernel reads `event` and writes an `int` to `timer`; both outlive the call.
    let made = unsafe { libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
    check(made).map(drop)
}

/// Makes a message queue with a name that is removed at once, so the queue ends with its descriptor.
pub fn message_queue(name: &str) -> io::Result<OwnedFd> {
    // The system call takes the name without the slash that the library's function expects.
    let name = CString::new(name)?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
    let default_size = std::ptr::null::<libc::mq_attr>();
    // SAFETY: the kernel reads the name up to its end; no attributes are passed.
    let made = check(unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags, 0o600, default_size) })?;
    // SAFETY: the kernel returned a new descriptor that nothing else owns.
    let queue = unsafe { OwnedFd::from_raw_fd(made as libc::c_int) };
    // SAFETY: the kernel reads the name up to its end.
    check(unsafe { libc::syscall(libc::SYS_mq_unlink, name.as_ptr()) })?;
    Ok(queue)
}

/// Blocks a signal that is queued one by one, for this thread, so that [`queue_signal`] leaves signals pending.
pub fn block_queued_signal() -> io::Result<()> {
    // SAFETY: a `sigset_t` of zeros is valid, and `sigemptyset` initialises it in any case.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid set that outlives these calls, which change this thread's mask alone.
    let outcome = unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGRTMIN());
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(outcome)) }
}

/// Adds one pending signal to this process, which must have called [`block_queued_signal`] before it had other threads.
pub fn queue_signal() -> io::Result<()> {
    let value = libc::sigval { sival_ptr: std::ptr::null_mut() };
    // SAFETY: the call takes integers only, and the signal is for this process itself.
    check(unsafe { libc::c_long::from(libc::sigqueue(libc::getpid(), libc::SIGRTMIN(), value)) }).map(drop)
}

/// Makes a context of asynchronous I/O for one request. It lives until the process ends.
pub fn aio_context() -> io::Result<()> {
    let mut context: libc::c_ulong = 0;
    // SAFETY: the kernel writes the number of the context to `context`, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) }).map(drop)
}

/// A locked segment of shared memory; it is removed when this value ends.
#[derive(Debug)]
pub struct LockedSegment(libc::c_int);

impl LockedSegment {
    /// Makes a segment and locks it, which is counted per user and not per process.
    pub fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: the call takes integers only.
        let id = check(unsafe { libc::c_long::from(libc::shmget(libc::IPC_PRIVATE, bytes, libc::IPC_CREAT | 0o600)) })?;
        let segment = Self(id as libc::c_int);
        // SAFETY: locking takes no argument beside the segment's number.
        check(unsafe { libc::c_long::from(libc::shmctl(segment.0, libc::SHM_LOCK, std::ptr::null_mut())) })?;
        Ok(segment)
    }
}

impl Drop for LockedSegment {
    fn drop(&mut self) {
        // SAFETY: removal takes no argument beside the segment's number.
        unsafe { libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// A packet socket with a ring of kernel memory that no control group is charged for.
pub fn packet_ring(bytes: u32) -> io::Result<OwnedFd> {
    const BLOCK: u32 = 1 << 20;
    let frames = libc::tpacket_req {
        tp_block_size: BLOCK,
        tp_block_nr: bytes / BLOCK,
        tp_frame_size: 2048,
        tp_frame_nr: bytes / 2048,
    };
    let socket = raw_socket(libc::AF_PACKET, libc::SOCK_RAW)?;
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &frames)?;
    Ok(socket)
}

/// A socket of express data paths with a ring of kernel memory that no control group is charged for.
pub fn express_ring(entries: u32) -> io::Result<OwnedFd> {
    const SOL_XDP: libc::c_int = 283;
    const XDP_RX_RING: libc::c_int = 2;
    let socket = raw_socket(libc::AF_XDP, libc::SOCK_RAW)?;
    set_option(&socket, SOL_XDP, XDP_RX_RING, &entries)?;
    Ok(socket)
}

/// A socket of any family, type and protocol 0.
pub(crate) fn raw_socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers only.
    let made = check(unsafe { libc::c_long::from(libc::socket(family, kind | libc::SOCK_CLOEXEC, 0)) })?;
    // SAFETY: the kernel returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(made as libc::c_int) })
}

fn set_option<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `length` bytes of `value`, which is as large and outlives the call.
    let set = unsafe { libc::setsockopt(socket, level, name, std::ptr::from_ref(value).cast(), length) };
    check(libc::c_long::from(set)).map(drop)
}

pub(crate) fn check(outcome: libc::c_long) -> io::Result<libc::c_long> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_is_made() {
        timer().unwrap();
        aio_context().unwrap();
        drop(LockedSegment::new(4096).unwrap());
        let queue = message_queue(&format!("roost-test-{}", std::process::id())).unwrap();
        drop(queue);
    }
}
