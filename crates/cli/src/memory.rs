//! The host's memory: how much there is, how much must stay free, and how many sandboxes may be awake.

use std::fs;

use roost_host::{MemoryPolicy, MemoryReading};

use crate::units::parse_size;

/// A part of the host's memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Amount {
    /// Hundredths of it.
    Percent(f64),
    /// Bytes.
    Bytes(u64),
}

impl Amount {
    fn of(self, total: u64) -> u64 {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of memory between nothing and all of it"
            )]
            Self::Percent(percent) => (total as f64 * percent / 100.0) as u64,
            Self::Bytes(bytes) => bytes.min(total),
        }
    }
}

/// When the daemon counts memory as short, and how many sandboxes may be awake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MemorySettings {
    pub(crate) low: Amount,
    pub(crate) critical: Amount,
    pub(crate) max_active: Option<usize>,
}

impl MemorySettings {
    /// These settings for a host with this much memory.
    pub(crate) fn policy(self, total: u64) -> MemoryPolicy {
        MemoryPolicy { low: self.low.of(total), critical: self.critical.of(total), max_active: self.max_active }
    }
}

/// Reads `10%` or `2g`.
pub(crate) fn parse_amount(text: &str) -> Result<Amount, String> {
    let Some(number) = text.trim().strip_suffix('%') else { return parse_size(text).map(Amount::Bytes) };
    match number.trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Amount::Percent(percent)),
        _ => Err(format!("`{text}` is not a share: write for example `10%` or `2g`")),
    }
}

/// Reads a count, or `none`.
pub(crate) fn parse_most(text: &str) -> Result<Option<usize>, String> {
    match text {
        "none" => Ok(None),
        number => match number.parse() {
            Ok(0) | Err(_) => Err(format!("`{number}` is not a count: write a number from 1 on, or `none`")),
            Ok(most) => Ok(Some(most)),
        },
    }
}

/// Reads the memory that can be had, and how much of the time tasks wait for some; nothing if the host does not tell.
pub(crate) fn read() -> Option<MemoryReading> {
    let available = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    // Absent on kernels that do not count pressure.
    let pressure = fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
    Some(MemoryReading { available, stalled: stalled(&pressure) })
}

/// Bytes of a field of `/proc/meminfo`.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The share of the last ten seconds in which some task waited.
fn stalled(text: &str) -> f64 {
    let some = text.lines().find_map(|line| line.strip_prefix("some ")).unwrap_or_default();
    let average = some.split_whitespace().find_map(|word| word.strip_prefix("avg10="));
    average.and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shares_or_sizes() {
        assert_eq!(parse_amount("10%"), Ok(Amount::Percent(10.0)));
        assert_eq!(parse_amount("2g"), Ok(Amount::Bytes(2 << 30)));
        for wrong in ["", "%", "101%", "-1%", "lots"] {
            assert!(parse_amount(wrong).is_err(), "{wrong}");
        }
        let settings =
            MemorySettings { low: Amount::Percent(10.0), critical: Amount::Bytes(64 << 20), max_active: Some(3) };
        let policy = settings.policy(1000 << 20);
        assert_eq!((policy.low >> 20, policy.critical >> 20, policy.max_active), (100, 64, Some(3)));
        assert_eq!(parse_most("none"), Ok(None));
        assert_eq!(parse_most("7"), Ok(Some(7)));
        assert!(parse_most("0").is_err() && parse_most("all").is_err());
    }

    #[test]
    fn tables_of_the_kernel_are_read() {
        let memory = "MemTotal:       24000000 kB\nMemAvailable:   1000 kB\n";
        assert_eq!(field(memory, "MemAvailable:"), Some(1_024_000));
        let pressure = "some avg10=12.50 avg60=0.00 avg300=0.00 total=397851\nfull avg10=1.00 avg60=0.00\n";
        assert!((stalled(pressure) - 12.5).abs() < f64::EPSILON);
        assert!(stalled("") == 0.0);
        assert!(read().unwrap().available > 0);
    }
}
