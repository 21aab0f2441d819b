//! Ephemeral runs: made, run, gone; nothing is left on any way out.

use roost_model::{CreateSandbox, ExecOutput, RunRequest, SandboxView, StartExec};

use crate::caller::Caller;
use crate::handle::Handle;
use crate::host::Host;
use crate::{ExecAttachment, HostError};

/// A sandbox that lives for one command and ends when this is dropped.
#[derive(Debug)]
pub struct Run {
    handle: Handle,
    ended: bool,
}

impl Host {
    /// Makes the sandbox of a run and starts its command.
    pub async fn start_run(&self, request: RunRequest) -> Result<(Run, ExecAttachment), HostError> {
        self.start_run_for(request, &Caller::owner()).await
    }

    pub(crate) async fn start_run_for(
        &self,
        request: RunRequest,
        caller: &Caller,
    ) -> Result<(Run, ExecAttachment), HostError> {
        let run = self.open_run(request.sandbox, caller).await?;
        match run.start(request.exec).await {
            Ok(attachment) => Ok((run, attachment)),
            Err(error) => {
                run.end().await;
                Err(error)
            }
        }
    }

    /// Makes the sandbox of a run.
    pub(crate) async fn open_run(&self, sandbox: CreateSandbox, caller: &Caller) -> Result<Run, HostError> {
        let (handle, _) = self.create_handle(sandbox, None, true, caller).await?;
        Ok(Run::of(handle))
    }

    /// Runs one command to its end and returns its output.
    pub async fn run(&self, request: RunRequest) -> Result<ExecOutput, HostError> {
        let (run, attachment) = self.start_run(request).await?;
        let output = attachment.collect().await;
        run.end().await;
        output
    }
}

impl Run {
    /// The sandbox it runs in.
    pub fn sandbox(&self) -> SandboxView {
        self.handle.view()
    }

    /// One that lives for as long as this.
    pub(crate) fn of(handle: Handle) -> Self {
        Self { handle, ended: false }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Starts the command.
    pub(crate) async fn start(&self, exec: StartExec) -> Result<ExecAttachment, HostError> {
        self.handle.start_attached(exec, None).await
    }

    /// Ends the sandbox and returns when it is gone.
    pub async fn end(mut self) {
        self.ended = true;
        finish(&self.handle).await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.ended {
            // Whoever waited has left: end it all the same.
            let handle = self.handle.clone();
            tokio::spawn(async move { finish(&handle).await });
        }
    }
}

async fn finish(handle: &Handle) {
    match handle.terminate("run_finished", "its run ended").await {
        Ok(()) | Err(HostError::Terminated(_)) => {}
        Err(error) => tracing::error!(sandbox = %handle.id(), %error, "could not end a run's sandbox"),
    }
}
