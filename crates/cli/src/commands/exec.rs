//! `roost exec`

use clap::Args;
use roost_client::{Client, ExecEvent, FollowedExec, Offsets};
use roost_model::{Span, StartExec, TerminalSize};

use crate::args::SandboxArg;
use crate::attach::{Remote, Wishes, attach};
use crate::commands::info::print_execs;
use crate::failure::hinted;
use crate::units::parse_env;
use crate::{output, terminal};

/// What a terminal has when nobody knows its size.
const USUAL_SIZE: TerminalSize = TerminalSize { cols: 80, rows: 24 };
/// The best shell there is.
const SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash -l; exec sh -l";

/// Run a command in a sandbox
///
/// The command's exit code becomes this command's. Its output is kept inside, so that the command goes on while the
/// daemon restarts or this side goes away; `--attach` comes back to it.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: the command's own; 125 Roost failed; 126 not executable; 127 not found; 130 interrupted.

Examples:
  roost exec box -- uname -a
  roost exec -it box                    a shell in a terminal
  roost exec -w /srv -u root -e A=1 box -- sh -c 'env; pwd'
  tar c . | roost exec -i box -- tar x -C /srv
  roost exec -d box -- make all         start it, print its id and leave
  roost exec --attach exe_… box         come back to it
  roost exec --ls box                   what runs and what ran")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// The command and its arguments; a shell if -t is given and nothing else
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    how: HowArgs,
    /// Start it, print its id and leave
    #[arg(short, long, conflicts_with_all = ["interactive", "tty", "attach", "ls"])]
    detach: bool,
    /// Come back to EXEC, with all its output that is kept
    #[arg(long, value_name = "EXEC", conflicts_with_all = ["command", "ls"])]
    attach: Option<String>,
    /// List what runs and what ran
    #[arg(long, conflicts_with = "command")]
    ls: bool,
    /// With --ls or -d, print JSON
    #[arg(long)]
    json: bool,
}

/// How a command runs; shared with `roost run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HowArgs {
    /// Pass standard input on
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give it a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Run it as USER, by name or number
    #[arg(short, long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Run it in DIR
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// Kill it after TIME, for example 10s
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,
    /// Set a variable for it; KEY alone takes the value it has here
    #[arg(short, long = "env", value_name = "KEY=VALUE", value_parser = parse_env)]
    pub(crate) env: Vec<(String, String)>,
}

impl HowArgs {
    /// What to start.
    pub(crate) fn start(&self, command: Vec<String>) -> anyhow::Result<StartExec> {
        let shell = match (command.is_empty(), self.tty) {
            (true, true) => Some(SHELL.to_owned()),
            (true, false) => {
                let hint = "write `roost exec box -- uname -a`, or `roost exec -it box` for a shell";
                return Err(hinted("no command was given", hint));
            }
            (false, _) => None,
        };
        let mut start = StartExec {
            argv: command,
            shell,
            login: false,
            env: self.env.iter().cloned().collect(),
            cwd: self.workdir.clone(),
            user: self.user.clone(),
            stdin: self.interactive,
            pty: self.tty.then(|| terminal::size().unwrap_or(USUAL_SIZE)),
            timeout: self.timeout,
            tag: None,
            wait: false,
        };
        if self.tty && !start.env.contains_key("TERM") {
            let term = std::env::var("TERM").unwrap_or_else(|_| "xterm-256color".to_owned());
            start.env.insert("TERM".to_owned(), term);
        }
        Ok(start)
    }

    pub(crate) fn wishes(&self) -> Wishes {
        Wishes { stdin: self.interactive, terminal: self.tty }
    }
}

pub(crate) async fn exec(client: &Client, wanted: ExecArgs) -> anyhow::Result<u8> {
    let sandbox = wanted.sandbox.sandbox.as_str();
    if wanted.ls {
        let execs = client.list_execs(sandbox).await?;
        if wanted.json {
            output::json(&execs)?
        } else {
            print_execs(&execs)?
        }
        return Ok(0);
    }
    if let Some(id) = &wanted.attach {
        let followed = client.follow_exec(sandbox, id, Offsets::default()).await?;
        return attach(Remote::Followed(Box::new(followed)), wanted.how.wishes()).await;
    }
    let start = wanted.how.start(wanted.command)?;
    if wanted.detach {
        let exec = client.start_exec(sandbox, &start).await?;
        if wanted.json {
            output::json(&exec)?
        } else {
            output::line(exec.id.as_str())?
        }
        return Ok(0);
    }
    let mut session = client.open_exec(sandbox, &start).await?;
    let Some(ExecEvent::Started(view)) = session.next().await? else {
        return Err(hinted("the daemon hung up before the command started", "was it stopped? see its log"));
    };
    let followed = FollowedExec::new(client, sandbox, view.id.as_str(), session);
    attach(Remote::Followed(Box::new(followed)), wanted.how.wishes()).await
}
