//! All execs, and which child process belongs to which.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use roost_sys::spawn::{ended_child, reap};
use roost_wire::frame::MAX_CONTROL;
use roost_wire::{ErrorCode, ExecFilter, ExecInfo, Failure, SpoolLimits};

use super::Exec;
use crate::failure::bad_request;
use crate::processes::owner::Owner;
use crate::wake::lock;

/// How many execs may run at once.
const MAX_RUNNING: usize = 1024;
/// How many are told in one reply at most; fewer if they would fill a frame.
const PAGE: usize = 256;

/// Every exec the guest remembers.
#[derive(Debug)]
pub(crate) struct ExecTable {
    known: Mutex<Known>,
    /// Told when a start has succeeded or failed.
    settled: Condvar,
    /// Children not reaped yet. Held across a fork, so that the reaper cannot meet a child before it is listed.
    pub(super) children: Mutex<BTreeMap<i32, Arc<Exec>>>,
    limits: SpoolLimits,
}

#[derive(Debug, Default)]
struct Known {
    execs: BTreeMap<String, Arc<Exec>>,
    /// Ids that are being started now.
    starting: BTreeSet<String>,
    /// Ids of those that have ended, the oldest first.
    finished: VecDeque<String>,
}

/// The right to start an exec under an id, given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    table: &'a ExecTable,
    id: String,
}

/// What an id is to somebody who wants to start it.
#[derive(Debug)]
pub(crate) enum Reserved<'a> {
    /// Nobody has it yet.
    New(Reservation<'a>),
    /// It was started before.
    Existing(Arc<Exec>),
}

impl ExecTable {
    pub(crate) fn new(limits: SpoolLimits) -> Self {
        Self { known: Mutex::default(), settled: Condvar::new(), children: Mutex::default(), limits }
    }

