//! Services of a sandbox: what is remembered of them, and what is asked of its guest.
//!
//! The record says what there is and what somebody stopped; it changes first, in the actor. Its guest is handed the whole
//! set whenever there may be news for it: at its start, when it wakes, and after a change while it is awake. A set has a
//! revision, so it does not matter in which order sets arrive or how often.

mod change;

use roost_model::{EventKind, Name, ServiceSpec, ServiceView, Signal};
use roost_store::{Durability, NewEvent, SandboxRecord, ServiceRecord};
use roost_wire::{Reply, Request, ServiceInfo, ServiceLog, ServiceName, ServiceStart, ServiceState};

use change::changed;
pub(crate) use change::{ServiceChange, first_services};

use crate::HostError;
use crate::actor::{Actor, Message};
use crate::convert::{asleep_service, service_set, service_view};
use crate::effects::Effects;
use crate::execs::{OutputStart, attach};
use crate::guards::Busy;
use crate::guest::{Guest, GuestStream};
use crate::handle::Handle;
use crate::view::view;

/// How long a start waits for a service to be up.
const PATIENCE_MS: u64 = 30_000;
/// How many lines of its log an error of a service ends with.
const LINES_TOLD: usize = 10;

/// A reader of a service's log.
#[derive(Debug)]
pub struct LogAttachment {
    /// The oldest byte that was kept when it began.
    pub kept_from: u64,
    /// The log as standard output.
    pub stream: GuestStream,
    /// Whose guest it is.
    pub guest: Guest,
    /// Keeps it awake for whoever reads.
    pub busy: Busy,
}

impl Handle {
    /// Its services, by name; does not wake it.
    pub async fn services(&self) -> Result<Vec<ServiceView>, HostError> {
        self.living()?;
        let record = self.record();
        let glance = self.glance("list of services");
        let infos = if self.is_awake() && !record.services.by_name.is_empty() {
            match self.call(&Request::Services, &glance).await? {
                Reply::Services(infos) => Some(infos),
                other => return Err(self.unexpected(other)),
            }
        } else {
            None
        };
        let shown = |(name, service): (&Name, &ServiceRecord)| match &infos {
            Some(infos) => service_view(name, service, infos.iter().find(|info| info.name == name.as_str())),
            None => asleep_service(name, service),
        };
        Ok(record.services.by_name.iter().map(shown).collect())
    }

    /// One service; does not wake its sandbox.
    pub async fn service(&self, name: &str) -> Result<ServiceView, HostError> {
        self.service_record(name)?;
        let found = self.services().await?.into_iter().find(|service| service.name.as_str() == name);
        found.ok_or_else(|| self.no_service(name))
    }

    /// Has a service, new or in the place of one of its name; the flag says whether it is new.
    pub async fn put_service(&self, name: &str, spec: ServiceSpec) -> Result<(ServiceView, bool), HostError> {
        self.living()?;
        let name: Name = name.parse()?;
        let new = !self.record().services.by_name.contains_key(&name);
        let change = ServiceChange::Put(name.clone(), Box::new(spec));
        self.ask(|reply| Message::Services(change, reply)).await?;
        self.hand_over().await?;
        Ok((self.service(name.as_str()).await?, new))
    }

    /// Stops a service and forgets it and its log.
    pub async fn remove_service(&self, name: &str) -> Result<(), HostError> {
        let (name, _) = self.service_record(name)?;
        let change = ServiceChange::Remove(name.clone());
        self.ask(|reply| Message::Services(change, reply)).await?;
        self.hand_over_and_wait(name.as_str()).await
    }

    /// Stops a service; it stays down until it is started again, whatever becomes of its sandbox meanwhile.
    pub async fn stop_service(&self, name: &str) -> Result<ServiceView, HostError> {
        let (name, _) = self.service_record(name)?;
        let change = ServiceChange::Stopped(name.clone(), true);
        self.ask(|reply| Message::Services(change, reply)).await?;
        self.hand_over_and_wait(name.as_str()).await?;
        self.service(name.as_str()).await
    }

