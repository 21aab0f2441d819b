//! `roost` alone: what is here and what to try next.

use roost_client::{Client, ClientError, SandboxFilter};
use roost_model::State;

use crate::output::{self, Palette};

pub(crate) async fn home(client: &Client) -> anyhow::Result<()> {
    let palette = Palette::stdout();
    output::line(format!("{} gives AI agents computers of their own.", palette.bold("Roost")))?;
    output::line("")?;
    let sandboxes = match client.all_sandboxes(&SandboxFilter::default()).await {
        Ok(sandboxes) => sandboxes,
        Err(error @ ClientError::Connect { .. }) => {
            output::line(format!("No daemon answers at {}.", client.place()))?;
            if let Some(hint) = error.hint() {
                output::line(hint)?;
            }
            return suggest(&[
                ("sudo roost serve", "run the daemon here"),
                ("roost config", "see its settings"),
                ("roost --help", "see every command"),
            ]);
        }
        Err(error) => return Err(error.into()),
    };
    let templates = client.list_templates().await?;
    let active = sandboxes.iter().filter(|sandbox| sandbox.state == State::Active).count();
    let names: Vec<&str> = templates.iter().map(|template| template.name.as_str()).collect();
    output::line(format!("sandboxes  {} ({active} active)", sandboxes.len()))?;
    output::line(format!("templates  {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") }))?;
    if names.is_empty() {
        return suggest(&[("roost template build mini", "make a first template, in a second")]);
    }
    match sandboxes.iter().rev().find(|sandbox| sandbox.state == State::Active) {
        None => suggest(&[
            ("roost create box", "make a computer that stays"),
            ("roost run -- uname -a", "run one command in a fresh one"),
            ("roost demo", "see the life of a sandbox"),
            ("roost --help", "see every command"),
        ]),
        Some(sandbox) => {
            let name = sandbox.name.as_str();
            suggest(&[
                (&format!("roost exec -it {name}"), "a terminal in it"),
                (&format!("roost cp ./file {name}:"), "copy something in"),
                (&format!("roost checkpoint {name}"), "keep this moment, to go back to or fork"),
                (&format!("roost info {name}"), "see everything about it"),
                ("roost ls", "see all of them"),
                ("roost --help", "see every command"),
            ])
        }
    }
}

/// Prints commands to try, aligned.
pub(crate) fn suggest(commands: &[(&str, &str)]) -> anyhow::Result<()> {
    let palette = Palette::stdout();
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    output::line("")?;
    output::line("Try:")?;
    for (command, what) in commands {
        output::line(format!("  {}  {}", palette.cyan(&format!("{command:<width$}")), palette.dim(what)))?;
    }
    Ok(())
}
