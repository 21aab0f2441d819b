//! Templates on the host's shelf: found, mounted, made and removed.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use roost_disk::{
    Existing, ImportError, ImportSource, Pool, Progress, Promotion, Stage, Template, TemplateError, Templates,
};
use roost_model::{
    CheckpointId, EngineChoice, ErrorCode, ImportTemplate, Name, PatchTemplate, Tag, TemplateDefaults, TemplateId,
    TemplateRef, TemplateTag, TemplateView, chain,
};
use roost_store::CheckpointRecord;
use tokio::sync::mpsc;

use crate::caller::Caller;
use crate::host::Host;
use crate::template_paths::open_named;
use crate::{HostError, blocking};

const STAND_IN: &str = "mini";

/// A sign of life while a template is made.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildProgress {
    /// What happens, for people.
    pub message: String,
}

/// The templates of this host.
#[derive(Debug, Clone)]
pub(crate) struct TemplateShelf {
    templates: Arc<Templates>,
}

impl TemplateShelf {
    pub(crate) fn new(templates: Arc<Templates>) -> Self {
        Self { templates }
    }

    /// The template that new sandboxes of this name start from.
    pub(crate) fn get(&self, name: &str) -> Result<Template, HostError> {
        self.find(name).map(|(_, template)| template)
    }

    /// The same, with the name as it is written everywhere else.
    pub(crate) fn find(&self, name: &str) -> Result<(TemplateRef, Template), HostError> {
        let found = match name.parse::<TemplateRef>() {
            Ok(named) => self.templates.find(&named).map_err(template_error)?.map(|template| (named, template)),
            Err(_) => None,
        };
        found.ok_or_else(|| HostError::TemplateNotFound { name: name.to_owned(), known: self.names() })
    }

    /// The template of sandboxes that ask for none; `mini` stands in while the configured one is not there yet.
    pub(crate) fn find_default(&self, configured: &str) -> Result<(TemplateRef, Template), HostError> {
        match self.find(configured) {
            Err(HostError::TemplateNotFound { .. }) => self.find(STAND_IN),
            other => other,
        }
    }

    /// The template that each name, with and without a tag, means now.
    pub(crate) fn ids(&self) -> HashMap<String, TemplateId> {
        let versions = self.templates.sound_versions().unwrap_or_default();
        versions.into_iter().map(|(name, template)| (name.to_string(), template.id)).collect()
    }

    fn names(&self) -> Vec<String> {
        let list = self.templates.list().unwrap_or_default();
        list.iter().map(|template| format!("`{}`", template.name)).collect()
    }

    /// Where the image that a sandbox stands on is mounted.
    pub(crate) async fn mounted(&self, name: &str, digest: &str) -> Result<PathBuf, HostError> {
        let (templates, name, digest) = (self.templates.clone(), name.to_owned(), digest.to_owned());
        blocking(move || {
            let template = templates.find_digest(&digest).map_err(template_error)?;
            let template =
                template.ok_or_else(|| HostError::Internal(format!("the image of template `{name}` is missing")))?;
            templates.mount(&template).map_err(|error| HostError::Internal(chain(&error)))
        })
        .await
    }

    /// The moment that a promoted template was made of.
    pub(crate) fn moment(&self, id: &TemplateId) -> Result<CheckpointRecord, HostError> {
        let versions = self.templates.sound_versions().map_err(template_error)?;
        let unknown = || HostError::TemplateNotFound { name: id.to_string(), known: self.names() };
        let template = versions.into_iter().map(|(_, template)| template).find(|template| template.id == *id);
        let template = template.ok_or_else(unknown)?;
        let origin = template.origin.ok_or_else(unknown)?;
        serde_json::from_value(origin)
            .map_err(|error| HostError::Internal(format!("template `{}` is damaged: {error}", template.name)))
    }

    /// The moments that all promoted templates were made of.
    pub(crate) fn moments(&self) -> Result<Vec<CheckpointRecord>, HostError> {
        let versions = self.templates.sound_versions().map_err(template_error)?;
        let origins = versions.into_iter().filter_map(|(_, template)| template.origin);
        // A damaged one cannot be started from, so it needs nothing.
        Ok(origins.filter_map(|origin| serde_json::from_value(origin).ok()).collect())
    }

    /// The ids under which disks and memory of promoted templates are kept.
    pub(crate) fn seeds(&self) -> Result<HashSet<String>, HostError> {
        let versions = self.templates.versions().map_err(template_error)?;
        Ok(versions.into_iter().filter_map(|(_, template)| template.changes).collect())
    }

