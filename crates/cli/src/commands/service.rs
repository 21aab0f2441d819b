//! `roost service`

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use roost_client::{Client, ClientError};
use roost_model::{ErrorCode, Name, RestartPolicy, ServiceSpec, ServiceState, ServiceView, Span, StartPolicy};

use crate::args::{SandboxArg, ShowArgs};
use crate::complete;
use crate::failure::hinted;
use crate::output::{self, Columns, Palette, shortened};
use crate::units::{parse_env, show_age};

const RETRY: Duration = Duration::from_millis(250);
/// About a minute, as long as an attached command waits for its daemon.
const MOST_RETRIES: u32 = 240;
/// Of a command that is longer, the beginning is shown.
const LONGEST_COMMAND: usize = 40;

/// What to do with services.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    Put(PutArgs),
    /// List the services of a sandbox; -q prints their names
    #[command(after_help = "\
Example:
  roost service ls box")]
    Ls {
        #[command(flatten)]
        sandbox: SandboxArg,
        #[command(flatten)]
        show: ShowArgs,
    },
    Logs(LogsArgs),
    /// Start a service and wait until it is up
    #[command(after_help = "\
Example:
  roost service start box web     also one that was stopped, or that waits after a crash")]
    Start(OneArgs),
    /// Stop a service; it stays down until it is started again
    #[command(after_help = "\
Example:
  roost service stop box web      through every sleep of its sandbox")]
    Stop(OneArgs),
    /// Stop a service, start it again and wait until it is up
    #[command(after_help = "\
Example:
  roost service restart box web")]
    Restart(OneArgs),
    /// Stop a service, forget it and remove its log
    #[command(after_help = "\
Example:
  roost service rm box web")]
    Rm(OneArgs),
}

/// Make a service, or put it in the place of one of its name
///
/// The sandbox starts it, starts it again when it ends, and starts it when it wakes from files. Its output goes to its
/// log. A command that stays in the foreground is a good service; one that goes to the background is not.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost service put box web --port 8000 -- python3 -m http.server 8000
  roost service put box app --needs db,web -e DEBUG=1 -w /srv -- ./app
  roost service put box docs --port 9000 --on-demand -- ./serve-docs 9000
  roost service put box job --restart on-failure -- sh -c './job && echo done'")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    one: ServiceArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// The TCP port it listens on once it is up
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Set a variable for it; KEY alone takes the value it has here
    #[arg(short, long = "env", value_name = "KEY=VALUE", value_parser = parse_env)]
    env: Vec<(String, String)>,
    /// Start it after these services are up
    #[arg(long, value_name = "SERVICE", value_delimiter = ',')]
    pub(crate) needs: Vec<Name>,
    /// Start it again when it ends
    #[arg(long, value_enum, value_name = "WHEN", default_value = "always")]
    restart: RestartArg,
    /// Run it as USER, by name or number
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    /// Run it in DIR
    #[arg(short = 'w', long = "cwd", visible_alias = "workdir", value_name = "DIR")]
    cwd: Option<String>,
    /// Start it only when something asks for its port, or needs it
    #[arg(long)]
    on_demand: bool,
    /// Kill it if it takes longer than TIME to stop
    #[arg(long, value_name = "TIME", default_value = "10s")]
    stop_timeout: Span,
    #[command(flatten)]
    show: ShowArgs,
}

/// When a service is started again.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RestartArg {
    Always,
    OnFailure,
    Never,
}

/// Print a service's log
///
/// Both of its streams in one, over all its restarts; the oldest parts of a long log are gone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost service logs box web
  roost service logs -f box web           until Ctrl-C, or the service is removed")]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    one: ServiceArgs,
    /// Go on with what it writes from now on
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Start at this byte of all it ever wrote
    #[arg(long, value_name = "BYTE")]
    offset: Option<u64>,
}

/// One service, and how its state is printed.
#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    #[command(flatten)]
    one: ServiceArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// A service of a sandbox.
#[derive(Debug, Args)]
struct ServiceArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Name of the service
    #[arg(value_name = "SERVICE", add = ArgValueCompleter::new(complete::services))]
    service: String,
}

impl ServiceArgs {
    fn names(&self) -> (&str, &str) {
        (&self.sandbox.sandbox, &self.service)
    }
}

