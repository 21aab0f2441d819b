//! What builds keep for later ones: archives that were handed in, and states that steps led to.
//!
//! Both are files named by a hash, and the time at which one was last used is its own modification time. Those used
//! longest ago go first.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use roost_model::CheckpointId;

use crate::HostError;

/// States that are kept.
const MOST_LAYERS: usize = 128;
/// Bytes of archives that are kept.
const MOST_BYTES: u64 = 8 << 30;
/// What was used since may be needed by a build at work: longer than one may take.
const FRESH: Duration = Duration::from_secs(4 * 3600);
const UNFINISHED: &str = ".part-";
/// What a state is called whose place another has taken.
const REPLACED: &str = "replaced-";

/// A file and when it was last used.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: String,
    used: SystemTime,
    bytes: u64,
}

/// A folder of files named by hashes.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    folder: PathBuf,
}

impl Kept {
    pub(super) fn files(home: &Path) -> Self {
        Self { folder: home.join("files") }
    }

    pub(super) fn layers(home: &Path) -> Self {
        Self { folder: home.join("layers") }
    }

    /// The file of a hash, used now, if it is there.
    pub(super) fn open(&self, hash: &str) -> io::Result<Option<File>> {
        let file = match File::options().read(true).write(true).open(self.folder.join(hash)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        file.set_modified(SystemTime::now())?;
        Ok(Some(file))
    }

    /// An empty file that is nobody's yet.
    pub(super) fn begin(&self) -> io::Result<tempfile::NamedTempFile> {
        fs::create_dir_all(&self.folder)?;
        tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder)
    }

    /// Gives a file its name, in the place of one that is there.
    pub(super) fn put(&self, hash: &str, file: tempfile::NamedTempFile) -> io::Result<()> {
        file.as_file().sync_all()?;
        file.persist(self.folder.join(hash)).map_err(|error| error.error)?;
        File::open(&self.folder)?.sync_all()
    }

    pub(super) fn remove(&self, hash: &str) -> io::Result<()> {
        match fs::remove_file(self.folder.join(hash)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let listed = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed?,
        };
        let mut entries = Vec::new();
        for entry in listed {
            let entry = entry?;
            let data = entry.metadata()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push(Entry { name, used: data.modified()?, bytes: data.len() });
        }
        Ok(entries)
    }

    /// Removes archives that are too many, and those that never became whole.
    pub(super) fn sweep_files(&self) -> io::Result<()> {
        for name in too_many(self.entries()?, SystemTime::now(), |kept: &Entry| kept.bytes, MOST_BYTES) {
            self.remove(&name)?;
        }
        Ok(())
    }

    /// The checkpoint of a state.
    pub(super) fn layer(&self, key: &str) -> io::Result<Option<CheckpointId>> {
        let Some(file) = self.open(key)? else { return Ok(None) };
        Ok(io::read_to_string(file)?.trim().parse().ok())
    }

    /// Remembers the checkpoint of a state. One that it takes the place of goes later: a build may be using it.
    pub(super) fn put_layer(&self, key: &str, checkpoint: &CheckpointId) -> io::Result<()> {
        if let Some(before) = self.layer(key)? {
            fs::rename(self.folder.join(key), self.folder.join(format!("{REPLACED}{before}")))?;
        }
        let file = self.begin()?;
        fs::write(file.path(), checkpoint.as_str())?;
        self.put(key, file)
    }

    /// Forgets states that are too many and returns their checkpoints.
    pub(super) fn sweep_layers(&self) -> io::Result<Vec<CheckpointId>> {
        let mut forgotten = Vec::new();
        for name in too_many(self.entries()?, SystemTime::now(), |_| 1, MOST_LAYERS as u64) {
            let text = fs::read_to_string(self.folder.join(&name)).unwrap_or_default();
            forgotten.extend(text.trim().parse::<CheckpointId>().ok());
            self.remove(&name)?;
        }
        Ok(forgotten)
    }
}

/// The names of those that have to go so that the rest weighs no more than that; those used lately stay in any case.
fn too_many(mut entries: Vec<Entry>, now: SystemTime, weight: impl Fn(&Entry) -> u64, most: u64) -> Vec<String> {
    let mut left: u64 = entries.iter().map(&weight).sum();
    entries.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| a.name.cmp(&b.name)));
    let fresh = |entry: &Entry| now.duration_since(entry.used).is_ok_and(|age| age < FRESH);
    let mut gone = Vec::new();
    for entry in entries {
        let useless = entry.name.starts_with(UNFINISHED) || entry.name.starts_with(REPLACED);
        if !fresh(&entry) && (left > most || useless) {
            left -= weight(&entry);
            gone.push(entry.name);
        }
    }
    gone
}

/// Refuses what cannot be a hash, and so not the name of a file.
pub(super) fn check_hash(hash: &str) -> Result<(), HostError> {
    let fits = (16..=128).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fits { Ok(()) } else { Err(HostError::BadRequest(format!("`{hash}` is not a hash in hex"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_a_plain_file_name() {
        assert!(check_hash(&"0aF9".repeat(16)).is_ok());
        for bad in ["", "abc", "../../../../../etc/passwd", &"g".repeat(64), &"a".repeat(129)] {
            assert!(check_hash(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn those_used_longest_ago_go_first_and_fresh_ones_never() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let entry = |name: &str, hours: u64, bytes| Entry {
            name: name.to_owned(),
            used: now - Duration::from_secs(hours * 3600),
            bytes,
        };
        let all = vec![entry("new", 1, 50), entry("old", 30, 20), entry("older", 40, 20), entry(".part-x", 9, 1)];
        let gone = |most| too_many(all.clone(), now, |kept| kept.bytes, most);
        assert_eq!(gone(100), [".part-x"]);
        assert_eq!(gone(80), ["older", ".part-x"]);
        assert_eq!(gone(0), ["older", "old", ".part-x"]);
    }

    #[test]
    fn a_layer_is_replaced_and_found() {
        let home = tempfile::tempdir().unwrap();
        let layers = Kept::layers(home.path());
        let (one, two) = (CheckpointId::generate(), CheckpointId::generate());
        assert_eq!(layers.layer("aa").unwrap(), None);
        layers.put_layer("aa", &one).unwrap();
        layers.put_layer("aa", &two).unwrap();
        assert_eq!(layers.layer("aa").unwrap(), Some(two.clone()));
        assert!(layers.sweep_layers().unwrap().is_empty(), "a build may be using the first");
        for entry in layers.entries().unwrap() {
            let file = File::options().write(true).open(layers.folder.join(entry.name)).unwrap();
            file.set_modified(SystemTime::now() - 2 * FRESH).unwrap();
        }
        assert_eq!(layers.sweep_layers().unwrap(), [one]);
        assert_eq!(layers.layer("aa").unwrap(), Some(two));
    }
}
