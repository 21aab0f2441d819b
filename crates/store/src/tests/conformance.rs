//! What every implementation of [`Store`] promises.

mod checkpoints;
mod leases;
mod pools;

use std::sync::Arc;
use std::thread;

use roost_lifecycle::Phase;
use roost_model::{Access, EventKind, KeyId, KeyView, Name, SandboxId, State, TokenId, TokenView};

use super::samples::{at, event, in_phase, record, terminated};
use crate::{Durability, IdempotencyKey, InsertOutcome, SandboxRecord, SessionRecord, Store, StoreError};

/// Runs every check, each on a new, empty store.
pub(super) fn check(mut empty: impl FnMut() -> Arc<dyn Store>) {
    records_come_back_as_they_went(&*empty());
    names_are_taken_by_the_living_only(&*empty());
    an_unknown_sandbox_cannot_be_saved(&*empty());
    a_key_makes_one_sandbox(&*empty());
    events_are_numbered_without_gaps(&*empty());
    events_about_the_host_have_no_sandbox(&*empty());
    ids_are_found_by_prefix(&*empty());
    terminated_ones_come_in_pages(&*empty());
    tokens_are_found_by_hash(&*empty());
    sessions_end_with_their_time_or_token(&*empty());
    keys_are_found_by_fingerprint(&*empty());
    checkpoints::check(&mut empty);
    leases::check(&mut empty);
    pools::check(&mut empty);
    what_is_old_is_forgotten(&*empty());
    writers_do_not_disturb_each_other(&empty());
    one_of_many_gets_the_name_or_the_key(&empty());
}

fn insert(store: &dyn Store, record: &SandboxRecord) -> u64 {
    match store.insert_sandbox(record, event(EventKind::Creating, 0), None).unwrap() {
        InsertOutcome::Inserted(event) => event.id,
        InsertOutcome::Replayed(id) => panic!("{id} came from nowhere"),
    }
}

fn save(store: &dyn Store, record: &SandboxRecord) {
    assert_eq!(store.save_sandbox(record, None, Durability::Process).unwrap(), None);
}

fn names(records: &[SandboxRecord]) -> Vec<&str> {
    records.iter().map(|record| record.name.as_str()).collect()
}

fn records_come_back_as_they_went(store: &dyn Store) {
    let mut web = record("web", 1);
    assert_eq!(store.sandbox(&web.id).unwrap(), None);
    insert(store, &web);
    assert_eq!(store.sandbox(&web.id).unwrap(), Some(web.clone()));
    web = in_phase(&web, Phase::Active);
    web.labels.clear();
    let synced = store.save_sandbox(&web, Some(event(EventKind::Created, 1)), Durability::Synced).unwrap();
    assert_eq!(synced.unwrap().state, Some(State::Active));
    assert_eq!(store.sandbox(&web.id).unwrap(), Some(web.clone()));
    assert_eq!(store.living().unwrap(), [web.clone()]);
    save(store, &terminated(&web, 2));
    assert_eq!(store.living().unwrap(), []);
    assert_eq!(store.sandbox(&web.id).unwrap(), Some(terminated(&web, 2)));
}

