//! `/v1/sandboxes/{sandbox}/ports`: ports on the outside, who may reach them, links to them, tunnels to them.

use axum::Json;
use axum::extract::{Request, State as Shared};
use axum::middleware::Next;
use axum::response::Response;
use axum::{Router, routing::any};
use roost_host::Handle;
use roost_model::{ErrorBody, MakeLink, PortAccess, PortLink, PortView, SetPort, parse_port};
use roost_proxy::{Target, Trust};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::to_the_end;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath};
use crate::visit::Visit;
use crate::{Access, Api};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_port, set_port)).routes(routes!(make_link)).routes(routes!(forward_tcp))
}

/// Routes that ask for access themselves: a port may be public, and a link is as good as a token.
pub(crate) fn proxied(access: Access) -> Router<Api> {
    let trust = match access {
        Access::Owner => Trust::Owner,
        Access::Token => Trust::Nobody,
    };
    let serve = any(async move |Shared(api): Shared<Api>, request: Request| by_path(&api, trust, request).await);
    Router::new()
        .route("/v1/sandboxes/{sandbox}/ports/{port}/", serve.clone())
        .route("/v1/sandboxes/{sandbox}/ports/{port}/{*path}", serve)
}

/// Serves requests whose host names a port; the others are for the daemon.
pub(crate) async fn by_host(Shared(api): Shared<Api>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let target = api.proxy().target_of(&head);
    let request = Request::from_parts(head, body);
    match target {
        Some(target) => api.proxy().serve(target, Trust::Nobody, request).await,
        None => next.run(request).await,
    }
}

async fn by_path(api: &Api, trust: Trust, request: Request) -> Response {
    // As it was written: what is cut off its front must be what is there.
    let mut parts = request.uri().path().split('/').skip(3);
    let (sandbox, port) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
    let target = Target::of_path(sandbox, port);
    api.proxy().serve(target, trust, request).await
}

/// A path below one port of a sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct PortPath {
    /// The sandbox's name, its id, or the beginning of its id.
    sandbox: String,
    /// The port, 1 to 65535.
    #[param(value_type = u16, minimum = 1)]
    port: String,
}

impl PortPath {
    fn find(&self, api: &Visit) -> Result<(Handle, u16), ApiError> {
        let port = parse_port(&self.port).map_err(|error| ApiError::bad_request(error.to_string()))?;
        Ok((api.living(&self.sandbox)?, port))
    }
}

/// Reach a port by path, with any method; a sleeping sandbox is woken and the request held until it answers.
///
/// WebSockets and other upgrades pass. The same is served at `<port>-<sandbox>.<domain>`, which fits pages better. Access
/// is by token (`Authorization: Bearer …` or `X-Roost-Token`), by the cookie of a link, or free if the port is public.
/// Refusals of the proxy have the header `X-Roost-Error`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/ports/{port}/{path}", tag = "ports", params(PortPath, ("path" = String, Path)),
    responses(
        (status = 200, description = "Whatever the server inside answers"),
        (status = 303, description = "A link was turned into a cookie; ask again at `Location`"),
        (status = 403, description = "The link is forged or has expired", body = ErrorBody),
        (status = 502, description = "Nothing listens there", body = ErrorBody),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
#[expect(dead_code, reason = "described here, served for every method above")]
pub(crate) async fn reach_port() {}

/// Read how a port is reached from outside; does not wake the sandbox.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/ports/{port}", tag = "ports", params(PortPath),
    responses(
        (status = 200, description = "Its address and who may reach it", body = PortView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_port(api: Visit, ApiPath(path): ApiPath<PortPath>) -> Result<Json<PortView>, ApiError> {
    let (handle, port) = path.find(&api)?;
    Ok(Json(handle.port_view(port)))
}

/// Decide who may reach a port from outside; `private` also takes back all links to it.
#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/ports/{port}", tag = "ports", params(PortPath), request_body = SetPort,
    responses(
        (status = 200, description = "The port as it is now", body = PortView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn set_port(
    api: Visit,
    ApiPath(path): ApiPath<PortPath>,
    ApiJson(wanted): ApiJson<SetPort>,
) -> Result<Json<PortView>, ApiError> {
    let (handle, port) = path.find(&api)?;
    let access: PortAccess = wanted.access;
    Ok(Json(to_the_end(async move { handle.set_port(port, access).await }).await?))
}

/// Make a link that opens a private port to whoever has it, for a time.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/ports/{port}/link", tag = "ports", params(PortPath), request_body = MakeLink,
    responses(
        (status = 200, description = "The link", body = PortLink),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn make_link(
    api: Visit,
    ApiPath(path): ApiPath<PortPath>,
    ApiJson(wanted): ApiJson<MakeLink>,
) -> Result<Json<PortLink>, ApiError> {
    let (handle, port) = path.find(&api)?;
    Ok(Json(handle.make_link(port, wanted)?))
}

/// Turn this connection into one to a port; wakes the sandbox.
///
/// Asked with `Connection: upgrade` and `Upgrade: roost-tcp`; after the answer both directions carry bytes alone, and each
/// ends by itself.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/ports/{port}/tcp", tag = "ports", params(PortPath),
    responses(
        (status = 101, description = "Connected"),
        (status = 502, description = "Nothing listens there", body = ErrorBody),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn forward_tcp(api: Visit, ApiPath(path): ApiPath<PortPath>, mut request: Request) -> Result<Response, ApiError> {
    let (handle, port) = path.find(&api)?;
    let client = hyper::upgrade::on(&mut request);
    Ok(api.proxy().tunnel(&handle, port, request.headers(), client).await?)
}
