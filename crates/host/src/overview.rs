//! All sandboxes at a glance, for whoever watches.
//!
//! One task looks once a second, for all watchers together, and only while there are any. What it costs does not grow with
//! what sleeps: a record that nobody replaced is not looked at again, what sleeps is measured rarely, and no more than a
//! few dozen sandboxes are measured in one turn, those first that wait longest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roost_lifecycle::Phase;
use roost_model::{Level, OverviewChange, OverviewRow, SandboxId};
use roost_store::SandboxRecord;
use tokio::sync::broadcast;
use tokio::time::MissedTickBehavior;

use crate::handle::Handle;
use crate::host::Host;
use crate::visitor::Visitor;
use crate::why::exclusive;

const TURN: Duration = Duration::from_secs(1);
/// Turns without watchers before the task ends; whoever reloads finds it still there.
const LINGER: u32 = 10;
/// How many sandboxes are measured in one turn at most.
const MOST_MEASURED: usize = 40;
/// Turns between two measures of what sleeps in memory, and of any disk.
const SELDOM: u64 = 60;
const DISK_TURNS: u64 = 10;
/// Memory that comes and goes without meaning anything.
const NOISE: u64 = 256 << 10;
/// Watchers that are further behind start anew.
const BACKLOG: usize = 16;

/// What watchers are told.
#[derive(Debug)]
pub(crate) struct Overview {
    board: Mutex<Board>,
    told: broadcast::Sender<Arc<OverviewChange>>,
}

impl Default for Overview {
    fn default() -> Self {
        Self { board: Mutex::default(), told: broadcast::Sender::new(BACKLOG) }
    }
}

#[derive(Debug, Default)]
struct Board {
    rows: BTreeMap<SandboxId, Entry>,
    turn: u64,
    /// Whether the task is there.
    kept: bool,
}

#[derive(Debug)]
struct Entry {
    row: OverviewRow,
    record: Arc<SandboxRecord>,
    /// Processor time when it was last measured, and when that was.
    cpu: Option<(u64, Instant)>,
    /// The turn in which it is to be measured again; none if nothing can change.
    due: Option<u64>,
    disk_due: u64,
    changed: bool,
}

/// What was measured of one sandbox.
#[derive(Debug, Clone, Copy)]
struct Measured {
    cpu_us: u64,
    memory: u64,
    /// Nothing if it was not its turn.
    disk: Option<u64>,
    at: Instant,
}

impl Board {
    /// Takes in which sandboxes there are; says which are gone.
    fn look(&mut self, handles: &[Handle]) -> Vec<SandboxId> {
        let now = self.turn;
        let mut here = BTreeSet::new();
        for handle in handles {
            let record = handle.record();
            if record.phase.is_ending() {
                continue;
            }
            here.insert(handle.id());
            match self.rows.get_mut(handle.id()) {
                Some(entry) if Arc::ptr_eq(&entry.record, &record) => {}
                Some(entry) => entry.replace(record, now),
                None => {
                    self.rows.insert(handle.id().clone(), Entry::new(record, now));
                }
            }
        }
        let gone: Vec<SandboxId> = self.rows.keys().filter(|id| !here.contains(id)).cloned().collect();
        for id in &gone {
            self.rows.remove(id);
        }
        gone
    }

    /// Who is to be measured in this turn, those that wait longest first, and of whom the disk too.
    fn due(&self) -> Vec<(SandboxId, bool)> {
        let mut due: Vec<(u64, &SandboxId, bool)> = self
            .rows
            .iter()
            .filter_map(|(id, entry)| {
                Some((entry.due.filter(|due| *due <= self.turn)?, id, entry.disk_due <= self.turn))
            })
            .collect();
        due.sort_unstable_by_key(|(since, ..)| *since);
        due.into_iter().take(MOST_MEASURED).map(|(_, id, disk)| (id.clone(), disk)).collect()
    }

    fn take_changed(&mut self) -> Vec<OverviewRow> {
        let rows = self.rows.values_mut();
        rows.filter_map(|entry| std::mem::take(&mut entry.changed).then(|| entry.row.clone())).collect()
    }
}