pub(crate) async fn service(client: &Client, wanted: ServiceCommand) -> anyhow::Result<()> {
    match wanted {
        ServiceCommand::Put(wanted) => {
            let (sandbox, name) = wanted.one.names();
            let view = client.put_service(sandbox, name, &wanted.spec()).await?;
            show_one(&view, wanted.show)
        }
        ServiceCommand::Ls { sandbox, show } => ls(client, &sandbox.sandbox, show).await,
        ServiceCommand::Logs(wanted) => logs(client, &wanted).await,
        ServiceCommand::Start(wanted) => {
            let (sandbox, name) = wanted.one.names();
            show_one(&client.start_service(sandbox, name).await?, wanted.show)
        }
        ServiceCommand::Stop(wanted) => {
            let (sandbox, name) = wanted.one.names();
            show_one(&client.stop_service(sandbox, name).await?, wanted.show)
        }
        ServiceCommand::Restart(wanted) => {
            let (sandbox, name) = wanted.one.names();
            show_one(&client.restart_service(sandbox, name).await?, wanted.show)
        }
        ServiceCommand::Rm(wanted) => {
            let (sandbox, name) = wanted.one.names();
            client.delete_service(sandbox, name).await?;
            if wanted.show.json { output::json(&serde_json::json!({})) } else { Ok(output::line(name)?) }
        }
    }
}

impl PutArgs {
    fn spec(&self) -> ServiceSpec {
        ServiceSpec {
            argv: self.command.clone(),
            shell: None,
            env: self.env.iter().cloned().collect(),
            cwd: self.cwd.clone(),
            user: self.user.clone(),
            port: self.port,
            needs: self.needs.clone(),
            restart: match self.restart {
                RestartArg::Always => RestartPolicy::Always,
                RestartArg::OnFailure => RestartPolicy::OnFailure,
                RestartArg::Never => RestartPolicy::Never,
            },
            start: if self.on_demand { StartPolicy::OnDemand } else { StartPolicy::Auto },
            stop_timeout: self.stop_timeout,
        }
    }
}

/// Reads `NAME=COMMAND`, a service whose command is a line for the shell.
pub(crate) fn parse_service(text: &str) -> Result<(Name, ServiceSpec), String> {
    let wrong = || format!("`{text}` is not of the form NAME=COMMAND");
    let (name, line) = text.split_once('=').filter(|(_, line)| !line.is_empty()).ok_or_else(wrong)?;
    let name: Name = name.parse().map_err(|error| format!("{error}"))?;
    Ok((name, ServiceSpec { shell: Some(line.to_owned()), ..ServiceSpec::default() }))
}

fn show_one(view: &ServiceView, show: ShowArgs) -> anyhow::Result<()> {
    if show.json {
        return output::json(view);
    }
    if show.quiet {
        return Ok(output::line(view.name.as_str())?);
    }
    let palette = Palette::stdout();
    let why = view.reason.as_deref().map_or_else(String::new, |why| format!("  {}", output::printable(why)));
    Ok(output::line(format!("{}  {}{}", palette.bold(view.name.as_str()), view.state, palette.dim(&why)))?)
}

async fn ls(client: &Client, sandbox: &str, show: ShowArgs) -> anyhow::Result<()> {
    let services = client.list_services(sandbox).await?;
    if show.json {
        return output::json(&services);
    }
    if show.quiet {
        // A service's name is what every command takes.
        for service in &services {
            output::line(service.name.as_str())?;
        }
        return Ok(());
    }
    if services.is_empty() {
        eprintln!("no services; `roost service put {sandbox} NAME -- COMMAND` makes one");
        return Ok(());
    }
    Ok(table(&services, Timestamp::now()).print()?)
}

