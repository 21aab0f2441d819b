//! Secrets of one sandbox, and what is signed with them.
//!
//! They are derived from the host's own key and the sandbox's id: the same for as long as the sandbox lives, whatever it
//! sleeps through, others for each fork, and nothing to remember.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use roost_host::Host;
use roost_model::SandboxId;
use sha2::{Digest, Sha256};

/// What the caller of a sandbox's envd must show.
pub(crate) fn access_token(host: &Host, id: &SandboxId) -> String {
    format!("e2b_{}", host.derived_secret_of(id, "e2b envd"))
}

/// What must be shown at ports that are not open to everybody.
pub(crate) fn traffic_token(host: &Host, id: &SandboxId) -> String {
    format!("e2b_{}", host.derived_secret_of(id, "e2b traffic"))
}

/// Whether two secrets are the same, in a time that does not depend on how much of them is.
pub(crate) fn same(one: &str, other: &str) -> bool {
    // Hashes are compared in constant time.
    blake3::hash(one.as_bytes()) == blake3::hash(other.as_bytes())
}

/// What a link to a file was signed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signed<'a> {
    pub(crate) path: &'a str,
    /// `read` or `write`.
    pub(crate) operation: &'static str,
    pub(crate) user: &'a str,
    /// Unix seconds, if it has an end.
    pub(crate) expiration: Option<i64>,
}

impl Signed<'_> {
    /// The signature as the SDKs make it from a sandbox's access token.
    pub(crate) fn by(&self, token: &str) -> String {
        let Signed { path, operation, user, expiration } = self;
        let mut text = format!("{path}:{operation}:{user}:{token}");
        if let Some(end) = expiration {
            text = format!("{text}:{end}");
        }
        format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_what_the_sdks_compute() {
        let signed = Signed { path: "/a", operation: "read", user: "user", expiration: None };
        // printf '/a:read:user:tok' | sha256sum, in base64.
        assert_eq!(signed.by("tok"), SIGNED_PLAIN);
        assert_ne!(Signed { expiration: Some(5), ..signed }.by("tok"), SIGNED_PLAIN);
        assert_ne!(signed.by("other"), SIGNED_PLAIN);
    }

    const SIGNED_PLAIN: &str = "v1_Fh5abAPjRBN6FHQ5HTJwGAHjHfzJmhV0f2EtHLgLVa0";
}
