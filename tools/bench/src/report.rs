//! The table, the ratios against their bars, and the raw values.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::figures::{Series, Summary};
use crate::rounds::{CREATE, EXEC, RUNC_EXEC, RUNC_RUN};

/// What Roost promises against a peer: at most this part of the peer's p50.
const BARS: [(&str, &str, f64); 2] = [(CREATE, RUNC_RUN, 0.5), (EXEC, RUNC_EXEC, 0.15)];

const MADE_AHEAD: &str = "Made ahead: the template's image and its mount, for all alike; the daemon, which keeps two \
    launcher processes waiting in empty cgroups (used up at once when many are made together). Not made ahead: \
    sandboxes, disks, namespaces, networks. runc: default configuration, read-only root, no user namespace, no disk of \
    its own, no network to the outside.";

/// One ratio and the bar it is held to.
#[derive(Debug, Serialize)]
struct Ratio {
    what: &'static str,
    against: &'static str,
    ratio: f64,
    bar: f64,
    holds: bool,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    template: String,
    kernel: String,
    made_ahead: &'static str,
    summaries: Vec<(&'static str, Summary)>,
    ratios: Vec<Ratio>,
    raw: Vec<Series>,
}

impl Report {
    pub(crate) fn new(raw: Vec<Series>, template: &str) -> Self {
        let summaries: Vec<(&str, Summary)> =
            raw.iter().filter_map(|series| Some((series.what, series.summary()?))).collect();
        let p50 = |what| summaries.iter().find(|(name, _)| *name == what).map(|(_, summary)| summary.p50);
        let ratios = BARS.iter().filter_map(|&(what, against, bar)| {
            let ratio = p50(what)? / p50(against)?;
            Some(Ratio { what, against, ratio, bar, holds: ratio <= bar })
        });
        let ratios = ratios.collect();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        Self { template: template.to_owned(), kernel, made_ahead: MADE_AHEAD, summaries, ratios, raw }
    }

    /// Whether every ratio is within its bar.
    pub(crate) fn holds(&self) -> bool {
        self.ratios.len() == BARS.len() && self.ratios.iter().all(|ratio| ratio.holds)
    }

    pub(crate) fn print(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{:<42} {:>8} {:>8} {:>8} {:>5}", "milliseconds", "min", "p50", "p95", "n")?;
        for (what, Summary { min, p50, p95, n }) in &self.summaries {
            writeln!(out, "{what:<42} {min:>8.2} {p50:>8.2} {p95:>8.2} {n:>5}")?;
        }
        writeln!(out)?;
        for Ratio { what, against, ratio, bar, holds } in &self.ratios {
            let verdict = if *holds { "holds" } else { "MISSED" };
            writeln!(out, "{what} / {against}: {ratio:.3} (bar {bar}): {verdict}")?;
        }
        writeln!(out, "\nTemplate {}, kernel {}. {}", self.template, self.kernel, self.made_ahead)?;
        Ok(())
    }

    /// Keeps the raw values beside the figures.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text + "\n").with_context(|| format!("failed to write `{}`", path.display()))
    }
}
