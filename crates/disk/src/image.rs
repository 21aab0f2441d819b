//! Memory images: what an engine dumped, with a description that makes it whole or absent.
//!
//! ```text
//! <image>/memory/          the engine's files, as it wrote them
//! <image>/manifest.json    format, who can read it, names and sizes
//! <image>/checksums.json   BLAKE3 of each file, once it is sealed
//! ```
//!
//! Images lie in `<data>/images`, on the data folder's own filesystem: a pool in a loop device takes several times as
//! long for the same pages. One is described and synced in `.staging` and then renamed into place (see
//! [`crate::StagedImage`]), so it is whole or absent. Its files never change, so a copy is hard links to them. Nothing is
//! hashed while a sandbox waits: [`Image::seal`] does that afterwards, in the background, and [`Image::verify`] when
//! there is doubt.

mod behind;
mod manifest;
mod seal;
mod staged;
mod store;
mod sync;

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::pool::{DiskError, is_full, is_id};
use manifest::Manifest;
pub(crate) use manifest::parse;
pub use seal::Depth;
pub use staged::StagedImage;
pub(crate) use store::Images;

/// The folder of the engine's files in an image.
const MEMORY: &str = "memory";

/// For how long something saved is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// Until it is deleted, also if the machine dies.
    Always,
    /// Not longer than the machine is up: nothing waits for the disk, and after a reboot it is refused.
    ThisBoot,
}

/// Who made an image and so can read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maker {
    /// The engine.
    pub engine: String,
    /// The version of the engine and of its tools.
    pub version: String,
    /// The features of the processor that the memory relies on; empty if the version says it all.
    #[serde(default)]
    pub cpu: String,
}

/// Why an image or a checkpoint could not be made, opened or deleted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The id cannot name a folder.
    #[error("`{id}` is not an id")]
    InvalidId { id: String },
    /// There is nothing of that id.
    #[error("nothing is saved as `{id}`")]
    NotFound { id: String },
    /// Something of that id is there already.
    #[error("`{id}` is saved already")]
    Exists { id: String },
    /// It was written by a program with a newer format.
    #[error("`{id}` has format {found}, this program reads up to {known}")]
    Format { id: String, found: u64, known: u32 },
    /// Another engine, version or processor wrote it.
    #[error("`{id}` was saved with {what} `{found}`, here is `{here}`")]
    Unfit { id: String, what: &'static str, found: String, here: String },
    /// It is not what was written.
    #[error("`{file}` of `{id}` is damaged: {why}")]
    Damaged { id: String, file: String, why: String },
    /// Its disk could not be saved.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The filesystem refused.
    #[error("failed to {attempt} `{}`", path.display())]
    Failed { attempt: &'static str, path: PathBuf, source: io::Error },
}

impl ImageError {
    /// Whether the cause is a full filesystem.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Failed { source, .. } => is_full(source),
            Self::Disk(error) => error.is_full(),
            _ => false,
        }
    }

    pub(crate) fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Failed { attempt, path: path.to_owned(), source }
    }

    /// As [`ImageError::failed`], for a rename that finds its target taken.
    pub(crate) fn taken(attempt: &'static str, path: &Path, id: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists { id: id.to_owned() },
            _ => Self::failed(attempt, path)(source),
        }
    }
}

pub(crate) fn check_id(id: &str) -> Result<(), ImageError> {
    if is_id(id) { Ok(()) } else { Err(ImageError::InvalidId { id: id.to_owned() }) }
}

/// A memory image with every file it should have.
#[derive(Debug, Clone)]
pub struct Image {
    id: String,
    folder: PathBuf,
    manifest: Manifest,
}

impl Image {
    /// The engine's files.
    pub fn memory(&self) -> PathBuf {
        self.folder.join(MEMORY)
    }

    /// Bytes of the engine's files.
    pub fn bytes(&self) -> u64 {
        self.manifest.files.values().sum()
    }

    /// Who made it.
    pub fn maker(&self) -> &Maker {
        &self.manifest.maker
    }

    /// When it was made.
    pub fn created_at(&self) -> Timestamp {
        self.manifest.created_at
    }

    /// Refuses an image that another engine, version or processor made.
    pub fn check_maker(&self, here: &Maker) -> Result<(), ImageError> {
        let made = self.maker();
        for (what, found, here) in [
            ("engine", &made.engine, &here.engine),
            ("version", &made.version, &here.version),
            ("processor", &made.cpu, &here.cpu),
        ] {
            if found != here {
                return Err(ImageError::Unfit { id: self.id.clone(), what, found: found.clone(), here: here.clone() });
            }
        }
        Ok(())
    }

    /// Whether it is of no use once the machine was started again.
    pub fn is_transient(&self) -> bool {
        self.manifest.boot.is_some()
    }

    fn damaged(&self, file: &str, why: impl ToString) -> ImageError {
        ImageError::Damaged { id: self.id.clone(), file: file.to_owned(), why: why.to_string() }
    }
}
