//! What tells one instance's network from another's.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::slot::MOST_SLOTS;

/// The names of one instance and where it asks for DNS.
#[derive(Clone, Debug)]
pub struct Config {
    /// Part of the name of everything the instance has in the host's network: 1 to 6 of `0-9a-z`.
    pub tag: String,
    /// Holds the pin of the router's namespace.
    pub runtime_dir: PathBuf,
    /// Who answers the sandboxes' DNS questions.
    pub resolvers: Resolvers,
    /// How many slots may be in use at once; more than [`MOST_SLOTS`](crate::MOST_SLOTS) there never are.
    pub slots: usize,
}

/// Who answers DNS questions.
#[derive(Clone, Debug)]
pub enum Resolvers {
    /// The ones of `/etc/resolv.conf`, also after it changes.
    System,
    /// Always these.
    Fixed(Vec<SocketAddr>),
}

/// The tag cannot be part of a device's name.
#[derive(Debug, thiserror::Error)]
#[error("instance tag `{0}` is not 1 to 6 characters of 0-9 and a-z")]
pub struct BadTag(String);

impl Config {
    /// An instance that uses the host's resolvers.
    pub fn new(tag: impl Into<String>, runtime_dir: impl Into<PathBuf>) -> Self {
        Self { tag: tag.into(), runtime_dir: runtime_dir.into(), resolvers: Resolvers::System, slots: MOST_SLOTS }
    }

    /// Where the router's namespace is pinned.
    pub(crate) fn router_pin(&self) -> PathBuf {
        self.runtime_dir.join("router")
    }

    pub(crate) fn check(&self) -> Result<(), BadTag> {
        let plain = self.tag.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
        if plain && (1..=6).contains(&self.tag.len()) {
            return Ok(());
        }
        Err(BadTag(self.tag.clone()))
    }
}
