//! A batch on the disk.
//!
//! ```text
//! batches/<id>/batch.json     what the list shows
//!              tasks.json     what was asked for
//!              results.jsonl  one line for each result, in the order in which they came
//!              cancelled      there while it is cancelled
//! ```
//!
//! The folder gets its name when its files are on the disk, and loses it before the first of them goes. A line that a crash
//! cut off is taken away before the next one is written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use roost_disk::put_aside;
use roost_model::{BatchId, CreateBatch, TaskResult};
use roost_sys::tree;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const META: &str = "batch.json";
const TASKS: &str = "tasks.json";
const RESULTS: &str = "results.jsonl";
const CANCELLED: &str = "cancelled";

/// What is remembered of a batch besides its tasks and results. Fields added later must have a default.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) id: BatchId,
    pub(crate) template: String,
    pub(crate) parallel: u32,
    pub(crate) tasks: u64,
    pub(crate) created_at: Timestamp,
    pub(crate) key: Option<String>,
    pub(crate) fingerprint: String,
}

/// Why a batch's folder could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error("failed to {attempt} `{}`", path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` does not hold what it should", path.display())]
    Content { path: PathBuf, source: serde_json::Error },
}

impl FolderError {
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
    }
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    move |source| FolderError::Io { attempt, path: path.to_owned(), source }
}

/// The folder of one batch.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder of a new batch; whole or not at all.
    pub(crate) fn make(home: &Path, meta: &Meta, wanted: &[u8]) -> Result<Self, FolderError> {
        let path = home.join(meta.id.as_str());
        let staged = home.join(format!(".{}", meta.id));
        fs::create_dir_all(&staged).map_err(failed("make the folder", &staged))?;
        let content =
            serde_json::to_vec(meta).map_err(|source| FolderError::Content { path: staged.join(META), source })?;
        write_synced(&staged.join(META), &content)?;
        write_synced(&staged.join(TASKS), wanted)?;
        write_synced(&staged.join(RESULTS), b"")?;
        sync(&staged)?;
        fs::rename(&staged, &path).map_err(failed("put in place", &path))?;
        sync(home)?;
        Ok(Self { path })
    }

    /// The folders of all batches; unfinished folders are removed, or put aside in `base`.
    pub(crate) fn all(base: &Path, home: &Path) -> Result<Vec<Self>, FolderError> {
        let entries = match fs::read_dir(home) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("list", home)(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed("list", home))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') {
                if let Err(error) = tree::remove(&path) {
                    put_aside(base, &path, &error);
                }
            } else if name.parse::<BatchId>().is_ok() {
                found.push(Self { path });
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn results(&self) -> PathBuf {
        self.path.join(RESULTS)
    }

    pub(crate) fn read_meta(&self) -> Result<Meta, FolderError> {
        read(&self.path.join(META))
    }

    pub(crate) fn read_wanted(&self) -> Result<CreateBatch, FolderError> {
        read(&self.path.join(TASKS))
    }

    /// Every result that is whole; a line that was cut off is taken away.
    pub(crate) fn read_results(&self) -> Result<Vec<TaskResult>, FolderError> {
        let path = self.results();
        let mut file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed("open", &path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read", &path))?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).and_then(|()| file.sync_all()).map_err(failed("mend", &path))?;
        }
        let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| {
                serde_json::from_slice(line).map_err(|source| FolderError::Content { path: path.clone(), source })
            })
            .collect()
    }

    /// Adds results and returns when they are on the disk.
    pub(crate) fn append(&self, results: &[TaskResult]) -> Result<(), FolderError> {
        let path = self.results();
        let mut lines = Vec::new();
        for result in results {
            serde_json::to_writer(&mut lines, result)
                .map_err(|source| FolderError::Content { path: path.clone(), source })?;
            lines.push(b'\n');
        }
        let mut file = OpenOptions::new().write(true).open(&path).map_err(failed("open", &path))?;
        let end = file.seek(SeekFrom::End(0)).map_err(failed("read", &path))?;
        let written = file.write_all(&lines).and_then(|()| file.sync_data());
        if written.is_err() {
            // Half a line must not be in the way of the next attempt.
            file.set_len(end).map_err(failed("mend", &path))?;
        }
        written.map_err(failed("write", &path))
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.path.join(CANCELLED).exists()
    }

    pub(crate) fn mark_cancelled(&self, cancelled: bool) -> Result<(), FolderError> {
        let path = self.path.join(CANCELLED);
        let done = if cancelled { File::create(&path).map(drop) } else { fs::remove_file(&path) };
        match done {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("mark", &path)(error)),
            _ => sync(&self.path),
        }
    }

    pub(crate) fn remove(&self) -> Result<(), FolderError> {
        let doomed = self.doom()?;
        tree::remove(&doomed).map_err(failed("remove", &doomed))
    }

    /// Takes its name away: from here on it is none of the batches, whatever cuts its removal off.
    fn doom(&self) -> Result<PathBuf, FolderError> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let doomed = self.path.with_file_name(format!(".{name}"));
        fs::rename(&self.path, &doomed).map_err(failed("remove", &self.path))?;
        Ok(doomed)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, FolderError> {
    let bytes = fs::read(path).map_err(failed("read", path))?;
    serde_json::from_slice(&bytes).map_err(|source| FolderError::Content { path: path.to_owned(), source })
}

