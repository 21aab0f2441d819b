//! What is written down beside an image.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use roost_model::{Name, TemplateDefaults, TemplateId};
use serde::{Deserialize, Serialize};

/// What a template without changes is written as; a reader refuses a format newer than it knows.
const PLAIN: u32 = 1;
/// What a promoted one is written as: whoever does not know of changes must not start sandboxes without them.
const PROMOTED: u32 = 2;
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
    /// What its sandboxes start with on top of the image, if it was promoted: see [`crate::Pool::seed`].
    pub changes: Option<String>,
    /// Whether they start with memory and processes too.
    pub memory: bool,
    /// Whatever the one who promoted it wants to find again, such as the record of the moment it was made of.
    pub origin: Option<serde_json::Value>,
    /// The folder of its image.
    pub(super) folder: PathBuf,
}

impl Template {
    /// The image file.
    pub fn image(&self) -> PathBuf {
        image_in(&self.folder)
    }

    /// What its folder is called: promoted templates share their base's digest.
    pub(super) fn folder_name(&self) -> String {
        match &self.changes {
            Some(changes) => format!("{}-{changes}", self.digest),
            None => self.digest.clone(),
        }
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changes: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    memory: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<serde_json::Value>,
}

/// The digest in a folder's name.
pub(super) fn digest_in(folder_name: &str) -> &str {
    folder_name.split_once('-').map_or(folder_name, |(digest, _)| digest)
}

/// Where the image of a template in `folder` is.
pub(super) fn image_in(folder: &Path) -> PathBuf {
    folder.join(IMAGE)
}

/// Puts a new manifest in the place of the one in a template's folder.
pub(super) fn replace(template: &Template) -> io::Result<()> {
    let next = template.folder.join(".next");
    match std::fs::remove_file(&next) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    write_to(template, &next)?;
    std::fs::rename(next, template.folder.join(FILE))
}

/// Writes the manifest of a template into its folder and syncs it.
pub(super) fn write(template: &Template, folder: &Path) -> io::Result<()> {
    write_to(template, &folder.join(FILE))
}

fn write_to(template: &Template, path: &Path) -> io::Result<()> {
    let manifest = Manifest {
        format: if template.changes.is_some() { PROMOTED } else { PLAIN },
        id: template.id.clone(),
        name: template.name.clone(),
        digest: template.digest.clone(),
        created_at: template.created_at,
        size: template.size,
        defaults: template.defaults.clone(),
        built_from: template.built_from.clone(),
        changes: template.changes.clone(),
        memory: template.memory,
        origin: template.origin.clone(),
    };
    // What an origin holds is nobody else's business.
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    serde_json::to_writer_pretty(&mut file, &manifest)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

/// Reads the template in `folder`.
pub(super) fn read(folder: &Path) -> io::Result<Template> {
    let bytes = std::fs::read(folder.join(FILE))?;
    let manifest: Manifest = serde_json::from_slice(&bytes)?;
    if !(PLAIN..=PROMOTED).contains(&manifest.format) {
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
        changes: manifest.changes,
        memory: manifest.memory,
        origin: manifest.origin,
        folder: folder.to_owned(),
    })
}
