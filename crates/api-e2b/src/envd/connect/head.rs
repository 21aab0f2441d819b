//! What a call says besides its messages.

use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use super::code::{Code, ConnectError};

const VERSION: &str = "connect-protocol-version";
const TIMEOUT: &str = "connect-timeout-ms";
const KEEPALIVE: &str = "keepalive-ping-interval";
/// A stream says that it lives at least this often, unless its client wants to hear it at other times.
const USUAL_KEEPALIVE: Duration = Duration::from_secs(90);
/// More digits are no time that anybody means.
const MOST_DIGITS: usize = 10;

/// What a call says besides its messages.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// How long it may take.
    pub(crate) timeout: Option<Duration>,
    /// When that is over.
    pub(super) deadline: Option<Instant>,
    /// How long its answer may be silent.
    pub(super) keepalive: Duration,
    /// All that it says.
    pub(crate) headers: HeaderMap,
}

/// How messages are wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Unary,
    Stream,
}

impl Shape {
    /// What the content is called.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Unary => "application/json",
            Self::Stream => "application/connect+json",
        }
    }
}

impl Head {
    /// Reads what a call says of itself. The outer refusal is one of HTTP, before Connect has begun.
    pub(super) fn read(parts: &Parts, shape: Shape) -> Result<Result<Self, ConnectError>, Box<Response>> {
        if parts.method != Method::POST {
            let allow = [(header::ALLOW, HeaderValue::from_static("POST"))];
            return Err(Box::new((StatusCode::METHOD_NOT_ALLOWED, allow).into_response()));
        }
        let found = text(&parts.headers, header::CONTENT_TYPE.as_str());
        if media_type(&found) != shape.content_type() {
            return Err(Box::new(other_content(&found, shape)));
        }
        Ok(Self::read_headers(&parts.headers, shape))
    }

    fn read_headers(headers: &HeaderMap, shape: Shape) -> Result<Self, ConnectError> {
        let version = text(headers, VERSION);
        if !matches!(version.as_str(), "" | "1") {
            return Err(ConnectError::invalid(format!("connect-protocol-version is 1 here, not `{version}`")));
        }
        let encoding = match shape {
            Shape::Unary => text(headers, header::CONTENT_ENCODING.as_str()),
            Shape::Stream => text(headers, "connect-content-encoding"),
        };
        if !matches!(encoding.as_str(), "" | "identity") {
            let message = format!("messages compressed with `{encoding}` are not understood");
            return Err(ConnectError::new(Code::Unimplemented, message));
        }
        let timeout = match text(headers, TIMEOUT).as_str() {
            "" => None,
            digits => Some(Duration::from_millis(number(TIMEOUT, digits)?)),
        };
        let keepalive = match text(headers, KEEPALIVE).as_str() {
            "" => USUAL_KEEPALIVE,
            digits => Duration::from_secs(number(KEEPALIVE, digits)?.max(1)),
        };
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Ok(Self { timeout, deadline, keepalive, headers: headers.clone() })
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned()).unwrap_or_default()
}

fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn number(name: &str, digits: &str) -> Result<u64, ConnectError> {
    let plain = digits.len() <= MOST_DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number = if plain { digits.parse().ok() } else { None };
    number.ok_or_else(|| ConnectError::invalid(format!("{name} is a number of at most 10 digits, not `{digits}`")))
}

/// A call in another encoding, or another protocol.
fn other_content(found: &str, shape: Shape) -> Response {
    let wanted = shape.content_type();
    let message = format!("this call is made with content of type {wanted}, not `{found}`");
    let error = ConnectError::new(Code::Unimplemented, message);
    let accept = [("accept-post", HeaderValue::from_static(wanted))];
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, accept, axum::Json(error)).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::post("/process.Process/Start");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn call(headers: &[(&str, &str)]) -> Result<Head, ConnectError> {
        let mut all = vec![("content-type", "application/connect+json; charset=utf-8")];
        all.extend_from_slice(headers);
        Head::read(&parts(&all), Shape::Stream).expect("content that is understood")
    }

    #[test]
    fn times_are_read_and_nonsense_is_refused() {
        let plain = call(&[]).unwrap();
        assert_eq!((plain.timeout, plain.keepalive), (None, USUAL_KEEPALIVE));
        let timed = call(&[(TIMEOUT, "60000"), (KEEPALIVE, "50"), (VERSION, "1")]).unwrap();
        assert_eq!((timed.timeout, timed.keepalive), (Some(Duration::from_secs(60)), Duration::from_secs(50)));
        assert_eq!(call(&[(KEEPALIVE, "0")]).unwrap().keepalive, Duration::from_secs(1));
        for (name, value) in
            [(TIMEOUT, "-1"), (TIMEOUT, "12345678901"), (TIMEOUT, "1s"), (KEEPALIVE, "x"), (VERSION, "2")]
        {
            assert_eq!(call(&[(name, value)]).unwrap_err().code, Code::InvalidArgument, "{name}: {value}");
        }
        assert_eq!(call(&[("connect-content-encoding", "gzip")]).unwrap_err().code, Code::Unimplemented);
        assert!(call(&[("connect-content-encoding", "identity")]).is_ok());
    }

    #[test]
    fn other_encodings_and_methods_are_told_what_is_spoken_here() {
        let refused = Head::read(&parts(&[("content-type", "application/proto")]), Shape::Unary).unwrap_err();
        assert_eq!(refused.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(refused.headers()["accept-post"], "application/json");
        let mut get = parts(&[("content-type", "application/json")]);
        get.method = Method::GET;
        let refused = Head::read(&get, Shape::Unary).unwrap_err();
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
