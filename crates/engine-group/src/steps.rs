//! The steps of a program that brings a sandbox into being, and which of them failed.

use std::io;

#[cfg(feature = "daemon")]
use roost_engine::EngineError;
#[cfg(feature = "daemon")]
use roost_model::SandboxId;

/// Declares the steps, each with the words that complete "failed to …", as an enum `Step`, and with it `Failure`, which is
/// told over a socket.
#[macro_export]
macro_rules! steps {
    ($($variant:ident $text:literal,)*) => {
        /// A step of the way to a sandbox.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        pub enum Step {
            $(#[doc = $text] $variant,)*
        }

        impl Step {
            /// The step in words that complete "failed to …".
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        /// A step that failed.
        #[derive(Debug, Clone, ::serde::Serialize, ::serde::Deserialize, ::thiserror::Error)]
        #[error("failed to {}: {detail}", step.name())]
        pub struct Failure {
            /// Which step.
            pub step: Step,
            /// What the kernel or a tool said, with the causes.
            pub detail: String,
            /// Whether a disk, or what one may hold, was full.
            pub full: bool,
        }

        impl Failure {
            /// For `map_err`: names the step and keeps the whole chain of causes.
            pub(super) fn of<E: ::std::error::Error + 'static>(step: Step) -> impl Fn(E) -> Self {
                move |error| Self { step, detail: $crate::with_causes(&error), full: $crate::is_full(&error) }
            }
        }
    };
}

/// An error and its causes as text, since it crosses a socket.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut detail = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        detail.push_str(": ");
        detail.push_str(&inner.to_string());
        cause = inner.source();
    }
    detail
}

/// A step that failed, as an error of the engine about a sandbox.
#[cfg(feature = "daemon")]
pub fn step_failed(step: &'static str, detail: String, full: bool, id: &SandboxId) -> EngineError {
    let id = id.clone();
    if full { EngineError::Full { step, id, detail } } else { EngineError::Failed { step, id, detail } }
}

/// Whether the cause is a full disk or a full quota.
pub fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    #[derive(Debug, thiserror::Error)]
    #[error("no root")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_are_kept() {
        let told = super::with_causes(&Outer(std::io::Error::from_raw_os_error(1)));
        assert!(told.starts_with("no root: Operation not permitted"), "{told}");
    }

    #[test]
    fn a_full_disk_is_told_from_other_causes() {
        let caused = |errno: Errno| Outer(errno.into());
        assert!(super::is_full(&caused(Errno::NOSPC)) && super::is_full(&caused(Errno::DQUOT)));
        assert!(super::is_full(&Outer(std::io::Error::other(caused(Errno::DQUOT)))));
        assert!(!super::is_full(&caused(Errno::PERM)));
    }
}
