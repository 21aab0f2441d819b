//! Checksums of an image: computed when nobody waits, compared when there is doubt.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::manifest::parse;
use super::{Image, ImageError};
use crate::pool::sync_folder;

/// The only format there is so far; a reader refuses a newer one.
const FORMAT: u32 = 1;
pub(super) const FILE: &str = "checksums.json";

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
    ///
    /// `go_on` is asked between pieces of a mebibyte, and may take its time to answer. Returns whether it is sealed now:
    /// one that was deleted meanwhile, or is a transient one, is not.
    pub fn seal(&self, go_on: &dyn Fn() -> bool) -> Result<bool, ImageError> {
        if self.is_sealed() {
            return Ok(true);
        }
        if self.is_transient() {
            return Ok(false);
        }
        let wanted = || go_on() && self.folder.exists();
        let mut files = BTreeMap::new();
        for name in self.manifest.files.keys() {
            let path = self.memory().join(name);
            match checksum(&path, &wanted) {
                Ok(Some(sum)) => files.insert(name.clone(), sum),
                Ok(None) => return Ok(false),
                Err(_) if !self.folder.exists() => return Ok(false),
                Err(e) => return Err(ImageError::failed("read", &path)(e)),
            };
        }
        match write(&self.folder, &Checksums { format: FORMAT, files }) {
            Ok(()) => Ok(true),
            Err(_) if !self.folder.exists() => Ok(false),
            Err(e) => Err(ImageError::failed("seal", &self.folder)(e)),
        }
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
            // A filesystem may have checksums of its own, and says so when they do not fit.
            let found = checksum(&path, &|| true).map_err(|error| self.damaged(name, error))?;
            if checksums.files.get(name) != found.as_ref() {
                return Err(self.damaged(name, "its checksum is another one"));
            }
        }
        Ok(true)
    }
}

/// Writes checksums under another name first: a file of their name is a whole one, and a copy that shares it by a link
/// never sees it change.
fn write(folder: &Path, content: &Checksums) -> io::Result<()> {
    let new = folder.join(format!("{FILE}.new"));
    let mut text = serde_json::to_vec_pretty(content)?;
    text.push(b'\n');
    let mut file = File::create(&new)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&new, folder.join(FILE))?;
    sync_folder(folder)
}

/// The checksum of a file, unless it is wanted no more.
fn checksum(path: &Path, wanted: &dyn Fn() -> bool) -> io::Result<Option<String>> {
    const PIECE: usize = 1 << 20;
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(PIECE).clamp(1, PIECE)];
    while wanted() {
        match file.read(&mut piece) {
            Ok(0) => return Ok(Some(hasher.finalize().to_hex().to_string())),
            Ok(count) => drop(hasher.update(&piece[..count])),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}
