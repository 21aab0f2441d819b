//! Named processes that the guest keeps up.
//!
//! One thread, which is there while there are services, does what [`plan`] says. It sleeps until a process ends, a
//! request changes something, or the next pause is over; the same bell rings for the first two.

mod entry;
mod plan;
mod supervise;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roost_wire::{ErrorCode, Failure, ServiceInfo, ServiceLimits, ServiceLog, ServiceSet, ServiceStart, ServiceState};

use crate::exec::attach::Attachment;
use crate::exec::awake::Awake;
use crate::exec::log::Log;
use crate::exec::{Exec, now_ms};
use crate::failure::failed;
use crate::guest::{Guest, small_thread};
use crate::processes::owner::Owner;
use crate::wake::{Wake, lock};
use entry::Now;
use plan::Plan;

/// How much of the end of its log is told of a service that did not come up.
const TAIL: usize = 2 * 1024;
/// How long a service without a port must run before a start counts as a success.
const PROOF: Duration = Duration::from_millis(100);
/// A stop that takes longer than all its time limits together hangs in the kernel.
const SPARE: Duration = Duration::from_secs(2);

/// All services of the sandbox.
#[derive(Debug)]
pub(crate) struct Services {
    inner: Mutex<Inner>,
    /// Told when something has changed.
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    plan: Plan,
    awake: Awake,
    runs: BTreeMap<String, Run>,
    logs: BTreeMap<String, Arc<Exec>>,
    /// Rings the thread, while there is one.
    bell: Option<Arc<Wake>>,
}

/// A process of a service.
#[derive(Debug)]
struct Run {
    exec: Arc<Exec>,
    /// Rings when it has ended.
    _ends: Attachment,
}

