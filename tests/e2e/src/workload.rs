//! Programs of every kind that must go on after a sleep, with checks that they do.
//!
//! Inside run a Python HTTP server over 64 MB of random memory (it holds an unlinked file open and watches a folder), two
//! processes with a full pipe between them, two with a full TCP connection, node, a shell in tmux, and a loop that
//! clones a repository and builds it. A shell in a terminal is talked to from outside.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roost_client::{OutputStream, Upload};
use roost_model::{Doctoring, StartExec, TerminalSize};
use serde_json::Value;

use crate::sandbox::Sandbox;

const FILES: [(&str, &str); 6] = [
    ("server.py", include_str!("../workload/server.py")),
    ("stream.py", include_str!("../workload/stream.py")),
    ("counter.js", include_str!("../workload/counter.js")),
    ("build.sh", include_str!("../workload/build.sh")),
    ("check.py", include_str!("../workload/check.py")),
    ("start.sh", include_str!("../workload/start.sh")),
];
/// A shell that has not answered by then does not answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The workload in one sandbox; a clone of it goes with a fork of the sandbox.
#[derive(Debug, Clone)]
pub struct Workload {
    shell: String,
    asked: u32,
    read: u64,
}

/// Hashes of what must not change: memory, an open file without a name, node's memory, and files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Of Python's memory.
    pub memory: String,
    /// Of everything that is kept, this included.
    pub all: String,
}

impl Workload {
    /// Starts it in a sandbox of template `base`, without the build.
    pub async fn start(sandbox: &Sandbox) -> Result<Self> {
        Self::start_parts(sandbox, "").await
    }

    /// Starts all of it in a sandbox of template `base`.
    pub async fn start_with_build(sandbox: &Sandbox) -> Result<Self> {
        Self::start_parts(sandbox, "build").await
    }

    async fn start_parts(sandbox: &Sandbox, parts: &str) -> Result<Self> {
        let nameless = if saves_nameless_on_disk(sandbox).await? { "/home/user/w/nameless" } else { "/tmp/nameless" };
        sandbox.sh_ok("mkdir -p /home/user/w").await?;
        for (name, text) in FILES {
            sandbox.write(&format!("/home/user/w/{name}"), text).await?;
        }
        let start = format!("NAMELESS={nameless} bash /home/user/w/start.sh {parts}");
        sandbox.sh_ok(&start).await.context("the workload did not start")?;
        let shell = StartExec {
            argv: ["bash", "--norc"].map(str::to_owned).into(),
            pty: Some(TerminalSize { cols: 120, rows: 30 }),
            stdin: true,
            ..StartExec::default()
        };
        let shell = sandbox.client().start_exec(sandbox.name(), &shell).await?.id.to_string();
        let workload = Self { shell, asked: 0, read: 0 };
        workload.type_in(sandbox, "SECRET='in bash'; N=0\n").await?;
        Ok(workload)
    }

    /// Checks that every part goes on, and returns what must be the same each time.
    pub async fn check(&mut self, sandbox: &Sandbox) -> Result<Kept> {
        self.ask_shell(sandbox).await?;
        check(sandbox, "").await
    }

    /// As [`Workload::check`], and waits until the build that runs in the background has come to an end once more.
    pub async fn check_with_build(&mut self, sandbox: &Sandbox) -> Result<Kept> {
        self.ask_shell(sandbox).await?;
        check(sandbox, "build").await
    }

    /// Has the shell in the terminal count one further.
    async fn ask_shell(&mut self, sandbox: &Sandbox) -> Result<()> {
        self.asked += 1;
        let expected = format!("[in bash:{}]", self.asked);
        self.type_in(sandbox, "echo \"[$SECRET:$((++N))]\"\n").await?;
        let answer = tokio::time::timeout(PATIENCE, self.read_until(sandbox, &expected)).await;
        answer.with_context(|| format!("the shell of `{}` did not say {expected}", sandbox.name()))?
    }

    async fn type_in(&self, sandbox: &Sandbox, line: &str) -> Result<()> {
        let input = Upload::bytes(line.as_bytes().to_vec());
        let typed = sandbox.client().write_stdin(sandbox.name(), &self.shell, input, false).await;
        typed.with_context(|| format!("failed to type into the shell of `{}`", sandbox.name()))
    }

    async fn read_until(&mut self, sandbox: &Sandbox, expected: &str) -> Result<()> {
        let (client, name) = (sandbox.client(), sandbox.name());
        let mut output = client.exec_output(name, &self.shell, OutputStream::Stdout, self.read, true).await?;
        ensure!(output.gap().is_none(), "a part of the shell's output is gone");
        let mut text = Vec::new();
        while let Some(chunk) = output.chunk().await? {
            text.extend_from_slice(&chunk);
            if let Some(end) = find(&text, expected.as_bytes()) {
                self.read += end as u64;
                return Ok(());
            }
        }
        anyhow::bail!("the shell of `{name}` ended: {}", String::from_utf8_lossy(&text))
    }
}

/// A kernel of the sandbox's own saves an open file that has no name any more only on a filesystem in its memory.
async fn saves_nameless_on_disk(sandbox: &Sandbox) -> Result<bool> {
    let engine = sandbox.client().sandbox(sandbox.name()).await?.engine;
    let report = sandbox.client().doctor(Doctoring::Look).await?;
    let found = report.engines.into_iter().find(|report| report.engine == engine);
    Ok(!found.with_context(|| format!("the doctor does not know engine `{engine}`"))?.abilities.own_kernel)
}

/// Where `needle` ends in `text`.
fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle).map(|start| start + needle.len())
}

async fn check(sandbox: &Sandbox, how: &str) -> Result<Kept> {
    let said = sandbox.sh_ok(&format!("python3 /home/user/w/check.py {how}")).await?;
    let report: Value = serde_json::from_str(&said).with_context(|| format!("no report: {said}"))?;
    let problems = report["problems"].as_array().context("no list of problems")?;
    ensure!(problems.is_empty(), "`{}` does not go on: {problems:?}", sandbox.name());
    let memory = report["kept"]["memory"].as_str().context("no hash of memory")?.to_owned();
    Ok(Kept { memory, all: report["kept"].to_string() })
}