fn names_are_taken_by_the_living_only(store: &dyn Store) {
    let (first, second, third) = (record("web", 1), record("web", 2), record("other", 3));
    let name: Name = "web".parse().unwrap();
    assert_eq!(store.newest_by_name(&name).unwrap(), None);
    insert(store, &first);
    let taken = |result| matches!(result, Err(StoreError::NameTaken { name: which }) if which == name);
    for phase in [Phase::Creating, Phase::Active, Phase::Terminating, Phase::Releasing] {
        save(store, &in_phase(&first, phase));
        assert!(taken(store.insert_sandbox(&second, event(EventKind::Creating, 1), None)), "while {phase}");
    }
    assert_eq!(store.last_event().unwrap(), 1, "what was refused left no event");
    assert_eq!(store.sandbox(&second.id).unwrap(), None);

    insert(store, &third);
    let renamed = SandboxRecord { name: name.clone(), ..third };
    let changed = Some(event(EventKind::Changed, 1));
    assert!(taken(
        store.save_sandbox(&renamed, changed, Durability::Process).map(|_| InsertOutcome::Replayed(renamed.id.clone()))
    ));
    assert_eq!(store.last_event().unwrap(), 2);

    save(store, &terminated(&first, 1));
    assert_eq!(store.newest_by_name(&name).unwrap(), Some(terminated(&first, 1)), "the tombstone is found");
    // An older id on purpose: the living one comes first, whatever its age.
    let older = record("web", 0);
    insert(store, &older);
    assert_eq!(store.newest_by_name(&name).unwrap(), Some(older.clone()));
    save(store, &terminated(&older, 2));
    assert_eq!(store.newest_by_name(&name).unwrap(), Some(terminated(&first, 1)), "else the newest");
}

fn an_unknown_sandbox_cannot_be_saved(store: &dyn Store) {
    let ghost = record("ghost", 1);
    let result = store.save_sandbox(&ghost, Some(event(EventKind::Changed, 0)), Durability::Process);
    assert!(matches!(result, Err(StoreError::Missing { id }) if id == ghost.id));
    assert_eq!(store.last_event().unwrap(), 0);
    insert(store, &ghost);
    let again = store.insert_sandbox(
        &SandboxRecord { name: "twin".parse().unwrap(), ..ghost },
        event(EventKind::Creating, 0),
        None,
    );
    assert!(matches!(again, Err(StoreError::Failed { .. })), "an id is never given twice");
}

fn a_key_makes_one_sandbox(store: &dyn Store) {
    let key = IdempotencyKey { key: "k".to_owned(), fingerprint: "body".to_owned() };
    let (first, second) = (record("web", 1), record("web", 2));
    let insert_with = |record: &SandboxRecord, key: &IdempotencyKey| {
        store.insert_sandbox(record, event(EventKind::Creating, 0), Some(key))
    };
    let blocker = record("busy", 9);
    insert(store, &blocker);
    assert!(insert_with(&record("busy", 3), &key).is_err());
    assert_eq!(store.made_before(&key).unwrap(), None);
    assert!(matches!(insert_with(&first, &key).unwrap(), InsertOutcome::Inserted(_)), "a failure uses no key up");
    assert_eq!(insert_with(&second, &key).unwrap(), InsertOutcome::Replayed(first.id.clone()));
    assert_eq!(store.made_before(&key).unwrap(), Some(first.id.clone()));
    let other = IdempotencyKey { fingerprint: "another".to_owned(), ..key.clone() };
    assert!(matches!(store.made_before(&other), Err(StoreError::KeyConflict { key }) if key == "k"));
    assert!(matches!(insert_with(&record("free", 4), &other), Err(StoreError::KeyConflict { key }) if key == "k"));
    save(store, &terminated(&first, 1));
    assert_eq!(insert_with(&second, &key).unwrap(), InsertOutcome::Replayed(first.id.clone()));
    assert_eq!(store.last_event().unwrap(), 2);
}

