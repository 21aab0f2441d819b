//! The part of the demo in which a running program sleeps, goes back in time and is forked.

use anyhow::bail;
use roost_client::ClientError;
use roost_model::{CreateCheckpoint, ErrorCode, Fork, Level, Restore, StartExec};

use super::{Stage, timed};
use crate::receipt::show_ms;
use crate::units::{show_size, show_time};

/// Forks made at once.
const FORKS: u32 = 3;
/// Counts in its memory and shows the number in a file, which is whole at any moment.
const COUNTER: &str = "n=0; while :; do n=$((n+1)); echo $n > /tmp/.count; mv /tmp/.count /tmp/count; sleep 0.1; done";
const COUNT: &str = "until test -s /tmp/count; do sleep 0.05; done; cat /tmp/count";

/// What was done, or nothing if the engine cannot do it on this host.
fn unless_unfit<T>(answer: Result<T, ClientError>) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.code() == Some(ErrorCode::EngineUnfit) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Stage<'_> {
    /// Suspends, restores and forks a sandbox with a program that counts, as far as the engine can.
    pub(super) async fn remember(&mut self, name: &str) -> anyhow::Result<()> {
        self.title("It remembers")?;
        let counter = StartExec { shell: Some(COUNTER.to_owned()), ..StartExec::default() };
        self.client.start_exec(name, &counter).await?;
        let count = self.sh(name, COUNT).await?;
        self.note("a program counts", &format!("it is at {}", count.trim()))?;
        for level in [Level::Ram, Level::Disk] {
            self.sleep_and_wake(name, level).await?;
        }
        self.go_back(name).await?;
        self.fork(name).await
    }

    async fn sleep_and_wake(&self, name: &str, level: Level) -> anyhow::Result<()> {
        let what = format!("suspend to {level}");
        let suspend = async { unless_unfit(self.client.suspend_sandbox(name, level).await) };
        let (Some(receipt), took) = timed(suspend).await? else {
            return self.note(&what, "this engine cannot do it here");
        };
        let size = receipt.bytes.get("memory").map_or_else(String::new, |bytes| format!(", {}", show_size(*bytes)));
        self.step(&what, took, &format!("kept {}{size}", receipt.kept.join(", ").replace('_', " ")))?;
        let (count, took) = timed(self.sh(name, COUNT)).await?;
        self.step("wake by a command", took, &format!("the same program is at {}", count.trim()))
    }

    async fn go_back(&mut self, name: &str) -> anyhow::Result<()> {
        let wanted = CreateCheckpoint { comment: Some("demo".to_owned()), files_only: false };
        let checkpoint = async { unless_unfit(self.client.create_checkpoint(name, &wanted).await) };
        let (made, took) = match timed(checkpoint).await? {
            (Some(made), took) => (made, took),
            (None, _) => {
                let wanted = CreateCheckpoint { files_only: true, ..wanted };
                timed(async { Ok(self.client.create_checkpoint(name, &wanted).await?) }).await?
            }
        };
        let paused = made
            .receipt
            .paused_ms
            .map_or_else(|| "without a pause".to_owned(), |ms| format!("it stood still for {}", show_ms(ms)));
        self.step("checkpoint", took, &paused)?;
        let wreck = StartExec {
            shell: Some("rm -rf /etc /home".to_owned()),
            user: Some("root".to_owned()),
            ..StartExec::default()
        };
        let (_, took) = timed(async { Ok(self.client.run_exec(name, &wreck).await?) }).await?;
        self.step("rm -rf /etc /home", took, "as root, inside")?;
        let restore = Restore { checkpoint: made.checkpoint.id };
        let (_, took) = timed(async { Ok(self.client.restore_sandbox(name, &restore).await?) }).await?;
        self.step("restore", took, "what it replaced is a checkpoint too")?;
        let there = if made.checkpoint.memory { COUNT } else { "echo files only" };
        let (found, took) = timed(self.sh(name, &format!("test -s /etc/passwd && {{ {there}; }}"))).await?;
        self.step("as before", took, &format!("/etc is there, the program: {}", found.trim()))
    }

    async fn fork(&mut self, name: &str) -> anyhow::Result<()> {
        let what = format!("fork {FORKS}");
        let wanted = Fork { count: Some(FORKS), ..Fork::default() };
        let fork = async { unless_unfit(self.client.fork_sandbox(name, &wanted).await) };
        let (Some(forks), took) = timed(fork).await? else {
            return self.note(&what, "this engine cannot do it here");
        };
        let ids: Vec<String> = forks.iter().filter_map(|fork| Some(fork.sandbox.as_ref()?.id.to_string())).collect();
        // All that were made are ours to remove, before a failure is told.
        self.made.extend(ids.iter().cloned());
        if let Some(error) = forks.iter().find_map(|fork| fork.error.as_ref()) {
            bail!("a fork was not made: {}", error.message);
        }
        self.step(&what, took, &format!("{} each", show_time(took / FORKS)))?;
        let (answers, took) = timed(self.all_answer(&ids)).await?;
        self.step("a command in each", took, &format!("{answers} answered"))?;
        let mut counts = Vec::new();
        for id in &ids {
            counts.push(self.sh(id, COUNT).await?.trim().to_owned());
        }
        self.note("the program in each", &format!("at {}", counts.join(", ")))
    }

    /// Removes the checkpoints of what the demo made; they would outlive it.
    pub(super) async fn forget(&self) {
        for sandbox in &self.made {
            for checkpoint in self.client.list_checkpoints(sandbox).await.unwrap_or_default() {
                // Nothing more can be done for one that stays, and the demo's own failure matters more.
                drop(self.client.delete_checkpoint(sandbox, checkpoint.id.as_str()).await);
            }
        }
    }
}
