use std::time::Duration;

use roost_store::SqliteStore;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn owner(number: u64) -> SandboxId {
    SandboxId::from_parts(number, 0)
}

fn name(text: &str) -> Option<Name> {
    Some(text.parse().unwrap())
}

fn leases(store: &Arc<dyn Store>) -> Leases {
    Leases::open(store.clone(), &[owner(1), owner(2)], Timestamp::now()).unwrap()
}

fn store() -> Arc<dyn Store> {
    Arc::new(SqliteStore::in_memory().unwrap())
}

fn lasting(seconds: u64) -> PutHold {
    PutHold { length: Span::seconds(seconds), reason: None }
}

fn every(text: &str) -> PutAlarm {
    PutAlarm { every: Some(text.to_owned()), ..PutAlarm::default() }
}

fn once(text: &str) -> PutAlarm {
    PutAlarm { at: Some(text.to_owned()), ..PutAlarm::default() }
}

fn code(outcome: Result<impl std::fmt::Debug, HostError>) -> roost_model::ErrorCode {
    outcome.unwrap_err().code()
}

#[test]
fn a_hold_is_renewed_by_name_and_vanishes_when_it_is_over() {
    let store = store();
    let leases = leases(&store);
    let (first, new) = leases.put_hold(&owner(1), name("a"), lasting(60), Origin::Outside).unwrap();
    let (again, new_again) = leases.put_hold(&owner(1), name("a"), lasting(600), Origin::Outside).unwrap();
    assert!(new && !new_again && again.expires_at > first.expires_at);
    assert_eq!(again.created_at, first.created_at);
    let (other, _) = leases.put_hold(&owner(1), None, lasting(60), Origin::Inside).unwrap();
    assert_eq!(other.id.as_str(), "hold-1");

    let now = Timestamp::now();
    let later = now + SignedDuration::from_secs(120);
    assert_eq!(leases.book().holds(&owner(1), now).len(), 2);
    assert_eq!(leases.book().holds(&owner(1), later), std::slice::from_ref(&again));
    // The next daemon finds what is not over and forgets the rest.
    let next = Leases::open(store.clone(), &[owner(1)], later).unwrap();
    assert_eq!(next.book().holds(&owner(1), later), [again]);
    assert_eq!(store.holds().unwrap().len(), 1);
    assert!(next.release(&owner(1), &name("a").unwrap()).unwrap());
    assert!(!next.release(&owner(1), &name("a").unwrap()).unwrap());
    assert!(store.holds().unwrap().is_empty());
}

#[test]
fn there_are_limits_and_the_inside_has_half_of_them() {
    use roost_model::ErrorCode as E;
    let leases = leases(&store());
    for _ in 0..MOST_FROM_INSIDE {
        leases.put_hold(&owner(1), None, lasting(60), Origin::Inside).unwrap();
    }
    assert_eq!(code(leases.put_hold(&owner(1), None, lasting(60), Origin::Inside)), E::LimitExceeded);
    for _ in MOST_FROM_INSIDE..MOST {
        leases.put_hold(&owner(1), None, lasting(60), Origin::Outside).unwrap();
    }
    assert_eq!(code(leases.put_hold(&owner(1), None, lasting(60), Origin::Outside)), E::LimitExceeded);
    // Renewing needs no room, and another sandbox has its own.
    leases.put_hold(&owner(1), name("hold-1"), lasting(60), Origin::Outside).unwrap();
    leases.put_hold(&owner(2), None, lasting(60), Origin::Outside).unwrap();
    // What is over makes room.
    let held = leases.book().holds(&owner(2), Timestamp::now()).remove(0);
    leases.book().put_hold(&owner(2), Hold { expires_at: Timestamp::UNIX_EPOCH, ..held });
    assert_eq!(leases.put_hold(&owner(2), None, lasting(60), Origin::Outside).unwrap().0.id.as_str(), "hold-1");

    leases.put_hold(&owner(2), name("theirs"), lasting(60), Origin::Outside).unwrap();
    assert_eq!(code(leases.put_hold(&owner(2), name("theirs"), lasting(60), Origin::Inside)), E::Forbidden);
    for wrong in [PutHold { length: Span::NEVER, reason: None }, lasting(0), lasting(30 * 86_400 + 1)] {
        assert_eq!(code(leases.put_hold(&owner(2), None, wrong, Origin::Outside)), E::BadRequest);
    }
    let long = PutHold { reason: Some("x".repeat(201)), ..lasting(1) };
    assert_eq!(code(leases.put_hold(&owner(2), None, long, Origin::Outside)), E::BadRequest);

    for _ in 0..MOST {
        leases.put_alarm(&owner(2), None, every("@daily"), Origin::Outside).unwrap();
    }
    assert_eq!(code(leases.put_alarm(&owner(2), None, every("@daily"), Origin::Outside)), E::LimitExceeded);
    assert_eq!(code(leases.put_alarm(&owner(1), name("crontab"), every("@daily"), Origin::Outside)), E::BadRequest);
    for wrong in [PutAlarm::default(), once("soon"), every("* *"), once("2001-01-01T00:00:00Z")] {
        assert_eq!(code(leases.put_alarm(&owner(1), None, wrong, Origin::Outside)), E::BadRequest);
    }
}

