//! What can be typed after `roost`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use roost_model::{
    Access, Capability, CreateSandbox, IdleRequest, Level, LimitsRequest, NetworkPolicy, OnTtl, Reach, Signal, Span,
};

use crate::commands;
use crate::complete;
use crate::units::{parse_pair, parse_size};

/// Give AI agents computers of their own.
///
/// A sandbox is a Linux computer that stays until you remove it. Run `roost` alone to see what is here and what to try
/// next.
#[derive(Debug, Parser)]
#[command(name = "roost", version, disable_help_subcommand = true, subcommand_required = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Where the daemon is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConnectionArgs {
    /// Use the daemon's unix socket at PATH [env: ROOST_SOCKET]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Connection")]
    pub(crate) socket: Option<PathBuf>,
    /// Use the daemon at URL, with a token [env: ROOST_URL]
    #[arg(long, global = true, value_name = "URL", help_heading = "Connection", conflicts_with = "socket")]
    pub(crate) url: Option<String>,
    /// Send the secret of a token [env: ROOST_TOKEN]
    #[arg(long, global = true, value_name = "SECRET", help_heading = "Connection", conflicts_with = "socket")]
    pub(crate) token: Option<String>,
    /// Trust the authorities in FILE (PEM) instead of the system's, with an https:// URL [env: ROOST_CA]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection", conflicts_with = "socket")]
    pub(crate) ca: Option<PathBuf>,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(commands::create::CreateArgs),
    Ls(commands::ls::LsArgs),
    Info(commands::info::InfoArgs),
    Exec(commands::exec::ExecArgs),
    Ps(commands::ps::PsArgs),
    Run(commands::run::RunArgs),
    Batch(commands::batch::BatchArgs),
    Cp(commands::cp::CpArgs),
    Rm(commands::rm::RmArgs),
    Suspend(commands::suspend::SuspendArgs),
    Wake(commands::wake::WakeArgs),
    Hold(commands::hold::HoldArgs),
    Alarm(commands::alarm::AlarmArgs),
    Why(commands::why::WhyArgs),
    Usage(commands::usage::UsageArgs),
    Set(commands::set::SetArgs),
    Move(commands::move_to::MoveArgs),
    Checkpoint(commands::checkpoint::CheckpointArgs),
    Checkpoints(commands::checkpoints::CheckpointsArgs),
    Restore(commands::restore::RestoreArgs),
    Diff(commands::diff::DiffArgs),
    Fork(commands::fork::ForkArgs),
    Open(commands::open::OpenArgs),
    Forward(commands::forward::ForwardArgs),
    Mcp(commands::mcp::McpArgs),
    Events(commands::events::EventsArgs),
    Stats(commands::stats::StatsArgs),
    /// Keep processes of a sandbox up: make, list, read, start, stop and remove services
    #[command(
        subcommand,
        after_help = "\
Examples:
  roost service put box web --port 8000 -- python3 -m http.server 8000
  roost service ls box
  roost service logs -f box web"
    )]
    Service(commands::service::ServiceCommand),
    /// List, import, build, promote and remove templates, from which sandboxes start
    #[command(
        subcommand,
        after_help = "\
Examples:
  roost template ls
  roost template build base
  roost template import mine ./rootfs.tar.gz
  roost template promote ckp_01… warm"
    )]
    Template(commands::template::TemplateCommand),
    /// Keep sandboxes of a template ready before anybody asks for them
    #[command(
        subcommand,
        after_help = "\
Examples:
  roost pool set base --min 2 --max 10
  roost pool ls"
    )]
    Pool(commands::pool::PoolCommand),
    /// Make, list and remove tokens, which programs need over HTTP
    #[command(
        subcommand,
        after_help = "\
Examples:
  roost token new ci
  roost token ls"
    )]
    Token(commands::token::TokenCommand),
    /// Let public keys in over SSH, list them and let them in no more
    #[command(
        subcommand,
        after_help = "\
Examples:
  roost key add ~/.ssh/id_ed25519.pub
  roost key add anna.pub --label team=a
  roost key ls"
    )]
    Key(commands::key::KeyCommand),
    Demo(commands::demo::DemoArgs),
    Doctor(commands::doctor::DoctorArgs),
    Bench(commands::bench::BenchArgs),
    Serve(ServeArgs),
    Down(DownArgs),
    Config(commands::config::ConfigArgs),
    Completion(commands::completion::CompletionArgs),
    #[command(hide = true)]
    Man(commands::man::ManArgs),
    /// Show the versions of this command and of the daemon
    Version,
}

