//! The description of an image: written before it is put in place, checked when it is opened.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Image, ImageError, MEMORY, Maker};
use crate::pool::sync_folder;

/// The only format there is so far; a reader refuses another one.
const FORMAT: u32 = 1;
const FILE: &str = "manifest.json";

/// The content of `manifest.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    #[serde(flatten)]
    pub(super) maker: Maker,
    pub(super) created_at: Timestamp,
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

/// Reads a description, its format first: of another format nothing else is known.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8], known: u32) -> Result<T, Unread> {
    #[derive(Deserialize)]
    struct Format {
        format: u64,
    }
    let Format { format: found } = serde_json::from_slice(bytes).map_err(Unread::Damaged)?;
    if found != u64::from(known) {
        return Err(Unread::Format { found, known });
    }
    serde_json::from_slice(bytes).map_err(Unread::Damaged)
}

/// Writes a description under another name first, so that a file of its name is a whole one.
pub(super) fn write(folder: &Path, name: &str, content: &impl Serialize) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    serde_json::to_writer_pretty(&mut file, content)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    std::fs::rename(&new, folder.join(name))?;
    sync_folder(folder)
}

impl Image {
    /// Writes down what an engine left in the image that is being made in `folder`.
    pub(crate) fn describe(folder: &Path, maker: &Maker) -> Result<Self, ImageError> {
        let memory = folder.join(MEMORY);
        let mut files = BTreeMap::new();
        let mut look = || -> io::Result<()> {
            for entry in std::fs::read_dir(&memory)? {
                let (entry, data) = entry.and_then(|entry| entry.metadata().map(|data| (entry, data)))?;
                let name = entry.file_name().into_string();
                let (true, Ok(name)) = (data.is_file(), name) else {
                    let text = format!("`{}` is no plain file", entry.path().display());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                };
                files.insert(name, data.len());
            }
            Ok(())
        };
        look().map_err(ImageError::failed("describe", &memory))?;
        let manifest = Manifest { format: FORMAT, maker: maker.clone(), created_at: Timestamp::now(), files };
        let image = Self { id: String::new(), folder: folder.to_owned(), manifest };
        // Not synced here: the whole image is, right after.
        let write = || -> io::Result<()> {
            let mut file = File::create(folder.join(FILE))?;
            serde_json::to_writer_pretty(&mut file, &image.manifest)?;
            file.write_all(b"\n")
        };
        write().map_err(ImageError::failed("describe", folder))?;
        Ok(image)
    }

    /// Makes every file durable, or learns that one is not.
    pub(crate) fn sync(&self) -> Result<(), ImageError> {
        let memory = self.memory();
        let paths = self.manifest.files.keys().map(|name| memory.join(name));
        for path in paths.chain([self.folder.join(FILE), memory.clone(), self.folder.clone()]) {
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(ImageError::failed("sync", &path))?;
        }
        Ok(())
    }

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
        let manifest = parse(&bytes, FORMAT).map_err(|why| why.of(id, FILE))?;
        let image = Self { id: id.to_owned(), folder, manifest };
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
