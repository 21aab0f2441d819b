//! One sandbox, as every surface holds it.

use std::sync::Arc;
use std::time::Duration;

use roost_lifecycle::{Phase, Waker};
use roost_model::{Level, OnTtl, PatchSandbox, PortView, Receipt, SandboxId, SandboxView, Signal, Stats, Suspend};
use roost_store::SandboxRecord;
use roost_wire::client::{FromFrame, Incoming};
use roost_wire::{ListPorts, Reply, Request};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::actor::{Cause, Ends, Message};
use crate::caller::Caller;
use crate::guards::{Busy, Guards, Kind};
use crate::guest::{Guest, GuestConnection, GuestSocket};
use crate::shared::Shared;
use crate::view::view;
use crate::{HostError, blocking, convert};

/// How long a guest that cannot be reached may take to be found dead.
const SETTLE: Duration = Duration::from_secs(3);

/// One sandbox: cheap to clone, never blocks its actor.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: SandboxId,
    pub(crate) mailbox: mpsc::Sender<Message>,
    pub(crate) seen: watch::Receiver<Arc<SandboxRecord>>,
    pub(crate) guards: Arc<Guards>,
    /// For whom it was found.
    pub(crate) caller: Caller,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>, id: SandboxId, ends: Ends) -> Self {
        let Ends { mailbox, seen, guards } = ends;
        Self { shared, id, mailbox, seen, guards, caller: Caller::owner() }
    }

    /// Keeps it awake for a client that may be there for long, unless its policy ignores the signal.
    ///
    /// `what` is for people: `exec "npm test" attached`. It must be raised before the sandbox is looked at or used.
    pub fn busy(&self, signal: Signal, what: impl AsRef<str>) -> Busy {
        self.guards.raise(signal, Kind::Client, what.as_ref())
    }

    /// Keeps it awake for a request that is being answered, whatever its policy; one that is put to sleep by hand wakes
    /// again for it.
    pub fn request(&self, what: impl AsRef<str>) -> Busy {
        self.guards.raise(Signal::Connections, Kind::Request, what.as_ref())
    }

    /// A look at it that must not be frozen half-way, and is no reason to wake it or to stay awake.
    pub(crate) fn glance(&self, what: &str) -> Busy {
        self.guards.raise(Signal::Connections, Kind::Glance, what)
    }

    /// Whether it is awake and stays so for whoever holds a guard.
    pub(crate) fn is_awake(&self) -> bool {
        !self.guards.falling_asleep() && self.record().phase == Phase::Active
    }

    /// Has it awake for as long as the guard is held.
    pub async fn awake(&self, busy: &Busy) -> Result<(), HostError> {
        self.living()?;
        // In this order: what is no longer falling asleep has said so in its phase.
        if !self.is_awake() {
            self.ask(|reply| Message::Wake(busy.what().to_owned(), Waker::Touch, reply)).await.map(drop)?;
        }
        Ok(())
    }

    /// Its id.
    pub fn id(&self) -> &SandboxId {
        &self.id
    }

    pub(crate) fn record(&self) -> Arc<SandboxRecord> {
        self.seen.borrow().clone()
    }

    /// What everybody may see of it now.
    pub fn view(&self) -> SandboxView {
        let record = self.record();
        let mut view = view(&record);
        view.ports = self.decided_ports();
        if record.phase == Phase::Active {
            view.quiet_since = self.guards.quiet_since(&record.idle.ignore);
        }
        view
    }

    /// Waits until it is no longer being made, and returns what became of it.
    pub(crate) async fn born(&self) -> SandboxView {
        let mut seen = self.seen.clone();
        match seen.wait_for(|record| record.phase != Phase::Creating).await {
            Ok(record) => view(&record),
            Err(_) => self.view(),
        }
    }

    /// Fails with the tombstone if it is gone.
    pub fn living(&self) -> Result<(), HostError> {
        let record = self.record();
        if record.phase.is_ending() { Err(HostError::Terminated(Box::new(view(&record)))) } else { Ok(()) }
    }

    /// Resolves when nothing more comes from it: it has ended, stays asleep, or nobody looks after it any more.
    pub async fn ended(&self) {
        let mut seen = self.seen.clone();
        // An error means that its actor is gone.
        drop(seen.wait_for(|record| record.phase.is_ending() || record.stays).await);
    }

    /// Waits until it is awake for another reason than this; fails if it has ended meanwhile.
    pub async fn awake_for_others(&self) -> Result<(), HostError> {
        let mut seen = self.seen.clone();
        drop(seen.wait_for(|record| record.phase == Phase::Active || record.phase.is_ending()).await);
        self.living()
    }

    pub(crate) async fn ask<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<Result<T, HostError>>) -> Message,
    ) -> Result<T, HostError> {
        let (reply, answer) = oneshot::channel();
        let gone = || HostError::Terminated(Box::new(self.view()));
        self.mailbox.send(message(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Has it awake, as it was when it fell asleep, also if it shall stay asleep.
    pub async fn wake(&self) -> Result<Receipt, HostError> {
        self.wake_for("request", Waker::Order).await
    }

    /// Has it awake for something that needs it and is told in its events.
    pub(crate) async fn wake_because(&self, cause: &str) -> Result<Receipt, HostError> {
        self.wake_for(cause, Waker::Touch).await
    }

    async fn wake_for(&self, cause: &str, waker: Waker) -> Result<Receipt, HostError> {
        self.living()?;
        let busy = self.request(cause);
        self.ask(|reply| Message::Wake(busy.what().to_owned(), waker, reply)).await
    }

    /// Lets it sleep at a level, or deeper than it does; an ephemeral one that would lose its processes ends altogether.
    pub async fn suspend(&self, wanted: impl Into<Suspend>) -> Result<Receipt, HostError> {
        self.living()?;
        let wanted = wanted.into();
        if wanted.to == Level::Files && self.record().ephemeral {
            self.may_destroy("end a sandbox that goes with its processes")?;
        }
        self.ask(|reply| Message::Suspend(wanted, reply)).await
    }

    /// Does now what is to be done when its time to live ends.
    pub async fn expire(&self) -> Result<(), HostError> {
        self.living()?;
        if self.record().on_ttl == OnTtl::Delete {
            self.may_destroy("end a sandbox")?;
        }
        self.ask(Message::Expire).await
    }

    /// Ends it for good; its tombstone stays.
    pub async fn delete(&self) -> Result<(), HostError> {
        self.may_destroy("end a sandbox")?;
        self.terminate("deleted", "deleted on request").await
    }

    /// Notes in its events that it fills a table that the whole host shares.
    pub(crate) async fn note_strain(&self, reason: String) -> Result<(), HostError> {
        self.ask(|reply| Message::Strain(reason, reply)).await
    }

    /// Ends its processes for a reason of the host's. It sleeps with its files, or goes back to its last checkpoint with memory.
    pub(crate) async fn end_processes(&self, reason: String) -> Result<(), HostError> {
        self.ask(|reply| Message::EndProcesses(reason, reply)).await
    }

    pub(crate) async fn terminate(&self, word: &'static str, message: &str) -> Result<(), HostError> {
        self.living()?;
        let cause = Cause { word, message: message.to_owned() };
        self.ask(|reply| Message::Terminate(cause, reply)).await
    }

    /// Changes labels, limits, time to live, when it sleeps, or what it may reach.
    pub async fn patch(&self, patch: PatchSandbox) -> Result<SandboxView, HostError> {
        self.living()?;
        self.caller.may_patch(&self.record(), &patch)?;
        crate::create::check_labels(patch.labels.iter().flatten().map(|(key, value)| (key, value.as_deref())))?;
        let warnings = self.shared.unkept(patch.limits.as_ref());
        self.ask(|reply| Message::Patch(patch, reply)).await?;
        Ok(SandboxView { warnings, ..self.view() })
    }

    /// The way to its guest; wakes it if need be.
    pub async fn guest(&self, busy: &Busy) -> Result<Guest, HostError> {
        self.awake(busy).await?;
        Guest::of(self.shared.clone(), &self.record())
    }

    /// A fresh connection to its guest; wakes it if need be.
    pub(crate) async fn connection(&self, busy: &Busy) -> Result<(Guest, GuestConnection), HostError> {
        let life = self.life();
        match self.try_connection(busy).await {
            Err(error) if self.died_under(&error, &life).await => self.try_connection(busy).await,
            other => other,
        }
    }

    pub(crate) async fn try_connection(&self, busy: &Busy) -> Result<(Guest, GuestConnection), HostError> {
        let guest = self.guest(busy).await?;
        let connection = guest.connect().await?;
        Ok((guest, connection))
    }

    /// Whether an error came of a guest that has died since.
    ///
    /// Such a guest refuses or drops connections before its actor has heard of its death, which is waited for here. What
    /// was begun on it can be begun once more: nothing of it outlived the guest.
    pub(crate) async fn died_under(&self, error: &HostError, life: &CancellationToken) -> bool {
        matches!(error, HostError::GuestLost { .. }) && tokio::time::timeout(SETTLE, life.cancelled()).await.is_ok()
    }

    /// What is told when the processes that it has now, or will have when it wakes, have ended.
    pub(crate) fn life(&self) -> CancellationToken {
        self.shared.guests.life_of(&self.id)
    }

    /// Makes one call that may safely be made twice.
    pub(crate) async fn call(&self, request: &Request, busy: &Busy) -> Result<Reply, HostError> {
        let guest = self.guest(busy).await?;
        if let Some(mut connection) = guest.ready() {
            match connection.call(request).await {
                Ok(reply) => {
                    guest.give_back(connection);
                    return Ok(reply);
                }
                // It had gone stale; a fresh one decides.
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(guest.failed(error)),
            }
        }
        let (guest, mut connection) = self.connection(busy).await?;
        let reply = connection.call(request).await.map_err(|error| guest.failed(error))?;
        guest.give_back(connection);
        Ok(reply)
    }

    /// Opens a stream of something that may safely be asked for twice: it is, if the guest dies under it.
    pub(crate) async fn stream<T: FromFrame>(
        &self,
        request: Request,
        busy: &Busy,
    ) -> Result<(Guest, Incoming<GuestSocket, T>), HostError> {
        let life = self.life();
        match self.try_stream(request.clone(), busy).await {
            Err(error) if self.died_under(&error, &life).await => self.try_stream(request, busy).await,
            other => other,
        }
    }

    async fn try_stream<T: FromFrame>(
        &self,
        request: Request,
        busy: &Busy,
    ) -> Result<(Guest, Incoming<GuestSocket, T>), HostError> {
        let guest = self.guest(busy).await?;
        if let Some(kept) = guest.ready() {
            match Incoming::open(kept, request.clone()).await {
                Ok(stream) => return Ok((guest, stream)),
                // It had gone stale; a fresh one decides.
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(guest.failed(error)),
            }
        }
        let stream = Incoming::open(guest.connect().await?, request).await.map_err(|error| guest.failed(error))?;
        Ok((guest, stream))
    }

    /// A reply that does not fit its request.
    pub(crate) fn unexpected(&self, reply: Reply) -> HostError {
        match Guest::of(self.shared.clone(), &self.record()) {
            Ok(guest) => guest.unexpected(reply),
            Err(lost) => lost,
        }
    }

    /// What it uses now; does not wake it.
    pub async fn stats(&self) -> Result<Stats, HostError> {
        self.living()?;
        let record = self.record();
        let there = matches!(record.phase, Phase::Active | Phase::Suspended(Level::Ram));
        let usage = if there {
            self.shared.engine(record.engine)?.usage(&record.id).await?
        } else {
            roost_engine::Usage::default()
        };
        let (pool, id) = (self.shared.pool.clone(), record.id.clone());
        let disk = blocking(move || pool.usage(id.as_str())).await;
        let disk = disk.map_err(|error| HostError::Internal(error.to_string()))?;
        Ok(Stats {
            cpu_us: usage.cpu_us,
            memory: usage.memory,
            memory_anon: usage.memory_anon,
            memory_limit: record.limits.memory,
            pids: usage.pids,
            disk_exclusive: disk.map_or(0, |disk| disk.exclusive),
            disk_limit: record.limits.disk,
            oom_kills: usage.oom_kills,
        })
    }

    /// TCP ports that listen inside, and those about which something was decided.
    pub async fn ports(&self) -> Result<Vec<PortView>, HostError> {
        let busy = self.request("list of ports");
        self.ports_during(&busy).await
    }

    /// TCP ports that listen inside one that is awake; neither wakes it nor keeps it awake any longer.
    pub async fn ports_if_awake(&self) -> Result<Vec<PortView>, HostError> {
        let glance = self.glance("list of ports");
        if !self.is_awake() {
            return Ok(Vec::new());
        }
        self.ports_during(&glance).await
    }

    async fn ports_during(&self, busy: &Busy) -> Result<Vec<PortView>, HostError> {
        match self.call(&Request::Ports(ListPorts { processes: true }), busy).await? {
            Reply::Ports(ports) => {
                let mut ports: Vec<PortView> =
                    ports.into_iter().map(|port| self.dressed(convert::port_view(port))).collect();
                let closed = |decided: &PortView| ports.iter().all(|port| port.port != decided.port);
                let more: Vec<PortView> = self.decided_ports().into_iter().filter(closed).collect();
                ports.extend(more);
                ports.sort_by_key(|port| port.port);
                Ok(ports)
            }
            other => Err(self.unexpected(other)),
        }
    }
}