    /// Has a service up, at once; wakes its sandbox.
    pub async fn start_service(&self, name: &str) -> Result<ServiceView, HostError> {
        self.begin_service(name, false).await
    }

    /// Stops a service and starts it again; wakes its sandbox.
    pub async fn restart_service(&self, name: &str) -> Result<ServiceView, HostError> {
        self.begin_service(name, true).await
    }

    async fn begin_service(&self, name: &str, again: bool) -> Result<ServiceView, HostError> {
        let (name, service) = self.service_record(name)?;
        if service.stopped {
            let change = ServiceChange::Stopped(name.clone(), false);
            self.ask(|reply| Message::Services(change, reply)).await?;
        }
        // One that was stopped has no process to replace.
        let info = self.start_in_guest(&name, again && !service.stopped, false).await?;
        match info.state {
            ServiceState::Backoff | ServiceState::Failed => Err(did_not_come_up(&name, &info)),
            _ => Ok(service_view(&name, &self.service_record(name.as_str())?.1, Some(&info))),
        }
    }

    /// Starts the service that has this port and waits until it listens; false if no service has it.
    pub async fn start_service_on(&self, port: u16) -> Result<bool, HostError> {
        let record = self.record();
        let found = record.services.by_name.iter().find(|(_, service)| service.spec.port == Some(port));
        let Some((name, service)) = found else { return Ok(false) };
        if service.stopped {
            let why = format!("somebody stopped it; `roost service start {} {name}` starts it", record.name);
            return Err(HostError::ServiceFailed { name: name.to_string(), why });
        }
        let info = self.start_in_guest(name, false, true).await?;
        if info.state == ServiceState::Running { Ok(true) } else { Err(did_not_come_up(name, &info)) }
    }

    async fn start_in_guest(&self, name: &Name, again: bool, demand: bool) -> Result<ServiceInfo, HostError> {
        let start = ServiceStart { name: name.to_string(), again, demand, wait_ms: PATIENCE_MS };
        // Its guest has the set already, unless it is only just awake.
        let busy = self.request(format!("service {name}"));
        self.call(&Request::ServicesSet(service_set(&self.record().services)), &busy).await?;
        match self.call(&Request::ServiceStart(start), &busy).await? {
            Reply::Service(info) => Ok(*info),
            other => Err(self.unexpected(other)),
        }
    }

    /// Reads a service's log; wakes its sandbox.
    pub async fn service_log(&self, name: &str, start: OutputStart) -> Result<LogAttachment, HostError> {
        let (name, _) = self.service_record(name)?;
        let busy = self.busy(Signal::Connections, format!("log of service {name}"));
        let (guest, connection) = self.connection(&busy).await?;
        let wanted = ServiceLog { name: name.to_string(), attach: attach(start) };
        let stream = connection.service_log(wanted).await.map_err(|error| guest.failed(error))?;
        Ok(LogAttachment { kept_from: stream.info().stdout.start, stream, guest, busy })
    }

