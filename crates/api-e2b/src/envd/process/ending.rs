//! The end of a process in the words that E2B's clients show, which are those of Go.

use roost_host::Exit;

use super::message::Ended;

/// What is told of an end.
pub(super) fn ended(exit: Exit) -> Ended {
    let status = match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal: {}", signal_text(signal)),
        (None, None) => "ended".to_owned(),
    };
    let error = (exit.code != Some(0)).then(|| status.clone());
    Ended { exit_code: exit.code.unwrap_or(-1), exited: exit.code.is_some(), status, error }
}

/// Go's words for Linux's signals, by number from 1 on.
const SIGNALS: [&str; 31] = [
    "hangup",
    "interrupt",
    "quit",
    "illegal instruction",
    "trace/breakpoint trap",
    "aborted",
    "bus error",
    "floating point exception",
    "killed",
    "user defined signal 1",
    "segmentation fault",
    "user defined signal 2",
    "broken pipe",
    "alarm clock",
    "terminated",
    "stack fault",
    "child exited",
    "continued",
    "stopped (signal)",
    "stopped",
    "stopped (tty input)",
    "stopped (tty output)",
    "urgent I/O condition",
    "CPU time limit exceeded",
    "file size limit exceeded",
    "virtual timer expired",
    "profiling timer expired",
    "window changed",
    "I/O possible",
    "power failure",
    "bad system call",
];

fn signal_text(signal: i32) -> String {
    let place = usize::try_from(signal).ok().and_then(|signal| signal.checked_sub(1));
    match place.and_then(|place| SIGNALS.get(place)) {
        Some(text) => (*text).to_owned(),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_read_as_they_do_elsewhere() {
        let exited = |code| ended(Exit { code: Some(code), ..Exit::default() });
        let well = Ended { exit_code: 0, exited: true, status: "exit status 0".to_owned(), error: None };
        assert_eq!(exited(0), well);
        assert_eq!((exited(3).exit_code, exited(3).error.as_deref()), (3, Some("exit status 3")));
        let killed = ended(Exit { signal: Some(9), ..Exit::default() });
        assert_eq!((killed.exit_code, killed.exited, killed.error.as_deref()), (-1, false, Some("signal: killed")));
        assert_eq!((signal_text(15), signal_text(31)), ("terminated".to_owned(), "bad system call".to_owned()));
        assert_eq!((signal_text(34), signal_text(0)), ("signal 34".to_owned(), "signal 0".to_owned()));
    }
}
