//! A sandbox as a test handles it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{Client, EventsFilter, Upload, WriteOptions};
use roost_model::{
    CheckpointId, CreateCheckpoint, CreateSandbox, Event, EventKind, ExecOutput, ExecView, FileStat, Fork, Level,
    Receipt, Restore, SandboxView, StartExec, State,
};

/// A sandbox that does not run `echo` within this time is not healthy.
const HEALTHY: Duration = Duration::from_secs(10);
/// What has not come true by then will not.
const PATIENCE: Duration = Duration::from_secs(20);
/// What comes about by itself may take longer: alarms are for whole minutes.
const EVENT_PATIENCE: Duration = Duration::from_secs(150);

/// A sandbox with short words for what tests do all the time.
#[derive(Debug, Clone)]
pub struct Sandbox {
    client: Client,
    view: SandboxView,
}

impl Sandbox {
    /// Makes one.
    pub(crate) async fn create(client: Client, request: CreateSandbox) -> Result<Self> {
        let view = client.create_sandbox(&request).await.with_context(|| format!("failed to create {request:?}"))?;
        Ok(Self { client, view })
    }

    /// One that was made by other means.
    pub fn of(client: Client, view: SandboxView) -> Self {
        Self { client, view }
    }

    /// One that is there already.
    pub async fn find(client: Client, name: &str) -> Result<Self, roost_client::ClientError> {
        let view = client.sandbox(name).await?;
        Ok(Self { client, view })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.view.name.as_str()
    }

    /// Its id.
    pub fn id(&self) -> &str {
        self.view.id.as_str()
    }

    /// The client it was made with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a line of shell to its end.
    pub async fn sh(&self, line: &str) -> Result<ExecOutput> {
        self.run(&StartExec { shell: Some(line.to_owned()), ..StartExec::default() }).await
    }

    /// Runs a line of shell that must succeed; returns what it printed, without the last line break.
    pub async fn sh_ok(&self, line: &str) -> Result<String> {
        let output = self.sh(line).await?;
        ensure!(output.exit_code == 0, "`{line}` ended with {}: {}{}", output.exit_code, output.stdout, output.stderr);
        Ok(output.stdout.trim_end_matches('\n').to_owned())
    }

    /// Runs a line of shell as root that must succeed; returns what it printed, without the last line break.
    pub async fn root_ok(&self, line: &str) -> Result<String> {
        let request = StartExec { shell: Some(line.to_owned()), user: Some("root".to_owned()), ..StartExec::default() };
        let output = self.run(&request).await?;
        ensure!(output.exit_code == 0, "`{line}` ended with {}: {}{}", output.exit_code, output.stdout, output.stderr);
        Ok(output.stdout.trim_end_matches('\n').to_owned())
    }

    /// Asks again until a line of shell succeeds.
    pub async fn becomes_true(&self, line: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.sh(line).await?.exit_code != 0 {
            ensure!(Instant::now() < deadline, "`{line}` never came true in `{}`", self.name());
        }
        Ok(())
    }

    /// Runs a line of shell that must fail.
    pub async fn refuses(&self, line: &str) -> Result<ExecOutput> {
        let output = self.sh(line).await?;
        ensure!(output.exit_code != 0, "`{line}` was not refused: {}{}", output.stdout, output.stderr);
        Ok(output)
    }

    /// Runs a command to its end.
    pub async fn run(&self, request: &StartExec) -> Result<ExecOutput> {
        let outcome = self.client.run_exec(self.name(), request).await;
        outcome.with_context(|| format!("failed to run {request:?} in `{}`", self.name()))
    }

    /// Starts a line of shell and does not wait for it.
    pub async fn spawn(&self, line: &str) -> Result<ExecView> {
        let request = StartExec { shell: Some(line.to_owned()), ..StartExec::default() };
        let outcome = self.client.start_exec(self.name(), &request).await;
        outcome.with_context(|| format!("failed to start `{line}` in `{}`", self.name()))
    }

