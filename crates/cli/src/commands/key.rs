//! `roost key`

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use roost_client::Client;
use roost_model::{AddKey, KeyView};

use crate::args::{AccessArgs, ShowArgs};
use crate::output::{self, Columns};
use crate::units::show_age;

/// More than a file of keys has.
const LONGEST: u64 = 1 << 20;

/// What to do with public keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    Add(AddArgs),
    /// List the keys that are let in, with their fingerprints
    #[command(after_help = "\
Examples:
  roost key ls
  ssh-keygen -lf ~/.ssh/id_ed25519.pub     shows the fingerprint of a key of yours")]
    Ls {
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Let keys in no more
    #[command(after_help = "\
Examples:
  roost key rm anna@laptop
  roost key rm key_01…")]
    Rm {
        /// Ids, fingerprints or names of keys
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
}

/// Let a public key in over SSH
///
/// One that is let in already gets the new name and access.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost key add ~/.ssh/id_ed25519.pub
  roost key add anna.pub --name anna --label team=a
  roost key add ci.pub --sandbox web --no-destroy
  roost key add 'ssh-ed25519 AAAA… anna@laptop'
  ssh-add -L | roost key add -             every key of an agent")]
pub(crate) struct AddArgs {
    /// A file that ends in .pub, `-` for standard input, or the key itself
    #[arg(value_name = "FILE")]
    from: String,
    /// What it is called [default: its comment]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    limits: AccessArgs,
    #[command(flatten)]
    show: ShowArgs,
}

impl AddArgs {
    /// The lines that are keys.
    fn lines(&self) -> anyhow::Result<Vec<String>> {
        let text = if self.from == "-" {
            let mut text = String::new();
            let read = std::io::stdin().take(LONGEST).read_to_string(&mut text);
            read.context("failed to read standard input")?;
            text
        } else if Path::new(&self.from).exists() {
            let mut text = String::new();
            let opened = std::fs::File::open(&self.from);
            let read = opened.and_then(|file| file.take(LONGEST).read_to_string(&mut text));
            read.with_context(|| format!("failed to read `{}`", self.from))?;
            text
        } else if self.from.contains(' ') {
            self.from.clone()
        } else {
            bail!("`{}` is neither a file nor a key", self.from);
        };
        if text.contains("PRIVATE KEY") {
            bail!("`{}` is a private key, which nobody else should see: give the file that ends in .pub", self.from);
        }
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        if lines.is_empty() {
            bail!("there is no key in `{}`", self.from);
        }
        Ok(lines)
    }
}

pub(crate) async fn key(client: &Client, wanted: KeyCommand) -> anyhow::Result<()> {
    match wanted {
        KeyCommand::Add(wanted) => add(client, wanted).await,
        KeyCommand::Ls { show } => {
            let keys = client.list_keys().await?;
            print(&keys, show)?;
            if !show.json
                && !show.quiet
                && let Some(ssh) = client.info().await?.ssh
            {
                eprintln!("the daemon is at {}, with host key {}", ssh.address, ssh.host_key);
            }
            Ok(())
        }
        KeyCommand::Rm { keys } => {
            for key in keys {
                client.remove_key(&key).await?;
                output::line(key)?;
            }
            Ok(())
        }
    }
}

async fn add(client: &Client, wanted: AddArgs) -> anyhow::Result<()> {
    let (lines, access) = (wanted.lines()?, wanted.limits.access());
    let mut added = Vec::new();
    for public_key in lines {
        let key = AddKey { public_key, name: wanted.name.clone(), access: access.clone() };
        added.push(client.add_key(&key).await?);
    }
    print(&added, wanted.show)?;
    if !wanted.show.json && !wanted.show.quiet && client.info().await?.ssh.is_none() {
        eprintln!("this daemon does not listen for SSH: `roost serve --ssh-listen 127.0.0.1:2222`");
    }
    Ok(())
}

fn print(keys: &[KeyView], show: ShowArgs) -> anyhow::Result<()> {
    if show.json {
        return output::json(&keys);
    }
    if show.quiet {
        for key in keys {
            output::line(key.id.as_str())?;
        }
        return Ok(());
    }
    if keys.is_empty() {
        eprintln!("no keys; `roost key add ~/.ssh/id_ed25519.pub` lets one in");
        return Ok(());
    }
    let now = Timestamp::now();
    let mut columns = Columns::new(&["KEY", "NAME", "FINGERPRINT", "GOOD FOR", "AGE"], &["AGE"]);
    for key in keys {
        columns.row([
            key.id.to_string(),
            key.name.clone(),
            key.fingerprint.clone(),
            key.access.to_string(),
            show_age(key.created_at, now),
        ]);
    }
    Ok(columns.print()?)
}
