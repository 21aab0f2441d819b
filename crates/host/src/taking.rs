//! How one that waits in a pool becomes what somebody asked for.

use std::time::Duration;

use jiff::Timestamp;
use roost_lifecycle::{Event as Happening, step};
use roost_model::EventKind;
use roost_net::{Access, Slot};
use roost_store::{InsertOutcome, NewEvent, SandboxRecord};
use roost_wire::{Reply, Request, Resumed, SetIdentity, Why};

use crate::actor::{Actor, Taken, Taking};
use crate::convert::{default_place, service_set};
use crate::effects::Effects;
use crate::failpoint::fail_point;
use crate::guest::Guest;
use crate::{HostError, blocking};

/// A guest that waits has nothing else to do; one that does not answer by then is started anew.
const ANSWER: Duration = Duration::from_secs(3);

impl Actor {
    /// Decides, persists and acts like every birth; what cannot be configured is started anew.
    pub(crate) async fn leave_pool(&mut self, taking: Taking) -> Result<Taken, HostError> {
        let waiting = self.record.pool.is_some();
        let (phase, effects) = match step(self.record.phase, Happening::TakeRequested) {
            Ok(decided) if waiting => decided,
            _ => return Ok(Taken::Unfit),
        };
        let now = Timestamp::now();
        let next = SandboxRecord { phase, state_since: now, ..taken_as(&self.record, taking.record) };
        let event = NewEvent { at: now, kind: EventKind::Creating, reason: None, receipt: None };
        let (store, stored) = (self.effects.shared.store.clone(), next.clone());
        match blocking(move || store.take_waiting(&stored, event, taking.key.as_ref())).await? {
            InsertOutcome::Replayed(id) => return Ok(Taken::Replayed(id)),
            InsertOutcome::Inserted(event) => {
                fail_point("take-stored");
                self.waited_as = Some(Box::new(self.record.clone()));
                self.publish(next);
                self.effects.announce(Some(event));
            }
        }
        self.act(effects).await;
        self.awake_or_why().map(|()| Taken::Yours)
    }
}

/// What was asked for, with what only the one that waited can say: what it is called in the world.
fn taken_as(waiting: &SandboxRecord, wanted: SandboxRecord) -> SandboxRecord {
    SandboxRecord {
        id: waiting.id.clone(),
        key: waiting.key.clone(),
        slot: waiting.slot,
        uid_range: waiting.uid_range,
        boot: waiting.boot,
        generation: waiting.generation,
        source: None,
        image: None,
        asleep_since: None,
        pool: None,
        ..wanted
    }
}

impl Effects {
    /// Makes what waited as `was` what its record says, and lets it go on.
    pub(crate) async fn configure(&self, record: &SandboxRecord, was: Option<&SandboxRecord>) -> Result<(), HostError> {
        if was.is_none_or(|was| was.limits != record.limits) {
            self.set_disk_limit(record).await?;
            self.engine.set_limits(&record.id, &record.limits).await?;
        }
        if was.is_none_or(|was| was.network != record.network) {
            self.set_network(record).await?;
        }
        // The kernel takes the connection while the guest still stands still.
        let (thawed, told) = tokio::join!(self.engine.thaw(&record.id), self.tell_identity(record));
        thawed?;
        told?;
        fail_point("take-configured");
        Ok(())
    }

    /// Lets one that has a network slot reach what its record says; another one gets it when it is started.
    pub(crate) async fn set_network(&self, record: &SandboxRecord) -> Result<(), HostError> {
        let Some(slot) = record.slot else { return Ok(()) };
        let access = if record.network.enabled { Access::Internet } else { Access::DaemonOnly };
        let changed = self.shared.network.set_access(Slot(slot), access).await;
        changed.map_err(|error| HostError::Internal(error.to_string()))
    }

    /// Tells the guest who it is now. One that came out of an image hears that it is a fork, and its hooks run.
    async fn tell_identity(&self, record: &SandboxRecord) -> Result<(), HostError> {
        let guest = Guest::of(self.shared.clone(), record)?;
        let (name, env) = (record.name.to_string(), record.env.clone());
        let identity = SetIdentity {
            name: Some(name.clone()),
            hostname: Some(name.clone()),
            env: Some(env),
            place: Some(default_place(record)),
            ..SetIdentity::default()
        };
        let fork = (record.generation > 1).then(|| Resumed {
            why: Why::Fork,
            from_image: false,
            id: record.id.to_string(),
            hostname: name.clone(),
            name,
            generation: record.generation,
            key: None,
            env: None,
            asleep_ms: 0,
            place: None,
            services: service_set(&record.services),
        });
        let has_services = !record.services.by_name.is_empty();
        let services = has_services.then(|| Request::ServicesSet(service_set(&record.services)));
        let tell = async {
            let mut connection = guest.connect().await?;
            let called = connection.call(&Request::SetIdentity(identity)).await.map_err(|error| guest.failed(error))?;
            // A guest with a kernel of its own has named it, which is the quickest way; elsewhere only the engine can.
            if !matches!(called, Reply::Hostname(now) if now == record.name.as_str()) {
                self.engine.set_hostname(&record.id, record.name.as_str()).await?;
            }
            for request in [fork.map(Request::Resumed), services].into_iter().flatten() {
                connection.call_done(&request).await.map_err(|error| guest.failed(error))?;
            }
            guest.give_back(connection);
            Ok(())
        };
        tokio::time::timeout(ANSWER, tell).await.unwrap_or_else(|_| Err(guest.silent()))
    }
}
