//! Why the host refused or failed, in the words that every surface uses.

use std::path::PathBuf;

use jiff::Timestamp;
use roost_engine::EngineError;
use roost_lifecycle::{OverBudget, Refused, ServiceError};
use roost_model::{ErrorCode, LimitError, NameError, SandboxView, TemplateRefError, chain};
use roost_store::StoreError;

/// Why a request to the host was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The name breaks the rules.
    #[error(transparent)]
    InvalidName(#[from] NameError),
    /// Another sandbox has the name.
    #[error("a sandbox named `{0}` exists already")]
    NameTaken(String),
    /// No such sandbox.
    #[error("no sandbox named `{name}`")]
    SandboxNotFound {
        /// What was asked for.
        name: String,
        /// The most similar name there is.
        similar: Option<String>,
    },
    /// An id prefix that fits several.
    #[error("`{prefix}` fits {count} sandboxes")]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// How many fit.
        count: usize,
    },
    /// The sandbox is gone.
    #[error("sandbox `{}` is gone: {}", .0.name, tombstone_text(.0))]
    Terminated(Box<SandboxView>),
    /// No such template.
    #[error("no template named `{name}`")]
    TemplateNotFound {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A limit that cannot be.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Something in the request makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// It clashes with what is going on, or with an earlier request.
    #[error("{0}")]
    Conflict(String),
    /// The host's disk has no room for more.
    #[error("{0}")]
    HostFull(String),
    /// Every network slot of the host is in use.
    #[error("{0}")]
    SlotsTaken(String),
    /// Free memory is so short that starting anything would hurt what runs.
    #[error("the host has {} MiB of memory left, and starts nothing below {} MiB", available >> 20, critical >> 20)]
    MemoryShort {
        /// Free bytes.
        available: u64,
        /// Below this many nothing is started.
        critical: u64,
    },
    /// As many sandboxes are awake as may be.
    #[error("{most} sandboxes are awake, and no more may be")]
    TooManyActive {
        /// How many may be.
        most: usize,
    },
    /// It sleeps, and a touch does not wake it.
    #[error("sandbox `{name}` sleeps since {since:.0}, and stays so until it is woken expressly")]
    StaysAsleep {
        /// Which.
        name: String,
        /// Since when.
        since: Timestamp,
    },
    /// The engine is not there or cannot do this.
    #[error("{0}")]
    EngineUnfit(String),
    /// The guest refused, with a code of its own.
    #[error("{message}")]
    Guest {
        /// Why.
        code: ErrorCode,
        /// What it said.
        message: String,
    },
    /// The guest could not be reached or broke off.
    #[error("lost the guest of sandbox `{sandbox}`: {detail}")]
    GuestLost {
        /// Whose guest.
        sandbox: String,
        /// What happened.
        detail: String,
    },
    /// The guest broke the protocol, as root inside can have it do.
    #[error("{message}")]
    GuestReply {
        /// Whether it sent too much, and not something else than was asked for.
        too_large: bool,
        /// Whose guest, and what it sent.
        message: String,
    },
    /// The guest is of an earlier version, and does not know what it was asked.
    #[error("the guest of sandbox `{sandbox}` is of an earlier version, and cannot be asked for {what}")]
    GuestOutdated {
        /// Whose guest.
        sandbox: String,
        /// What it was asked for.
        what: &'static str,
    },
    /// Nobody listens on the port.
    #[error("nothing listens on port {port} in sandbox `{sandbox}`")]
    PortClosed {
        /// In which sandbox.
        sandbox: String,
        /// Which port.
        port: u16,
        /// The ports that do listen.
        listening: Vec<u16>,
    },
    /// A template could not be made, mounted or removed.
    #[error("{message}")]
    Template {
        /// Why.
        code: ErrorCode,
        /// What it said.
        message: String,
    },
    /// No such checkpoint.
    #[error("no checkpoint `{0}`")]
    CheckpointNotFound(String),
    /// Memory could not be saved; the sandbox goes on as it was.
    #[error("memory was not saved: {0}")]
    MemoryNotSaved(String),
    /// The memory images of a sandbox would take more than its budget.
    #[error(
        "an image of {} MiB does not fit: {} MiB of images and checkpoints are kept, and they may take {} MiB together",
        .0.needed >> 20, .0.kept >> 20, .0.most >> 20
    )]
    ImageBudget(OverBudget),
    /// An image of another engine, version or processor, or a damaged one.
    #[error("{0}")]
    ImageIncompatible(String),
    /// No such service.
    #[error("sandbox `{sandbox}` has no service named `{name}`")]
    ServiceNotFound {
        /// What was asked for.
        name: String,
        /// Where.
        sandbox: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A service that was to be up is not.
    #[error("service `{name}` did not come up: {why}")]
    ServiceFailed {
        /// Which.
        name: String,
        /// Why, with the end of its log.
        why: String,
    },
    /// A set of services that makes no sense.
    #[error(transparent)]
    Services(#[from] ServiceError),
    /// No such hold.
    #[error("it has no hold `{0}`")]
    HoldNotFound(String),
    /// No such alarm.
    #[error("it has no alarm `{0}`")]
    AlarmNotFound(String),
    /// More than a limit allows.
    #[error("{0}")]
    LimitExceeded(String),
    /// It is not this one's to ask for.
    #[error("{0}")]
    Forbidden(String),
    /// A path of the host that this caller may not have read.
    #[error("this caller cannot have the daemon read `{}`", .0.display())]
    ForeignPath(PathBuf),
    /// Too much at once.
    #[error("{0}")]
    RateLimited(String),
    /// No such batch.
    #[error("no batch `{0}`")]
    BatchNotFound(String),
    /// No such build of a template.
    #[error("no build `{0}`")]
    BuildNotFound(String),
    /// No such token.
    #[error("no token `{0}`")]
    TokenNotFound(String),
    /// No such public key.
    #[error("no key `{0}`")]
    KeyNotFound(String),
    /// The engine failed.
    #[error(transparent)]
    Engine(EngineError),
    /// The sandbox could not be started.
    #[error("could not start sandbox `{name}`: {}", chain(cause.as_ref()))]
    NotStarted {
        /// Which.
        name: String,
        /// Why. That it is for want of room is told by its code: whoever asked can do something about it.
        cause: Box<HostError>,
    },
    /// The store failed.
    #[error("could not remember it")]
    Store(#[source] StoreError),
    /// A fault of our own.
    #[error("{0}")]
    Internal(String),
}

impl HostError {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::InvalidName(_) => ErrorCode::InvalidName,
            Self::NameTaken(_) => ErrorCode::NameTaken,
            Self::SandboxNotFound { .. } => ErrorCode::SandboxNotFound,
            Self::Terminated(_) => ErrorCode::SandboxTerminated,
            Self::TemplateNotFound { .. } => ErrorCode::TemplateNotFound,
            Self::Limit(_) => ErrorCode::LimitInvalid,
            Self::BadRequest(_) | Self::Ambiguous { .. } => ErrorCode::BadRequest,
            Self::Conflict(_) => ErrorCode::Conflict,
            Self::HostFull(_) | Self::SlotsTaken(_) | Self::MemoryShort { .. } => ErrorCode::HostFull,
            Self::NotStarted { cause, .. } if cause.code() == ErrorCode::HostFull => ErrorCode::HostFull,
            Self::TooManyActive { .. } => ErrorCode::LimitExceeded,
            Self::StaysAsleep { .. } => ErrorCode::SandboxAsleep,
            Self::EngineUnfit(_) => ErrorCode::EngineUnfit,
            Self::Guest { code, .. } | Self::Template { code, .. } => *code,
            Self::ServiceNotFound { .. } => ErrorCode::ServiceNotFound,
            Self::ServiceFailed { .. } => ErrorCode::ServiceFailed,
            Self::Services(error) if error.is_limit() => ErrorCode::LimitExceeded,
            Self::Services(_) => ErrorCode::BadRequest,
            Self::HoldNotFound(_) => ErrorCode::HoldNotFound,
            Self::AlarmNotFound(_) => ErrorCode::AlarmNotFound,
            Self::LimitExceeded(_) => ErrorCode::LimitExceeded,
            Self::Forbidden(_) | Self::ForeignPath(_) => ErrorCode::Forbidden,
            Self::RateLimited(_) => ErrorCode::RateLimited,
            Self::BatchNotFound(_) => ErrorCode::BatchNotFound,
            Self::BuildNotFound(_) => ErrorCode::NotFound,
            Self::TokenNotFound(_) => ErrorCode::TokenNotFound,
            Self::KeyNotFound(_) => ErrorCode::KeyNotFound,
            Self::PortClosed { .. } => ErrorCode::PortClosed,
            Self::CheckpointNotFound(_) => ErrorCode::CheckpointNotFound,
            Self::MemoryNotSaved(_) => ErrorCode::MemoryNotSaved,
            Self::ImageBudget(_) => ErrorCode::ImageBudgetExceeded,
            Self::ImageIncompatible(_) | Self::GuestOutdated { .. } => ErrorCode::ImageIncompatible,
            // Its processes ended, and its actor has not heard of it yet.
            Self::GuestLost { .. } | Self::Engine(EngineError::NotRunning { .. }) => ErrorCode::GuestLost,
            Self::GuestReply { too_large: true, .. } => ErrorCode::GuestReplyTooLarge,
            Self::GuestReply { too_large: false, .. } => ErrorCode::GuestReplyInvalid,
            Self::Engine(EngineError::EndedInSave { .. }) => ErrorCode::MemoryNotSaved,
            Self::Engine(_) | Self::NotStarted { .. } | Self::Store(_) | Self::Internal(_) => ErrorCode::Internal,
        }
    }

    /// What to do about it, where that can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::SandboxNotFound { similar: Some(similar), .. } => Some(format!("did you mean `{similar}`?")),
            Self::SandboxNotFound { .. } => Some("`roost ls` shows what is here".to_owned()),
            Self::Ambiguous { .. } => Some("give more of the id".to_owned()),
            Self::TemplateNotFound { known, .. } if known.is_empty() => {
                Some("make one: `roost template build mini`".to_owned())
            }
            Self::TemplateNotFound { known, .. } => Some(format!("there is {}", known.join(", "))),
            Self::ServiceNotFound { known, .. } if known.is_empty() => Some("`roost service put` makes one".to_owned()),
            Self::ServiceNotFound { known, .. } => Some(format!("there is {}", known.join(", "))),
            Self::PortClosed { listening, .. } if listening.is_empty() => {
                Some("nothing listens in it at all: start a server inside".to_owned())
            }
            Self::PortClosed { listening, .. } => Some(format!("what does listen: {}", listed(listening))),
            Self::NotStarted { cause, .. } if cause.code() == ErrorCode::HostFull => cause.hint(),
            Self::HostFull(_) => Some(
                "remove checkpoints or sandboxes, or let the pool grow (`--pool-size` of the daemon): nothing is lost"
                    .to_owned(),
            ),
            Self::ImageBudget(_) => Some(
                "remove checkpoints (`roost checkpoint rm`), or raise the budget (`roost set NAME --image-budget SIZE`)"
                    .to_owned(),
            ),
            Self::SlotsTaken(_) | Self::MemoryShort { .. } => {
                Some("let sandboxes sleep deeper (`roost suspend NAME --to disk`) or remove some".to_owned())
            }
            Self::TooManyActive { .. } => {
                Some("let one sleep (`roost suspend NAME`), or raise `memory.max_active` of the daemon".to_owned())
            }
            Self::Engine(EngineError::EndedInSave { .. }) => {
                Some("its files are kept: raise its memory limit (`roost set NAME --memory SIZE`)".to_owned())
            }
            Self::GuestLost { .. } | Self::Engine(EngineError::NotRunning { .. }) => {
                Some("look whether it was done, and ask again: what reaches for it starts it".to_owned())
            }
            Self::GuestReply { too_large: true, .. } => Some("ask for less at once".to_owned()),
            Self::GuestReply { too_large: false, .. } => Some(
                "root inside may answer in the guest's place: a suspend to files (`--to files`) ends its processes and starts a guest of ours"
                    .to_owned(),
            ),
            Self::GuestOutdated { sandbox, .. } => Some(format!(
                "it gets the present one when it starts from files, without its processes: `roost suspend {sandbox} --to files`"
            )),
            Self::StaysAsleep { name, .. } => Some(format!("`roost wake {name}` wakes it")),
            Self::ForeignPath(_) => Some(
                "upload an archive (`PUT /v1/templates/NAME`), ask through the daemon's socket, or name a path below one of \
                 `template_folders` of the daemon"
                    .to_owned(),
            ),
            Self::NameTaken(_) => Some("choose another name, or leave it out and get a made-up one".to_owned()),
            _ => None,
        }
    }

    /// The sandbox that is gone, if that is the trouble.
    pub fn sandbox(&self) -> Option<&SandboxView> {
        match self {
            Self::Terminated(view) => Some(view),
            _ => None,
        }
    }
}

