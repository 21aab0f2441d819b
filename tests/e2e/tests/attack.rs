//! The API under attack from outside: crowds, clients that dawdle, and everything too large. Nothing of it is an error of the
//! daemon's, takes its memory, or keeps others out. What may be sent at most is in the specification's table of limits.
#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Options, peak_memory, raw_tcp, reset_peak_memory};
use roost_model::CreateSandbox;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How many connections are opened.
const CROWD: usize = 10_000;
/// Most memory that an attack may cost the daemon.
const MOST_MEMORY: u64 = 300 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon that is attacked, and what an attacker with a token has.
struct Victim {
    daemon: Daemon,
    address: String,
    token: String,
}

impl Victim {
    async fn start() -> Result<Self> {
        let daemon = Daemon::with(Options { tcp: true, ..Options::default() }).await?;
        let address = daemon.address().context("no TCP address")?.to_owned();
        let token = daemon.client().mint_token("attack").await?.secret;
        daemon.sandbox("web").await?;
        reset_peak_memory(daemon.pid()?)?;
        Ok(Self { daemon, address, token })
    }

    fn authorization(&self) -> String {
        format!("authorization: Bearer {}\r\n", self.token)
    }

    /// Opens a connection and sends something on it, as far as it is taken at once.
    async fn send(&self, bytes: &[u8]) -> Result<TcpStream> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.writable().await?;
        match stream.try_write(bytes) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error.into()),
            _ => Ok(stream),
        }
    }

    /// Whoever has business with the daemon is served.
    async fn serves_others(&self) -> Result<()> {
        let healthy = tokio::time::timeout(PATIENCE, raw_tcp(&self.address, "GET", "/healthz", &[], b"")).await??;
        ensure!(healthy.status == 200, "{}", healthy.text());
        let bearer = format!("Bearer {}", self.token);
        let headers = [("authorization", bearer.as_str())];
        let listed = raw_tcp(&self.address, "GET", "/v1/sandboxes", &headers, b"");
        let listed = tokio::time::timeout(PATIENCE, listed).await??;
        ensure!(listed.status == 200, "{}", listed.text());
        ensure!(self.daemon.roost_ok(&["exec", "web", "--", "echo", "here"]).await? == "here\n");
        let memory = peak_memory(self.daemon.pid()?)?;
        ensure!(memory < MOST_MEMORY, "the daemon had {} MiB", memory >> 20);
        Ok(())
    }
}

/// So many connections are so many descriptors here, too; as many as this process may have.
fn room_for(wanted: usize) -> usize {
    let hard = getrlimit(Resource::Nofile).maximum;
    let raised = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).is_ok();
    let most = if raised { hard } else { getrlimit(Resource::Nofile).current };
    let most = most.map_or(wanted, |most| usize::try_from(most).unwrap_or(wanted));
    wanted.min(most.saturating_sub(500))
}

#[tokio::test]
async fn a_crowd_of_strangers_keeps_nobody_out() -> Result<()> {
    let victim = Victim::start().await?;
    let login = "POST /v1/session HTTP/1.1\r\nhost: x\r\nx-roost-page: 1\r\ncontent-type: application/json\r\n";
    // Silent from the start; a head that never ends; one that is as large as it may be; an answer and silence; bodies that never
    // end; answers that nobody reads.
    let ways = [
        String::new(),
        "GET /healthz HTTP/1.1\r\nx: a".to_owned(),
        format!("GET /healthz HTTP/1.1\r\nx: {}", "a".repeat(100_000)),
        "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        format!("{login}content-length: 4000\r\n\r\n{{"),
        format!("{login}transfer-encoding: chunked\r\n\r\n{}", "fff\r\n".to_owned() + &" ".repeat(4095)),
        "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(200),
    ];
    let mut crowd = Vec::new();
    for number in 0..room_for(CROWD) {
        crowd.push(victim.send(ways[number % ways.len()].as_bytes()).await?);
        if number % 2500 == 0 {
            victim.serves_others().await?;
        }
    }
    victim.serves_others().await?;
    // The daemon has hung up on most, without waiting for them.
    let open = std::fs::read_dir(format!("/proc/{}/fd", victim.daemon.pid()?))?.count();
    ensure!(open < 2000, "the daemon has {open} descriptors open for {} connections", crowd.len());
    Ok(())
}

#[tokio::test]
async fn whoever_has_a_token_stays_while_strangers_come_and_go() -> Result<()> {
    let victim = Victim::start().await?;
    let ask = format!("GET /v1/info HTTP/1.1\r\nhost: x\r\n{}\r\n", victim.authorization());
    let mut known = Vec::new();
    for _ in 0..room_for(CROWD) / 2 {
        known.push(victim.send(ask.as_bytes()).await?);
    }
    for _ in 0..2000 {
        drop(victim.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await?);
    }
    let mut strangers = Vec::new();
    for _ in 0..2000 {
        strangers.push(victim.send(b"GET").await?);
    }
    victim.serves_others().await?;
    for stream in known.iter_mut().step_by(500) {
        for _ in 0..2 {
            let mut answer = vec![0; 16 * 1024];
            let length = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await??;
            ensure!(answer[..length].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..length]));
            stream.write_all(ask.as_bytes()).await?;
        }
    }
    Ok(())
}

