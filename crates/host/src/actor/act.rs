//! Acting: the effects that a decision calls for, one after the other, and what their outcomes mean.

use std::time::Instant;

use jiff::Timestamp;
use roost_engine::EngineError;
use roost_lifecycle::{Effect, Event as Happening, Phase, step};
use roost_model::{Level, Tombstone, chain};
use roost_store::Durability;

use super::Actor;
use super::enter::event_of;
use crate::HostError;
use crate::account::kept_at;

impl Actor {
    /// Runs effects and whatever follows from their outcomes, until the sandbox is settled.
    pub(crate) async fn act(&mut self, effects: &'static [Effect]) {
        let mut effects = effects;
        loop {
            let mut outcome = None;
            for effect in effects {
                outcome = self.run_effect(*effect).await;
                // What failed leaves nothing for the effects after it to work on.
                if matches!(outcome, Some(Happening::StartFailed | Happening::NotSaved)) {
                    break;
                }
            }
            let Some(event) = outcome else { return };
            let Ok((phase, next)) = step(self.record.phase, event) else {
                tracing::error!(sandbox = %self.record.id, phase = %self.record.phase, ?event, "unexpected outcome");
                return;
            };
            if event == Happening::Killed {
                self.change_engine().await;
            }
            if event == Happening::StartFailed && self.record.phase == Phase::Restoring {
                // It sleeps as files now, and that is what it wakes from; another restore may try the memory again.
                self.record.source = None;
            }
            if event == Happening::StartFailed && phase.is_ending() {
                let why = self.failure_text();
                let tombstone = Tombstone { cause: "create_failed".to_owned(), message: why, at: Timestamp::now() };
                self.record.tombstone.get_or_insert(tombstone);
            }
            if phase != self.record.phase {
                let reason = match event {
                    // What woke it stays its reason for being awake.
                    Happening::Started if matches!(self.record.phase, Phase::Resuming(_)) => self.record.reason.clone(),
                    Happening::Started => None,
                    Happening::StartFailed | Happening::NotSaved => Some(self.failure_text()),
                    Happening::Gone => Some(self.end_text()),
                    _ => self.record.reason.clone(),
                };
                let kind = event_of(event, self.record.phase, phase);
                self.enter_until_stored(phase, reason, kind).await;
            }
            effects = next;
        }
    }

    async fn run_effect(&mut self, effect: Effect) -> Option<Happening> {
        // The last moment at which its guest can be asked.
        if matches!(effect, Effect::Freeze | Effect::Save) && self.record.asleep_since.is_none() {
            self.effects.note_crontabs(&self.record).await;
        }
        let since = Instant::now();
        let account = &mut self.account;
        match effect {
            Effect::MakeDisk => {
                let made = self.effects.make_disk(&self.record).await;
                account.part("disk", since);
                self.fails_as(made, None, Happening::StartFailed)
            }
            Effect::ReplaceDisk => {
                let replaced = self.effects.replace_disk(&self.record).await;
                account.part("disk", since);
                self.fails_as(replaced, None, Happening::StartFailed)
            }
            Effect::Start => {
                let started = self.effects.start(&mut self.record, account).await;
                account.part("start", since);
                if started.is_ok() {
                    self.exited = self.effects.exited(&self.record).await;
                }
                self.fails_as(started, Some(Happening::Started), Happening::StartFailed)
            }
            Effect::Adopt => {
                let answered = self.effects.adopt(&self.record).await;
                self.fails_as(answered, Some(Happening::Started), Happening::StartFailed)
            }
            Effect::Freeze => {
                account.pause();
                let frozen = self.effects.freeze(&self.record).await;
                account.part("freeze", since);
                let failure = unless_gone(&frozen, Happening::NotSaved);
                self.fails_as(frozen, Some(Happening::Frozen), failure)
            }
            Effect::Save => {
                let saved = self.effects.save(&mut self.record, account).await;
                let failure = unless_gone(&saved, Happening::NotSaved);
                self.fails_as(saved, Some(Happening::Saved), failure)
            }
            Effect::Thaw => {
                let thawed = self.effects.thaw(&self.record).await;
                account.part("thaw", since);
                account.resume();
                if unless_gone(&thawed, Happening::StartFailed) == Happening::Gone {
                    // Whoever wakes it gets it, with what it still has.
                    account.kept = kept_at(Some(Level::Files));
                    return Some(Happening::Gone);
                }
                self.fails_as(thawed, Some(Happening::Started), Happening::StartFailed)
            }
            Effect::Configure => {
                let was = self.waited_as.take();
                let configured = self.effects.configure(&self.record, was.as_deref()).await;
                account.part("configure", since);
                self.fails_as(configured, Some(Happening::Started), Happening::NotConfigured)
            }
            Effect::DropImage => {
                self.drop_image().await;
                None
            }
            Effect::Shutdown => {
                self.effects.shutdown(&self.record).await;
                account.part("shutdown", since);
                None
            }
            Effect::Kill => {
                self.exited = None;
                self.effects.kill(&mut self.record).await;
                account.part("kill", since);
                account.resume();
                if matches!(self.record.phase, Phase::Suspended(_)) {
                    // It was stored as asleep before, with a slot that may be another's soon.
                    self.store_again().await;
                }
                Some(Happening::Killed)
            }
            Effect::Release => {
                self.effects.release(&self.record).await;
                Some(Happening::Released)
            }
        }
    }