    /// Writes a file.
    pub async fn write(&self, path: &str, content: &str) -> Result<FileStat, roost_client::ClientError> {
        let content = Upload::bytes(content.as_bytes().to_vec());
        self.client.write_file(self.name(), path, content, &WriteOptions::default()).await
    }

    /// Reads a file.
    pub async fn read(&self, path: &str) -> Result<Vec<u8>, roost_client::ClientError> {
        Ok(self.client.read_file(self.name(), path).await?.bytes().await?.to_vec())
    }

    /// Puts it to sleep and checks that it is.
    pub async fn suspend(&self, to: Level) -> Result<Receipt> {
        let receipt = self.client.suspend_sandbox(self.name(), to).await;
        let receipt = receipt.with_context(|| format!("failed to suspend `{}` to {to}", self.name()))?;
        let view = self.client.sandbox(self.name()).await?;
        ensure!((view.state, view.level) == (State::Suspended, Some(to)), "it is {:?}, {:?}", view.state, view.level);
        Ok(receipt)
    }

    /// Wakes it.
    pub async fn wake(&self) -> Result<Receipt> {
        let receipt = self.client.wake_sandbox(self.name()).await;
        receipt.with_context(|| format!("failed to wake `{}`", self.name()))
    }

    /// Keeps this moment of it.
    pub async fn checkpoint(&self) -> Result<(CheckpointId, Receipt)> {
        let made = self.client.create_checkpoint(self.name(), &CreateCheckpoint::default()).await;
        let receipt = made.with_context(|| format!("failed to checkpoint `{}`", self.name()))?.receipt;
        let id = receipt.checkpoint.clone().context("a receipt of a checkpoint without its id")?;
        Ok((id, receipt))
    }

    /// Goes back to a checkpoint.
    pub async fn restore(&self, checkpoint: &CheckpointId) -> Result<Receipt> {
        let restored = self.client.restore_sandbox(self.name(), &Restore { checkpoint: checkpoint.clone() }).await;
        restored.with_context(|| format!("failed to restore `{}`", self.name()))
    }

    /// Forks it; every child must come to life.
    pub async fn fork(&self, wanted: &Fork) -> Result<Vec<(Self, Receipt)>> {
        let born = self.client.fork_sandbox(self.name(), wanted).await;
        let born = born.with_context(|| format!("failed to fork `{}`", self.name()))?;
        let child = |result: roost_model::ForkResult| match (result.sandbox, result.receipt) {
            (Some(view), Some(receipt)) => Ok((Self::of(self.client.clone(), view), receipt)),
            _ => Err(anyhow::anyhow!("a child was not born: {:?}", result.error)),
        };
        born.into_iter().map(child).collect()
    }

    /// The newest event of all.
    pub async fn newest_event(&self) -> Result<u64> {
        let all = self.client.list_events(&EventsFilter::default()).await?;
        Ok(all.last().map_or(0, |event| event.id))
    }

    /// Waits until something has happened to it, without touching it.
    pub async fn happens_after(&self, after: u64, kind: EventKind) -> Result<Event> {
        let filter = EventsFilter { after: Some(after), sandbox: Some(self.id().to_owned()) };
        let mut events = self.client.follow_events(&filter).await?;
        let wait = async {
            loop {
                let event = events.next().await?.context("the events ended")?;
                if event.kind == kind {
                    return Ok::<_, anyhow::Error>(event);
                }
            }
        };
        tokio::time::timeout(EVENT_PATIENCE, wait).await.with_context(|| format!("it was not {}", kind.as_str()))?
    }

    /// Checks that it runs commands.
    pub async fn answers(&self) -> Result<()> {
        let echo = tokio::time::timeout(HEALTHY, self.sh_ok("echo well"));
        let said = echo.await.with_context(|| format!("`{}` does not answer", self.name()))??;
        ensure!(said == "well", "`{}` says {said}", self.name());
        Ok(())
    }

    /// Ends it.
    pub async fn delete(&self) -> Result<()> {
        let outcome = self.client.delete_sandbox(self.name()).await;
        outcome.with_context(|| format!("failed to delete `{}`", self.name()))
    }
}
