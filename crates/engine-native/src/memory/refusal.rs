//! What CRIU's log says, in words for somebody who never heard of CRIU.

/// Why a dump or a restore did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The host's number of the process at hand, where the log tells.
    pub(crate) pid: Option<u32>,
    /// The reason.
    pub(crate) why: String,
}

/// Pieces of CRIU's messages, and what they mean.
const MEANINGS: [(&str, &str); 14] = [
    ("nested user namespace", "it is in a user namespace of its own"),
    ("nested pid namespace", "it is in a pid namespace of its own"),
    ("io_uring", "it uses io_uring"),
    ("anon_inode:[userfaultfd]", "it uses userfaultfd"),
    ("anon_inode:[perf_event]", "it uses performance counters"),
    ("anon_inode:bpf", "it uses BPF"),
    ("memfd_secret", "it uses secret memory"),
    ("ghost file", "it keeps a deleted file open that is too large to be saved with it"),
    ("No space left on device", "the disk is full"),
    ("Disk quota exceeded", "the disk is full"),
    ("Found unlocked", "it takes a file lock that cannot be saved"),
    ("is not supported for socket", "it uses a kind of socket that cannot be saved"),
    (
        "POKEDATA failed",
        "a save that was cut off left its traces in it; it can be saved again after its processes have been restarted",
    ),
    ("already ptraced", "a debugger is attached to it"),
];

/// Messages that come in every run and stop nothing.
const HARMLESS: [&str; 2] = ["rlimit:", "Can't setup RLIMIT"];

impl Refusal {
    /// Reads the lines of a log that speak of errors.
    pub(crate) fn read(log: &str) -> Self {
        let mut at_hand = None;
        let mut errors = Vec::new();
        for line in log.lines() {
            if let Some(pid) = pid_after(line, "(pid: ") {
                at_hand = Some(pid);
            }
            if line.contains("Error (") && !HARMLESS.iter().any(|harmless| line.contains(harmless)) {
                errors.push((at_hand, message(line)));
            }
        }
        for (piece, meaning) in MEANINGS {
            if let Some((pid, _)) = errors.iter().find(|(_, error)| error.contains(piece)) {
                return Self { pid: *pid, why: meaning.to_owned() };
            }
        }
        match errors.first() {
            Some((pid, error)) => Self { pid: *pid, why: error.clone() },
            None => Self { pid: None, why: "criu ended without a word".to_owned() },
        }
    }
}

/// What is said of a CRIU that did not end by itself.
pub(crate) fn ended_by(signal: i32) -> String {
    format!("criu was ended by signal {signal}")
}

fn pid_after(line: &str, mark: &str) -> Option<u32> {
    let rest = line.split_once(mark)?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The message without its time and its place in CRIU's source.
fn message(line: &str) -> String {
    line.split_once("): ").map_or(line, |(_, message)| message).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_and_the_reason_are_named() {
        let log = "(00.01) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n\
            (00.02) Dumping task (pid: 4711 comm: node)\n\
            (00.03) Error (criu/files-ext.c:98): Can't dump file 24 of that type [600] (unknown anon_inode:[io_uring])\n\
            (00.04) Error (criu/cr-dump.c:1674): Dump files (pid: 4711) failed with -1\n";
        assert_eq!(Refusal::read(log), Refusal { pid: Some(4711), why: "it uses io_uring".into() });
    }

    #[test]
    fn an_unknown_reason_is_passed_on() {
        let log = "(00.02) Dumping task (pid: 12 comm: x)\n(00.03) Error (criu/a.c:1): Something: new\n";
        assert_eq!(Refusal::read(log), Refusal { pid: Some(12), why: "Something: new".into() });
        assert_eq!(Refusal::read("").pid, None);
    }
}
