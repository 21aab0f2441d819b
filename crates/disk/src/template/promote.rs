//! Templates made of checkpoints: the image below stays, what the checkpoint holds lies on top.

use std::collections::HashSet;

use jiff::Timestamp;
use roost_model::{Name, Tag, TemplateDefaults, TemplateId};

use super::import::{Existing, ImportError};
use super::manifest::{self, Template};
use super::staging::Staging;
use super::store::{TemplateError, Templates};
use crate::{ImageError, Pool};

/// A checkpoint to make a template of.
#[derive(Debug)]
pub struct Promotion<'a> {
    /// The id it gets.
    pub id: TemplateId,
    /// What the template is called.
    pub name: &'a Name,
    /// The tags that mean it from then on.
    pub tags: &'a [Tag],
    /// The checkpoint; it is not needed afterwards.
    pub checkpoint: &'a str,
    /// Digest of the image below it.
    pub digest: &'a str,
    /// Whether its sandboxes start with the checkpoint's memory, where it has any.
    pub memory: bool,
    /// What it gives its sandboxes.
    pub defaults: TemplateDefaults,
    /// Whatever must be known to start from it; kept as it is.
    pub origin: Option<serde_json::Value>,
    /// What to do when the name is taken.
    pub existing: Existing,
}

impl Templates {
    /// Makes a template of a checkpoint; it stands on its own from then on.
    pub fn promote(&self, pool: &Pool, promotion: Promotion<'_>) -> Result<Template, ImportError> {
        // Held all along, because a sweep would take what is not published yet for a leftover.
        let changing = self.lock();
        self.check_tags_free(promotion.name, promotion.tags, promotion.existing)?;
        let base = self.find_digest(promotion.digest).map_err(|error| match error {
            TemplateError::Failed { source, .. } => ImportError::store("read the base of the template")(source),
            other => ImportError::store("read the base of the template")(std::io::Error::other(other)),
        })?;
        let base = base.ok_or_else(|| ImportError::NoBase { digest: promotion.digest.to_owned() })?;
        let staging = Staging::new(self.folder()).map_err(ImportError::store("make a staging folder"))?;
        // The same file under a second name: it stays when the base goes.
        std::fs::hard_link(base.image(), manifest::image_in(&staging.image()))
            .map_err(ImportError::store("keep the image"))?;

        let id = promotion.id;
        let kept = |source| ImportError::Checkpoint { checkpoint: promotion.checkpoint.to_owned(), source };
        let seed = pool.make_seed(promotion.checkpoint, id.as_str(), promotion.memory).map_err(kept)?;
        let template = Template {
            id: id.clone(),
            name: promotion.name.clone(),
            digest: base.digest,
            created_at: Timestamp::now(),
            size: base.size,
            defaults: promotion.defaults,
            built_from: format!("checkpoint {}", promotion.checkpoint),
            changes: Some(id.to_string()),
            memory: seed.has_image(),
            origin: promotion.origin,
            folder: staging.image(),
        };
        let publish = || {
            manifest::write(&template, &staging.image())
                .map_err(ImportError::store("write the template's description"))?;
            self.publish_locked(&changing, template.clone(), promotion.tags, promotion.existing)
        };
        publish().inspect_err(|_| {
            // The first failure is the one to tell; the next sweep finds what is left.
            if let Err(error) = pool.delete_seed(id.as_str()) {
                tracing::warn!(%error, %id, "failed to delete what belongs to no template");
            }
        })
    }

    /// Deletes from the pool what belonged to promoted templates that were removed or replaced.
    ///
    /// Sandboxes made from them have disks of their own. For after a removal or replacement, and for the start.
    pub fn sweep_seeds(&self, pool: &Pool) -> Result<(), TemplateError> {
        let _changing = self.lock();
        let keep: HashSet<String> = self.versions()?.into_iter().filter_map(|(_, template)| template.changes).collect();
        pool.sweep_seeds(&keep).map_err(|source: ImageError| TemplateError::Pool { source })
    }
}
