//! What was measured, as tables, as a page with plots, and raw.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::figures::{Series, Summary};
use crate::{Plan, svg};

/// More than this means that others use the machine too, and that the figures are theirs as well.
const BUSY: f64 = 1.5;

/// Figures of one operation, by how much there is of something.
#[derive(Debug, Serialize)]
pub struct Curve {
    /// What its plot is called.
    pub file: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The axis to the right.
    pub across: &'static str,
    /// The axis upwards.
    pub up: &'static str,
    /// One for each operation.
    pub lines: Vec<Line>,
    /// Why it is as flat or steep as it is.
    pub why: &'static str,
}

/// One operation.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// How much there is, and all values.
    pub points: Vec<(f64, Series)>,
}

impl Line {
    /// A line without points.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), points: Vec::new() }
    }

    /// Puts a value down.
    pub(crate) fn add(&mut self, at: f64, value: f64) {
        let known = self.points.iter().position(|(place, _)| place.total_cmp(&at).is_eq());
        let index = known.unwrap_or_else(|| {
            self.points.push((at, Series::new(format!("{} at {at}", self.name))));
            self.points.len() - 1
        });
        if let Some((_, series)) = self.points.get_mut(index) {
            series.push(value);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Where its middle values are.
    pub(crate) fn middles(&self) -> Vec<(f64, f64)> {
        self.points.iter().filter_map(|(at, series)| Some((*at, series.summary()?.p50))).collect()
    }
}

/// Everything that was measured on a host.
#[derive(Debug, Serialize)]
pub struct HostReport {
    /// Of the daemon.
    pub version: String,
    /// Its kernel.
    pub kernel: String,
    /// Its processors.
    pub processors: usize,
    /// The load of the host before the first round.
    pub load: f64,
    /// Of the sandboxes.
    pub template: String,
    /// Summaries in the order of the series.
    pub summaries: Vec<(String, Summary)>,
    /// Every value of each; milliseconds, unless the name says otherwise.
    pub series: Vec<Series>,
    /// How it grows.
    pub curves: Vec<Curve>,
}

/// The load of the host over the last minute.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

impl HostReport {
    pub(crate) fn new(version: String, plan: &Plan, load: f64, series: Vec<Series>, curves: Vec<Curve>) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let summaries = series.iter().filter_map(|series| Some((series.what.clone(), series.summary()?))).collect();
        Self { version, kernel, processors, load, template: plan.template.clone(), summaries, series, curves }
    }

    /// The tables, as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let head = ["", "min", "p50", "p95", "p99", "n"];
        let rows = self.summaries.iter().map(|(what, summary)| row(what, summary));
        put_table(&mut out, "milliseconds, unless said otherwise", &head, rows.collect());
        for curve in &self.curves {
            let places = curve.lines.first().map(Line::middles).unwrap_or_default();
            let head: Vec<String> =
                std::iter::once(String::new()).chain(places.iter().map(|(at, _)| plain(*at))).collect();
            let head: Vec<&str> = head.iter().map(String::as_str).collect();
            let title = format!("{} ({})", curve.across, curve.up);
            put_table(&mut out, &title, &head, curve_rows(curve));
        }
        out.push_str(&self.conditions());
        out
    }

    fn conditions(&self) -> String {
        let Self { version, kernel, processors, load, template, .. } = self;
        let busy = if *load > BUSY { " The machine was busy: absolute figures are too high." } else { "" };
        format!(
            "Roost {version}, template {template}, kernel {kernel}, {processors} processors, load {load} before.{busy}\n"
        )
    }

    /// The table of p50s for a page that has little room.
    pub fn short_table(&self) -> String {
        let mut out = "| p50, ms | |\n| --- | ---: |\n".to_owned();
        for (what, summary) in &self.summaries {
            put(&mut out, format_args!("| {what} | {} |\n", short(summary.p50)));
        }
        out
    }

    /// The page.
    pub fn markdown(&self) -> String {
        let mut out = "# Figures of one host\n\nMade by `roost bench --report`; `raw.json` has every value. Peers are measured in the same \
                       rounds, each in turn. Absolute figures say more about a machine than about Roost.\n\n"
            .to_owned();
        out.push_str(&self.conditions());
        out.push_str("\n| milliseconds, unless said otherwise | min | p50 | p95 | p99 | n |\n| --- | ---: | ---: | ---: | ---: | ---: |\n");
        for (what, summary) in &self.summaries {
            put(&mut out, format_args!("| {} |\n", row(what, summary).join(" | ")));
        }
        for curve in &self.curves {
            let places: Vec<String> =
                curve.lines.first().map(Line::middles).unwrap_or_default().iter().map(|(at, _)| plain(*at)).collect();
            put(&mut out, format_args!("\n## {}\n\n![{}]({}.svg)\n\n", curve.title, curve.title, curve.file));
            put(&mut out, format_args!("| {} | {} |\n|", curve.across, places.join(" | ")));
            out.push_str(&" --- |".repeat(places.len() + 1));
            for row in curve_rows(curve) {
                put(&mut out, format_args!("\n| {} |", row.join(" | ")));
            }
            put(&mut out, format_args!("\n\n{}\n", curve.why));
        }
        out
    }

    /// Writes the page, its plots, the short table and the raw values into a folder.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let write = |name: &str, text: String| -> io::Result<()> { std::fs::write(folder.join(name), text) };
        let all = || -> Result<()> {
            std::fs::create_dir_all(folder)?;
            for curve in &self.curves {
                write(&format!("{}.svg", curve.file), svg::draw(curve))?;
            }
            write("README.md", self.markdown())?;
            write("table.md", self.short_table())?;
            write("raw.json", serde_json::to_string(self)? + "\n")?;
            Ok(())
        };
        all().with_context(|| format!("failed to write the report to `{}`", folder.display()))
    }
}

