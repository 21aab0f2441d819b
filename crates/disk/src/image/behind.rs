//! Writing a dump out while it is still being written, so that its commit has little left to wait for.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use roost_sys::writeback;

/// A thread that follows whoever writes large files into a folder; it ends with this.
#[derive(Debug)]
pub(super) struct WriteBehind {
    /// Never sent to: the thread hears when it goes.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WriteBehind {
    const LOOK_EVERY: Duration = Duration::from_millis(4);
    /// Less at a time would break the file into many extents.
    const AT_LEAST: u64 = 4 << 20;

    pub(super) fn follow(folder: PathBuf) -> io::Result<Self> {
        let (alive, gone) = channel::<()>();
        let work = move || {
            let mut begun = HashMap::new();
            while gone.recv_timeout(Self::LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                // A help, no duty: the commit does what is not done here and says what is wrong.
                if let Err(error) = push(&folder, &mut begun) {
                    tracing::debug!(%error, path = %folder.display(), "stopped to write a dump out ahead");
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("write-behind".to_owned()).spawn(work)?;
        Ok(Self { alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread that writes a dump out ahead panicked");
        }
    }
}

/// Begins to write out what has come since the last look.
fn push(folder: &Path, begun: &mut HashMap<OsString, u64>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        let begun = begun.entry(entry.file_name()).or_default();
        let new = data.len().saturating_sub(*begun);
        if data.is_file() && new >= WriteBehind::AT_LEAST {
            writeback::start(File::open(entry.path())?, *begun, new)?;
            *begun = data.len();
        }
    }
    Ok(())
}
