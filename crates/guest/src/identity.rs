//! Who the sandbox is, as its processes can read it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::PoisonError;

use roost_wire::{DefaultPlace, GuestConfig, Key, SetIdentity};

use crate::guest::Guest;

/// Names, key, environment and default user of the sandbox; a fork gets new ones.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) hostname: String,
    pub(crate) generation: u64,
    pub(crate) key: Key,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) place: DefaultPlace,
}

impl Identity {
    pub(crate) fn of(config: &GuestConfig) -> Self {
        Self {
            id: config.id.clone(),
            name: config.name.clone(),
            hostname: config.hostname.clone(),
            generation: config.generation,
            key: config.key.clone(),
            env: config.env.clone(),
            place: DefaultPlace { user: config.default_user.clone(), workdir: config.workdir.clone() },
        }
    }

    fn change(&mut self, new: SetIdentity) {
        if let Some(id) = new.id {
            self.id = id;
        }
        if let Some(name) = new.name {
            self.name = name;
        }
        if let Some(hostname) = new.hostname {
            self.hostname = hostname;
        }
        if let Some(generation) = new.generation {
            self.generation = generation;
        }
        if let Some(key) = new.key {
            self.key = key;
        }
        if let Some(env) = new.env {
            self.env = env;
        }
        if let Some(place) = new.place {
            self.place = place;
        }
    }
}

impl Guest {
    /// Takes a new identity and makes it visible.
    pub(crate) fn set_identity(&self, new: SetIdentity) {
        let renamed = new.hostname.is_some();
        let identity = {
            let mut identity = self.identity.write().unwrap_or_else(PoisonError::into_inner);
            identity.change(new);
            identity.clone()
        };
        if renamed {
            self.namer.set(&identity.hostname);
        }
        self.show_identity(&identity);
    }

    /// Writes the identity where processes look for it. A sandbox whose disk is full lives on with an old one.
    pub(crate) fn show_identity(&self, identity: &Identity) {
        if let Err(error) = write_run_files(Path::new(&self.config.run_dir), identity) {
            eprintln!("roost-guest: failed to write {}: {error}", self.config.run_dir);
        }
        if let Err(error) = write_hostname(Path::new(&self.config.etc_dir), &identity.hostname) {
            eprintln!("roost-guest: failed to write the host name in {}: {error}", self.config.etc_dir);
        }
        if self.is_init {
            rustix::system::sethostname(identity.hostname.as_bytes()).ok();
        }
    }
}

/// The generation comes last: whoever watches it finds the rest changed.
fn write_run_files(folder: &Path, identity: &Identity) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    rewrite(&folder.join("id"), &format!("{}\n", identity.id))?;
    rewrite(&folder.join("name"), &format!("{}\n", identity.name))?;
    // For those that run already when a fork gets another environment.
    rewrite(&folder.join("env.json"), &format!("{}\n", serde_json::to_string(&identity.env)?))?;
    rewrite(&folder.join("generation"), &format!("{}\n", identity.generation))
}

/// Writes a file in place, so that whoever watches it hears of it, only if it changes, and without an empty moment.
fn rewrite(path: &Path, text: &str) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

/// Writes only what changes: every write is a block of the sandbox's own disk.
fn write_hostname(folder: &Path, hostname: &str) -> io::Result<()> {
    let path = folder.join("hostname");
    let line = format!("{hostname}\n");
    if fs::read_to_string(&path).ok().as_deref() != Some(&line) {
        fs::write(&path, line)?;
    }
    let path = folder.join("hosts");
    let hosts = fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    if let Some(changed) = with_hostname(&hosts, hostname) {
        fs::write(&path, changed)?;
    }
    Ok(())
}

/// Marks the line of ours, so that a renamed sandbox does not collect its old names.
const MARK: &str = "# this sandbox";

/// `hosts` with the host name in it, or nothing if it is there already.
fn with_hostname(hosts: &str, hostname: &str) -> Option<String> {
    let names = |line: &str| {
        let entry = line.split('#').next().unwrap_or_default();
        entry.split_ascii_whitespace().skip(1).any(|name| name == hostname)
    };
    if hosts.lines().any(names) {
        return None;
    }
    let mut changed = String::new();
    if hosts.trim().is_empty() {
        changed.push_str("127.0.0.1\tlocalhost\n::1\tlocalhost\n");
    }
    for line in hosts.lines().filter(|line| !line.ends_with(MARK)) {
        changed.push_str(line);
        changed.push('\n');
    }
    changed.push_str(&["127.0.1.1\t", hostname, "\t", MARK, "\n"].concat());
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_get_the_name_once() {
        let first = with_hostname("127.0.0.1 localhost\n# web\n", "web").unwrap();
        assert_eq!(first, "127.0.0.1 localhost\n# web\n127.0.1.1\tweb\t# this sandbox\n");
        assert_eq!(with_hostname(&first, "web"), None);
        let renamed = with_hostname(&first, "shop").unwrap();
        assert_eq!(renamed, "127.0.0.1 localhost\n# web\n127.0.1.1\tshop\t# this sandbox\n");
        assert!(with_hostname("", "web").unwrap().starts_with("127.0.0.1\tlocalhost\n"));
    }
}
