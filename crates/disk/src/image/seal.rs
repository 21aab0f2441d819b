//! Checksums of an image: computed when nobody waits, compared when there is doubt.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::manifest::{parse, write};
use super::{Image, ImageError};

/// The only format there is so far; a reader refuses another one.
const FORMAT: u32 = 1;
const FILE: &str = "checksums.json";

/// The content of `checksums.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Checksums {
    format: u32,
    /// BLAKE3 of each file, in hex.
    files: BTreeMap<String, String>,
}

/// How much of an image to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What describes the processes: every file but the large ones that hold their pages. A few milliseconds.
    Description,
    /// Everything: as long as reading it takes.
    Everything,
}

impl Depth {
    const LARGE: u64 = 1 << 20;

    fn covers(self, size: u64) -> bool {
        self == Self::Everything || size <= Self::LARGE
    }
}

impl Image {
    /// Whether it has checksums to verify by.
    pub fn is_sealed(&self) -> bool {
        self.folder.join(FILE).is_file()
    }

    /// Computes and keeps the checksums, unless that was done before; for the background.
    pub fn seal(&self) -> Result<(), ImageError> {
        if self.is_sealed() {
            return Ok(());
        }
        let mut files = BTreeMap::new();
        for name in self.manifest.files.keys() {
            let path = self.memory().join(name);
            files.insert(name.clone(), checksum(&path).map_err(ImageError::failed("read", &path))?);
        }
        write(&self.folder, FILE, &Checksums { format: FORMAT, files })
            .map_err(ImageError::failed("seal", &self.folder))
    }

    /// Compares the files with their checksums, and says whether there were any to compare with.
    pub fn verify(&self, depth: Depth) -> Result<bool, ImageError> {
        let path = self.folder.join(FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(ImageError::failed("read", &path)(e)),
        };
        let checksums: Checksums = parse(&bytes, FORMAT).map_err(|why| why.of(&self.id, FILE))?;
        for (name, &size) in &self.manifest.files {
            if !depth.covers(size) {
                continue;
            }
            let path = self.memory().join(name);
            // The filesystem has checksums of its own, and says so when they do not fit.
            let found = checksum(&path).map_err(|error| self.damaged(name, error))?;
            if checksums.files.get(name) != Some(&found) {
                return Err(self.damaged(name, "its checksum is another one"));
            }
        }
        Ok(true)
    }
}

fn checksum(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}
