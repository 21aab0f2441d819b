//! `/mcp`: streamable HTTP, or a connection that carries messages line by line.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, HeaderValue, UPGRADE};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::any;
use hyper_util::rt::TokioIo;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use roost_host::{Caller, Host};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::server::Server;

/// Where it is served.
pub const PATH: &str = "/mcp";
/// The protocol of a connection that carries one message in each line.
pub const LINE_PROTOCOL: &str = "roost-mcp";

/// A session in which nothing is said for so long is forgotten; no tool takes as long as that.
const SESSION: Duration = Duration::from_secs(2 * 3600);
/// Files are written whole. As much as a line takes.
const LARGEST_MESSAGE: usize = 16 << 20;

#[derive(Clone)]
struct Door {
    host: Host,
    http: StreamableHttpService<Server, LocalSessionManager>,
    closing: CancellationToken,
    lines: TaskTracker,
}

/// The route, for a listener that says who asks. `closing` ends what has no end of its own; `lines` knows what outlives its
/// request.
pub fn routes(host: Host, closing: CancellationToken, lines: TaskTracker) -> Router {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SESSION);
    // Whoever comes has shown a token, or a cookie together with the origin of our own page; no page of another site can. The
    // address may be any.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(LARGEST_MESSAGE)
        .with_cancellation_token(closing.child_token());
    let made = host.clone();
    let http = StreamableHttpService::new(move || Ok(Server::for_requests(made.clone())), Arc::new(sessions), config);
    Router::new().route(PATH, any(serve)).with_state(Door { host, http, closing, lines })
}

async fn serve(State(door): State<Door>, mut request: Request) -> Response<Body> {
    if !asks_for_line(request.headers()) {
        return door.http.handle(request).await.map(Body::new);
    }
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return plain(StatusCode::UNAUTHORIZED);
    };
    let connection = hyper::upgrade::on(&mut request);
    let server = Server::for_caller(door.host.clone(), caller);
    // A child: the end of a line cancels what it was given.
    let closing = door.closing.child_token();
    door.lines.spawn(async move {
        let stream = match connection.await {
            Ok(stream) => tokio::io::split(TokioIo::new(stream)),
            Err(error) => return tracing::debug!(%error, "a client did not stay for its line"),
        };
        match rmcp::service::serve_server_with_ct(server, stream, closing).await {
            Ok(service) => drop(service.waiting().await),
            Err(error) => tracing::debug!(%error, "a client left before it had begun"),
        }
    });
    let mut response = plain(StatusCode::SWITCHING_PROTOCOLS);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(LINE_PROTOCOL));
    response
}

fn asks_for_line(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|protocol| protocol.as_bytes() == LINE_PROTOCOL.as_bytes())
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
