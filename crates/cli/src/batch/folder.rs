//! The folder of a run: what it is of, and its results.
//!
//! ```text
//! run.json       which batch of the daemon's, and a digest of the tasks
//! results.jsonl  one line for each result
//! ```

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use roost_model::TaskResult;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::failure::hinted;

const BEGUN: &str = "run.json";
const RESULTS: &str = "results.jsonl";

/// What a run is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// Digest of the template's name and of the tasks.
    pub(crate) digest: String,
    /// The key with which the batch was asked for.
    pub(crate) key: String,
    /// How many results there were before that batch.
    pub(crate) before: u64,
}

/// The folder, held by this process alone.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    results: File,
    /// Results so far.
    pub(crate) count: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) errors: u64,
}

impl RunFolder {
    /// Makes the folder if it is missing, takes it for this process and mends what a crash cut off.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("failed to make the run folder `{}`", path.display()))?;
        let file = path.join(RESULTS);
        let results = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&file);
        let results = results.with_context(|| format!("failed to open `{}`", file.display()))?;
        if flock(&results, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(hinted(format!("another run writes to `{}`", path.display()), "give another --run-dir"));
        }
        let mut folder = Self { path: path.to_owned(), results, count: 0, succeeded: 0, failed: 0, errors: 0 };
        folder.mend().with_context(|| format!("failed to read `{}`", file.display()))?;
        Ok(folder)
    }

    fn mend(&mut self) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        self.results.seek(SeekFrom::Start(0))?;
        self.results.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.results.set_len(whole as u64)?;
        self.results.seek(SeekFrom::End(0))?;
        for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.tally(&serde_json::from_slice(line)?);
        }
        Ok(())
    }

    fn tally(&mut self, result: &TaskResult) {
        self.count += 1;
        match result.exit_code {
            Some(0) => self.succeeded += 1,
            Some(_) => self.failed += 1,
            None => self.errors += 1,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Ids of the tasks that have a result here.
    pub(crate) fn done(&self) -> anyhow::Result<HashSet<String>> {
        let text = fs::read_to_string(self.path.join(RESULTS))?;
        text.lines().map(|line| Ok(serde_json::from_str::<TaskResult>(line)?.id)).collect()
    }

    /// What this run is of, if it has begun before.
    pub(crate) fn begun(&self) -> anyhow::Result<Option<Begun>> {
        let path = self.path.join(BEGUN);
        match fs::read(&path) {
            Ok(bytes) => {
                Ok(Some(serde_json::from_slice(&bytes).with_context(|| format!("`{}` is damaged", path.display()))?))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                ensure!(self.count == 0, "`{}` holds results of something else", self.path.display());
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("failed to read `{}`", path.display())),
        }
    }

    /// Remembers what this run is of, before anything is asked of the daemon.
    pub(crate) fn begin(&self, begun: &Begun) -> anyhow::Result<()> {
        let (path, staged) = (self.path.join(BEGUN), self.path.join(".run.json"));
        let write = || -> anyhow::Result<()> {
            let mut file = File::create(&staged)?;
            file.write_all(&serde_json::to_vec(begun)?)?;
            file.sync_all()?;
            fs::rename(&staged, &path)?;
            File::open(&self.path)?.sync_all()?;
            Ok(())
        };
        write().with_context(|| format!("failed to write `{}`", path.display()))
    }

    /// Adds results and returns when they are on the disk.
    pub(crate) fn append(&mut self, results: &[TaskResult]) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        for result in results {
            serde_json::to_writer(&mut lines, result)?;
            lines.push(b'\n');
        }
        let written = self.results.write_all(&lines).and_then(|()| self.results.sync_data());
        written.with_context(|| format!("failed to write results to `{}`", self.path.display()))?;
        results.iter().for_each(|result| self.tally(result));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn result(id: &str, exit_code: Option<i32>) -> TaskResult {
        TaskResult {
            id: id.to_owned(),
            exit_code,
            stdout: String::new(),
            stderr: String::new(),
            truncated: false,
            timed_out: false,
            started_at: Timestamp::UNIX_EPOCH,
            duration_ms: 1,
            attempts: 1,
            error: None,
        }
    }

    #[test]
    fn a_run_goes_on_where_it_was_cut_off() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run");
        let mut folder = RunFolder::open(&path).unwrap();
        assert!(RunFolder::open(&path).unwrap_err().to_string().contains("another run writes"));
        assert_eq!(folder.begun().unwrap(), None);
        let begun = Begun { digest: "d".to_owned(), key: "k".to_owned(), before: 0 };
        folder.begin(&begun).unwrap();
        folder.append(&[result("a", Some(0)), result("b", Some(3)), result("c", None)]).unwrap();
        folder.results.write_all(b"{\"id\": \"d\", \"exit").unwrap();
        drop(folder);
        let folder = RunFolder::open(&path).unwrap();
        assert_eq!((folder.count, folder.succeeded, folder.failed, folder.errors), (3, 1, 1, 1));
        assert_eq!(folder.begun().unwrap(), Some(begun));
        assert_eq!(folder.done().unwrap(), ["a", "b", "c"].map(str::to_owned).into());
    }
}
