//! Signed links to private ports.
//!
//! A link is a moment and a keyed hash over the sandbox's id, the port, how often its links were taken back, and that moment.
//! The key never leaves the data folder, so a link is checked without remembering it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roost_disk::put_aside;
use roost_model::{MakeLink, PortLink, SandboxId, Span};

use crate::HostError;
use crate::handle::Handle;
use crate::host::Host;

const FILE: &str = "links.key";
const KEY_BYTES: usize = 32;
/// Longer than anybody means when they share a link.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);
/// The parameter in which a link carries its proof.
pub const LINK_PARAMETER: &str = "roost_link";

/// Why a link opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkRefusal {
    /// Nobody here made it, or it was taken back.
    #[error("this link is not valid: it was changed, is for another port, or was taken back")]
    Forged,
    /// It was good once.
    #[error("this link has expired")]
    Expired,
}

/// What links are signed with.
pub(crate) struct LinkKey([u8; KEY_BYTES]);

impl std::fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkKey")
    }
}

/// What a link is for.
#[derive(Debug, Clone, Copy)]
struct Purpose<'a> {
    id: &'a SandboxId,
    port: u16,
    taken_back: u64,
}

impl LinkKey {
    /// Reads the key of a data folder, which is made with it.
    pub(crate) fn open(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(FILE);
        let mut key = [0; KEY_BYTES];
        match File::open(&path).and_then(|mut file| file.read_exact(&mut key)) {
            Ok(()) => return Ok(Self(key)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!("the key of links to ports is damaged: earlier links are not valid any more");
                put_aside(data_dir, &path, &error);
            }
        }
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        // In place only once it is whole.
        let staged = path.with_extension("new");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&staged)?;
        file.write_all(&key)?;
        file.sync_all()?;
        std::fs::rename(&staged, &path)?;
        Ok(Self(key))
    }

    /// A secret of one sandbox, or of the host, for one purpose, which nobody can tell without the key.
    fn secret(&self, id: &str, purpose: &str) -> String {
        blake3::keyed_hash(&self.0, format!("roost derived secret 1\n{id}\n{purpose}").as_bytes()).to_hex().to_string()
    }

    fn hash(&self, purpose: Purpose<'_>, expires: i64) -> blake3::Hash {
        let Purpose { id, port, taken_back } = purpose;
        blake3::keyed_hash(&self.0, format!("roost port link 1\n{id}\n{port}\n{taken_back}\n{expires}").as_bytes())
    }

    fn sign(&self, purpose: Purpose<'_>, expires: i64) -> String {
        format!("{expires}-{}", self.hash(purpose, expires).to_hex())
    }

    /// The moment at which a proof ends, if it is one and has not.
    fn check(&self, purpose: Purpose<'_>, proof: &str, now: i64) -> Result<i64, LinkRefusal> {
        let (expires, hash) = proof.split_once('-').ok_or(LinkRefusal::Forged)?;
        let expires: i64 = expires.parse().map_err(|_| LinkRefusal::Forged)?;
        let hash = blake3::Hash::from_hex(hash).map_err(|_| LinkRefusal::Forged)?;
        // Hashes are compared in constant time.
        if hash != self.hash(purpose, expires) {
            return Err(LinkRefusal::Forged);
        }
        if expires <= now { Err(LinkRefusal::Expired) } else { Ok(expires) }
    }
}

impl Host {
    /// A secret of this host for a purpose, always the same.
    pub fn derived_secret(&self, purpose: &str) -> String {
        self.shared.links.secret("host", purpose)
    }

    /// A secret of one sandbox for a purpose: the same for as long as it lives and after, and never a fork's.
    pub fn derived_secret_of(&self, sandbox: &SandboxId, purpose: &str) -> String {
        self.shared.links.secret(sandbox.as_str(), purpose)
    }
}

impl Handle {
    /// Makes a link that opens a private port to whoever has it.
    pub fn make_link(&self, port: u16, wanted: MakeLink) -> Result<PortLink, HostError> {
        self.living()?;
        let now = Timestamp::now();
        let length = wanted.expires.get().filter(|length| (Duration::from_secs(1)..=LONGEST).contains(length));
        let length = length.ok_or_else(|| {
            let (given, most) = (wanted.expires, Span::from(LONGEST));
            HostError::BadRequest(format!("a link is good for at least 1s and at most {most}, not for `{given}`"))
        })?;
        let end = SignedDuration::try_from(length).ok().and_then(|length| now.checked_add(length).ok());
        let expires_at = end.ok_or_else(|| HostError::BadRequest("that end is too far away".to_owned()))?;
        let record = self.record();
        let proof = self.shared.links.sign(self.purpose(port), expires_at.as_second());
        let expires_at = Timestamp::from_second(expires_at.as_second()).unwrap_or(expires_at);
        let domain = self.shared.config.domain.as_ref();
        Ok(PortLink {
            url: domain.map(|domain| format!("{}/?{LINK_PARAMETER}={proof}", domain.url(port, &record.name))),
            path: format!("/v1/sandboxes/{}/ports/{port}/?{LINK_PARAMETER}={proof}", record.name),
            expires_at,
        })
    }

    /// The moment at which the proof of a link, or the cookie it became, ends.
    pub fn check_link(&self, port: u16, proof: &str) -> Result<Timestamp, LinkRefusal> {
        let expires = self.shared.links.check(self.purpose(port), proof, Timestamp::now().as_second())?;
        Timestamp::from_second(expires).map_err(|_| LinkRefusal::Forged)
    }

    fn purpose(&self, port: u16) -> Purpose<'_> {
        Purpose { id: self.id(), port, taken_back: self.port_rule(port).links }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_good_for_what_it_was_made_for_alone() {
        let folder = tempfile::tempdir().unwrap();
        let key = LinkKey::open(folder.path()).unwrap();
        let (id, other) = (SandboxId::from_parts(1, 1), SandboxId::from_parts(1, 2));
        let purpose = Purpose { id: &id, port: 3000, taken_back: 0 };
        let proof = key.sign(purpose, 1000);
        assert_eq!(key.check(purpose, &proof, 999), Ok(1000));
        assert_eq!(key.check(purpose, &proof, 1000), Err(LinkRefusal::Expired));
        for changed in
            [Purpose { id: &other, ..purpose }, Purpose { port: 3001, ..purpose }, Purpose { taken_back: 1, ..purpose }]
        {
            assert_eq!(key.check(changed, &proof, 999), Err(LinkRefusal::Forged), "{changed:?}");
        }
        // An end that was moved, hashes that are none, and the key of another folder.
        let (_, hash) = proof.split_once('-').unwrap();
        for forged in [format!("2000-{hash}"), format!("1000-{}", &hash[1..]), "1000-".to_owned(), String::new()] {
            assert_eq!(key.check(purpose, &forged, 999), Err(LinkRefusal::Forged), "{forged}");
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let stranger = LinkKey::open(elsewhere.path()).unwrap();
        assert_eq!(stranger.check(purpose, &proof, 999), Err(LinkRefusal::Forged));
        assert_eq!(LinkKey::open(folder.path()).unwrap().check(purpose, &proof, 999), Ok(1000));
    }
}
