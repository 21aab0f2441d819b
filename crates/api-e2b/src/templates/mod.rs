//! Templates: names, tags, builds.
//!
//! A template's id is its name, and a build's id is that of the version it makes, written as a UUID.

mod bodies;
mod build;
mod catalogue;
mod names;
mod steps;
mod upload;

use axum::Router;
use axum::routing::{get, post, put};

use crate::E2b;
pub(crate) use names::template_name;

/// What those cannot whose key is limited.
const BUILD: &str = "build templates";
const CHANGE: &str = "change templates";

/// Routes for holders of an API key.
pub(crate) fn routes() -> Router<E2b> {
    Router::new()
        .route("/v3/templates", post(build::request))
        .route("/templates/{template}/files/{hash}", get(upload::link))
        .route("/v2/templates/{template}/builds/{build}", post(build::start))
        .route("/templates/{template}/builds/{build}/status", get(build::status))
        .route("/templates/{template}/builds/{build}/logs", get(build::logs))
        .route("/templates/aliases/{alias}", get(catalogue::alias))
        .route("/templates/tags", post(catalogue::assign_tags).delete(catalogue::remove_tags))
        .route("/templates/{template}/tags", get(catalogue::tags))
        .route("/templates", get(catalogue::list))
        .route("/v2/templates", get(catalogue::list))
        .route("/default-templates", get(catalogue::defaults))
        .route("/templates/{template}", get(catalogue::read).patch(catalogue::change).delete(catalogue::remove))
        .route("/v2/templates/{template}", axum::routing::patch(catalogue::change_names))
}

/// Routes that ask for access themselves.
pub(crate) fn open_routes() -> Router<E2b> {
    Router::new().route("/templates/uploads/{hash}/{until}/{proof}", put(upload::take))
}
