//! Programs of the sandbox's own that run when it wakes: `roost/on-fork.d` after a fork, then `roost/on-wake.d` after
//! everything, each in the order of names.
//!
//! They run in the background and one at a time. A sandbox may sleep and wake again before they are through; then they
//! run once more, for the newest occasion, however many there were.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use roost_wire::{ExecStart, Program, Why};
use rustix::event::{PollFd, PollFlags, poll};

use crate::exec::attach::Attachment;
use crate::exec::start::start_unlisted;
use crate::guest::{Guest, small_thread};
use crate::wake::lock;

mod log;

use log::Log;

const TIME_LIMIT: Duration = Duration::from_secs(30);
/// How much of what a hook wrote is kept in the log: the end of it.
const OUTPUT_KEPT: usize = 16 * 1024;

/// What hooks are told.
#[derive(Debug, Clone)]
pub(crate) struct Occasion {
    pub(crate) why: Why,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) generation: u64,
    pub(crate) asleep_ms: u64,
}

/// Whether hooks run, and what for next.
#[derive(Debug, Default)]
pub(crate) struct Hooks(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    running: bool,
    next: Option<Occasion>,
}

impl Progress {
    /// Puts an occasion in line. A fork that waits there is not forgotten over a wake.
    fn add(&mut self, mut occasion: Occasion) {
        if self.next.take().is_some_and(|waiting| waiting.why == Why::Fork) {
            occasion.why = Why::Fork;
        }
        self.next = Some(occasion);
    }

    /// The next occasion; none ends the thread.
    fn take(&mut self) -> Option<Occasion> {
        let next = self.next.take();
        self.running = next.is_some();
        next
    }
}

impl Hooks {
    /// Runs what is there for the occasion, in the background.
    pub(crate) fn run(&self, guest: &Arc<Guest>, occasion: Occasion) {
        let mut progress = lock(&self.0);
        // Most sandboxes have none; they are not to pay for a thread.
        if !progress.running && found(guest, occasion.why).is_empty() {
            return;
        }
        progress.add(occasion);
        if !progress.running {
            let guest = guest.clone();
            let work = move || {
                while let Some(occasion) = guest.hooks.next() {
                    run_all(&guest, &occasion);
                }
            };
            match small_thread("hooks").spawn(work) {
                Ok(_) => progress.running = true,
                Err(error) => eprintln!("roost-guest: failed to start a thread for hooks: {error}"),
            }
        }
    }

    fn next(&self) -> Option<Occasion> {
        lock(&self.0).take()
    }
}

/// The hooks for an occasion, in order.
fn found(guest: &Guest, why: Why) -> Vec<PathBuf> {
    let folders: &[&str] = match why {
        Why::Fork => &["roost/on-fork.d", "roost/on-wake.d"],
        Why::Wake | Why::Restore => &["roost/on-wake.d"],
    };
    let etc = Path::new(&guest.config.etc_dir);
    folders.iter().flat_map(|folder| executables(&etc.join(folder))).collect()
}

/// Executable files of a folder by name, without hidden ones and what editors leave behind.
fn executables(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let executable =
            fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
        !name.starts_with('.') && !name.ends_with('~') && executable
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(wanted).collect();
    paths.sort();
    paths
}

fn run_all(guest: &Arc<Guest>, occasion: &Occasion) {
    let log = Log::new(Path::new(&guest.config.log_dir));
    for path in found(guest, occasion.why) {
        let begun = Instant::now();
        let (outcome, output) = run_one(guest, occasion, &path);
        let heading = format!("{} (generation {}, {}): {outcome}", path.display(), occasion.generation, occasion.why);
        if let Err(error) = log.add(&heading, begun.elapsed(), &output) {
            eprintln!("roost-guest: failed to write the log of hooks: {error}");
        }
    }
}

/// Runs a hook to its end and returns how that was, in words, and what it wrote.
fn run_one(guest: &Arc<Guest>, occasion: &Occasion, path: &Path) -> (String, Vec<u8>) {
    let mut start = ExecStart::new("hook", Program::Argv(vec![path.to_string_lossy().into_owned()]));
    start.user = Some("root".to_owned());
    start.cwd = Some("/".to_owned());
    start.timeout_ms = u64::try_from(TIME_LIMIT.as_millis()).ok();
    start.env = [
        ("ROOST_WHY", occasion.why.to_string()),
        ("ROOST_GENERATION", occasion.generation.to_string()),
        ("ROOST_ID", occasion.id.clone()),
        ("ROOST_NAME", occasion.name.clone()),
        ("ROOST_ASLEEP_MS", occasion.asleep_ms.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let exec = match start_unlisted(guest, &start) {
        Ok((exec, _)) => exec,
        Err(failure) => return (failure.message, Vec::new()),
    };
    let bell = match Attachment::bell(&exec) {
        Ok(bell) => bell,
        Err(failure) => return (failure.message, Vec::new()),
    };
    let exit = loop {
        bell.wake().clear();
        if let Some(exit) = exec.info().exit() {
            break exit;
        }
        poll(&mut [PollFd::new(bell.wake(), PollFlags::IN)], None).ok();
    };
    let outcome = match (exit.code, exit.signal) {
        _ if exit.timed_out => format!("killed after {} s", TIME_LIMIT.as_secs()),
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("ended by signal {}", signal.unwrap_or_default()),
    };
    (outcome, exec.last_output(OUTPUT_KEPT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occasion(why: Why, generation: u64) -> Occasion {
        Occasion { why, id: "sbx_1".into(), name: "a".into(), generation, asleep_ms: 0 }
    }

    #[test]
    fn only_executable_files_count_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [("20-b", 0o755), ("10-a", 0o500), ("30-no", 0o644), (".hidden", 0o755), ("10-a~", 0o755)] {
            let path = folder.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(folder.path().join("15-folder")).unwrap();
        let names: Vec<_> =
            executables(folder.path()).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["10-a", "20-b"]);
        assert!(executables(&folder.path().join("none")).is_empty());
    }

    #[test]
    fn the_newest_occasion_waits_and_a_fork_stays_one() {
        let mut progress = Progress::default();
        progress.add(occasion(Why::Wake, 1));
        progress.add(occasion(Why::Fork, 2));
        progress.add(occasion(Why::Wake, 2));
        let next = progress.take().unwrap();
        assert_eq!((next.why, next.generation, progress.running), (Why::Fork, 2, true));
        assert!(progress.take().is_none() && !progress.running);
    }
}
