//! `roost open`

use std::io::IsTerminal;
use std::process::{Command, Stdio};

use anyhow::Context;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use roost_client::Client;
use roost_model::{PortAccess, Span, parse_port};

use crate::complete;
use crate::output;

/// Open the page in a browser, or show where a port is reached from outside and decide who may
///
/// Alone, it prints a link that logs one browser in to the page, once, within five minutes, and opens it where there is a
/// browser. Ports are private: they take a token, or a link that is good for a time. Whatever reaches for a port wakes its
/// sandbox.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost open                          print a link to the page, and open it
  roost open web 3000                 print the address of a port
  roost open web 3000 --link 1h       print a link that opens it for an hour
  roost open web 3000 --public        let everybody in who reaches the daemon
  roost open web 3000 --private       close it again, and take all links back")]
pub(crate) struct OpenArgs {
    /// Name, id or unique start of an id
    #[arg(value_name = "SANDBOX", requires = "port", add = ArgValueCompleter::new(complete::sandboxes))]
    sandbox: Option<String>,
    /// Port that a server inside listens on
    #[arg(value_parser = parse_port)]
    port: Option<u16>,
    /// Let everybody in
    #[arg(long, conflicts_with_all = ["private", "link"], requires = "port")]
    public: bool,
    /// Let in only holders of a token or of a link that is made from now on
    #[arg(long, requires = "port")]
    private: bool,
    /// Print a link that lets whoever has it in for TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1h", requires = "port")]
    link: Option<Span>,
    /// Print only the address, and open nothing
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print everything, as JSON
    #[arg(long)]
    json: bool,
}

const NOWHERE: &str = "the daemon serves no HTTP (`--listen none`)";

pub(crate) async fn open(client: &Client, wanted: OpenArgs) -> anyhow::Result<()> {
    match (&wanted.sandbox, wanted.port) {
        (Some(name), Some(port)) => open_port(client, name, port, &wanted).await,
        _ => open_page(client, &wanted).await,
    }
}

async fn open_page(client: &Client, wanted: &OpenArgs) -> anyhow::Result<()> {
    let link = client.make_login().await?;
    if wanted.json {
        return output::json(&link);
    }
    let url = link.url.context(NOWHERE)?;
    output::line(&url)?;
    if !wanted.quiet {
        eprintln!("this link logs one browser in, once, until {:.0}", link.expires_at);
        if std::io::stdout().is_terminal() {
            show_in_browser(&url);
        }
    }
    Ok(())
}

/// Best effort: the link is there to be clicked.
fn show_in_browser(url: &str) {
    let screen = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if !screen {
        return;
    }
    let quiet = || Stdio::null();
    // It is left to itself: some of these stay for as long as the browser does.
    drop(Command::new("xdg-open").arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn());
}

async fn open_port(client: &Client, name: &str, port: u16, wanted: &OpenArgs) -> anyhow::Result<()> {
    let view = match (wanted.public, wanted.private) {
        (true, _) => client.set_port(name, port, PortAccess::Public).await?,
        (_, true) => client.set_port(name, port, PortAccess::Private).await?,
        _ => client.port(name, port).await?,
    };
    let nowhere = || format!("{NOWHERE}; `roost forward` brings the port here");
    if let Some(length) = wanted.link {
        let link = client.link_port(name, port, length).await?;
        if wanted.json {
            return output::json(&link);
        }
        output::line(link.url.with_context(nowhere)?)?;
        if !wanted.quiet {
            eprintln!("whoever has this link gets in until {:.0}", link.expires_at);
        }
        return Ok(());
    }
    if wanted.json {
        return output::json(&view);
    }
    output::line(view.url.with_context(nowhere)?)?;
    if !wanted.quiet {
        match view.access {
            PortAccess::Public => eprintln!("public: everybody gets in who reaches the daemon"),
            PortAccess::Private => eprintln!("private: takes a token; `--link 1h` makes a link, `--public` opens it"),
        }
    }
    Ok(())
}