/// How much is printed, and for whom.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ShowArgs {
    /// Print only ids
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print everything, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A sandbox that must exist.
#[derive(Debug, Clone, Args)]
pub(crate) struct SandboxArg {
    /// Name, id or unique start of an id
    #[arg(value_name = "SANDBOX", add = ArgValueCompleter::new(complete::sandboxes))]
    pub(crate) sandbox: String,
}

/// What a new sandbox is like.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NewSandboxArgs {
    /// Isolate it with ENGINE: `native`, `gvisor` or `auto`, the strongest that works here
    #[arg(long, value_name = "ENGINE", add = ArgValueCompleter::new(complete::engines))]
    pub(crate) engine: Option<String>,
    /// Give it N CPUs, for example 0.5
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) cpus: Option<f64>,
    /// Give it this much memory, for example 512m
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Limits")]
    pub(crate) memory: Option<u64>,
    /// Give it this much disk, for example 10g
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Limits")]
    pub(crate) disk: Option<u64>,
    /// Give it at most N processes and threads
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) pids: Option<u64>,
    /// Let its memory images take SIZE together: the one it sleeps in and those of its checkpoints
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Limits")]
    pub(crate) image_budget: Option<u64>,
    /// Give it TIME to live, for example 30m
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<Span>,
    #[command(flatten)]
    pub(crate) end: EndArgs,
    /// Put a label on it
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) label: Vec<(String, String)>,
    /// Cut it off from the network
    #[arg(long)]
    pub(crate) no_network: bool,
    #[command(flatten)]
    pub(crate) cap: CapArg,
    #[command(flatten)]
    pub(crate) idle: IdleArgs,
}

/// Capabilities beyond the usual ones.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CapArg {
    /// Give root inside Linux capabilities for the sandbox's whole life: `net-admin`, `net-raw`, both with a comma, or `none`
    #[arg(long, value_name = "CAPS", value_parser = Capability::parse_set, add = ArgValueCompleter::new(complete::capabilities))]
    pub(crate) cap: Option<BTreeSet<Capability>>,
}

/// What happens when a sandbox's time to live ends, and after.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct EndArgs {
    /// At the end of that time: delete it, or suspend it to disk or files, where it stays until `roost wake`
    #[arg(long, value_name = "WHAT")]
    pub(crate) on_ttl: Option<OnTtl>,
    /// Whether what needs it awake wakes it from a sleep that stays, too: true or false
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) auto_resume: Option<bool>,
}

/// When a sandbox sleeps by itself.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Sleep")]
pub(crate) struct IdleArgs {
    /// Let it sleep after TIME without activity, for example 15s; `never` keeps it awake
    #[arg(long, value_name = "TIME")]
    pub(crate) idle_after: Option<Span>,
    /// How deep it first sleeps: ram, disk or files
    #[arg(long, value_name = "LEVEL")]
    pub(crate) idle_to: Option<Level>,
    /// Let its memory go to disk after TIME asleep in RAM, for example 10m; `never` leaves it there
    #[arg(long, value_name = "TIME")]
    pub(crate) deepen_after: Option<Span>,
    /// Signals that shall not keep it awake: connections, execs, cpu, disk, network, outbound, holds, timer; `none` for
    /// none
    #[arg(long, value_name = "SIGNALS", value_parser = parse_signals)]
    pub(crate) idle_ignore: Option<Signals>,
}

/// Signals with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signals(Vec<Signal>);

fn parse_signals(text: &str) -> Result<Signals, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none");
    Ok(Signals(words.map(str::parse).collect::<Result<_, _>>()?))
}

impl IdleArgs {
    /// What these arguments ask for, if anything.
    pub(crate) fn request(&self) -> Option<IdleRequest> {
        let wanted = IdleRequest {
            after: self.idle_after,
            to: self.idle_to,
            deepen_after: self.deepen_after,
            ignore: self.idle_ignore.clone().map(|signals| signals.0),
        };
        (wanted != IdleRequest::default()).then_some(wanted)
    }
}

impl NewSandboxArgs {
    /// The request these arguments make.
    pub(crate) fn request(&self, name: Option<String>, template: Option<String>) -> CreateSandbox {
        let limits = LimitsRequest {
            cpus: self.cpus,
            memory: self.memory,
            disk: self.disk,
            pids: self.pids,
            images: self.image_budget,
        };
        CreateSandbox {
            name,
            template,
            from_checkpoint: None,
            engine: self.engine.clone(),
            ephemeral: false,
            limits: (limits != LimitsRequest::default()).then_some(limits),
            idle: self.idle.request(),
            ttl: self.ttl,
            on_ttl: self.end.on_ttl,
            auto_resume: self.end.auto_resume,
            port_access: None,
            env: BTreeMap::new(),
            labels: self.label.iter().cloned().collect::<BTreeMap<_, _>>(),
            services: BTreeMap::new(),
            network: self.no_network.then_some(NetworkPolicy { enabled: false }),
            capabilities: self.cap.cap.clone(),
        }
    }
}

