//! Processes by E2B's wire, where its packages cannot look: over sleeps, over a daemon's death, and in other tongues.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, RawAnswer, Sandbox, raw_unix};
use roost_model::{Level, State};
use serde_json::{Value, json};

/// Calls a method of `process.Process`.
async fn call(daemon: &Daemon, sandbox: &Sandbox, method: &str, content: &str, body: &[u8]) -> Result<RawAnswer> {
    let path = format!("/process.Process/{method}");
    let headers = [("e2b-sandbox-id", sandbox.id()), ("content-type", content)];
    raw_unix(&daemon.socket(), "POST", &path, &headers, body).await
}

async fn unary(daemon: &Daemon, sandbox: &Sandbox, method: &str, message: &Value) -> Result<(u16, Value)> {
    let answer = call(daemon, sandbox, method, "application/json", message.to_string().as_bytes()).await?;
    Ok((answer.status, answer.json()?))
}

/// All messages of a stream, the last of them its end.
async fn stream(daemon: &Daemon, sandbox: &Sandbox, method: &str, message: &Value) -> Result<Vec<Value>> {
    let text = message.to_string();
    let body = [&[0][..], &u32::try_from(text.len())?.to_be_bytes(), text.as_bytes()].concat();
    let answer = call(daemon, sandbox, method, "application/connect+json", &body).await?;
    let (mut rest, mut messages) = (&answer.body[..], Vec::new());
    while let Some((&[flags, a, b, c, d], after)) = rest.split_first_chunk::<5>() {
        let (message, after) =
            after.split_at_checked(u32::from_be_bytes([a, b, c, d]) as usize).context("a message is cut short")?;
        messages.push(serde_json::from_slice(message)?);
        ensure!((flags == 2) == after.is_empty(), "an end comes at the end, and nowhere else");
        rest = after;
    }
    Ok(messages)
}

#[tokio::test]
async fn a_stream_goes_on_over_a_checkpoint_and_a_sleep() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("one").await?;
    let line = "echo before; : > /tmp/there; until [ -e /tmp/go ]; do sleep 0.02; done; echo after; exit 3";
    let start = json!({"process": {"cmd": "/bin/sh", "args": ["-c", line]}});
    let script = async {
        sandbox.becomes_true("[ -e /tmp/there ]").await?;
        sandbox.checkpoint().await?;
        sandbox.suspend(Level::Disk).await?;
        // Whoever only listens does not wake it.
        for _ in 0..20 {
            ensure!(daemon.client().sandbox(sandbox.name()).await?.state == State::Suspended, "it woke by itself");
        }
        sandbox.wake().await?;
        sandbox.write("/tmp/go", "").await?;
        Ok(())
    };
    let (messages, ()) = tokio::try_join!(stream(&daemon, &sandbox, "Start", &start), script)?;
    ensure!(messages[0]["event"]["start"]["pid"].is_u64(), "{messages:?}");
    let told: Vec<&Value> = messages[1..].iter().map(|message| &message["event"]).collect();
    let end = json!({"end": {"exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3"}});
    let expected =
        [json!({"data": {"stdout": "YmVmb3JlCg=="}}), json!({"data": {"stdout": "YWZ0ZXIK"}}), end, Value::Null];
    ensure!(told == expected.iter().collect::<Vec<_>>(), "{messages:?}");
    ensure!(messages.last() == Some(&json!({})), "{messages:?}");
    Ok(())
}

#[tokio::test]
async fn processes_are_known_to_the_next_daemon() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("one").await?;
    let pid = sandbox.spawn("exec sleep 1000").await?.pid;
    daemon.crash_and_restart().await?;
    let (status, listed) = unary(&daemon, &sandbox, "List", &json!({})).await?;
    let processes = listed["processes"].as_array().context("no list")?;
    ensure!(status == 200 && processes.len() == 1 && processes[0]["pid"] == pid, "{listed}");
    let kill = json!({"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"});
    let that = json!({"process": {"pid": pid}});
    let late = stream(&daemon, &sandbox, "Connect", &that);
    let (late, killed) = tokio::try_join!(late, unary(&daemon, &sandbox, "SendSignal", &kill))?;
    ensure!(killed == (200, json!({})), "{killed:?}");
    let end = json!({"end": {"exitCode": -1, "exited": false, "status": "signal: killed", "error": "signal: killed"}});
    ensure!(late[0]["event"]["start"]["pid"] == pid && late[1]["event"] == end, "{late:?}");
    let (status, refused) = unary(&daemon, &sandbox, "SendSignal", &kill).await?;
    ensure!(status == 404 && refused["code"] == "not_found", "{refused}");
    // Its end is remembered, for those who come when it is over.
    let later = stream(&daemon, &sandbox, "Connect", &that).await?;
    ensure!(later[0]["event"]["start"]["pid"] == pid && later[1]["event"] == end, "{later:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_not_spoken_here_is_refused_and_the_host_s_own_is_not_there() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("one").await?;
    for content in ["application/proto", "application/grpc", "application/connect+proto", ""] {
        let refused = call(&daemon, &sandbox, "List", content, b"").await?;
        ensure!(refused.status == 415 && refused.header("accept-post") == Some("application/json"), "{refused:?}");
        ensure!(refused.json()?["code"] == "unimplemented", "{refused:?}");
    }
    let headers = [("e2b-sandbox-id", sandbox.id())];
    for path in ["/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/collapse"] {
        let answer = raw_unix(&daemon.socket(), "POST", path, &headers, b"{}").await?;
        ensure!(answer.status == 404, "{path}: {answer:?}");
    }
    let asked = raw_unix(&daemon.socket(), "OPTIONS", "/process.Process/List", &headers, b"").await?;
    ensure!(asked.status == 204 && asked.header("access-control-allow-origin") == Some("*"), "{asked:?}");
    let figures = raw_unix(&daemon.socket(), "GET", "/metrics", &headers, b"").await?.json()?;
    ensure!(figures["mem_total"].as_u64() > figures["mem_used"].as_u64(), "{figures}");
    Ok(())
}