fn events_are_numbered_without_gaps(store: &dyn Store) {
    assert_eq!(store.last_event().unwrap(), 0);
    assert_eq!(store.events_after(0, 10, None).unwrap(), []);
    let (a, b) = (record("a", 1), record("b", 2));
    insert(store, &a);
    insert(store, &b);
    let mut told = Vec::new();
    for (record, kind, reason) in [(&a, EventKind::Created, None), (&b, EventKind::Crashed, Some("x".to_owned()))] {
        let moment = at(5) + jiff::SignedDuration::from_nanos(1_234);
        let new = crate::NewEvent { reason, at: moment, kind, receipt: None };
        told.extend(store.save_sandbox(&in_phase(record, Phase::Active), Some(new), Durability::Process).unwrap());
    }
    let log = store.events_after(0, 10, None).unwrap();
    assert_eq!(log.iter().map(|event| event.id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(log[2..], told, "what is told live is what is replayed");
    assert_eq!((log[0].state, log[2].state), (Some(State::Creating), Some(State::Active)));
    assert_eq!((&log[3].sandbox, &log[3].name, log[3].kind), (&Some(b.id), &Some(b.name), EventKind::Crashed));
    assert_eq!(log[3].reason.as_deref(), Some("x"));
    assert_eq!(store.events_after(1, 2, None).unwrap(), log[1..3]);
    assert_eq!(store.events_after(1, 10, Some(&a.id)).unwrap(), log[2..3]);
    assert_eq!(store.events_after(u64::MAX, usize::MAX, None).unwrap(), []);
    assert_eq!(store.recent_events(&a.id, 100).unwrap(), store.events_after(0, 100, Some(&a.id)).unwrap());
    assert_eq!(store.recent_events(&a.id, 1).unwrap().last(), store.recent_events(&a.id, 100).unwrap().last());
    assert_eq!(store.recent_events(&a.id, 1).unwrap().len(), 1);
    assert_eq!(store.last_event().unwrap(), 4);
}

fn events_about_the_host_have_no_sandbox(store: &dyn Store) {
    let web = record("web", 1);
    insert(store, &web);
    let logged = store.log_host_event(event(EventKind::DaemonRestarted, 3)).unwrap();
    assert_eq!((logged.id, &logged.sandbox, &logged.name, logged.state), (2, &None, &None, None));
    assert_eq!(store.events_after(1, 10, None).unwrap(), [logged]);
    assert_eq!(store.events_after(1, 10, Some(&web.id)).unwrap(), []);
    assert_eq!(store.recent_events(&web.id, 10).unwrap().len(), 1);
    assert_eq!(store.last_event().unwrap(), 2);
}

fn ids_are_found_by_prefix(store: &dyn Store) {
    let (a, b) = (record("a", 1), record("b", 2));
    insert(store, &b);
    insert(store, &a);
    save(store, &terminated(&b, 1));
    let common = &a.id.as_str()[..12];
    assert_eq!(names(&store.by_id_prefix(common, 10).unwrap()), ["a", "b"]);
    assert_eq!(names(&store.by_id_prefix(common, 1).unwrap()), ["a"]);
    assert_eq!(names(&store.by_id_prefix(b.id.as_str(), 10).unwrap()), ["b"]);
    for none in ["sbx_z", "sbx_%", "sbx_0_", "SBX_", "'"] {
        assert_eq!(store.by_id_prefix(none, 10).unwrap(), [], "{none}");
    }
}

fn terminated_ones_come_in_pages(store: &dyn Store) {
    for number in [4, 1, 3, 2, 5] {
        let one = record(&format!("n{number}"), number);
        insert(store, &one);
        if number != 3 {
            save(store, &terminated(&one, 0));
        }
    }
    let (mut pages, mut cursor): (_, Option<SandboxId>) = (Vec::new(), None);
    loop {
        let page = store.terminated(cursor.as_ref(), 2).unwrap();
        let Some(last) = page.last() else { break };
        cursor = Some(last.id.clone());
        pages.push(names(&page).join(" "));
    }
    assert_eq!(pages, ["n1 n2", "n4 n5"]);
    assert_eq!(names(&store.living().unwrap()), ["n3"]);
}

fn keys_are_found_by_fingerprint(store: &dyn Store) {
    let key = |number: u64, fingerprint: &str| KeyView {
        id: KeyId::from_parts(number, 0),
        name: format!("of {number}"),
        algorithm: "ssh-ed25519".to_owned(),
        fingerprint: fingerprint.to_owned(),
        public_key: "ssh-ed25519 AAAA".to_owned(),
        access: Access { may_destroy: false, ..Access::default() },
        created_at: at(0),
    };
    store.put_key(&key(2, "two")).unwrap();
    store.put_key(&key(1, "one")).unwrap();
    assert!(store.put_key(&key(3, "one")).is_err(), "a key is let in once");
    assert_eq!(store.keys().unwrap(), [key(1, "one"), key(2, "two")]);
    let renamed = KeyView { name: "of somebody else".to_owned(), ..key(2, "two") };
    store.put_key(&renamed).unwrap();
    assert_eq!(store.key_by_fingerprint("two").unwrap(), Some(renamed));
    assert_eq!(store.key_by_fingerprint("three").unwrap(), None);
    assert!(store.delete_key(&key(2, "two").id).unwrap());
    assert!(!store.delete_key(&key(2, "two").id).unwrap());
    assert_eq!(store.key_by_fingerprint("two").unwrap(), None);
}

fn tokens_are_found_by_hash(store: &dyn Store) {
    let token = |number: u8| TokenView {
        id: TokenId::from_parts(u64::from(number), 0),
        name: format!("for {number}"),
        created_at: at(0) + jiff::SignedDuration::from_nanos(i64::from(number)),
        access: Access { at_most: Some(u32::from(number)), may_destroy: number > 1, ..Access::default() },
    };
    store.insert_token(&token(2), &[2; 32]).unwrap();
    store.insert_token(&token(1), &[1; 32]).unwrap();
    assert!(store.insert_token(&token(3), &[1; 32]).is_err(), "a secret is one token's");
    assert_eq!(store.tokens().unwrap(), [token(1), token(2)]);
    assert_eq!(store.token_by_hash(&[2; 32]).unwrap(), Some(token(2)));
    assert_eq!(store.token_by_hash(&[3; 32]).unwrap(), None);
    assert!(store.delete_token(&token(2).id).unwrap());
    assert!(!store.delete_token(&token(2).id).unwrap());
    assert_eq!(store.token_by_hash(&[2; 32]).unwrap(), None);
}

fn sessions_end_with_their_time_or_token(store: &dyn Store) {
    let token = TokenView {
        id: TokenId::from_parts(1, 0),
        name: "page".to_owned(),
        created_at: at(0),
        access: Access::default(),
    };
    store.insert_token(&token, &[1; 32]).unwrap();
    let of_owner = SessionRecord { token: None, expires_at: at(100) };
    let of_token = SessionRecord { token: Some(token.id.clone()), expires_at: at(200) };
    store.insert_session(&of_owner, &[2; 32], at(0)).unwrap();
    store.insert_session(&of_token, &[3; 32], at(50)).unwrap();
    assert!(store.insert_session(&of_owner, &[3; 32], at(50)).is_err(), "a secret is one session's");
    assert_eq!(store.session_by_hash(&[2; 32]).unwrap(), Some(of_owner.clone()));
    assert_eq!(store.session_by_hash(&[3; 32]).unwrap(), Some(of_token));
    store.insert_session(&of_owner, &[4; 32], at(100)).unwrap();
    assert_eq!(store.session_by_hash(&[2; 32]).unwrap(), None, "its time is over");
    assert!(store.delete_session(&[4; 32]).unwrap());
    assert!(!store.delete_session(&[4; 32]).unwrap());
    assert!(store.delete_token(&token.id).unwrap());
    assert_eq!(store.session_by_hash(&[3; 32]).unwrap(), None, "what it came from is gone");
}

fn what_is_old_is_forgotten(store: &dyn Store) {
    let key = |number: u64| IdempotencyKey { key: format!("k{number}"), fingerprint: String::new() };
    // The third event is older than the second: the clock was set back.
    for (number, seconds) in [(1, 10), (2, 30), (3, 20), (4, 40)] {
        let one = record(&format!("n{number}"), number);
        store.insert_sandbox(&one, event(EventKind::Creating, seconds), Some(&key(number))).unwrap();
        if number != 2 {
            save(store, &terminated(&one, seconds));
        }
    }
    let nothing = store.prune(at(0), at(0), at(0)).unwrap();
    assert_eq!(nothing, crate::Pruned::default());

    let pruned = store.prune(at(25), at(35), at(15)).unwrap();
    assert_eq!(pruned, crate::Pruned { events: 1, tombstones: 2, keys: 1 });
    let ids = |store: &dyn Store| store.events_after(0, 10, None).unwrap().iter().map(|e| e.id).collect::<Vec<_>>();
    assert_eq!(ids(store), [2, 3, 4], "no hole in the log");
    assert_eq!(names(&store.terminated(None, 10).unwrap()), ["n4"]);
    assert_eq!(names(&store.living().unwrap()), ["n2"], "the living are never forgotten");
    let again = |number: u64, name: &str, id: u64| {
        store.insert_sandbox(&record(name, id), event(EventKind::Creating, 50), Some(&key(number))).unwrap()
    };
    assert!(matches!(again(3, "n7", 7), InsertOutcome::Replayed(_)));

    assert_eq!(store.prune(at(99), at(0), at(0)).unwrap().events, 3);
    assert_eq!((ids(store), store.last_event().unwrap()), (vec![], 4));
    let InsertOutcome::Inserted(next) = again(1, "n8", 8) else { panic!("the key was forgotten") };
    assert_eq!(next.id, 5, "ids are not given out again");
}

fn writers_do_not_disturb_each_other(store: &Arc<dyn Store>) {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 40;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut one = record(&format!("w{writer}"), writer);
                insert(&**store, &one);
                for write in 1..WRITES {
                    one.generation = write;
                    let durability = if write % 10 == 0 { Durability::Synced } else { Durability::Process };
                    store.save_sandbox(&one, Some(event(EventKind::Changed, 0)), durability).unwrap().unwrap();
                    assert_eq!(store.sandbox(&one.id).unwrap().unwrap().generation, write, "its own write is seen");
                }
            });
        }
        // A follower who asks for what comes after the last it saw must not miss any.
        scope.spawn(|| {
            let mut last = 0;
            while last < WRITERS * WRITES {
                for event in store.events_after(last, 7, None).unwrap() {
                    assert_eq!(event.id, last + 1);
                    last = event.id;
                }
            }
        });
    });
    assert_eq!(store.last_event().unwrap(), WRITERS * WRITES);
    assert!(store.living().unwrap().iter().all(|one| one.generation == WRITES - 1));
}

