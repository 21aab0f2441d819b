//! Holds, which keep a sandbox awake for a while, and alarms, which wake it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Name, Span};

/// Who asked for a hold or an alarm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A client of the API.
    #[default]
    Outside,
    /// A process inside the sandbox.
    Inside,
    /// An alarm that went off: the sandbox is given a moment to begin what it was woken for.
    Alarm,
    /// A crontab inside, read as the sandbox fell asleep.
    Crontab,
}

impl Origin {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::Inside => "inside",
            Self::Alarm => "alarm",
            Self::Crontab => "crontab",
        }
    }
}

/// A lease that keeps a sandbox awake until it ends or is released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hold {
    /// What it is called; putting one of the same name renews it.
    pub id: Name,
    /// What for.
    pub reason: Option<String>,
    /// When it was first taken.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it ends by itself.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// Who took it.
    pub from: Origin,
}

/// A hold to take or renew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutHold {
    /// For how long from now; at most 30 days.
    #[serde(rename = "for", default = "half_an_hour")]
    pub length: Span,
    /// What for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Default for PutHold {
    fn default() -> Self {
        Self { length: half_an_hour(), reason: None }
    }
}

fn half_an_hour() -> Span {
    Span::seconds(30 * 60)
}

/// Wakes a sandbox at a time, once or again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alarm {
    /// What it is called; putting one of the same name replaces it.
    pub id: Name,
    /// When it goes off next.
    #[schema(value_type = String, format = DateTime)]
    pub next_at: Timestamp,
    /// When it goes off again, in the syntax of cron; one without goes off once and is gone.
    pub every: Option<String>,
    /// The time zone in which `every` counts.
    pub tz: String,
    /// What for.
    pub reason: Option<String>,
    /// When it was set.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it last went off.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_at: Option<Timestamp>,
    /// Why the sandbox could not be woken the last time; it is tried again.
    #[serde(default)]
    pub failure: Option<String>,
    /// Who set it.
    pub from: Origin,
}

/// An alarm to set: either `at` or `every`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutAlarm {
    /// Once: RFC 3339, `in 10m`, or `07:30` for the next time it is that late in `tz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Again and again, in the syntax of cron: `*/5 * * * *`, `0 9 * * mon-fri`, `@hourly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// The IANA time zone in which `every` and a time of day count; UTC if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    /// What for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_asked_for_in_few_words() {
        assert_eq!(serde_json::from_str::<PutHold>("{}").unwrap(), PutHold::default());
        let hold: PutHold = serde_json::from_str(r#"{"for":"10m","reason":"build"}"#).unwrap();
        assert_eq!((hold.length, hold.reason.as_deref()), (Span::seconds(600), Some("build")));
        assert!(serde_json::from_str::<PutHold>(r#"{"length":"10m"}"#).is_err());
    }

    #[test]
    fn the_text_of_an_origin_is_its_json() {
        for origin in [Origin::Outside, Origin::Inside, Origin::Alarm, Origin::Crontab] {
            assert_eq!(serde_json::to_value(origin).unwrap(), origin.as_str());
        }
    }
}