    /// Removes images that nobody needs any more.
    pub(crate) async fn sweep(&self, pool: Arc<Pool>, in_use: HashSet<String>) {
        let templates = self.templates.clone();
        let swept = blocking(move || {
            templates.sweep(&|digest| in_use.contains(digest))?;
            templates.sweep_seeds(&pool)
        })
        .await;
        if let Err(error) = swept {
            tracing::warn!(error = %chain(&error), "could not sweep templates");
        }
    }
}

impl Host {
    /// All templates, each by its current version; one that has only tags by the newest of them.
    pub fn templates(&self) -> Result<Vec<TemplateView>, HostError> {
        let versions = self.shared.templates.templates.sound_versions().map_err(template_error)?;
        let mut newest: Vec<(TemplateRef, Template)> = Vec::new();
        for (named, template) in versions {
            match newest.last_mut().filter(|(last, _)| last.name == named.name) {
                None => newest.push((named, template)),
                Some((last, kept)) if last.tag.is_some() && kept.id < template.id => (*last, *kept) = (named, template),
                Some(_) => {}
            }
        }
        newest.iter().map(|(_, template)| self.template_view(template)).collect()
    }

    /// One template.
    pub fn template(&self, name: &str) -> Result<TemplateView, HostError> {
        self.template_view(&self.shared.templates.get(name)?)
    }

    fn template_view(&self, template: &Template) -> Result<TemplateView, HostError> {
        let tags = self.template_tags(&template.name)?;
        let users = self.handles().iter().filter(|handle| handle.record().template_digest == template.digest).count();
        Ok(TemplateView {
            id: template.id.clone(),
            name: template.name.to_string(),
            digest: template.digest.clone(),
            size: template.size,
            created_at: template.created_at,
            defaults: template.defaults.clone(),
            memory: template.memory,
            command: template.command(),
            tags,
            sandboxes: users as u64,
        })
    }

    /// The tags of a template; nothing for one that is not there.
    pub fn template_tags(&self, name: &Name) -> Result<Vec<TemplateTag>, HostError> {
        self.shared.templates.templates.tags(name).map_err(template_error)
    }

    /// Lets tags of a template mean one of its versions from now on; returns that version's id.
    pub async fn tag_template(&self, version: &TemplateRef, tags: Vec<Tag>) -> Result<TemplateId, HostError> {
        let (templates, version) = (self.shared.templates.templates.clone(), version.clone());
        blocking(move || templates.tag(&version, &tags)).await.map_err(template_error)
    }

    /// Changes what a version of a template gives sandboxes that are made from now on.
    pub async fn patch_template(&self, name: &str, patch: PatchTemplate) -> Result<TemplateView, HostError> {
        let (named, template) = self.shared.templates.find(name)?;
        let Some(word) = patch.engine else { return self.template_view(&template) };
        let engine = match word.as_str() {
            "default" => None,
            word => Some(word.parse().map_err(HostError::EngineUnfit)?),
        };
        self.template_view(&self.set_engine(named, &template, engine).await?)
    }

    async fn set_engine(
        &self,
        named: TemplateRef,
        template: &Template,
        engine: Option<EngineChoice>,
    ) -> Result<Template, HostError> {
        if let Some(choice) = engine {
            // Refused now, not to each of its sandboxes.
            self.engine_of(Some(&choice.to_string()), template).await?;
        }
        let templates = self.shared.templates.templates.clone();
        let change = move |defaults: &mut TemplateDefaults| defaults.engine = engine;
        blocking(move || templates.set_defaults(&named, change)).await.map_err(template_error)
    }

    /// Images that a sandbox or a checkpoint stands on.
    fn digests_in_use(&self) -> Result<HashSet<String>, HostError> {
        let living = self.everyone().into_iter().map(|handle| handle.record().template_digest.clone());
        let kept = self.shared.store.all_checkpoints()?.into_iter().map(|record| record.origin.template_digest);
        Ok(living.chain(kept).collect())
    }

    /// Removes a template with all its tags, or one tag of it; sandboxes made from it go on.
    pub async fn remove_template(&self, name: &str) -> Result<(), HostError> {
        let unknown = || HostError::TemplateNotFound { name: name.to_owned(), known: self.shared.templates.names() };
        if name.split_once(':').is_some_and(|(_, tag)| tag == Tag::DEFAULT) {
            let text = format!(
                "`{name}` goes only with the whole template: let `default` mean another version, or \
                                remove it by its name alone"
            );
            return Err(HostError::BadRequest(text));
        }
        let named: TemplateRef = name.parse().map_err(|_| unknown())?;
        let (templates, in_use) = (self.shared.templates.templates.clone(), self.digests_in_use()?);
        blocking(move || templates.remove(&named, &|digest| in_use.contains(digest))).await.map_err(|error| match error
        {
            TemplateError::NotFound { .. } => unknown(),
            other => template_error(other),
        })
    }

