//! Pools: what waits is seen by nobody, what is taken is as if it had been made, and a crash leaves no halves.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{EventsFilter, SandboxFilter};
use roost_e2e::{Daemon, Sandbox};
use roost_model::{
    Capability, CreateCheckpoint, CreateSandbox, ErrorCode, EventKind, ImportTemplate, LimitsRequest, NetworkPolicy,
    PoolView, RunRequest, SetPool, StartExec, State,
};

const PATIENCE: Duration = Duration::from_secs(20);

async fn set(daemon: &Daemon, template: &str, min: u32, max: u32) -> Result<PoolView> {
    Ok(daemon.client().set_pool(template, &SetPool { min, max, engine: None }).await?)
}

/// Waits until a pool is as a test wants it.
async fn becomes(daemon: &Daemon, template: &str, wanted: impl Fn(&PoolView) -> bool) -> Result<PoolView> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pool = daemon.client().pool(template).await?;
        if wanted(&pool) {
            return Ok(pool);
        }
        ensure!(Instant::now() < deadline, "the pool stays {pool:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn full(daemon: &Daemon, template: &str, ready: u32) -> Result<PoolView> {
    becomes(daemon, template, |pool| pool.ready == ready && pool.coming == 0).await
}

/// Waits until so many sandboxes, seen or not, have a disk; surplus ones go in the background.
async fn disks_become(daemon: &Daemon, wanted: usize) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let count = std::fs::read_dir(daemon.data_dir().join("pool/sandboxes"))?.count();
        if count == wanted {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{count} disks, not {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn named(name: &str) -> CreateSandbox {
    CreateSandbox { name: Some(name.to_owned()), ..CreateSandbox::default() }
}

#[tokio::test]
async fn what_waits_is_seen_by_nobody_and_what_is_taken_is_as_asked_for() -> Result<()> {
    let daemon = Daemon::start().await?;
    let client = daemon.client();
    set(&daemon, "mini", 2, 4).await?;
    full(&daemon, "mini", 2).await?;
    let everything = SandboxFilter { terminated: true, ..SandboxFilter::default() };
    assert!(client.all_sandboxes(&everything).await?.is_empty());
    assert!(client.list_events(&EventsFilter::default()).await?.is_empty());
    disks_become(&daemon, 2).await?;

    let request = CreateSandbox {
        env: BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]),
        labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
        limits: Some(LimitsRequest { memory: Some(64 << 20), pids: Some(100), ..LimitsRequest::default() }),
        network: Some(NetworkPolicy { enabled: false }),
        ..named("web")
    };
    let web = daemon.sandbox_with(request).await?;
    assert_eq!(becomes(&daemon, "mini", |pool| pool.taken == 1).await?.missed, 0);
    let view = client.sandbox("web").await?;
    assert_eq!((view.state, view.generation, view.limits.memory, view.limits.pids), (State::Active, 1, 64 << 20, 100));
    assert_eq!((view.labels["team"].as_str(), view.network.enabled), ("a", false));
    let inside =
        web.sh_ok("echo $GREETING $(hostname) $(cat /run/roost/name /run/roost/id) $(cat /etc/hostname)").await?;
    assert_eq!(inside, format!("hello web web {} web", web.id()));
    ensure!(web.sh_ok("cat /etc/hosts").await?.contains("\tweb\t"), "it does not find itself by its name");
    // Memory is charged to its own limit: a process that wants more is killed.
    web.refuses("dd if=/dev/zero of=/dev/null bs=200M count=1").await?;
    web.refuses("wget -T 2 -q -O - http://1.1.1.1/").await?;
    let kinds: Vec<_> =
        client.list_events(&EventsFilter::default()).await?.into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Creating, EventKind::Created]);

    // One of its own, whatever is done to it.
    web.sh_ok("echo kept > /root/file").await?;
    web.suspend(roost_model::Level::Files).await?;
    assert_eq!(web.sh_ok("echo $GREETING $(hostname) $(cat /root/file)").await?, "hello web kept");
    full(&daemon, "mini", 2).await?;
    web.delete().await?;
    assert_eq!(client.all_sandboxes(&everything).await?.len(), 1, "its tombstone alone");
    Ok(())
}

