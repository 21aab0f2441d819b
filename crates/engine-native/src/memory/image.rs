//! What the engine writes beside CRIU's files in an image, to know them again.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::launch::Connection;

/// Changes whenever images made before cannot be restored any more.
pub(crate) const FORMAT: u32 = 1;
const FILE: &str = "engine.json";

/// What has to be known before CRIU can restore an image.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageInfo {
    /// What made it.
    pub(crate) version: String,
    /// The host uid that root inside was mapped to; it is part of what CRIU saved.
    pub(crate) uid_base: u32,
    /// The guest's program on the host; the very file is mapped by its process.
    pub(crate) guest: PathBuf,
    /// Connections to somebody outside, the daemon of then included, which end with a restore. One that did not would be
    /// closed into the void, and the network with it be there for minutes after its sandbox.
    #[serde(default)]
    pub(crate) lost: Vec<Connection>,
}

impl ImageInfo {
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::write(folder.join(FILE), serde_json::to_vec_pretty(self)?)
    }

    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(folder.join(FILE))?)?)
    }

    /// Why it cannot be restored under these circumstances.
    pub(crate) fn misfit(&self, version: &str, uid_base: u32) -> Option<String> {
        if self.version != version {
            return Some(format!("it was made by `{}`, this is `{version}`", self.version));
        }
        if self.uid_base != uid_base {
            return Some(format!("its users begin at {} on the host, the sandbox's at {uid_base}", self.uid_base));
        }
        (!self.guest.exists()).then(|| format!("its guest `{}` is gone", self.guest.display()))
    }
}

/// The size of all files in a folder.
pub(crate) fn size_of(folder: &Path) -> io::Result<u64> {
    std::fs::read_dir(folder)?.try_fold(0, |sum, entry| Ok(sum + entry?.metadata()?.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let info = ImageInfo { version: "a".into(), uid_base: 7, guest: "/bin/sh".into(), lost: Vec::new() };
        info.write(folder.path()).unwrap();
        assert_eq!(ImageInfo::read(folder.path()).unwrap(), info);
        assert_eq!(info.misfit("a", 7), None);
        assert!(info.misfit("b", 7).unwrap().contains("`a`"));
        assert!(info.misfit("a", 8).unwrap().contains('8'));
        assert!(ImageInfo { guest: "/nowhere".into(), ..info }.misfit("a", 7).unwrap().contains("/nowhere"));
        assert!(size_of(folder.path()).unwrap() > 10);
    }
}
