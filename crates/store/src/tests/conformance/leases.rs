//! Holds and alarms.

use std::sync::Arc;

use roost_model::{Alarm, Hold, Origin, SandboxId};

use super::super::samples::at;
use crate::Store;

pub(super) fn check(empty: &mut impl FnMut() -> Arc<dyn Store>) {
    leases_are_replaced_by_name_and_forgotten_with_their_sandbox(&*empty());
}

fn hold(id: &str, second: i64) -> Hold {
    Hold {
        id: id.parse().unwrap(),
        reason: Some("build".to_owned()),
        created_at: at(1),
        expires_at: at(second),
        from: Origin::Inside,
    }
}

fn alarm(id: &str, second: i64) -> Alarm {
    Alarm {
        id: id.parse().unwrap(),
        next_at: at(second),
        every: Some("*/5 * * * *".to_owned()),
        tz: "UTC".to_owned(),
        reason: None,
        created_at: at(1),
        last_at: None,
        failure: None,
        from: Origin::Outside,
    }
}

fn leases_are_replaced_by_name_and_forgotten_with_their_sandbox(store: &dyn Store) {
    let (first, second) = (SandboxId::from_parts(1, 1), SandboxId::from_parts(2, 2));
    assert_eq!((store.holds().unwrap(), store.alarms().unwrap()), (vec![], vec![]));
    for owner in [&first, &second] {
        store.put_hold(owner, &hold("a", 10)).unwrap();
        store.put_alarm(owner, &alarm("a", 10)).unwrap();
    }
    store.put_hold(&first, &hold("b", 20)).unwrap();
    store.put_hold(&first, &hold("a", 30)).unwrap();
    store.put_alarm(&first, &alarm("a", 30)).unwrap();
    let holds = [(first.clone(), hold("a", 30)), (first.clone(), hold("b", 20)), (second.clone(), hold("a", 10))];
    assert_eq!(store.holds().unwrap(), holds);
    assert_eq!(store.alarms().unwrap(), [(first.clone(), alarm("a", 30)), (second.clone(), alarm("a", 10))]);

    let name = |text: &str| text.parse().unwrap();
    assert!(store.delete_hold(&first, &name("b")).unwrap());
    assert!(!store.delete_hold(&first, &name("b")).unwrap());
    assert!(store.delete_alarm(&second, &name("a")).unwrap());
    assert!(!store.delete_alarm(&second, &name("none")).unwrap());
    store.forget_leases(&first).unwrap();
    assert_eq!(store.holds().unwrap(), [(second, hold("a", 10))]);
    assert_eq!(store.alarms().unwrap(), []);
}