#[tokio::test]
async fn member_without_capabilities_is_not_taken_for_a_sandbox_with_them() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    set(&daemon, "mini", 1, 1).await?;
    full(&daemon, "mini", 1).await?;
    let with = |name: &str| CreateSandbox { capabilities: Some([Capability::NetRaw].into()), ..named(name) };
    // On an engine with a kernel of its own the capabilities change nothing, and any member fits.
    let own_kernel = daemon.can("kernels of their own", |engine| engine.own_kernel).await?;
    let lab = daemon.sandbox_with(with("lab")).await?;
    assert_eq!(daemon.client().sandbox("lab").await?.capabilities, [Capability::NetRaw].into());
    assert_eq!(daemon.client().pool("mini").await?.taken, u64::from(own_kernel));
    lab.answers().await?;
    full(&daemon, "mini", 1).await?;
    // A daemon with another default replaces the members of the one before.
    daemon.set_environment(vec![("ROOST_CAPABILITIES_DEFAULT".to_owned(), "net-raw".to_owned())]);
    daemon.crash_and_restart().await?;
    full(&daemon, "mini", 1).await?;
    let bound = daemon.sandbox("usual").await?.sh_ok("awk '/CapBnd/ {print $2}' /proc/self/status").await?;
    ensure!(u64::from_str_radix(&bound, 16)? & (1 << 13) != 0, "{bound}");
    assert_eq!(becomes(&daemon, "mini", |pool| pool.taken == 1).await?.missed, 0);
    Ok(())
}

#[tokio::test]
async fn the_size_follows_demand_within_its_bounds() -> Result<()> {
    let daemon = Daemon::start().await?;
    set(&daemon, "mini", 1, 3).await?;
    full(&daemon, "mini", 1).await?;
    for number in 0..5 {
        daemon.sandbox(&format!("box-{number}")).await?;
    }
    let pool = full(&daemon, "mini", 3).await?;
    assert_eq!((pool.target, pool.taken + pool.missed), (3, 5));
    // An emptied pool gives everything back.
    set(&daemon, "mini", 0, 0).await?;
    becomes(&daemon, "mini", |pool| pool.ready == 0 && pool.coming == 0).await?;
    daemon.client().delete_sandbox("box-0").await?;
    disks_become(&daemon, 4).await?;
    assert!(daemon.roost_ok(&["pool", "ls", "-q"]).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn one_request_takes_one_whatever_name_or_key_it_has() -> Result<()> {
    let daemon = Daemon::start().await?;
    let client = daemon.client();
    set(&daemon, "mini", 2, 2).await?;
    full(&daemon, "mini", 2).await?;
    daemon.sandbox("web").await?;
    full(&daemon, "mini", 2).await?;
    let taken = client.create_sandbox(&named("web")).await.expect_err("the name is taken");
    assert_eq!(taken.code(), Some(ErrorCode::NameTaken));
    assert_eq!(client.pool("mini").await?.ready, 2, "what was refused took none");
    let first = client.create_sandbox_once(&named("api"), "key-1").await?;
    full(&daemon, "mini", 2).await?;
    let again = client.create_sandbox_once(&named("api"), "key-1").await?;
    assert_eq!((first.id, client.pool("mini").await?.ready), (again.id, 2));
    // Runs take one too, and end it.
    let request = RunRequest {
        sandbox: CreateSandbox::default(),
        exec: StartExec { argv: vec!["hostname".into()], ..StartExec::default() },
    };
    let output = client.run(&request).await?;
    ensure!(!output.stdout.starts_with("pool-"), "it still has the name it waited under: {}", output.stdout);
    assert_eq!(client.pool("mini").await?.taken, 3);
    // Many at once: each gets one of its own, whether it waited or not.
    let mut births = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = client.clone();
        births.spawn(async move { client.create_sandbox(&CreateSandbox::default()).await });
    }
    let mut ids = std::collections::BTreeSet::new();
    while let Some(born) = births.join_next().await {
        ids.insert(born??.id);
    }
    assert_eq!(ids.len(), 8);
    Ok(())
}

#[tokio::test]
async fn a_new_template_of_the_name_replaces_what_waits() -> Result<()> {
    let daemon = Daemon::start().await?;
    let client = daemon.client();
    let source = daemon.sandbox("source").await?;
    set(&daemon, "mini", 1, 1).await?;
    full(&daemon, "mini", 1).await?;
    source.sh_ok("echo new > /root/edition").await?;
    let files = CreateCheckpoint { files_only: true, ..CreateCheckpoint::default() };
    let checkpoint = client.create_checkpoint("source", &files).await?.checkpoint.id;
    let promote = ImportTemplate {
        name: "mini".to_owned(),
        promote: Some(checkpoint),
        replace: true,
        ..ImportTemplate::default()
    };
    client.make_template(&promote).await?.finish().await?;
    let box_1 = daemon.sandbox("box-1").await?;
    assert_eq!(box_1.sh_ok("cat /root/edition").await?, "new");
    full(&daemon, "mini", 1).await?;
    let box_2 = daemon.sandbox("box-2").await?;
    assert_eq!(box_2.sh_ok("cat /root/edition; hostname").await?, "new\nbox-2");
    assert_eq!(client.pool("mini").await?.taken, 1);
    Ok(())
}

#[tokio::test]
async fn what_waits_survives_the_daemon_and_not_the_host() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    set(&daemon, "mini", 2, 2).await?;
    full(&daemon, "mini", 2).await?;
    daemon.crash_and_restart().await?;
    full(&daemon, "mini", 2).await?;
    disks_become(&daemon, 2).await?;
    daemon.sandbox("web").await?.answers().await?;
    assert_eq!(daemon.client().pool("mini").await?.taken, 1);
    full(&daemon, "mini", 2).await?;
    daemon.reboot().await?;
    full(&daemon, "mini", 2).await?;
    let web = Sandbox::find(daemon.client(), "web").await?;
    web.answers().await?;
    // What waited before the reboot is gone.
    disks_become(&daemon, 3).await?;
    Ok(())
}