    /// Removes images of templates that were removed or replaced and that no sandbox needs any more.
    pub async fn sweep_templates(&self) {
        match self.digests_in_use() {
            Ok(in_use) => self.shared.templates.sweep(self.shared.pool.clone(), in_use).await,
            Err(error) => tracing::warn!(%error, "could not find out which templates are in use"),
        }
    }

    /// Makes a template of a checkpoint: its sandboxes start with that disk and, where it was kept, with that memory.
    async fn promote(&self, wanted: &ImportTemplate, checkpoint: &CheckpointId) -> Result<Template, HostError> {
        let named: TemplateRef = wanted.name.parse()?;
        let moment = self.checkpoint_record(checkpoint.as_str())?;
        let existing = if wanted.replace { Existing::Replace } else { Existing::Refuse };
        let tags = vec![named.tag.unwrap_or_default()];
        self.promote_as(TemplateId::generate(), named.name, tags, moment, &wanted.defaults, existing).await
    }

    /// The same for one whose id is known before.
    pub(crate) async fn promote_as(
        &self,
        id: TemplateId,
        name: Name,
        tags: Vec<Tag>,
        mut moment: CheckpointRecord,
        wanted: &TemplateDefaults,
        existing: Existing,
    ) -> Result<Template, HostError> {
        if let Some(choice) = wanted.engine {
            self.engine_from(Some(&choice.to_string()), &moment).await?;
        }
        let own_kernel = self.shared.engine(moment.origin.engine).is_ok_and(|engine| engine.capabilities().own_kernel);
        let capabilities = self.shared.config.capabilities.for_template(wanted, &moment, own_kernel)?;
        moment.origin.capabilities = capabilities;
        let defaults = give(&mut moment, wanted);
        let origin = serde_json::to_value(&moment).map_err(|error| HostError::Internal(error.to_string()))?;
        let (templates, pool) = (self.shared.templates.templates.clone(), self.shared.pool.clone());
        blocking(move || {
            let promotion = Promotion {
                id,
                name: &name,
                tags: &tags,
                checkpoint: moment.id.as_str(),
                digest: &moment.origin.template_digest,
                memory: moment.memory,
                defaults,
                origin: Some(origin),
                existing,
            };
            templates.promote(&pool, promotion).map_err(import_error)
        })
        .await
    }

    /// Makes a template from a recipe of ours or from a folder or archive on this host.
    pub async fn make_template(
        &self,
        wanted: ImportTemplate,
        progress: mpsc::Sender<BuildProgress>,
    ) -> Result<TemplateView, HostError> {
        self.make_template_for(wanted, progress, &Caller::owner()).await
    }

    /// Like [`Host::make_template`], from a path that the caller may have read.
    pub(crate) async fn make_template_for(
        &self,
        wanted: ImportTemplate,
        progress: mpsc::Sender<BuildProgress>,
        caller: &Caller,
    ) -> Result<TemplateView, HostError> {
        if let Some(checkpoint) = &wanted.promote {
            if wanted.build.is_some() || wanted.path.is_some() {
                return Err(HostError::BadRequest("give only one of `build`, `path` and `promote`".to_owned()));
            }
            return self.template_view(&self.promote(&wanted, checkpoint).await?);
        }
        let named: TemplateRef = wanted.name.parse()?;
        let existing = if wanted.replace { Existing::Replace } else { Existing::Refuse };
        let (engine, capabilities) = (wanted.defaults.engine, wanted.defaults.capabilities.clone());
        self.check_defaults(&wanted.defaults).await?;
        let templates = self.shared.templates.templates.clone();
        let template = match (wanted.build, wanted.path) {
            (Some(recipe), None) => {
                // Recipes make the current version; a tag is given afterwards.
                let name: Name = wanted.name.parse()?;
                let made = blocking(move || {
                    let tell = teller(progress);
                    match recipe.as_str() {
                        "mini" => roost_disk::build_mini(&templates, &name, existing, &tell).map_err(import_error),
                        "base" => roost_disk::build_base(&templates, &name, existing, &tell).map_err(import_error),
                        other => {
                            Err(HostError::BadRequest(format!("no recipe named `{other}`: there is `mini` and `base`")))
                        }
                    }
                })
                .await?;
                let made = match capabilities {
                    Some(capabilities) => {
                        let (templates, named) = (self.shared.templates.templates.clone(), named.clone());
                        let change = move |defaults: &mut TemplateDefaults| defaults.capabilities = Some(capabilities);
                        blocking(move || templates.set_defaults(&named, change)).await.map_err(template_error)?
                    }
                    None => made,
                };
                if engine.is_some() { self.set_engine(named, &made, engine).await? } else { made }
            }
            (None, Some(path)) => {
                let (caller, folders) = (caller.clone(), self.shared.config.template_folders.clone());
                blocking(move || {
                    let source = open_named(PathBuf::from(path), &caller, &folders)?;
                    templates.import(named, source, wanted.defaults, existing, &teller(progress)).map_err(import_error)
                })
                .await?
            }
            _ => return Err(HostError::BadRequest("give one of `build`, `path` and `promote`".to_owned())),
        };
        self.template_view(&template)
    }

