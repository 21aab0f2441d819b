//! The one change of name of a sandbox that waits in a pool.
//!
//! Where the kernel is the sandbox's own its name is the guest's to set, with a privilege that nothing inside may have. The guest gives
//! it up at its start; one that waits for its owner leaves it to a thread that can do this alone:
//!
//! ```text
//! waits -> (the first name) -> sets it -> gone
//!       -> (the first process) -> gone
//! ```
//!
//! Both wait until the thread has ended: what is started never finds anybody with the privilege.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::guest::small_thread;

/// The thread, as long as there is one.
#[derive(Debug, Default)]
pub(crate) struct Namer(Mutex<Option<Waiting>>);

#[derive(Debug)]
struct Waiting {
    name: SyncSender<String>,
    thread: JoinHandle<()>,
}

impl Namer {
    /// Starts the thread, which has the privileges of the caller.
    pub(crate) fn start() -> io::Result<Self> {
        let (name, wanted) = sync_channel::<String>(1);
        let thread = small_thread("name").spawn(move || {
            if let Ok(name) = wanted.recv()
                && let Err(error) = rustix::system::sethostname(name.as_bytes())
            {
                eprintln!("roost-guest: failed to set the host name: {error}");
            }
        })?;
        Ok(Self(Mutex::new(Some(Waiting { name, thread }))))
    }

    /// Sets the kernel's name, if that is still to be done.
    pub(crate) fn set(&self, name: &str) {
        self.end(Some(name));
    }

    /// Gives the privilege up.
    pub(crate) fn retire(&self) {
        self.end(None);
    }

    fn end(&self, last: Option<&str>) {
        // Held until the thread has ended, for whoever comes meanwhile.
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Waiting { name, thread }) = waiting.take() {
            if let Some(last) = last {
                name.send(last.to_owned()).ok();
            }
            drop(name);
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_the_first_process_and_has_nothing_to_do_then() {
        let namer = Namer::start().unwrap();
        assert!(namer.0.lock().unwrap().is_some());
        namer.retire();
        assert!(namer.0.lock().unwrap().is_none());
        // By now this would change the name of the host that tests run on, if anybody were left to do it.
        namer.set("nobody");
        namer.retire();
        assert_ne!(rustix::system::uname().nodename().to_bytes(), b"nobody");
    }
}
