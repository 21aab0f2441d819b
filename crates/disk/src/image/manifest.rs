//! The description of an image: written before it is put in place, checked when it is opened.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Image, ImageError, Lasts, MEMORY, Maker};

/// What is written; format 1 knows no `boot`.
const FORMAT: u32 = 2;
pub(super) const FILE: &str = "manifest.json";

/// The content of `manifest.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    #[serde(flatten)]
    pub(super) maker: Maker,
    pub(super) created_at: Timestamp,
    /// The only boot of the machine in which it can be relied on, if it was never synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) boot: Option<String>,
    /// The size of each file.
    pub(super) files: BTreeMap<String, u64>,
}

/// Why a description is of no use.
#[derive(Debug)]
pub(crate) enum Unread {
    Format { found: u64, known: u32 },
    Damaged(serde_json::Error),
}

impl Unread {
    pub(crate) fn of(self, id: &str, file: &str) -> ImageError {
        let id = id.to_owned();
        match self {
            Self::Format { found, known } => ImageError::Format { id, found, known },
            Self::Damaged(error) => ImageError::Damaged { id, file: file.to_owned(), why: error.to_string() },
        }
    }
}

/// Reads a description, its format first: of a newer format nothing else is known.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8], known: u32) -> Result<T, Unread> {
    #[derive(Deserialize)]
    struct Format {
        format: u64,
    }
    let Format { format: found } = serde_json::from_slice(bytes).map_err(Unread::Damaged)?;
    if !(1..=u64::from(known)).contains(&found) {
        return Err(Unread::Format { found, known });
    }
    serde_json::from_slice(bytes).map_err(Unread::Damaged)
}

impl Manifest {
    /// Describes what an engine left in the folder of an image.
    pub(super) fn of(folder: &Path, maker: Maker, lasts: Lasts) -> Result<Self, ImageError> {
        let memory = folder.join(MEMORY);
        let files = sizes_in(&memory).map_err(ImageError::failed("describe", &memory))?;
        Self { format: FORMAT, maker, created_at: Timestamp::now(), boot: None, files }.lasting(lasts)
    }

    /// The same for a copy, whose life may be a shorter or longer one.
    pub(super) fn lasting(mut self, lasts: Lasts) -> Result<Self, ImageError> {
        self.format = FORMAT;
        self.boot = match lasts {
            Lasts::Always => None,
            Lasts::ThisBoot => Some(this_boot()?),
        };
        Ok(self)
    }

    /// Writes it into the folder of an image that is being made; it is synced with the rest.
    pub(super) fn write(&self, folder: &Path) -> Result<(), ImageError> {
        let path = folder.join(FILE);
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec_pretty(self)?;
            text.push(b'\n');
            File::create(&path)?.write_all(&text)
        };
        write().map_err(ImageError::failed("write", &path))
    }
}

fn sizes_in(memory: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(memory)? {
        let (entry, data) = entry.and_then(|entry| entry.metadata().map(|data| (entry, data)))?;
        let name = entry.file_name().into_string();
        let (true, Ok(name)) = (data.is_file(), name) else {
            let text = format!("`{}` is no plain file", entry.path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        };
        files.insert(name, data.len());
    }
    Ok(files)
}

/// What the kernel calls the time since it was started.
fn this_boot() -> Result<String, ImageError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).map_err(ImageError::failed("read", path))?;
    Ok(text.trim().to_owned())
}

impl Image {
    /// Opens a whole image.
    pub(crate) fn open(folder: PathBuf, id: &str) -> Result<Self, ImageError> {
        let path = folder.join(FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound && !folder.exists() => {
                return Err(ImageError::NotFound { id: id.to_owned() });
            }
            Err(e) => return Err(ImageError::failed("read", &path)(e)),
        };
        let manifest: Manifest = parse(&bytes, FORMAT).map_err(|why| why.of(id, FILE))?;
        let image = Self { id: id.to_owned(), folder, manifest };
        // Its sizes may be right all the same, with nothing in the files.
        if image.manifest.boot.as_ref().is_some_and(|boot| this_boot().is_ok_and(|now| now != *boot)) {
            return Err(image.damaged(FILE, "it was made for a moment only, and the machine was started again since"));
        }
        for (name, &size) in &image.manifest.files {
            let path = image.memory().join(name);
            match path.symlink_metadata() {
                Ok(data) if data.is_file() && data.len() == size => {}
                Ok(data) => return Err(image.damaged(name, format!("{} bytes instead of {size}", data.len()))),
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(image.damaged(name, "it is missing")),
                Err(e) => return Err(ImageError::failed("look at", &path)(e)),
            }
        }
        Ok(image)
    }
}
