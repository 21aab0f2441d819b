//! `roost mcp`

use anyhow::Context;
use clap::Args;
use roost_client::Client;
use tokio::io::{AsyncWriteExt, copy, split, stdin, stdout};

/// Serve agents by MCP on standard input and output
///
/// An agent's program starts this and speaks the Model Context Protocol with it. The server itself is in the daemon, which must
/// run; ROOST_URL and ROOST_TOKEN reach one elsewhere, and a limited token limits the agent.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  claude mcp add roost -- roost mcp
  ROOST_URL=http://127.0.0.1:7077 ROOST_TOKEN=$(roost token new agent --prefix agent- -q) roost mcp")]
pub(crate) struct McpArgs {}

/// Carries messages between a client's pipes and the daemon's MCP server, until one of them leaves.
pub(crate) async fn mcp(client: &Client) -> anyhow::Result<()> {
    let line = client.connect_mcp().await.context("the MCP server is a part of the daemon")?;
    let (mut from_daemon, mut to_daemon) = split(line);
    let asking = async {
        copy(&mut stdin(), &mut to_daemon).await.context("failed to pass a message on")?;
        // What is still being answered is waited for.
        to_daemon.shutdown().await.context("failed to say that no more is asked")?;
        std::future::pending::<anyhow::Result<()>>().await
    };
    let answering = async {
        let mut out = stdout();
        copy(&mut from_daemon, &mut out).await.context("failed to pass an answer on")?;
        out.flush().await.context("failed to pass an answer on")
    };
    tokio::select! {
        outcome = asking => outcome,
        outcome = answering => outcome,
    }
}
