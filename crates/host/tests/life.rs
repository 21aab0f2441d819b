//! A host with a real pool, network and store, and an engine that only pretends.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod bench;

use std::collections::BTreeMap;
use std::time::Duration;

use bench::{named, run, wait_for};
use roost_engine::{Engine, FakeEngine, Presence};
use roost_host::{CreateKey, Host, HostError, ListFilter};
use roost_model::{
    CreateSandbox, ErrorCode, EventKind, Level, LimitsRequest, NetworkPolicy, OnTtl, Origin, PatchSandbox, PoolView,
    PutAlarm, PutHold, ServiceSpec, ServiceState, SetPool, State,
};
use roost_store::{SqliteStore, Store};

#[test]
fn a_sandbox_is_made_lives_and_leaves_a_tombstone() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let (view, replayed) = host.create(named("web"), None).await.unwrap();
        assert_eq!((view.state, view.template.as_str(), replayed), (State::Active, "mini", false));
        assert!(bench.data().join("pool/sandboxes").join(view.id.as_str()).exists());

        let taken = host.create(named("web"), None).await.unwrap_err();
        assert_eq!(taken.code(), ErrorCode::NameTaken);
        let similar = host.find("wbe").unwrap_err();
        assert_eq!(similar.hint().as_deref(), Some("did you mean `web`?"));
        assert_eq!(host.find(&view.id.as_str()[..20]).unwrap().id(), &view.id);

        host.find("web").unwrap().delete().await.unwrap();
        assert!(!bench.data().join("pool/sandboxes").join(view.id.as_str()).exists());
        assert_eq!(engine.inspect(&view.id).await.unwrap(), Presence::Absent);
        let Err(HostError::Terminated(gone)) = host.find("web") else { panic!("it is gone") };
        assert_eq!(gone.tombstone.unwrap().cause, "deleted");
        assert!(host.list(&ListFilter { limit: 10, ..ListFilter::default() }).await.unwrap().items.is_empty());
        let all = ListFilter { limit: 10, terminated: true, ..ListFilter::default() };
        assert_eq!(host.list(&all).await.unwrap().items.len(), 1);
        // The name is free again.
        host.create(named("web"), None).await.unwrap();
    });
}

#[test]
fn a_birth_that_fails_leaves_nothing_but_its_reason() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        engine.fail_next_start("no luck");
        let error = host.create(named("web"), None).await.unwrap_err();
        assert!(error.to_string().contains("no luck"), "{error}");
        let Err(HostError::Terminated(gone)) = host.find("web") else { panic!("it never lived") };
        assert_eq!(gone.tombstone.unwrap().cause, "create_failed");
        assert_eq!(std::fs::read_dir(bench.data().join("pool/sandboxes")).unwrap().count(), 0);
        host.create(named("web"), None).await.unwrap();
    });
}

#[test]
fn an_alarm_wakes_what_sleeps_and_leases_end_with_their_sandbox() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let (view, _) = host.create(named("web"), None).await.unwrap();
        let handle = host.find("web").unwrap();
        let wanted = PutHold { reason: Some("build".to_owned()), ..PutHold::default() };
        let (hold, new) = handle.put_hold(None, wanted).await.unwrap();
        assert!(new && handle.holds() == [hold]);
        handle.suspend(Level::Ram).await.unwrap();
        let soon = PutAlarm { at: Some("in 200ms".to_owned()), ..PutAlarm::default() };
        let (alarm, _) = handle.put_alarm(Some("tea"), soon).await.unwrap();
        assert_eq!(handle.next_alarm(), Some(alarm.next_at));
        wait_for(&host, &view, EventKind::Woken).await;
        let events = host.events().after(0, 100, Some(&view.id)).unwrap();
        let woken = events.iter().find(|event| event.kind == EventKind::Woken).unwrap();
        assert_eq!(woken.reason.as_deref(), Some("woken by alarm tea"));
        assert!(woken.at >= alarm.next_at);
        assert!(handle.holds().iter().any(|hold| hold.from == Origin::Alarm));

        let later = PutAlarm { every: Some("@yearly".to_owned()), ..PutAlarm::default() };
        handle.put_alarm(Some("party"), later.clone()).await.unwrap();
        handle.delete().await.unwrap();
        assert_eq!(handle.put_alarm(Some("party"), later).await.unwrap_err().code(), ErrorCode::SandboxTerminated);
        host.leave().await;
        let store = SqliteStore::open(&bench.data().join("roost.db")).unwrap();
        assert!(store.holds().unwrap().is_empty() && store.alarms().unwrap().is_empty());
    });
}