    /// Refuses capabilities that are not allowed, and an engine that is not here, before a template is made; the engine that
    /// `auto` means is found out later.
    async fn check_defaults(&self, wanted: &TemplateDefaults) -> Result<(), HostError> {
        wanted.capabilities.iter().try_for_each(|wanted| self.shared.config.capabilities.check(wanted))?;
        match wanted.engine {
            Some(choice @ EngineChoice::Named(_)) => self.choose(choice, STAND_IN).await.map(drop),
            Some(EngineChoice::Auto) | None => Ok(()),
        }
    }

    /// Makes a template from an archive that is read as it arrives.
    pub async fn import_archive(
        &self,
        wanted: ImportTemplate,
        archive: Box<dyn Read + Send>,
        progress: mpsc::Sender<BuildProgress>,
    ) -> Result<TemplateView, HostError> {
        let named: TemplateRef = wanted.name.parse()?;
        let existing = if wanted.replace { Existing::Replace } else { Existing::Refuse };
        self.check_defaults(&wanted.defaults).await?;
        let templates = self.shared.templates.templates.clone();
        let template = blocking(move || {
            let source = ImportSource::Tar(archive);
            templates.import(named, source, wanted.defaults, existing, &teller(progress)).map_err(import_error)
        })
        .await?;
        self.template_view(&template)
    }
}

/// Lets sandboxes that start from a moment be as a template wants them, and returns all that they are given.
fn give(moment: &mut CheckpointRecord, wanted: &TemplateDefaults) -> TemplateDefaults {
    let origin = &mut moment.origin;
    if let Some(user) = &wanted.user {
        origin.user.clone_from(user);
        // The other user's folder is not this one's.
        origin.workdir = None;
    }
    if wanted.workdir.is_some() {
        origin.workdir.clone_from(&wanted.workdir);
    }
    origin.env.extend(wanted.env.clone());
    if let Some(limits) = &wanted.limits {
        origin.limits = origin.limits.with(limits);
    }
    TemplateDefaults {
        user: Some(origin.user.clone()),
        workdir: origin.workdir.clone(),
        // What the sandbox itself was given may be secret: it is passed on, but not shown.
        env: wanted.env.clone(),
        limits: wanted.limits.clone(),
        engine: wanted.engine,
        capabilities: wanted.capabilities.clone(),
    }
}

/// Passes signs of life on; a listener that left or is slow does not hold the work up.
fn teller(progress: mpsc::Sender<BuildProgress>) -> impl Fn(Progress<'_>) {
    move |sign| {
        let message = match sign {
            Progress::Begin(Stage::Bootstrap) => "fetching and installing packages".to_owned(),
            Progress::Begin(Stage::Copy) => "copying files".to_owned(),
            Progress::Begin(Stage::Pack) => "packing the image".to_owned(),
            Progress::Begin(Stage::Publish) => "putting it in place".to_owned(),
            Progress::Bytes { done, .. } => format!("{} MiB", done >> 20),
            Progress::Line(line) => line.to_owned(),
            _ => return,
        };
        // Signs of life only: one that finds the queue full is not missed.
        drop(progress.try_send(BuildProgress { message }));
    }
}

fn template_error(error: TemplateError) -> HostError {
    match error {
        TemplateError::NotFound { name } => HostError::TemplateNotFound { name: name.to_string(), known: Vec::new() },
        other => HostError::Template { code: ErrorCode::Internal, message: chain(&other) },
    }
}

fn import_error(error: ImportError) -> HostError {
    let code = match &error {
        ImportError::Exists { .. } => ErrorCode::TemplateExists,
        ImportError::NoRoom { .. } | ImportError::NoInodes { .. } => ErrorCode::HostFull,
        ImportError::Archive { .. }
        | ImportError::Folder { .. }
        | ImportError::File { .. }
        | ImportError::Beyond { .. }
        | ImportError::Owner { .. } => ErrorCode::TemplateInvalid,
        _ => ErrorCode::Internal,
    };
    HostError::Template { code, message: chain(&error) }
}
