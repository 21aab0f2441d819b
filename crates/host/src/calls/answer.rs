//! What becomes of a call from inside.

use std::time::{Duration, Instant};

use roost_lifecycle::zone;
use roost_model::{Alarm, CreateCheckpoint, Hold, Level, Origin, PutAlarm, PutHold};
use roost_wire::{
    Answer, AnswerFrame, AskAlarm, AskCheckpoint, AskHold, AskRelease, AskSuspend, Call, CallFrame, Outcome,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::pace::Pace;
use crate::HostError;
use crate::handle::Handle;
use crate::moments::Purpose;

/// What holds and alarms from inside are called unless they are given a name: one can be renewed without one.
const OWN_NAME: &str = "inside";
/// A checkpoint stops the sandbox and writes its memory: not again at once, and not without end.
const BETWEEN_CHECKPOINTS: Duration = Duration::from_secs(5);
const MOST_CHECKPOINTS: usize = 64;

/// Answers the calls of one sandbox.
#[derive(Debug)]
pub(super) struct Desk {
    handle: Handle,
    /// One for all its connections: whoever hangs up after each call is not heard any faster.
    pace: Pace,
    last_checkpoint: Option<Instant>,
    last: Option<Given>,
}

/// The last answer, which may have been lost on its way.
#[derive(Debug)]
struct Given {
    answer: AnswerFrame,
    /// Of the processes that asked; numbers of calls mean something else to others.
    life: CancellationToken,
    at: Instant,
}

impl Desk {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, pace: Pace::new(Instant::now()), last_checkpoint: None, last: None }
    }

    /// Resolves when another call may be taken.
    pub(super) async fn pace(&self) {
        tokio::time::sleep(self.pace.wait(Instant::now())).await;
    }

    /// Answers a call of the processes that have this life.
    pub(super) async fn answer(&mut self, CallFrame { id, call }: CallFrame, life: &CancellationToken) -> AnswerFrame {
        self.pace.spend(Instant::now());
        let answer = AnswerFrame { id, outcome: self.outcome(call).await };
        self.last = Some(Given { answer: answer.clone(), life: life.clone(), at: Instant::now() });
        answer
    }

    /// The last answer that these processes were given; once more does no harm.
    pub(super) fn last_answer(&self, life: &CancellationToken) -> Option<AnswerFrame> {
        // A token is of one life: once it is cancelled, another is handed out.
        let same = |given: &&Given| !given.life.is_cancelled() && !life.is_cancelled();
        self.last.as_ref().filter(same).map(|given| given.answer.clone())
    }

    pub(super) fn has_answered_since(&self, moment: Instant) -> bool {
        self.last.as_ref().is_some_and(|given| given.at >= moment)
    }

    async fn outcome(&mut self, call: Call) -> Outcome {
        let answered = match call {
            Call::Info => self.info().await,
            Call::Hold(wanted) => self.hold(wanted).await,
            Call::Release(which) => self.release(which).await,
            Call::Suspend(wanted) => self.suspend(wanted).await,
            Call::Checkpoint(wanted) => self.checkpoint(wanted).await,
            Call::WakeAt(wanted) => self.wake_at(wanted).await,
            Call::Unset(which) => self.unset(which).await,
            _ => Err(HostError::BadRequest("this host does not know that call".to_owned())),
        };
        match answered {
            Ok((text, data)) => Outcome::Ok(Answer { text, data }),
            Err(error) => Outcome::refused(error.code().as_str(), error.to_string()),
        }
    }

    /// What a sandbox may know of itself; labels are the outside's.
    async fn info(&self) -> Result<(String, Value), HostError> {
        let (view, stats) = (self.handle.view(), self.handle.stats().await?);
        let (holds, alarms) = (self.handle.holds(), self.handle.alarms());
        let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
        let mut lines = vec![
            format!("{} ({}), generation {}, from {}", view.name, view.id, view.generation, view.template),
            format!(
                "may use {} CPUs, {} of memory and {} of disk, of which {} are used",
                view.limits.cpus,
                mib(view.limits.memory),
                mib(view.limits.disk),
                mib(stats.disk_exclusive)
            ),
            format!("sleeps after {} without activity, to {}", view.idle.after, view.idle.to),
        ];
        lines.extend(view.expires_at.map(|end| format!("ends at {end:.0}")));
        lines.extend(holds.iter().map(held));
        lines.extend(alarms.iter().map(set));
        let data = json!({
            "id": view.id, "name": view.name, "generation": view.generation, "template": view.template,
            "created_at": view.created_at, "expires_at": view.expires_at, "limits": view.limits, "idle": view.idle,
            "holds": holds, "alarms": alarms, "usage": { "memory": stats.memory, "disk": stats.disk_exclusive },
        });
        Ok((lines.join("\n"), data))
    }

    async fn hold(&self, wanted: AskHold) -> Result<(String, Value), HostError> {
        let mut hold = PutHold { reason: wanted.reason, ..PutHold::default() };
        if let Some(length) = wanted.length {
            let parsed: Result<_, roost_model::DurationError> = length.parse();
            hold.length = parsed.map_err(|error| HostError::BadRequest(error.to_string()))?;
        }
        let name = wanted.name.as_deref().unwrap_or(OWN_NAME);
        let (hold, _) = self.handle.put_hold_from(Some(name), hold, Origin::Inside).await?;
        Ok((held(&hold), json!(hold)))
    }

    async fn release(&self, which: AskRelease) -> Result<(String, Value), HostError> {
        let wanted: Vec<Hold> = match which.name {
            Some(name) => vec![self.handle.hold(&name)?],
            None => self.handle.holds().into_iter().filter(|hold| hold.from == Origin::Inside).collect(),
        };
        for hold in &wanted {
            check_own(hold.from, "hold")?;
            self.handle.release_hold(hold.id.as_str()).await?;
        }
        Ok((format!("released {}", counted(wanted.len(), "hold")), json!({ "released": wanted })))
    }

    async fn suspend(&self, wanted: AskSuspend) -> Result<(String, Value), HostError> {
        let to = match wanted.to.as_deref() {
            None | Some("ram") => Level::Ram,
            Some("disk") => Level::Disk,
            Some(other) => {
                let message = format!("a sandbox can let itself sleep to ram or disk, not `{other}`");
                return Err(HostError::BadRequest(message));
            }
        };
        if self.handle.record().bound_to_run {
            return Err(HostError::Conflict("it belongs to a run, which waits for it to end".to_owned()));
        }
        // Whoever asked reads this when it is awake again.
        self.handle.suspend(to).await?;
        Ok(("awake again".to_owned(), json!({ "resumed": "wake" })))
    }

    async fn checkpoint(&mut self, wanted: AskCheckpoint) -> Result<(String, Value), HostError> {
        let soon = self.last_checkpoint.is_some_and(|last| last.elapsed() < BETWEEN_CHECKPOINTS);
        if soon {
            let seconds = BETWEEN_CHECKPOINTS.as_secs();
            return Err(HostError::RateLimited(format!("one checkpoint in {seconds} s can be made from inside")));
        }
        if self.handle.count_checkpoints().await? >= MOST_CHECKPOINTS {
            let message = format!("it has {MOST_CHECKPOINTS} checkpoints already, no more are made from inside");
            return Err(HostError::LimitExceeded(message));
        }
        self.last_checkpoint = Some(Instant::now());
        let wanted = CreateCheckpoint { comment: wanted.comment, files_only: false };
        let (checkpoint, receipt) = self.handle.checkpoint_for(wanted, Purpose::Inside).await?;
        Ok((checkpoint.id.to_string(), json!({ "checkpoint": checkpoint.id, "receipt": receipt })))
    }

    async fn wake_at(&self, wanted: AskAlarm) -> Result<(String, Value), HostError> {
        let name = wanted.name.as_deref().unwrap_or(OWN_NAME).to_owned();
        let alarm = PutAlarm { at: wanted.at, every: wanted.every, tz: wanted.tz, reason: wanted.reason };
        let (alarm, _) = self.handle.put_alarm_from(Some(&name), alarm, Origin::Inside).await?;
        Ok((set(&alarm), json!(alarm)))
    }

    async fn unset(&self, which: AskRelease) -> Result<(String, Value), HostError> {
        let wanted: Vec<Alarm> = match which.name {
            Some(name) => vec![self.handle.alarm(&name)?],
            None => self.handle.alarms().into_iter().filter(|alarm| alarm.from == Origin::Inside).collect(),
        };
        for alarm in &wanted {
            check_own(alarm.from, "alarm")?;
            self.handle.delete_alarm(alarm.id.as_str()).await?;
        }
        Ok((format!("removed {}", counted(wanted.len(), "alarm")), json!({ "removed": wanted })))
    }
}

fn check_own(from: Origin, what: &str) -> Result<(), HostError> {
    if from == Origin::Inside {
        return Ok(());
    }
    Err(HostError::Forbidden(format!("that {what} is not from inside")))
}

fn held(hold: &Hold) -> String {
    let reason = hold.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("held awake until {:.0} ({}, {}){reason}", hold.expires_at, hold.id, hold.from.as_str())
}

fn set(alarm: &Alarm) -> String {
    let reason = alarm.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    // In its own zone, as it was asked for.
    let at = match zone(Some(&alarm.tz)) {
        Ok(zone) => format!("{:.0}", alarm.next_at.to_zoned(zone)),
        Err(_) => format!("{:.0}", alarm.next_at),
    };
    let every = alarm.every.as_ref().map(|every| format!(", every {every}")).unwrap_or_default();
    format!("wakes at {at} ({}, {}{every}){reason}", alarm.id, alarm.from.as_str())
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
