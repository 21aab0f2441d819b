//! `roost-guest` as a command inside: writes a call to the guest's socket and prints what came of it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use roost_wire::{AskAlarm, AskCheckpoint, AskHold, AskRelease, AskSuspend, Call, Outcome};

use crate::calls::inside;

const RUN_DIR: &str = "/run/roost";

const HELP: &str = "\
Ask the host of this sandbox for something

Usage: roost-guest COMMAND [OPTIONS]

  info                   show who this sandbox is, what keeps it awake and what wakes it
  hold                   keep it awake: --for 10m, --reason TEXT, --name NAME; again to renew
  release [NAME]         end a hold, or all that were taken from inside
  suspend                let it sleep now and return when it is awake again: --to ram|disk; sleep-now is the same
  checkpoint             keep this moment of it: --comment TEXT
  wake-at WHEN           wake it at a time: 'in 10m', 07:30, 2027-01-31T07:30:00Z; --tz ZONE, --name, --reason
  wake-every CRON        wake it again and again: '*/5 * * * *', @hourly; --tz ZONE, --name, --reason
  unset [NAME]           remove an alarm, or all that were set from inside
  help                   show this

  --json                 print the answer as JSON
  --socket PATH          use another socket than /run/roost/sock

Examples:
  roost-guest hold --for 30m --reason 'long build'
  roost-guest wake-at 'in 1h' && roost-guest suspend
";

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
struct Typed {
    call: Call,
    json: bool,
    socket: PathBuf,
}

/// Runs what was typed after `roost-guest`.
pub(crate) fn run(arguments: Vec<String>) -> ExitCode {
    if matches!(arguments.first().map(String::as_str), None | Some("help" | "--help" | "-h")) {
        return print(HELP, ExitCode::SUCCESS);
    }
    let typed = match parse(arguments) {
        Ok(typed) => typed,
        Err(wrong) => {
            eprintln!("roost-guest: {wrong}; `roost-guest help` shows what there is");
            return ExitCode::from(2);
        }
    };
    match ask(&typed.socket, &typed.call) {
        Ok((line, Outcome::Ok(answer))) => {
            let text = if typed.json { line } else { answer.text };
            print(&format!("{}\n", text.trim_end()), ExitCode::SUCCESS)
        }
        Ok((line, Outcome::Error(_))) if typed.json => print(&format!("{}\n", line.trim_end()), ExitCode::FAILURE),
        Ok((_, Outcome::Error(refusal))) => {
            eprintln!("roost-guest: {}", refusal.message);
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("roost-guest: failed to ask at {}: {error}", typed.socket.display());
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn print(text: &str, code: ExitCode) -> ExitCode {
    // A reader that left has seen enough.
    io::stdout().write_all(text.as_bytes()).ok();
    code
}

/// Asks the host of this sandbox. Returns the answer as it came and as it is understood.
pub(crate) fn ask_host(call: &Call) -> io::Result<(String, Outcome)> {
    ask(&inside::path(RUN_DIR), call)
}

fn ask(socket: &Path, call: &Call) -> io::Result<(String, Outcome)> {
    let mut stream = UnixStream::connect(socket)?;
    let mut line = serde_json::to_string(call)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    if BufReader::new(stream).read_line(&mut answer)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let outcome = serde_json::from_str(&answer)?;
    Ok((answer, outcome))
}

/// The options that take a value, and those of them that a command knows.
#[derive(Debug, Default)]
struct Options {
    values: Vec<(String, String)>,
    words: Vec<String>,
    json: bool,
}

impl Options {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.strip_prefix("--") {
                Some("json") => options.json = true,
                Some(option) => {
                    let (name, value) = match option.split_once('=') {
                        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                        None => (option.to_owned(), arguments.next()),
                    };
                    let value = value.ok_or_else(|| format!("--{name} needs a value"))?;
                    options.values.push((name, value));
                }
                None => options.words.push(argument),
            }
        }
        Ok(options)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let place = self.values.iter().position(|(known, _)| known == name)?;
        Some(self.values.swap_remove(place).1)
    }

    /// All words as one, so that a time needs no quotes.
    fn take_words(&mut self) -> Option<String> {
        let words = std::mem::take(&mut self.words);
        (!words.is_empty()).then(|| words.join(" "))
    }
}

fn parse(arguments: Vec<String>) -> Result<Typed, String> {
    let mut arguments = arguments.into_iter();
    let command = arguments.next().unwrap_or_default();
    let mut options = Options::read(arguments)?;
    let socket = options.take("socket").map_or_else(|| inside::path(RUN_DIR), PathBuf::from);
    let call = match command.as_str() {
        "info" => Call::Info,
        "hold" => Call::Hold(AskHold {
            name: options.take("name"),
            length: options.take("for"),
            reason: options.take("reason"),
        }),
        "release" => Call::Release(AskRelease { name: options.take_words() }),
        "unset" => Call::Unset(AskRelease { name: options.take_words() }),
        "suspend" | "sleep-now" => Call::Suspend(AskSuspend { to: options.take("to") }),
        "checkpoint" => Call::Checkpoint(AskCheckpoint { comment: options.take("comment") }),
        "wake-at" | "wake-every" => {
            let when = options.take_words().ok_or_else(|| format!("{command} needs a time"))?;
            let (at, every) = if command == "wake-at" { (Some(when), None) } else { (None, Some(when)) };
            let [name, tz, reason] = ["name", "tz", "reason"].map(|option| options.take(option));
            Call::WakeAt(AskAlarm { name, at, every, tz, reason })
        }
        other => return Err(format!("there is no command `{other}`")),
    };
    if let Some((name, _)) = options.values.first() {
        return Err(format!("{command} knows no --{name}"));
    }
    if let Some(word) = options.words.first() {
        return Err(format!("{command} does not know what to do with `{word}`"));
    }
    Ok(Typed { call, json: options.json, socket })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &[&str]) -> Result<Typed, String> {
        parse(line.iter().map(|&word| word.to_owned()).collect())
    }

    #[test]
    fn what_is_typed_is_asked() {
        let call = |line: &[&str]| typed(line).unwrap().call;
        assert_eq!(call(&["info", "--json"]), Call::Info);
        let hold = AskHold { length: Some("10m".into()), reason: Some("a b".into()), name: None };
        assert_eq!(call(&["hold", "--for", "10m", "--reason=a b"]), Call::Hold(hold));
        assert_eq!(call(&["release"]), Call::Release(AskRelease::default()));
        assert_eq!(call(&["sleep-now", "--to", "disk"]), Call::Suspend(AskSuspend { to: Some("disk".into()) }));
        let alarm = |at, every| AskAlarm { at, every, ..AskAlarm::default() };
        assert_eq!(call(&["wake-at", "in", "10m"]), Call::WakeAt(alarm(Some("in 10m".into()), None)));
        let every = alarm(None, Some("*/5 * * * *".into()));
        assert_eq!(call(&["wake-every", "*/5", "*", "*", "*", "*"]), Call::WakeAt(every));
        let elsewhere = typed(&["info", "--socket", "/tmp/sock"]).unwrap();
        assert_eq!((elsewhere.socket, elsewhere.json), (PathBuf::from("/tmp/sock"), false));
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (line, part) in [
            (&["fly"][..], "no command `fly`"),
            (&["hold", "--for"], "--for needs a value"),
            (&["hold", "--until", "x"], "hold knows no --until"),
            (&["suspend", "deep"], "`deep`"),
            (&["wake-at"], "wake-at needs a time"),
        ] {
            let wrong = typed(line).unwrap_err();
            assert!(wrong.contains(part), "{wrong}");
        }
    }
}
