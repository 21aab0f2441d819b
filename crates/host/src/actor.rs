//! One task owns one sandbox: decide, persist, act.
//!
//! Everything that changes a sandbox arrives here as a [`Message`], one after the other. The decision is
//! [`roost_lifecycle::step`]; its outcome is in the store before any of its effects runs. The record leaves on a `watch`
//! channel, so that readers never wait for the actor.

mod act;
mod ended;
mod enter;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use roost_engine::Exited;
use roost_lifecycle::{Effect, Event as Happening, Phase, Seen, Waker, at_end_of_ttl, end_of, may_wake, recover, step};
use roost_model::{
    CreateCheckpoint, EngineKind, EventKind, Level, Operation, PatchSandbox, PortAccess, Receipt, SandboxId, Span,
    Suspend, Tombstone, chain,
};
use roost_store::{CheckpointRecord, Durability, IdempotencyKey, NewEvent, NotSaved, SandboxRecord};
use tokio::sync::{mpsc, oneshot, watch};

use crate::account::{Account, kept_at};
use crate::effects::Effects;
use crate::guards::Guards;
use crate::idle::IdleWatch;
use crate::moments::Purpose;
use crate::room::Place;
use crate::services::ServiceChange;
use crate::{HostError, view::view};

use enter::{change_of, event_of};

/// Why a sandbox ends.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    /// A stable word.
    pub(crate) word: &'static str,
    /// The same for people.
    pub(crate) message: String,
}

/// What one that waits in a pool shall become.
#[derive(Debug)]
pub(crate) struct Taking {
    /// The sandbox that was asked for, as it would have been made.
    pub(crate) record: SandboxRecord,
    /// The key of the request.
    pub(crate) key: Option<IdempotencyKey>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is what was asked for, and awake.
    Yours,
    /// The same request has made this one before; the one that waits still does.
    Replayed(SandboxId),
    /// It does not wait any more.
    Unfit,
}

type Reply<T> = oneshot::Sender<Result<T, HostError>>;

/// What can be asked of an actor.
#[derive(Debug)]
pub(crate) enum Message {
    /// Have it awake, for this cause.
    Wake(String, Waker, Reply<Receipt>),
    /// Let it sleep (an ephemeral one that shall lose its processes ends altogether).
    Suspend(Suspend, Reply<Receipt>),
    /// Do what is to be done when its time to live ends.
    Expire(Reply<()>),
    /// Let its memory go to disk if it sleeps in RAM, for this reason.
    Deepen(String, Reply<()>),
    /// Keep a moment of it.
    Checkpoint(CreateCheckpoint, Purpose, Reply<(CheckpointRecord, Receipt)>),
    /// Be taken out of a pool.
    Take(Box<Taking>, Reply<Taken>),
    /// Let it go back to a moment of it.
    Restore(Box<CheckpointRecord>, Reply<Receipt>),
    /// Let it go on with another engine.
    Move(EngineKind, Reply<Receipt>),
    /// End it.
    Terminate(Cause, Reply<()>),
    /// Change it.
    Patch(PatchSandbox, Reply<()>),
    /// Change its services.
    Services(ServiceChange, Reply<()>),
    /// Note that it fills a table that the whole host shares, with the reason.
    Strain(String, Reply<()>),
    /// End its processes because it harms the host, for this reason.
    EndProcesses(String, Reply<()>),
    /// Decide who may reach a port.
    SetPort(u16, PortAccess, Reply<()>),
}

/// The actor's state; lives in its task.
pub(crate) struct Actor {
    pub(crate) record: SandboxRecord,
    published: watch::Sender<Arc<SandboxRecord>>,
    pub(crate) effects: Effects,
    exited: Option<Exited>,
    /// Why the host ended its processes, until their end is seen.
    ended_for: Option<String>,
    /// What it was while it waited in a pool, while it is taken out.
    pub(crate) waited_as: Option<Box<SandboxRecord>>,
    /// Why the last start or save did not work.
    pub(crate) failure: Option<HostError>,
    /// What the operation that is under way did and cost.
    pub(crate) account: Account,
    /// Who is being served.
    pub(crate) guards: Arc<Guards>,
    /// What was seen since it woke.
    pub(crate) watch: IdleWatch,
    /// Its place among those that are awake, while it is.
    place: Option<Place>,
    /// When it went back to a moment of its own by itself.
    went_back: Option<Instant>,
}

