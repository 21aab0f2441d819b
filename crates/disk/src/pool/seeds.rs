//! What promoted templates start their sandboxes with: the disk and the memory of a checkpoint, kept apart from it.

use std::collections::HashSet;

use super::checkpoints::{Checkpoint, open_saved_disk};
use super::disks::{DiskError, DiskPaths};
use super::folders::{check_id, ids_in};
use super::{Pool, SEEDS};
use crate::image::{self, ImageError};

impl Pool {
    /// Keeps what a checkpoint holds under the id of a template; with its memory only if that is wanted.
    pub(crate) fn make_seed(&self, checkpoint: &str, seed: &str, memory: bool) -> Result<Checkpoint, ImageError> {
        let source = self.checkpoint(checkpoint)?;
        let mut staged = self.stage()?;
        staged.take_disk(&self.open_checkpoint_disk(checkpoint)?, checkpoint)?;
        if memory && let Some(image) = source.image()? {
            staged.copy_image(&image)?;
        }
        staged.commit_folder(SEEDS, seed)
    }

    /// What the template's sandboxes start with; `id` is [`crate::Template::changes`].
    pub fn seed(&self, id: &str) -> Result<Checkpoint, ImageError> {
        image::check_id(id)?;
        Checkpoint::open(self.root.join(SEEDS).join(id), self.images.root(), id)
    }

    /// Makes a new sandbox's disk of a promoted template's, in constant time; else as
    /// [`Pool::disk_from_checkpoint`].
    pub fn disk_from_seed(&self, seed: &str, new_id: &str, limit: u64) -> Result<DiskPaths, DiskError> {
        check_id(seed)?;
        let source = open_saved_disk(&self.root.join(SEEDS).join(seed), seed)?;
        self.disk_from(&source, new_id, limit)
    }

    pub(crate) fn delete_seed(&self, id: &str) -> Result<(), ImageError> {
        self.unmake(SEEDS, id)
    }

    /// Deletes what belongs to none of these templates.
    pub(crate) fn sweep_seeds(&self, keep: &HashSet<String>) -> Result<(), ImageError> {
        let folder = self.root.join(SEEDS);
        for id in ids_in(&folder).map_err(ImageError::failed("list", &folder))? {
            if !keep.contains(&id) {
                self.delete_seed(&id)?;
            }
        }
        Ok(())
    }
}