#[tokio::test]
async fn a_crash_leaves_one_that_waits_or_the_takers_own() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    set(&daemon, "mini", 1, 1).await?;
    for point in ["pool-stored", "pool-born", "take-stored", "take-configured", "record-stored:2"] {
        daemon.stop().await?;
        daemon.start_again_failing_at(point).await?;
        // Makes and takes until the point is passed; the request that dies is answered by the next daemon.
        let killed = async {
            let mut number = 0;
            loop {
                number += 1;
                let request = named(&format!("box-{number}"));
                if daemon.client().create_sandbox_once(&request, &format!("{point}-{number}")).await.is_err() {
                    return number;
                }
                if daemon.client().delete_sandbox(&format!("box-{number}")).await.is_err() {
                    return 0;
                }
            }
        };
        let number =
            tokio::time::timeout(PATIENCE, killed).await.with_context(|| format!("`{point}` was not passed"))?;
        daemon.wait_until_killed().await?;
        daemon.start_again().await?;
        full(&daemon, "mini", 1).await.with_context(|| format!("after `{point}`"))?;
        if number > 0 {
            let (name, key) = (format!("box-{number}"), format!("{point}-{number}"));
            daemon
                .client()
                .create_sandbox_once(&named(&name), &key)
                .await
                .with_context(|| format!("after `{point}`"))?;
            let found = Sandbox::find(daemon.client(), &name).await?;
            assert_eq!(
                found.sh_ok("hostname; cat /run/roost/name").await?,
                format!("{name}\n{name}"),
                "after `{point}`"
            );
            found.delete().await?;
        }
        full(&daemon, "mini", 1).await?;
        let living = daemon.client().all_sandboxes(&SandboxFilter::default()).await?;
        for sandbox in living {
            daemon.client().delete_sandbox(sandbox.id.as_str()).await?;
        }
        disks_become(&daemon, 1).await.with_context(|| format!("after `{point}`"))?;
    }
    Ok(())
}

#[tokio::test]
async fn bad_pools_are_refused_in_words() -> Result<()> {
    let daemon = Daemon::start().await?;
    let unknown = daemon.roost(&["pool", "set", "nope", "--max", "1"]).output().await?;
    assert_eq!(unknown.status.code(), Some(125));
    let text = String::from_utf8_lossy(&unknown.stderr);
    ensure!(text.contains("no template named `nope`") && text.contains("there is `mini`"), "{text}");
    let upside_down = set(&daemon, "mini", 3, 1).await.expect_err("more than the most").to_string();
    ensure!(upside_down.contains("at least 3"), "{upside_down}");
    set(&daemon, "mini", 0, 1001).await.expect_err("too large");
    assert!(daemon.client().list_pools().await?.is_empty());
    Ok(())
}