fn row(what: &str, Summary { min, p50, p95, p99, n }: &Summary) -> Vec<String> {
    let figures = [*min, *p50, *p95, *p99].map(short);
    std::iter::once(what.to_owned()).chain(figures).chain([n.to_string()]).collect()
}

fn curve_rows(curve: &Curve) -> Vec<Vec<String>> {
    let row = |line: &Line| {
        let figures = line.middles().into_iter().map(|(_, middle)| short(middle));
        std::iter::once(line.name.clone()).chain(figures).collect()
    };
    curve.lines.iter().map(row).collect()
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = out.write_fmt(text);
}

fn put_table(out: &mut String, title: &str, head: &[&str], rows: Vec<Vec<String>>) {
    let first = rows.iter().filter_map(|row| row.first()).map(|name| name.chars().count());
    let wide = first.chain([title.chars().count()]).max().unwrap_or(0);
    put(out, format_args!("{title:<wide$}"));
    for cell in head.iter().skip(1) {
        put(out, format_args!(" {cell:>9}"));
    }
    out.push('\n');
    for row in rows {
        let mut cells = row.iter();
        put(out, format_args!("{:<wide$}", cells.next().map_or("", String::as_str)));
        for cell in cells {
            put(out, format_args!(" {cell:>9}"));
        }
        out.push('\n');
    }
    out.push('\n');
}

/// Three digits that count.
fn short(value: f64) -> String {
    let places = match value.abs() {
        large if large >= 100.0 => 0,
        middle if middle >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.places$}")
}

/// A number on an axis.
pub(crate) fn plain(value: f64) -> String {
    match value {
        large if large >= 1000.0 && large % 1000.0 == 0.0 => format!("{} k", large / 1000.0),
        other => format!("{other}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn curve() -> Curve {
        let mut lines = ["one", "two & more"].map(Line::new);
        for (at, value) in [(1.0, 5.0), (10.0, 7.0), (10.0, 9.0), (10.0, 8.0), (1000.0, 20.0)] {
            lines[0].add(at, value);
            lines[1].add(at, value * 100.0);
        }
        Curve { file: "test", title: "By number", across: "many", up: "ms, p50", lines: lines.into(), why: "Because." }
    }

    #[test]
    fn a_line_has_the_middle_of_each_place() {
        assert_eq!(curve().lines[0].middles(), [(1.0, 5.0), (10.0, 8.0), (1000.0, 20.0)]);
    }

    #[test]
    fn everything_is_in_the_page_and_in_the_folder() {
        let mut series = Series::new("exec");
        [3.0, 1.0, 2.0].into_iter().for_each(|value| series.push(value));
        let plan = Plan::quick("mini");
        let report = HostReport::new("1.2.3".to_owned(), &plan, 0.5, vec![series], vec![curve()]);
        let page = report.markdown();
        assert!(page.contains("| exec | 1.00 | 2.00 | 3.00 | 3.00 | 3 |"), "{page}");
        assert!(
            page.contains("| many | 1 | 10 | 1 k |\n| --- | --- | --- | --- |\n| one | 5.00 | 8.00 | 20.0 |"),
            "{page}"
        );
        assert!(report.text().contains("exec"), "{}", report.text());
        let folder = tempfile::tempdir().unwrap();
        report.save(folder.path()).unwrap();
        for file in ["README.md", "table.md", "raw.json", "test.svg"] {
            assert!(folder.path().join(file).metadata().unwrap().len() > 0, "{file}");
        }
    }
}
