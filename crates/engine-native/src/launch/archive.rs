//! What CRIU wants of `tar`, without three programs for it.
//!
//! CRIU packs every tmpfs with `tar --create --gzip` and unpacks it likewise. Each time that is a program, a shell and one that
//! compresses, for a handful of small files: a tenth of a save. Under the name `tar` CRIU finds the launcher's program, which does
//! the same for what nearly every sandbox has there: folders, small files and links by name. Whatever else it meets, or is
//! asked for, it leaves to the system's own, whose format it writes: either reads what the other wrote.

mod header;
mod pack;
mod unpack;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ARCHIVER;

/// So much is packed and unpacked here.
const MOST: usize = 4 << 20;

/// What CRIU says, but for the folder and what to pack of it.
const KNOWN: [&str; 8] = [
    "--gzip",
    "--no-unquote",
    "--no-wildcards",
    "--one-file-system",
    "--check-links",
    "--preserve-permissions",
    "--sparse",
    "--numeric-owner",
];

#[derive(Debug, PartialEq, Eq)]
enum Task {
    Pack(PathBuf),
    Unpack(PathBuf),
}

/// Why something is not done here.
#[derive(Debug)]
enum Unfit {
    /// The system's own can, and nothing was done yet.
    Unusual,
    Failed(io::Error),
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<rustix::io::Errno> for Unfit {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Failed(error.into())
    }
}

/// Does what the arguments of this program say; whether that went well.
pub fn pack_or_unpack() -> bool {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let done = match Task::of(&arguments) {
        Some(Task::Pack(folder)) => pack::pack(&folder, rustix::stdio::stdout()),
        Some(Task::Unpack(folder)) => unpack::unpack(rustix::stdio::stdin(), &folder),
        None => Err(Unfit::Unusual),
    };
    let error = match done {
        Ok(()) => return true,
        Err(Unfit::Failed(error)) => error,
        Err(Unfit::Unusual) => leave_to_system(&arguments),
    };
    // CRIU has it in its log, and what it refuses is told by that.
    eprintln!("tar: {error}");
    false
}

impl Task {
    /// What is asked for, if it is nothing unusual.
    fn of(arguments: &[OsString]) -> Option<Self> {
        let (task, rest) = arguments.split_first()?;
        let at = rest.iter().position(|word| word == "--directory")?;
        let (options, [_, folder, operands @ ..]) = rest.split_at(at) else { return None };
        let folder = PathBuf::from(folder);
        let known = |word: &OsString| KNOWN.iter().any(|option| word == option);
        if !options.iter().all(known) {
            return None;
        }
        match (task.to_str()?, operands) {
            ("--create", [all]) if all == "." => Some(Self::Pack(folder)),
            ("--extract", []) => Some(Self::Unpack(folder)),
            _ => None,
        }
    }
}

/// Becomes the `tar` that this program stands before; returns only if there is none.
fn leave_to_system(arguments: &[OsString]) -> io::Error {
    let own = env::current_exe().ok();
    let path = env::var_os("PATH").unwrap_or_default();
    for program in env::split_paths(&path).map(|folder| folder.join(ARCHIVER)) {
        if program.exists() && !is_same(&program, own.as_deref()) {
            return Command::new(program).arg0(OsStr::new(ARCHIVER)).args(arguments).exec();
        }
    }
    io::Error::new(io::ErrorKind::NotFound, "the host has no tar")
}

fn is_same(program: &Path, own: Option<&Path>) -> bool {
    use std::os::unix::fs::MetadataExt;
    let file = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    own.is_some_and(|own| file(own) == file(program))
}

#[cfg(test)]
mod tests;