/// Run the daemon in the foreground
///
/// Stopping it leaves sandboxes and their processes running; the next daemon finds them again.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Settings come from defaults, roost.toml in the data folder, ROOST_… variables and flags, the later over the earlier;
`roost config` shows which are in force.

Examples:
  roost serve
  roost serve --data-dir /srv/roost --listen none
  roost serve --listen 0.0.0.0:7077 --tls-cert cert.pem --tls-key key.pem --domain https://boxes.example.com:7077
  roost serve --stop-all          end every sandbox when the daemon is stopped
  roost serve --supervise         start the daemon again when it dies")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    /// End every sandbox when the daemon is stopped; disks stay
    #[arg(long)]
    pub(crate) stop_all: bool,
    /// Start the daemon again when it dies or stops answering, for hosts without a service manager
    #[arg(long)]
    pub(crate) supervise: bool,
}

/// Settings of the daemon that flags can change.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SettingArgs {
    /// Keep everything in DIR [default: /var/lib/roost] [env: ROOST_DATA_DIR]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Listen for HTTP on ADDR; `none` for the unix socket alone [default: 127.0.0.1:7077] [env: ROOST_LISTEN]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Speak TLS there, with the certificate in FILE (PEM, with what is between it and its authority)
    /// [env: ROOST_TLS_CERT]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM [env: ROOST_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Listen for SSH on ADDR; `none` for no SSH [default: 127.0.0.1:2222 with the default data folder, none with another]
    /// [env: ROOST_SSH_LISTEN]
    #[arg(long, value_name = "ADDR")]
    pub(crate) ssh_listen: Option<String>,
    /// Serve ports of sandboxes below DOMAIN [default: localhost:7077] [env: ROOST_DOMAIN]
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// Make sandboxes from TEMPLATE unless they ask for another [default: base] [env: ROOST_DEFAULT_TEMPLATE]
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) default_template: Option<String>,
    /// Isolate sandboxes with ENGINE unless they ask for another: `native`, `gvisor` or `auto`, the strongest that works here
    /// [default: native] [env: ROOST_DEFAULT_ENGINE]
    #[arg(long, value_name = "ENGINE", add = ArgValueCompleter::new(complete::engines))]
    pub(crate) default_engine: Option<String>,
    /// Let the pool of disks grow to SIZE [env: ROOST_POOL_SIZE]
    #[arg(long, value_name = "SIZE")]
    pub(crate) pool_size: Option<String>,
    /// Let large sandboxes run before all their memory is read: `on` or `off` [default: on] [env: ROOST_LAZY_PAGES]
    #[arg(long, value_name = "SWITCH")]
    pub(crate) lazy_pages: Option<String>,
    /// Write the log as `text` or `json` [default: text] [env: ROOST_LOG]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log: Option<String>,
}

/// Stop the daemon and everything that runs; keep all data
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Example:
  roost down                      sandboxes keep their files; the next `roost serve` starts them again")]
pub(crate) struct DownArgs {
    /// Stop the daemon of DIR [default: /var/lib/roost] [env: ROOST_DATA_DIR]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// What a token or a key is good for.
#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    /// Only sandboxes whose name starts with this, and make only such
    #[arg(long, conflicts_with_all = ["label", "sandbox"])]
    prefix: Option<String>,
    /// Only sandboxes with this label; those it makes get it
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = parse_pair, conflicts_with = "sandbox")]
    label: Option<(String, String)>,
    /// Only this sandbox, by name or id; it makes no others
    #[arg(long, value_name = "NAME")]
    sandbox: Option<String>,
    /// So many sandboxes made by it may be there at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    at_most: Option<u32>,
    /// End no sandbox, take none back to a checkpoint, remove no checkpoint
    #[arg(long)]
    no_destroy: bool,
}

