//! Everything that runs inside a sandbox.

use hyper::Method;
use roost_model::{ProcessList, SignalExec};

use crate::route::Route;
use crate::{Client, ClientError};

impl Client {
    /// All processes inside, if the sandbox is awake; does not wake it.
    pub async fn processes(&self, sandbox: &str) -> Result<ProcessList, ClientError> {
        self.get_json(Route::sandbox(sandbox).part("processes")).await
    }

    /// Sends a signal to one of them, by name or number.
    pub async fn signal_process(&self, sandbox: &str, pid: u32, signal: &str) -> Result<(), ClientError> {
        let body = SignalExec { signal: signal.to_owned() };
        let route = Route::sandbox(sandbox).part("processes").part(&pid.to_string()).part("signal");
        self.send_json(Method::POST, route, &body, None).await?.drain().await
    }
}
