//! `roost completion`

use anyhow::Context;
use clap::{Args, ValueEnum};
use clap_complete::env::Shells;

use crate::output;

/// Print what teaches your shell to complete roost, names of sandboxes included
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  echo 'source <(roost completion bash)' >> ~/.bashrc
  echo 'source <(roost completion zsh)' >> ~/.zshrc
  roost completion fish > ~/.config/fish/completions/roost.fish")]
pub(crate) struct CompletionArgs {
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn completion(wanted: CompletionArgs) -> anyhow::Result<()> {
    let name = match wanted.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let shells = Shells::builtins();
    let shell = shells.completer(name).with_context(|| format!("failed to find the completion for {name}"))?;
    let mut script = Vec::new();
    shell.write_registration("COMPLETE", "roost", "roost", "roost", &mut script)?;
    Ok(output::line(String::from_utf8_lossy(&script).trim_end())?)
}
