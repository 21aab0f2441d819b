//! Plain TCP to ports of sandboxes, and a great many idle connections.
#![forbid(unsafe_code)]

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roost_e2e::ports::{Served, say_all};
use roost_e2e::resident_memory;
use roost_model::{ErrorCode, Level, State};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

const PATIENCE: Duration = Duration::from_secs(60);
/// A running `roost forward` and the addresses it printed.
struct Forward {
    child: Child,
    addresses: Vec<String>,
}

impl Forward {
    async fn start(mut command: tokio::process::Command, count: usize) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let mut addresses = Vec::new();
        while addresses.len() < count {
            let line = tokio::time::timeout(PATIENCE, lines.next_line()).await??.context("it ended")?;
            addresses.push(line);
        }
        Ok(Self { child, addresses })
    }

    async fn stop(mut self) -> Result<String> {
        let mut errors = self.child.stderr.take().context("no errors")?;
        self.child.kill().await?;
        let mut text = String::new();
        errors.read_to_string(&mut text).await?;
        Ok(text)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_forwarded_by_socket_and_by_http_and_wake_on_connect() -> Result<()> {
    let served = Served::with_servers().await?;
    served.sandbox.write("/home/user/backwards.py", include_str!("../workload/backwards.py")).await?;
    served.sandbox.spawn("python3 /home/user/backwards.py 5432").await?;
    served.sandbox.becomes_true("grep -q :1538 /proc/net/tcp").await?;
    let arguments = ["forward", "web", "5432:0", "3000:0", "9999:0", "-q"];
    let by_socket = served.daemon.roost(&arguments);
    let mut by_http = served.daemon.roost(&arguments);
    by_http.env_remove("ROOST_SOCKET").env("ROOST_URL", format!("http://{}", served.address()));
    by_http.env("ROOST_TOKEN", &served.token);
    let large: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
    let expected = [b"ready ".as_slice(), &large.iter().rev().copied().collect::<Vec<_>>()].concat();
    for (command, level) in [(by_socket, Level::Ram), (by_http, Level::Disk)] {
        let forward = Forward::start(command, 3).await?;
        let [data, web, closed] = forward.addresses.as_slice() else { anyhow::bail!("{:?}", forward.addresses) };
        assert_eq!(say_all(data, b"abc").await?, b"ready cba");
        served.sandbox.suspend(level).await?;
        ensure!(say_all(data, &large).await? == expected, "what came back is not what was sent");
        assert_eq!(served.daemon.client().sandbox("web").await?.state, State::Active);
        let answer = roost_e2e::raw_tcp(web, "GET", "/", &[], &[]).await?;
        assert_eq!(answer.text(), "hello");
        // A closed port hangs up, and says why where a person sees it.
        let mut nothing = TcpStream::connect(closed).await?;
        drop(tokio::time::timeout(PATIENCE, nothing.read_to_end(&mut Vec::new())).await?);
        let errors = forward.stop().await?;
        ensure!(errors.contains("nothing listens on port 9999 in sandbox `web`"), "{errors}");
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_forwarded_is_told_at_once() -> Result<()> {
    let served = Served::start().await?;
    for (arguments, said) in [
        (["forward", "wbe", "80:0"], "did you mean `web`?"),
        (["forward", "web", "0"], "1 to 65535"),
        (["forward", "web", "80:70000"], "1 to 65535"),
        (["open", "web", "70000"], "1 to 65535"),
    ] {
        let output = served.daemon.roost(&arguments).output().await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && errors.contains(said), "{arguments:?}: {errors}");
    }
    let (_, taken) = served.address().rsplit_once(':').context("no port")?;
    let output = served.daemon.roost(&["forward", "web", &format!("80:{taken}")]).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(errors.contains("failed to listen on 127.0.0.1"), "{errors}");
    let refused = served.http_client()?.connect_port("web", 14).await.err().context("port 14 was opened")?;
    assert_eq!(refused.code(), Some(ErrorCode::BadRequest));
    // A tunnel takes a token.
    let stranger = roost_client::Client::http(&format!("http://{}", served.address()), None)?;
    let refused = stranger.connect_port("web", 3000).await.err().context("a stranger got in")?;
    assert_eq!(refused.code(), Some(ErrorCode::Unauthorized));
    Ok(())
}

/// Full count: `ROOST_E2E_IDLE=10000`, which takes as many descriptors here and twice as many in the daemon.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_cost_next_to_nothing() -> Result<()> {
    let count: usize = std::env::var("ROOST_E2E_IDLE").ok().map(|text| text.parse()).transpose()?.unwrap_or(1000);
    let served = Served::start().await?;
    served.sandbox.write("/home/user/idle.py", include_str!("../workload/idle.py")).await?;
    served.sandbox.spawn("python3 /home/user/idle.py 3000").await?;
    served.sandbox.becomes_true("grep -q :0BB8 /proc/net/tcp").await?;
    let ask = format!(
        "GET / HTTP/1.1\r\nhost: {}\r\nx-roost-token: {}\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n",
        served.host(3000),
        served.token
    );
    let mut first = open(&served, &ask).await?;
    let (mut open_ones, mut before) = (Vec::with_capacity(count), 0);
    for number in 0..count {
        // The first ones live in memory that the daemon had and did not use.
        if number == count / 5 {
            before = resident_memory(served.daemon.pid()?)?;
        }
        open_ones.push(open(&served, &ask).await.with_context(|| format!("connection {number}"))?);
    }
    let counted = (count - count / 5) as u64;
    let each = resident_memory(served.daemon.pid()?)?.saturating_sub(before) / counted;
    eprintln!("{count} idle connections, {each} bytes of the daemon's memory for each of the last {counted}");
    ensure!(each < 16 * 1024, "{each} bytes for each idle connection");
    // All of them are still good.
    open_ones.push(first);
    for stream in &mut open_ones {
        stream.write_all(b"still there?").await?;
    }
    for stream in &mut open_ones {
        let mut heard = [0; 12];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut heard)).await??;
        assert_eq!(&heard, b"still there?");
    }
    // The daemon lets go of them.
    first = open_ones.pop().context("none")?;
    drop(open_ones);
    first.write_all(b"bye").await?;
    first.read_exact(&mut [0; 3]).await?;
    Ok(())
}

async fn open(served: &Served, ask: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(served.address()).await?;
    stream.write_all(ask.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut byte)).await??;
        head.push(byte[0]);
    }
    ensure!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    Ok(stream)
}
