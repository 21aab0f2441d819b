//! What can be done in the lobby.

use clap::{CommandFactory, Parser, Subcommand};
use jiff::Timestamp;
use roost_host::{HostError, ListFilter, Visitor, to_the_end};
use roost_model::words::{lasted, why};
use roost_model::{
    CheckpointView, CreateCheckpoint, CreateSandbox, Fork, Level, Receipt, Restore, SandboxView, Suspend,
};
use serde::Serialize;

use super::table::table;
use super::{Names, state};
use crate::words;

const PAGE: usize = 1000;

#[derive(Debug, Parser)]
#[command(no_binary_name = true, name = "", disable_version_flag = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[command(about = "Sandboxes, from outside. `ssh NAME@…` walks into one, `ssh new@…` makes one first")]
enum Command {
    /// List sandboxes
    Ls {
        #[arg(long)]
        json: bool,
    },
    /// Make a sandbox
    New {
        /// What it is called; a friendly name is made up if absent
        name: Option<String>,
        /// Start from a template
        #[arg(short, long, value_name = "TEMPLATE")]
        template: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Make sandboxes that go on from where one is
    Fork {
        name: String,
        /// How many
        #[arg(short = 'n', long, value_name = "N")]
        count: Option<u32>,
        /// What they are called
        #[arg(long, value_name = "A,B", value_delimiter = ',')]
        names: Option<Vec<String>>,
        /// Go on from a checkpoint rather than from now
        #[arg(long, value_name = "CHECKPOINT")]
        from: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Keep this moment of a sandbox
    Checkpoint {
        name: String,
        /// What to remember about it
        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
        /// Leave memory and processes out
        #[arg(long)]
        files_only: bool,
        #[arg(long)]
        json: bool,
    },
    /// List the checkpoints of a sandbox
    Checkpoints {
        name: String,
        #[arg(long)]
        json: bool,
    },
    /// Take a sandbox back to a checkpoint
    Restore {
        name: String,
        checkpoint: String,
        #[arg(long)]
        json: bool,
    },
    /// End sandboxes and free what they had
    Rm {
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Put a sandbox to sleep
    Suspend {
        name: String,
        /// How deep: ram, disk or files
        #[arg(long, value_name = "LEVEL", default_value = "ram")]
        to: Level,
        /// Until somebody wakes it expressly
        #[arg(long)]
        stay: bool,
        #[arg(long)]
        json: bool,
    },
    /// Wake a sandbox
    Wake {
        name: String,
        #[arg(long)]
        json: bool,
    },
    /// Say what keeps a sandbox awake or why it sleeps
    Why {
        name: String,
        #[arg(long)]
        json: bool,
    },
}

/// What came of a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) output: String,
    pub(super) errors: String,
    pub(super) code: u32,
}

impl Outcome {
    pub(super) fn wrong(problem: &str) -> Self {
        Self { errors: format!("roost: {problem}\n"), code: 2, ..Self::default() }
    }

    fn done(output: String) -> Self {
        Self { output, ..Self::default() }
    }
}

/// Does what a line says.
pub(super) async fn run(visitor: &Visitor, line: Vec<String>) -> Outcome {
    let line = if line.is_empty() { vec!["help".to_owned()] } else { line };
    let wanted = match Line::try_parse_from(line) {
        Ok(wanted) => wanted.command,
        Err(error) if error.use_stderr() => {
            return Outcome { errors: error.render().to_string(), code: 2, ..Outcome::default() };
        }
        Err(help) => return Outcome::done(help.render().to_string()),
    };
    // What was begun is carried to its end, also if whoever asked leaves in the middle.
    let visitor = visitor.clone();
    match to_the_end(async move { carry_out(&visitor, wanted).await }).await {
        Ok(outcome) => outcome,
        Err(error) => Outcome { errors: format!("roost: {}\n", words::of(&error)), code: 1, ..Outcome::default() },
    }
}

async fn carry_out(visitor: &Visitor, wanted: Command) -> Result<Outcome, HostError> {
    Ok(Outcome::done(match wanted {
        Command::Ls { json } => {
            let sandboxes = all(visitor).await?;
            if json { in_json(&sandboxes)? } else { listed(&sandboxes) }
        }
        Command::New { name, template, json } => {
            let (made, _) = visitor.create(CreateSandbox { name, template, ..CreateSandbox::default() }, None).await?;
            if json { in_json(&made)? } else { format!("{}\n", made.name) }
        }
        Command::Fork { name, count, names, from, json } => {
            let from = from.map(|from| visitor.checkpoint(&from)).transpose()?.map(|checkpoint| checkpoint.id);
            let forks = visitor.fork(&visitor.living(&name)?, Fork { count, names, from }).await?;
            if json {
                in_json(&forks)?
            } else {
                return Ok(forked(&forks));
            }
        }
        Command::Checkpoint { name, comment, files_only, json } => {
            let (made, receipt) = visitor.living(&name)?.checkpoint(CreateCheckpoint { comment, files_only }).await?;
            if json { in_json(&made)? } else { format!("{}, {} long\n", made.id, took(&receipt)) }
        }
        Command::Checkpoints { name, json } => {
            let kept = visitor.checkpoints_of(&name).await?;
            if json { in_json(&kept)? } else { kept_moments(&kept) }
        }
        Command::Restore { name, checkpoint, json } => {
            let checkpoint = visitor.checkpoint(&checkpoint)?.id;
            let receipt = visitor.living(&name)?.restore(Restore { checkpoint }).await?;
            if json { in_json(&receipt)? } else { format!("{name} restored in {}\n", took(&receipt)) }
        }
        Command::Rm { names } => {
            let mut removed = Vec::new();
            for name in names {
                visitor.living(&name)?.delete().await?;
                removed.push(format!("{name} removed\n"));
            }
            removed.concat()
        }
        Command::Suspend { name, to, stay, json } => {
            let receipt = visitor.living(&name)?.suspend(Suspend { to, stay }).await?;
            let level = receipt.level.unwrap_or(to);
            if json { in_json(&receipt)? } else { format!("{name} suspended to {level} in {}\n", took(&receipt)) }
        }
        Command::Wake { name, json } => {
            let receipt = visitor.living(&name)?.wake().await?;
            if json { in_json(&receipt)? } else { format!("{name} is awake after {}\n", took(&receipt)) }
        }
        Command::Why { name, json } => {
            let view = visitor.find(&name)?.why().await?;
            let said =
                || why(&view, Timestamp::now()).into_iter().map(|line| format!("  {line}\n")).collect::<String>();
            if json { in_json(&view)? } else { format!("{}\n{}", view.name, said()) }
        }
    }))
}

async fn all(visitor: &Visitor) -> Result<Vec<SandboxView>, HostError> {
    let mut filter = ListFilter { limit: PAGE, ..ListFilter::default() };
    let mut found = Vec::new();
    loop {
        let page = visitor.list(&filter).await?;
        found.extend(page.items);
        match page.next_cursor.and_then(|cursor| cursor.parse().ok()) {
            Some(cursor) => filter.cursor = Some(cursor),
            None => return Ok(found),
        }
    }
}

fn in_json(value: &impl Serialize) -> Result<String, HostError> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| text + "\n").map_err(|error| HostError::Internal(format!("failed to write JSON: {error}")))
}

