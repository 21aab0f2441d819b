//! What is written is read, by this build and by those before and after it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;
use roost_lifecycle::Phase;
use roost_model::{
    CheckpointId, EngineKind, EventKind, IdlePolicy, Level, Limits, Name, NetworkPolicy, OnTtl, PortAccess, PortRule,
    Signal, Span, Spent, TemplateId, Tombstone,
};

use super::samples::{checkpoint, event, record};
use crate::{CheckpointRecord, Durability, NotSaved, SandboxRecord, SqliteStore, Store};

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![Just(Level::Ram), Just(Level::Disk), Just(Level::Files)]
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![
        Just(Phase::Creating),
        Just(Phase::Active),
        (level(), any::<bool>()).prop_map(|(level, wake_after)| Phase::Suspending { level, wake_after }),
        level().prop_map(Phase::Suspended),
        any::<bool>().prop_map(|wake_after| Phase::Deepening { wake_after }),
        level().prop_map(Phase::Resuming),
        Just(Phase::Restoring),
        any::<bool>().prop_map(|wake_after| Phase::Moving { to: EngineKind::Gvisor, wake_after }),
        Just(Phase::Terminating),
        Just(Phase::Releasing),
        Just(Phase::Terminated),
    ]
}

fn moment() -> impl Strategy<Value = Timestamp> {
    any::<i64>().prop_map(|nanoseconds| Timestamp::from_nanosecond(nanoseconds.into()).unwrap())
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        Just(Span::NEVER),
        (0..u64::MAX / 2).prop_map(|milliseconds| std::time::Duration::from_millis(milliseconds).into())
    ]
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(any::<String>(), any::<String>(), 0..4)
}

fn tombstone() -> impl Strategy<Value = Tombstone> {
    (any::<String>(), any::<String>(), moment()).prop_map(|(cause, message, at)| Tombstone { cause, message, at })
}

fn limits() -> impl Strategy<Value = Limits> {
    (0.01..4096.0, any::<u64>(), any::<u64>(), any::<u64>(), any::<Option<u64>>())
        .prop_map(|(cpus, memory, disk, pids, images)| Limits { cpus, memory, disk, pids, images })
}

