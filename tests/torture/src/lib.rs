//! Random life under fire, and a model that says what must have come of it.
//!
//! Several clients do random things with sandboxes of their own, while the daemon, CRIU, guests and gVisor's kernels are killed
//! with `kill -9`, the pool is filled to its last byte, memory and networks run out and fewer sandboxes may be awake than there are.
//! Each client keeps a model of its sandboxes: every file, the hash of a block of memory that only a process inside knows, every kept
//! moment with both.
//! Whatever is read must be what the model says, and whatever is refused must be refused for a reason that the fire explains.
//!
//! The operations of each client follow from the seed alone; when something dies follows from the seed and the clock.
#![forbid(unsafe_code)]

mod blame;
mod client;
mod fire;
mod inside;
mod kernel;
mod model;
mod tally;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{Client, SandboxFilter};
use roost_e2e::{Daemon, Options, leftovers, no_orphans};
use tokio::sync::{Mutex, watch};

use crate::client::TortureClient;
use crate::fire::{Fire, Memory, settings};
pub use crate::kernel::Objects;
use crate::tally::Tally;

const CLIENTS: u64 = 4;
const LET_GO: Duration = Duration::from_secs(30);
/// Small enough to be filled in a moment.
const POOL: &str = "1g";
const LARGER_POOL: &str = "2g";

/// How a run is set up.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// What follows from it is the same each time, as far as the clock allows.
    pub seed: u64,
    /// How long the fire lasts; checks come after it.
    pub time: Duration,
}

impl Plan {
    /// `TORTURE_SEED`, or the one given, or one from the clock; `TORTURE_TIME` in seconds, or the time given.
    pub fn from_env(time: Duration, seed: Option<u64>) -> Result<Self> {
        let number = |name: &str| match std::env::var(name) {
            Ok(text) => text.parse::<u64>().map(Some).with_context(|| format!("{name} is not a number: `{text}`")),
            Err(_) => Ok(None),
        };
        let clock = || {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            u64::from(since.subsec_micros())
        };
        let time = number("TORTURE_TIME")?.map_or(time, Duration::from_secs);
        Ok(Self { seed: number("TORTURE_SEED")?.or(seed).unwrap_or_else(clock), time })
    }
}

/// Runs a plan; says what was done, or everything that was not as it must be.
pub async fn torture(plan: Plan) -> Result<String> {
    let environment = settings(Memory::Plenty);
    let options = Options { pool_size: Some(POOL.to_owned()), environment, ..Options::default() };
    let daemon = Daemon::with(options).await?;
    let (instance, data_dir) = (daemon.instance().await?, daemon.data_dir().to_owned());
    // The first one mounts its template, which stays.
    daemon.sandbox("first").await?.delete().await?;
    let start = Objects::of(&daemon).await?;
    let api = daemon.client();
    let gvisor = data_dir.join("runsc").exists();
    let daemon = Arc::new(Mutex::new(daemon));
    let tally = Arc::new(Tally::default());
    let (stop, stopped) = watch::channel(false);

    let fire = Fire::new(plan.seed, daemon.clone(), tally.clone());
    let burning = tokio::spawn(fire.burn(stopped.clone()));
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let mut client = TortureClient::new(plan.seed, number, api.clone(), instance.clone(), gvisor, tally.clone());
        let stopped = stopped.clone();
        clients.spawn(async move {
            let outcome = client.work(stopped).await;
            (client, outcome)
        });
    }
    // When time is up, or one has found something, all of them stop.
    let (mut done, mut violations) = (Vec::new(), Vec::new());
    let time_is_up = tokio::time::sleep(plan.time);
    tokio::pin!(time_is_up);
    loop {
        tokio::select! {
            () = &mut time_is_up, if !*stop.borrow() => {}
            ended = clients.join_next() => {
                let Some(ended) = ended else { break };
                let (client, outcome) = ended.context("a client panicked")?;
                violations.extend(outcome.err().map(|error| format!("{error:#}")));
                done.push(client);
            }
        }
        stop.send_replace(true);
    }
    burning.await.context("the fire panicked")??;

    let mut daemon = Arc::into_inner(daemon).context("somebody still has the daemon")?.into_inner();
    daemon.set_environment(settings(Memory::Plenty));
    // As somebody would whose pool is full: all that it holds is there when it has room again.
    daemon.set_pool_size(LARGER_POOL);
    daemon.crash_and_restart().await?;
    // Those of all clients together are more than may be awake.
    for client in &done {
        client.make_place().await;
    }
    for mut client in done {
        if let Err(error) = client.check_all().await {
            violations.push(format!("{error:#}"));
        }
    }
    if violations.is_empty() {
        let ended = async {
            remove_checkpoints(&api).await?;
            no_orphans(&daemon).await?;
            start.is_reached_again(&daemon).await?;
            daemon.take_down()?;
            // The kernel lets go of a loop device in its own time.
            let deadline = Instant::now() + LET_GO;
            while let left = leftovers(&instance, &data_dir)
                && !left.is_empty()
            {
                ensure!(Instant::now() < deadline, "left on the host: {left:#?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        violations.extend(ended.await.err().map(|error: anyhow::Error| format!("{error:#}")));
    }
    let told = format!("seed {}: {}", plan.seed, tally.text());
    ensure!(
        violations.is_empty(),
        "{told}\n{} violations (again with TORTURE_SEED={}):\n{}",
        violations.len(),
        plan.seed,
        violations.join("\n")
    );
    Ok(format!("{told}; no violation"))
}

/// Removes what outlives its sandboxes.
async fn remove_checkpoints(api: &Client) -> Result<()> {
    let everything = SandboxFilter { terminated: true, ..SandboxFilter::default() };
    for view in api.all_sandboxes(&everything).await? {
        let id = view.id.as_str();
        for checkpoint in api.list_checkpoints(id).await? {
            api.delete_checkpoint(id, checkpoint.id.as_str()).await?;
        }
    }
    Ok(())
}
