//! `roost forward`

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use roost_client::Client;
use roost_model::parse_port;
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::args::SandboxArg;
use crate::output;

/// Bring ports of a sandbox to this computer
///
/// Each connection to the local port becomes one to the sandbox's, whatever it speaks. A sleeping sandbox is woken by the
/// first connection. Runs until it is interrupted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost forward db 5432               127.0.0.1:5432 leads to port 5432 of db
  roost forward db 5432:15432 6379    two ports, the first at 127.0.0.1:15432
  roost forward db 5432:0             at a free port, which is printed")]
pub(crate) struct ForwardArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Port inside, and the local one if it is another; 0 takes a free one
    #[arg(required = true, value_name = "PORT[:LOCAL]")]
    ports: Vec<Pair>,
    /// Print only local addresses
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print a JSON object for each port
    #[arg(long)]
    json: bool,
}

/// A port inside and the local one that leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    inside: u16,
    local: u16,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| parse_port(text).map_err(|error| error.to_string());
        match text.split_once(':') {
            None => port(text).map(|both| Self { inside: both, local: both }),
            Some((inside, "0")) => Ok(Self { inside: port(inside)?, local: 0 }),
            Some((inside, local)) => Ok(Self { inside: port(inside)?, local: port(local)? }),
        }
    }
}

#[derive(Serialize)]
struct Forwarded<'a> {
    sandbox: &'a str,
    port: u16,
    local: SocketAddr,
}

pub(crate) async fn forward(client: &Client, wanted: ForwardArgs) -> anyhow::Result<()> {
    // A name that does not exist, or a daemon that does not answer, is told now and not to the first who connects.
    let sandbox = client.sandbox(&wanted.sandbox.sandbox).await?;
    let mut listeners = Vec::new();
    for pair in &wanted.ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, pair.local)).await.with_context(|| {
            format!("failed to listen on 127.0.0.1:{}; choose another: `{}:LOCAL`", pair.local, pair.inside)
        })?;
        listeners.push((listener, pair.inside));
    }
    let mut serving = JoinSet::new();
    for (listener, port) in listeners {
        let local = listener.local_addr()?;
        if wanted.json {
            let forwarded = Forwarded { sandbox: sandbox.id.as_str(), port, local };
            output::line(serde_json::to_string(&forwarded)?)?;
        } else if wanted.quiet {
            output::line(local.to_string())?;
        } else {
            output::line(format!("{local} -> {} port {port}", sandbox.name))?;
        }
        serving.spawn(serve(client.clone(), sandbox.id.to_string(), port, listener));
    }
    while let Some(ended) = serving.join_next().await {
        ended??;
    }
    Ok(())
}

async fn serve(client: Client, sandbox: String, port: u16, listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await.context("failed to accept a connection")?;
        let (client, sandbox) = (client.clone(), sandbox.clone());
        tokio::spawn(async move {
            // Told before the connection is closed, so that whoever notices that finds the reason.
            if let Err(error) = carry(&client, &sandbox, port, &mut stream).await {
                eprintln!("port {port}: {error:#}");
            }
        });
    }
}

async fn carry(client: &Client, sandbox: &str, port: u16, stream: &mut TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut tunnel = client.connect_port(sandbox, port).await?;
    // How a connection breaks is the business of those who speak on it.
    tokio::io::copy_bidirectional(stream, &mut tunnel).await.map(drop).or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read() {
        let pair = |text: &str| text.parse::<Pair>().map(|pair| (pair.inside, pair.local));
        assert_eq!(pair("5432"), Ok((5432, 5432)));
        assert_eq!(pair("5432:15432"), Ok((5432, 15432)));
        assert_eq!(pair("5432:0"), Ok((5432, 0)));
        for wrong in ["", "0", "x", "1:", ":1", "1:2:3", "65536", "1:70000"] {
            assert!(pair(wrong).is_err(), "{wrong}");
        }
    }
}
