//! One request and its answer.

use std::error::Error;

use axum::body::{Body, HttpBody};
use axum::http::header::HeaderValue;
use axum::http::request::Parts;
use axum::http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use roost_host::{Handle, Line, tunnel};
use roost_model::ErrorCode;

use crate::answer::{self, Begun, Held};
use crate::guard::{InUse, connected, in_use};
use crate::headers;
use crate::kept::{Place, Upstream};
use crate::proxy::Proxy;
use crate::refusal::Refusal;

/// How often a request is sent again because its sandbox fell asleep under it.
const TRIES: usize = 16;

/// A request that is ready for the sandbox.
pub(crate) struct Outgoing {
    pub(crate) head: Parts,
    pub(crate) body: Body,
    /// What becomes of the client's connection if the protocol changes.
    pub(crate) upgrade: Option<OnUpgrade>,
}

/// A connection on which a request can be sent.
struct Reached {
    upstream: Upstream,
    line: Line,
    used_before: bool,
}

/// What came of sending a request.
enum Sent {
    Answered(Box<Response<Begun>>),
    Changed(Response<Incoming>),
    /// No whole answer came; what was sent may have been heard, unless it is here.
    Unanswered(hyper::Error, Option<Body>),
    /// The sandbox was put to sleep, or ended.
    Lost,
}

/// Sends a request to a port and answers with what comes back.
///
/// A request that a sleep cut off is sent again if that does no harm: because it is one that may be repeated, or because
/// nothing of it had left.
pub(crate) async fn exchange(
    proxy: &Proxy,
    handle: &Handle,
    port: u16,
    outgoing: Outgoing,
) -> Result<Response<Body>, Refusal> {
    let Outgoing { head, body, upgrade } = outgoing;
    let _asked = in_use(handle, port);
    let repeatable = is_repeatable(&head.method) && body.is_end_stream();
    let reusable = repeatable && upgrade.is_none();
    let mut body = Some(body);
    for _ in 0..TRIES {
        let mut reached = reach(proxy, handle, port, reusable).await?;
        let sent = send(&mut reached, &head, body.take().unwrap_or_default()).await;
        match sent {
            Sent::Answered(response) => {
                let keep = reusable.then(|| (proxy.kept().clone(), place(handle, &reached.line, port)));
                let held = Held { upstream: reached.upstream, in_use: connected(handle, port), keep };
                return Ok(respond(proxy, *response, reached.line, held));
            }
            Sent::Changed(response) => {
                let protocol = headers::upgrade_of(response.headers());
                return match (upgrade, protocol) {
                    (Some(client), Some(protocol)) => {
                        Ok(switch(proxy, response, client, protocol, reached.line, connected(handle, port)))
                    }
                    _ => Err(Refusal::new(ErrorCode::PortClosed, "it changed protocols without being asked")),
                };
            }
            // A connection that was used before may have been given up by the server meanwhile.
            Sent::Unanswered(_, unsent)
                if (unsent.is_some() || repeatable) && (reached.used_before || reached.line.was_left()) =>
            {
                body = unsent;
            }
            Sent::Unanswered(..) if reached.line.was_left() => return Err(cut_off(port)),
            Sent::Unanswered(error, _) => return Err(unanswered(&error, port)),
            Sent::Lost => {
                reached.upstream.driver.abort();
                if !repeatable {
                    return Err(cut_off(port));
                }
            }
        }
    }
    Err(cut_off(port))
}

/// Sending it twice is as good as sending it once.
fn is_repeatable(method: &Method) -> bool {
    method.is_idempotent()
}

fn place(handle: &Handle, line: &Line, port: u16) -> Place {
    (handle.id().clone(), line.number(), port)
}

async fn reach(proxy: &Proxy, handle: &Handle, port: u16, reusable: bool) -> Result<Reached, Refusal> {
    if reusable {
        let line = handle.line(port).await?;
        if let Some(upstream) = proxy.kept().take(&place(handle, &line, port)).await {
            return Ok(Reached { upstream, line, used_before: true });
        }
    }
    let (stream, line) = handle.open_port(port).await?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| unanswered(&error, port))?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to a port broke");
        }
    });
    Ok(Reached { upstream: Upstream { sender, driver: driver.abort_handle() }, line, used_before: false })
}

async fn send(reached: &mut Reached, head: &Parts, body: Body) -> Sent {
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = head.headers.clone();
    let answer = tokio::select! {
        biased;
        answer = reached.upstream.sender.try_send_request(request) => answer,
        () = reached.line.lost(|| true) => return Sent::Lost,
    };
    let response = match answer {
        Ok(response) => response,
        Err(mut refused) => {
            let unsent = refused.take_message().map(Request::into_body);
            return Sent::Unanswered(refused.into_error(), unsent);
        }
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Sent::Changed(response);
    }
    let (head, inner) = response.into_parts();
    match Begun::small(inner, &mut reached.line).await {
        Ok(Some(begun)) => Sent::Answered(Box::new(Response::from_parts(head, begun))),
        Ok(None) => Sent::Lost,
        Err(error) => Sent::Unanswered(error, None),
    }
}

fn respond(proxy: &Proxy, response: Response<Begun>, line: Line, held: Held) -> Response<Body> {
    let (mut head, begun) = response.into_parts();
    let events = headers::is_event_stream(&head.headers);
    headers::to_client(&mut head.headers);
    head.version = Version::HTTP_11;
    let body = answer::body(begun, line, held, events, proxy.closing().clone());
    Response::from_parts(head, body)
}

/// Passes the change of protocols on and connects both ends when they have changed.
fn switch(
    proxy: &Proxy,
    mut response: Response<Incoming>,
    client: OnUpgrade,
    protocol: HeaderValue,
    line: Line,
    in_use: InUse,
) -> Response<Body> {
    let port = hyper::upgrade::on(&mut response);
    let closing = proxy.closing().clone();
    proxy.tunnels().spawn(async move {
        match tokio::try_join!(client, port) {
            Ok((client, port)) => {
                tunnel(TokioIo::new(client), TokioIo::new(port), line, closing, in_use).await;
            }
            Err(error) => tracing::debug!(%error, "protocols did not change after all"),
        }
    });
    let (mut head, _) = response.into_parts();
    headers::switching(&mut head.headers, protocol);
    head.version = Version::HTTP_11;
    Response::from_parts(head, Body::empty())
}

fn unanswered(error: &hyper::Error, port: u16) -> Refusal {
    let what = if error.is_parse() || spoke_first(error) {
        format!("what listens on port {port} does not speak HTTP")
    } else {
        format!("what listens on port {port} hung up before it had answered")
    };
    tracing::debug!(%error, port, "no answer from a port");
    Refusal::new(ErrorCode::PortClosed, what).with_hint("`roost forward` reaches ports that speak something else")
}

/// Hyper gives a request back with the reason why it was never sent: that words came which nobody had asked for is an
/// error of its own without a further cause, a connection that broke has one, and one that was closed is none.
fn spoke_first(error: &hyper::Error) -> bool {
    let reason = error.source().and_then(|reason| reason.downcast_ref::<hyper::Error>());
    error.is_canceled() && reason.is_some_and(|reason| reason.source().is_none())
}

fn cut_off(port: u16) -> Refusal {
    let message = format!("the sandbox was put to sleep or ended before port {port} had answered");
    Refusal::new(ErrorCode::Conflict, message).with_hint("it may or may not have done what was asked; ask again")
}
