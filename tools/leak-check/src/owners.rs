//! Whose instance is whose.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::objects::numbers;

const DEFAULT_DATA_FOLDER: &str = "/var/lib/roost";
const DEFAULT_RUNTIME_FOLDER: &str = "/run/roost";

/// A daemon that this run made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ours {
    pub(crate) data: PathBuf,
    pub(crate) test: String,
}

/// The instances of this run and those of others.
#[derive(Debug)]
pub(crate) struct Owners {
    ours: Vec<Ours>,
    foreign: Vec<PathBuf>,
}

impl Owners {
    pub(crate) fn new(ours: Vec<Ours>, foreign: impl Iterator<Item = PathBuf>) -> Self {
        let foreign = foreign.filter(|folder| ours.iter().all(|our| our.data != *folder)).collect();
        Self { ours, foreign }
    }

    /// The test whose daemon has this tag, or this path in its folder.
    pub(crate) fn test_of(&self, tag: Option<&str>, path: Option<&Path>) -> Option<&str> {
        let holds = |our: &&Ours| {
            tag.is_some_and(|tag| tag == tag_of(&our.data))
                || path.is_some_and(|path| path.starts_with(home_of(&our.data)))
        };
        self.ours.iter().find(holds).map(|our| our.test.as_str())
    }

    /// Whether an instance of somebody else has this tag, or this path in one of its folders.
    pub(crate) fn is_foreign(&self, tag: Option<&str>, path: Option<&Path>) -> bool {
        self.foreign.iter().any(|data| {
            let runtime = (data == Path::new(DEFAULT_DATA_FOLDER)).then_some(Path::new(DEFAULT_RUNTIME_FOLDER));
            tag.is_some_and(|tag| tag == tag_of(data))
                || path.is_some_and(|path| {
                    path.starts_with(home_of(data)) || runtime.is_some_and(|runtime| path.starts_with(runtime))
                })
        })
    }
}

/// The folder that goes with a data folder: a test's own has the data folder in it.
fn home_of(data: &Path) -> &Path {
    match data.parent() {
        Some(parent) if parent.file_name().is_some_and(|name| name.as_bytes().starts_with(b"roost-")) => parent,
        _ => data,
    }
}

/// The tag of a daemon, from its data folder (`instance_of` in `roost-cli`).
fn tag_of(data: &Path) -> String {
    blake3::hash(data.as_os_str().as_encoded_bytes()).to_hex().chars().take(6).collect()
}

/// Reads the list that tests write.
pub(crate) fn registered(list: &str) -> Vec<Ours> {
    let line = |line: &str| {
        let (data, test) = line.split_once('\t')?;
        Some(Ours { data: PathBuf::from(data), test: test.to_owned() })
    };
    list.lines().filter_map(line).collect()
}

/// The data folders of all daemons that run, and of tests that run: their daemon may be dead for a moment.
pub(crate) fn alive() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = numbers("/proc").filter_map(data_folder_of).collect();
    let tests = fs::read_dir("/var/tmp").into_iter().flatten().flatten().map(|entry| entry.path());
    folders.extend(tests.filter_map(|folder| {
        let pid: u32 = fs::read_to_string(folder.join("test.pid")).ok()?.trim().parse().ok()?;
        Path::new(&format!("/proc/{pid}")).exists().then(|| folder.join("data"))
    }));
    folders.sort();
    folders.dedup();
    folders
}

/// The data folder of a daemon, if the process is one.
fn data_folder_of(pid: u32) -> Option<PathBuf> {
    let (words, environment) = words_of(pid)?;
    let folder = wanted_folder(&words, &environment)?;
    Some(folder.canonicalize().unwrap_or(folder))
}

/// The data folder of a daemon, or the socket that a client was told to use.
pub(crate) fn place_of(pid: u32) -> Option<PathBuf> {
    let (_, environment) = words_of(pid)?;
    data_folder_of(pid).or_else(|| environment.iter().find_map(|word| value_of(word, b"ROOST_SOCKET=")))
}

/// The command line and the environment of a process.
fn words_of(pid: u32) -> Option<(Vec<OsString>, Vec<OsString>)> {
    let read = |file| fs::read(format!("/proc/{pid}/{file}")).ok().map(|bytes| split(&bytes));
    Some((read("cmdline")?, read("environ")?))
}

fn value_of(word: &OsString, prefix: &[u8]) -> Option<PathBuf> {
    word.as_bytes().strip_prefix(prefix).map(|rest| PathBuf::from(OsStr::from_bytes(rest)))
}

/// The data folder that a command line names, if it is a daemon's.
fn wanted_folder(words: &[OsString], environment: &[OsString]) -> Option<PathBuf> {
    let program = Path::new(words.first()?);
    if program.file_name() != Some(OsStr::new("roost")) || !words.iter().any(|word| word == "serve") {
        return None;
    }
    let after = words.iter().position(|word| word == "--data-dir").and_then(|at| words.get(at + 1)).map(PathBuf::from);
    let joined = || words.iter().find_map(|word| value_of(word, b"--data-dir="));
    let variable = || environment.iter().find_map(|word| value_of(word, b"ROOST_DATA_DIR="));
    after.or_else(joined).or_else(variable).or_else(|| Some(PathBuf::from(DEFAULT_DATA_FOLDER)))
}

fn split(bytes: &[u8]) -> Vec<OsString> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn daemon_is_known_by_its_command_line() {
        let folder = |line, variable| wanted_folder(&words(line), &words(variable));
        assert_eq!(folder("/usr/bin/roost serve", "A=b"), Some("/var/lib/roost".into()));
        assert_eq!(folder("roost serve --data-dir /srv/x --listen none", ""), Some("/srv/x".into()));
        assert_eq!(folder("roost serve --data-dir=/srv/y", ""), Some("/srv/y".into()));
        assert_eq!(folder("roost serve", "ROOST_DATA_DIR=/srv/z"), Some("/srv/z".into()));
        assert_eq!(folder("roost exec box -- ls", ""), None);
        assert_eq!(folder("/bin/sh serve", ""), None);
    }

    #[test]
    fn our_instance_is_not_foreign_while_its_daemon_runs() {
        let data = PathBuf::from("/var/tmp/roost-e2e-a/data");
        let ours = registered("/var/tmp/roost-e2e-a/data\thostile::a\nno tab here\n");
        let owners = Owners::new(ours, [data.clone(), PathBuf::from("/srv/roost")].into_iter());
        assert_eq!(owners.test_of(Some(&tag_of(&data)), None), Some("hostile::a"));
        assert_eq!(owners.test_of(None, Some(Path::new("/var/tmp/roost-e2e-a"))), Some("hostile::a"));
        assert!(!owners.is_foreign(Some(&tag_of(&data)), None));
        assert!(owners.is_foreign(Some(&tag_of(Path::new("/srv/roost"))), None));
        assert!(owners.is_foreign(None, Some(Path::new("/srv/roost/pool"))));
    }
}
