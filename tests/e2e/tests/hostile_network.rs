//! Attacks on the wall between sandboxes and the host's network, on a host's network of the test's own.
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use roost_e2e::{Daemon, Options, PrivateHost, Sandbox, Server};
use roost_model::{EngineKind, Fork, Level};

const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon on a host of the test's own, with servers wherever a sandbox may try.
struct Scene {
    /// Dropped first, because it is taken down in the network of the host.
    daemon: Daemon,
    host: PrivateHost,
    on_host: Server,
    on_internet: Server,
}

impl Scene {
    async fn new(engine: EngineKind) -> Result<Self> {
        let host = PrivateHost::new()?;
        let (on_host, on_internet) = (host.serve_on_host()?, host.serve_on_internet()?);
        let options = Options { engine: Some(engine), network: Some(host.path()), ..Options::default() };
        Ok(Self { daemon: Daemon::with(options).await?, host, on_host, on_internet })
    }

    /// Checks that a sandbox reaches the server beyond the gateway, and nothing else.
    async fn only_the_internet_is_reached(&self, sandbox: &Sandbox) -> Result<()> {
        let own = [PrivateHost::ADDRESS, PrivateHost::LINK_ADDRESS, PrivateHost::GATEWAY, PrivateHost::NEIGHBOUR];
        let targets = own.into_iter().chain(PrivateHost::METADATA).chain([PrivateHost::SERVER]);
        let tries: String = targets.map(|target| format!("({}) & ", connect(target))).collect();
        sandbox.sh_ok(&format!("{tries} wait")).await?;
        let (host, internet) = (self.on_host.take_reached(), self.on_internet.take_reached());
        ensure!(host.is_empty(), "the host was reached at {host:?}");
        ensure!(internet == [PrivateHost::SERVER], "the internet was reached at {internet:?}");
        Ok(())
    }

    /// Waits until the wall has dropped some more packets.
    async fn wall_is_hit(&self) -> Result<()> {
        let dropped = || self.host.dropped_by_wall(self.daemon.data_dir());
        let (before, deadline) = (dropped()?, Instant::now() + PATIENCE);
        while dropped()? < before + 10 {
            ensure!(Instant::now() < deadline, "no attack meets the wall");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn connect(target: Ipv4Addr) -> String {
    format!("nc -w 2 {target} {} </dev/null >/dev/null 2>&1", PrivateHost::PORT)
}

async fn host_and_metadata_stay_out_of_reach(engine: EngineKind) -> Result<()> {
    let scene = Scene::new(engine).await?;
    let sandbox = scene.daemon.sandbox("box").await?;
    scene.only_the_internet_is_reached(&sandbox).await?;
    let children = sandbox.fork(&Fork::default()).await?;
    for (child, _) in &children {
        scene.only_the_internet_is_reached(child).await?;
    }
    sandbox.suspend(Level::Disk).await?;
    sandbox.wake().await?;
    scene.only_the_internet_is_reached(&sandbox).await
}

async fn flush_of_the_hosts_rules_opens_nothing(engine: EngineKind) -> Result<()> {
    let mut scene = Scene::new(engine).await?;
    let sandbox = scene.daemon.sandbox("box").await?;
    let attempt = connect(PrivateHost::ADDRESS);
    sandbox.spawn(&format!("for n in 1 2 3 4; do (while :; do {attempt}; done) & done; wait")).await?;
    for _ in 0..5 {
        scene.host.nft("flush ruleset")?;
        sandbox.becomes_true(&connect(PrivateHost::SERVER)).await?;
    }
    // Without a daemon nothing brings the rules back, and the wall stands all the same.
    scene.daemon.kill9()?;
    scene.host.nft("flush ruleset")?;
    scene.wall_is_hit().await?;
    scene.daemon.start_again().await?;
    let host = scene.on_host.take_reached();
    ensure!(host.is_empty(), "the host was reached at {host:?}");
    sandbox.becomes_true(&connect(PrivateHost::SERVER)).await
}

macro_rules! on_each_engine {
    ($($attack:ident),+ $(,)?) => {
        mod native {
            $(#[tokio::test]
            async fn $attack() -> anyhow::Result<()> {
                super::$attack(super::EngineKind::Native).await
            })+
        }
        mod gvisor {
            $(#[tokio::test]
            async fn $attack() -> anyhow::Result<()> {
                super::$attack(super::EngineKind::Gvisor).await
            })+
        }
    };
}

on_each_engine!(host_and_metadata_stay_out_of_reach, flush_of_the_hosts_rules_opens_nothing);
