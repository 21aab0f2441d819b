//! What is done most, turn by turn with the peers that are installed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use roost_client::Client;
use roost_model::Level;

use crate::figures::Series;
use crate::peers::{self, Runc, Runsc};
use crate::podman::Podman;
use crate::scene::Scene;

/// Rounds before those that count.
const WARM_UP: usize = 2;
/// How many wait in the pool.
const WAITING: u32 = 2;

/// The peers of this host, on the root of the template.
struct Peers {
    root: PathBuf,
    runc: Option<Runc>,
    runsc: Option<Runsc>,
    bubblewrap: bool,
    podman: Option<Podman>,
}

impl Peers {
    /// Those that work here; none for a daemon on another host, or of another user, which has no root that a peer could run on.
    async fn find(scene: &Scene<'_>) -> Result<Option<Self>> {
        let Ok(root) = template_root(scene.client, scene.template).await else { return Ok(None) };
        let runc = if peers::installed("runc") { Some(Runc::new(&root)?) } else { None };
        let own = Path::new(&scene.client.info().await?.data_dir).join("runsc/runsc");
        let program = if own.exists() { own } else { "runsc".into() };
        // Its bundle is made with runc's tool.
        let has_runsc = runc.is_some() && peers::installed(&program);
        let runsc = if has_runsc { Some(Runsc::new(program, &root)?) } else { None };
        let bubblewrap = peers::installed("bwrap") && works(scene, "bwrap", peers::bubblewrap(&root));
        let podman = podman(scene, Podman::once).await?;
        Ok(Some(Self { root, runc, runsc, bubblewrap, podman }))
    }

    /// One turn of each.
    fn turn(&mut self) -> Result<Vec<(&'static str, Duration)>> {
        let mut turn = Vec::new();
        if let Some(runc) = &mut self.runc {
            turn.push(("runc run", runc.run()?));
            turn.push(("runc exec", runc.exec()?));
        }
        if let Some(runsc) = &mut self.runsc {
            turn.push(("runsc run", runsc.run()?.0));
        }
        if self.bubblewrap {
            turn.push(("bwrap", peers::bubblewrap(&self.root)?));
        }
        if let Some(podman) = &self.podman {
            turn.push(("podman run", podman.once()?));
        }
        Ok(turn)
    }
}

/// Whether a peer's trial went well; one that is installed may still not work on this host.
fn works(scene: &Scene<'_>, peer: &str, trial: Result<Duration>) -> bool {
    if let Err(error) = &trial {
        scene.tell(&format!("{peer} does not work here and is left out: {error:#}"));
    }
    trial.is_ok()
}

/// podman, if what is asked of it works here; a sandbox of the template has to be there.
pub(crate) async fn podman(scene: &Scene<'_>, trial: impl Fn(&Podman) -> Result<Duration>) -> Result<Option<Podman>> {
    let Ok(root) = template_root(scene.client, scene.template).await else { return Ok(None) };
    if !peers::installed("podman") {
        return Ok(None);
    }
    let podman = Podman::new(&root, &Path::new(&scene.client.info().await?.data_dir).join("criu"))?;
    Ok(works(scene, "podman", trial(&podman)).then_some(podman))
}

/// Create with and without a pool, exec, ram wake, disk wake, delete.
pub(crate) async fn measure(scene: &Scene<'_>, rounds: usize) -> Result<Vec<Series>> {
    scene.tell("create, exec, sleep, wake and delete, with peers");
    let lasting = scene.name("lasting");
    scene.create(&lasting, 0).await?;
    let mut peers = Peers::find(scene).await?;
    let mut all: Vec<Series> = Vec::new();
    let turns = async {
        for round in 0..WARM_UP + rounds {
            scene.pool_is_full().await?;
            let pooled = scene.name(&format!("pooled-{round}"));
            let mut turn = vec![("create from a pool", scene.create_and_ask(&pooled).await?)];
            scene.pool_is_full().await?;
            turn.extend(peers.as_mut().map(Peers::turn).transpose()?.unwrap_or_default());
            turn.push(("exec", scene.ask(&lasting).await?));
            scene.client.suspend_sandbox(&lasting, Level::Ram).await?;
            turn.push(("wake from ram and exec", scene.ask(&lasting).await?));
            let began = Instant::now();
            scene.client.delete_sandbox(&pooled).await?;
            turn.push(("delete", began.elapsed()));
            if round >= WARM_UP {
                record(&mut all, turn);
            }
        }
        Ok(())
    };
    scene.with_pool(WAITING, turns).await?;
    // Nothing waits now.
    for round in 0..WARM_UP + rounds {
        let plain = scene.name(&format!("plain-{round}"));
        let took = scene.create_and_ask(&plain).await?;
        let peer = peers.as_mut().and_then(|peers| peers.runc.as_mut()).map(Runc::run).transpose()?;
        scene.client.delete_sandbox(&plain).await?;
        if round >= WARM_UP {
            record(&mut all, [("create, no pool", took)]);
            record(&mut all, peer.map(|peer| ("runc run", peer)));
        }
    }
    scene.client.delete_sandbox(&lasting).await?;
    Ok(all)
}

fn record(all: &mut Vec<Series>, turn: impl IntoIterator<Item = (&'static str, Duration)>) {
    for (what, took) in turn {
        match all.iter_mut().find(|series| series.what == what) {
            Some(series) => series.add(took),
            None => {
                let mut series = Series::new(what);
                series.add(took);
                all.push(series);
            }
        }
    }
}

/// Where the daemon has the template mounted, for the peers to run on: a sandbox of it keeps it there.
pub async fn template_root(client: &Client, template: &str) -> Result<PathBuf> {
    let (data, digest) = (client.info().await?.data_dir, client.template(template).await?.digest);
    let digest = digest.rsplit(':').next().unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("failed to read the mounts")?;
    let found = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let place = place.split(' ').nth(4)?;
        let ours = place.starts_with(&data) || place.starts_with("/run/roost");
        (kind.starts_with("erofs ") && ours && place.ends_with(digest)).then(|| place.into())
    });
    found.with_context(|| format!("template {template} of the daemon at {data} is not mounted"))
}
