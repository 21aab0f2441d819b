//! Moments and time zones as people write them.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use roost_model::Span;

use crate::Cron;

/// Further away than anybody means.
const FARTHEST: SignedDuration = SignedDuration::from_hours(24 * 366 * 5);

/// Why a text names no moment to come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WhenError {
    /// It cannot be read.
    #[error("`{0}` is not a time: write for example `in 10m`, `07:30` or `2027-01-31T07:30:00Z`")]
    Unreadable(String),
    /// It has gone by.
    #[error("`{text}` is over: it is {now:.0} now")]
    Past {
        /// What was given.
        text: String,
        /// The time at which it was read.
        now: Timestamp,
    },
    /// It is too far away.
    #[error("`{0}` is more than five years away")]
    TooFar(String),
    /// No such time zone.
    #[error("this host knows no time zone `{0}`: write for example `Europe/Berlin` or `UTC`")]
    Zone(String),
}

/// A time zone by its IANA name; UTC without one.
pub fn zone(name: Option<&str>) -> Result<TimeZone, WhenError> {
    match name {
        None => Ok(TimeZone::UTC),
        Some(name) if name.eq_ignore_ascii_case("utc") => Ok(TimeZone::UTC),
        Some(name) => TimeZone::get(name).map_err(|_| WhenError::Zone(name.to_owned())),
    }
}

/// A moment to come: `in 10m`, a time of day, or RFC 3339; one without an offset counts in `zone`.
pub fn moment(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, WhenError> {
    let text = text.trim();
    let wrong = || WhenError::Unreadable(text.to_owned());
    let too_far = || WhenError::TooFar(text.to_owned());
    let moment = if let Some(span) = text.strip_prefix("in ") {
        let length = span.trim().parse::<Span>().ok().and_then(Span::get).ok_or_else(wrong)?;
        let length = SignedDuration::try_from(length).map_err(|_| too_far())?;
        now.checked_add(length).map_err(|_| too_far())?
    } else if let Some(time) = time_of_day(text) {
        // The next time a clock shows it, whatever is done to the clocks.
        let cron: Cron = format!("{} {} * * *", time.minute(), time.hour()).parse().map_err(|_| wrong())?;
        cron.next_after(now, zone).ok_or_else(wrong)?
    } else if let Ok(moment) = text.parse::<Timestamp>() {
        moment
    } else {
        let shown: DateTime = text.parse().map_err(|_| wrong())?;
        zone.to_ambiguous_timestamp(shown).compatible().map_err(|_| wrong())?
    };
    if moment <= now {
        return Err(WhenError::Past { text: text.to_owned(), now });
    }
    if moment.duration_since(now) > FARTHEST {
        return Err(too_far());
    }
    Ok(moment)
}

/// `7:30` or `07:30`.
fn time_of_day(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let plain = |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(hour) || minute.len() != 2 || !plain(minute) {
        return None;
    }
    Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let now: Timestamp = "2026-11-15T06:50:21Z".parse().unwrap();
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        moment(text, now, &berlin).map(|moment| moment.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_people_write_is_read() {
        for (text, expected) in [
            ("in 10m", "2026-11-15T07:00:21Z"),
            ("in 1h30m", "2026-11-15T08:20:21Z"),
            ("2026-12-31T23:59:59Z", "2026-12-31T23:59:59Z"),
            ("2026-12-31T23:59:59+02:00", "2026-12-31T21:59:59Z"),
            ("2026-12-31T23:59:59", "2026-12-31T22:59:59Z"),
            ("2026-12-31 23:59", "2026-12-31T22:59:00Z"),
            ("07:51", "2026-11-15T06:51:00Z"),
            ("7:50", "2026-11-16T06:50:00Z"),
            ("23:00", "2026-11-15T22:00:00Z"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (text, part) in [
            ("", "is not a time"),
            ("soon", "`soon` is not a time: write for example `in 10m`"),
            ("in", "is not a time"),
            ("in 10", "is not a time"),
            ("in never", "is not a time"),
            ("24:00", "is not a time"),
            ("7:5", "is not a time"),
            ("in 0s", "`in 0s` is over"),
            ("2020-01-01T00:00:00Z", "is over: it is 2026-11-15T06:50:21Z now"),
            ("in 9999d", "more than five years away"),
            ("in 99999999999d", "more than five years away"),
            ("9999-01-01T00:00:00Z", "more than five years away"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(zone(None), Ok(TimeZone::UTC));
        assert_eq!(zone(Some("UTC")), Ok(TimeZone::UTC));
        assert!(zone(Some("Mars/Base")).unwrap_err().to_string().contains("`Mars/Base`"));
        assert!(zone(Some("../../etc/passwd")).is_err());
    }
}