    /// Reserves an id. If another connection is starting it now, waits for what comes of that.
    pub(crate) fn reserve(&self, id: &str) -> Result<Reserved<'_>, Failure> {
        let well_formed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if id.is_empty() || id.len() > 64 || !id.chars().all(well_formed) {
            return Err(bad_request(format!("`{}` is no id for an exec", id.escape_debug())));
        }
        let mut known = lock(&self.known);
        loop {
            if let Some(exec) = known.execs.get(id) {
                return Ok(Reserved::Existing(exec.clone()));
            }
            if !known.starting.contains(id) {
                break;
            }
            known = self.settled.wait(known).unwrap_or_else(PoisonError::into_inner);
        }
        if known.execs.len() - known.finished.len() + known.starting.len() >= MAX_RUNNING {
            let message = format!("{MAX_RUNNING} execs are running already");
            return Err(Failure::new(ErrorCode::LimitExceeded, message));
        }
        known.starting.insert(id.to_owned());
        Ok(Reserved::New(Reservation { table: self, id: id.to_owned() }))
    }

    pub(crate) fn get(&self, id: &str) -> Result<Arc<Exec>, Failure> {
        lock(&self.known)
            .execs
            .get(id)
            .cloned()
            .ok_or_else(|| Failure::new(ErrorCode::ExecNotFound, format!("no exec has the id `{}`", id.escape_debug())))
    }

    /// A page of the execs that are meant, ordered by id.
    pub(crate) fn page(&self, after: Option<&str>, filter: &ExecFilter) -> Vec<ExecInfo> {
        let known = lock(&self.known);
        let later = known.execs.iter().filter(|(id, _)| after.is_none_or(|after| id.as_str() > after));
        let later: Vec<Arc<Exec>> = later.map(|(_, exec)| exec.clone()).collect();
        drop(known);
        let mut room = MAX_CONTROL / 2;
        let mut fits = |info: &ExecInfo| {
            let size = serde_json::to_vec(info).map_or(0, |text| text.len());
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        };
        let meant = later.iter().map(|exec| exec.info()).filter(|info| filter.fits(info));
        meant.take(PAGE).take_while(|info| fits(info)).collect()
    }

    pub(crate) fn running(&self) -> Vec<Arc<Exec>> {
        let known = lock(&self.known);
        let all: Vec<Arc<Exec>> = known.execs.values().cloned().collect();
        drop(known);
        all.into_iter().filter(|exec| exec.is_running()).collect()
    }

    /// Every exec as the owner of what its process has started.
    pub(crate) fn owners(&self) -> Vec<Owner> {
        let known = lock(&self.known);
        let all: Vec<Arc<Exec>> = known.execs.values().cloned().collect();
        drop(known);
        let children = lock(&self.children);
        let owner = |exec: Arc<Exec>| Owner {
            exec: Some(exec.id().to_owned()),
            service: None,
            leader: exec.pid(),
            started_at_ms: exec.started_at_ms(),
            alive: children.get(&exec.pid()).is_some_and(|child| Arc::ptr_eq(child, &exec)),
        };
        all.into_iter().map(owner).collect()
    }

    /// Forgets an exec that has ended.
    pub(crate) fn remove(&self, id: &str) -> Result<(), Failure> {
        if self.get(id)?.is_running() {
            return Err(Failure::new(ErrorCode::Conflict, format!("exec `{id}` is running")));
        }
        let mut known = lock(&self.known);
        known.finished.retain(|finished| finished != id);
        // Dropped after the lock: it may have files to remove.
        let removed = known.execs.remove(id);
        drop(known);
        drop(removed);
        Ok(())
    }

    /// Has the end of an exec published, and counts it among those that have ended. Whoever has heard of the end and
    /// asks for a list finds it so: both need the same lock.
    pub(crate) fn finish(&self, exec: &Arc<Exec>, publish: impl FnOnce()) {
        let mut known = lock(&self.known);
        publish();
        let forgotten = known.finished(exec, &self.limits);
        // Dropped after the lock: they may have files to remove.
        drop(known);
        drop(forgotten);
    }

    /// Reaps every child that has ended, orphans of others too.
    pub(crate) fn reap_children(&self) -> io::Result<()> {
        while let Some(pid) = ended_child()? {
            let mut children = lock(&self.children);
            let ended = reap(pid)?;
            let exec = children.remove(&pid);
            drop(children);
            if let Some(exec) = exec {
                exec.reaped(ended);
            }
        }
        Ok(())
    }
}

impl Known {
    /// Counts an exec among those that have ended; returns the oldest ones, forgotten because too much is kept. One whose
    /// start is not known yet is counted when it is.
    fn finished(&mut self, exec: &Exec, limits: &SpoolLimits) -> Vec<Arc<Exec>> {
        let mut forgotten = Vec::new();
        if !self.execs.contains_key(exec.id()) {
            return forgotten;
        }
        self.finished.push_back(exec.id().to_owned());
        let kept = |id: &String| self.execs.get(id).map_or(0, |exec| exec.kept());
        let mut total: u64 = self.finished.iter().map(kept).sum();
        while self.finished.len() > 1
            && (total > limits.finished_total || self.finished.len() > limits.finished_count as usize)
        {
            let Some(oldest) = self.finished.pop_front() else { break };
            if let Some(exec) = self.execs.remove(&oldest) {
                total -= exec.kept().min(total);
                forgotten.push(exec);
            }
        }
        forgotten
    }
}

impl Reservation<'_> {
    /// Makes the exec known under the reserved id. It may have ended already.
    pub(crate) fn fulfil(self, exec: &Arc<Exec>) {
        let mut known = lock(&self.table.known);
        known.execs.insert(self.id.clone(), exec.clone());
        let forgotten = if exec.is_running() { Vec::new() } else { known.finished(exec, &self.table.limits) };
        drop(known);
        drop(forgotten);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        lock(&self.table.known).starting.remove(&self.id);
        self.table.settled.notify_all();
    }
}
