//! Commands inside a sandbox: codes, streams, users, time, terminals, and coming back to them.
#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context, Result};
use roost_client::{Client, ExecEvent, Offsets, OutputStream, Upload};
use roost_e2e::{Daemon, Sandbox};
use roost_model::{ErrorCode, ExecState, ExecView, Span, StartExec, TerminalSize};

fn shell(line: &str) -> StartExec {
    StartExec { shell: Some(line.to_owned()), ..StartExec::default() }
}

/// What standard output has kept from `offset` on.
async fn output_from(client: &Client, exec: &ExecView, offset: u64) -> Result<Vec<u8>> {
    let output = client.exec_output("box", exec.id.as_str(), OutputStream::Stdout, offset, false).await?;
    Ok(output.bytes().await?.to_vec())
}

#[tokio::test]
async fn a_command_gives_its_streams_and_its_code() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let output = sandbox.sh("echo out; echo err >&2; exit 7").await?;
    assert_eq!((output.exit_code, output.stdout.as_str(), output.stderr.as_str()), (7, "out\n", "err\n"));

    let argv = StartExec {
        argv: vec!["printf".to_owned(), "%s|".to_owned(), "a b".to_owned(), "$HOME".to_owned()],
        ..StartExec::default()
    };
    assert_eq!(sandbox.run(&argv).await?.stdout, "a b|$HOME|");

    let placed = StartExec {
        cwd: Some("/tmp".to_owned()),
        env: [("WHO".to_owned(), "me".to_owned())].into(),
        ..shell("pwd; echo $WHO")
    };
    assert_eq!(sandbox.run(&placed).await?.stdout, "/tmp\nme\n");

    let other = StartExec { user: Some("user".to_owned()), ..shell("id -u; echo $HOME") };
    assert_eq!(sandbox.run(&other).await?.stdout, "1000\n/home/user\n");

    let killed = sandbox.sh("kill -KILL $$").await?;
    assert_eq!(killed.exit_code, 137);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_started_says_why() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("echo text > /root/plain").await?;
    let cases = [
        (StartExec { argv: vec!["no-such-command".to_owned()], ..StartExec::default() }, ErrorCode::CommandNotFound),
        (StartExec { argv: vec!["/root/plain".to_owned()], ..StartExec::default() }, ErrorCode::NotExecutable),
        (StartExec { cwd: Some("/nowhere".to_owned()), ..shell("true") }, ErrorCode::CwdNotFound),
        (StartExec { user: Some("nobody-here".to_owned()), ..shell("true") }, ErrorCode::UserNotFound),
        (StartExec::default(), ErrorCode::BadRequest),
    ];
    for (request, code) in cases {
        let refused = daemon.client().run_exec("box", &request).await.expect_err("must be refused");
        assert_eq!(refused.code(), Some(code), "{refused}");
    }
    Ok(())
}

#[tokio::test]
async fn a_timeout_kills_the_whole_group() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let slow = StartExec { timeout: Some(Span::from(Duration::from_millis(300))), ..shell("sleep 1000 & sleep 1000") };
    let output = sandbox.run(&slow).await?;
    let ExecState::Exited { timed_out, .. } = output.exec.status else { panic!("still running") };
    assert!(timed_out);
    assert_eq!(sandbox.sh("pidof sleep").await?.stdout, "");
    Ok(())
}

