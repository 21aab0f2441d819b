//! The trait behind which everything durable lives.

use std::fmt::Debug;

use jiff::Timestamp;
use roost_model::{
    Alarm, CheckpointId, Event, EventKind, Hold, KeyId, KeyView, Name, Receipt, SandboxId, TokenId, TokenView,
};

use crate::{CheckpointRecord, PoolRecord, SandboxRecord, SessionRecord, StoreError};

/// What a write must survive before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The death of the process.
    #[default]
    Process,
    /// The death of the machine; everything written before is safe then too.
    Synced,
}

/// A new event. Its sandbox, with name and state, comes from the record that it is stored with; an event about the host
/// has none.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// When; kept to the microsecond.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// Why, where that needs saying.
    pub reason: Option<String>,
    /// The account of the operation it tells of, where that has one.
    pub receipt: Option<Box<Receipt>>,
}

/// What a client sends along so that it may repeat a request without having it done twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The client's key.
    pub key: String,
    /// Tells one request's body from another's.
    pub fingerprint: String,
}

/// What came of an insert.
#[derive(Debug, Clone, PartialEq)]
pub enum InsertOutcome {
    /// It is stored, and this was logged.
    Inserted(Event),
    /// The same request has made this sandbox before; nothing has changed. Its record may have been pruned since.
    Replayed(SandboxId),
}

/// How much was forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Events.
    pub events: usize,
    /// Records of terminated sandboxes.
    pub tombstones: usize,
    /// Idempotency keys.
    pub keys: usize,
}

/// What must be remembered across the lives of daemons. Calls block.
pub trait Store: Send + Sync + Debug {
    /// Stores a new sandbox, its first event and its idempotency key together.
    ///
    /// A key that was used before decides first: the same request is answered with the sandbox it made, another one is a
    /// [`StoreError::KeyConflict`]. Then the name: [`StoreError::NameTaken`] if a living sandbox has it.
    fn insert_sandbox(
        &self,
        record: &SandboxRecord,
        event: NewEvent,
        key: Option<&IdempotencyKey>,
    ) -> Result<InsertOutcome, StoreError>;

    /// The sandbox that the request of this key has made before; another request with it is a [`StoreError::KeyConflict`].
    fn made_before(&self, key: &IdempotencyKey) -> Result<Option<SandboxId>, StoreError>;

    /// Puts a record in the place of the stored one, together with the event that tells of it; returns that event as
    /// logged.
    fn save_sandbox(
        &self,
        record: &SandboxRecord,
        event: Option<NewEvent>,
        durability: Durability,
    ) -> Result<Option<Event>, StoreError>;

    /// Stores a new sandbox that waits in a pool; nobody is told of it.
    fn insert_waiting(&self, record: &SandboxRecord) -> Result<(), StoreError>;

    /// Puts the record of what was asked for in the place of one that waited in a pool, together with its first event and
    /// its idempotency key: to everybody else it is as if it were inserted now.
    ///
    /// Key and name decide as in [`Store::insert_sandbox`]; what is refused or replayed leaves the one that waits alone.
    fn take_waiting(
        &self,
        record: &SandboxRecord,
        event: NewEvent,
        key: Option<&IdempotencyKey>,
    ) -> Result<InsertOutcome, StoreError>;

    /// Stores an event about the host; returns it as logged.
    fn log_host_event(&self, event: NewEvent) -> Result<Event, StoreError>;

    /// Every pool, by template.
    fn pools(&self) -> Result<Vec<PoolRecord>, StoreError>;

    /// Stores how large a pool may be; one that may hold nothing is forgotten.
    fn save_pool(&self, pool: &PoolRecord) -> Result<(), StoreError>;

    /// The sandbox of an id, living or terminated.
    fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError>;

    /// Every sandbox that is not terminated, those whose end is only decided included; oldest first.
    fn living(&self) -> Result<Vec<SandboxRecord>, StoreError>;

    /// The living sandbox of a name, or else the newest terminated one.
    fn newest_by_name(&self, name: &Name) -> Result<Option<SandboxRecord>, StoreError>;

    /// Up to `limit` sandboxes, living or terminated, whose whole id (`sbx_…`) starts with `prefix`; oldest first.
    fn by_id_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<SandboxRecord>, StoreError>;

    /// Up to `limit` terminated sandboxes, oldest first, from the one after `after` on.
    fn terminated(&self, after: Option<&SandboxId>, limit: usize) -> Result<Vec<SandboxRecord>, StoreError>;

    /// Stores a new checkpoint, the record of its sandbox, which stands on it now, and the event that tells of it
    /// together; [`Durability::Synced`]. Its files must be on the disk before: this is what makes it count.
    fn insert_checkpoint(
        &self,
        checkpoint: &CheckpointRecord,
        sandbox: &SandboxRecord,
        event: NewEvent,
    ) -> Result<Event, StoreError>;

