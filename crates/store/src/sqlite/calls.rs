//! What the store is asked, each call one piece of work on the tables.

use jiff::Timestamp;
use roost_model::{Alarm, CheckpointId, Event, Hold, KeyId, KeyView, Name, SandboxId, TokenId, TokenView};

use super::leases::{ALARMS, HOLDS};
use super::{SqliteStore, checkpoints, events, keys, pools, sandboxes, sessions, tokens};
use crate::{
    CheckpointRecord, Durability, IdempotencyKey, InsertOutcome, NewEvent, PoolRecord, Pruned, SandboxRecord,
    SessionRecord, Store, StoreError,
};

impl Store for SqliteStore {
    fn insert_sandbox(
        &self,
        record: &SandboxRecord,
        event: NewEvent,
        key: Option<&IdempotencyKey>,
    ) -> Result<InsertOutcome, StoreError> {
        let attempt = || format!("insert sandbox `{}`", record.id);
        self.write(Durability::Process, attempt, |transaction| {
            if let Some(key) = key {
                if let Some(id) = sandboxes::made_before(transaction, key)? {
                    return Ok(InsertOutcome::Replayed(id));
                }
                sandboxes::remember_key(transaction, key, &record.id, event.at)?;
            }
            sandboxes::insert(transaction, record)?;
            events::append(transaction, record, event).map(InsertOutcome::Inserted)
        })
    }

    fn made_before(&self, key: &IdempotencyKey) -> Result<Option<SandboxId>, StoreError> {
        let attempt = || format!("look for idempotency key `{}`", key.key);
        self.read(attempt, |connection| sandboxes::made_before(connection, key))
    }

    fn save_sandbox(
        &self,
        record: &SandboxRecord,
        event: Option<NewEvent>,
        durability: Durability,
    ) -> Result<Option<Event>, StoreError> {
        let attempt = || format!("save sandbox `{}`", record.id);
        self.write(durability, attempt, |transaction| {
            sandboxes::update(transaction, record)?;
            event.map(|event| events::append(transaction, record, event)).transpose()
        })
    }

    fn log_host_event(&self, event: NewEvent) -> Result<Event, StoreError> {
        let attempt = || "log an event about the host".to_owned();
        self.write(Durability::Process, attempt, |transaction| events::append_of_host(transaction, event))
    }

    fn insert_waiting(&self, record: &SandboxRecord) -> Result<(), StoreError> {
        let attempt = || format!("insert sandbox `{}`", record.id);
        self.write(Durability::Process, attempt, |transaction| sandboxes::insert(transaction, record))
    }

    fn take_waiting(
        &self,
        record: &SandboxRecord,
        event: NewEvent,
        key: Option<&IdempotencyKey>,
    ) -> Result<InsertOutcome, StoreError> {
        let attempt = || format!("take sandbox `{}`", record.id);
        self.write(Durability::Process, attempt, |transaction| {
            if let Some(key) = key {
                if let Some(id) = sandboxes::made_before(transaction, key)? {
                    return Ok(InsertOutcome::Replayed(id));
                }
                sandboxes::remember_key(transaction, key, &record.id, event.at)?;
            }
            sandboxes::update(transaction, record)?;
            events::append(transaction, record, event).map(InsertOutcome::Inserted)
        })
    }

    fn pools(&self) -> Result<Vec<PoolRecord>, StoreError> {
        self.read(|| "list the pools".to_owned(), pools::all)
    }

    fn save_pool(&self, pool: &PoolRecord) -> Result<(), StoreError> {
        let attempt = || format!("save the pool of `{}`", pool.template);
        self.write(Durability::Process, attempt, |transaction| pools::save(transaction, pool))
    }

    fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        self.read(|| format!("read sandbox `{id}`"), |connection| sandboxes::by_id(connection, id))
    }

    fn living(&self) -> Result<Vec<SandboxRecord>, StoreError> {
        self.read(|| "list the living sandboxes".to_owned(), sandboxes::living)
    }

    fn newest_by_name(&self, name: &Name) -> Result<Option<SandboxRecord>, StoreError> {
        let attempt = || format!("look for a sandbox named `{name}`");
        self.read(attempt, |connection| sandboxes::newest_by_name(connection, name))
    }

    fn by_id_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<SandboxRecord>, StoreError> {
        let attempt = || format!("look for sandboxes with ids in `{prefix}…`");
        self.read(attempt, |connection| sandboxes::by_id_prefix(connection, prefix, limit))
    }

    fn terminated(&self, after: Option<&SandboxId>, limit: usize) -> Result<Vec<SandboxRecord>, StoreError> {
        let attempt = || "list the terminated sandboxes".to_owned();
        self.read(attempt, |connection| sandboxes::terminated(connection, after, limit))
    }

    fn insert_checkpoint(
        &self,
        checkpoint: &CheckpointRecord,
        sandbox: &SandboxRecord,
        event: NewEvent,
    ) -> Result<Event, StoreError> {
        let attempt = || format!("insert checkpoint `{}`", checkpoint.id);
        self.write(Durability::Synced, attempt, |transaction| {
            checkpoints::insert(transaction, checkpoint)?;
            sandboxes::update(transaction, sandbox)?;
            events::append(transaction, sandbox, event)
        })
    }

    fn checkpoint(&self, id: &CheckpointId) -> Result<Option<CheckpointRecord>, StoreError> {
        self.read(|| format!("read checkpoint `{id}`"), |connection| checkpoints::by_id(connection, id))
    }

    fn checkpoints_of(&self, sandbox: &SandboxId) -> Result<Vec<CheckpointRecord>, StoreError> {
        let attempt = || format!("list the checkpoints of `{sandbox}`");
        self.read(attempt, |connection| checkpoints::of(connection, sandbox))
    }

    fn all_checkpoints(&self) -> Result<Vec<CheckpointRecord>, StoreError> {
        self.read(|| "list the checkpoints".to_owned(), checkpoints::all)
    }

    fn delete_checkpoint(
        &self,
        id: &CheckpointId,
        event: Option<(&SandboxRecord, NewEvent)>,
    ) -> Result<Option<Event>, StoreError> {
        let attempt = || format!("delete checkpoint `{id}`");
        self.write(Durability::Synced, attempt, |transaction| {
            checkpoints::delete(transaction, id)?;
            event.map(|(sandbox, event)| events::append(transaction, sandbox, event)).transpose()
        })
    }

    fn put_hold(&self, sandbox: &SandboxId, hold: &Hold) -> Result<(), StoreError> {
        let attempt = || format!("store a hold of `{sandbox}`");
        self.write(Durability::Process, attempt, |transaction| HOLDS.put(transaction, sandbox, &hold.id, hold))
    }

    fn delete_hold(&self, sandbox: &SandboxId, id: &Name) -> Result<bool, StoreError> {
        let attempt = || format!("delete a hold of `{sandbox}`");
        self.write(Durability::Process, attempt, |transaction| HOLDS.delete(transaction, sandbox, id))
    }

    fn holds(&self) -> Result<Vec<(SandboxId, Hold)>, StoreError> {
        self.read(|| "list the holds".to_owned(), |connection| HOLDS.all(connection))
    }

    fn put_alarm(&self, sandbox: &SandboxId, alarm: &Alarm) -> Result<(), StoreError> {
        let attempt = || format!("store an alarm of `{sandbox}`");
        self.write(Durability::Process, attempt, |transaction| ALARMS.put(transaction, sandbox, &alarm.id, alarm))
    }

    fn delete_alarm(&self, sandbox: &SandboxId, id: &Name) -> Result<bool, StoreError> {
        let attempt = || format!("delete an alarm of `{sandbox}`");
        self.write(Durability::Process, attempt, |transaction| ALARMS.delete(transaction, sandbox, id))
    }

    fn alarms(&self) -> Result<Vec<(SandboxId, Alarm)>, StoreError> {
        self.read(|| "list the alarms".to_owned(), |connection| ALARMS.all(connection))
    }

    fn forget_leases(&self, sandbox: &SandboxId) -> Result<(), StoreError> {
        let attempt = || format!("forget the holds and alarms of `{sandbox}`");
        self.write(Durability::Process, attempt, |transaction| {
            HOLDS.forget(transaction, sandbox)?;
            ALARMS.forget(transaction, sandbox)
        })
    }

    fn events_after(&self, after: u64, limit: usize, sandbox: Option<&SandboxId>) -> Result<Vec<Event>, StoreError> {
        let attempt = || format!("read the events after {after}");
        self.read(attempt, |connection| events::after(connection, after, limit, sandbox))
    }

    fn recent_events(&self, sandbox: &SandboxId, limit: usize) -> Result<Vec<Event>, StoreError> {
        let attempt = || format!("read the last events of sandbox {sandbox}");
        self.read(attempt, |connection| events::recent(connection, sandbox, limit))
    }

    fn last_event(&self) -> Result<u64, StoreError> {
        self.read(|| "read the last event's id".to_owned(), events::last)
    }

    fn insert_token(&self, view: &TokenView, hash: &[u8; 32]) -> Result<(), StoreError> {
        let attempt = || format!("insert token `{}`", view.id);
        self.write(Durability::Synced, attempt, |transaction| tokens::insert(transaction, view, hash))
    }

    fn tokens(&self) -> Result<Vec<TokenView>, StoreError> {
        self.read(|| "list the tokens".to_owned(), tokens::all)
    }

    fn delete_token(&self, id: &TokenId) -> Result<bool, StoreError> {
        let attempt = || format!("delete token `{id}`");
        self.write(Durability::Synced, attempt, |transaction| {
            sessions::delete_of(transaction, id)?;
            tokens::delete(transaction, id)
        })
    }

    fn put_key(&self, key: &KeyView) -> Result<(), StoreError> {
        let attempt = || format!("put key `{}`", key.id);
        self.write(Durability::Synced, attempt, |transaction| keys::put(transaction, key))
    }

    fn keys(&self) -> Result<Vec<KeyView>, StoreError> {
        self.read(|| "list the keys".to_owned(), keys::all)
    }

    fn key_by_fingerprint(&self, fingerprint: &str) -> Result<Option<KeyView>, StoreError> {
        self.read(|| "look for a key".to_owned(), |connection| keys::by_fingerprint(connection, fingerprint))
    }

    fn delete_key(&self, id: &KeyId) -> Result<bool, StoreError> {
        let attempt = || format!("delete key `{id}`");
        self.write(Durability::Synced, attempt, |transaction| keys::delete(transaction, id))
    }

    fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<TokenView>, StoreError> {
        self.read(|| "look for a token".to_owned(), |connection| tokens::by_hash(connection, hash))
    }

    fn insert_session(&self, session: &SessionRecord, hash: &[u8; 32], now: Timestamp) -> Result<(), StoreError> {
        let attempt = || "remember a session".to_owned();
        self.write(Durability::Synced, attempt, |transaction| {
            sessions::forget(transaction, now)?;
            sessions::insert(transaction, session, hash)
        })
    }

    fn session_by_hash(&self, hash: &[u8; 32]) -> Result<Option<SessionRecord>, StoreError> {
        self.read(|| "look for a session".to_owned(), |connection| sessions::by_hash(connection, hash))
    }

    fn delete_session(&self, hash: &[u8; 32]) -> Result<bool, StoreError> {
        let attempt = || "end a session".to_owned();
        self.write(Durability::Synced, attempt, |transaction| sessions::delete(transaction, hash))
    }

    fn prune(
        &self,
        events_before: Timestamp,
        tombstones_before: Timestamp,
        keys_before: Timestamp,
    ) -> Result<Pruned, StoreError> {
        self.write(
            Durability::Process,
            || "forget what is old".to_owned(),
            |transaction| {
                Ok(Pruned {
                    events: events::forget(transaction, events_before)?,
                    tombstones: sandboxes::forget_terminated(transaction, tombstones_before)?,
                    keys: sandboxes::forget_keys(transaction, keys_before)?,
                })
            },
        )
    }
}
