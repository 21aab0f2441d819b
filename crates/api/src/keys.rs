//! `/v1/keys`: public keys that are let in over SSH.

use axum::Json;
use axum::http::StatusCode;
use roost_model::{AddKey, ErrorBody, KeyView, Page};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(add_key, list_keys)).routes(routes!(delete_key))
}

/// Let a public key in over SSH; one that is let in already gets the new name and access.
#[utoipa::path(
    post, path = "/v1/keys", tag = "keys", request_body = AddKey,
    responses(
        (status = 201, description = "Let in", body = KeyView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn add_key(api: Visit, ApiJson(wanted): ApiJson<AddKey>) -> Result<(StatusCode, Json<KeyView>), ApiError> {
    Ok((StatusCode::CREATED, Json(api.host("let keys in")?.add_key(wanted).await?)))
}

/// List the public keys that are let in.
#[utoipa::path(
    get, path = "/v1/keys", tag = "keys",
    responses(
        (status = 200, description = "All of them", body = Page<KeyView>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_keys(api: Visit) -> Result<Json<Page<KeyView>>, ApiError> {
    Ok(Json(Page { items: api.host("list keys")?.keys().await?, next_cursor: None }))
}

/// A path of one key.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct KeyPath {
    /// Its id, fingerprint or name.
    key: String,
}

/// Let a public key in no more; connections that it has open stay.
#[utoipa::path(
    delete, path = "/v1/keys/{key}", tag = "keys", params(KeyPath),
    responses(
        (status = 200, description = "The key, which is let in no more", body = KeyView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn delete_key(api: Visit, ApiPath(path): ApiPath<KeyPath>) -> Result<Json<KeyView>, ApiError> {
    Ok(Json(api.host("remove keys")?.delete_key(&path.key).await?))
}
