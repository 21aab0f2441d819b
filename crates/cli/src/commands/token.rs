//! `roost token`

use clap::Subcommand;
use jiff::Timestamp;
use roost_client::Client;

use crate::args::{AccessArgs, ShowArgs};
use crate::output::{self, Columns};
use crate::units::show_age;

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print its secret, this once
    #[command(after_help = "\
Examples:
  export ROOST_URL=http://127.0.0.1:7077 ROOST_TOKEN=$(roost token new ci -q)
  roost token new agent --prefix agent- --at-most 5 --no-destroy
  roost token new team-a --label team=a
  roost token new deploy --sandbox web")]
    New {
        /// What it is for
        name: String,
        #[command(flatten)]
        limits: AccessArgs,
        /// Print only the secret
        #[arg(short, long, conflicts_with = "json")]
        quiet: bool,
        /// Print everything, as JSON
        #[arg(long)]
        json: bool,
    },
    /// List tokens, without their secrets
    #[command(after_help = "\
Example:
  roost token ls")]
    Ls {
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Make tokens worthless
    #[command(after_help = "\
Example:
  roost token rm tok_01…")]
    Rm {
        /// Ids of tokens
        #[arg(required = true, value_name = "TOKEN")]
        ids: Vec<String>,
    },
}

pub(crate) async fn token(client: &Client, wanted: TokenCommand) -> anyhow::Result<()> {
    match wanted {
        TokenCommand::New { name, limits, quiet, json } => {
            let new = client.mint_limited_token(&name, limits.access()).await?;
            if json {
                return output::json(&new);
            }
            output::line(&new.secret)?;
            if !quiet {
                eprintln!("this is the secret of {} (`{}`); it is not shown again", new.token.id, new.token.name);
                eprintln!("it is good for {}", new.token.access);
            }
        }
        TokenCommand::Ls { show } => {
            let tokens = client.list_tokens().await?;
            if show.json {
                return output::json(&tokens);
            }
            if show.quiet {
                for token in &tokens {
                    output::line(token.id.as_str())?;
                }
                return Ok(());
            }
            let now = Timestamp::now();
            let mut columns = Columns::new(&["TOKEN", "NAME", "AGE", "GOOD FOR"], &["AGE"]);
            for token in tokens {
                let age = show_age(token.created_at, now);
                columns.row([token.id.to_string(), token.name, age, token.access.to_string()]);
            }
            columns.print()?;
        }
        TokenCommand::Rm { ids } => {
            for id in ids {
                client.revoke_token(&id).await?;
                output::line(id)?;
            }
        }
    }
    Ok(())
}
