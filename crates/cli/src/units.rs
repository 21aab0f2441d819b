//! Sizes, times and pairs as people write and read them.

use std::time::Duration;

use jiff::Timestamp;

const SUFFIXES: [(&str, u64); 5] = [("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40), ("p", 1 << 50)];

/// Reads `512m`, `2g`, `1.5GiB`, `300MB` or plain bytes; every unit counts in steps of 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size: write for example `512m` or `2g`");
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let unit = unit.trim().strip_suffix("ib").or(unit.trim().strip_suffix('b')).unwrap_or(unit.trim());
    let factor = match unit {
        "" => 1,
        _ => SUFFIXES.iter().find(|(suffix, _)| *suffix == unit).map(|(_, factor)| *factor).ok_or_else(wrong)?,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    let fraction: f64 = number.parse().map_err(|_| wrong())?;
    #[expect(clippy::cast_precision_loss, reason = "factors are powers of two")]
    let bytes = fraction * factor as f64;
    if !(0.0..9e18).contains(&bytes) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
    Ok(bytes as u64)
}

/// Writes a size the way people read it: `0 B`, `1.5 MiB`, `20 GiB`.
pub(crate) fn show_size(bytes: u64) -> String {
    let Some((suffix, factor)) = SUFFIXES.iter().rev().find(|(_, factor)| bytes >= *factor) else {
        return format!("{bytes} B");
    };
    let unit = suffix.to_ascii_uppercase();
    let tenths = (u128::from(bytes) * 10 + u128::from(factor / 2)) / u128::from(*factor);
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {unit}iB"),
        (whole, _) if whole >= 100 => format!("{whole} {unit}iB"),
        (whole, tenth) => format!("{whole}.{tenth} {unit}iB"),
    }
}

/// How long ago a moment was, in its largest unit.
pub(crate) fn show_age(since: Timestamp, now: Timestamp) -> String {
    let seconds = u64::try_from(now.as_second() - since.as_second()).unwrap_or(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How far away a moment is, in its largest unit.
pub(crate) fn show_until(moment: Timestamp, now: Timestamp) -> String {
    if moment <= now { "now".to_owned() } else { format!("in {}", show_age(now, moment)) }
}

/// A measured time: `850 µs`, `12.3 ms`, `4.56 s`.
pub(crate) fn show_time(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match ms {
        ..1.0 => format!("{:.0} µs", ms * 1e3),
        ..100.0 => format!("{ms:.1} ms"),
        ..1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.2} s", ms / 1e3),
    }
}

/// Reads `KEY=VALUE`.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form KEY=VALUE")),
    }
}

/// Reads `KEY=VALUE`, or `KEY` alone for the value it has here.
pub(crate) fn parse_env(text: &str) -> Result<(String, String), String> {
    if text.contains('=') || text.is_empty() {
        return parse_pair(text);
    }
    match std::env::var(text) {
        Ok(value) => Ok((text.to_owned(), value)),
        Err(_) => Err(format!("`{text}` is not set here: write {text}=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512m", 512 << 20),
            ("512M", 512 << 20),
            ("2g", 2 << 30),
            ("2GB", 2 << 30),
            ("2GiB", 2 << 30),
            ("1.5g", 3 << 29),
            ("20 MiB", 20 << 20),
            ("100b", 100),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "g", "-1", "1x", "1gg", "1..5g", "99999999p", "nan", "1e3"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (20 << 30, "20 GiB"),
            (999 << 20, "999 MiB"),
            ((150 << 20) + 300_000, "150 MiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(show_size(bytes), text);
        }
    }

    #[test]
    fn ages_and_times_have_one_unit() {
        let born = Timestamp::UNIX_EPOCH;
        let after = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!(show_age(born, after(59)), "59s");
        assert_eq!(show_age(born, after(7200)), "2h");
        assert_eq!(show_age(born, after(200_000)), "2d");
        assert_eq!(show_age(after(5), born), "0s");
        assert_eq!(show_until(after(90), born), "in 1m");
        assert_eq!(show_until(born, after(90)), "now");
        assert_eq!(show_time(Duration::from_micros(850)), "850 µs");
        assert_eq!(show_time(Duration::from_millis(4560)), "4.56 s");
    }

    #[test]
    fn pairs_need_a_key() {
        assert_eq!(parse_pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(parse_pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(parse_pair("=b").is_err());
        assert!(parse_pair("a").is_err());
        assert!(parse_env("").is_err());
    }
}