    /// Hands the set to the guest if that is awake; one that sleeps gets it when it wakes.
    async fn hand_over(&self) -> Result<bool, HostError> {
        let glance = self.glance("its services");
        if !self.is_awake() {
            return Ok(false);
        }
        match self.call(&Request::ServicesSet(service_set(&self.record().services)), &glance).await {
            Ok(_) => Ok(true),
            // What is remembered holds; its next start brings it.
            Err(HostError::GuestLost { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn hand_over_and_wait(&self, name: &str) -> Result<(), HostError> {
        if self.hand_over().await? {
            let busy = self.request(format!("service {name}"));
            self.call(&Request::ServiceGone(ServiceName { name: name.to_owned() }), &busy).await?;
        }
        Ok(())
    }

    fn service_record(&self, name: &str) -> Result<(Name, ServiceRecord), HostError> {
        self.living()?;
        let record = self.record();
        let found = record.services.by_name.iter().find(|(known, _)| known.as_str() == name);
        found.map(|(name, service)| (name.clone(), service.clone())).ok_or_else(|| self.no_service(name))
    }

    fn no_service(&self, name: &str) -> HostError {
        let record = self.record();
        let known = record.services.by_name.keys().map(ToString::to_string).collect();
        HostError::ServiceNotFound { name: name.to_owned(), sandbox: record.name.to_string(), known }
    }
}

impl Actor {
    /// Remembers a change of services.
    pub(crate) async fn change_services(&mut self, change: ServiceChange) -> Result<(), HostError> {
        if self.record.phase.is_ending() {
            return Err(HostError::Terminated(Box::new(view(&self.record))));
        }
        let reason = match &change {
            ServiceChange::Put(name, _) => format!("service `{name}` defined"),
            ServiceChange::Remove(name) => format!("service `{name}` removed"),
            ServiceChange::Stopped(name, true) => format!("service `{name}` stopped"),
            ServiceChange::Stopped(name, false) => format!("service `{name}` started"),
        };
        let Some(services) = changed(&self.record.services, change)? else { return Ok(()) };
        let record = SandboxRecord { services, ..self.record.clone() };
        let at = jiff::Timestamp::now();
        let event = NewEvent { at, kind: EventKind::Changed, reason: Some(reason), receipt: None };
        self.store(record, Some(event), Durability::Process).await
    }
}

impl Effects {
    /// Hands the set to a guest that an earlier daemon may not have told.
    pub(crate) fn hand_services_later(&self, record: &SandboxRecord) {
        if record.services.revision == 0 {
            return;
        }
        let (shared, record) = (self.shared.clone(), record.clone());
        tokio::spawn(async move {
            let tell = async {
                let guest = Guest::of(shared, &record)?;
                let set = Request::ServicesSet(service_set(&record.services));
                guest.connect().await?.call_done(&set).await.map_err(|error| guest.failed(error))
            };
            if let Err(error) = tell.await {
                tracing::debug!(sandbox = %record.id, %error, "it was not told of its services");
            }
        });
    }
}

fn did_not_come_up(name: &Name, info: &ServiceInfo) -> HostError {
    let mut why = info.reason.clone().unwrap_or_else(|| "it ended".to_owned());
    let tail = info.tail.as_deref().unwrap_or_default();
    let lines: Vec<&str> = tail.lines().collect();
    if !lines.is_empty() {
        why.push_str("; its log ends:\n");
        why.push_str(&lines[lines.len().saturating_sub(LINES_TOLD)..].join("\n"));
    }
    HostError::ServiceFailed { name: name.to_string(), why }
}

/// How guests keep services up; a test may want shorter times.
#[cfg(feature = "fail-points")]
pub(crate) fn service_limits() -> roost_wire::ServiceLimits {
    let wanted = std::env::var("ROOST_TEST_SERVICE_LIMITS").ok();
    wanted.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// How guests keep services up.
#[cfg(not(feature = "fail-points"))]
pub(crate) fn service_limits() -> roost_wire::ServiceLimits {
    roost_wire::ServiceLimits::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_ends_with_the_log() {
        let info = ServiceInfo {
            name: "web".into(),
            state: ServiceState::Backoff,
            pid: None,
            since_ms: 0,
            restarts: 0,
            last_exit: None,
            reason: Some("ended with code 1".into()),
            log: roost_wire::StreamRange::default(),
            tail: Some((0..20).map(|number| format!("line {number}\n")).collect()),
        };
        let text = did_not_come_up(&"web".parse().unwrap(), &info).to_string();
        assert!(
            text.starts_with("service `web` did not come up: ended with code 1; its log ends:\nline 10\n"),
            "{text}"
        );
        assert!(text.ends_with("line 19"), "{text}");
    }
}
