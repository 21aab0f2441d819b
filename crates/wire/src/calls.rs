//! What processes inside ask of the host, through their guest.
//!
//! No way into the daemon is opened for this: the host asks the guest for its calls ([`crate::Request::Calls`]) on a
//! connection that it keeps while the sandbox is awake. The guest sends [`CallFrame`]s, the host answers each with an
//! [`AnswerFrame`]. Inside, the same [`Call`] is one line of JSON on a socket and the [`Outcome`] the line that answers it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a process inside asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Call {
    /// Who am I, and what keeps me awake or wakes me?
    Info,
    /// Keep me awake.
    Hold(AskHold),
    /// Keep me awake no longer.
    Release(AskRelease),
    /// Let me sleep now. Answered after the wake, or with the reason why not.
    Suspend(AskSuspend),
    /// Keep this moment of me. Answered in the sandbox that goes on and, differently, in every one that starts from it.
    Checkpoint(AskCheckpoint),
    /// Wake me at a time.
    WakeAt(AskAlarm),
    /// Wake me no more.
    Unset(AskRelease),
}

impl Call {
    /// Whether making it twice is the same as making it once.
    pub fn is_repeatable(&self) -> bool {
        !matches!(self, Call::Suspend(_) | Call::Checkpoint(_))
    }
}

/// A hold; what is absent is up to the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskHold {
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How long, such as `10m`.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub length: Option<String>,
    /// What for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A hold or an alarm that is no longer wanted; all that were asked for from inside when it is not named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskRelease {
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A sleep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskSuspend {
    /// How deep: `ram` or `disk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskCheckpoint {
    /// What to remember about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// An alarm: either `at` or `every`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskAlarm {
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Once, at a time as people write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Again and again, in the syntax of cron.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// The time zone that these count in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    /// What for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is done.
    Ok(Answer),
    /// It was refused.
    Error(Refusal),
}

/// A call that was carried out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// For people, a line or more.
    pub text: String,
    /// The same for programs.
    #[serde(default)]
    pub data: Value,
}

/// A call that was not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// A stable word, the same as in the public API.
    pub code: String,
    /// For people: a lowercase fragment.
    pub message: String,
}

impl Outcome {
    /// A refusal.
    pub fn refused(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error(Refusal { code: code.into(), message: message.into() })
    }
}

/// Guest to host: a call and its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFrame {
    /// Tells calls of one guest apart.
    pub id: u64,
    /// The call.
    pub call: Call,
}

/// Host to guest: what came of the call of that number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerFrame {
    /// The call's number.
    pub id: u64,
    /// What came of it.
    pub outcome: Outcome,
}

/// A line of a crontab inside: when, not what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CronJob {
    /// Five fields, or a word such as `@daily`.
    pub schedule: String,
    /// The time zone it counts in, as it is called inside; UTC if there is none.
    #[serde(default)]
    pub tz: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that programs inside write; must be understood for ever.
    #[test]
    fn lines_of_version_one_are_understood() {
        let read = |line: &str| serde_json::from_str::<Call>(line).unwrap();
        assert_eq!(read(r#""info""#), Call::Info);
        let hold = AskHold { length: Some("10m".into()), reason: Some("build".into()), name: None };
        assert_eq!(read(r#"{"hold":{"for":"10m","reason":"build"}}"#), Call::Hold(hold));
        assert_eq!(read(r#"{"release":{}}"#), Call::Release(AskRelease::default()));
        assert_eq!(read(r#"{"suspend":{"colour":"blue"}}"#), Call::Suspend(AskSuspend::default()));
        let alarm = AskAlarm { at: Some("in 10m".into()), ..AskAlarm::default() };
        assert_eq!(read(r#"{"wake_at":{"at":"in 10m"}}"#), Call::WakeAt(alarm));
        let refused = Outcome::refused("bad_request", "no");
        let line = serde_json::to_string(&refused).unwrap();
        assert_eq!(line, r#"{"error":{"code":"bad_request","message":"no"}}"#);
        assert_eq!(serde_json::from_str::<Outcome>(&line).unwrap(), refused);
    }
}
