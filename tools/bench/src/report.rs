//! The table, the figures against their bars, and the raw values.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::figures::{Figures, Series, Summary};
use crate::quiet::BUSY;
use crate::{Suite, ahead, asleep, gvisor, memory, rounds, sdk, ssh};

/// What Roost promises of a p50.
#[derive(Debug, Clone, Copy)]
struct Promise {
    what: &'static str,
    against: Against,
    most: f64,
}

/// What a p50 is held against.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Against {
    /// Nothing: it counts itself, in its unit.
    Itself(&'static str),
    /// A peer's: their ratio counts.
    PartOf(&'static str),
    /// Another of ours: the milliseconds above it count.
    Above(&'static str),
}

const fn at_most(what: &'static str, most: f64) -> Promise {
    Promise { what, against: Against::Itself("ms"), most }
}

const fn part_of(what: &'static str, peer: &'static str, most: f64) -> Promise {
    Promise { what, against: Against::PartOf(peer), most }
}

const START: [Promise; 2] =
    [part_of(rounds::CREATE, rounds::RUNC_RUN, 0.5), part_of(rounds::EXEC, rounds::RUNC_EXEC, 0.15)];

const MEMORY: [Promise; 10] = [
    at_most(memory::RAM, 5.0),
    at_most(memory::RAM_CALLED, 5.0),
    part_of(memory::RAM, memory::RUNC_RAM, 0.2),
    at_most(memory::RAM_EXEC, 5.0),
    part_of(memory::RAM_EXEC, memory::RUNC_RAM_EXEC, 0.2),
    at_most(memory::DISK_BOTH, 250.0),
    at_most(memory::LARGE_WAKE, 150.0),
    at_most(memory::CHECKPOINT_PAUSE, 30.0),
    at_most(memory::FORK, 250.0),
    at_most(memory::FORK_TEN, 900.0),
];

const AHEAD: [Promise; 2] = [part_of(ahead::POOL, rounds::RUNC_RUN, 0.3), part_of(ahead::RUN, ahead::RUNC_LOOP, 0.2)];

// The package's own work, a Python client and two requests for a command, is in the figure and not in the peer's.
const E2B: [Promise; 2] = [part_of(sdk::RUN, sdk::RUN_HERE, 3.0), part_of(sdk::CREATE, sdk::CREATE_HERE, 3.0)];

const E2B_NOTES: &str = "Synchronous Python package on loopback, one connection kept open, its own clock. /v1: the same command \
    line (`bash -l -c true`) by the Rust client on the unix socket. A pool of four, full before each create.";

const ASLEEP: [Promise; 3] = [
    Promise { what: asleep::ASLEEP, against: Against::Above(asleep::AWAKE), most: 5.0 },
    Promise { what: asleep::MEMORY, against: Against::Itself("MiB"), most: 2.0 },
    Promise { what: asleep::PROCESSOR, against: Against::Itself("%"), most: 2.0 },
];

const GVISOR: [Promise; 4] = [
    part_of(gvisor::POOL, gvisor::RUNSC, 0.35),
    part_of(gvisor::CREATE, gvisor::RUNSC, 1.3),
    at_most(gvisor::RAM, 5.0),
    at_most(gvisor::DISK_WAKE, 300.0),
];

const GVISOR_NOTES: &str = "Each round has a create without a pool, `runsc run`, and a create from a pool of one, on the same root. runsc: \
    platform systrap, no network, no control groups, read-only root. Ours: all of it, and the command is started by an exec. Sleeps are those \
    of the Python server of the memory suite, on the larger template, asked through the proxy: a program that is started for it would take longer than the wake. A \
    disk wake finds a sentry that the daemon made ahead.";

const ASLEEP_NOTES: &str = "Requests are for a page of a small HTTP server inside, each on a connection of its own, through the \
    API's socket. Memory is what the host has less available with all of them asleep than before the first was made, shared \
    by their number: processes, kernel objects, the daemon's own. Its processor time is watched over five seconds at a time, \
    with nobody asking.";

const SSH: [Promise; 2] = [part_of(ssh::TRUE, ssh::SSHD, 1.0), part_of(ssh::SHARED, ssh::SSHD_SHARED, 1.0)];

const SSH_NOTES: &str = "OpenSSH's client with an ed25519 key and nothing but defaults; its start is in every figure. sshd: of \
    this machine, on loopback, ed25519 host key, no PAM, the user who runs this, without that user's own start files; the \
    command runs on the host itself.";

const AHEAD_NOTES: &str = "A pool of four, full before each create. The batch is run in five parts through the API, eight \
    at once for each processor, no pool; a run is a sandbox with a disk and a network of its own, the command, its \
    result on the disk, and the sandbox's end. runc: one after the other, as in the other suites.";

const START_NOTES: &str = "Made ahead: the template's image and its mount, for all alike; the daemon, which keeps two \
    launcher processes waiting in empty cgroups (used up at once when many are made together). Not made ahead: \
    sandboxes, disks, namespaces, networks. runc: default configuration, read-only root, no user namespace, no disk of \
    its own, no network to the outside.";

const MEMORY_NOTES: &str = "In each sandbox a Python HTTP server with a block of random bytes of the stated size. An answer is \
    one to bash inside, over loopback: to a bash that already runs, attached through the API, after a ram wake; otherwise \
    to one started by an exec, whose time is in the figure. The clock starts before the call that wakes or forks, or before the line to \
    that bash, which wakes by itself. runc: \
    the same server and bash in a container on the same root, resumed by `runc resume`, bash on plain pipes. All images \
    are in the page cache. Pauses are the receipts', beside what a thread inside saw.";

/// One promise and what came of it.
#[derive(Debug, Serialize)]
struct Verdict {
    what: &'static str,
    against: Against,
    figure: f64,
    most: f64,
    holds: bool,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    suite: Suite,
    template: String,
    kernel: String,
    /// The share of the host's processors that was used before the first round.
    used: f64,
    notes: &'static str,
    summaries: Vec<(String, Summary)>,
    parts: Vec<(String, Summary)>,
    verdicts: Vec<Verdict>,
    kept_all: bool,
    raw: Figures,
}

fn summaries(series: &[Series]) -> Vec<(String, Summary)> {
    series.iter().filter_map(|series| Some((series.what.clone(), series.summary()?))).collect()
}

impl Report {
    pub(crate) fn new(suite: Suite, raw: Figures, template: &str, used: f64) -> Self {
        let (promises, notes): (&[Promise], _) = match suite {
            Suite::Start => (&START, START_NOTES),
            Suite::Memory => (&MEMORY, MEMORY_NOTES),
            Suite::Ahead => (&AHEAD, AHEAD_NOTES),
            Suite::E2b => (&E2B, E2B_NOTES),
            Suite::Asleep => (&ASLEEP, ASLEEP_NOTES),
            Suite::Gvisor => (&GVISOR, GVISOR_NOTES),
            Suite::Ssh => (&SSH, SSH_NOTES),
        };
        let (parts, summaries) = (summaries(&raw.parts), summaries(&raw.series));
        let p50 = |what| summaries.iter().find(|(name, _)| name == what).map(|(_, summary)| summary.p50);
        let verdicts = promises.iter().filter_map(|&Promise { what, against, most }| {
            let figure = match against {
                Against::Itself(_) => p50(what)?,
                Against::PartOf(peer) => p50(what)? / p50(peer)?,
                Against::Above(other) => p50(what)? - p50(other)?,
            };
            Some(Verdict { what, against, figure, most, holds: figure <= most })
        });
        let verdicts: Vec<Verdict> = verdicts.collect();
        let kept_all = verdicts.len() == promises.len() && verdicts.iter().all(|verdict| verdict.holds);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        Self { suite, template: template.to_owned(), kernel, used, notes, summaries, parts, verdicts, kept_all, raw }
    }

    /// Whether every promise was kept.
    pub(crate) fn holds(&self) -> bool {
        self.kept_all
    }

    pub(crate) fn print(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        table(&mut out, "milliseconds, unless said otherwise", &self.summaries)?;
        if !self.parts.is_empty() {
            table(&mut out, "parts, as receipts tell", &self.parts)?;
        }
        for Verdict { what, against, figure, most, holds } in &self.verdicts {
            let verdict = if *holds { "holds" } else { "MISSED" };
            match against {
                Against::Itself(unit) => writeln!(out, "{what}: {figure:.1} {unit} (bar {most} {unit}): {verdict}")?,
                Against::PartOf(peer) => writeln!(out, "{what} / {peer}: {figure:.3} (bar {most}): {verdict}")?,
                Against::Above(other) => {
                    writeln!(out, "{what}, above {other}: {figure:.1} ms (bar {most} ms): {verdict}")?;
                }
            }
        }
        let Self { template, kernel, used, notes, .. } = self;
        let percent = used * 100.0;
        writeln!(out, "\nTemplate {template}, kernel {kernel}, processors {percent:.0} % used before. {notes}\n")?;
        if *used > BUSY {
            writeln!(out, "The machine was busy: absolute figures are too high.\n")?;
        }
        Ok(())
    }
}

fn table(out: &mut impl Write, title: &str, rows: &[(String, Summary)]) -> Result<()> {
    writeln!(out, "{title:<58} {:>8} {:>8} {:>8} {:>8} {:>5}", "min", "p50", "p95", "p99", "n")?;
    for (what, Summary { min, p50, p95, p99, n }) in rows {
        writeln!(out, "{what:<58} {min:>8.2} {p50:>8.2} {p95:>8.2} {p99:>8.2} {n:>5}")?;
    }
    writeln!(out)?;
    Ok(())
}

/// Keeps the raw values beside the figures.
pub(crate) fn save(reports: &[Report], path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(reports)?;
    std::fs::write(path, text + "\n").with_context(|| format!("failed to write `{}`", path.display()))
}