#[test]
fn what_crashes_keeps_its_files_and_a_hundred_wakes_start_it_once() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let (view, _) = host.create(named("web"), None).await.unwrap();
        engine.crash(&view.id);
        wait_for(&host, &view, EventKind::Suspended).await;
        let now = host.find("web").unwrap().view();
        assert_eq!((now.state, now.level), (State::Suspended, Some(Level::Files)));

        let before = engine.starts();
        let handle = host.find("web").unwrap();
        let mut wakes = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let handle = handle.clone();
            wakes.spawn(async move { handle.wake().await.map(drop) });
        }
        for outcome in wakes.join_all().await {
            outcome.unwrap();
        }
        assert_eq!(engine.starts() - before, 1);
        assert_eq!(handle.view().state, State::Active);
    });
}

#[test]
fn a_wake_that_fails_says_why_and_can_be_tried_again() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let (view, _) = host.create(named("web"), None).await.unwrap();
        engine.crash(&view.id);
        wait_for(&host, &view, EventKind::Suspended).await;
        engine.fail_next_start("no memory");
        let handle = host.find("web").unwrap();
        assert!(handle.wake().await.unwrap_err().to_string().contains("no memory"));
        assert_eq!(handle.view().state, State::Suspended);
        handle.wake().await.unwrap();
        assert_eq!(handle.view().state, State::Active);
    });
}

#[test]
fn a_new_daemon_adopts_what_runs_and_wakes_what_does_not() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let (kept, _) = host.create(named("kept"), None).await.unwrap();
        let (run, _) = host.create(CreateSandbox { ephemeral: true, ..named("brief") }, None).await.unwrap();
        let starts = engine.starts();
        host.leave().await;

        // The same world: everything goes on as it was.
        let host = bench.host(&engine).await;
        assert_eq!(host.find("kept").unwrap().view().state, State::Active);
        host.find("kept").unwrap().wake().await.unwrap();
        assert_eq!(engine.starts(), starts);
        host.leave().await;

        // A rebooted world: no process is left, every disk is.
        let rebooted = FakeEngine::default();
        let host = bench.host(&rebooted).await;
        wait_for(&host, &kept, EventKind::Suspended).await;
        let handle = host.find("kept").unwrap();
        assert_eq!(handle.view().level, Some(Level::Files));
        handle.wake().await.unwrap();
        assert_eq!(rebooted.inspect(&kept.id).await.unwrap(), Presence::Running);
        assert!(host.find(run.id.as_str()).is_ok());
    });
}

#[test]
fn time_to_live_ends_it_and_an_ephemeral_one_ends_with_its_processes() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let (short, _) =
            host.create(CreateSandbox { ttl: Some("50ms".parse().unwrap()), ..named("short") }, None).await.unwrap();
        wait_for(&host, &short, EventKind::Terminated).await;
        let Err(HostError::Terminated(gone)) = host.find("short") else { panic!("its time is over") };
        assert_eq!(gone.tombstone.unwrap().cause, "ttl");

        let (brief, _) = host.create(CreateSandbox { ephemeral: true, ..named("brief") }, None).await.unwrap();
        engine.crash(&brief.id);
        wait_for(&host, &brief, EventKind::Terminated).await;
    });
}

