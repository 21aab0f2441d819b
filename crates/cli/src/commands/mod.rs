//! The commands, one file each.

use roost_client::Client;

use crate::args::{Cli, Command, ConnectionArgs};
use crate::config::Loaded;
use crate::connection::connect;
use crate::failure::Interrupted;
use crate::{args, down, logging, serve, supervise};

pub(crate) mod alarm;
pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod checkpoint;
pub(crate) mod checkpoints;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod cp;
pub(crate) mod create;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod fork;
pub(crate) mod forward;
pub(crate) mod hold;
pub(crate) mod home;
pub(crate) mod info;
pub(crate) mod key;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod move_to;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod ps;
pub(crate) mod restore;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod service;
pub(crate) mod set;
pub(crate) mod stats;
pub(crate) mod suspend;
pub(crate) mod template;
pub(crate) mod token;
pub(crate) mod usage;
pub(crate) mod version;
pub(crate) mod wake;
pub(crate) mod why;

/// Does what was typed and returns the exit code.
pub(crate) async fn dispatch(cli: Cli) -> anyhow::Result<u8> {
    let connection = cli.connection;
    match cli.command {
        // These have their own idea of Ctrl-C.
        Some(Command::Serve(wanted)) => start_daemon(&connection, &wanted).await,
        Some(Command::Exec(wanted)) => exec::exec(&connect(&connection)?, wanted).await,
        Some(Command::Run(wanted)) => run::run(&connect(&connection)?, wanted).await,
        Some(Command::Batch(wanted)) => batch::batch(&connect(&connection)?, wanted).await,
        Some(Command::Bench(wanted)) => bench::bench(&connect(&connection)?, wanted).await.map(|()| 0),
        Some(Command::Demo(wanted)) => demo::demo(&connect(&connection)?, wanted).await.map(|()| 0),
        command => tokio::select! {
            done = short(command, &connection) => done,
            interrupted = tokio::signal::ctrl_c() => match interrupted {
                Ok(()) => Err(Interrupted.into()),
                Err(error) => Err(error.into()),
            },
        },
    }
}

/// The commands that Ctrl-C simply ends; what they hold is put away on the way out.
async fn short(command: Option<Command>, connection: &ConnectionArgs) -> anyhow::Result<u8> {
    let client = || -> anyhow::Result<Client> { Ok(connect(connection)?) };
    match command {
        None => home::home(&client()?).await?,
        Some(Command::Create(wanted)) => create::create(&client()?, wanted).await?,
        Some(Command::Ls(wanted)) => ls::ls(&client()?, wanted).await?,
        Some(Command::Info(wanted)) => info::info(&client()?, wanted).await?,
        Some(Command::Ps(wanted)) => ps::ps(&client()?, wanted).await?,
        Some(Command::Cp(wanted)) => cp::cp(&client()?, wanted).await?,
        Some(Command::Rm(wanted)) => rm::rm(&client()?, wanted).await?,
        Some(Command::Suspend(wanted)) => suspend::suspend(&client()?, wanted).await?,
        Some(Command::Wake(wanted)) => wake::wake(&client()?, wanted).await?,
        Some(Command::Hold(wanted)) => hold::hold(&client()?, wanted).await?,
        Some(Command::Alarm(wanted)) => alarm::alarm(&client()?, wanted).await?,
        Some(Command::Why(wanted)) => why::why(&client()?, wanted).await?,
        Some(Command::Usage(wanted)) => usage::usage(&client()?, wanted).await?,
        Some(Command::Set(wanted)) => set::set(&client()?, wanted).await?,
        Some(Command::Move(wanted)) => move_to::move_to(&client()?, wanted).await?,
        Some(Command::Checkpoint(wanted)) => checkpoint::checkpoint(&client()?, wanted).await?,
        Some(Command::Checkpoints(wanted)) => checkpoints::checkpoints(&client()?, wanted).await?,
        Some(Command::Restore(wanted)) => restore::restore(&client()?, wanted).await?,
        Some(Command::Diff(wanted)) => diff::diff(&client()?, wanted).await?,
        Some(Command::Fork(wanted)) => fork::fork(&client()?, wanted).await?,
        Some(Command::Open(wanted)) => open::open(&client()?, wanted).await?,
        Some(Command::Forward(wanted)) => forward::forward(&client()?, wanted).await?,
        Some(Command::Mcp(_)) => mcp::mcp(&client()?).await?,
        Some(Command::Events(wanted)) => events::events(&client()?, wanted).await?,
        Some(Command::Stats(wanted)) => stats::stats(&client()?, wanted).await?,
        Some(Command::Service(wanted)) => service::service(&client()?, wanted).await?,
        Some(Command::Pool(wanted)) => pool::pool(&client()?, wanted).await?,
        Some(Command::Template(wanted)) => template::template(&client()?, wanted).await?,
        Some(Command::Token(wanted)) => token::token(&client()?, wanted).await?,
        Some(Command::Key(wanted)) => key::key(&client()?, wanted).await?,
        Some(Command::Doctor(wanted)) => return doctor::doctor(&client()?, wanted).await,
        Some(Command::Down(wanted)) => {
            let settings = args::SettingArgs { data_dir: wanted.data_dir, ..Default::default() };
            down::down(load(&settings, connection)?.config).await?;
        }
        Some(Command::Config(wanted)) => config::config(&load(&wanted.settings, connection)?, wanted.json)?,
        Some(Command::Completion(wanted)) => completion::completion(wanted)?,
        Some(Command::Man(wanted)) => man::man(&wanted)?,
        Some(Command::Version) => version::version(&client()?).await?,
        // Handled above.
        Some(
            Command::Serve(_)
            | Command::Exec(_)
            | Command::Run(_)
            | Command::Batch(_)
            | Command::Bench(_)
            | Command::Demo(_),
        ) => {}
    }
    Ok(0)
}

async fn start_daemon(connection: &ConnectionArgs, wanted: &args::ServeArgs) -> anyhow::Result<u8> {
    let mut config = load(&wanted.settings, connection)?.config;
    config.stop_all = wanted.stop_all;
    logging::start(config.log);
    if wanted.supervise {
        let arguments = std::env::args_os().skip(1).filter(|argument| argument != "--supervise").collect();
        return supervise::supervise(&config.data_dir, arguments).await;
    }
    serve::serve(config).await.map(|()| 0)
}

fn load(settings: &args::SettingArgs, connection: &ConnectionArgs) -> anyhow::Result<Loaded> {
    let variable = |name: &str| std::env::var(name).ok();
    Ok(crate::config::load(settings, connection.socket.as_deref(), &variable)?)
}
