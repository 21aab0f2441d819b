//! Whose a request is: E2B's or Roost's own.

use axum::http::request::Parts;
use axum::http::uri::Authority;
use roost_model::{Domain, parse_port};

use crate::e2b::from_wire_id;
use crate::error::E2bError;

/// The port at which E2B's clients expect the daemon of a sandbox.
pub(crate) const ENVD_PORT: u16 = 49983;

const SANDBOX_HEADER: &str = "e2b-sandbox-id";
const PORT_HEADER: &str = "e2b-sandbox-port";

/// What the paths of the control plane start with. `/v1` is Roost's own.
const CONTROL: [&str; 11] = [
    "/sandboxes",
    "/v2/sandboxes",
    "/snapshots",
    "/templates",
    "/v2/templates",
    "/v3/templates",
    "/default-templates",
    "/volumes",
    "/volumecontent",
    "/secrets",
    "/health",
];

/// Whose a request is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// For a port of a sandbox.
    Sandbox {
        /// As the client named it.
        sandbox: String,
        port: u16,
    },
    /// A link to a file that names no sandbox but is signed with a sandbox's token.
    SignedFile,
    /// For the control plane.
    Control,
    /// Not E2B's.
    Other,
}

/// Decides by headers, then by host, then by path.
pub(crate) fn whose(head: &Parts, domain: Option<&Domain>) -> Result<Whose, E2bError> {
    if let Some(sandbox) = text(head, SANDBOX_HEADER) {
        let port = match text(head, PORT_HEADER) {
            Some(port) => parse_port(port).map_err(|error| E2bError::bad_request(error.to_string()))?,
            None => ENVD_PORT,
        };
        return Ok(Whose::Sandbox { sandbox: sandbox.to_owned(), port });
    }
    if let Some((port, sandbox)) = domain.and_then(|domain| domain.split(host(head)?)) {
        let sandbox = sandbox.to_ascii_lowercase();
        let port = parse_port(port).map_err(|error| E2bError::bad_request(error.to_string()));
        // Addresses that Roost itself gives have a name in them, and their refusals are its own.
        let by_id = from_wire_id(&sandbox).is_some();
        return match port {
            Ok(port) if by_id || port == ENVD_PORT => Ok(Whose::Sandbox { sandbox, port }),
            Err(refusal) if by_id => Err(refusal),
            _ => Ok(Whose::Other),
        };
    }
    let path = head.uri.path();
    if path == "/files" {
        return Ok(Whose::SignedFile);
    }
    let below = |start: &str| path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    Ok(if CONTROL.into_iter().any(below) { Whose::Control } else { Whose::Other })
}

fn text<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    head.headers.get(name)?.to_str().ok()
}

fn host(head: &Parts) -> Option<&str> {
    head.uri.authority().map(Authority::as_str).or_else(|| text(head, "host"))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const ID: &str = "01k9zzzzzzzzzzzzzzzzzzzzzz";

    fn asked(uri: &str, headers: &[(&str, &str)]) -> Whose {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        whose(&head, Some(&"localhost:7077".parse().unwrap())).unwrap()
    }

    fn sandbox(name: &str, port: u16) -> Whose {
        Whose::Sandbox { sandbox: name.to_owned(), port }
    }

    #[test]
    fn headers_go_before_the_host_and_the_host_before_the_path() {
        let named = [("e2b-sandbox-id", "web"), ("e2b-sandbox-port", "8000"), ("host", "3000-other.localhost:7077")];
        assert_eq!(asked("/sandboxes", &named), sandbox("web", 8000));
        assert_eq!(asked("/health", &[("e2b-sandbox-id", "web")]), sandbox("web", ENVD_PORT));
        let host = format!("8000-{}.localhost:7077", ID.to_ascii_uppercase());
        assert_eq!(asked("/v1/sandboxes", &[("host", &host)]), sandbox(ID, 8000));
        assert_eq!(asked("/files", &[("host", "49983-web.localhost")]), sandbox("web", ENVD_PORT));
    }

    #[test]
    fn what_is_roosts_own_stays_so() {
        for path in ["/v1/sandboxes", "/healthz", "/openapi.json", "/", "/sandboxesque"] {
            assert_eq!(asked(path, &[("host", "localhost:7077")]), Whose::Other, "{path}");
        }
        for host in ["3000-web.localhost:7077", "65536-web.localhost"] {
            assert_eq!(asked("/", &[("host", host)]), Whose::Other, "{host}");
        }
    }

    #[test]
    fn the_control_plane_has_both_generations() {
        for path in ["/sandboxes", "/v2/sandboxes", "/sandboxes/x/pause", "/v3/templates", "/templates/a%2Fb"] {
            assert_eq!(asked(path, &[("host", "127.0.0.1:7077")]), Whose::Control, "{path}");
        }
        assert_eq!(asked("/files?path=a&signature=v1_x", &[]), Whose::SignedFile);
    }

    #[test]
    fn a_port_that_is_none_is_refused() {
        let request = Request::builder().header("e2b-sandbox-id", "web").header("e2b-sandbox-port", "http");
        let (head, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(whose(&head, None).unwrap_err().status(), 400);
    }
}