#[test]
fn the_same_key_makes_it_once_and_bad_input_makes_nothing() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let key = CreateKey::new("k-1").unwrap();
        let (first, replayed) = host.create(CreateSandbox::default(), Some(&key)).await.unwrap();
        assert!(!replayed);
        let (second, replayed) = host.create(CreateSandbox::default(), Some(&key)).await.unwrap();
        assert!(replayed);
        assert_eq!(first.id, second.id);
        let other = host.create(named("other"), Some(&key)).await.unwrap_err();
        assert_eq!(other.code(), ErrorCode::Conflict);

        let limits = |limits| CreateSandbox { limits: Some(limits), ..CreateSandbox::default() };
        let cases = [
            (named("Not Good"), ErrorCode::InvalidName),
            (CreateSandbox { template: Some("nope".into()), ..named("a") }, ErrorCode::TemplateNotFound),
            (CreateSandbox { engine: Some("warp".into()), ..named("a") }, ErrorCode::EngineUnfit),
            (limits(LimitsRequest { memory: Some(0), ..LimitsRequest::default() }), ErrorCode::LimitInvalid),
            (limits(LimitsRequest { memory: Some(1 << 60), ..LimitsRequest::default() }), ErrorCode::LimitInvalid),
            (CreateSandbox { ttl: Some("0s".parse().unwrap()), ..named("a") }, ErrorCode::BadRequest),
            (CreateSandbox { env: BTreeMap::from([("A=B".into(), "c".into())]), ..named("a") }, ErrorCode::BadRequest),
        ];
        for (wanted, code) in cases {
            assert_eq!(host.create(wanted, None).await.unwrap_err().code(), code);
        }
        assert_eq!(host.count(), 1);
    });
}

#[test]
fn labels_limits_and_time_to_live_can_be_changed() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        host.create(CreateSandbox { labels: BTreeMap::from([("team".into(), "a".into())]), ..named("web") }, None)
            .await
            .unwrap();
        let handle = host.find("web").unwrap();
        let patch = PatchSandbox {
            idle: None,
            labels: Some(BTreeMap::from([("team".into(), None), ("tier".into(), Some("1".into()))])),
            limits: Some(LimitsRequest { memory: Some(64 << 20), ..LimitsRequest::default() }),
            ttl: Some("1h".parse().unwrap()),
            on_ttl: Some(OnTtl::Disk),
            auto_resume: Some(true),
            network: Some(NetworkPolicy { enabled: true }),
        };
        let view = handle.patch(patch).await.unwrap();
        assert_eq!(view.labels, BTreeMap::from([("tier".to_owned(), "1".to_owned())]));
        assert_eq!(view.limits.memory, 64 << 20);
        assert!(view.expires_at.is_some());
        assert_eq!((view.on_ttl, view.auto_resume, view.network.enabled), (OnTtl::Disk, true, true));
        let refused = PatchSandbox {
            limits: Some(LimitsRequest { pids: Some(0), ..LimitsRequest::default() }),
            ..PatchSandbox::default()
        };
        assert_eq!(handle.patch(refused).await.unwrap_err().code(), ErrorCode::LimitInvalid);
        let by_label =
            ListFilter { labels: BTreeMap::from([("tier".into(), "1".into())]), limit: 10, ..ListFilter::default() };
        assert_eq!(host.list(&by_label).await.unwrap().items.len(), 1);
    });
}