    /// Stores what has changed outside of a transition; if that fails, the next one stores it.
    async fn store_again(&mut self) {
        if let Err(error) = self.store(self.record.clone(), None, Durability::Process).await {
            tracing::warn!(sandbox = %self.record.id, error = %chain(&error), "could not store it");
        }
    }

    /// Forgets its image, then removes it: a record must not name what is gone.
    pub(super) async fn drop_image(&mut self) {
        let Some(image) = self.record.image.clone() else { return };
        let mut next = self.record.clone();
        next.image = None;
        if let Err(error) = self.store(next, None, Durability::Process).await {
            tracing::error!(sandbox = %self.record.id, error = %chain(&error), "its image stays for now");
            return;
        }
        // Hundreds of megabytes take a while to go, and nobody has to wait for that.
        let (effects, id) = (self.effects.clone(), self.record.id.clone());
        tokio::spawn(async move { effects.delete_image(&id, image).await });
    }

    /// Remembers why an effect failed and says what that means.
    fn fails_as(
        &mut self,
        outcome: Result<(), HostError>,
        success: Option<Happening>,
        failure: Happening,
    ) -> Option<Happening> {
        match outcome {
            Ok(()) => success,
            Err(error) => {
                tracing::warn!(sandbox = %self.record.id, error = %chain(&error), ?failure, "an effect failed");
                self.failure = Some(error);
                Some(failure)
            }
        }
    }

    /// Why an effect found no process.
    fn end_text(&self) -> String {
        match &self.failure {
            Some(HostError::Engine(error @ EngineError::EndedInSave { .. })) => error.to_string(),
            _ => "its processes had ended before".to_owned(),
        }
    }

    fn failure_text(&self) -> String {
        self.failure.as_ref().map(|error| chain(error)).unwrap_or_default()
    }
}

/// What has no process left is not as it was before: its files are all that can be kept of it.
fn unless_gone(outcome: &Result<(), HostError>, failure: Happening) -> Happening {
    if is_gone(outcome) { Happening::Gone } else { failure }
}

/// Whether something failed because no process is left.
pub(super) fn is_gone<T>(outcome: &Result<T, HostError>) -> bool {
    let ended = |error: &EngineError| matches!(error, EngineError::NotRunning { .. } | EngineError::EndedInSave { .. });
    matches!(outcome, Err(HostError::Engine(error)) if ended(error))
}