#[tokio::test]
async fn input_signals_and_waiting() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let client = daemon.client();

    let reader = StartExec { stdin: true, ..shell("cat; echo done") };
    let exec = client.start_exec("box", &reader).await?;
    client.write_stdin("box", exec.id.as_str(), Upload::bytes("one\n"), false).await?;
    client.write_stdin("box", exec.id.as_str(), Upload::bytes("two\n"), true).await?;
    let ended = client.wait_exec("box", exec.id.as_str()).await?;
    assert!(matches!(ended.status, ExecState::Exited { exit_code: 0, .. }), "{ended:?}");
    assert_eq!(output_from(&client, &exec, 0).await?, b"one\ntwo\ndone\n");
    assert_eq!(output_from(&client, &exec, 4).await?, b"two\ndone\n");

    let exec = sandbox.spawn("trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done").await?;
    let mut session = client.attach_exec("box", exec.id.as_str(), Offsets::default()).await?;
    let mut text = String::new();
    while let Some(event) = session.next().await? {
        match event {
            ExecEvent::Output { stream: OutputStream::Stdout, bytes, .. } => {
                text += &String::from_utf8_lossy(&bytes);
                if text == "ready\n" {
                    client.signal_exec("box", exec.id.as_str(), "TERM").await?;
                }
            }
            ExecEvent::Exit(state) => assert!(matches!(state, ExecState::Exited { exit_code: 3, .. }), "{state:?}"),
            _ => {}
        }
    }
    assert_eq!(text, "ready\ncaught\n");
    Ok(())
}

#[tokio::test]
async fn a_terminal_has_a_size_that_changes() -> Result<()> {
    let daemon = Daemon::start().await?;
    let _sandbox = daemon.sandbox("box").await?;
    let client = daemon.client();
    let request = StartExec {
        pty: Some(TerminalSize { cols: 91, rows: 31 }),
        stdin: true,
        ..shell("tty; stty size; read line; stty size; echo got $line")
    };
    let mut session = client.open_exec("box", &request).await?;
    let mut text = String::new();
    while let Some(event) = session.next().await? {
        if let ExecEvent::Output { bytes, .. } = event {
            text += &String::from_utf8_lossy(&bytes);
            if text.contains("31 91") && !text.contains("hello") {
                session.resize(TerminalSize { cols: 100, rows: 40 }).await?;
                session.send_stdin(b"hello\n").await?;
            }
        }
    }
    assert!(text.contains("/dev/pts/"), "{text}");
    assert!(text.contains("40 100"), "{text}");
    assert!(text.contains("got hello"), "{text}");
    Ok(())
}

/// Reads an exec's standard output from `offset` for about `wanted` bytes; returns them.
async fn read_some(sandbox: &Sandbox, exec: &ExecView, offset: u64, wanted: usize) -> Result<Vec<u8>> {
    let mut session =
        sandbox.client().attach_exec(sandbox.name(), exec.id.as_str(), Offsets { stdout: offset, stderr: 0 }).await?;
    let mut bytes = Vec::new();
    while bytes.len() < wanted {
        match session.next().await?.context("the stream ended early")? {
            ExecEvent::Output { offset: at, bytes: part, .. } => {
                assert_eq!(at, offset + bytes.len() as u64, "a gap or a repeat");
                bytes.extend_from_slice(&part);
            }
            ExecEvent::Exit(_) => break,
            _ => {}
        }
    }
    Ok(bytes)
}

#[tokio::test]
async fn a_client_that_comes_back_misses_nothing() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let exec = sandbox.spawn("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done").await?;
    let mut all = Vec::new();
    loop {
        let part = read_some(&sandbox, &exec, all.len() as u64, 10_000).await?;
        if part.is_empty() {
            break;
        }
        all.extend_from_slice(&part);
    }
    let expected: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    assert!(all == expected.into_bytes(), "{} bytes came", all.len());
    Ok(())
}

#[tokio::test]
async fn an_exec_key_starts_one_process() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let request = shell("echo x >> /root/count; sleep 1000");
    let first = daemon.client().start_exec_once("box", &request, "job-1").await?;
    let second = daemon.client().start_exec_once("box", &request, "job-1").await?;
    assert_eq!(first.id, second.id);
    // It may be on its way still.
    sandbox.becomes_true("pidof sleep").await?;
    assert_eq!(sandbox.sh_ok("pidof sleep | wc -w").await?, "1");
    Ok(())
}

#[tokio::test]
async fn orphans_are_reaped() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("for i in 1 2 3 4 5 6 7 8; do (sleep 0.01 &) ; done; sleep 0.2").await?;
    let zombies = sandbox.sh_ok("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l").await?;
    assert_eq!(zombies, "0");
    Ok(())
}
