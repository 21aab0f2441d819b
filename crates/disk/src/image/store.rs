//! Where images are kept: a folder each in `<data>/images`, and `.staging` for what is being made or unmade.

use std::io;
use std::path::{Path, PathBuf};

use roost_sys::btrfs;
use rustix::fs::{XattrFlags, fsetxattr};

use super::{Image, ImageError, Lasts, StagedImage, check_id};
use crate::aside::provide_folder;
use crate::pool::{ids_in, open_folder, remove_tree, stage_in, sweep_in, sync_folder};

const FOLDER: &str = "images";
/// No id, so it is never taken for an image.
const STAGING: &str = ".staging";

/// The images of a data folder.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    root: PathBuf,
}

impl Images {
    /// Opens the folder of images, making it where needed, and removes what makers that were killed left behind.
    pub(crate) fn open(data_dir: &Path) -> io::Result<Self> {
        let images = Self { root: data_dir.join(FOLDER) };
        provide_folder(data_dir, &images.root, 0o700)?;
        provide_folder(data_dir, &images.staging(), 0o700)?;
        let staging = open_folder(&images.staging())?;
        // Inherited by what is made inside: a sandbox stands still while pages are written.
        if btrfs::is_btrfs(&staging)?
            && let Err(error) = fsetxattr(&staging, "btrfs.compression", b"none", XattrFlags::empty())
        {
            tracing::warn!(%error, "memory images may be compressed here, which takes longer");
        }
        // What is synced later lies in folders that are there after a crash.
        sync_folder(&images.root)?;
        sync_folder(data_dir)?;
        sweep_in(data_dir, &images.staging(), |_, path| remove_tree(path));
        Ok(images)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Begins to save memory.
    pub(crate) fn stage(&self, lasts: Lasts) -> Result<StagedImage, ImageError> {
        let staging = self.staging();
        let (folder, lock) = stage_in(&staging).map_err(ImageError::failed("make a staging folder in", &staging))?;
        StagedImage::new(&self.root, folder, lock, lasts)
    }

    /// The image `id`, which is whole: of a format we know, with every file it should have.
    pub(crate) fn get(&self, id: &str) -> Result<Image, ImageError> {
        check_id(id)?;
        Image::open(self.root.join(id), id)
    }

    pub(crate) fn list(&self) -> Result<Vec<String>, ImageError> {
        ids_in(&self.root).map_err(ImageError::failed("list", &self.root))
    }

    /// Deletes an image; one that is not there is no error.
    pub(crate) fn delete(&self, id: &str) -> Result<(), ImageError> {
        check_id(id)?;
        let path = self.root.join(id);
        if !path.try_exists().map_err(ImageError::failed("look at", &path))? {
            return Ok(());
        }
        let remove = || -> io::Result<()> {
            // An empty folder gives way to it. From there it goes bit by bit; under its name it was whole.
            let aside = tempfile::Builder::new().prefix("").rand_bytes(12).tempdir_in(self.staging())?.keep();
            match std::fs::rename(&path, &aside) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => std::fs::remove_dir(&aside),
                moved => moved.and_then(|()| remove_tree(&aside)),
            }
        };
        remove().map_err(ImageError::failed("remove", &path))
    }

    /// Free bytes where images are kept.
    pub(crate) fn room(&self) -> io::Result<u64> {
        let here = rustix::fs::statvfs(&self.root)?;
        Ok(here.f_bavail * here.f_frsize)
    }

    fn staging(&self) -> PathBuf {
        self.root.join(STAGING)
    }
}
