//! Sandboxes that wait, and how many may.

use std::sync::Arc;

use roost_lifecycle::Phase;
use roost_model::{EngineKind, EventKind, Level, TemplateId};

use super::insert;
use crate::tests::samples::{event, in_phase, record};
use crate::{IdempotencyKey, InsertOutcome, PoolRecord, SandboxRecord, Store, StoreError};

pub(super) fn check(empty: &mut impl FnMut() -> Arc<dyn Store>) {
    bounds_are_kept_until_there_are_none(&*empty());
    one_that_waits_is_taken_whole_or_not_at_all(&*empty());
}

fn bounds_are_kept_until_there_are_none(store: &dyn Store) {
    assert_eq!(store.pools().unwrap(), []);
    let pool =
        |template: &str, min, max| PoolRecord { template: template.to_owned(), engine: EngineKind::Fake, min, max };
    for pool in [pool("mini", 1, 4), pool("base", 0, 1), pool("mini", 2, 8)] {
        store.save_pool(&pool).unwrap();
    }
    assert_eq!(store.pools().unwrap(), [pool("base", 0, 1), pool("mini", 2, 8)]);
    store.save_pool(&pool("mini", 0, 0)).unwrap();
    assert_eq!(store.pools().unwrap(), [pool("base", 0, 1)]);
}

fn one_that_waits_is_taken_whole_or_not_at_all(store: &dyn Store) {
    let other = record("other", 1);
    insert(store, &other);
    let template = Some(TemplateId::from_parts(1, 1));
    let waiting = SandboxRecord { pool: template, ..in_phase(&record("pool-1", 2), Phase::Suspended(Level::Ram)) };
    store.insert_waiting(&waiting).unwrap();
    assert_eq!(store.last_event().unwrap(), 1, "nobody hears of it");

    let taken = SandboxRecord { pool: None, name: "web".parse().unwrap(), ..in_phase(&waiting, Phase::Creating) };
    let key = IdempotencyKey { key: "k".to_owned(), fingerprint: "f".to_owned() };
    let take = |record: &SandboxRecord| store.take_waiting(record, event(EventKind::Creating, 1), Some(&key));
    let clash = SandboxRecord { name: other.name.clone(), ..taken.clone() };
    assert!(matches!(take(&clash), Err(StoreError::NameTaken { .. })));
    assert_eq!(store.sandbox(&waiting.id).unwrap(), Some(waiting.clone()));
    assert_eq!(store.last_event().unwrap(), 1);

    let Ok(InsertOutcome::Inserted(told)) = take(&taken) else { panic!("the key of what was refused is free") };
    assert_eq!((told.id, told.name.as_ref(), told.kind), (2, Some(&"web".parse().unwrap()), EventKind::Creating));
    assert_eq!(store.sandbox(&waiting.id).unwrap(), Some(taken.clone()));
    let second = SandboxRecord { name: "pool-2".parse().unwrap(), ..record("pool-2", 3) };
    store.insert_waiting(&second).unwrap();
    assert_eq!(take(&second).unwrap(), InsertOutcome::Replayed(taken.id));
    assert_eq!(store.sandbox(&second.id).unwrap(), Some(second));
}
