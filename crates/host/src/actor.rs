//! One task owns one sandbox: decide, persist, act.
//!
//! Everything that changes a sandbox arrives here as a [`Message`], one after the other. The decision is
//! [`roost_lifecycle::step`]; its outcome is in the store before any of its effects runs. The record leaves on a `watch`
//! channel, so that readers never wait for the actor.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roost_engine::Exited;
use roost_lifecycle::{Effect, Event as Happening, Phase, Seen, recover, step};
use roost_model::{EventKind, PatchSandbox, Span, Tombstone, chain};
use roost_store::{Durability, NewEvent, SandboxRecord};
use tokio::sync::{mpsc, oneshot, watch};

use crate::effects::Effects;
use crate::{HostError, view::view};

/// Why a sandbox ends.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    /// A stable word.
    pub(crate) word: &'static str,
    /// The same for people.
    pub(crate) message: String,
}

type Reply<T> = oneshot::Sender<Result<T, HostError>>;

/// What can be asked of an actor.
#[derive(Debug)]
pub(crate) enum Message {
    /// Have it awake.
    Wake(Reply<()>),
    /// End its processes, keep its files (an ephemeral one ends altogether).
    Stop(Reply<()>),
    /// End it.
    Terminate(Cause, Reply<()>),
    /// Change it.
    Patch(PatchSandbox, Reply<()>),
}

/// The actor's state; lives in its task.
pub(crate) struct Actor {
    record: SandboxRecord,
    published: watch::Sender<Arc<SandboxRecord>>,
    effects: Effects,
    exited: Option<Exited>,
    start_failure: Option<String>,
}

/// How an actor begins.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// A sandbox that has just been promised.
    Birth(Reply<()>),
    /// A sandbox found in the store by a new daemon.
    Found,
}

/// Starts the task of one sandbox; returns its mailbox and what it publishes.
pub(crate) fn spawn(
    record: SandboxRecord,
    effects: Effects,
    beginning: Beginning,
) -> (mpsc::Sender<Message>, watch::Receiver<Arc<SandboxRecord>>) {
    let (sender, mailbox) = mpsc::channel(64);
    let (published, seen) = watch::channel(Arc::new(record.clone()));
    let actor = Actor { record, published, effects, exited: None, start_failure: None };
    let actors = actor.effects.actors().clone();
    actors.spawn(actor.run(mailbox, beginning));
    (sender, seen)
}

