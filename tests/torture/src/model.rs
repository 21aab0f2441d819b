//! What must be in a sandbox.

use std::collections::BTreeMap;

use roost_model::CheckpointId;

/// A file's content, made from a number whenever it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) number: u64,
    pub(crate) length: usize,
}

impl Content {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.number.to_le_bytes());
        hasher.finalize_xof().fill(&mut bytes);
        bytes
    }
}

/// What was in it at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Inside {
    /// What each file may hold: one content, and those of later writes of which nobody knows whether they were done.
    pub(crate) files: BTreeMap<String, Vec<Content>>,
    /// The hash of what its keeper of memory remembers; nothing if it has none.
    pub(crate) memory: Option<String>,
}

/// A sandbox of a client's.
#[derive(Debug, Clone)]
pub(crate) struct Modelled {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) gvisor: bool,
    pub(crate) inside: Inside,
    pub(crate) kept: Vec<(CheckpointId, Inside)>,
    pub(crate) held: bool,
    /// Its processes were killed, and nobody knows whether they were in an image by then.
    pub(crate) unsure: bool,
}