impl AccessArgs {
    pub(crate) fn access(self) -> Access {
        let reach = match (self.prefix, self.label, self.sandbox) {
            (Some(prefix), ..) => Reach::Prefix(prefix),
            (None, Some((key, value)), _) => Reach::Label { key, value },
            (None, None, Some(sandbox)) => Reach::Sandbox(sandbox),
            (None, None, None) => Reach::All,
        };
        Access { reach, at_most: self.at_most, may_destroy: !self.no_destroy }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_first_line_and_examples() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.starts_with(char::is_uppercase), "{name}: {about}");
            if name != "version" {
                let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(after.contains("Example"), "{name} shows no example");
            }
        }
    }

    #[test]
    fn a_command_takes_everything_after_its_name() {
        let parse = |line: &[&str]| Cli::try_parse_from([&["roost"], line].concat()).unwrap().command.unwrap();
        for line in [&["exec", "box", "--", "ls", "-la"][..], &["exec", "-i", "box", "ls", "-la"]] {
            let Command::Exec(exec) = parse(line) else { panic!("{line:?}") };
            assert_eq!(exec.command, ["ls", "-la"]);
        }
        let Command::Run(run) = parse(&["run", "mini", "--memory", "64m", "--", "sh", "-c", "exit 3"]) else {
            panic!()
        };
        assert_eq!((run.template.as_deref(), run.new.memory), (Some("mini"), Some(64 << 20)));
        assert_eq!(run.command, ["sh", "-c", "exit 3"]);
        let Command::Run(run) = parse(&["run", "--", "true"]) else { panic!() };
        assert_eq!((run.template, run.command), (None, vec!["true".to_owned()]));
    }

    #[test]
    fn a_service_takes_everything_after_the_dashes() {
        use commands::service::ServiceCommand;
        let parse = |line: &[&str]| Cli::try_parse_from([&["roost", "service"], line].concat()).map(|cli| cli.command);
        let line =
            ["put", "box", "web", "--port", "80", "--needs", "a,b", "--restart", "on-failure", "--", "x", "--port"];
        let Ok(Some(Command::Service(ServiceCommand::Put(put)))) = parse(&line) else { panic!() };
        assert_eq!((put.port, put.needs.len(), put.command), (Some(80), 2, vec!["x".to_owned(), "--port".to_owned()]));
        let Ok(Some(Command::Service(ServiceCommand::Logs(logs)))) = parse(&["logs", "-f", "box", "web"]) else {
            panic!()
        };
        assert!(logs.follow);
        for line in [
            &["put", "box", "web"][..],
            &["put", "box", "web", "-p", "0", "--", "x"],
            &["logs", "box"],
            &["ls"],
            &["rm"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn when_it_sleeps_is_said_in_a_few_words() {
        let line = ["create", "--idle-after", "1m", "--idle-to", "disk", "--idle-ignore", "cpu,network"];
        let cli = Cli::try_parse_from([&["roost"], &line[..]].concat()).unwrap();
        let Some(Command::Create(create)) = cli.command else { panic!() };
        let idle = create.new.idle.request().unwrap();
        assert_eq!((idle.after, idle.to, idle.deepen_after), (Some(Span::seconds(60)), Some(Level::Disk), None));
        assert_eq!(idle.ignore, Some(vec![Signal::Cpu, Signal::Network]));
        assert_eq!(parse_signals("none"), Ok(Signals(Vec::new())));
        assert!(parse_signals("cpu,noise").unwrap_err().contains("noise"));
        assert_eq!(IdleArgs::default().request(), None);
    }

    #[test]
    fn checkpoints_are_made_and_seen_to_by_one_word() {
        use commands::checkpoint::CheckpointCommand;
        let parse = |line: &[&str]| Cli::try_parse_from([&["roost"], line].concat()).map(|cli| cli.command.unwrap());
        let Ok(Command::Checkpoint(make)) = parse(&["checkpoint", "box", "--files-only"]) else { panic!() };
        assert_eq!((make.sandbox.as_deref(), make.files_only, make.command.is_none()), (Some("box"), true, true));
        let Ok(Command::Checkpoint(see)) = parse(&["checkpoint", "rm", "ckp_1", "ckp_2"]) else { panic!() };
        assert!(matches!(see.command, Some(CheckpointCommand::Rm(which)) if which.checkpoints == ["ckp_1", "ckp_2"]));
        let Ok(Command::Checkpoint(see)) = parse(&["checkpoint", "diff", "ckp_1", "ckp_2"]) else { panic!() };
        assert!(matches!(see.command, Some(CheckpointCommand::Diff(_))));
        for line in
            [&["checkpoint"][..], &["checkpoints"], &["checkpoint", "rm"], &["diff", "ckp_1"], &["restore", "box"]]
        {
            assert!(parse(line).is_err(), "{line:?}");
        }
        assert!(parse(&["checkpoints", "rm", "ckp_1"]).is_ok());
        assert!(parse(&["suspend", "box", "--to", "deep"]).is_err());
        assert!(parse(&["create", "--from", "ckp_1", "-t", "base"]).is_err());
        let Ok(Command::Fork(fork)) = parse(&["fork", "box", "-n", "3", "--names", "a,b"]) else { panic!() };
        assert_eq!((fork.count, fork.names), (Some(3), vec!["a".to_owned(), "b".to_owned()]));
    }
}
