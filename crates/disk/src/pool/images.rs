//! Memory images of suspended sandboxes; those of checkpoints and templates lie beside them, under their ids.

use super::Pool;
use crate::image::{Image, ImageError, Lasts, StagedImage};

impl Pool {
    /// Begins to save the memory of a sandbox that goes to sleep.
    pub fn stage_image(&self) -> Result<StagedImage, ImageError> {
        self.images.stage(Lasts::Always)
    }

    /// The image `id`, which is whole: of a format we know, with every file it should have.
    pub fn image(&self, id: &str) -> Result<Image, ImageError> {
        self.images.get(id)
    }

    /// The ids of all images, also of those that belong to checkpoints and templates.
    pub fn list_images(&self) -> Result<Vec<String>, ImageError> {
        self.images.list()
    }

    /// Deletes an image; one that is not there is no error.
    ///
    /// Who has a file of it open, such as a server of lazy pages, keeps that file.
    pub fn delete_image(&self, id: &str) -> Result<(), ImageError> {
        self.images.delete(id)
    }

    /// Free bytes where images are kept.
    pub fn image_room(&self) -> std::io::Result<u64> {
        self.images.room()
    }
}
