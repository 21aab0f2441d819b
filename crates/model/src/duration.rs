//! Durations as people write them: `15s`, `10m`, `1h30m`, `250ms`, `never`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time, or never.
#[derive(Clone, Copy, PartialEq, Eq, Hash, utoipa::ToSchema)]
#[schema(value_type = String, example = "15s")]
pub struct Span(Option<Duration>);

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration: write for example `15s`, `10m`, `1h30m` or `never`")]
pub struct DurationError(pub String);

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Span {
    /// No end.
    pub const NEVER: Self = Self(None);

    /// A span of whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Some(Duration::from_secs(seconds)))
    }

    /// The length, or nothing for never.
    pub const fn get(self) -> Option<Duration> {
        self.0
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(Some(duration))
    }
}

impl FromStr for Span {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let wrong = || DurationError(text.to_owned());
        if text == "never" {
            return Ok(Self::NEVER);
        }
        let mut rest = text;
        let mut total: u64 = 0;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = rest.split_at(digits);
            let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
            let (unit, after) = after.split_at(letters);
            let number: u64 = number.parse().map_err(|_| wrong())?;
            let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
            total = number.checked_mul(*factor).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
            rest = after;
        }
        Ok(Self(Some(Duration::from_millis(total))))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(duration) = self.0 else { return f.write_str("never") };
        let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        if left == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in UNITS {
            if left >= factor {
                write!(f, "{}{unit}", left / factor)?;
                left %= factor;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["15s", "10m", "1h30m", "250ms", "never", "2d", "0s"] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string(), text);
        }
        assert_eq!("90s".parse::<Span>().unwrap().to_string(), "1m30s");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "15", "s", "-1s", "1x", "1 s", "99999999999999999999d", "never1s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
