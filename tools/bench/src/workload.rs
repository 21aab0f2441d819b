//! The program whose memory is kept, and how it is asked whether it is there.
//!
//! Asking is the same in a sandbox and in a container of a peer: bash inside makes an HTTP request over loopback, without
//! starting a program, and prints the body of the answer.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use roost_client::{Client, ExecEvent, ExecSession, OutputStream};
use roost_model::{CreateSandbox, StartExec};

use crate::proxied;

/// A server with a block of random bytes. It answers with their size in MiB, and can watch for a time in which it stood still.
pub(crate) const SERVER: &str = r#"
import os, sys, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer
block = os.urandom(int(sys.argv[1]) << 20)
watching = threading.Event()
longest = 0.0
def watch():
    global longest
    while watching.wait():
        began = time.monotonic()
        time.sleep(0.001)
        longest = max(longest, time.monotonic() - began - 0.001)
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        global longest
        text = str(len(block) >> 20)
        if self.path == '/watch':
            longest = 0.0
            watching.set()
        if self.path == '/stood-still':
            watching.clear()
            text = '%.3f' % (longest * 1000)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *line): pass
threading.Thread(target=watch, daemon=True).start()
HTTPServer(('0.0.0.0', 8000), Answer).serve_forever()
"#;

/// Asks the server for the path `$1`.
const ASK: &str = r#"ask() {
  exec 3<>/dev/tcp/127.0.0.1/8000 || return
  printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&3
  read -r -d '' answer <&3
  exec 3>&-
  printf '%s\n' "${answer##*$'\r\n'}"
}
"#;

const PORT: u16 = 8000;
/// Nothing takes this long unless it does not work at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// bash that asks once.
pub(crate) fn ask_once(path: &str) -> [String; 3] {
    ["/bin/bash".to_owned(), "-c".to_owned(), format!("{ASK}\nask {path} 2>/dev/null")]
}

/// bash that asks for each path it reads.
pub(crate) fn ask_for_each() -> String {
    format!("{ASK}\nwhile read -r path; do ask \"$path\" 2>/dev/null; done")
}

/// A sandbox with the server in it.
#[derive(Debug)]
pub(crate) struct Server {
    client: Client,
    pub(crate) name: String,
    mebibytes: u32,
}

impl Server {
    /// Makes the sandbox and waits until the server answers.
    pub(crate) async fn start(client: &Client, template: &str, name: &str, mebibytes: u32) -> Result<Self> {
        Self::start_on(client, template, name, mebibytes, None).await
    }

    /// The same on an engine.
    pub(crate) async fn start_on(
        client: &Client,
        template: &str,
        name: &str,
        mebibytes: u32,
        engine: Option<&str>,
    ) -> Result<Self> {
        let wanted = CreateSandbox {
            name: Some(name.to_owned()),
            template: Some(template.to_owned()),
            engine: engine.map(str::to_owned),
            ..CreateSandbox::default()
        };
        client.create_sandbox(&wanted).await.context("failed to create a sandbox")?;
        let server = Self { client: client.clone(), name: name.to_owned(), mebibytes };
        let argv = ["python3", "-c", SERVER, &mebibytes.to_string()].map(str::to_owned).into();
        client.start_exec(name, &StartExec { argv, ..StartExec::default() }).await?;
        let began = Instant::now();
        while let Err(error) = server.answers().await {
            ensure!(began.elapsed() < PATIENCE, error.context("the server does not come up"));
        }
        Ok(server)
    }

    /// A fork of it, which has its memory.
    pub(crate) fn fork(&self, name: &str) -> Self {
        Self { client: self.client.clone(), name: name.to_owned(), mebibytes: self.mebibytes }
    }

    /// Asks by a process started for it.
    pub(crate) async fn ask(&self, path: &str) -> Result<String> {
        let output = self.run(ask_once(path)).await?;
        Ok(output.trim_end().to_owned())
    }

    /// Asks through the daemon's proxy, which wakes it if it sleeps.
    pub(crate) fn request(&self) -> Result<Duration> {
        proxied::request(&self.name, PORT, &self.mebibytes.to_string())
    }

    /// Asks and looks at the answer.
    pub(crate) async fn answers(&self) -> Result<()> {
        self.check(&self.ask("/").await?)
    }

    pub(crate) fn check(&self, answer: &str) -> Result<()> {
        ensure!(answer == self.mebibytes.to_string(), "the server in {} answered {answer:?}", self.name);
        Ok(())
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, argv: impl Into<Vec<String>>) -> Result<String> {
        let output = self.client.run_exec(&self.name, &StartExec { argv: argv.into(), ..StartExec::default() }).await?;
        ensure!(output.exit_code == 0, "a command in {} failed: {}", self.name, output.stderr);
        Ok(output.stdout)
    }

    /// A process inside that asks whenever it is told to, so that nothing has to be started for it.
    pub(crate) async fn line(&self) -> Result<Line> {
        let argv = ["/bin/bash", "-c", &ask_for_each()].map(str::to_owned).into();
        let start = StartExec { argv, stdin: true, ..StartExec::default() };
        Ok(Line { session: self.client.open_exec(&self.name, &start).await? })
    }
}

/// A connection to a process inside that asks the server.
#[derive(Debug)]
pub(crate) struct Line {
    session: ExecSession,
}

impl Line {
    pub(crate) async fn ask(&mut self, path: &str) -> Result<String> {
        self.session.send_stdin(format!("{path}\n").as_bytes()).await?;
        let mut answer = Vec::new();
        while answer.last() != Some(&b'\n') {
            match self.session.next().await? {
                Some(ExecEvent::Output { stream: OutputStream::Stdout, bytes, .. }) => answer.extend_from_slice(&bytes),
                Some(ExecEvent::Exit(state)) => bail!("the process that asks has ended: {state:?}"),
                Some(_) => {}
                None => bail!("the connection to the process that asks was cut"),
            }
        }
        Ok(String::from_utf8_lossy(&answer).trim_end().to_owned())
    }
}
