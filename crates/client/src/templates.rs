//! Templates: list, remove, make.

use std::collections::BTreeSet;

use hyper::Method;
use roost_model::{Capability, EngineChoice, ErrorDetail, ImportTemplate, Page, PatchTemplate, TemplateView};
use serde::Deserialize;

use crate::answer::parse;
use crate::route::Route;
use crate::sse::Lines;
use crate::{Client, ClientError, Upload};

/// How far the making of a template has come.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TemplateProgress {
    /// It goes on.
    Progress {
        /// What is being done.
        message: String,
        /// How much of the whole is done, from 0 to 1, where that is known.
        #[serde(default)]
        fraction: Option<f64>,
    },
    /// It is there.
    Done {
        /// The template.
        template: Box<TemplateView>,
    },
}

/// One line as the daemon writes it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Told(TemplateProgress),
    Failed { error: ErrorDetail },
}

/// Progress lines of a template being made.
#[derive(Debug)]
pub struct TemplateStream {
    lines: Lines,
}

impl TemplateStream {
    /// The next line; a failure of the work is an error, nothing more comes after `Done`.
    pub async fn next(&mut self) -> Result<Option<TemplateProgress>, ClientError> {
        loop {
            match self.lines.next().await? {
                None => return Ok(None),
                Some(line) if line.is_empty() => {}
                Some(line) => {
                    return match parse(self.lines.attempt(), &line)? {
                        Line::Told(progress) => Ok(Some(progress)),
                        Line::Failed { error } => {
                            Err(ClientError::Api { status: self.lines.status(), detail: error, sandbox: None })
                        }
                    };
                }
            }
        }
    }

    /// Waits for the end and returns the template.
    pub async fn finish(mut self) -> Result<TemplateView, ClientError> {
        while let Some(progress) = self.next().await? {
            if let TemplateProgress::Done { template } = progress {
                return Ok(*template);
            }
        }
        let source = "the daemon stopped before the template was done".into();
        Err(ClientError::Broken { attempt: self.lines.attempt().to_owned(), source })
    }
}

/// What a template made of a tar stream is called and gives its sandboxes.
#[derive(Debug, Clone, Default)]
pub struct TemplateUpload {
    /// Its name.
    pub name: String,
    /// Put it in the place of a template of that name.
    pub replace: bool,
    /// Who commands run as.
    pub user: Option<String>,
    /// Where they start.
    pub workdir: Option<String>,
    /// What isolates its sandboxes unless they ask for another.
    pub engine: Option<EngineChoice>,
    /// Capabilities that root in its sandboxes gets beyond the usual ones unless they ask for others.
    pub capabilities: Option<BTreeSet<Capability>>,
}

impl Client {
    /// The templates there are.
    pub async fn list_templates(&self) -> Result<Vec<TemplateView>, ClientError> {
        let page: Page<TemplateView> = self.get_json(Route::new("/v1/templates")).await?;
        Ok(page.items)
    }

    /// One template.
    pub async fn template(&self, name: &str) -> Result<TemplateView, ClientError> {
        self.get_json(Route::new("/v1/templates").part(name)).await
    }

    /// Removes a template.
    pub async fn delete_template(&self, name: &str) -> Result<(), ClientError> {
        self.delete(Route::new("/v1/templates").part(name)).await
    }

    /// Changes what a version of a template gives new sandboxes.
    pub async fn patch_template(&self, name: &str, patch: &PatchTemplate) -> Result<TemplateView, ClientError> {
        let route = Route::new("/v1/templates").part(name);
        self.send_json(Method::PATCH, route, patch, None).await?.json().await
    }

    /// Lets a tag mean a version of a template, which is named `name` or `name:tag`.
    pub async fn tag_template(&self, version: &str, tag: &str) -> Result<TemplateView, ClientError> {
        let route = Route::new("/v1/templates").part(version).part("tags").part(tag);
        self.plain(Method::PUT, route).await?.json().await
    }

    /// Makes a template by a recipe of the daemon's or from a path on its host.
    pub async fn make_template(&self, wanted: &ImportTemplate) -> Result<TemplateStream, ClientError> {
        let answer = self.send_json(Method::POST, Route::new("/v1/templates"), wanted, None).await?;
        Ok(TemplateStream { lines: Lines::new(answer) })
    }

    /// Makes a template of a tar stream, which may be compressed with gzip.
    pub async fn upload_template(
        &self,
        wanted: &TemplateUpload,
        archive: Upload,
    ) -> Result<TemplateStream, ClientError> {
        let route = Route::new("/v1/templates")
            .part(&wanted.name)
            .query_some("replace", wanted.replace.then_some(true))
            .query_some("user", wanted.user.as_ref())
            .query_some("workdir", wanted.workdir.as_ref())
            .query_some("engine", wanted.engine)
            .query_some("capabilities", wanted.capabilities.as_ref().map(Capability::show_set));
        let answer = self.send_upload(Method::PUT, route, archive, "application/x-tar").await?;
        Ok(TemplateStream { lines: Lines::new(answer) })
    }
}
