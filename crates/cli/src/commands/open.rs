//! `roost open`

use anyhow::Context;
use clap::Args;
use roost_client::Client;
use roost_model::{PortAccess, Span, parse_port};

use crate::args::SandboxArg;
use crate::output;

/// Show where a port is reached from outside, and decide who may
///
/// Ports are private: they take a token, or a link that is good for a time. Whatever reaches for a port wakes its sandbox.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost open web 3000                 print its address
  roost open web 3000 --link 1h       print a link that opens it for an hour
  roost open web 3000 --public        let everybody in who reaches the daemon
  roost open web 3000 --private       close it again, and take all links back")]
pub(crate) struct OpenArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Port that a server inside listens on
    #[arg(value_parser = parse_port)]
    port: u16,
    /// Let everybody in
    #[arg(long, conflicts_with_all = ["private", "link"])]
    public: bool,
    /// Let in only holders of a token or of a link that is made from now on
    #[arg(long)]
    private: bool,
    /// Print a link that lets whoever has it in for TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1h")]
    link: Option<Span>,
    /// Print only the address
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print everything, as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn open(client: &Client, wanted: OpenArgs) -> anyhow::Result<()> {
    let (name, port) = (wanted.sandbox.sandbox.as_str(), wanted.port);
    let view = match (wanted.public, wanted.private) {
        (true, _) => client.set_port(name, port, PortAccess::Public).await?,
        (_, true) => client.set_port(name, port, PortAccess::Private).await?,
        _ => client.port(name, port).await?,
    };
    let nowhere = "the daemon serves no HTTP (`--listen none`); `roost forward` brings the port here";
    if let Some(length) = wanted.link {
        let link = client.link_port(name, port, length).await?;
        if wanted.json {
            return output::json(&link);
        }
        output::line(link.url.context(nowhere)?)?;
        if !wanted.quiet {
            eprintln!("whoever has this link gets in until {:.0}", link.expires_at);
        }
        return Ok(());
    }
    if wanted.json {
        return output::json(&view);
    }
    output::line(view.url.context(nowhere)?)?;
    if !wanted.quiet {
        match view.access {
            PortAccess::Public => eprintln!("public: everybody gets in who reaches the daemon"),
            PortAccess::Private => eprintln!("private: takes a token; `--link 1h` makes a link, `--public` opens it"),
        }
    }
    Ok(())
}
