//! Processes inside a sandbox.

use hyper::Method;
use roost_model::{ExecOutput, ExecView, Page, RunRequest, SignalExec, StartExec, TerminalSize};

use crate::route::Route;
use crate::session::{ExecSession, Offsets, OutputStream};
use crate::{Client, ClientError, Download, Upload};

fn execs(sandbox: &str) -> Route {
    Route::sandbox(sandbox).part("execs")
}

impl Client {
    /// Starts a process and returns at once.
    pub async fn start_exec(&self, sandbox: &str, start: &StartExec) -> Result<ExecView, ClientError> {
        let start = StartExec { wait: false, ..start.clone() };
        self.send_json(Method::POST, execs(sandbox), &start, None).await?.json().await
    }

    /// Starts a process, or returns the one that a call with the same key started.
    pub async fn start_exec_once(&self, sandbox: &str, start: &StartExec, key: &str) -> Result<ExecView, ClientError> {
        let start = StartExec { wait: false, ..start.clone() };
        self.send_json(Method::POST, execs(sandbox), &start, Some(key)).await?.json().await
    }

    /// Starts a process, waits for its end and returns its output.
    pub async fn run_exec(&self, sandbox: &str, start: &StartExec) -> Result<ExecOutput, ClientError> {
        let start = StartExec { wait: true, ..start.clone() };
        self.send_json(Method::POST, execs(sandbox), &start, None).await?.json().await
    }

    /// Starts a process and attaches to it in one round trip; the first event is `Started`.
    pub async fn open_exec(&self, sandbox: &str, start: &StartExec) -> Result<ExecSession, ClientError> {
        let route = execs(sandbox).part("start");
        ExecSession::begin(self.websocket(route).await?, "exec", Some(start)).await
    }

    /// Attaches to a process from given offsets of its output.
    pub async fn attach_exec(&self, sandbox: &str, exec: &str, from: Offsets) -> Result<ExecSession, ClientError> {
        let route = execs(sandbox)
            .part(exec)
            .part("attach")
            .query("offset", from.stdout)
            .query("stderr_offset", from.stderr)
            .query("lossless", true);
        ExecSession::begin(self.websocket(route).await?, "attach", None::<&()>).await
    }

    /// Makes a sandbox for one command; closing the session ends the sandbox.
    pub async fn open_run(&self, run: &RunRequest) -> Result<ExecSession, ClientError> {
        ExecSession::begin(self.websocket(Route::new("/v1/run")).await?, "run", Some(run)).await
    }

    /// Makes a sandbox for one command, waits for the command's end and returns its output.
    pub async fn run(&self, run: &RunRequest) -> Result<ExecOutput, ClientError> {
        self.send_json(Method::POST, Route::new("/v1/run"), run, None).await?.json().await
    }

    /// The processes that a sandbox remembers.
    pub async fn list_execs(&self, sandbox: &str) -> Result<Vec<ExecView>, ClientError> {
        let page: Page<ExecView> = self.get_json(execs(sandbox)).await?;
        Ok(page.items)
    }

    /// One process.
    pub async fn exec(&self, sandbox: &str, exec: &str) -> Result<ExecView, ClientError> {
        self.get_json(execs(sandbox).part(exec)).await
    }

    /// One process, once it has ended.
    pub async fn wait_exec(&self, sandbox: &str, exec: &str) -> Result<ExecView, ClientError> {
        self.get_json(execs(sandbox).part(exec).query("wait", true)).await
    }

    /// Sends a signal, by name or number.
    pub async fn signal_exec(&self, sandbox: &str, exec: &str, signal: &str) -> Result<(), ClientError> {
        let body = SignalExec { signal: signal.to_owned() };
        let route = execs(sandbox).part(exec).part("signal");
        self.send_json(Method::POST, route, &body, None).await?.drain().await
    }

    /// Writes to a process's standard input and closes it if asked to.
    pub async fn write_stdin(&self, sandbox: &str, exec: &str, input: Upload, close: bool) -> Result<(), ClientError> {
        let route = execs(sandbox).part(exec).part("stdin").query_some("close", close.then_some(true));
        self.send_upload(Method::POST, route, input, "application/octet-stream").await?.drain().await
    }

    /// Tells a process's terminal its size.
    pub async fn resize_exec(&self, sandbox: &str, exec: &str, size: TerminalSize) -> Result<(), ClientError> {
        let route = execs(sandbox).part(exec).part("resize");
        self.send_json(Method::POST, route, &size, None).await?.drain().await
    }

    /// One stream of a process's output from an offset; with `follow`, until the process ends.
    pub async fn exec_output(
        &self,
        sandbox: &str,
        exec: &str,
        stream: OutputStream,
        offset: u64,
        follow: bool,
    ) -> Result<Download, ClientError> {
        let route = execs(sandbox)
            .part(exec)
            .part("output")
            .query("stream", stream.as_str())
            .query("offset", offset)
            .query("follow", follow);
        Ok(Download::new(self.get(route).await?))
    }
}