#[test]
fn alarms_go_off_in_order_once_each_and_come_again() {
    let store = store();
    let leases = leases(&store);
    let (soon, _) = leases.put_alarm(&owner(1), name("soon"), once("in 1h"), Origin::Outside).unwrap();
    let (later, _) = leases.put_alarm(&owner(2), name("later"), every("0 0 * * *"), Origin::Inside).unwrap();
    let first = soon.next_at.min(later.next_at);
    assert_eq!(leases.next_due(), Some(first));
    assert!(leases.take_due(first - SignedDuration::from_secs(1)).is_empty());
    let all = leases.take_due(first + SignedDuration::from_hours(48));
    assert_eq!(all.len(), 2);
    assert!(all[0].alarm.next_at <= all[1].alarm.next_at);
    assert_eq!((leases.next_due(), leases.take_due(Timestamp::MAX).len()), (None, 0), "they are going off");
    for due in &all {
        leases.went_off(due, Ok(())).unwrap();
    }
    // The one that comes once is gone, the other one has its next time.
    assert!(leases.book().alarms(&owner(1)).is_empty());
    let again = &leases.book().alarms(&owner(2))[0];
    assert!(again.last_at.is_some() && again.failure.is_none());
    assert_eq!(leases.next_due(), Some(again.next_at));
    assert_eq!(store.alarms().unwrap(), [(owner(2), again.clone())]);
}

#[test]
fn a_failed_wake_is_tried_again_and_a_replaced_alarm_is_left_alone() {
    let leases = leases(&store());
    leases.put_alarm(&owner(1), name("a"), once("in 1h"), Origin::Outside).unwrap();
    let due = leases.take_due(Timestamp::MAX).remove(0);
    leases.went_off(&due, Err("no room".to_owned())).unwrap();
    let again = leases.book().alarms(&owner(1)).remove(0);
    assert_eq!(again.failure.as_deref(), Some("no room"));
    let wait = again.next_at.duration_since(Timestamp::now());
    assert!(wait > SignedDuration::from_secs(50) && wait <= RETRY, "{wait}");

    let due = leases.take_due(Timestamp::MAX).remove(0);
    leases.put_alarm(&owner(1), name("a"), once("in 2h"), Origin::Outside).unwrap();
    leases.went_off(&due, Ok(())).unwrap();
    assert_eq!(leases.book().alarms(&owner(1)).len(), 1);
    assert_eq!(leases.take_due(Timestamp::MAX).len(), 1);
}

#[test]
fn what_was_missed_goes_off_once_at_the_next_start() {
    let store = store();
    let before = leases(&store);
    before.put_alarm(&owner(1), name("once"), once("in 1m"), Origin::Outside).unwrap();
    before.put_alarm(&owner(1), name("often"), every("* * * * *"), Origin::Outside).unwrap();
    let after = Timestamp::now() + SignedDuration::from_hours(3);
    let next = Leases::open(store.clone(), &[owner(1)], after).unwrap();
    let missed: Vec<_> = next.take_due(after).into_iter().map(|due| due.alarm.id.to_string()).collect();
    assert_eq!(missed.len(), 2, "{missed:?}");
    // A sandbox that is gone has no alarms.
    let nobody = Leases::open(store.clone(), &[], after).unwrap();
    assert_eq!(nobody.next_due(), None);
    assert!(store.alarms().unwrap().is_empty());
}

#[test]
fn a_clock_that_is_set_back_brings_the_next_time_nearer() {
    let leases = leases(&store());
    let (alarm, _) = leases.put_alarm(&owner(1), name("a"), every("*/10 * * * *"), Origin::Outside).unwrap();
    let (fixed, _) = leases.put_alarm(&owner(1), name("b"), once("in 10d"), Origin::Outside).unwrap();
    let back = alarm.next_at - SignedDuration::from_hours(5) - SignedDuration::from_secs(30);
    leases.clock_was_set(back);
    assert_eq!(leases.next_due(), Some(alarm.next_at - SignedDuration::from_hours(5)));
    assert_eq!(leases.book().alarm(&owner(1), &fixed.id), Some(fixed));
    // Set forward, what was passed over is due.
    leases.clock_was_set(alarm.next_at + SignedDuration::from_hours(1));
    assert_eq!(leases.take_due(alarm.next_at + SignedDuration::from_hours(1)).len(), 1);
}

#[test]
fn the_job_of_a_crontab_is_replaced_and_dropped() {
    let store = store();
    let leases = leases(&store);
    let next = at("2030-01-01T00:00:00Z");
    leases.set_crontab(&owner(1), Some((next, "a".to_owned()))).unwrap();
    leases.set_crontab(&owner(1), Some((next + Duration::from_secs(60), "b".to_owned()))).unwrap();
    assert_eq!(leases.next_due(), Some(next + Duration::from_secs(60)));
    assert_eq!(store.alarms().unwrap().len(), 1);
    leases.set_crontab(&owner(1), None).unwrap();
    assert_eq!((leases.next_due(), store.alarms().unwrap().len()), (None, 0));
}

#[test]
fn an_alarm_that_goes_off_keeps_its_sandbox_awake_for_a_moment() {
    let leases = leases(&store());
    leases.put_alarm(&owner(1), name("a"), once("in 1h"), Origin::Outside).unwrap();
    let due = leases.take_due(Timestamp::MAX).remove(0);
    for (woken, length) in [(false, LONGEST_WAKE), (true, GRACE)] {
        leases.grace(&due, woken);
        let now = Timestamp::now();
        let held = leases.book().holds_and_grace(&owner(1), now);
        assert_eq!((held.len(), held[0].from), (1, Origin::Alarm));
        let left = held[0].expires_at.duration_since(now);
        assert!(left <= length && left > length - SignedDuration::from_secs(2), "{left}");
        // It is nobody's to count or to renew.
        assert!(leases.book().holds(&owner(1), now).is_empty());
    }
}
