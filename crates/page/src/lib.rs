//! The page in the browser: files that the binary carries, served at `/`.
//!
//! A leaf without any state: it hands out files, and everything the page shows or does goes by `/v1` like anybody else's
//! request. What may run in it is said by [`POLICY`]: its own files alone, nothing written into the page, nothing from
//! another host, in no frame.
#![forbid(unsafe_code)]

mod files;

use axum::Router;
use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::routing::get;

use crate::files::{FILES, File};

/// What a browser lets the page do.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; font-src 'self'; \
                      connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Sent with every file.
const ALWAYS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The files of the page, each at its path.
pub fn routes() -> Router {
    FILES.iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(async move |headers: HeaderMap| answer(file, &headers)))
    })
}

/// Whether the binary carries the page, and not only the one that says how to build it.
pub fn is_built() -> bool {
    FILES.len() > 1
}

fn answer(file: &'static File, asked: &HeaderMap) -> Response<Body> {
    let listed = |name: HeaderName, wanted: &str| {
        let values = asked.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.split(';').next().unwrap_or_default().trim() == wanted)
    };
    let known = listed(header::IF_NONE_MATCH, file.tag);
    let packed = listed(header::ACCEPT_ENCODING, "gzip");
    let body = match (known, packed) {
        (true, _) => Body::empty(),
        (_, true) => Body::from(file.packed),
        (_, false) => Body::from(file.content),
    };
    let mut response = Response::new(body);
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    let lasting = if file.forever { "public, max-age=31536000, immutable" } else { "no-cache" };
    for (name, value) in ALWAYS.into_iter().chain([
        (header::CONTENT_TYPE, file.kind),
        (header::ETAG, file.tag),
        (header::CACHE_CONTROL, lasting),
        (header::VARY, "accept-encoding"),
    ]) {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if packed && !known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    async fn ask(path: &str, headers: &[(&str, &str)]) -> (Response<()>, Vec<u8>) {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = routes().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (head, body) = answer.into_parts();
        (Response::from_parts(head, ()), to_bytes(body, 1 << 24).await.unwrap().to_vec())
    }

    #[tokio::test]
    async fn the_page_is_protected_and_known_by_its_tag() {
        let (head, body) = ask("/", &[]).await;
        assert_eq!(head.status(), 200);
        assert!(String::from_utf8(body).unwrap().contains("<title>Roost</title>"));
        let policy = head.headers()["content-security-policy"].to_str().unwrap();
        for part in ["default-src 'none'", "script-src 'self';", "connect-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{policy}");
        }
        assert_eq!(head.headers()["cache-control"], "no-cache");
        let tag = head.headers()["etag"].to_str().unwrap().to_owned();
        let (again, body) = ask("/", &[("if-none-match", &format!("\"other\", {tag}"))]).await;
        assert_eq!((again.status().as_u16(), body.len()), (304, 0));
    }

    #[tokio::test]
    async fn packed_files_are_for_who_can_unpack() {
        let (plain, long) = ask("/", &[("accept-encoding", "br, identity")]).await;
        let (packed, short) = ask("/", &[("accept-encoding", "br;q=1, gzip;q=0.8")]).await;
        assert!(!plain.headers().contains_key("content-encoding"));
        assert_eq!(packed.headers()["content-encoding"], "gzip");
        assert!(short.starts_with(&[0x1f, 0x8b]) && short.len() < long.len());
    }

    #[test]
    fn names_that_change_with_what_is_in_them_are_kept_for_good() {
        for file in FILES {
            assert_eq!(file.forever, file.path.starts_with("/assets/"), "{}", file.path);
            assert!(file.path.starts_with('/') && !file.content.is_empty());
        }
        assert!(FILES.iter().any(|file| file.path == "/" && !file.forever));
    }
}
