//! The memory that replies of guests take: a budget for all of them, and its return to the host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use roost_model::SandboxId;
use roost_wire::client::{Bounded, Limits, Room};

/// Most bytes that the replies of all guests take while they are collected.
const ALL: usize = 64 << 20;
/// Most bytes that the replies of one sandbox take: several hostile sandboxes leave room for the others.
const EACH: usize = 32 << 20;
/// What replies of guests take.
#[derive(Debug)]
pub(super) struct Replies {
    all: Arc<Room>,
    each: Mutex<HashMap<SandboxId, Arc<Room>>>,
}

impl Default for Replies {
    fn default() -> Self {
        Self { all: Arc::new(Room::new(ALL)), each: Mutex::default() }
    }
}

impl Replies {
    /// A count of what one call collects of a sandbox's guest.
    pub(super) fn bounded(&self, id: &SandboxId, limits: Limits) -> Bounded {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        let part = || Arc::new(Room::part_of(self.all.clone(), EACH));
        Bounded::within(limits, each.entry(id.clone()).or_insert_with(part).clone())
    }

    /// Drops the part of a sandbox whose processes have ended; calls that are under way still hold it.
    pub(super) fn forget(&self, id: &SandboxId) {
        self.each.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// The room of all replies.
    pub(super) fn all(&self) -> &Room {
        &self.all
    }
}
