//! What is made ahead of time, each in a control group of its own, until a sandbox takes it over.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use roost_sys::cgroup::{Cgroups, Group};
use tokio::sync::Notify;

/// What names of groups in reserve begin with; no sandbox's id does.
const SPARE: &str = "spare-";

/// Knows how to make what waits in a reserve.
#[async_trait]
pub trait Maker: Send + Sync + 'static {
    /// What waits.
    type Made: Send + 'static;

    /// Makes one in `group`, which does not exist yet. On failure nothing of it runs.
    async fn make(&self, group: &Group) -> io::Result<Self::Made>;

    /// Ends one that nobody needs; its group is removed afterwards.
    async fn end(&self, made: Self::Made);
}

/// One that waits in a group of its own.
#[derive(Debug)]
pub struct Spare<T> {
    /// What waits.
    pub made: T,
    /// Where.
    pub group: Group,
    /// The group's name, to be given to [`Reserve::release`] once the group has another or is gone.
    pub name: String,
}

/// Keeps as many as it is told to, made in the background.
#[derive(Debug)]
pub struct Reserve<M: Maker> {
    maker: M,
    cgroups: Cgroups,
    size: usize,
    counter: AtomicU64,
    state: Mutex<State<M::Made>>,
    settled: Notify,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<Spare<T>>,
    /// Names of groups that are being made, wait, or are just being taken over.
    names: HashSet<String>,
    coming: usize,
    closed: bool,
}

impl<M: Maker> Reserve<M> {
    /// An empty one.
    pub fn new(maker: M, cgroups: Cgroups, size: usize) -> Arc<Self> {
        let state = State { waiting: VecDeque::new(), names: HashSet::new(), coming: 0, closed: false };
        Arc::new(Self {
            maker,
            cgroups,
            size,
            counter: AtomicU64::new(0),
            state: Mutex::new(state),
            settled: Notify::new(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State<M::Made>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one that waits, if there is one.
    pub fn take(&self) -> Option<Spare<M::Made>> {
        self.take_if(|_| true)
    }

    /// Takes one that fits, if one waits.
    pub fn take_if(&self, fits: impl Fn(&M::Made) -> bool) -> Option<Spare<M::Made>> {
        let mut state = self.state();
        let place = state.waiting.iter().position(|spare| fits(&spare.made))?;
        state.waiting.remove(place)
    }

    /// Who makes what waits.
    pub fn maker(&self) -> &M {
        &self.maker
    }

    /// Says that a taken spare's group has got another name or is gone.
    pub fn release(&self, spare_name: &str) {
        self.state().names.remove(spare_name);
    }

    /// Whether a group of this name is in this reserve's care.
    pub fn owns(&self, name: &str) -> bool {
        self.state().names.contains(name)
    }

    /// Brings the reserve back to its size, in the background, once half of it is used up.
    ///
    /// Joining holds a lock that makes every change of control groups wait, for those 8 to 20 ms that the first of several
    /// joins takes: so rather several at once, and less often.
    pub fn refill(self: &Arc<Self>) {
        for name in self.wanted() {
            let reserve = Arc::clone(self);
            tokio::spawn(async move { reserve.add(name).await });
        }
    }

    fn wanted(&self) -> Vec<String> {
        let mut state = self.state();
        let present = state.waiting.len() + state.coming;
        if state.closed || present > self.size / 2 {
            return Vec::new();
        }
        let names: Vec<String> = (present..self.size)
            .map(|_| format!("{SPARE}{}-{}", std::process::id(), self.counter.fetch_add(1, Ordering::Relaxed)))
            .collect();
        state.coming += names.len();
        state.names.extend(names.iter().cloned());
        names
    }

    async fn add(self: Arc<Self>, name: String) {
        let group = self.cgroups.group(&name);
        match self.maker.make(&group).await {
            Ok(made) => {
                if let Some(late) = self.put(Spare { made, group, name }) {
                    self.discard(late).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "failed to make one for the reserve");
                group.remove().ok();
                self.release(&name);
            }
        }
        self.state().coming -= 1;
        self.settled.notify_waiters();
    }

    /// Gives it back if the reserve has been closed meanwhile.
    fn put(&self, spare: Spare<M::Made>) -> Option<Spare<M::Made>> {
        let mut state = self.state();
        if state.closed {
            return Some(spare);
        }
        state.waiting.push_back(spare);
        None
    }

    /// Ends one that was taken, or waits no longer.
    pub async fn discard(&self, spare: Spare<M::Made>) {
        self.maker.end(spare.made).await;
        if let Err(error) = spare.group.remove() {
            tracing::warn!(%error, "failed to remove a group in reserve");
        }
        self.release(&spare.name);
    }

    /// Resolves when nothing more is being made.
    pub async fn settled(&self) {
        loop {
            let settled = self.settled.notified();
            if self.state().coming == 0 {
                return;
            }
            settled.await;
        }
    }

    /// Ends all that wait and makes no more.
    pub async fn close(&self) {
        let waiting = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        for spare in waiting {
            self.discard(spare).await;
        }
        self.settled().await;
    }
}
