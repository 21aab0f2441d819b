//! The findings, for people and programs.

use std::fmt::{self, Write};

use roost_intruder::Thing;
use roost_model::EngineKind;
use serde::Serialize;

use crate::crowd::CrowdReport;

/// A command in the neighbour may take so many times as long as before the attack.
pub(crate) const SLOWER: f64 = 3.0;

/// How an attacker came to life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// It was created.
    Start,
    /// It was put to disk and woken.
    Restore,
    /// It was forked.
    Fork,
}

impl fmt::Display for Life {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Start => "after a start",
            Self::Restore => "after a restore",
            Self::Fork => "in a fork",
        })
    }
}

/// The outcome of one attack.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The thing or the door that the attacker tried.
    pub attack: String,
    /// How the attacker came to life.
    pub life: Life,
    /// Neighbour and host were not harmed.
    pub holds: bool,
    /// Commands in the neighbour took more than three times as long as before.
    pub slow: bool,
    /// The observations, in words.
    pub detail: String,
}

/// The observations during one attack.
#[derive(Debug)]
pub(crate) struct Seen {
    /// How many things the attacker took.
    pub(crate) count: u64,
    /// Why it took no more.
    pub(crate) until: String,
    /// How neighbour or host were harmed.
    pub(crate) faults: Vec<String>,
    /// The median time of a command in the neighbour in milliseconds, or why none ran.
    pub(crate) latency: Result<f64, String>,
    /// The same before the attack.
    pub(crate) quiet_ms: f64,
    /// The attacker may have ended as a whole.
    pub(crate) ended: bool,
}

impl Finding {
    pub(crate) fn of(thing: Thing, life: Life, seen: Seen) -> Self {
        let mut faults = seen.faults;
        let (slow, speed) = match seen.latency {
            Ok(ms) => (ms > SLOWER * seen.quiet_ms, format!("a command takes {ms:.1} ms")),
            Err(reason) => {
                faults.push(format!("the neighbour runs no commands: {reason}"));
                (false, String::new())
            }
        };
        let took = match (seen.count, seen.ended) {
            (0, true) => "its sandbox reached a limit".to_owned(),
            (0, false) => "took none".to_owned(),
            (count, _) => format!("took {count}"),
        };
        let until = if seen.until.is_empty() { String::new() } else { format!(" ({})", seen.until) };
        let seen: Vec<String> = [format!("{took}{until}"), speed].into_iter().chain(faults.iter().cloned()).collect();
        let detail = seen.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        Self { attack: thing.name().to_owned(), life, holds: faults.is_empty(), slow, detail }
    }
}

/// The attacks on one engine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineAttacks {
    /// The engine.
    pub engine: EngineKind,
    /// The median time of a command in the neighbour before the attacks, in milliseconds.
    pub quiet_ms: f64,
    /// One for each attack.
    pub findings: Vec<Finding>,
    /// All attackers at once, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crowd: Option<CrowdReport>,
}

/// All attacks on this host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttackReport {
    /// The daemon's version.
    pub version: String,
    /// One for each engine.
    pub engines: Vec<EngineAttacks>,
}

impl AttackReport {
    /// No attack harmed a neighbour or the host.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.engines.iter().all(|engine| {
            engine.findings.iter().all(|finding| finding.holds)
                && engine.crowd.as_ref().is_none_or(|crowd| crowd.faults.is_empty())
        })
    }

    /// The report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for engine in &self.engines {
            let rows =
                writeln!(text, "engine {}: a command takes {:.1} ms when it is quiet", engine.engine, engine.quiet_ms);
            rows.and_then(|()| engine.write(&mut text)).expect("a string takes all text");
        }
        let verdict = if self.holds() { "Every attack was held." } else { "Some attacks were not held." };
        text.push_str(verdict);
        text.push('\n');
        text
    }
}

impl EngineAttacks {
    fn write(&self, text: &mut String) -> fmt::Result {
        for finding in &self.findings {
            let mark = match (finding.holds, finding.slow) {
                (true, false) => "ok  ",
                (true, true) => "slow",
                (false, _) => "OPEN",
            };
            writeln!(text, "  {mark} {:<15} {:<15}  {}", finding.attack, finding.life.to_string(), finding.detail)?;
        }
        if let Some(crowd) = &self.crowd {
            let mark = if crowd.faults.is_empty() { "ok  " } else { "OPEN" };
            writeln!(text, "  {mark} {:<15} {crowd}", "all at once")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(faults: &[&str], latency: Result<f64, String>) -> Seen {
        let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
        Seen { count: 128, until: "no more".to_owned(), faults, latency, quiet_ms: 5.0, ended: false }
    }

    #[test]
    fn finding_holds_without_faults() {
        let finding = Finding::of(Thing::Watches, Life::Start, seen(&[], Ok(6.0)));
        assert!(finding.holds && !finding.slow);
        assert_eq!(finding.detail, "took 128 (no more); a command takes 6.0 ms");
    }

    #[test]
    fn fault_or_silent_neighbour_opens_it() {
        let starved = Finding::of(Thing::Watches, Life::Start, seen(&["the host no longer gets any: full"], Ok(6.0)));
        let silent = Finding::of(Thing::Watches, Life::Start, seen(&[], Err("no answer".to_owned())));
        assert!(!starved.holds && !silent.holds);
        assert!(silent.detail.ends_with("the neighbour runs no commands: no answer"), "{}", silent.detail);
    }

    #[test]
    fn three_times_the_quiet_time_is_slow() {
        assert!(Finding::of(Thing::Cpu, Life::Fork, seen(&[], Ok(15.1))).slow);
        assert!(!Finding::of(Thing::Cpu, Life::Fork, seen(&[], Ok(15.0))).slow);
    }

    #[test]
    fn report_holds_if_every_finding_does() {
        let finding =
            |holds| Finding { attack: "x".to_owned(), life: Life::Start, holds, slow: false, detail: String::new() };
        let report = |holds| AttackReport {
            version: "1".to_owned(),
            engines: vec![EngineAttacks {
                engine: EngineKind::Native,
                quiet_ms: 1.0,
                findings: vec![finding(true), finding(holds)],
                crowd: None,
            }],
        };
        assert!(report(true).holds() && !report(false).holds());
        assert!(report(false).text().contains("OPEN"));
    }
}