/// What is sent, what comes back, and the code in it; none where HTTP itself refuses.
struct Excess {
    what: &'static str,
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    answer: (u16, Option<&'static str>),
}

fn excess(
    what: &'static str,
    method: &'static str,
    path: impl Into<String>,
    answer: (u16, Option<&'static str>),
) -> Excess {
    Excess { what, method, path: path.into(), headers: Vec::new(), body: Vec::new(), answer }
}

impl Excess {
    fn with(mut self, header: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((header, value.into()));
        self
    }

    fn json(self, body: &Value) -> Self {
        self.text(body.to_string())
    }

    fn text(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
}

fn large(length: usize) -> String {
    "a".repeat(length)
}

/// Everything that can be too large, too long, too deep or too many.
fn everything_oversized() -> Vec<Excess> {
    const MIB: usize = 1 << 20;
    let bad = (400, Some("bad_request"));
    let post = |what, path: &str, answer| excess(what, "POST", path, answer);
    let many: serde_json::Map<String, Value> = (0..50_000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let deep = |open: &str| open.repeat(100_000).into_bytes();
    vec![
        excess("a path", "GET", format!("/v1/sandboxes/{}", large(60_000)), (404, Some("sandbox_not_found"))),
        excess("a longer path", "GET", format!("/v1/sandboxes/{}", large(70_000)), (414, None)),
        excess("a header", "GET", "/v1/sandboxes", (431, None)).with("x", large(500_000)),
        excess("a secret", "GET", "/v1/sandboxes", (401, Some("unauthorized"))).with("authorization", large(60_000)),
        excess("a query", "GET", format!("/v1/sandboxes?limit={}", large(30_000)), bad),
        excess("a number", "GET", "/v1/sandboxes?limit=99999999999999999999", bad),
        post("a key", "/v1/sandboxes", bad).with("idempotency-key", large(50_000)),
        post("a body", "/v1/sandboxes", (413, Some("body_too_large"))).text(vec![b' '; 2 * MIB]),
        post("a log-in", "/v1/session", (413, Some("body_too_large"))).with("x-roost-page", "1").text(vec![b' '; MIB]),
        post("lists in lists", "/v1/sandboxes", bad).text(deep("[")),
        post("objects in objects", "/v1/sandboxes", bad).text(deep(r#"{"labels":"#)),
        post("idle policies in lists", "/v1/sandboxes", bad).text([br#"{"idle":"#.to_vec(), deep("[")].concat()),
        post("a name", "/v1/sandboxes", (400, Some("invalid_name"))).json(&json!({"name": large(MIB - 100)})),
        post("labels", "/v1/sandboxes", bad).json(&json!({"labels": many})),
        post("a label", "/v1/sandboxes", bad).json(&json!({"labels": {"a": large(MIB / 2)}})),
        post("a variable", "/v1/sandboxes", bad).json(&json!({"env": {"A": large(MIB / 2)}})),
        post("variables", "/v1/sandboxes", bad).json(&json!({"env": many})),
        post("a time to live", "/v1/sandboxes", bad).json(&json!({"ttl": "99999999999999999d"})),
        post("forks", "/v1/sandboxes/web/fork", bad).json(&json!({"count": 4_000_000_000_u32})),
        post("an argument", "/v1/sandboxes/web/execs", bad).json(&json!({"argv": ["/bin/echo", large(MIB / 2)]})),
        post("the environment of an exec", "/v1/sandboxes/web/execs", bad)
            .json(&json!({"argv": ["/bin/true"], "env": {"A": large(MIB / 2)}})),
        post("a working folder", "/v1/sandboxes/web/execs", (400, Some("cwd_not_found")))
            .json(&json!({"argv": ["/bin/true"], "cwd": large(MIB / 2)})),
        post("a user", "/v1/sandboxes/web/execs", (400, Some("user_not_found")))
            .json(&json!({"argv": ["/bin/true"], "user": large(MIB / 2)})),
        excess("the name of a file", "PUT", format!("/v1/sandboxes/web/files?path=/{}", large(50_000)), bad).text("x"),
        excess("a file to read", "GET", format!("/v1/sandboxes/web/files?path=/{}", large(50_000)), bad),
        excess("an archive that is none", "PUT", "/v1/sandboxes/web/files/archive?path=/root/a", bad)
            .text(vec![7; MIB]),
        excess("a service", "PUT", "/v1/sandboxes/web/services/app", (429, Some("limit_exceeded")))
            .json(&json!({"argv": ["/bin/true"], "env": {"A": large(MIB / 2)}})),
        excess("a range", "GET", "/v1/sandboxes/web/files?path=/etc/passwd", (200, None))
            .with("range", format!("bytes={}", "0-1,".repeat(10_000))),
    ]
}

#[tokio::test]
async fn whatever_is_too_large_is_refused_by_name() -> Result<()> {
    let victim = Victim::start().await?;
    let bearer = format!("Bearer {}", victim.token);
    let mut wrong = Vec::new();
    for case in everything_oversized() {
        let mut headers: Vec<(&str, &str)> = case.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            headers.push(("authorization", &bearer));
        }
        if !case.body.is_empty() && case.method == "POST" {
            headers.push(("content-type", "application/json"));
        }
        let answer = raw_tcp(&victim.address, case.method, &case.path, &headers, &case.body).await;
        let answer = answer.with_context(|| format!("too large: {}", case.what))?;
        let code = answer.json().ok().and_then(|body| Some(body["error"]["code"].as_str()?.to_owned()));
        if (answer.status, code.as_deref()) != case.answer || answer.body.len() > 8192 {
            let said: String = answer.text().chars().take(300).collect();
            wrong.push(format!("{}: {} {code:?}, {} bytes: {said}", case.what, answer.status, answer.body.len()));
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    victim.serves_others().await
}

/// What a sandbox may be given works all of it: none is made that nothing can run in.
#[tokio::test]
async fn the_largest_environment_that_is_taken_works() -> Result<()> {
    let daemon = Daemon::start().await?;
    let env = [("A", 130_000), ("B", 130_000)].map(|(name, length)| (name.to_owned(), large(length)));
    let request = CreateSandbox { name: Some("laden".to_owned()), env: env.into(), ..CreateSandbox::default() };
    let laden = daemon.sandbox_with(request).await?;
    ensure!(laden.sh_ok("echo ${#A} ${#B}").await?.trim() == "130000 130000");
    daemon.roost_ok(&["suspend", "laden"]).await?;
    ensure!(laden.sh_ok("echo ${#B}").await?.trim() == "130000");
    Ok(())
}

/// HTTP that two readers could understand in two ways is understood by nobody.
#[tokio::test]
async fn what_can_be_read_in_two_ways_is_refused() -> Result<()> {
    let victim = Victim::start().await?;
    let put = format!("PUT /v1/sandboxes/web/files?path=/root/x HTTP/1.1\r\nhost: x\r\n{}", victim.authorization());
    for rest in [
        "content-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "content-length: -1\r\n\r\n",
        "content-length: 99999999999999999999999\r\n\r\n",
        "transfer-encoding: gzip\r\n\r\nabc",
        "transfer-encoding: chunked\r\n\r\nffffffffffffffffffff\r\nabc",
        "transfer-encoding: chunked\r\n\r\n1;a\nb\r\n",
        "x : a\r\n\r\n",
        "x\0: a\r\n\r\n",
    ] {
        let mut stream = victim.send(format!("{put}{rest}").as_bytes()).await?;
        let mut answer = [0; 512];
        let length = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await??;
        let answer = String::from_utf8_lossy(&answer[..length]);
        ensure!(answer.starts_with("HTTP/1.1 400"), "{rest:?}: {answer}");
    }
    victim.serves_others().await
}