/// What the outside holds of an actor.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) mailbox: mpsc::Sender<Message>,
    pub(crate) seen: watch::Receiver<Arc<SandboxRecord>>,
    pub(crate) guards: Arc<Guards>,
}

/// How an actor begins.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// A sandbox that has just been promised.
    Birth(Reply<()>),
    /// A sandbox found in the store by a new daemon.
    Found,
}

/// Starts the task of one sandbox; `place` is its place among those that are awake, if it was given one.
pub(crate) fn spawn(record: SandboxRecord, effects: Effects, beginning: Beginning, place: Option<Place>) -> Ends {
    let (sender, mailbox) = mpsc::channel(64);
    let (published, seen) = watch::channel(Arc::new(record.clone()));
    let guards = Guards::new();
    let actor = Actor {
        record,
        published,
        effects,
        exited: None,
        waited_as: None,
        failure: None,
        account: Account::open(),
        guards: guards.clone(),
        watch: IdleWatch::default(),
        place,
        went_back: None,
        ended_for: None,
    };
    let actors = actor.effects.actors().clone();
    actors.spawn(actor.run(mailbox, beginning));
    Ends { mailbox: sender, seen, guards }
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
        let guards = self.guards.clone();
        while self.record.phase != Phase::Terminated {
            let expiry = time_until(self.record.expires_at);
            let look_at = self.next_look();
            tokio::select! {
                () = leaving.cancelled() => return,
                message = mailbox.recv() => match message {
                    Some(message) => self.handle(message).await,
                    None => return,
                },
                () = wait_for(&mut self.exited) => self.gone().await,
                () = guards.told() => self.look().await,
                () = look_again(look_at) => self.look().await,
                () = tokio::time::sleep(expiry.unwrap_or(FAR)), if expiry.is_some() => {
                    // The wait is cut short now and then, because the wall clock may be set meanwhile.
                    if self.record.expires_at.is_some_and(|end| Timestamp::now() < end) {
                        continue;
                    }
                    if let Err(error) = self.expire().await {
                        tracing::error!(sandbox = %self.record.id, error = %chain(&error), "could not end its time");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }
        // Requests that were already in the mailbox find the tombstone.
        mailbox.close();
        while let Some(message) = mailbox.recv().await {
            let gone = HostError::Terminated(Box::new(view(&self.record)));
            match message {
                Message::Wake(_, _, reply)
                | Message::Suspend(_, reply)
                | Message::Restore(_, reply)
                | Message::Move(_, reply) => drop(reply.send(Err(gone))),
                Message::Checkpoint(_, _, reply) => drop(reply.send(Err(gone))),
                Message::Terminate(_, reply)
                | Message::Expire(reply)
                | Message::Patch(_, reply)
                | Message::Services(_, reply)
                | Message::Deepen(_, reply)
                | Message::Strain(_, reply)
                | Message::EndProcesses(_, reply)
                | Message::SetPort(_, _, reply) => {
                    drop(reply.send(Err(gone)));
                }
                Message::Take(_, reply) => drop(reply.send(Err(gone))),
            }
        }
    }

    async fn handle(&mut self, message: Message) {
        self.account = Account::open();
        // A requester that left does not mind that its answer is dropped.
        match message {
            Message::Wake(cause, waker, reply) => drop(reply.send(self.wake(&cause, waker).await)),
            Message::Suspend(Suspend { to, stay }, reply) => {
                let why = format!("suspended to {to} on request");
                let outcome = if stay { self.suspend_to_stay(to, why).await } else { self.suspend(to, why).await };
                drop(reply.send(outcome));
                self.wake_for_requests().await;
            }
            Message::Expire(reply) => drop(reply.send(self.expire().await)),
            Message::Deepen(why, reply) => drop(reply.send(self.deepen(why).await)),
            Message::Checkpoint(wanted, purpose, reply) => {
                let outcome = self.checkpoint(wanted, purpose).await;
                self.see_to_its_end(&outcome).await;
                drop(reply.send(outcome));
            }
            Message::Take(taking, reply) => drop(reply.send(self.leave_pool(*taking).await)),
            Message::Restore(checkpoint, reply) => {
                let outcome = self.restore(*checkpoint).await;
                self.see_to_its_end(&outcome).await;
                drop(reply.send(outcome));
            }
            Message::Move(to, reply) => drop(reply.send(self.move_to(to).await)),
            Message::Terminate(cause, reply) => drop(reply.send(self.terminate(cause).await)),
            Message::Patch(patch, reply) => drop(reply.send(self.patch(patch).await)),
            Message::Services(change, reply) => drop(reply.send(self.change_services(change).await)),
            Message::Strain(reason, reply) => drop(reply.send(self.note_strain(reason).await)),
            Message::EndProcesses(reason, reply) => drop(reply.send(self.end_processes(reason).await)),
            Message::SetPort(port, access, reply) => drop(reply.send(self.set_port(port, access).await)),
        }
    }

    pub(crate) async fn wake(&mut self, cause: &str, waker: Waker) -> Result<Receipt, HostError> {
        let record = &self.record;
        if !may_wake(record.phase, record.stays, record.auto_resume, waker) {
            let since = record.asleep_since.unwrap_or(record.state_since);
            return Err(HostError::StaysAsleep { name: record.name.to_string(), since });
        }
        self.guards.touch();
        self.take_place()?;
        self.account.kept = kept_at(self.record.phase.level());
        let woken = self.happen(Happening::WakeRequested, Some(format!("woken by {cause}"))).await;
        if matches!(self.record.phase, Phase::Suspended(_)) {
            self.place = None;
        }
        woken?;
        self.awake_or_why()?;
        Ok(self.account.receipt(Operation::Wake, None, self.record.generation))
    }

    /// Takes a place among those that are awake, unless it has one.
    pub(crate) fn take_place(&mut self) -> Result<(), HostError> {
        if self.place.is_none() && !self.record.phase.is_ending() {
            let needs_memory = self.record.phase != Phase::Suspended(Level::Ram);
            self.place = Some(self.effects.shared.room.admit(needs_memory)?);
        }
        Ok(())
    }

    /// Lets it sleep, or sleep deeper; `why` becomes its reason.
    pub(crate) async fn suspend(&mut self, to: Level, why: String) -> Result<Receipt, HostError> {
        if to == Level::Files && self.record.ephemeral {
            let cause = Cause { word: "stopped", message: format!("{why}, and it was ephemeral") };
            self.terminate(cause).await?;
            return Ok(self.account.receipt(Operation::Suspend, None, self.record.generation));
        }
        self.failure = None;
        self.account.kept = kept_at(Some(to));
        self.happen(Happening::SuspendRequested(to), Some(why)).await?;
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        Ok(self.account.receipt(Operation::Suspend, self.record.phase.level(), self.record.generation))
    }

    /// Lets it sleep until somebody wakes it expressly; its time to live stands still from then on.
    pub(crate) async fn suspend_to_stay(&mut self, to: Level, why: String) -> Result<Receipt, HostError> {
        let before = (self.record.stays, self.record.expires_at);
        // Stored together with the phase.
        self.record.stays = true;
        let outcome = self.suspend(to, why).await;
        let (stays, expires_at) = match self.record.phase {
            phase if phase.is_ending() => return outcome,
            Phase::Suspended(_) if outcome.is_ok() => (true, None),
            // It sleeps as it did before.
            Phase::Suspended(_) => before,
            _ => (false, self.record.expires_at),
        };
        let next = SandboxRecord { stays, expires_at, ..self.record.clone() };
        let seen = self.published.borrow().clone();
        if (seen.stays, seen.expires_at) == (stays, expires_at) {
            self.record = next;
        } else {
            let event = NewEvent { at: Timestamp::now(), kind: EventKind::Changed, reason: None, receipt: None };
            self.store(next, Some(event), Durability::Process).await?;
        }
        outcome
    }

    /// What is to be done when its time to live ends.
    async fn expire(&mut self) -> Result<(), HostError> {
        self.account = Account::open();
        let ttl = self.record.ttl.unwrap_or(Span::NEVER);
        let end = format!("its time to live of {ttl} ended");
        match at_end_of_ttl(self.record.on_ttl) {
            Happening::SuspendRequested(to) => {
                let why = format!("when {end}");
                match self.suspend_to_stay(to, why.clone()).await {
                    // Never quietly reduced to its files: it stands still with its memory where it is.
                    Err(error) if to == Level::Disk && !self.record.phase.is_ending() => {
                        self.record.not_saved = Some(NotSaved { why: chain(&error), at: Timestamp::now() });
                        self.account = Account::open();
                        self.suspend_to_stay(Level::Ram, why).await.map(drop)
                    }
                    other => other.map(drop),
                }
            }
            _ => self.terminate(Cause { word: "ttl", message: end }).await,
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
        // The image it woke from is of an earlier moment than its files are by now.
        if !self.record.phase.is_in_image() && self.record.source.is_none() {
            self.drop_image().await;
        }
        if phase != self.record.phase {
            let reason = if seen == Seen::Absent {
                let limit = self.effects.limit_that_ended(&self.record).await;
                Some(limit.unwrap_or_else(|| "its processes were gone when the daemon started".to_owned()))
            } else {
                None
            };
            let kind = change_of(self.record.phase, phase);
            self.enter_until_stored(phase, reason, kind).await;
        }
        if seen != Seen::Absent {
            self.exited = self.effects.exited(&self.record).await;
        }
        self.entered(self.record.phase);
        self.act(effects).await;
        if self.record.phase == Phase::Active {
            self.effects.hand_services_later(&self.record);
        }
    }

    /// Decides and persists; acts only if that worked.
    pub(crate) async fn happen(&mut self, event: Happening, reason: Option<String>) -> Result<(), HostError> {
        let (phase, effects) = step(self.record.phase, event)?;
        if phase != self.record.phase {
            let kind = event_of(event, self.record.phase, phase);
            self.enter(phase, reason, kind).await?;
        }
        self.act(effects).await;
        Ok(())
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
            // It starts anew when one that stays asleep wakes.
            changed.expires_at = expiry(Timestamp::now(), changed.ttl)?.filter(|_| !changed.stays);
        }
        changed.on_ttl = patch.on_ttl.unwrap_or(changed.on_ttl);
        changed.auto_resume = patch.auto_resume.unwrap_or(changed.auto_resume);
        if let Some(network) = patch.network.filter(|network| *network != self.record.network) {
            changed.network = network;
            self.effects.set_network(&changed).await?;
        }
        if let Some(limits) = &patch.limits {
            changed.limits = self.record.limits.with(limits);
            changed.limits.check(self.effects.host_limits())?;
            self.effects.set_limits(&changed).await?;
        }
        if let Some(idle) = &patch.idle {
            changed.idle = changed.idle.with(idle);
        }
        let event = NewEvent { at: Timestamp::now(), kind: EventKind::Changed, reason: None, receipt: None };
        self.store(changed, Some(event), Durability::Process).await?;
        if patch.idle.is_some() {
            self.watch_anew();
        }
        Ok(())
    }

    async fn note_strain(&mut self, reason: String) -> Result<(), HostError> {
        let event = NewEvent { at: Timestamp::now(), kind: EventKind::Strained, reason: Some(reason), receipt: None };
        self.store(self.record.clone(), Some(event), Durability::Process).await
    }

    pub(crate) fn awake_or_why(&mut self) -> Result<(), HostError> {
        let failure = self.failure.take();
        match (self.record.phase, failure) {
            (Phase::Active, _) => Ok(()),
            (phase, None) if phase.is_ending() => Err(HostError::Terminated(Box::new(view(&self.record)))),
            // An image that does not fit has a code of its own, by which callers know to ask for the files.
            (_, Some(error @ HostError::ImageIncompatible(_))) => Err(error),
            // A sandbox that cannot be woken says so itself; what the engine said is the cause.
            (_, Some(error)) => Err(self.not_started(error)),
            (phase, None) => Err(self.not_started(HostError::Internal(format!("it is {phase}")))),
        }
    }

    fn not_started(&self, cause: HostError) -> HostError {
        HostError::NotStarted { name: self.record.name.to_string(), cause: Box::new(cause) }
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
    let end = end_of(from, ttl);
    if end == Some(Timestamp::MAX) {
        return Err(HostError::BadRequest("that time to live is too long".to_owned()));
    }
    Ok(end)
}

fn time_until(moment: Option<Timestamp>) -> Option<Duration> {
    let left = moment?.duration_since(Timestamp::now());
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO).min(Duration::from_secs(60)))
}

async fn look_again(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
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