fn write_synced(path: &Path, content: &[u8]) -> Result<(), FolderError> {
    let write = || -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(failed("write", path))
}

fn sync(folder: &Path) -> Result<(), FolderError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(id: &str) -> TaskResult {
        TaskResult {
            id: id.to_owned(),
            exit_code: Some(0),
            stdout: "two\nlines\n".to_owned(),
            stderr: String::new(),
            truncated: false,
            timed_out: false,
            started_at: Timestamp::UNIX_EPOCH,
            duration_ms: 1,
            attempts: 1,
            error: None,
        }
    }

    fn folder(home: &Path) -> Folder {
        let meta = Meta {
            id: BatchId::from_parts(1, 1),
            template: "mini".to_owned(),
            parallel: 1,
            tasks: 3,
            created_at: Timestamp::UNIX_EPOCH,
            key: None,
            fingerprint: String::new(),
        };
        Folder::make(home, &meta, br#"{"tasks": [{"command": "true"}]}"#).unwrap()
    }

    #[test]
    fn what_was_cut_off_is_not_a_result() {
        let home = tempfile::tempdir().unwrap();
        let folder = folder(home.path());
        folder.append(&[result("a"), result("b")]).unwrap();
        let whole = fs::metadata(folder.results()).unwrap().len();
        for cut in 1..20 {
            folder.append(&[result("c")]).unwrap();
            let length = fs::metadata(folder.results()).unwrap().len();
            File::options().write(true).open(folder.results()).unwrap().set_len(length - cut).unwrap();
            assert_eq!(folder.read_results().unwrap(), [result("a"), result("b")]);
            assert_eq!(fs::metadata(folder.results()).unwrap().len(), whole);
        }
        folder.append(&[result("c")]).unwrap();
        assert_eq!(folder.read_results().unwrap().len(), 3);
    }

    #[test]
    fn folders_are_found_and_unfinished_ones_are_not() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Folder::all(home.path(), &home.path().join("none")).unwrap().len(), 0);
        let folder = folder(home.path());
        fs::create_dir(home.path().join(format!(".{}", BatchId::from_parts(2, 2)))).unwrap();
        let found = Folder::all(home.path(), home.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].read_meta().unwrap().tasks, 3);
        assert_eq!(found[0].read_wanted().unwrap().tasks.len(), 1);
        assert!(!folder.is_cancelled());
        for cancelled in [true, true, false, false] {
            folder.mark_cancelled(cancelled).unwrap();
            assert_eq!(folder.is_cancelled(), cancelled);
        }
        folder.remove().unwrap();
        assert!(Folder::all(home.path(), home.path()).unwrap().is_empty());
    }

    #[test]
    fn one_whose_removal_was_cut_off_is_gone() {
        let home = tempfile::tempdir().unwrap();
        let doomed = folder(home.path()).doom().unwrap();
        fs::remove_file(doomed.join(RESULTS)).unwrap();
        assert!(Folder::all(home.path(), home.path()).unwrap().is_empty());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
