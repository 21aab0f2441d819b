//! Receipts, as people read them.

use std::time::Duration;

use clap::Args;
use roost_model::{NotKept, Receipt};

use crate::output::{self, Palette, printable};
use crate::units::{show_size, show_time};

/// Parts of a receipt that are shown; the rest is small and in the JSON.
const MOST_PARTS: usize = 6;

/// How much of a receipt is printed.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ReceiptArgs {
    /// Print nothing
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print the whole receipt, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints a receipt below a line that says what was done.
pub(crate) fn show(receipt: &Receipt, headline: &str, how: ReceiptArgs) -> anyhow::Result<()> {
    if how.json {
        return output::json(receipt);
    }
    if how.quiet {
        return Ok(());
    }
    output::line(headline)?;
    print(receipt)
}

/// Prints what a receipt says, one thing to a line.
pub(crate) fn print(receipt: &Receipt) -> anyhow::Result<()> {
    let palette = Palette::stdout();
    for (name, value) in rows(receipt) {
        let name = format!("{name:<8}");
        output::line(format!("  {} {}", palette.dim(&name), printable(&value)))?;
    }
    Ok(())
}

/// A time of a receipt.
pub(crate) fn show_ms(ms: f64) -> String {
    show_time(Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default())
}

/// Words of the API, as people write them.
fn words(text: &str) -> String {
    text.replace('_', " ")
}

/// What was not kept, and why.
pub(crate) fn show_lost(lost: &NotKept) -> String {
    format!("{} ({})", lost.what, lost.why)
}

fn rows(receipt: &Receipt) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if !receipt.kept.is_empty() {
        let kept: Vec<String> = receipt.kept.iter().map(|what| words(what)).collect();
        rows.push(("kept", kept.join(", ")));
    }
    rows.extend(receipt.not_kept.iter().map(|lost| ("not kept", show_lost(lost))));
    if !receipt.bytes.is_empty() {
        let sizes = receipt.bytes.iter().map(|(what, bytes)| format!("{} {}", words(what), show_size(*bytes)));
        rows.push(("size", sizes.collect::<Vec<_>>().join(", ")));
    }
    if let Some(paused) = receipt.paused_ms {
        rows.push(("paused", show_ms(paused)));
    }
    if !receipt.parts_ms.is_empty() {
        // Where the time went comes first.
        let mut parts: Vec<(&String, f64)> = receipt.parts_ms.iter().map(|(part, ms)| (part, *ms)).collect();
        parts.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let shown = parts.iter().take(MOST_PARTS).map(|(part, ms)| format!("{} {}", words(part), show_ms(*ms)));
        let rest = if parts.len() > MOST_PARTS { ", …" } else { "" };
        rows.push(("parts", format!("{}{rest}", shown.collect::<Vec<_>>().join(", "))));
    }
    rows
}

#[cfg(test)]
mod tests {
    use roost_model::Operation;

    use super::*;

    #[test]
    fn a_receipt_is_a_short_table() {
        let receipt = Receipt {
            kept: vec!["files".to_owned(), "listening_sockets".to_owned()],
            not_kept: vec![NotKept { what: "tcp to 93.184.216.34".to_owned(), why: "external connection".to_owned() }],
            bytes: [("memory".to_owned(), 65 << 20), ("disk_exclusive".to_owned(), 4096)].into(),
            paused_ms: Some(101.2),
            parts_ms: [("dump".to_owned(), 88.0), ("flush".to_owned(), 3.1), ("snapshot".to_owned(), 0.4)].into(),
            ..Receipt::new(Operation::Suspend, 1)
        };
        let lines: Vec<String> = rows(&receipt).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(
            lines,
            [
                "kept: files, listening sockets",
                "not kept: tcp to 93.184.216.34 (external connection)",
                "size: disk exclusive 4 KiB, memory 65 MiB",
                "paused: 101 ms",
                "parts: dump 88.0 ms, flush 3.1 ms, snapshot 400 µs",
            ]
        );
        assert!(rows(&Receipt::new(Operation::Wake, 1)).is_empty());
        let many = (1..=9).map(|number| (format!("part_{number}"), f64::from(number))).collect();
        let (_, parts) = rows(&Receipt { parts_ms: many, ..receipt }).pop().unwrap();
        assert!(parts.starts_with("part 9 9.0 ms, part 8 8.0 ms") && parts.ends_with("part 4 4.0 ms, …"), "{parts}");
    }

    #[test]
    fn odd_times_are_shown_as_nothing() {
        for ms in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(show_ms(ms), "0 µs");
        }
    }
}