fn table(services: &[ServiceView], now: Timestamp) -> Columns {
    let titles = ["NAME", "STATE", "SINCE", "PID", "PORT", "RESTARTS", "NEEDS", "COMMAND", "REASON"];
    let mut columns = Columns::new(&titles, &["SINCE", "PID", "PORT", "RESTARTS"]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for service in services {
        let spec = &service.spec;
        let needs: Vec<&str> = spec.needs.iter().map(Name::as_str).collect();
        let asked = spec.start == StartPolicy::OnDemand && service.state == ServiceState::Stopped;
        let reason = service.reason.clone().or_else(|| asked.then(|| "starts on demand".to_owned()));
        columns.row([
            service.name.to_string(),
            service.state.to_string(),
            or_dash(service.since.map(|since| show_age(since, now))),
            or_dash(service.pid.map(|pid| pid.to_string())),
            or_dash(spec.port.map(|port| port.to_string())),
            service.restarts.to_string(),
            or_dash(Some(needs.join(",")).filter(|text| !text.is_empty())),
            shortened(&spec.shell.clone().unwrap_or_else(|| spec.argv.join(" ")), LONGEST_COMMAND),
            reason.unwrap_or_default(),
        ]);
    }
    columns
}

async fn logs(client: &Client, wanted: &LogsArgs) -> anyhow::Result<()> {
    let (sandbox, name) = wanted.one.names();
    let mut offset = wanted.offset.unwrap_or(0);
    let mut retries = 0;
    loop {
        let told = pass_on(client, (sandbox, name), &mut offset, wanted).await;
        match told {
            Ok(()) if !wanted.follow => return Ok(()),
            // A log that ends is one of a service that is gone, or of a daemon that leaves: the next answer tells.
            Ok(()) => {}
            Err(Told::Client(error)) if wanted.follow && error.is_retryable() && retries < MOST_RETRIES => {}
            Err(Told::Client(error))
                if wanted.follow && error.code() == Some(ErrorCode::ServiceNotFound) && offset > 0 =>
            {
                return Ok(());
            }
            Err(Told::Client(error)) => return Err(error.into()),
            Err(Told::Output(error)) => return Err(error.into()),
        }
        retries += 1;
        tokio::time::sleep(RETRY).await;
    }
}

/// Why a log could not be passed on.
enum Told {
    Client(ClientError),
    Output(std::io::Error),
}

/// Prints a log from an offset to its end, or to the end of the connection.
async fn pass_on(client: &Client, names: (&str, &str), offset: &mut u64, wanted: &LogsArgs) -> Result<(), Told> {
    let mut log = client.service_logs(names.0, names.1, *offset, wanted.follow).await.map_err(Told::Client)?;
    if let Some((from, to)) = log.gap().filter(|_| wanted.offset.is_some() || *offset > 0) {
        eprintln!("roost: bytes {from} to {to} of the log are no longer kept");
    }
    *offset = log.offset().unwrap_or(*offset);
    while let Some(piece) = log.chunk().await.map_err(Told::Client)? {
        let mut out = std::io::stdout().lock();
        out.write_all(&piece).and_then(|()| out.flush()).map_err(Told::Output)?;
        *offset += piece.len() as u64;
    }
    Ok(())
}

/// The services that `create` was told of, each under one name.
pub(crate) fn collect(
    services: Vec<(Name, ServiceSpec)>,
) -> anyhow::Result<std::collections::BTreeMap<Name, ServiceSpec>> {
    let count = services.len();
    let by_name: std::collections::BTreeMap<_, _> = services.into_iter().collect();
    if by_name.len() < count {
        return Err(hinted("two services have the same name", "give each a name of its own"));
    }
    Ok(by_name)
}

#[cfg(test)]
mod tests {
    use roost_model::{LogRange, ServiceExit};

    use super::*;

    #[test]
    fn a_table_says_how_each_stands() {
        let view = |name: &str, state, reason: Option<&str>| ServiceView {
            name: name.parse().unwrap(),
            state,
            pid: (state == ServiceState::Running).then_some(42),
            since: Some(Timestamp::UNIX_EPOCH),
            restarts: 3,
            last_exit: Some(ServiceExit { exit_code: 1, signal: None, at: Timestamp::UNIX_EPOCH }),
            reason: reason.map(str::to_owned),
            log: LogRange::default(),
            spec: ServiceSpec {
                argv: vec!["serve".to_owned(), "x".repeat(50)],
                port: Some(80),
                start: StartPolicy::OnDemand,
                ..ServiceSpec::default()
            },
        };
        let services = [
            view("db", ServiceState::Running, None),
            view("docs", ServiceState::Stopped, None),
            view("web", ServiceState::Backoff, Some("ended with code 1")),
        ];
        let lines = table(&services, Timestamp::from_second(60).unwrap()).lines();
        assert!(lines[1].starts_with("db    running     1m   42    80         3  -"), "{}", lines[1]);
        assert!(lines[1].contains("serve xxxxx") && lines[1].contains('…'), "{}", lines[1]);
        assert!(lines[2].ends_with("starts on demand"), "{}", lines[2]);
        assert!(lines[3].ends_with("ended with code 1"), "{}", lines[3]);
    }

    #[test]
    fn a_short_service_is_a_name_and_a_line() {
        let (name, spec) = parse_service("web=serve --x=1").unwrap();
        assert_eq!((name.as_str(), spec.shell.as_deref()), ("web", Some("serve --x=1")));
        for wrong in ["web", "web=", "=serve", "We b=serve"] {
            assert!(parse_service(wrong).is_err(), "{wrong}");
        }
        assert!(collect(vec![parse_service("a=b").unwrap(), parse_service("a=c").unwrap()]).is_err());
    }
}
