//! The one thread that changes the router.
//!
//! One, because more of them are slower (they all wait for the same kernel lock), and a thread of our
//! own, because entering a namespace changes the thread, which must not be one of the runtime's.

use std::io;

use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::error::OpenError;
use crate::keeper::Loaded;
use crate::router::Router;
use crate::slot::{Access, Slot};

type Job = Box<dyn FnOnce(&mut Router) + Send>;

/// Sends work to the thread; it ends when the last sender is gone or the router is closed.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: mpsc::UnboundedSender<Job>,
}

impl Worker {
    /// Starts the thread, which opens the router and hands what `prepare` makes of it to the caller.
    pub(crate) async fn start<T: Send + 'static>(
        config: Config,
        in_use: Vec<(Slot, Access)>,
        prepare: impl FnOnce(&Router, Loaded) -> Result<T, OpenError> + Send + 'static,
    ) -> Result<(Self, T), OpenError> {
        let (jobs, queue) = mpsc::unbounded_channel();
        let (ready, opened) = oneshot::channel();
        std::thread::Builder::new()
            .name("roost-net".to_owned())
            .spawn(move || run(config, &in_use, prepare, ready, queue))
            .map_err(OpenError::Thread)?;
        let died = || OpenError::Thread(io::Error::other("the thread died"));
        let prepared = opened.await.map_err(|_| died())??;
        Ok((Self { jobs }, prepared))
    }

    /// Runs `work` on the thread; `None` if the network is closed. The work is done even if the
    /// caller stops waiting for it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Router) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, result) = oneshot::channel();
        let job: Job = Box::new(move |router| {
            // An error means that nobody waits any more.
            drop(reply.send(work(router)));
        });
        self.jobs.send(job).ok()?;
        result.await.ok()
    }
}

fn run<T>(
    config: Config,
    in_use: &[(Slot, Access)],
    prepare: impl FnOnce(&Router, Loaded) -> Result<T, OpenError>,
    ready: oneshot::Sender<Result<T, OpenError>>,
    mut queue: mpsc::UnboundedReceiver<Job>,
) {
    let opened = Router::open(config, in_use).and_then(|(router, loaded)| {
        let prepared = prepare(&router, loaded)?;
        Ok((router, prepared))
    });
    let mut router = match opened {
        Ok((router, prepared)) => {
            if ready.send(Ok(prepared)).is_err() {
                return;
            }
            router
        }
        Err(error) => {
            drop(ready.send(Err(error)));
            return;
        }
    };
    while !router.is_closed() {
        let Some(job) = queue.blocking_recv() else {
            break;
        };
        job(&mut router);
    }
}
