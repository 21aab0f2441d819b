//! What E2B's Python package adds: the same command and the same create, by it and by `/v1`, in turn.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::Client;
use roost_model::{SetPool, StartExec};

use crate::ahead::full;
use crate::figures::{Figures, Series};
use crate::memory::Rounds;
use crate::rounds::create;

pub(crate) const RUN: &str = "E2B's Python package: commands.run(\"true\")";
pub(crate) const RUN_HERE: &str = "roost: the same command by /v1";
pub(crate) const CREATE: &str = "E2B's Python package: create from a pool, first command";
pub(crate) const CREATE_HERE: &str = "roost: the same by /v1";

const SCRIPT: &str = include_str!("e2b.py");
const WAITING: u32 = 4;

/// Where the packages are, and how they reach the daemon.
#[derive(Debug)]
pub(crate) struct Sdk<'a> {
    pub(crate) packages: &'a Path,
    pub(crate) url: &'a str,
}

/// Measures both; everything made for it is gone afterwards, and the pool is as it was.
pub(crate) async fn measure(client: &Client, template: &str, rounds: Rounds, sdk: &Sdk<'_>) -> Result<Figures> {
    let token = client.mint_token("bench").await?;
    let before = client.pool(template).await?;
    let set = |min, max| SetPool { min, max, engine: None };
    client.set_pool(template, &set(WAITING, WAITING)).await?;
    let measured = measure_with(client, template, rounds, sdk, &token.secret).await;
    client.set_pool(template, &set(before.min, before.max)).await?;
    client.revoke_token(token.token.id.as_str()).await?;
    measured
}

async fn measure_with(
    client: &Client,
    template: &str,
    Rounds { warmup, count }: Rounds,
    sdk: &Sdk<'_>,
    key: &str,
) -> Result<Figures> {
    let mut package = Package::start(sdk, template, key)?;
    let lasting = format!("bench-sdk-{}", std::process::id());
    let mut series = [RUN, RUN_HERE, CREATE, CREATE_HERE].map(Series::new);
    for round in 0..warmup + count {
        let name = format!("{lasting}-{round}");
        full(client, template).await?;
        let created = package.time("create")?;
        full(client, template).await?;
        let began = Instant::now();
        create(client, template, &name).await?;
        command(client, &name).await?;
        let created_here = began.elapsed();
        let ran = package.time("run")?;
        let began = Instant::now();
        command(client, &name).await?;
        let ran_here = began.elapsed();
        client.delete_sandbox(&name).await?;
        if round >= warmup {
            for (series, duration) in series.iter_mut().zip([ran, ran_here, created, created_here]) {
                series.add(duration);
            }
        }
    }
    Ok(Figures { series: series.into(), parts: Vec::new() })
}

/// What the package makes of `commands.run("true")`.
async fn command(client: &Client, name: &str) -> Result<()> {
    let argv = ["/bin/bash", "-l", "-c", "true"].map(str::to_owned).into();
    let output = client.run_exec(name, &StartExec { argv, ..StartExec::default() }).await?;
    ensure!(output.exit_code == 0, "`true` ended with {}", output.exit_code);
    Ok(())
}

/// A Python process that uses the package.
struct Package {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Package {
    fn start(Sdk { packages, url }: &Sdk<'_>, template: &str, key: &str) -> Result<Self> {
        let python = packages.join("python/bin/python");
        let mut process = Command::new(&python)
            .args(["-c", SCRIPT, template])
            .env("E2B_API_URL", url)
            .env("E2B_SANDBOX_URL", url)
            .env("E2B_API_KEY", key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start `{}`: run scripts/e2b-packages", python.display()))?;
        let output = process.stdout.take().context("the package's process has no output")?;
        Ok(Self { input: process.stdin.take(), process, output: BufReader::new(output) })
    }

    /// Has it do something once; the clock is its own, as its user's would be.
    fn time(&mut self, what: &str) -> Result<Duration> {
        let input = self.input.as_mut().context("the package's process has no input")?;
        writeln!(input, "{what}").context("the package's process is gone")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let milliseconds: f64 = line.trim().parse().with_context(|| format!("the package failed to {what}"))?;
        Ok(Duration::from_secs_f64(milliseconds / 1e3))
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        // The end of its input is the end of its sandbox and of itself.
        self.input = None;
        self.process.wait().ok();
    }
}
