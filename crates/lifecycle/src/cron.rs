//! Times in the syntax of cron: minute, hour, day of month, month, day of week.
//!
//! The rules are those of the cron that most systems have: if both days are given, either of them will do; a field that
//! starts with `*` does not count as given. Where the clocks of a time zone jump forward, what is skipped comes at the
//! moment of the jump; where they are set back, what comes twice comes twice.

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// Every combination of a day and a month comes within this time: the 29th of February is eight years away at most.
const SEARCH_DAYS: usize = 9 * 366;
/// No clock is ever set back by more.
const LARGEST_FOLD: SignedDuration = SignedDuration::from_hours(6);

/// Why a text is not a time in the syntax of cron.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronError {
    /// Too few fields, or too many.
    #[error(
        "`{text}` has {count} fields and not 5 (minute, hour, day of month, month, day of week): write for example \
         `*/5 * * * *`, `0 9 * * mon-fri` or `@hourly`"
    )]
    Fields {
        /// The whole text.
        text: String,
        /// How many it has.
        count: usize,
    },
    /// A word that is none of the short forms.
    #[error("`{0}` is none of @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually")]
    Word(String),
    /// A field that cannot be read.
    #[error("`{text}` is not a {field} of cron, which has numbers from {low} to {high}, lists, ranges and steps")]
    Field {
        /// The field's text.
        text: String,
        /// Which field.
        field: &'static str,
        /// The lowest number it can have.
        low: u8,
        /// The highest.
        high: u8,
    },
    /// Such as the 30th of February.
    #[error("`{0}` never comes")]
    Never(String),
}

/// A set of minutes, in the syntax of cron.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    any_day: bool,
    any_weekday: bool,
}

/// What a field of cron can hold.
struct Field {
    name: &'static str,
    low: u8,
    high: u8,
    /// Names of the numbers, from the lowest on.
    names: &'static [&'static str],
}

const MINUTE: Field = Field { name: "minute", low: 0, high: 59, names: &[] };
const HOUR: Field = Field { name: "hour", low: 0, high: 23, names: &[] };
const DAY: Field = Field { name: "day of month", low: 1, high: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    low: 1,
    high: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
/// Sunday is 0, and 7 as well.
const WEEKDAY: Field =
    Field { name: "day of week", low: 0, high: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl Field {
    /// The numbers of a field as bits.
    fn parse(&self, text: &str) -> Result<u64, CronError> {
        let parts = text.split(',').map(|part| self.part(part));
        let bits = parts.reduce(|all, part| Some(all? | part?)).flatten();
        let wrong = || CronError::Field { text: text.to_owned(), field: self.name, low: self.low, high: self.high };
        bits.ok_or_else(wrong)
    }

    /// `*`, `a`, `a-b`, each also with `/step`.
    fn part(&self, text: &str) -> Option<u64> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(self.digits(step).filter(|step| *step > 0)?)),
            None => (text, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.low, self.high),
            Some((first, last)) => (self.number(first)?, self.number(last)?),
            // `a/step` goes on from there.
            None if step.is_some() => (self.number(range)?, self.high),
            None => (self.number(range)?, self.number(range)?),
        };
        if first > last {
            return None;
        }
        let numbers = (first..=last).step_by(usize::from(step.unwrap_or(1)));
        Some(numbers.fold(0, |bits, number| bits | 1 << number))
    }

    fn number(&self, text: &str) -> Option<u8> {
        let name = text.to_ascii_lowercase();
        if let Some(place) = self.names.iter().position(|known| *known == name) {
            return Some(self.low + u8::try_from(place).ok()?);
        }
        self.digits(text).filter(|number| (self.low..=self.high).contains(number))
    }

    fn digits(&self, text: &str) -> Option<u8> {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten()
    }
}

impl std::str::FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        let text = text.trim();
        let fields: Vec<&str> = match text {
            "@yearly" | "@annually" => vec!["0", "0", "1", "1", "*"],
            "@monthly" => vec!["0", "0", "1", "*", "*"],
            "@weekly" => vec!["0", "0", "*", "*", "0"],
            "@daily" | "@midnight" => vec!["0", "0", "*", "*", "*"],
            "@hourly" => vec!["0", "*", "*", "*", "*"],
            word if word.starts_with('@') => return Err(CronError::Word(word.to_owned())),
            _ => text.split_ascii_whitespace().collect(),
        };
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(CronError::Fields { text: text.to_owned(), count: fields.len() });
        };
        let weekdays = WEEKDAY.parse(weekday)?;
        let cron = Self {
            minutes: MINUTE.parse(minute)?,
            hours: HOUR.parse(hour)?,
            days: DAY.parse(day)?,
            months: MONTH.parse(month)?,
            weekdays: weekdays | (weekdays >> 7),
            any_day: day.starts_with('*'),
            any_weekday: weekday.starts_with('*'),
        };
        match cron.next_after(Timestamp::UNIX_EPOCH, &TimeZone::UTC) {
            Some(_) => Ok(cron),
            None => Err(CronError::Never(text.to_owned())),
        }
    }
}

impl Cron {
    /// The first moment after `after` at which it is one of its minutes in a time zone.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        // Clocks that are set back around midnight show the day before again.
        let mut date = after.to_zoned(zone.clone()).date().yesterday().ok()?;
        let mut best = None;
        for _ in 0..SEARCH_DAYS {
            let found_before = best.is_some();
            if self.has_day(date) {
                self.search_day(date, after, zone, &mut best);
            }
            if found_before {
                break;
            }
            date = date.tomorrow().ok()?;
        }
        best
    }

    fn has_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let either = match (self.any_day, self.any_weekday) {
            (false, false) => day || weekday,
            _ => day && weekday,
        };
        either && has(self.months, date.month())
    }

    /// Improves `best` by the moments of one day.
    fn search_day(&self, date: Date, after: Timestamp, zone: &TimeZone, best: &mut Option<Timestamp>) {
        for hour in (0..24).filter(|hour| has(self.hours, *hour)) {
            for minute in (0..60).filter(|minute| has(self.minutes, *minute)) {
                let shown = date.at(hour, minute, 0, 0);
                let at = |offset: jiff::tz::Offset| offset.to_timestamp(shown).ok();
                let moments = match zone.to_ambiguous_timestamp(shown).offset() {
                    AmbiguousOffset::Unambiguous { offset } => [at(offset), None],
                    AmbiguousOffset::Fold { before, after } => [at(before), at(after)],
                    // It is never that late: the jump itself stands for it.
                    AmbiguousOffset::Gap { after, .. } => {
                        let jump = at(after).and_then(|early| zone.following(early).next());
                        [jump.map(|jump| jump.timestamp()), None]
                    }
                };
                for moment in moments.into_iter().flatten() {
                    if moment > after && best.is_none_or(|best| moment < best) {
                        *best = Some(moment);
                    }
                    if best.is_some_and(|best| moment > best.saturating_add(LARGEST_FOLD).unwrap_or(best)) {
                        return;
                    }
                }
            }
        }
    }
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits & (1 << number) != 0)
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