impl Entry {
    fn new(record: Arc<SandboxRecord>, turn: u64) -> Self {
        Self { row: row_of(&record), record, cpu: None, due: Some(turn), disk_due: turn, changed: true }
    }

    fn replace(&mut self, record: Arc<SandboxRecord>, turn: u64) {
        let mut row = row_of(&record);
        if record.phase == self.record.phase {
            (row.cpu, row.memory) = (self.row.cpu, self.row.memory);
        }
        row.disk = self.row.disk;
        self.changed |= row != self.row;
        (self.row, self.record) = (row, record);
        (self.due, self.disk_due) = (Some(turn), turn);
    }

    fn measured(&mut self, found: Option<Measured>, turn: u64) {
        self.due = match self.record.phase {
            Phase::Suspended(Level::Ram) => Some(turn + SELDOM),
            // Its disk is all there is of it, and nobody writes to that.
            Phase::Suspended(_) => None,
            _ => Some(turn + 1),
        };
        let Some(found) = found else { return };
        let mut row = self.row.clone();
        if let Some((before, at)) = self.cpu.replace((found.cpu_us, found.at)) {
            row.cpu = share(found.cpu_us.saturating_sub(before), found.at.duration_since(at));
        }
        if found.memory.abs_diff(row.memory) > NOISE || found.memory == 0 {
            row.memory = found.memory;
        }
        if let Some(disk) = found.disk {
            row.disk = disk;
            self.disk_due = turn + DISK_TURNS;
        }
        self.changed |= row != self.row;
        self.row = row;
    }
}

/// Thousandths of one processor.
fn share(cpu_us: u64, time: Duration) -> u32 {
    let thousandths = u128::from(cpu_us) * 1000 / time.as_micros().max(1);
    u32::try_from(thousandths).unwrap_or(u32::MAX)
}

fn row_of(record: &SandboxRecord) -> OverviewRow {
    OverviewRow {
        id: record.id.clone(),
        name: record.name.clone(),
        state: record.phase.state(),
        level: record.phase.level(),
        since: record.state_since,
        reason: record.reason.clone(),
        template: record.template.clone(),
        engine: record.engine,
        parent: record.parent.clone(),
        labels: record.labels.clone(),
        created_at: record.created_at,
        cpu: 0,
        memory: 0,
        memory_limit: record.limits.memory,
        disk: 0,
        disk_limit: record.limits.disk,
    }
}

impl Host {
    /// Watches all sandboxes: everything at once, then what changes, gathered once a second.
    pub fn watch_overview(&self) -> OverviewReader {
        OverviewReader { host: self.clone(), changes: None, eyes: None }
    }

    /// Everything there is now, and whatever changes from then on.
    fn overview_from_now(&self) -> (OverviewChange, broadcast::Receiver<Arc<OverviewChange>>) {
        let handles = self.handles();
        let overview = &self.shared.overview;
        let mut board = overview.board();
        let changes = overview.told.subscribe();
        if !board.kept {
            board.kept = true;
            board.look(&handles);
            board.take_changed();
            self.shared.actors.spawn(self.clone().keep_overview());
        }
        let rows = board.rows.values().map(|entry| entry.row.clone()).collect();
        (OverviewChange { all: true, rows, gone: Vec::new() }, changes)
    }

    async fn keep_overview(self) {
        let overview = &self.shared.overview;
        let mut ticks = tokio::time::interval(TURN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut alone = 0;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.shared.leaving.cancelled() => return,
            }
            {
                let mut board = overview.board();
                alone = if overview.told.receiver_count() == 0 { alone + 1 } else { 0 };
                if alone > LINGER {
                    *board = Board::default();
                    return;
                }
            }
            if alone == 0 {
                self.overview_turn().await;
            }
        }
    }

    async fn overview_turn(&self) {
        let overview = &self.shared.overview;
        let handles = self.handles();
        let (gone, due) = {
            let mut board = overview.board();
            board.turn += 1;
            (board.look(&handles), board.due())
        };
        let mut found = Vec::with_capacity(due.len());
        for (id, disk) in due {
            if let Some(handle) = self.handle_of(&id) {
                found.push((id, measure(&handle, disk).await));
            }
        }
        let mut board = overview.board();
        let turn = board.turn;
        for (id, measured) in found {
            if let Some(entry) = board.rows.get_mut(&id) {
                entry.measured(measured, turn);
            }
        }
        let rows = board.take_changed();
        if !rows.is_empty() || !gone.is_empty() {
            // Told under the lock, so that whoever comes now has either seen it or is told. Nobody may be there any more.
            drop(overview.told.send(Arc::new(OverviewChange { all: false, rows, gone })));
        }
    }
}

