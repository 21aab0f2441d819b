//! Checkpoints: a folder with a disk that nobody can change, and a memory image unless it is one of files only.
//!
//! The image lies with the other images, under the checkpoint's id. It is in place before the folder is, which is the
//! moment the checkpoint exists; an image without a folder is a leftover.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{Mode, openat};
use serde::{Deserialize, Serialize};

use super::disks::{DISK, DiskError, DiskPaths, UPPER};
use super::folders::{FOLDER, check_id, ids_in, open_folder};
use super::{CHECKPOINTS, Pool};
use crate::image::{self, Image, ImageError, Lasts};

/// What is written; format 1 had its image inside.
const FORMAT: u32 = 2;
const FILE: &str = "checkpoint.json";
const IMAGE_OF_FORMAT_1: &str = "image";

/// A saved moment of a sandbox, as it lies in the pool.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    id: String,
    folder: PathBuf,
    created_at: Timestamp,
    /// Where its memory is, if it has any.
    image: Option<PathBuf>,
}

/// The content of `checkpoint.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    created_at: Timestamp,
    /// Whether memory was kept.
    #[serde(default)]
    memory: bool,
}

impl Checkpoint {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When it was made.
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// Its disk, a read-only subvolume.
    pub fn disk(&self) -> PathBuf {
        self.folder.join(DISK)
    }

    /// The upper layer of its root.
    pub fn upper(&self) -> PathBuf {
        self.disk().join(UPPER)
    }

    /// Whether it holds memory.
    pub fn has_image(&self) -> bool {
        self.image.is_some()
    }

    /// Its memory, which is whole, if it has any.
    pub fn image(&self) -> Result<Option<Image>, ImageError> {
        let Some(folder) = self.image.clone() else { return Ok(None) };
        match Image::open(folder, &self.id) {
            Err(ImageError::NotFound { .. }) => Err(damaged(&self.id, "memory", "it is missing")),
            opened => opened.map(Some),
        }
    }

    pub(super) fn open(folder: PathBuf, images: &Path, id: &str) -> Result<Self, ImageError> {
        let path = folder.join(FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound && !folder.exists() => {
                return Err(ImageError::NotFound { id: id.to_owned() });
            }
            Err(e) => return Err(ImageError::failed("read", &path)(e)),
        };
        let manifest: Manifest = image::parse(&bytes, FORMAT).map_err(|why| why.of(id, FILE))?;
        if !folder.join(DISK).is_dir() {
            return Err(damaged(id, DISK, "it is missing"));
        }
        let inside = folder.join(IMAGE_OF_FORMAT_1);
        let image = match manifest.format {
            1 => inside.is_dir().then_some(inside),
            _ => manifest.memory.then(|| images.join(id)),
        };
        Ok(Self { id: id.to_owned(), folder, created_at: manifest.created_at, image })
    }
}

fn damaged(id: &str, file: &str, why: &str) -> ImageError {
    ImageError::Damaged { id: id.to_owned(), file: file.to_owned(), why: why.to_owned() }
}

/// Writes `checkpoint.json` into a folder that is to become a checkpoint.
pub(super) fn describe(folder: &Path, memory: bool, lasts: Lasts) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(&Manifest { format: FORMAT, created_at: Timestamp::now(), memory })?;
    text.push(b'\n');
    let mut file = File::create(folder.join(FILE))?;
    file.write_all(&text)?;
    if lasts == Lasts::Always { file.sync_all() } else { Ok(()) }
}

impl Pool {
    /// Makes a checkpoint of a sandbox's files alone.
    pub fn checkpoint_disk(&self, sandbox: &str, checkpoint: &str) -> Result<Checkpoint, ImageError> {
        let staged = self.stage()?;
        staged.snapshot_disk(self, sandbox)?;
        staged.commit_checkpoint(checkpoint)
    }

    /// The checkpoint `id`.
    pub fn checkpoint(&self, id: &str) -> Result<Checkpoint, ImageError> {
        image::check_id(id)?;
        Checkpoint::open(self.root.join(CHECKPOINTS).join(id), self.images.root(), id)
    }

    /// The ids of all checkpoints.
    pub fn list_checkpoints(&self) -> Result<Vec<String>, ImageError> {
        let folder = self.root.join(CHECKPOINTS);
        ids_in(&folder).map_err(ImageError::failed("list", &folder))
    }

    /// Deletes a checkpoint with its memory; one that is not there is no error.
    pub fn delete_checkpoint(&self, id: &str) -> Result<(), ImageError> {
        self.unmake(CHECKPOINTS, id)
    }

    /// Makes a new sandbox's disk of a checkpoint's, in constant time.
    ///
    /// A disk that is there already is completed and kept, so that a creation cut short can be repeated; nothing may run
    /// on it.
    pub fn disk_from_checkpoint(&self, checkpoint: &str, new_id: &str, limit: u64) -> Result<DiskPaths, DiskError> {
        self.disk_from(&self.open_checkpoint_disk(checkpoint)?, new_id, limit)
    }

    /// The upper layer of a checkpoint's root.
    pub(crate) fn open_checkpoint_upper(&self, id: &str) -> Result<File, DiskError> {
        let disk = self.open_checkpoint_disk(id)?;
        let upper = openat(&disk, UPPER, FOLDER, Mode::empty()).map_err(DiskError::failed("open", id))?;
        Ok(upper.into())
    }

    pub(super) fn open_checkpoint_disk(&self, id: &str) -> Result<File, DiskError> {
        check_id(id)?;
        open_saved_disk(&self.root.join(CHECKPOINTS).join(id), id)
    }
}

pub(super) fn open_saved_disk(folder: &Path, id: &str) -> Result<File, DiskError> {
    match open_folder(&folder.join(DISK)) {
        Ok(disk) => Ok(disk),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(DiskError::NotFound { id: id.to_owned() }),
        Err(e) => Err(DiskError::failed("open", id)(e)),
    }
}
