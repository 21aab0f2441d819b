//! `roost man`

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Cli;

/// Write the manual pages into a folder, one for each command
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  roost man ./man1 && man ./man1/roost-create.1")]
pub(crate) struct ManArgs {
    /// Where the pages go; made if it is missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(crate) fn man(wanted: &ManArgs) -> anyhow::Result<()> {
    fs::create_dir_all(&wanted.folder)
        .with_context(|| format!("failed to make the folder `{}`", wanted.folder.display()))?;
    let mut root = Cli::command();
    root.build();
    for (name, page) in pages(&root, "roost")? {
        let path = wanted.folder.join(format!("{name}.1"));
        fs::write(&path, page).with_context(|| format!("failed to write `{}`", path.display()))?;
    }
    Ok(())
}

/// The page of a command called `name` and those of everything below it.
fn pages(command: &Command, name: &str) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut page = Vec::new();
    // A page has its date from the release, not from the day it was built.
    let man = Man::new(command.clone().display_name(name.to_owned())).title(name.to_ascii_uppercase()).manual("Roost");
    man.render(&mut page)?;
    let mut all = vec![(name.to_owned(), page)];
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        all.extend(pages(below, &format!("{name}-{}", below.get_name()))?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_options_and_examples() {
        let mut root = Cli::command();
        root.build();
        let pages = pages(&root, "roost").unwrap();
        let page = |name: &str| {
            let found = pages.iter().find(|(known, _)| known == name);
            String::from_utf8(found.unwrap_or_else(|| panic!("no page {name}")).1.clone()).unwrap()
        };
        for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(page(&format!("roost-{}", command.get_name())).contains(".SH NAME"), "{}", command.get_name());
        }
        let create = page("roost-create");
        assert!(create.contains("ROOST\\-CREATE") || create.contains("ROOST-CREATE"), "{create}");
        assert!(create.contains("idle\\-after") && create.contains("Example"), "{create}");
        assert!(page("roost-template-promote").contains("CHECKPOINT"));
        assert!(pages.iter().all(|(name, _)| name != "roost-man"));
    }
}
