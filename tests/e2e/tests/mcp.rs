//! The official MCP client against the real daemon: by `roost mcp` and by HTTP.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Options, roost_binary};
use roost_model::{Access, Reach};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

fn python() -> PathBuf {
    let folder = std::env::var_os("ROOST_MCP_CLIENT").unwrap_or_else(|| "target/mcp".into());
    PathBuf::from(folder).join("bin/python")
}

/// Runs a module of `tests/e2e/mcp` against a daemon of its own; all of it must hold.
async fn holds(module: &str, base: bool) -> Result<()> {
    let program = python();
    ensure!(program.is_file(), "`{}` is not there: run scripts/python-packages", program.display());
    let daemon = Daemon::with(Options { tcp: true, base, ..Options::default() }).await?;
    let access = Access { reach: Reach::Prefix("agent-".to_owned()), at_most: Some(2), may_destroy: false };
    let limited = daemon.client().mint_limited_token("agent", access).await?.secret;
    let output = Command::new(&program)
        .args(["-X", "utf8", "-B", "-m", "unittest", "--verbose", module])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp"))
        .env("ROOST_BIN", roost_binary()?)
        .env("ROOST_SOCKET", daemon.socket())
        .env("ROOST_TEST_URL", format!("http://{}", daemon.address().context("no TCP address")?))
        .env("ROOST_TEST_TOKEN", daemon.client().mint_token("test").await?.secret)
        .env("ROOST_TEST_LIMITED", limited)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{module} does not hold: {said}\nthe daemon's log ends:\n{}", daemon.log_tail());
    Ok(())
}

#[tokio::test]
async fn a_scripted_agent_tries_goes_back_and_keeps_the_best() -> Result<()> {
    holds("test_agent", true).await
}

#[tokio::test]
async fn every_tool_works_and_says_what_is_wrong() -> Result<()> {
    holds("test_tools", false).await
}

#[tokio::test]
async fn without_a_daemon_it_says_so() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("nobody.sock");
    let output = Command::new(roost_binary()?).arg("mcp").env("ROOST_SOCKET", &socket).output().await?;
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.stdout.is_empty() && said.contains("nobody.sock") && said.contains("roost serve"), "{said}");
    Ok(())
}

#[tokio::test]
async fn what_was_asked_before_the_pipe_closed_is_answered() -> Result<()> {
    let daemon = Daemon::start().await?;
    let mut bridge = daemon.roost(&["mcp"]);
    let mut bridge = bridge.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut stdin = bridge.stdin.take().context("no pipe")?;
    let asked = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"by-hand","version":"1"}}}"#;
    stdin.write_all(format!("{asked}\n").as_bytes()).await?;
    drop(stdin);
    let output = bridge.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && said.contains(r#""name":"roost""#), "{} {said}", output.status);
    Ok(())
}
