//! Telling the guest of a sandbox that was woken from RAM that it slept.
//!
//! Whoever woke it waits for an answer, and both would go to the same few threads inside. So the guest hears of it a moment
//! later, or at once if the sandbox is about to stand still again: no wake goes untold.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use roost_model::{SandboxId, chain};
use roost_store::SandboxRecord;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Effects;

/// This long a sandbox is left alone with what it was woken for.
const FIRST_ANSWER: Duration = Duration::from_millis(20);
/// How long somebody who wants it to stand still waits for a guest to have heard.
const PATIENCE: Duration = Duration::from_secs(1);

/// Those that are under way.
#[derive(Debug, Default)]
pub(crate) struct Greetings(Mutex<HashMap<SandboxId, Greeting>>);

#[derive(Debug)]
struct Greeting {
    /// Dropped, it has the guest told now.
    _later: oneshot::Sender<()>,
    told: JoinHandle<()>,
}

impl Greetings {
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<SandboxId, Greeting>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Nobody is told any more: its processes have ended.
    pub(crate) fn forget(&self, id: &SandboxId) {
        if let Some(greeting) = self.change(|all| all.remove(id)) {
            greeting.told.abort();
        }
    }
}

impl Effects {
    /// Has the guest of a sandbox told in a moment that it woke.
    pub(super) fn greet_soon(&self, record: &SandboxRecord) {
        let (later, now) = oneshot::channel::<()>();
        let (effects, woken) = (self.clone(), record.clone());
        let told = tokio::spawn(async move {
            tokio::time::timeout(FIRST_ANSWER, now).await.ok();
            if let Err(error) = effects.introduce(&woken, None).await {
                tracing::debug!(sandbox = %woken.id, error = %chain(&error), "it did not hear that it woke");
            }
        });
        self.shared.greetings.change(|all| all.insert(record.id.clone(), Greeting { _later: later, told }));
    }

    /// Waits until the guest has heard of its last wake.
    pub(crate) async fn greeted(&self, id: &SandboxId) {
        if let Some(Greeting { _later: later, told }) = self.shared.greetings.change(|all| all.remove(id)) {
            drop(later);
            tokio::time::timeout(PATIENCE, told).await.ok();
        }
    }
}