impl Actor {
    async fn run(mut self, mut mailbox: mpsc::Receiver<Message>, beginning: Beginning) {
        match beginning {
            Beginning::Birth(reply) => {
                self.act(&[Effect::MakeDisk, Effect::Start]).await;
                let outcome = self.awake_or_why();
                // The requester may have left; the sandbox lives on all the same.
                drop(reply.send(outcome));
            }
            Beginning::Found => self.recover().await,
        }
        let leaving = self.effects.leaving().clone();
        while self.record.phase != Phase::Terminated {
            let expiry = time_until(self.record.expires_at);
            tokio::select! {
                () = leaving.cancelled() => return,
                message = mailbox.recv() => match message {
                    Some(message) => self.handle(message).await,
                    None => return,
                },
                () = wait_for(&mut self.exited) => self.gone().await,
                () = tokio::time::sleep(expiry.unwrap_or(FAR)), if expiry.is_some() => {
                    // The wait is cut short now and then, because the wall clock may be set meanwhile.
                    if self.record.expires_at.is_some_and(|end| Timestamp::now() < end) {
                        continue;
                    }
                    let ttl = self.record.ttl.unwrap_or(Span::NEVER);
                    let cause = Cause { word: "ttl", message: format!("its time to live of {ttl} ended") };
                    if let Err(error) = self.terminate(cause).await {
                        tracing::error!(sandbox = %self.record.id, %error, "could not end an expired sandbox");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }
        // Requests that were already in the mailbox find the tombstone.
        mailbox.close();
        while let Some(message) = mailbox.recv().await {
            let gone = || Err(HostError::Terminated(Box::new(view(&self.record))));
            match message {
                Message::Wake(reply) | Message::Stop(reply) | Message::Patch(_, reply) => drop(reply.send(gone())),
                Message::Terminate(_, reply) => drop(reply.send(gone())),
            }
        }
    }

    async fn handle(&mut self, message: Message) {
        match message {
            Message::Wake(reply) => {
                let outcome = match self.happen(Happening::WakeRequested, None).await {
                    Ok(()) => self.awake_or_why(),
                    Err(error) => Err(error),
                };
                drop(reply.send(outcome));
            }
            Message::Stop(reply) => {
                let outcome = if self.record.ephemeral {
                    let cause = Cause { word: "stopped", message: "stopped, and it was ephemeral".to_owned() };
                    self.terminate(cause).await
                } else {
                    self.happen(Happening::StopRequested, Some("stopped on request".to_owned())).await
                };
                drop(reply.send(outcome));
            }
            Message::Terminate(cause, reply) => {
                let outcome = self.terminate(cause).await;
                drop(reply.send(outcome));
            }
            Message::Patch(patch, reply) => {
                let outcome = self.patch(patch).await;
                drop(reply.send(outcome));
            }
        }
    }

    /// All processes ended without anybody asking for it.
    async fn gone(&mut self) {
        let outcome = if self.record.ephemeral {
            self.terminate(Cause { word: "exited", message: "its processes ended".to_owned() }).await
        } else {
            self.happen(Happening::Gone, Some("its processes ended by themselves".to_owned())).await
        };
        if let Err(error) = outcome {
            tracing::error!(sandbox = %self.record.id, %error, "could not record that it ended");
        }
    }

    async fn terminate(&mut self, cause: Cause) -> Result<(), HostError> {
        if !self.record.phase.is_ending() {
            let tombstone =
                Tombstone { cause: cause.word.to_owned(), message: cause.message.clone(), at: Timestamp::now() };
            self.record.tombstone = Some(tombstone);
            self.record.reason = Some(cause.message);
        }
        self.happen(Happening::TerminateRequested, self.record.reason.clone()).await
    }

    /// Carries a sandbox of an earlier daemon to a settled state.
    async fn recover(&mut self) {
        let seen = self.effects.seen(&self.record).await;
        let (phase, effects) = recover(self.record.phase, seen);
        if self.record.bound_to_run && !phase.is_ending() {
            let cause = Cause { word: "daemon_restarted", message: "the daemon ended during its run".to_owned() };
            if let Err(error) = self.terminate(cause).await {
                tracing::error!(sandbox = %self.record.id, %error, "could not end a run that was left behind");
            }
            return;
        }
        if phase != self.record.phase {
            let reason = "its processes were gone when the daemon started".to_owned();
            self.enter_until_stored(phase, Some(reason)).await;
        }
        if seen == Seen::Present && self.record.phase == Phase::Active {
            self.exited = self.effects.exited(&self.record).await;
        }
        self.act(effects).await;
    }

    /// Decides and persists; acts only if that worked.
    async fn happen(&mut self, event: Happening, reason: Option<String>) -> Result<(), HostError> {
        let (phase, effects) = step(self.record.phase, event)?;
        if phase != self.record.phase {
            let kind =
                if event == Happening::Gone { Some(EventKind::Crashed) } else { event_of(self.record.phase, phase) };
            self.enter(phase, reason, kind).await?;
        }
        self.act(effects).await;
        Ok(())
    }

    /// Runs effects and whatever follows from their outcomes, until the sandbox is settled.
    async fn act(&mut self, effects: &'static [Effect]) {
        let mut effects = effects;
        loop {
            let mut outcome = None;
            for effect in effects {
                outcome = self.run_effect(*effect).await;
                // A disk that could not be made leaves nothing to start.
                if matches!(outcome, Some(Happening::StartFailed)) {
                    break;
                }
            }
            let Some(event) = outcome else { return };
            let Ok((phase, next)) = step(self.record.phase, event) else {
                tracing::error!(sandbox = %self.record.id, phase = %self.record.phase, ?event, "unexpected outcome");
                return;
            };
            if event == Happening::StartFailed && phase.is_ending() {
                let why = self.start_failure.clone().unwrap_or_default();
                let tombstone = Tombstone { cause: "create_failed".to_owned(), message: why, at: Timestamp::now() };
                self.record.tombstone.get_or_insert(tombstone);
            }
            if phase != self.record.phase {
                let reason = match event {
                    Happening::Started => None,
                    Happening::StartFailed => self.start_failure.clone(),
                    _ => self.record.reason.clone(),
                };
                self.enter_until_stored(phase, reason).await;
            }
            effects = next;
        }
    }

    async fn run_effect(&mut self, effect: Effect) -> Option<Happening> {
        match effect {
            Effect::MakeDisk => match self.effects.make_disk(&self.record).await {
                Ok(()) => None,
                Err(error) => {
                    self.start_failure = Some(format!("could not make its disk: {error}"));
                    Some(Happening::StartFailed)
                }
            },
            Effect::Start => match self.effects.start(&mut self.record).await {
                Ok(()) => {
                    self.exited = self.effects.exited(&self.record).await;
                    self.start_failure = None;
                    Some(Happening::Started)
                }
                Err(error) => {
                    tracing::warn!(sandbox = %self.record.id, %error, "could not start");
                    self.start_failure = Some(chain(&error));
                    Some(Happening::StartFailed)
                }
            },
            Effect::Shutdown => {
                self.effects.shutdown(&self.record).await;
                None
            }
            Effect::Kill => {
                self.exited = None;
                self.effects.kill(&mut self.record).await;
                Some(Happening::Killed)
            }
            Effect::Release => {
                self.effects.release(&self.record).await;
                Some(Happening::Released)
            }
        }
    }

    async fn patch(&mut self, patch: PatchSandbox) -> Result<(), HostError> {
        if self.record.phase.is_ending() {
            return Err(HostError::Terminated(Box::new(view(&self.record))));
        }
        let mut changed = self.record.clone();
        for (key, value) in patch.labels.into_iter().flatten() {
            match value {
                Some(value) => changed.labels.insert(key, value),
                None => changed.labels.remove(&key),
            };
        }
        if let Some(ttl) = patch.ttl {
            changed.ttl = ttl.get().map(|_| ttl);
            changed.expires_at = expiry(Timestamp::now(), changed.ttl)?;
        }
        if let Some(limits) = &patch.limits {
            changed.limits = self.record.limits.with(limits);
            changed.limits.check(self.effects.host_limits())?;
            self.effects.set_limits(&changed).await?;
        }
        let event = NewEvent { at: Timestamp::now(), kind: EventKind::Changed, reason: None };
        self.store(changed, Some(event), Durability::Process).await
    }

    async fn enter(&mut self, phase: Phase, reason: Option<String>, kind: Option<EventKind>) -> Result<(), HostError> {
        let now = Timestamp::now();
        let mut next = self.record.clone();
        let event = kind.map(|kind| NewEvent { at: now, kind, reason: reason.clone() });
        next.phase = phase;
        next.state_since = now;
        next.reason = reason;
        // A tombstone must be on the disk before the data it speaks of goes.
        let durability = if phase == Phase::Terminating { Durability::Synced } else { Durability::Process };
        self.store(next, event, durability).await
    }

    /// For transitions that report what has already happened: they cannot be refused, so they are tried until stored.
    async fn enter_until_stored(&mut self, phase: Phase, reason: Option<String>) {
        let kind = event_of(self.record.phase, phase);
        while let Err(error) = self.enter(phase, reason.clone(), kind).await {
            tracing::error!(sandbox = %self.record.id, %phase, error = %chain(&error), "could not persist; trying again");
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Stored, then seen, then told: whoever hears of it finds it so.
    async fn store(
        &mut self,
        record: SandboxRecord,
        event: Option<NewEvent>,
        durability: Durability,
    ) -> Result<(), HostError> {
        let event = self.effects.save(&record, event, durability).await?;
        self.record = record;
        self.published.send_replace(Arc::new(self.record.clone()));
        self.effects.announce(event);
        Ok(())
    }

    fn awake_or_why(&self) -> Result<(), HostError> {
        match self.record.phase {
            Phase::Active => Ok(()),
            phase if phase.is_ending() && self.start_failure.is_none() => {
                Err(HostError::Terminated(Box::new(view(&self.record))))
            }
            _ => Err(HostError::NotStarted {
                name: self.record.name.to_string(),
                detail: self.start_failure.clone().unwrap_or_else(|| format!("it is {}", self.record.phase)),
            }),
        }
    }
}

const RETRY: Duration = Duration::from_millis(500);
const FAR: Duration = Duration::from_secs(3600);

/// The moment at which a time to live that starts `from` ends.
pub(crate) fn expiry(from: Timestamp, ttl: Option<Span>) -> Result<Option<Timestamp>, HostError> {
    let Some(length) = ttl.and_then(Span::get) else { return Ok(None) };
    if length.is_zero() {
        return Err(HostError::BadRequest("a time to live of zero would end it at once".to_owned()));
    }
    let end = jiff::SignedDuration::try_from(length).ok().and_then(|length| from.checked_add(length).ok());
    end.map(Some).ok_or_else(|| HostError::BadRequest("that time to live is too long".to_owned()))
}

fn time_until(moment: Option<Timestamp>) -> Option<Duration> {
    let left = moment?.duration_since(Timestamp::now());
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO).min(Duration::from_secs(60)))
}

async fn wait_for(exited: &mut Option<Exited>) {
    match exited {
        Some(future) => {
            future.await;
            *exited = None;
        }
        None => std::future::pending().await,
    }
}

/// The event that a change of phase is worth.
fn event_of(from: Phase, to: Phase) -> Option<EventKind> {
    match (from, to) {
        (Phase::Creating, Phase::Active) => Some(EventKind::Created),
        (_, Phase::Active) => Some(EventKind::Woken),
        (_, Phase::Suspended(_)) => Some(EventKind::Suspended),
        (_, Phase::Terminating) => Some(EventKind::Terminated),
        _ => None,
    }
}