fn took(receipt: &Receipt) -> String {
    format!("{:.0} ms", receipt.total_ms)
}

fn age(since: Timestamp) -> String {
    lasted(u64::try_from(Timestamp::now().duration_since(since).as_millis()).unwrap_or(0))
}

fn listed(sandboxes: &[SandboxView]) -> String {
    if sandboxes.is_empty() {
        return "no sandboxes; `new` makes one\n".to_owned();
    }
    let row = |sandbox: &SandboxView| {
        vec![
            sandbox.name.to_string(),
            state(sandbox.state, sandbox.level),
            sandbox.template.clone(),
            age(sandbox.created_at),
        ]
    };
    table(&["NAME", "STATE", "TEMPLATE", "AGE"], &sandboxes.iter().map(row).collect::<Vec<_>>())
}

fn kept_moments(kept: &[CheckpointView]) -> String {
    if kept.is_empty() {
        return "no checkpoints\n".to_owned();
    }
    let row = |checkpoint: &CheckpointView| {
        let what = if checkpoint.memory { "memory" } else { "files" };
        vec![
            checkpoint.id.to_string(),
            age(checkpoint.created_at),
            what.to_owned(),
            checkpoint.comment.clone().unwrap_or_default(),
        ]
    };
    table(&["CHECKPOINT", "AGE", "KEEPS", "COMMENT"], &kept.iter().map(row).collect::<Vec<_>>())
}

