//! A doorbell: one thread rings it, another polls it together with its other descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// The doorbell.
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable. It cannot fail in a way that matters: a full counter is readable already.
    pub(crate) fn ring(&self) {
        rustix::io::write(&self.0, &1u64.to_ne_bytes()).ok();
    }

    /// Makes it quiet again. To be called before looking at what it rang for.
    pub(crate) fn clear(&self) {
        rustix::io::read(&self.0, &mut [0u8; 8]).ok();
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Locks even when a thread that held the lock panicked: PID 1 goes on with the rest.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
