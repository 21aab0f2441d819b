//! Changing a sandbox's engine: its files stay, and so does everything that goes by its name or id; its processes do not.
//!
//! The old engine ends it, the record names the new one together with the next phase, and the new one starts it. A restore of a
//! moment whose memory belongs to another engine goes the same way, with the disk of that moment.

use jiff::Timestamp;
use roost_lifecycle::{Event as Happening, Phase};
use roost_model::{EngineKind, EventKind, Level, MoveSandbox, NotKept, Operation, Receipt, chain};
use roost_store::{Durability, NewEvent, Source};

use crate::HostError;
use crate::account::kept_at;
use crate::actor::{Actor, Message};
use crate::effects::Effects;
use crate::failpoint::fail_point;
use crate::handle::Handle;
use crate::host::Host;
use crate::shared::Shared;
use crate::view::view;

impl Host {
    /// Lets a sandbox go on, from its files, with another engine; one that has it already stays as it is.
    pub async fn move_sandbox(&self, handle: &Handle, wanted: &MoveSandbox) -> Result<Receipt, HostError> {
        handle.living()?;
        let choice = wanted.engine.parse().map_err(HostError::EngineUnfit)?;
        let to = self.choose(choice, &handle.record().template).await?;
        handle.ask(|reply| Message::Move(to, reply)).await
    }
}

impl Actor {
    pub(crate) async fn move_to(&mut self, to: EngineKind) -> Result<Receipt, HostError> {
        let (from, phase) = (self.record.engine, self.record.phase);
        if phase.is_ending() {
            return Err(HostError::Terminated(Box::new(view(&self.record))));
        }
        if from == to {
            self.account.kept = kept_at(phase.level());
            return Ok(self.account.receipt(Operation::Move, phase.level(), self.record.generation));
        }
        if self.record.ephemeral {
            let why = "an ephemeral sandbox ends with its processes: make a new one on that engine";
            return Err(HostError::BadRequest(why.to_owned()));
        }
        self.failure = None;
        self.account.kept = vec!["files"];
        self.account.not_kept = self.lost_by_move(to)?;
        self.happen(Happening::MoveRequested(to), Some(format!("moving from engine {from} to {to}"))).await?;
        if phase == Phase::Active {
            self.awake_or_why()?;
        }
        let receipt = self.account.receipt(Operation::Move, self.record.phase.level(), self.record.generation);
        let event = NewEvent {
            at: Timestamp::now(),
            kind: EventKind::Moved,
            reason: Some(format!("moved from engine {from} to {to}")),
            receipt: Some(Box::new(receipt.clone())),
        };
        self.store(self.record.clone(), Some(event), Durability::Process).await?;
        Ok(receipt)
    }

    fn lost_by_move(&self, to: EngineKind) -> Result<Vec<NotKept>, HostError> {
        let from = self.record.engine;
        let now = self.effects.engine.capabilities();
        let then = self.effects.shared.engine(to)?.capabilities();
        let mut lost = Vec::new();
        if matches!(self.record.phase, Phase::Active | Phase::Suspended(Level::Ram | Level::Disk)) {
            let why = format!("memory of engine {from} means nothing to {to}; services start again");
            lost.push(NotKept { what: "memory and processes".to_owned(), why });
        }
        let tmp = |why: &str| NotKept { what: "files in /tmp and /var/tmp".to_owned(), why: why.to_owned() };
        match (now.tmp_on_disk, then.tmp_on_disk) {
            (true, false) => {
                lost.push(tmp("these folders are in memory there; what was in them is back after a move back"))
            }
            (false, _) if !lost.is_empty() => lost.push(tmp("they were in memory")),
            _ => {}
        }
        Ok(lost)
    }

    /// Nothing of it is left on its engine: from here on it belongs to the one that it goes on with.
    pub(crate) async fn change_engine(&mut self) {
        let to = match self.record.phase {
            Phase::Moving { to, .. } => to,
            Phase::Restoring => match engine_of(&self.effects.shared, self.record.source.as_ref()).await {
                Some(engine) => engine,
                None => return,
            },
            _ => return,
        };
        match self.effects.shared.engine(to) {
            Ok(engine) => {
                self.record.engine = to;
                self.effects = Effects::new(self.effects.shared.clone(), engine);
                fail_point("engine-changed");
            }
            // It goes on with the one that it has.
            Err(error) => {
                tracing::error!(sandbox = %self.record.id, error = %chain(&error), "could not change its engine")
            }
        }
    }
}

/// The engine that the memory of a moment belongs to.
async fn engine_of(shared: &Shared, moment: Option<&Source>) -> Option<EngineKind> {
    let moment = shared.moment(moment?).await.ok()?;
    moment.memory.then_some(moment.origin.engine)
}