fn forked(forks: &[roost_model::ForkResult]) -> Outcome {
    let made = forks.iter().filter_map(|fork| fork.sandbox.as_ref()).map(|sandbox| format!("{}\n", sandbox.name));
    let failed = forks.iter().filter_map(|fork| fork.error.as_ref()).map(|error| format!("roost: {}\n", error.message));
    let (output, errors): (String, String) = (made.collect(), failed.collect());
    Outcome { output, code: u32::from(!errors.is_empty()), errors }
}

/// What may stand for a word, after the words before it.
pub(super) fn completions(names: &Names, before: &[&str], word: &str) -> Vec<String> {
    let line = Line::command();
    let mut found: Vec<String> = match before {
        [] => {
            let commands = line.get_subcommands().map(|command| command.get_name().to_owned());
            commands.chain(["help".to_owned(), "exit".to_owned()]).collect()
        }
        ["help"] => line.get_subcommands().map(|command| command.get_name().to_owned()).collect(),
        [command, ..] => {
            let Some(command) = line.find_subcommand(command) else { return Vec::new() };
            let options = || command.get_arguments().filter_map(|argument| argument.get_long());
            match before.last() {
                _ if word.starts_with('-') => options().map(|option| format!("--{option}")).collect(),
                Some(&("-t" | "--template")) => names.templates.clone(),
                Some(&"--to") => ["ram", "disk", "files"].map(str::to_owned).to_vec(),
                Some(last) if last.starts_with('-') && *last != "--json" => Vec::new(),
                _ if command.get_name() == "new" || command.get_name() == "ls" => Vec::new(),
                _ => names.sandboxes.clone(),
            }
        }
    };
    found.retain(|choice| choice.starts_with(word));
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_sound() {
        Line::command().debug_assert();
        let fork = Line::try_parse_from(["fork", "web", "-n", "3", "--names", "a,b"]).unwrap().command;
        assert!(matches!(fork, Command::Fork { count: Some(3), names: Some(names), .. } if names == ["a", "b"]));
        let help = Line::try_parse_from(["help"]).unwrap_err();
        assert!(!help.use_stderr() && help.render().to_string().contains("checkpoint"), "{help}");
        assert!(Line::try_parse_from(["nonsense"]).unwrap_err().use_stderr());
    }

    #[test]
    fn words_that_fit_are_offered() {
        let names = Names { sandboxes: vec!["web".to_owned(), "db".to_owned()], templates: vec!["base".to_owned()] };
        let offered = |before: &[&str], word: &str| completions(&names, before, word);
        assert_eq!(offered(&[], "check"), ["checkpoint", "checkpoints"]);
        assert_eq!(offered(&["why"], "w"), ["web"]);
        assert_eq!(offered(&["rm", "web"], ""), ["db", "web"]);
        assert_eq!(offered(&["suspend", "web"], "--s"), ["--stay"]);
        assert_eq!(offered(&["suspend", "web", "--to"], "d"), ["disk"]);
        assert_eq!(offered(&["new", "-t"], ""), ["base"]);
        assert_eq!(offered(&["help"], "wh"), ["why"]);
        assert!(offered(&["nonsense"], "").is_empty() && offered(&["new"], "").is_empty());
    }
}
