//! What is remembered of a browser that has logged in.

use jiff::Timestamp;
use roost_model::TokenId;

/// A browser that has logged in, known by the hash of its cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Whose rights it has; nothing if it came from the owner of the socket.
    pub token: Option<TokenId>,
    /// When it is over.
    pub expires_at: Timestamp,
}