#[test]
fn services_of_a_sleeping_sandbox_change_without_waking_it() {
    run(async |bench, engine| {
        let shell = |needs: &[&str]| ServiceSpec {
            shell: Some("serve".into()),
            needs: needs.iter().map(|need| need.parse().unwrap()).collect(),
            ..ServiceSpec::default()
        };
        let host = bench.host(&engine).await;
        let services = BTreeMap::from([("db".parse().unwrap(), shell(&[]))]);
        let (view, _) = host.create(CreateSandbox { services, ..named("web") }, None).await.unwrap();
        engine.crash(&view.id);
        wait_for(&host, &view, EventKind::Suspended).await;
        let starts = engine.starts();
        let handle = host.find("web").unwrap();
        let (app, new) = handle.put_service("app", shell(&["db"])).await.unwrap();
        assert_eq!((app.state, new), (ServiceState::Suspended, true));
        assert!(!handle.put_service("app", shell(&["db"])).await.unwrap().1);
        assert_eq!(handle.stop_service("app").await.unwrap().state, ServiceState::Stopped);
        assert_eq!(handle.put_service("db", shell(&["app"])).await.unwrap_err().code(), ErrorCode::BadRequest);
        assert_eq!(handle.remove_service("db").await.unwrap_err().code(), ErrorCode::Conflict);
        assert_eq!(handle.stop_service("nope").await.unwrap_err().code(), ErrorCode::ServiceNotFound);
        assert!(!handle.start_service_on(80).await.unwrap());
        host.leave().await;

        let host = bench.host(&engine).await;
        let handle = host.find("web").unwrap();
        let all = handle.services().await.unwrap();
        let states: Vec<_> = all.iter().map(|service| (service.name.as_str(), service.state)).collect();
        assert_eq!(states, [("app", ServiceState::Stopped), ("db", ServiceState::Suspended)]);
        handle.remove_service("app").await.unwrap();
        handle.remove_service("db").await.unwrap();
        assert_eq!(handle.services().await.unwrap(), []);
        assert_eq!(engine.starts(), starts);
    });
}

/// Waits until so many wait in the pool of `mini`.
async fn wait_for_pool(host: &Host, ready: u32) -> PoolView {
    let wait = async {
        loop {
            let pool = host.pool("mini", None).await.unwrap();
            if pool.ready == ready && pool.coming == 0 {
                return pool;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the pool fills")
}

#[test]
fn what_waits_in_a_pool_is_seen_by_nobody_and_taken_once() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        assert_eq!(host.set_pool("nope", SetPool::default()).await.unwrap_err().code(), ErrorCode::TemplateNotFound);
        host.set_pool("mini", SetPool { min: 2, max: 2, engine: None }).await.unwrap();
        wait_for_pool(&host, 2).await;
        assert_eq!((host.count(), engine.starts()), (0, 2));
        let all = ListFilter { limit: 10, terminated: true, ..ListFilter::default() };
        assert!(host.list(&all).await.unwrap().items.is_empty());
        assert!(host.events().after(0, 10, None).unwrap().is_empty());
        let disks = || {
            let names = std::fs::read_dir(bench.data().join("pool/sandboxes")).unwrap();
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        let waiting = disks();
        assert!(waiting.iter().all(|id| host.find(id).unwrap_err().code() == ErrorCode::SandboxNotFound));

        // This engine has no guest that could be told of it, so it is started anew; it is the same sandbox all the same.
        let key = CreateKey::new("k").unwrap();
        let (web, _) = host.create(named("web"), Some(&key)).await.unwrap();
        assert!(waiting.contains(&web.id.to_string()));
        assert_eq!((web.state, host.count()), (State::Active, 1));
        let (again, replayed) = host.create(named("web"), Some(&key)).await.unwrap();
        assert_eq!((again.id, replayed), (web.id.clone(), true));
        assert_eq!(host.create(named("web"), None).await.unwrap_err().code(), ErrorCode::NameTaken);
        let kinds: Vec<_> = host.events().after(0, 10, None).unwrap().iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [EventKind::Creating, EventKind::Created]);
        assert_eq!(wait_for_pool(&host, 2).await.taken, 1);

        // A host that needs memory takes theirs first.
        assert_eq!(host.shrink_pools().await, 2);
        assert_eq!(disks(), [web.id.to_string()]);
        host.leave().await;
        // The next daemon knows how many should wait, and makes them.
        let host = bench.host(&engine).await;
        wait_for_pool(&host, 2).await;
        host.leave().await;
        let (starts, host) = (engine.starts(), bench.host(&engine).await);
        wait_for_pool(&host, 2).await;
        assert_eq!(engine.starts(), starts, "adopted");
        engine.crash(&disks().iter().find(|id| **id != web.id.as_str()).unwrap().parse().unwrap());
        host.create(named("other"), None).await.unwrap();
        host.set_pool("mini", SetPool::default()).await.unwrap();
        wait_for_pool(&host, 0).await;
        assert_eq!(host.count(), 2);
        host.leave().await;
    });
}
