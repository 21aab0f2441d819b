//! The data folder and its lock: one daemon at a time.
//!
//! The lock is one of an open file, so it lasts as long as any process has that file open. A daemon that is killed while
//! it starts a program leaves a child that has it until it runs that program: whoever comes next waits for that, and is
//! refused at once only by a daemon that lives.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::config::ServeConfig;

/// How long the lock may outlive its daemon.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Names the daemon that runs, from its start until it has stopped in order.
const RUNNING: &str = "running";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The data folder, held by this process alone.
#[derive(Debug)]
pub(crate) struct DataFolder {
    pub(crate) path: PathBuf,
    pub(crate) runtime: PathBuf,
    pub(crate) instance: String,
    /// How the last daemon ended, if it was not stopped.
    pub(crate) cut_off: Option<String>,
    /// Locked as long as it is open; holds the pid of its holder.
    _lock: File,
}

impl DataFolder {
    /// Makes the folder if it is missing and takes it for this process.
    pub(crate) fn take(config: &ServeConfig) -> anyhow::Result<Self> {
        let make = |path: &Path, mode: u32| {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(path)
                .with_context(|| format!("failed to make the folder `{}`", path.display()))
        };
        make(&config.data_dir, 0o700)?;
        make(&config.runtime_dir, 0o755)?;
        let path = config.data_dir.canonicalize().context("failed to find the data folder")?;
        let runtime = config.runtime_dir.canonicalize().context("failed to find the runtime folder")?;
        let lock = lock(&path)?;
        let instance = instance_of(&path);
        let boot = fs::read_to_string(BOOT_ID).context("failed to read the id of this boot")?;
        let running = path.join(RUNNING);
        let cut_off = fs::read_to_string(&running).ok().map(|of_last| how_it_ended(&of_last, &boot));
        fs::write(&running, format!("{} {boot}", std::process::id())).context("failed to write the file `running`")?;
        Ok(Self { path, runtime, instance, cut_off, _lock: lock })
    }

    /// Records that this daemon stopped in order.
    pub(crate) fn stopped(&self) {
        if let Err(error) = fs::remove_file(self.path.join(RUNNING)) {
            tracing::warn!(%error, "failed to record that the daemon stopped");
        }
    }
}

/// Tells from the file that the last daemon left behind why it never removed it.
fn how_it_ended(of_last: &str, boot: &str) -> String {
    let (pid, boot_of_last) = of_last.split_once(' ').unwrap_or_default();
    if boot_of_last.trim() == boot.trim() {
        format!("the last daemon (process {pid}) ended without being stopped; sandboxes went on meanwhile")
    } else {
        "the host went down without stopping the daemon".to_owned()
    }
}

/// Six hex digits that tell one data folder from another.
pub(crate) fn instance_of(path: &Path) -> String {
    let hash = blake3::hash(path.as_os_str().as_encoded_bytes());
    hash.to_hex().chars().take(6).collect()
}

/// The pid of the daemon that holds a data folder, if one does.
pub(crate) fn holder(data_dir: &Path) -> Option<i32> {
    let mut file = OpenOptions::new().read(true).open(data_dir.join("lock")).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn lock(data_dir: &Path) -> anyhow::Result<File> {
    let path = data_dir.join("lock");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("failed to open `{}`", path.display()))?;
    let deadline = Instant::now() + PATIENCE;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        match holder(data_dir) {
            Some(pid) if lives(pid) => {
                bail!("`{}` is in use by a running daemon (process {pid})", data_dir.display())
            }
            _ if Instant::now() > deadline => bail!("`{}` is in use by another process", data_dir.display()),
            _ => std::thread::sleep(LOOK_EVERY),
        }
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).context("failed to write the lock file")?;
    Ok(file)
}

/// Whether a process has not ended; one that has and was not waited for yet is over.
fn lives(pid: i32) -> bool {
    let Some(Ok(process)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return false };
    matches!(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&Timespec::default())), Ok(0))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Holds the lock in another process, as a child does that its daemon has just forked; ends when its input does.
    fn held_by_a_child(folder: &Path, daemon: u32) -> Child {
        let path = folder.join("lock");
        let mut file = File::create(&path).unwrap();
        writeln!(file, "{daemon}").unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        Command::new("cat").stdin(Stdio::piped()).stdout(file).spawn().unwrap()
    }

    #[test]
    fn a_lock_that_outlives_its_daemon_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Command::new("true").spawn().unwrap();
        daemon.wait().unwrap();
        let mut child = held_by_a_child(folder.path(), daemon.id());
        assert_eq!(holder(folder.path()), Some(daemon.id().cast_signed()));
        let path = folder.path().to_owned();
        let taken = std::thread::spawn(move || lock(&path));
        drop(child.stdin.take());
        child.wait().unwrap();
        taken.join().unwrap().unwrap();
    }

    #[test]
    fn end_without_a_stop_is_told_from_a_reboot() {
        assert!(how_it_ended("12 boot-a\n", "boot-a\n").contains("(process 12) ended without being stopped"));
        assert!(how_it_ended("12 boot-a\n", "boot-b\n").contains("the host went down"));
        assert!(how_it_ended("", "boot-b\n").contains("the host went down"));
    }

    #[test]
    fn a_daemon_that_lives_refuses_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = held_by_a_child(folder.path(), std::process::id());
        let began = Instant::now();
        let refused = lock(folder.path()).unwrap_err().to_string();
        assert!(began.elapsed() < PATIENCE);
        assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(holder(folder.path()), None);
        lock(folder.path()).unwrap();
    }
}