impl Overview {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Best effort: one that just changes is measured in another turn.
async fn measure(handle: &Handle, disk: bool) -> Option<Measured> {
    let record = handle.record();
    let there = matches!(record.phase, Phase::Active | Phase::Suspended(Level::Ram));
    let usage = if there {
        handle.shared.engine(record.engine).ok()?.usage(&record.id).await.ok()?
    } else {
        roost_engine::Usage::default()
    };
    let disk = if disk { exclusive(&handle.shared, record.id.clone()).await.ok() } else { None };
    Some(Measured { cpu_us: usage.cpu_us, memory: usage.memory, disk, at: Instant::now() })
}

/// Reads the overview: the first answer has everything.
#[derive(Debug)]
pub struct OverviewReader {
    host: Host,
    changes: Option<broadcast::Receiver<Arc<OverviewChange>>>,
    /// Whose eyes read, if they do not see everything.
    eyes: Option<Eyes>,
}

/// A visitor, and what it was told of.
#[derive(Debug)]
struct Eyes {
    visitor: Visitor,
    known: BTreeSet<SandboxId>,
}

impl Eyes {
    /// What a change means to the visitor; nothing if that is nothing.
    fn narrow(&mut self, change: &OverviewChange) -> Option<OverviewChange> {
        if change.all {
            self.known.clear();
        }
        let (rows, others): (Vec<&OverviewRow>, Vec<&OverviewRow>) =
            change.rows.iter().partition(|row| self.visitor.sees_row(row));
        // What has lost the label that brought it within reach is gone to whoever saw it.
        let left = change.gone.iter().chain(others.into_iter().map(|row| &row.id));
        let gone: Vec<SandboxId> = left.filter(|id| self.known.remove(*id)).cloned().collect();
        self.known.extend(rows.iter().map(|row| row.id.clone()));
        let rows: Vec<OverviewRow> = rows.into_iter().cloned().collect();
        let says_something = change.all || !rows.is_empty() || !gone.is_empty();
        says_something.then_some(OverviewChange { all: change.all, rows, gone })
    }
}

impl OverviewReader {
    /// What changed since the answer before; everything, if this is the first or too much was missed. Nothing if the daemon
    /// leaves.
    pub async fn next(&mut self) -> Option<Arc<OverviewChange>> {
        loop {
            let change = self.next_of_all().await?;
            match &mut self.eyes {
                None => return Some(change),
                Some(eyes) => {
                    if let Some(seen) = eyes.narrow(&change) {
                        return Some(Arc::new(seen));
                    }
                }
            }
        }
    }

    /// Only what a visitor sees.
    pub(crate) fn seen_by(self, visitor: Visitor) -> Self {
        Self { eyes: Some(Eyes { visitor, known: BTreeSet::new() }), ..self }
    }

    async fn next_of_all(&mut self) -> Option<Arc<OverviewChange>> {
        if let Some(changes) = &mut self.changes {
            match changes.recv().await {
                Ok(change) => return Some(change),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
        let (all, changes) = self.host.overview_from_now();
        self.changes = Some(changes);
        Some(Arc::new(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_a_share_of_one_processor() {
        assert_eq!(share(500_000, Duration::from_secs(1)), 500);
        assert_eq!(share(4_000_000, Duration::from_secs(2)), 2000);
        assert_eq!(share(0, Duration::ZERO), 0);
    }
}
