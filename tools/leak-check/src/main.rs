//! Finds what a test run left on the host: `snapshot FILE` before, `compare FILE` after.
//!
//! `objects` lists everything that a daemon makes outside its data folder, and the folders that tests work in.
//! `owners` knows which daemon instances are alive and which ones this run made. `verdict` decides: an object that is new is a leak
//! unless it belongs to an instance of somebody else. A leak is named with the test whose daemon made it.
//!
//! Tests name their daemons in the file `instances` of the folder `ROOST_TEST_RUN`, a line each: data folder, tab, test.
#![forbid(unsafe_code)]

mod objects;
mod owners;
mod verdict;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, io, thread};

use anyhow::{Context, bail};

use crate::owners::Owners;

/// The kernel takes network namespaces and their devices down in its own time.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(200);
/// Separates objects from foreign instances in a snapshot.
const FOREIGN: &str = "foreign ";

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["snapshot", file] => snapshot(Path::new(file)).map(|()| ExitCode::SUCCESS),
        ["compare", file] => compare(Path::new(file)),
        _ => bail!("usage: leak-check snapshot|compare FILE"),
    }
}

fn snapshot(file: &Path) -> anyhow::Result<()> {
    let mut text = String::new();
    for object in objects::all() {
        text.push_str(&object.text);
        text.push('\n');
    }
    for folder in owners::alive() {
        text.push_str(FOREIGN);
        text.push_str(&folder.display().to_string());
        text.push('\n');
    }
    fs::write(file, text).with_context(|| format!("failed to write `{}`", file.display()))
}

fn compare(file: &Path) -> anyhow::Result<ExitCode> {
    let text = fs::read_to_string(file).with_context(|| format!("failed to read `{}`", file.display()))?;
    let before: BTreeSet<&str> = text.lines().collect();
    let foreign_before: Vec<PathBuf> =
        text.lines().filter_map(|line| line.strip_prefix(FOREIGN)).map(PathBuf::from).collect();
    let ours = match env::var_os("ROOST_TEST_RUN") {
        Some(folder) => {
            owners::registered(&fs::read_to_string(Path::new(&folder).join("instances")).unwrap_or_default())
        }
        None => Vec::new(),
    };
    let mut leaks = Vec::new();
    for _ in 0..TRIES {
        let owners = Owners::new(ours.clone(), foreign_before.iter().cloned().chain(owners::alive()));
        let new = objects::all().into_iter().filter(|object| !before.contains(object.text.as_str()));
        leaks = new.filter_map(|object| verdict::leak(&object, &owners)).collect();
        if leaks.is_empty() {
            writeln!(io::stdout(), "leak-check: nothing left behind")?;
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(PAUSE);
    }
    writeln!(io::stderr(), "leak-check: left behind:")?;
    for leak in leaks {
        writeln!(io::stderr(), "  {leak}")?;
    }
    Ok(ExitCode::FAILURE)
}
