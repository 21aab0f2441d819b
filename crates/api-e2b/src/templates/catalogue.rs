//! What templates there are: lists, names, tags.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use roost_host::HostError;
use roost_model::{TemplateRef, TemplateView};
use serde::{Deserialize, Serialize};

use super::CHANGE;
use super::bodies::{Alias, AssignTags, AssignedTags, RemoveTags, TagView, Template, TemplateWithBuilds};
use super::names::{tags as parsed_tags, template_name, uuid};
use crate::control::extract::{E2bJson, E2bPath, E2bQuery};
use crate::control::snapshots;
use crate::control::visit::Visit;
use crate::error::E2bError;

const NEXT: HeaderName = HeaderName::from_static("x-next-token");
const LARGEST_PAGE: usize = 100;
/// What every host has, or can build by a recipe of its own.
const DEFAULTS: [&str; 2] = ["base", "code-interpreter-v1"];

/// Which part of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageOf {
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    next_token: Option<String>,
}

fn described(e2b: &Visit, view: &TemplateView) -> Template {
    let builds = e2b.beyond_tokens().builds().iter().filter(|build| build.name.as_str() == view.name).count();
    Template::of(view, builds, e2b.beyond_tokens().config())
}

/// `GET /templates` and `GET /v2/templates`.
pub(crate) async fn list(
    e2b: Visit,
    E2bQuery(page): E2bQuery<PageOf>,
) -> Result<(HeaderMap, Json<Vec<Template>>), E2bError> {
    let after = page.next_token.unwrap_or_default();
    let mut all = e2b.visitor().templates()?;
    all.retain(|view| view.name > after);
    let most = page.limit.unwrap_or(LARGEST_PAGE).clamp(1, LARGEST_PAGE);
    let mut headers = HeaderMap::new();
    if all.len() > most {
        all.truncate(most);
        let last = all.last().and_then(|view| HeaderValue::from_str(&view.name).ok());
        headers.extend(last.map(|name| (NEXT, name)));
    }
    Ok((headers, Json(all.iter().map(|view| described(&e2b, view)).collect())))
}

/// `GET /default-templates`.
pub(crate) async fn defaults(e2b: Visit) -> Result<Json<Vec<Template>>, E2bError> {
    let all = e2b.visitor().templates()?;
    let own = all.iter().filter(|view| DEFAULTS.contains(&view.name.as_str()));
    Ok(Json(own.map(|view| described(&e2b, view)).collect()))
}

/// The template of a name; one that has only tags is found by its name too.
fn find(e2b: &Visit, text: &str) -> Result<TemplateView, E2bError> {
    let named = template_name(text)?;
    match e2b.visitor().template(&named.to_string()) {
        Err(HostError::TemplateNotFound { .. }) if named.tag.is_none() => {
            let found = e2b.visitor().templates()?.into_iter().find(|view| view.name == named.name.as_str());
            found.ok_or_else(|| no_template(text))
        }
        Err(HostError::TemplateNotFound { .. }) => Err(no_template(text)),
        found => Ok(found?),
    }
}

fn no_template(text: &str) -> E2bError {
    E2bError::not_found(format!("template `{text}` was not found"))
}

/// `GET /templates/{template}`.
pub(crate) async fn read(e2b: Visit, E2bPath(template): E2bPath<String>) -> Result<Json<TemplateWithBuilds>, E2bError> {
    let view = find(&e2b, &template)?;
    let builds = e2b.beyond_tokens().builds().into_iter().filter(|build| build.name.as_str() == view.name).collect();
    Ok(Json(TemplateWithBuilds::of(described(&e2b, &view), builds)))
}

/// What a client wants changed; there is nobody here to whom a template could be public.
#[derive(Debug, Deserialize)]
pub(crate) struct Change {
    #[serde(default)]
    public: Option<bool>,
}

fn changed(e2b: &Visit, template: &str, change: &Change) -> Result<TemplateView, E2bError> {
    let view = find(e2b, template)?;
    if change.public == Some(true) {
        return Err(E2bError::bad_request("templates of this host are open to all its API keys, and to nobody else"));
    }
    Ok(view)
}