    /// The checkpoint of an id.
    fn checkpoint(&self, id: &CheckpointId) -> Result<Option<CheckpointRecord>, StoreError>;

    /// Every checkpoint made of a sandbox, living or not; oldest first.
    fn checkpoints_of(&self, sandbox: &SandboxId) -> Result<Vec<CheckpointRecord>, StoreError>;

    /// Every checkpoint of every sandbox, oldest first.
    fn all_checkpoints(&self) -> Result<Vec<CheckpointRecord>, StoreError>;

    /// Forgets a checkpoint, together with an event of a sandbox that tells of it; [`Durability::Synced`], so that its
    /// files can go afterwards. [`StoreError::NoCheckpoint`] if there is none.
    ///
    /// Records that name it as their parent, or stand on it, keep its name.
    fn delete_checkpoint(
        &self,
        id: &CheckpointId,
        event: Option<(&SandboxRecord, NewEvent)>,
    ) -> Result<Option<Event>, StoreError>;

    /// Stores a hold of a sandbox, in the place of one of the same name.
    fn put_hold(&self, sandbox: &SandboxId, hold: &Hold) -> Result<(), StoreError>;

    /// Forgets a hold; says whether there was one.
    fn delete_hold(&self, sandbox: &SandboxId, id: &Name) -> Result<bool, StoreError>;

    /// Every hold of every sandbox.
    fn holds(&self) -> Result<Vec<(SandboxId, Hold)>, StoreError>;

    /// Stores an alarm of a sandbox, in the place of one of the same name.
    fn put_alarm(&self, sandbox: &SandboxId, alarm: &Alarm) -> Result<(), StoreError>;

    /// Forgets an alarm; says whether there was one.
    fn delete_alarm(&self, sandbox: &SandboxId, id: &Name) -> Result<bool, StoreError>;

    /// Every alarm of every sandbox.
    fn alarms(&self) -> Result<Vec<(SandboxId, Alarm)>, StoreError>;

    /// Forgets all holds and alarms of a sandbox.
    fn forget_leases(&self, sandbox: &SandboxId) -> Result<(), StoreError>;

    /// Up to `limit` events with ids above `after`, in order; of one sandbox only, if one is given.
    fn events_after(&self, after: u64, limit: usize, sandbox: Option<&SandboxId>) -> Result<Vec<Event>, StoreError>;

    /// The last `limit` events of a sandbox, oldest first.
    fn recent_events(&self, sandbox: &SandboxId, limit: usize) -> Result<Vec<Event>, StoreError>;

    /// The id of the last event ever logged, pruned ones included; 0 if there was none.
    fn last_event(&self) -> Result<u64, StoreError>;

    /// Remembers a token by the hash of its secret; [`Durability::Synced`].
    fn insert_token(&self, view: &TokenView, hash: &[u8; 32]) -> Result<(), StoreError>;

    /// Every token, oldest first.
    fn tokens(&self) -> Result<Vec<TokenView>, StoreError>;

    /// Forgets a token and the sessions that came from it; [`Durability::Synced`]. Says whether there was one.
    fn delete_token(&self, id: &TokenId) -> Result<bool, StoreError>;

    /// Remembers a public key, or what has changed of it; [`Durability::Synced`].
    fn put_key(&self, key: &KeyView) -> Result<(), StoreError>;

    /// Every public key, oldest first.
    fn keys(&self) -> Result<Vec<KeyView>, StoreError>;

    /// The public key with this fingerprint.
    fn key_by_fingerprint(&self, fingerprint: &str) -> Result<Option<KeyView>, StoreError>;

    /// Forgets a public key; [`Durability::Synced`]. Says whether there was one.
    fn delete_key(&self, id: &KeyId) -> Result<bool, StoreError>;

    /// The token whose secret has this hash.
    fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<TokenView>, StoreError>;

    /// Remembers a session by the hash of its secret, and forgets those that are over; [`Durability::Synced`].
    fn insert_session(&self, session: &SessionRecord, hash: &[u8; 32], now: Timestamp) -> Result<(), StoreError>;

    /// The session whose secret has this hash, also one that is over.
    fn session_by_hash(&self, hash: &[u8; 32]) -> Result<Option<SessionRecord>, StoreError>;

    /// Ends a session; [`Durability::Synced`]. Says whether there was one.
    fn delete_session(&self, hash: &[u8; 32]) -> Result<bool, StoreError>;

    /// Forgets what is older: events, records of terminated sandboxes (by the time of their end), idempotency keys.
    ///
    /// Events go from the front only, so that what is left of the log has no holes even if the clock was once set back.
    fn prune(
        &self,
        events_before: Timestamp,
        tombstones_before: Timestamp,
        keys_before: Timestamp,
    ) -> Result<Pruned, StoreError>;
}
