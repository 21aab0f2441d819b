//! Memory images of suspended sandboxes.

use super::folders::ids_in;
use super::{IMAGES, Pool};
use crate::image::{self, Image, ImageError};

impl Pool {
    /// The image `id`, which is whole: of a format we know, with every file it should have.
    pub fn image(&self, id: &str) -> Result<Image, ImageError> {
        image::check_id(id)?;
        Image::open(self.root.join(IMAGES).join(id), id)
    }

    /// The ids of all images.
    pub fn list_images(&self) -> Result<Vec<String>, ImageError> {
        let folder = self.root.join(IMAGES);
        ids_in(&folder).map_err(ImageError::failed("list", &folder))
    }

    /// Deletes an image; one that is not there is no error.
    ///
    /// Who has a file of it open, such as a server of lazy pages, keeps that file.
    pub fn delete_image(&self, id: &str) -> Result<(), ImageError> {
        self.unmake(IMAGES, id)
    }
}