impl Services {
    pub(crate) fn new(limits: ServiceLimits) -> Self {
        let inner = Inner {
            plan: Plan::new(limits),
            awake: Awake::new(Instant::now()),
            runs: BTreeMap::new(),
            logs: BTreeMap::new(),
            bell: None,
        };
        Self { inner: Mutex::new(inner), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Takes a set of services and sees to them from now on.
    pub(crate) fn set(&self, guest: &Arc<Guest>, set: ServiceSet) -> Result<(), Failure> {
        let mut inner = self.lock();
        let now = inner.now();
        if inner.plan.set(set, now)? {
            inner.ring_or_begin(guest)?;
        }
        Ok(())
    }

    /// Has a service up, and says what came of it.
    pub(crate) fn start(&self, guest: &Guest, wanted: &ServiceStart) -> Result<ServiceInfo, Failure> {
        let name = wanted.name.as_str();
        let deadline = Instant::now() + Duration::from_millis(wanted.wait_ms);
        let mut inner = self.lock();
        let falls = inner.plan.find(name)?.falls;
        let now = inner.now();
        inner.plan.start(name, wanted.again, wanted.demand, now)?;
        inner.ring();
        let mut up_since = None;
        loop {
            let entry = inner.plan.find(name)?;
            let now = Instant::now();
            let mut left = deadline.saturating_duration_since(now);
            let mut settled = entry.falls > falls || !entry.wanted;
            if entry.is_up() {
                let up_since = *up_since.get_or_insert(now);
                // A port that is open says enough; the rest says nothing for a moment.
                let unproven = if entry.service.port.is_some() { Duration::ZERO } else { PROOF };
                left = left.min((up_since + unproven).saturating_duration_since(now));
                settled |= left.is_zero();
            }
            if settled || left.is_zero() {
                let mut info = inner.info(guest, name)?;
                if info.state != ServiceState::Running {
                    info.tail = Some(text_of(&inner.log_of(guest, name)?.last_output(TAIL)));
                }
                return Ok(info);
            }
            inner = self.wait(inner, left);
        }
    }

    /// Returns when a service that is not wanted has no process any more, or hangs in the kernel.
    pub(crate) fn gone(&self, name: &str) {
        let mut inner = self.lock();
        let limit = inner.plan.get(name).map_or(0, |entry| entry.service.stop_timeout_ms);
        let deadline = Instant::now() + Duration::from_millis(limit) + SPARE;
        while inner.plan.get(name).is_some_and(|entry| entry.has_process() && !entry.wanted) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            inner = self.wait(inner, left);
        }
    }

    /// How all of them stand, by name.
    pub(crate) fn list(&self, guest: &Guest) -> Vec<ServiceInfo> {
        let mut inner = self.lock();
        if !inner.runs.is_empty() {
            inner.look_at_ports(guest);
        }
        let names = inner.plan.names();
        let names = names.into_iter().filter(|name| inner.plan.find(name).is_ok()).collect::<Vec<_>>();
        names.iter().filter_map(|name| inner.info(guest, name).ok()).collect()
    }

    /// Every one that has a process, as the owner of what that has started.
    pub(crate) fn owners(&self) -> Vec<Owner> {
        let inner = self.lock();
        let owner = |(name, run): (&String, &Run)| Owner {
            exec: None,
            service: Some(name.clone()),
            leader: run.exec.pid(),
            started_at_ms: run.exec.started_at_ms(),
            alive: true,
        };
        inner.runs.iter().map(owner).collect()
    }

    /// Attaches to the log of one.
    pub(crate) fn log(&self, guest: &Guest, wanted: &ServiceLog) -> Result<Attachment, Failure> {
        let mut inner = self.lock();
        inner.plan.find(&wanted.name)?;
        Attachment::new(&inner.log_of(guest, &wanted.name)?, &wanted.attach)
    }

    /// Ends all of them, each after those that need it, and returns when they have ended or time is up.
    pub(crate) fn stop_all(&self) {
        let mut inner = self.lock();
        inner.plan.close();
        inner.ring();
        let deadline = Instant::now() + inner.plan.stop_time() + SPARE;
        while !inner.plan.all_down() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            inner = self.wait(inner, left);
        }
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>, limit: Duration) -> MutexGuard<'a, Inner> {
        self.changed.wait_timeout(inner, limit).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Inner {
    fn now(&mut self) -> Now {
        Now { awake: self.awake.look(Instant::now()), wall_ms: now_ms() }
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Has the thread look at what changed; the first service brings it.
    fn ring_or_begin(&mut self, guest: &Arc<Guest>) -> Result<(), Failure> {
        if self.bell.is_none() && !self.plan.is_empty() {
            let begun = || -> io::Result<Arc<Wake>> {
                let bell = Arc::new(Wake::new()?);
                let (guest, own) = (guest.clone(), bell.clone());
                small_thread("services").spawn(move || supervise::supervise(&guest, &own))?;
                Ok(bell)
            };
            self.bell = Some(begun().map_err(|error| failed("start the thread of services", &error))?);
        }
        self.ring();
        Ok(())
    }

    /// The log of a service, opened when it is first asked for.
    fn log_of(&mut self, guest: &Guest, name: &str) -> Result<Arc<Exec>, Failure> {
        if let Some(log) = self.logs.get(name) {
            return Ok(log.clone());
        }
        let folder = Path::new(&guest.config.log_dir).join("roost").join(name);
        let log = Log::open(folder, guest.config.service_limits.log_file);
        let log = Exec::log(name, log).map_err(|error| failed("open the log of a service", &error))?;
        self.logs.insert(name.to_owned(), log.clone());
        Ok(log)
    }

    fn look_at_ports(&mut self, guest: &Guest) {
        let listening = crate::ports::listening(guest.config.listen.port(), false);
        let now = self.now();
        self.plan.see_ports(&listening.into_iter().map(|port| port.port).collect(), now);
    }

    fn info(&mut self, guest: &Guest, name: &str) -> Result<ServiceInfo, Failure> {
        let log = self.log_of(guest, name)?.info().stdout;
        let (Some(entry), Some((state, reason))) = (self.plan.get(name), self.plan.state(name)) else {
            return Err(not_found(name));
        };
        Ok(ServiceInfo {
            name: name.to_owned(),
            state,
            pid: self.runs.get(name).map(|run| run.exec.pid()),
            since_ms: entry.since_ms,
            restarts: entry.restarts,
            last_exit: entry.last_exit,
            reason,
            log,
            tail: None,
        })
    }
}

fn not_found(name: &str) -> Failure {
    Failure::new(ErrorCode::ServiceNotFound, format!("no service named `{}`", name.escape_debug()))
}

/// What a process wrote, as far as it is text, from the beginning of a line on.
fn text_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = match text.split_once('\n') {
        Some((_, rest)) if bytes.len() >= TAIL => rest,
        _ => &text,
    };
    text.trim_end().to_owned()
}
