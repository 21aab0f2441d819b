//! A process that a killed CRIU has left as it was inside of it.
//!
//! CRIU goes into one process after the other: it blocks all signals of that one, puts code of its own in the place of the
//! process's, and runs it there. Killed in the middle it lets go of all processes; most go on as if nothing had been. The
//! one that it was inside of may run into what was put there, and die, or go on deaf to every signal. A sandbox with
//! such a process is not what it was, and nobody would be told: it ends as a whole, and begins anew from its files.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Whoever runs into what CRIU left has done so by then.
const GRACE: Duration = Duration::from_millis(100);
/// How often a process is looked at, and how long between two looks.
const LOOKS: usize = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// How the kernel prints that every signal is blocked that can be. Libraries leave out those of their own.
const ALL_BLOCKED: &str = "fffffffffffbfeff";
/// CRIU's word for whom it goes into, with the host's number of it.
const GOES_INTO: &str = "Dumping task (pid: ";

/// Whether the process that CRIU was at when it was killed, by its log, is not what it was before.
pub(super) fn was_left(log: &str) -> bool {
    let Some(pid) = last_entered(log) else { return false };
    sleep(GRACE);
    stays_spoiled(&Path::new("/proc").join(pid), || sleep(BETWEEN_LOOKS))
}

fn last_entered(log: &str) -> Option<&str> {
    let line = log.lines().rfind(|line| line.contains(GOES_INTO))?;
    line.split_once(GOES_INTO)?.1.split_whitespace().next()
}

/// Whether it is spoiled at every look. Whoever begins a thread is deaf for that moment, and so is the thread.
fn stays_spoiled(process: &Path, mut pause: impl FnMut()) -> bool {
    is_spoiled(process)
        && (1..LOOKS).all(|_| {
            pause();
            is_spoiled(process)
        })
}

fn is_spoiled(process: &Path) -> bool {
    let Ok(threads) = fs::read_dir(process.join("task")) else { return true };
    let mut threads =
        threads.flatten().map(|thread| fs::read_to_string(thread.path().join("status")).unwrap_or_default());
    threads.any(|status| {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        field("State:").starts_with(['Z', 'X']) || field("SigBlk:") == ALL_BLOCKED
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_is_at_hand() {
        let log =
            "(00.02) Dumping task (pid: 4711 comm: node)\n(00.03) Warn x\n(00.04) Dumping task (pid: 12 comm: sh)\n";
        assert_eq!(last_entered(log), Some("12"));
        assert_eq!(last_entered("(00.01) Warn"), None);
    }

    #[test]
    fn who_is_dead_or_deaf_is_spoiled() {
        let folder = tempfile::tempdir().unwrap();
        let thread = |name: &str, state: &str, blocked: &str| {
            let place = folder.path().join("task").join(name);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("status"), format!("Name:\tx\nState:\t{state}\nSigBlk:\t{blocked}\n")).unwrap();
        };
        assert!(is_spoiled(folder.path()), "it is gone");
        thread("1", "S (sleeping)", "0000000000000000");
        thread("2", "t (tracing stop)", "fffffffe7ffbfeff");
        assert!(!is_spoiled(folder.path()));
        thread("3", "R (running)", ALL_BLOCKED);
        assert!(is_spoiled(folder.path()));
        thread("3", "Z (zombie)", "0000000000000000");
        assert!(is_spoiled(folder.path()));
        assert!(stays_spoiled(folder.path(), || ()));
        thread("3", "R (running)", ALL_BLOCKED);
        let hears_again = || thread("3", "R (running)", "0000000000000000");
        assert!(!stays_spoiled(folder.path(), hears_again), "it was about to begin a thread");
        assert!(!stays_spoiled(Path::new("/proc/self"), || sleep(BETWEEN_LOOKS)));
    }
}
