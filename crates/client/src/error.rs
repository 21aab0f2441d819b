//! What can go wrong between here and the daemon.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use roost_model::{ErrorBody, ErrorCode, ErrorDetail, SandboxView};

/// A boxed cause.
pub(crate) type Cause = Box<dyn Error + Send + Sync>;

/// Why a call to the daemon failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The daemon refused.
    #[error("{}", detail.message)]
    Api {
        /// HTTP status; that of the stream's head when the refusal came in the middle of a stream.
        status: u16,
        /// Code, message and hint.
        detail: ErrorDetail,
        /// The sandbox that is gone, with its tombstone.
        sandbox: Option<Box<SandboxView>>,
    },
    /// Nobody answers where the daemon should be.
    #[error("failed to connect to the daemon at {place}")]
    Connect {
        /// Socket path or host and port.
        place: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The address of the daemon makes no sense.
    #[error("`{given}` is not an address of a daemon: {problem}")]
    Address {
        /// What was given.
        given: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The file of authorities to trust cannot be used.
    #[error("failed to read the authorities in `{}`: {problem}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The connection broke before the answer was complete.
    #[error("the connection to the daemon broke during {attempt}")]
    Broken {
        /// Method and path.
        attempt: String,
        /// What was noticed.
        source: Cause,
    },
    /// The daemon's answer was not what this version understands.
    #[error("failed to understand the answer to {attempt}: {problem}")]
    Answer {
        /// Method and path.
        attempt: String,
        /// What was odd.
        problem: String,
    },
}

impl ClientError {
    /// The daemon's code, if it answered.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Api { detail, .. } => Some(detail.code),
            _ => None,
        }
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Api { detail, .. } => detail.hint.clone(),
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("the socket belongs to another user: use sudo, or ROOST_URL with ROOST_TOKEN".to_owned())
            }
            Self::Connect { source, .. } if is_of_tls(source) => Some(
                "does it speak TLS, and is its certificate for this name? `--ca` or ROOST_CA names the authority to trust"
                    .to_owned(),
            ),
            Self::Connect { .. } => Some("is the daemon running? `roost serve` or `make up`".to_owned()),
            Self::Address { .. } => Some("write for example http://127.0.0.1:7077".to_owned()),
            Self::Authorities { .. } => Some("it holds certificates in PEM, as openssl writes them".to_owned()),
            Self::Broken { .. } => Some("was the daemon stopped? `roost ls` tells whether it is back".to_owned()),
            Self::Answer { .. } => Some("is the daemon of the same version? see `roost version`".to_owned()),
        }
    }

    /// Whether the daemon was away rather than unwilling, so that the same call may work in a moment.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect { source, .. } => !is_of_tls(source),
            Self::Broken { .. } => true,
            Self::Api { status, .. } => matches!(status, 502..=504),
            Self::Address { .. } | Self::Authorities { .. } | Self::Answer { .. } => false,
        }
    }

    /// Reads the refusal in an answer's body, whatever the body is.
    pub(crate) fn from_body(status: u16, body: &[u8]) -> Self {
        if let Ok(ErrorBody { error, sandbox }) = serde_json::from_slice(body) {
            return Self::Api { status, detail: error, sandbox };
        }
        // A daemon newer than this client may use codes that it does not know: keep the words.
        let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |key: &str| value["error"][key].as_str().map(str::to_owned);
        let message = text("message").unwrap_or_else(|| {
            let shown: String = String::from_utf8_lossy(body).trim().chars().take(300).collect();
            format!("the daemon answered with status {status}: {shown}")
        });
        let detail = ErrorDetail { code: ErrorCode::Internal, message, hint: text("hint") };
        Self::Api { status, detail, sandbox: None }
    }
}

/// Whether a connection failed because both sides could not agree on TLS.
fn is_of_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<rustls::Error>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_codes_and_foreign_bodies_keep_their_words() {
        let newer = br#"{"error":{"code":"from_the_future","message":"m","hint":"h"}}"#;
        let error = ClientError::from_body(409, newer);
        assert_eq!(error.to_string(), "m");
        assert_eq!(error.hint().as_deref(), Some("h"));
        let proxy = ClientError::from_body(502, b"<h1>bad gateway</h1>");
        assert!(proxy.to_string().contains("502: <h1>bad gateway"), "{proxy}");
        assert!(proxy.is_retryable());
    }
}
