//! Writing checksums of images down while nobody waits: one image at a time, behind everything else.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use roost_disk::Image;
use roost_model::chain;

/// The least of what there is to give; such a thread runs in the gaps that others leave.
const LOWEST_PRIORITY: i32 = 19;

/// A thread that seals images; it ends with this.
#[derive(Debug)]
pub(crate) struct Sealer {
    queue: Option<Sender<Image>>,
    pace: Arc<Pace>,
    thread: Option<JoinHandle<()>>,
}

/// While one of these lives, nothing is sealed: memory is being saved or brought back, and somebody waits for it.
#[derive(Debug)]
pub(crate) struct Quiet {
    pace: Arc<Pace>,
}

#[derive(Debug, Default)]
struct Pace {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    quiet: usize,
    ended: bool,
}

impl Sealer {
    /// Starts the thread; without one, images stay as they are, without checksums.
    pub(crate) fn start() -> Self {
        let (queue, images) = channel();
        let pace = Arc::new(Pace::default());
        let follow = pace.clone();
        match std::thread::Builder::new().name("seal".to_owned()).spawn(move || work(&images, &follow)) {
            Ok(thread) => Self { queue: Some(queue), pace, thread: Some(thread) },
            Err(error) => {
                tracing::warn!(%error, "images get no checksums");
                Self { queue: None, pace, thread: None }
            }
        }
    }

    /// Seals an image when there is time for it.
    pub(crate) fn later(&self, image: Image) {
        if let Some(queue) = &self.queue
            && !image.is_transient()
            && queue.send(image).is_err()
        {
            tracing::warn!("an image gets no checksums: the thread for them is gone");
        }
    }

    /// Holds all sealing up until what this returns is dropped.
    pub(crate) fn quiet(&self) -> Quiet {
        self.pace.state().quiet += 1;
        Quiet { pace: self.pace.clone() }
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        self.pace.state().ended = true;
        self.pace.changed.notify_all();
        drop(self.queue.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread that seals images panicked");
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.pace.state().quiet -= 1;
        self.pace.changed.notify_all();
    }
}

impl Pace {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while it shall be quiet; says whether to go on at all.
    fn wait(&self) -> bool {
        let waiting = |state: &mut State| state.quiet > 0 && !state.ended;
        let state = self.changed.wait_while(self.state(), waiting).unwrap_or_else(PoisonError::into_inner);
        !state.ended
    }
}

fn work(images: &Receiver<Image>, pace: &Pace) {
    // No process means this thread alone.
    if let Err(error) = rustix::process::setpriority_process(None, LOWEST_PRIORITY) {
        tracing::debug!(%error, "images are sealed at the priority of everything else");
    }
    while let Ok(image) = images.recv() {
        if !pace.wait() {
            return;
        }
        if let Err(error) = image.seal(&|| pace.wait()) {
            tracing::debug!(error = %chain(&error), "an image was not sealed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_lasts_until_the_last_one_is_gone() {
        let sealer = Sealer::start();
        let (first, second) = (sealer.quiet(), sealer.quiet());
        let pace = sealer.pace.clone();
        let waiter = std::thread::spawn(move || pace.wait());
        drop(first);
        assert_eq!(sealer.pace.state().quiet, 1);
        assert!(!waiter.is_finished(), "the work waits for the other one too");
        drop(second);
        assert!(waiter.join().is_ok_and(|go_on| go_on));
    }

    #[test]
    fn the_end_waits_for_no_quiet() {
        let sealer = Sealer::start();
        let quiet = sealer.quiet();
        let pace = sealer.pace.clone();
        drop(sealer);
        assert!(!pace.wait());
        drop(quiet);
    }
}
