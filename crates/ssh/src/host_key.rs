//! The key by which clients know this host again.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use russh::keys::ssh_key::{self, LineEnding};
use russh::keys::{Algorithm, HashAlg, PrivateKey};

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostKeyError {
    /// It cannot be read or written.
    #[error("failed to {attempt} the host key `{}`", path.display())]
    File {
        /// What was attempted.
        attempt: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is no key.
    #[error("failed to understand the host key `{}`", path.display())]
    Key {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        source: ssh_key::Error,
    },
}

/// Reads the key at `path`, or makes one there.
pub fn load(path: &Path) -> Result<PrivateKey, HostKeyError> {
    let file = |attempt, source| HostKeyError::File { attempt, path: path.to_owned(), source };
    let key = |source| HostKeyError::Key { path: path.to_owned(), source };
    match fs::read_to_string(path) {
        Ok(text) => PrivateKey::from_openssh(text.as_bytes()).map_err(key),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).map_err(key)?;
            let text = made.to_openssh(LineEnding::LF).map_err(key)?;
            write(path, text.as_bytes()).map_err(|error| file("write", error))?;
            Ok(made)
        }
        Err(error) => Err(file("read", error)),
    }
}

/// What clients show of a key when they see it first.
pub fn fingerprint(key: &PrivateKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

/// In place only once it is whole: half a key would be a door that nobody opens again.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let staged = path.with_extension("new");
    drop(fs::remove_file(&staged));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&staged, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_is_made_once_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ssh_host_key");
        let made = load(&path).unwrap();
        assert_eq!(load(&path).unwrap().public_key(), made.public_key());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "nonsense").unwrap();
        assert!(matches!(load(&path), Err(HostKeyError::Key { .. })));
    }
}
