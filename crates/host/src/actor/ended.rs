//! All processes ended without anybody asking for it.

use std::time::{Duration, Instant};

use roost_lifecycle::{Aftermath, End, Event as Happening, Phase, after_end};
use roost_model::{Level, chain};
use roost_store::{CheckpointRecord, SandboxRecord};

use super::act::is_gone;
use super::{Actor, Cause, wait_for};
use crate::account::{Account, kept_at};
use crate::effects::Effects;
use crate::{HostError, blocking};

/// How long the end of processes that are not there any more takes to be told.
const LAST_WORD: Duration = Duration::from_secs(2);

impl Actor {
    /// Sees to a sandbox whose end somebody met before it was told, so that the next request finds it settled.
    pub(super) async fn see_to_its_end<T>(&mut self, outcome: &Result<T, HostError>) {
        if is_gone(outcome) && tokio::time::timeout(LAST_WORD, wait_for(&mut self.exited)).await.is_ok() {
            self.gone().await;
        }
    }

    /// Ends the processes; the actor sees their end as any other.
    pub(super) async fn end_processes(&mut self, reason: String) -> Result<(), HostError> {
        if self.record.phase == Phase::Active {
            self.ended_for = Some(reason);
            self.effects.end_processes(&self.record).await?;
        }
        Ok(())
    }

    /// Sees to a sandbox that ended by itself: it ends for good, sleeps with its files, or goes back to where it was kept last.
    pub(super) async fn gone(&mut self) {
        self.account = Account::open();
        self.account.kept = kept_at(Some(Level::Files));
        let limit = match self.ended_for.take() {
            Some(reason) => Some(reason),
            None => self.effects.limit_that_ended(&self.record).await,
        };
        let moment = if limit.is_some() && self.record.phase == Phase::Active {
            self.effects.moment_to_go_back_to(&self.record).await
        } else {
            None
        };
        let end = End {
            at_a_limit: limit.is_some(),
            ephemeral: self.record.ephemeral,
            has_moment: moment.is_some(),
            went_back: self.went_back.map(|at| at.elapsed()),
        };
        let why = limit.unwrap_or_else(|| "its processes ended by themselves".to_owned());
        let outcome = match (after_end(end), moment) {
            (Aftermath::Terminate, _) => self.terminate(Cause { word: "exited", message: why }).await,
            (Aftermath::GoBack, Some(moment)) => {
                let slept = self.happen(Happening::Gone, Some(why)).await;
                match slept {
                    Ok(()) => self.go_back(moment).await,
                    refused => refused,
                }
            }
            (Aftermath::Sleep | Aftermath::GoBack, _) => self.happen(Happening::Gone, Some(why)).await,
        };
        if let Err(error) = outcome {
            tracing::error!(sandbox = %self.record.id, error = %chain(&error), "could not see to its end");
        }
    }

    /// Goes on from the moment, with what is there kept as an automatic checkpoint; one that cannot sleeps with its files.
    async fn go_back(&mut self, moment: CheckpointRecord) -> Result<(), HostError> {
        self.went_back = Some(Instant::now());
        self.account = Account::open();
        self.restore(moment).await.map(drop)
    }
}

impl Effects {
    /// The last moment that it stands on and that holds its memory, on the engine that it is on.
    async fn moment_to_go_back_to(&self, record: &SandboxRecord) -> Option<CheckpointRecord> {
        let (store, mut next) = (self.shared.store.clone(), record.checkpoint.clone());
        let found = blocking(move || {
            while let Some(id) = next {
                match store.checkpoint(&id)? {
                    Some(found) if !found.memory => next = found.parent,
                    found => return Ok(found),
                }
            }
            Ok(None)
        });
        let found = found.await.unwrap_or_else(|error: roost_store::StoreError| {
            tracing::warn!(sandbox = %record.id, error = %chain(&error), "could not look for its checkpoints");
            None
        });
        found.filter(|found| found.origin.id == record.id && found.origin.engine == record.engine)
    }
}
