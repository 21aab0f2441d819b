//! What is promised of checkpoints.

use std::sync::Arc;

use roost_model::{CheckpointId, EventKind};

use super::super::samples::{at, checkpoint, event, receipt, record, standing_on, terminated};
use super::{insert, save};
use crate::{CheckpointRecord, NewEvent, SandboxRecord, Store, StoreError};

pub(super) fn check(empty: &mut impl FnMut() -> Arc<dyn Store>) {
    they_come_back_as_they_went(&*empty());
    they_are_listed_by_sandbox_oldest_first(&*empty());
    one_that_is_refused_leaves_nothing(&*empty());
    they_outlive_their_sandbox(&*empty());
    a_deleted_one_is_gone_and_told_of(&*empty());
}

fn told(kind: EventKind) -> NewEvent {
    event(kind, 1)
}

/// Checkpoints a sandbox and returns it standing on that.
fn insert_checkpoint(store: &dyn Store, one: &CheckpointRecord) -> SandboxRecord {
    let standing = standing_on(&one.origin, one);
    store.insert_checkpoint(one, &standing, told(EventKind::Checkpointed)).unwrap();
    standing
}

fn ids(checkpoints: &[CheckpointRecord]) -> Vec<CheckpointId> {
    checkpoints.iter().map(|one| one.id.clone()).collect()
}

fn they_come_back_as_they_went(store: &dyn Store) {
    let web = record("web", 1);
    insert(store, &web);
    let first = checkpoint(&web, 1);
    assert_eq!(store.checkpoint(&first.id).unwrap(), None);
    let standing = standing_on(&web, &first);
    let new = NewEvent { receipt: Some(Box::new(receipt(&first))), ..told(EventKind::Checkpointed) };
    let live = store.insert_checkpoint(&first, &standing, new).unwrap();
    assert_eq!((live.id, live.kind, live.sandbox.as_ref()), (2, EventKind::Checkpointed, Some(&web.id)));
    assert_eq!(live.receipt.as_deref(), Some(&receipt(&first)));
    assert_eq!(store.events_after(1, 10, None).unwrap(), [live], "what is told live is what is replayed");
    assert_eq!(store.checkpoint(&first.id).unwrap(), Some(first.clone()));
    assert_eq!(store.sandbox(&web.id).unwrap(), Some(standing), "the sandbox stands on it in the same breath");
}

fn they_are_listed_by_sandbox_oldest_first(store: &dyn Store) {
    let (a, b) = (record("a", 1), record("b", 2));
    insert(store, &a);
    insert(store, &b);
    assert_eq!(store.all_checkpoints().unwrap(), []);
    let mut made = Vec::new();
    for (number, origin) in [(3, &a), (1, &a), (2, &b)] {
        let one = checkpoint(origin, number);
        insert_checkpoint(store, &one);
        made.push(one.id);
    }
    assert_eq!(ids(&store.checkpoints_of(&a.id).unwrap()), [made[1].clone(), made[0].clone()]);
    assert_eq!(ids(&store.checkpoints_of(&b.id).unwrap()), [made[2].clone()]);
    assert_eq!(ids(&store.all_checkpoints().unwrap()), [made[1].clone(), made[2].clone(), made[0].clone()]);
    assert_eq!(store.checkpoints_of(&record("c", 3).id).unwrap(), []);
}

fn one_that_is_refused_leaves_nothing(store: &dyn Store) {
    let ghost = record("ghost", 9);
    let lost = checkpoint(&ghost, 1);
    let refused = store.insert_checkpoint(&lost, &ghost, told(EventKind::Checkpointed));
    assert!(matches!(refused, Err(StoreError::Missing { id }) if id == ghost.id));
    assert_eq!((store.all_checkpoints().unwrap().len(), store.last_event().unwrap()), (0, 0));

    let web = record("web", 1);
    insert(store, &web);
    let first = checkpoint(&web, 1);
    let standing = insert_checkpoint(store, &first);
    let twin = CheckpointRecord { comment: None, ..first.clone() };
    let changed = SandboxRecord { generation: 99, ..standing.clone() };
    let refused = store.insert_checkpoint(&twin, &changed, told(EventKind::Checkpointed));
    assert!(matches!(refused, Err(StoreError::Failed { .. })), "an id is never given twice");
    assert_eq!(store.checkpoint(&first.id).unwrap(), Some(first));
    assert_eq!((store.sandbox(&web.id).unwrap(), store.last_event().unwrap()), (Some(standing), 2));
}

fn they_outlive_their_sandbox(store: &dyn Store) {
    let web = record("web", 1);
    insert(store, &web);
    let first = checkpoint(&web, 1);
    let standing = insert_checkpoint(store, &first);
    save(store, &terminated(&standing, 1));
    assert_eq!(store.prune(at(99), at(99), at(99)).unwrap().tombstones, 1);
    assert_eq!(store.sandbox(&web.id).unwrap(), None);
    assert_eq!(store.checkpoint(&first.id).unwrap(), Some(first.clone()));
    assert_eq!(ids(&store.checkpoints_of(&web.id).unwrap()), [first.id]);
}

fn a_deleted_one_is_gone_and_told_of(store: &dyn Store) {
    let web = record("web", 1);
    insert(store, &web);
    let first = checkpoint(&web, 1);
    let standing = insert_checkpoint(store, &first);
    let second = checkpoint(&standing, 2);
    let standing = insert_checkpoint(store, &second);
    assert_eq!(second.parent.as_ref(), Some(&first.id));

    let event = store.delete_checkpoint(&first.id, Some((&standing, told(EventKind::Changed)))).unwrap();
    assert_eq!(event.map(|event| (event.id, event.sandbox)), Some((4, Some(web.id.clone()))));
    assert_eq!(store.checkpoint(&first.id).unwrap(), None);
    assert_eq!(store.checkpoints_of(&web.id).unwrap(), std::slice::from_ref(&second), "the others are as they were");
    assert_eq!(store.sandbox(&web.id).unwrap(), Some(standing.clone()));

    let again = store.delete_checkpoint(&first.id, Some((&standing, told(EventKind::Changed))));
    assert!(matches!(again, Err(StoreError::NoCheckpoint { id }) if id == first.id));
    assert_eq!(store.last_event().unwrap(), 4, "what was refused left no event");
    assert_eq!(store.delete_checkpoint(&second.id, None).unwrap(), None);
    assert_eq!((store.all_checkpoints().unwrap().len(), store.last_event().unwrap()), (0, 4));
}
