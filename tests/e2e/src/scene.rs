//! A sandbox with something to lose, for tests that end parts of Roost while they work on it.

use anyhow::{Context, Result, ensure};
use roost_model::{CheckpointView, CreateCheckpoint, CreateSandbox};

use crate::{Daemon, Sandbox, Witness, no_orphans};

/// A daemon with one sandbox, a witness in it and a file.
#[derive(Debug)]
pub struct Scene {
    /// The daemon, with a data folder of its own.
    pub daemon: Daemon,
    /// The sandbox `box`.
    pub sandbox: Sandbox,
    /// What runs in it.
    pub witness: Witness,
}

impl Scene {
    /// Starts all of it.
    pub async fn new() -> Result<Self> {
        let daemon = Daemon::start().await?;
        let sandbox = daemon.sandbox("box").await?;
        sandbox.sh_ok("echo precious > /root/file").await?;
        let witness = Witness::start(&sandbox).await?;
        Ok(Self { daemon, sandbox, witness })
    }

    /// Runs `operation` on a daemon that dies at `point`, and starts the daemon again.
    pub async fn dies<T>(&mut self, point: &str, operation: impl AsyncFnOnce(&Daemon) -> Result<T>) -> Result<()> {
        self.daemon.stop().await?;
        self.daemon.start_again_failing_at(point).await?;
        let outcome = operation(&self.daemon).await;
        ensure!(outcome.is_err(), "`{point}` was not passed: is this binary built with the feature `fail-points`?");
        self.daemon.wait_until_killed().await?;
        self.daemon.start_again().await.with_context(|| format!("after `{point}`"))
    }

    /// The sandbox is as before or as after, and nothing is left over.
    pub async fn is_well(&self) -> Result<()> {
        self.witness.goes_on(&self.sandbox).await?;
        let file = self.sandbox.sh_ok("cat /root/file").await?;
        ensure!(file == "precious", "the file holds {file}");
        no_orphans(&self.daemon).await
    }

    /// Makes a checkpoint of the sandbox.
    pub async fn checkpoint(&self) -> Result<CheckpointView> {
        let made = self.daemon.client().create_checkpoint("box", &CreateCheckpoint::default()).await?;
        Ok(made.checkpoint)
    }

    /// Starts a sandbox from each checkpoint there is, and removes all of them but `keep`.
    pub async fn checkpoints_are_good(&self, keep: Option<&CheckpointView>) -> Result<usize> {
        let client = self.daemon.client();
        let checkpoints = client.list_checkpoints("box").await?;
        for checkpoint in &checkpoints {
            let from_checkpoint = Some(checkpoint.id.clone());
            let request = CreateSandbox { from_checkpoint, ..CreateSandbox::default() };
            let child = self.daemon.sandbox_with(request).await?;
            self.witness.goes_on(&child).await?;
            child.delete().await?;
            if keep != Some(checkpoint) && keep.map(|keep| &keep.id) != Some(&checkpoint.id) {
                client.delete_checkpoint("box", checkpoint.id.as_str()).await?;
            }
        }
        Ok(checkpoints.len())
    }
}