fn one_of_many_gets_the_name_or_the_key(store: &Arc<dyn Store>) {
    let race = |key: Option<&IdempotencyKey>, name: &str| -> Vec<Result<InsertOutcome, StoreError>> {
        thread::scope(|scope| {
            let runners: Vec<_> = (0..8u64)
                .map(|number| {
                    let one = record(name, number + if key.is_some() { 100 } else { 0 });
                    scope.spawn(move || store.insert_sandbox(&one, event(EventKind::Creating, 0), key))
                })
                .collect();
            runners.into_iter().map(|runner| runner.join().unwrap()).collect()
        })
    };
    let inserted = |outcomes: &[Result<InsertOutcome, StoreError>]| {
        outcomes.iter().filter(|outcome| matches!(outcome, Ok(InsertOutcome::Inserted(_)))).count()
    };
    let by_name = race(None, "web");
    assert_eq!(inserted(&by_name), 1);
    assert!(by_name.iter().flat_map(Result::as_ref).all(|outcome| matches!(outcome, InsertOutcome::Inserted(_))));
    let key = IdempotencyKey { key: "k".to_owned(), fingerprint: "f".to_owned() };
    let by_key = race(Some(&key), "api");
    assert_eq!(inserted(&by_key), 1);
    let winner = store.newest_by_name(&"api".parse().unwrap()).unwrap().unwrap().id;
    for outcome in by_key {
        match outcome.unwrap() {
            InsertOutcome::Inserted(event) => assert_eq!(event.sandbox.as_ref(), Some(&winner)),
            InsertOutcome::Replayed(id) => assert_eq!(id, winner),
        }
    }
}