impl From<EngineError> for HostError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::NotSaved { .. } => Self::MemoryNotSaved(error.to_string()),
            EngineError::ImageUnfit { .. } => Self::ImageIncompatible(error.to_string()),
            EngineError::Full { .. } => Self::HostFull(error.to_string()),
            EngineError::Unfit { .. } => Self::EngineUnfit(error.to_string()),
            other => Self::Engine(other),
        }
    }
}

impl From<StoreError> for HostError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NameTaken { name } => Self::NameTaken(name.to_string()),
            StoreError::KeyConflict { .. } => {
                Self::Conflict("this idempotency key was used for another request".to_owned())
            }
            other => Self::Store(other),
        }
    }
}

impl From<TemplateRefError> for HostError {
    fn from(error: TemplateRefError) -> Self {
        match error {
            TemplateRefError::Name(error) => Self::InvalidName(error),
            other => Self::BadRequest(other.to_string()),
        }
    }
}

impl From<Refused> for HostError {
    fn from(refused: Refused) -> Self {
        Self::Internal(format!("{:?} makes no sense while {}", refused.event, refused.phase))
    }
}

/// The first ports of many.
fn listed(ports: &[u16]) -> String {
    let shown: Vec<String> = ports.iter().take(10).map(u16::to_string).collect();
    format!("{}{}", shown.join(", "), if ports.len() > shown.len() { ", …" } else { "" })
}

fn tombstone_text(view: &SandboxView) -> String {
    match &view.tombstone {
        Some(tombstone) => format!("{} at {:.0}", tombstone.message, tombstone.at),
        None => "terminated".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_not_started_tells_what_to_do_about_the_cause() {
        let not_started = |cause| HostError::NotStarted { name: "box".to_owned(), cause: Box::new(cause) };
        let full = not_started(HostError::HostFull("the pool is full".to_owned()));
        assert_eq!(full.to_string(), "could not start sandbox `box`: the pool is full");
        assert_eq!(full.code(), ErrorCode::HostFull);
        assert!(full.hint().unwrap().contains("--pool-size"));
        let taken = not_started(HostError::SlotsTaken("no slot is free".to_owned()));
        assert_eq!(taken.code(), ErrorCode::HostFull);
        assert!(taken.hint().unwrap().contains("--to disk"));
        let other = not_started(HostError::GuestLost { sandbox: "box".to_owned(), detail: "gone".to_owned() });
        assert_eq!((other.code(), other.hint()), (ErrorCode::Internal, None));
    }
}
