//! Where a sandbox is in its life, as it is persisted.

use std::fmt;
use std::str::FromStr;

use roost_model::{EngineKind, Level, State};

/// The persisted phase of a sandbox; finer than the public [`State`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Promised but not yet usable.
    Creating,
    /// Its guest answers.
    Active,
    /// Its processes are being ended.
    Suspending {
        /// How deep it will sleep.
        level: Level,
        /// Somebody reached for it meanwhile: wake it as soon as it is down.
        wake_after: bool,
    },
    /// Asleep.
    Suspended(Level),
    /// Frozen in RAM, its memory on its way to disk.
    Deepening {
        /// Somebody reached for it meanwhile: wake it instead.
        wake_after: bool,
    },
    /// Being woken.
    Resuming(Level),
    /// Another moment of it is taking its place; which one stands in its record.
    Restoring,
    /// Its processes are being ended; it goes on, from its files, on another engine.
    Moving {
        /// Which.
        to: EngineKind,
        /// Whether it is started there, or sleeps.
        wake_after: bool,
    },
    /// Its tombstone is written; its processes are being ended.
    Terminating,
    /// No process is left; its disk and network are being given back.
    Releasing,
    /// Gone for good.
    Terminated,
}

impl Phase {
    /// The public state.
    pub const fn state(self) -> State {
        match self {
            Self::Creating => State::Creating,
            Self::Active => State::Active,
            Self::Suspending { .. } | Self::Deepening { .. } | Self::Moving { wake_after: false, .. } => {
                State::Suspending
            }
            Self::Suspended(_) => State::Suspended,
            Self::Resuming(_) | Self::Restoring | Self::Moving { wake_after: true, .. } => State::Resuming,
            Self::Terminating | Self::Releasing | Self::Terminated => State::Terminated,
        }
    }

    /// The public level.
    pub const fn level(self) -> Option<Level> {
        match self {
            Self::Suspending { level, .. } | Self::Suspended(level) | Self::Resuming(level) => Some(level),
            Self::Deepening { .. } => Some(Level::Disk),
            _ => None,
        }
    }

    /// Whether its memory is in an image and nowhere else; an image that is named in any other phase is of an earlier moment.
    pub const fn is_in_image(self) -> bool {
        matches!(self, Self::Suspended(Level::Disk) | Self::Resuming(Level::Disk))
    }

    /// Whether its end has been decided.
    pub const fn is_ending(self) -> bool {
        matches!(self, Self::Terminating | Self::Releasing | Self::Terminated)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Creating => f.write_str("creating"),
            Self::Active => f.write_str("active"),
            Self::Suspending { level, wake_after: false } => write!(f, "suspending:{level}"),
            Self::Suspending { level, wake_after: true } => write!(f, "suspending:{level}:wake"),
            Self::Suspended(level) => write!(f, "suspended:{level}"),
            Self::Deepening { wake_after: false } => f.write_str("deepening"),
            Self::Deepening { wake_after: true } => f.write_str("deepening:wake"),
            Self::Restoring => f.write_str("restoring"),
            Self::Moving { to, wake_after: false } => write!(f, "moving:{to}"),
            Self::Moving { to, wake_after: true } => write!(f, "moving:{to}:wake"),
            Self::Resuming(level) => write!(f, "resuming:{level}"),
            Self::Terminating => f.write_str("terminating"),
            Self::Releasing => f.write_str("releasing"),
            Self::Terminated => f.write_str("terminated"),
        }
    }
}

impl FromStr for Phase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = |word: Option<&str>| match word {
            Some("ram") => Ok(Level::Ram),
            Some("disk") => Ok(Level::Disk),
            Some("files") => Ok(Level::Files),
            _ => Err(format!("`{text}` names no level")),
        };
        let mut words = text.split(':');
        Ok(match words.next() {
            Some("creating") => Self::Creating,
            Some("active") => Self::Active,
            Some("suspending") => {
                Self::Suspending { level: level(words.next())?, wake_after: words.next() == Some("wake") }
            }
            Some("suspended") => Self::Suspended(level(words.next())?),
            Some("deepening") => Self::Deepening { wake_after: words.next() == Some("wake") },
            Some("restoring") => Self::Restoring,
            Some("moving") => {
                Self::Moving { to: words.next().unwrap_or_default().parse()?, wake_after: words.next() == Some("wake") }
            }
            Some("resuming") => Self::Resuming(level(words.next())?),
            Some("terminating") => Self::Terminating,
            Some("releasing") => Self::Releasing,
            Some("terminated") => Self::Terminated,
            _ => return Err(format!("`{text}` is no phase")),
        })
    }
}

/// Every phase there is, for tests that must visit them all.
#[cfg(test)]
pub(crate) fn all() -> Vec<Phase> {
    let mut phases = vec![
        Phase::Creating,
        Phase::Active,
        Phase::Deepening { wake_after: false },
        Phase::Deepening { wake_after: true },
        Phase::Restoring,
        Phase::Terminating,
        Phase::Releasing,
        Phase::Terminated,
    ];
    for wake_after in [false, true] {
        phases.push(Phase::Moving { to: EngineKind::Gvisor, wake_after });
    }
    for level in [Level::Ram, Level::Disk, Level::Files] {
        phases.push(Phase::Suspended(level));
        phases.push(Phase::Resuming(level));
        for wake_after in [false, true] {
            phases.push(Phase::Suspending { level, wake_after });
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_back() {
        for phase in all() {
            assert_eq!(phase.to_string().parse(), Ok(phase));
        }
        assert!("asleep".parse::<Phase>().is_err());
        assert!("suspended:deep".parse::<Phase>().is_err());
        assert!("moving".parse::<Phase>().is_err());
    }
}
