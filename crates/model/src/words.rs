//! What people read about a sandbox's sleep, the same on every surface.

use jiff::Timestamp;

use crate::{IdlePolicy, Level, Span, State, WhyView};

/// What a person wants to know, in the order in which it is asked.
pub fn why(why: &WhyView, now: Timestamp) -> Vec<String> {
    let mut said = vec![standing(why, now)];
    let mut say = |sentence: String| said.push(sentence);
    for keeper in &why.keeps_awake {
        let since = keeper.since.map_or_else(String::new, |since| format!(" since {}", ago(since, now)));
        // A guard's own words say what it is; a reading needs its signal.
        let what =
            if keeper.since.is_some() { keeper.what.clone() } else { format!("{}, {}", keeper.signal, keeper.what) };
        say(format!("keeps awake: {what}{since}"));
    }
    if let Some(never) = &why.never {
        say(format!("will not sleep by itself: {never}"));
    }
    if let Some(at) = why.sleeps_at {
        let quiet = why.quiet_since.map_or_else(String::new, |since| format!("quiet since {}, ", ago(since, now)));
        say(format!("{quiet}will sleep at {at:.0} unless something happens"));
    }
    if why.stays {
        say(format!("stays asleep until `roost wake {}`", why.name));
    }
    if let Some(not_saved) = &why.not_saved {
        say(format!("stays in ram: {not_saved}"));
    }
    if let Some(at) = why.deepens_at {
        say(format!("its memory goes to disk at {at:.0}"));
    }
    if let Some(at) = why.wakes_at {
        say(format!("will wake at {at:.0}"));
    }
    say(format!("policy: {}", policy(&why.idle)));
    said
}

fn standing(why: &WhyView, now: Timestamp) -> String {
    let (since, at) = (ago(why.state_since, now), why.state_since);
    let reason = why.reason.as_ref().map_or_else(String::new, |reason| format!(", {reason}"));
    match (why.state, why.level) {
        (State::Suspended, Some(level)) => {
            let deep = match level {
                Level::Ram => "in ram",
                Level::Disk => "on disk",
                Level::Files => "as files",
            };
            let reason = why.reason.as_ref().map_or_else(String::new, |reason| format!(" {reason}"));
            format!("asleep {deep} since {since}: slept at {at:.0}{reason}")
        }
        (State::Active, _) => format!("awake since {since}{reason}"),
        (state, _) => format!("{state} since {since}{reason}"),
    }
}

/// When it sleeps, in one line.
pub fn policy(idle: &IdlePolicy) -> String {
    if idle.after == Span::NEVER {
        return "never sleeps by itself".to_owned();
    }
    let deeper = match (idle.to, idle.deepen_after) {
        (Level::Ram, Span::NEVER) => ", and stays there".to_owned(),
        (Level::Ram, after) => format!(", to disk after {after} more"),
        _ => String::new(),
    };
    let words: Vec<&str> = idle.ignore.iter().map(|signal| signal.as_str()).collect();
    let ignores = if words.is_empty() { String::new() } else { format!("; does not count {}", words.join(", ")) };
    format!("to {} after {} without activity{deeper}{ignores}", idle.to, idle.after)
}

/// How long ago a moment was.
fn ago(moment: Timestamp, now: Timestamp) -> String {
    lasted(u64::try_from(now.duration_since(moment).as_millis()).unwrap_or(0))
}

/// A length of time, roughly: `12 s`, `3 h`.
pub fn lasted(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keeper, SandboxId, Signal};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn view() -> WhyView {
        WhyView {
            id: SandboxId::from_parts(1, 1),
            name: "web".parse().unwrap(),
            state: State::Active,
            level: None,
            state_since: at(0),
            reason: None,
            stays: false,
            idle: IdlePolicy::default(),
            keeps_awake: Vec::new(),
            never: None,
            quiet_since: None,
            sleeps_at: None,
            deepens_at: None,
            not_saved: None,
            wakes_at: None,
            ledger: Vec::new(),
        }
    }

    #[test]
    fn what_keeps_it_awake_is_named() {
        let attached =
            Keeper { signal: Signal::Connections, what: "exec \"npm test\" attached".to_owned(), since: Some(at(88)) };
        let cpu = Keeper { signal: Signal::Cpu, what: "35.0 % of a core over the last 15 s".to_owned(), since: None };
        let said = why(&WhyView { keeps_awake: vec![attached, cpu], ..view() }, at(100));
        assert_eq!(
            said,
            [
                "awake since 100 s",
                "keeps awake: exec \"npm test\" attached since 12 s",
                "keeps awake: cpu, 35.0 % of a core over the last 15 s",
                "policy: to ram after 15s without activity, to disk after 10m more",
            ]
        );
    }

    #[test]
    fn a_quiet_one_says_when_it_will_sleep() {
        let quiet = WhyView {
            quiet_since: Some(at(95)),
            sleeps_at: Some(at(110)),
            reason: Some("woken by exec \"ls\"".to_owned()),
            ..view()
        };
        let said = why(&quiet, at(100));
        assert_eq!(said[0], "awake since 100 s, woken by exec \"ls\"");
        assert_eq!(said[1], "quiet since 5 s, will sleep at 1970-01-01T00:01:50Z unless something happens");
    }

    #[test]
    fn a_sleeper_says_why_and_what_comes_next() {
        let asleep = WhyView {
            state: State::Suspended,
            level: Some(Level::Ram),
            reason: Some("after 15 s without activity".to_owned()),
            deepens_at: Some(at(600)),
            not_saved: Some("memory was not saved: a device".to_owned()),
            idle: IdlePolicy { ignore: vec![Signal::Cpu], ..IdlePolicy::default() },
            ..view()
        };
        let said = why(&asleep, at(30));
        assert_eq!(said[0], "asleep in ram since 30 s: slept at 1970-01-01T00:00:00Z after 15 s without activity");
        assert_eq!(said[1], "stays in ram: memory was not saved: a device");
        assert_eq!(said[2], "its memory goes to disk at 1970-01-01T00:10:00Z");
        assert!(said[3].ends_with("does not count cpu"), "{said:?}");
        let never = IdlePolicy { after: Span::NEVER, ..IdlePolicy::default() };
        assert_eq!(policy(&never), "never sleeps by itself");
    }
}