/// `PATCH /templates/{template}`.
pub(crate) async fn change(
    e2b: Visit,
    E2bPath(template): E2bPath<String>,
    E2bJson(change): E2bJson<Change>,
) -> Result<StatusCode, E2bError> {
    changed(&e2b, &template, &change).map(|_| StatusCode::OK)
}

/// The names of a template.
#[derive(Debug, Serialize)]
pub(crate) struct Names {
    names: Vec<String>,
}

/// `PATCH /v2/templates/{template}`.
pub(crate) async fn change_names(
    e2b: Visit,
    E2bPath(template): E2bPath<String>,
    E2bJson(change): E2bJson<Change>,
) -> Result<Json<Names>, E2bError> {
    changed(&e2b, &template, &change).map(|view| Json(Names { names: vec![view.name] }))
}

/// `DELETE /templates/{template}`.
pub(crate) async fn remove(e2b: Visit, E2bPath(template): E2bPath<String>) -> Result<StatusCode, E2bError> {
    let name = template_name(&template)?.to_string();
    let removed = match e2b.host(CHANGE) {
        Ok(host) => host.remove_template(&name).await,
        Err(refusal) => Err(refusal),
    };
    match removed {
        // A snapshot is a template to its clients, and may be within reach of those who cannot remove templates.
        Err(HostError::TemplateNotFound { .. } | HostError::Forbidden(_))
            if snapshots::delete(&e2b, &template).await? =>
        {
            Ok(StatusCode::NO_CONTENT)
        }
        Err(HostError::TemplateNotFound { .. }) => Err(no_template(&template)),
        other => Ok(other.map(|()| StatusCode::NO_CONTENT)?),
    }
}

/// `GET /templates/aliases/{alias}`.
pub(crate) async fn alias(e2b: Visit, E2bPath(alias): E2bPath<String>) -> Result<Json<Alias>, E2bError> {
    let view = find(&e2b, &alias)?;
    Ok(Json(Alias { template: view.name, public: false }))
}

/// `GET /templates/{template}/tags`.
pub(crate) async fn tags(e2b: Visit, E2bPath(template): E2bPath<String>) -> Result<Json<Vec<TagView>>, E2bError> {
    let known = e2b.beyond_tokens().template_tags(&template_name(&template)?.name)?;
    if known.is_empty() {
        return Err(no_template(&template));
    }
    Ok(Json(known.into_iter().map(TagView::from).collect()))
}

/// `POST /templates/tags`.
pub(crate) async fn assign_tags(
    e2b: Visit,
    E2bJson(wanted): E2bJson<AssignTags>,
) -> Result<(StatusCode, Json<AssignedTags>), E2bError> {
    let version = template_name(&wanted.target)?;
    let tags = parsed_tags(&wanted.tags)?;
    if tags.is_empty() {
        return Err(E2bError::bad_request("give at least one tag"));
    }
    match e2b.host(CHANGE)?.tag_template(&version, tags.clone()).await {
        Err(HostError::TemplateNotFound { .. }) => Err(no_template(&wanted.target)),
        tagged => Ok((StatusCode::CREATED, Json(AssignedTags { tags, build: uuid(&tagged?) }))),
    }
}

/// `DELETE /templates/tags`.
pub(crate) async fn remove_tags(e2b: Visit, E2bJson(wanted): E2bJson<RemoveTags>) -> Result<StatusCode, E2bError> {
    let name = template_name(&wanted.name)?.name;
    let known = e2b.beyond_tokens().template_tags(&name)?;
    let doomed = parsed_tags(&wanted.tags)?;
    // All of them or none.
    if let Some(unknown) = doomed.iter().find(|tag| known.iter().all(|known| known.tag != **tag)) {
        return Err(no_template(&format!("{name}:{unknown}")));
    }
    if doomed.iter().any(roost_model::Tag::is_default) {
        return Err(E2bError::bad_request("the tag `default` goes only with the whole template"));
    }
    for tag in doomed {
        let tagged = TemplateRef { name: name.clone(), tag: Some(tag) };
        e2b.host(CHANGE)?.remove_template(&tagged.to_string()).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
