//! A daemon as E2B's clients see it, by hand: one request after the other.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use serde_json::Value;

use crate::{Daemon, Options, RawAnswer, Sandbox, raw_tcp};

/// What has not come true by then will not.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A daemon that serves HTTP, and a key for it.
#[derive(Debug)]
pub struct E2b {
    /// The daemon.
    pub daemon: Daemon,
    /// What goes into `X-API-KEY`.
    pub key: String,
}

/// A sandbox as its maker knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its id.
    pub id: String,
    /// What its data plane asks for.
    pub token: String,
}

impl Made {
    /// Reads what a request was answered with that made or found one.
    pub fn of(body: &Value) -> Result<Self> {
        let text = |name: &str| body[name].as_str().map(str::to_owned).with_context(|| format!("no {name}: {body}"));
        Ok(Self { id: text("sandboxID")?, token: text("envdAccessToken")? })
    }
}

impl E2b {
    /// Starts one that has template `mini`, and `base` if asked.
    pub async fn start(base: bool) -> Result<Self> {
        let daemon = Daemon::with(Options { tcp: true, base, ..Options::default() }).await?;
        let key = daemon.client().mint_token("e2b").await?.secret;
        Ok(Self { daemon, key })
    }

    /// Where the daemon listens.
    pub fn address(&self) -> Result<&str> {
        self.daemon.address().context("the daemon has no address")
    }

    /// Asks the control plane.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<RawAnswer> {
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        raw_tcp(self.address()?, method, path, &[("x-api-key", &self.key)], &body).await
    }

    /// The same, and expects this status.
    pub async fn expect(&self, status: u16, method: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.ask(method, path, body).await?;
        ensure!(answer.status == status, "{method} {path}: {} {}", answer.status, answer.text());
        if answer.body.is_empty() { Ok(Value::Null) } else { answer.json() }
    }

    /// Makes a sandbox.
    pub async fn create(&self, body: &Value) -> Result<Made> {
        Made::of(&self.expect(201, "POST", "/v2/sandboxes", body).await?)
    }

    /// Everything about a sandbox.
    pub async fn info(&self, made: &Made) -> Result<Value> {
        self.expect(200, "GET", &format!("/sandboxes/{}", made.id), &Value::Null).await
    }

    /// When it ends, as it says.
    pub async fn end_of(&self, made: &Made) -> Result<Timestamp> {
        let info = self.info(made).await?;
        Ok(info["endAt"].as_str().context("no end")?.parse()?)
    }

    /// Asks a port of a sandbox by headers, as the SDKs do.
    pub async fn port(&self, made: &Made, port: u16, path: &str, headers: &[(&str, &str)]) -> Result<RawAnswer> {
        let port = port.to_string();
        let named = [("e2b-sandbox-id", made.id.as_str()), ("e2b-sandbox-port", port.as_str())];
        let headers: Vec<(&str, &str)> = named.into_iter().chain(headers.iter().copied()).collect();
        raw_tcp(self.address()?, "GET", path, &headers, &[]).await
    }

    /// Whether its data plane answers.
    pub async fn health(&self, made: &Made) -> Result<RawAnswer> {
        self.port(made, 49983, "/health", &[("x-access-token", &made.token)]).await
    }

    /// The same sandbox by Roost's own API.
    pub async fn sandbox(&self, made: &Made) -> Result<Sandbox> {
        Ok(Sandbox::find(self.daemon.client(), &format!("sbx_{}", made.id)).await?)
    }

    /// Waits until it is in this state; one that is paused has done so altogether.
    pub async fn becomes(&self, made: &Made, state: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let info = self.info(made).await?;
            if info["state"] == state && (state != "paused" || info["pauseMode"].is_string()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("it never became {state}: {info}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
