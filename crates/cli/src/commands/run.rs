//! `roost run`

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use roost_client::{Client, ExecEvent};
use roost_model::RunRequest;

use crate::args::NewSandboxArgs;
use crate::attach::{Remote, attach};
use crate::commands::exec::HowArgs;
use crate::complete;
use crate::failure::{INTERRUPTED, hinted};

/// Run one command in a sandbox of its own that is gone afterwards
///
/// Nothing is left behind however it ends: the command's end, Ctrl-C (twice if the command does not listen to the
/// first), or a lost connection.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: the command's own; 125 Roost failed; 126 not executable; 127 not found; 130 interrupted.

Examples:
  roost run -- uname -a
  roost run base -- python -c 'print(1)'
  roost run mini --memory 64m --no-network --timeout 10s -- sh -c 'exit 3'
  roost run base --cap net-admin -- sudo ip addr add 192.0.2.1/32 dev lo
  roost run -it base -- bash
  cat data.csv | roost run -i base -- sort")]
pub(crate) struct RunArgs {
    /// Start from TEMPLATE; the daemon's default otherwise
    #[arg(add = ArgValueCompleter::new(complete::templates))]
    pub(crate) template: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) new: NewSandboxArgs,
    #[command(flatten)]
    how: HowArgs,
}

pub(crate) async fn run(client: &Client, wanted: RunArgs) -> anyhow::Result<u8> {
    let mut sandbox = wanted.new.request(None, wanted.template);
    sandbox.ephemeral = true;
    let request = RunRequest { sandbox, exec: wanted.how.start(wanted.command)? };
    let mut session = tokio::select! {
        session = client.open_run(&request) => session?,
        interrupted = tokio::signal::ctrl_c() => return leave(interrupted),
    };
    loop {
        let event = tokio::select! {
            event = session.next() => event?,
            // Hanging up ends the sandbox.
            interrupted = tokio::signal::ctrl_c() => return leave(interrupted),
        };
        match event {
            Some(ExecEvent::Started(_)) => break,
            Some(_) => {}
            None => {
                return Err(hinted("the daemon hung up before the command started", "was it stopped? see its log"));
            }
        }
    }
    attach(Remote::Once(Box::new(session)), wanted.how.wishes()).await
}

fn leave(interrupted: std::io::Result<()>) -> anyhow::Result<u8> {
    interrupted?;
    Ok(INTERRUPTED)
}
