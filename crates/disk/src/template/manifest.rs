//! What is written down beside an image.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use roost_model::{Name, TemplateDefaults, TemplateId};
use serde::{Deserialize, Serialize};

/// The only format there is so far; a reader refuses a newer one.
const FORMAT: u32 = 1;
pub(super) const FILE: &str = "template.json";
const IMAGE: &str = "image.erofs";

/// A template as it lies on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Its id.
    pub id: TemplateId,
    /// Its name.
    pub name: Name,
    /// BLAKE3 of the image, in hex.
    pub digest: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Bytes of the image.
    pub size: u64,
    /// What it gives its sandboxes.
    pub defaults: TemplateDefaults,
    /// What it was made from, in words.
    pub built_from: String,
    /// The folder of its image.
    pub(super) folder: PathBuf,
}

impl Template {
    /// The image file.
    pub fn image(&self) -> PathBuf {
        image_in(&self.folder)
    }
}

/// The file's content; apart from [`Template`] because it has a format and no place.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    id: TemplateId,
    name: Name,
    digest: String,
    created_at: Timestamp,
    size: u64,
    defaults: TemplateDefaults,
    built_from: String,
}

/// Where the image of a template in `folder` is.
pub(super) fn image_in(folder: &Path) -> PathBuf {
    folder.join(IMAGE)
}

/// Writes the manifest of a template into its folder and syncs it.
pub(super) fn write(template: &Template, folder: &Path) -> io::Result<()> {
    let manifest = Manifest {
        format: FORMAT,
        id: template.id.clone(),
        name: template.name.clone(),
        digest: template.digest.clone(),
        created_at: template.created_at,
        size: template.size,
        defaults: template.defaults.clone(),
        built_from: template.built_from.clone(),
    };
    let mut file = File::create_new(folder.join(FILE))?;
    serde_json::to_writer_pretty(&mut file, &manifest)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

/// Reads the template in `folder`.
pub(super) fn read(folder: &Path) -> io::Result<Template> {
    let bytes = std::fs::read(folder.join(FILE))?;
    let manifest: Manifest = serde_json::from_slice(&bytes)?;
    if manifest.format != FORMAT {
        let text = format!("template format {} is newer than this program", manifest.format);
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(Template {
        id: manifest.id,
        name: manifest.name,
        digest: manifest.digest,
        created_at: manifest.created_at,
        size: manifest.size,
        defaults: manifest.defaults,
        built_from: manifest.built_from,
        folder: folder.to_owned(),
    })
}
