//! A host with a real pool, network and store, and an engine that only pretends.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use roost_disk::{Existing, Pool, PoolConfig, Templates, build_mini};
use roost_engine::{Engine, FakeEngine, Presence};
use roost_host::{CreateKey, Host, HostConfig, HostError, ListFilter, Parts};
use roost_model::{
    CreateSandbox, ErrorCode, EventKind, IdlePolicy, Level, Limits, LimitsRequest, PatchSandbox, SandboxView, State,
};
use roost_store::SqliteStore;

/// Folders and names of one test; takes everything down again, also after a panic.
struct Bench {
    folder: tempfile::TempDir,
    tag: String,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("roost-host-").tempdir_in("/var/tmp").unwrap();
        let tag = folder
            .path()
            .to_string_lossy()
            .bytes()
            .fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)) & 0x00ff_ffff);
        Self { folder, tag: format!("{tag:06x}") }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn runtime(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn network(&self) -> roost_net::Config {
        roost_net::Config::new(&self.tag, self.runtime())
    }

    async fn host(&self, engine: &FakeEngine) -> Host {
        for folder in [self.data(), self.runtime()] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let mut config = PoolConfig::new(self.data());
        config.size = Some(512 << 20);
        let templates = Templates::open(&self.data(), &self.runtime()).unwrap();
        if templates.list().unwrap().is_empty() {
            build_mini(&templates, &"mini".parse().unwrap(), Existing::Refuse, &|_| ()).unwrap();
        }
        let limits = Limits { cpus: 2.0, memory: 1 << 30, disk: 512 << 20, pids: 1000 };
        let parts = Parts {
            config: HostConfig {
                data_dir: self.data(),
                instance: self.tag.clone(),
                default_template: "base".to_owned(),
                default_limits: Limits::default(),
                host_limits: limits,
                default_idle: IdlePolicy::default(),
            },
            store: Arc::new(SqliteStore::open(&self.data().join("roost.db")).unwrap()),
            pool: Pool::open(&config).unwrap(),
            templates,
            network: self.network(),
            engines: vec![Arc::new(engine.clone()) as Arc<dyn Engine>],
        };
        Host::open(parts).await.unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let network = roost_net::destroy(&self.network());
        let templates = Templates::unmount_all(&self.runtime());
        let pool = Pool::unmount(&self.data());
        if !std::thread::panicking() {
            network.unwrap();
            templates.unwrap();
            pool.unwrap();
        }
    }
}

/// The runtime, and with it every actor, ends before the bench is taken down.
fn run(test: impl AsyncFnOnce(&Bench, FakeEngine)) {
    let bench = Bench::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(test(&bench, FakeEngine::default()));
}

fn named(name: &str) -> CreateSandbox {
    CreateSandbox { name: Some(name.to_owned()), ..CreateSandbox::default() }
}

/// Waits on the event log until a sandbox has had this event.
async fn wait_for(host: &Host, sandbox: &SandboxView, kind: EventKind) {
    let mut reader = host.events().follow(0, Some(sandbox.id.clone()));
    let wait = async { while reader.next().await.unwrap().kind != kind {} };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the event comes");
}

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
            labels: Some(BTreeMap::from([("team".into(), None), ("tier".into(), Some("1".into()))])),
            limits: Some(LimitsRequest { memory: Some(64 << 20), ..LimitsRequest::default() }),
            ttl: Some("1h".parse().unwrap()),
        };
        let view = handle.patch(patch).await.unwrap();
        assert_eq!(view.labels, BTreeMap::from([("tier".to_owned(), "1".to_owned())]));
        assert_eq!(view.limits.memory, 64 << 20);
        assert!(view.expires_at.is_some());
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
