//! What dies meanwhile: the daemon, and CRIU at its work.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use roost_e2e::{Daemon, Seed, criu_at_work};
use tokio::sync::{Mutex, watch};

use crate::tally::Tally;

/// How long CRIU is looked out for before something else is done.
const HUNT: Duration = Duration::from_secs(2);

/// Fewer than there are sandboxes, so that some are refused.
const MOST_AWAKE: &str = "9";
/// Enough for all that are awake, asleep in RAM or wait in a pool.
const SLOTS: &str = "100";
/// Fewer than may be awake.
const FEW_SLOTS: &str = "6";

/// How much memory a daemon believes the host to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Plenty,
    /// Whatever sleeps in RAM goes to disk.
    Short,
    /// Nothing is started or woken from disk.
    AtItsEnd,
}

/// The environment of a daemon with as many networks as anybody needs.
pub(crate) fn settings(memory: Memory) -> Vec<(String, String)> {
    settings_with(memory, SLOTS)
}

fn settings_with(memory: Memory, slots: &str) -> Vec<(String, String)> {
    let (low, critical) = match memory {
        Memory::Plenty => ("2%", "1%"),
        Memory::Short => ("99%", "1%"),
        Memory::AtItsEnd => ("99%", "98%"),
    };
    let settings = [
        ("MEMORY_MAX_ACTIVE", MOST_AWAKE),
        ("MEMORY_LOW", low),
        ("MEMORY_CRITICAL", critical),
        ("NETWORK_SLOTS", slots),
    ];
    settings.map(|(name, value)| (format!("ROOST_{name}"), value.to_owned())).into()
}

/// The killer of daemons and tools.
#[derive(Debug)]
pub(crate) struct Fire {
    random: Seed,
    daemon: Arc<Mutex<Daemon>>,
    tally: Arc<Tally>,
}

impl Fire {
    pub(crate) fn new(seed: u64, daemon: Arc<Mutex<Daemon>>, tally: Arc<Tally>) -> Self {
        Self { random: Seed::new(seed ^ 0xf12e), daemon, tally }
    }

    /// Kills until it is stopped; a daemon runs when this returns.
    pub(crate) async fn burn(mut self, mut stopped: watch::Receiver<bool>) -> Result<()> {
        loop {
            // The random moment is the test.
            let pause = Duration::from_millis(300 + self.random.below(3500));
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
            if self.random.below(2) == 0 {
                self.kill_daemon().await.context("after a kill of the daemon")?;
            } else {
                self.kill_criu().await;
            }
        }
    }

    async fn kill_daemon(&mut self) -> Result<()> {
        let mut daemon = self.daemon.lock().await;
        daemon.kill9()?;
        self.tally.count("daemon killed");
        let memory = match self.random.below(8) {
            0 => Memory::Short,
            1 => Memory::AtItsEnd,
            _ => Memory::Plenty,
        };
        let slots = if self.random.below(4) == 0 { FEW_SLOTS } else { SLOTS };
        daemon.set_environment(settings_with(memory, slots));
        tokio::time::sleep(Duration::from_millis(self.random.below(300))).await;
        daemon.start_again().await
    }

    async fn kill_criu(&mut self) {
        let daemon = self.daemon.lock().await;
        let deadline = Instant::now() + HUNT;
        // Somewhere in its work, not always at its start.
        let patience = self.random.below(40);
        while Instant::now() < deadline {
            if let Some(pid) = criu_at_work(&daemon).first().copied() {
                tokio::time::sleep(Duration::from_millis(patience)).await;
                if criu_at_work(&daemon).contains(&pid) {
                    // It may wait to be told what to save: nothing changes between the look and its end.
                    signal(pid, "STOP");
                    // Before the kill: whoever meets its end has to be known by then.
                    self.tally.criu_was_killed(sandbox_saved_by(pid));
                    kill(pid);
                }
                return;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }
}

/// The sandbox that a CRIU saves, by the control group that it was told to freeze; none as long as it waits to be told.
fn sandbox_saved_by(criu: u32) -> Option<String> {
    let options = fs::read_to_string(format!("/proc/{criu}/root/run/options")).ok()?;
    let group = options.lines().find_map(|line| line.strip_prefix("freeze-cgroup "))?;
    Some(Path::new(group).file_name()?.to_string_lossy().into_owned())
}

/// Kills a process; one that is gone already is no matter.
pub(crate) fn kill(pid: u32) {
    signal(pid, "KILL");
}

fn signal(pid: u32, name: &str) {
    let _status = Command::new("kill").args(["-s", name, &pid.to_string()]).output();
}
