//! All routes, the document that describes them, and who may use them.

use std::sync::LazyLock;

use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::{Extension, Router};
use roost_host::Caller;
use roost_model::ErrorCode;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;

use crate::errors::ApiError;
use crate::observe::observe;
use crate::{
    Api, admin, alarms, archives, attach, auth, batches, checkpoints, events, execs, files, forks, holds, idle, keys,
    output, overview, pools, ports, processes, run, sandboxes, services, session, templates, watch,
};

/// What a listener asks of those who connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: only the owner can open the socket.
    Owner,
    /// A token or the cookie of a session, except for `/healthz`, `/openapi.json` and to log in.
    Token,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Roost",
        description = "Computers for agents. Times are RFC 3339, sizes bytes, durations text such as `15s`. \
                       Every answer that is not a success has an `ErrorBody` with a stable code.",
    ),
    tags(
        (name = "sandboxes", description = "Linux computers: make, list, read, change, suspend, wake, end"),
        (name = "checkpoints", description = "Moments of a sandbox: keep, compare, go back to, fork"),
        (name = "leases", description = "Holds, which keep a sandbox awake, and alarms, which wake it"),
        (name = "execs", description = "Processes started from outside, with their output"),
        (name = "processes", description = "Everything that runs inside a sandbox"),
        (name = "services", description = "Named processes that a sandbox keeps up"),
        (name = "batches", description = "Many commands, each in a sandbox of its own"),
        (name = "files", description = "Files inside a sandbox"),
        (name = "ports", description = "Ports of a sandbox on the outside"),
        (name = "templates", description = "What sandboxes start from"),
        (name = "keys", description = "Public keys that are let in over SSH"),
        (name = "pools", description = "Sandboxes made ahead of time"),
        (name = "events", description = "What happened"),
        (name = "tokens", description = "Access over TCP"),
        (name = "daemon", description = "The daemon itself"),
    ),
    paths(ports::reach_port),
    modifiers(&BearerToken),
    security(("token" = []), ()),
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("Needed over TCP; the owner of the unix socket needs none."))
            .build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

fn guarded_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .merge(sandboxes::routes())
        .merge(checkpoints::routes())
        .merge(forks::routes())
        .merge(holds::routes())
        .merge(alarms::routes())
        .merge(idle::routes())
        .merge(execs::routes())
        .merge(output::routes())
        .merge(processes::routes())
        .merge(ports::routes())
        .merge(attach::routes())
        .merge(services::routes())
        .merge(run::routes())
        .merge(batches::routes())
        .merge(files::routes())
        .merge(archives::routes())
        .merge(watch::routes())
        .merge(templates::routes())
        .merge(keys::routes())
        .merge(pools::routes())
        .merge(events::routes())
        .merge(overview::routes())
        .merge(session::routes())
        .merge(admin::routes())
}

/// Routes that need no token.
fn open_routes() -> OpenApiRouter<Api> {
    admin::open_routes().merge(session::open_routes())
}

/// The OpenAPI document of `/v1`.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let all = OpenApiRouter::<Api>::with_openapi(Document::openapi());
    all.merge(guarded_routes()).merge(open_routes()).into_openapi()
}

/// The document as text, made once.
pub(crate) fn document() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| openapi().to_pretty_json().unwrap_or_default());
    &TEXT
}

/// Routes of others beside those of an API. They have no fallback.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// Those that ask for what `/v1` asks for; each request has its [`Caller`] as an extension.
    pub guarded: Router,
    /// Those that ask for nothing.
    pub open: Router,
}

/// All routes of an API, for a listener that asks for `access`, and those of others beside them.
pub fn router(api: impl Into<Api>, access: Access, beside: Beside) -> Router {
    let api = api.into();
    let guarded = Router::from(guarded_routes())
        .merge(beside.guarded.with_state(()))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method);
    let guarded = match access {
        Access::Owner => guarded.layer(Extension(Caller::owner())),
        Access::Token => guarded.layer(from_fn_with_state(api.clone(), auth::require_token)),
    };
    let open = Router::from(open_routes()).method_not_allowed_fallback(wrong_method);
    let all = guarded.merge(open).merge(ports::proxied(access));
    let all = all.merge(beside.open.with_state(())).layer(from_fn_with_state(api.clone(), observe));
    match access {
        Access::Owner => all.with_state(api),
        // Outermost: a port's paths are its own, whatever they are called.
        Access::Token => all.layer(from_fn_with_state(api.clone(), ports::by_host)).with_state(api),
    }
}

async fn no_route(uri: Uri) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("there is nothing at `{}`", uri.path()))
        .with_hint("`/openapi.json` lists every route")
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::bad_request(format!("`{}` does not know {method}", uri.path()))
        .with_status(StatusCode::METHOD_NOT_ALLOWED)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use axum::body::Body;
    use axum::http::Request;
    use roost_model::ErrorBody;
    use tower::ServiceExt;

    use super::*;

    const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/roost-v1.json");

    #[test]
    fn openapi_document_has_not_drifted() {
        let current = format!("{}\n", document());
        if std::env::var_os("ROOST_UPDATE_OPENAPI").is_some() {
            std::fs::create_dir_all(Path::new(STORED).parent().unwrap()).unwrap();
            std::fs::write(STORED, &current).unwrap();
        }
        let stored = std::fs::read_to_string(STORED).unwrap_or_default();
        assert!(
            stored == current,
            "openapi/roost-v1.json is not what the code says: run `ROOST_UPDATE_OPENAPI=1 cargo test -p roost-api openapi`"
        );
    }

    #[test]
    fn openapi_describes_every_operation_once() {
        let document: serde_json::Value = serde_json::from_str(document()).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let name = operation["operationId"].as_str().unwrap();
                assert!(names.insert(name.to_owned()), "two operations are called {name}");
                assert!(operation["summary"].is_string(), "{method} {path} has no summary");
                let open = ["/healthz", "/openapi.json"].contains(&path.as_str());
                assert!(open || operation["responses"]["default"].is_object(), "{method} {path} has no refusal");
            }
        }
        assert!(names.len() >= 47, "{names:?}");
    }

    #[tokio::test]
    async fn what_leads_nowhere_is_refused_in_our_words() {
        let app: Router = Router::new()
            .route("/v1/run", axum::routing::post(|| async {}))
            .fallback(no_route)
            .method_not_allowed_fallback(wrong_method);
        for (method, path, status, code) in
            [("GET", "/nowhere", 404, ErrorCode::NotFound), ("DELETE", "/v1/run", 405, ErrorCode::BadRequest)]
        {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers().contains_key("allow"), status == 405);
            let bytes = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
            let body: ErrorBody = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(body.error.code, code);
        }
    }
}
