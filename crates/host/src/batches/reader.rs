//! Results of a batch as they come.

use std::io;
use std::path::PathBuf;

use roost_model::BatchState;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::sync::watch;

use super::Progress;
use crate::HostError;

/// Reads lines of results, and waits for more if asked to.
#[derive(Debug)]
pub struct BatchReader {
    lines: Lines<BufReader<File>>,
    read: u64,
    follow: bool,
    progress: watch::Receiver<Progress>,
}

impl BatchReader {
    pub(super) async fn open(
        path: PathBuf,
        after: u64,
        follow: bool,
        progress: watch::Receiver<Progress>,
    ) -> Result<Self, HostError> {
        let file = File::open(&path).await.map_err(|error| unreadable(&error))?;
        let mut reader = Self { lines: BufReader::new(file).lines(), read: 0, follow, progress };
        while reader.read < after && reader.read < reader.progress.borrow().done {
            reader.line().await?;
        }
        if reader.read < after {
            return Err(HostError::BadRequest(format!("there are {} results, not {after}", reader.read)));
        }
        Ok(reader)
    }

    /// The next line; nothing at the end, which for a follower comes when the batch has ended. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<String>, HostError> {
        loop {
            let now = *self.progress.borrow_and_update();
            if self.read < now.done {
                return self.line().await.map(Some);
            }
            let goes_on = self.follow && now.state == BatchState::Running;
            // The other end goes when the batch is forgotten.
            if !goes_on || self.progress.changed().await.is_err() {
                return Ok(None);
            }
        }
    }

    async fn line(&mut self) -> Result<String, HostError> {
        let line = self.lines.next_line().await.map_err(|error| unreadable(&error))?;
        self.read += 1;
        line.ok_or_else(|| HostError::Internal("a result is missing in its file".to_owned()))
    }
}

fn unreadable(error: &io::Error) -> HostError {
    HostError::Internal(format!("failed to read the results: {error}"))
}