fn any_record() -> impl Strategy<Value = SandboxRecord> {
    let standing = (any::<u32>().prop_map(Name::from_random), phase(), moment(), moment(), any::<[bool; 3]>());
    let policy = (limits(), (span(), level(), span()), option::of(span()), option::of(moment()), texts(), texts());
    let rest = (any::<u64>(), any::<[String; 5]>(), option::of(any::<u32>()), any::<u32>(), option::of(tombstone()));
    (standing, policy, rest).prop_map(|(standing, policy, rest)| {
        let (name, phase, state_since, created_at, [ephemeral, bound_to_run, enabled]) = standing;
        let (limits, (after, to, deepen_after), ttl, expires_at, labels, env) = policy;
        let (generation, [template, template_digest, key, user, reason], slot, uid_range, tombstone) = rest;
        SandboxRecord {
            name,
            phase,
            state_since,
            created_at,
            template,
            template_digest,
            ephemeral,
            bound_to_run,
            made_by: ephemeral.then(|| user.clone()),
            pool: ephemeral.then(|| TemplateId::from_parts(generation >> 16, 1)),
            generation,
            parent: if ephemeral { None } else { record("x", 0).parent },
            limits,
            idle: IdlePolicy {
                after,
                to,
                deepen_after,
                ignore: if enabled { Signal::ALL.to_vec() } else { Vec::new() },
            },
            ttl,
            expires_at,
            on_ttl: if ephemeral { OnTtl::Disk } else { OnTtl::Files },
            stays: bound_to_run,
            auto_resume: enabled,
            port_access: if ephemeral { PortAccess::Public } else { PortAccess::Private },
            labels,
            env,
            network: NetworkPolicy { enabled },
            key,
            slot,
            uid_range,
            workdir: bound_to_run.then(|| user.clone()),
            user,
            image: bound_to_run.then(|| reason.clone()),
            checkpoint: enabled.then(|| CheckpointId::from_parts(generation >> 16, generation.into())),
            asleep_since: ephemeral.then_some(state_since),
            quiet_since: enabled.then_some(created_at),
            not_saved: ephemeral.then(|| NotSaved { why: reason.clone(), at: state_since }),
            spent: Spent { active_ms: generation, wakes: generation >> 3, ..Spent::default() },
            boot: generation.rotate_left(7),
            booted_at: bound_to_run.then_some(state_since),
            ports: vec![PortRule { port: 80, access: PortAccess::Public, links: generation }; usize::from(enabled)],
            reason: enabled.then_some(reason),
            tombstone,
            ..record("x", 1)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]
    #[test]
    fn any_record_comes_back_as_it_went(inserted in any_record(), saved in any_record()) {
        let store = SqliteStore::in_memory().unwrap();
        store.insert_sandbox(&inserted, event(EventKind::Creating, 0), None).unwrap();
        prop_assert!(store.sandbox(&inserted.id).unwrap() == Some(inserted));
        store.save_sandbox(&saved, None, Durability::Process).unwrap();
        prop_assert!(store.newest_by_name(&saved.name).unwrap() == Some(saved.clone()));
        prop_assert_eq!(store.living().unwrap().len(), usize::from(saved.phase != Phase::Terminated));
    }
}

#[test]
fn secrets_stay_out_of_debug_output() {
    for text in [format!("{:?}", record("web", 1)), format!("{:?}", checkpoint(&record("web", 1), 1))] {
        assert!(text.contains("web"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

#[test]
fn a_checkpoint_is_read_whatever_a_later_build_has_added() {
    let one = checkpoint(&record("web", 1), 1);
    let mut stored = serde_json::to_value(&one).unwrap();
    for part in [
        "",
        "/bytes",
        "/processes/0",
        "/not_kept/0",
        "/origin",
        "/origin/services",
        "/origin/services/by_name/web/spec",
    ] {
        stored.pointer_mut(part).unwrap()["invented_later"] = "x".into();
    }
    assert_eq!(serde_json::from_value::<CheckpointRecord>(stored).unwrap(), one);
}

#[test]
fn a_checkpoint_is_shown_with_what_its_sandbox_was() {
    let one = checkpoint(&SandboxRecord { generation: 5, ..record("web", 1) }, 1);
    let view = one.view();
    assert_eq!((&view.id, &view.sandbox, view.sandbox_name.as_str()), (&one.id, &one.origin.id, "web"));
    assert_eq!((view.generation, view.template.as_str(), view.bytes), (5, "mini", one.bytes));
    assert!(!serde_json::to_string(&view).unwrap().contains("secret"));
}

/// A record as the first format wrote it, kept for ever.
const FIRST: &str = r#"{
    "id": "sbx_01m36e2wc1000000000000000z", "name": "web", "phase": "suspending:files:wake",
    "state_since": "2027-01-15T08:00:00.000000001Z", "created_at": "2027-01-15T08:00:00Z", "engine": "native",
    "template": "base", "template_digest": "d1", "ephemeral": true, "bound_to_run": true, "generation": 3,
    "parent": null, "limits": {"cpus": 0.5, "memory": 1, "disk": 2, "pids": 3},
    "idle": {"after": "1m30s", "to": "disk", "deepen_after": "never"}, "ttl": "1h", "expires_at": "2027-01-15T09:00:00Z",
    "labels": {"a": "b"}, "env": {"C": "D"}, "network": {"enabled": false}, "key": "k", "slot": 7, "uid_range": 9,
    "user": "user", "workdir": "/w", "reason": "r",
    "tombstone": {"cause": "ttl", "message": "m", "at": "2027-01-15T09:00:00Z"}
}"#;

#[test]
fn records_of_the_first_format_are_read() {
    let first: SandboxRecord = serde_json::from_str(FIRST).unwrap();
    assert_eq!(first.phase, Phase::Suspending { level: Level::Files, wake_after: true });
    assert_eq!(first.idle.deepen_after, Span::NEVER);
    assert_eq!((first.limits.cpus, first.slot, first.network.enabled), (0.5, Some(7), false));
    assert_eq!((&first.image, &first.checkpoint, first.asleep_since, first.boot), (&None, &None, None, 0));
    let rewritten = serde_json::to_value(&first).unwrap();
    for (field, value) in serde_json::from_str::<serde_json::Map<_, _>>(FIRST).unwrap() {
        assert_eq!(rewritten[&field], value, "{field}");
    }
}

#[test]
fn unknown_fields_are_ignored_and_absent_ones_have_defaults() {
    let mut stored: serde_json::Value = serde_json::from_str(FIRST).unwrap();
    for part in ["", "/limits", "/idle", "/network", "/tombstone"] {
        stored.pointer_mut(part).unwrap()["invented_later"] = "x".into();
    }
    for (part, absent) in [("", "labels"), ("", "slot"), ("/limits", "pids"), ("/idle", "to"), ("/network", "enabled")]
    {
        stored.pointer_mut(part).unwrap().as_object_mut().unwrap().remove(absent);
    }
    let read: SandboxRecord = serde_json::from_value(stored).unwrap();
    assert_eq!((read.labels.len(), read.slot), (0, None));
    assert_eq!((read.limits.pids, read.limits.memory), (Limits::default().pids, 1));
    assert_eq!((read.idle.to, read.network.enabled), (Level::Ram, true));
}
