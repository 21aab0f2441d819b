//! `/v1/session` and `/v1/logins`: browsers log in, by a link that is good once or with a token.
//!
//! A browser sends its cookie along whoever made it ask, so a request that has nothing but a cookie must also be one that
//! only our own page can make: of our own origin, and with a header of ours if it changes anything. `SameSite` alone is not
//! enough, because pages of sandboxes may be of the same site (`3000-web.boxes.example.com`).

use axum::Json;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use roost_host::Session;
use roost_model::{ErrorBody, ErrorCode, LogIn, LoginLink, SessionView};
use roost_proxy::{SECURE_SESSION_COOKIE, SESSION_COOKIE, came_by_tls, cookie_of};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::errors::ApiError;
use crate::extract::read_json;
use crate::visit::Visit;

/// What our page sends along with everything that changes something; other pages may not, without asking first.
const PAGE_HEADER: &str = "x-roost-page";

/// Most bytes of a log-in: anybody may send one, so nobody may make us keep much.
const LOGIN_LIMIT: usize = 4096;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(make_login))
}

/// Routes that need no token.
pub(crate) fn open_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(log_in, read_session, log_out))
}

/// Make a link that logs one browser in to the page, once, with the rights of whoever asks for it.
#[utoipa::path(
    post, path = "/v1/logins", tag = "tokens",
    responses(
        (status = 201, description = "The link, good for five minutes", body = LoginLink),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn make_login(api: Visit) -> Result<(StatusCode, Json<LoginLink>), ApiError> {
    Ok((StatusCode::CREATED, Json(api.visitor().make_login()?)))
}

/// Log a browser in: it gets a cookie, which counts as the token it came from. Needs no token.
#[utoipa::path(
    post, path = "/v1/session", tag = "tokens", request_body = LogIn, security(()),
    responses(
        (status = 200, description = "Logged in; the cookie is in `Set-Cookie`", body = SessionView),
        (status = 403, description = "The link was used or has expired, or the token is not valid", body = ErrorBody),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn log_in(Shared(api): Shared<Api>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    check_origin(&Method::POST, &headers)?;
    let wanted: LogIn = read_json(&headers, body, LOGIN_LIMIT).await?;
    let host = api.beyond_tokens();
    let begun = match (&wanted.code, &wanted.token) {
        (Some(code), None) => host.log_in_by_code(code).await,
        (None, Some(secret)) => host.log_in_by_token(secret).await,
        _ => return Err(ApiError::bad_request("give either `code` or `token`")),
    };
    let (session, secret) =
        begun.map_err(|error| ApiError::from(error).with_hint("`roost open` prints a link that logs a browser in"))?;
    let cookie = cookie(&secret, session.left().as_secs(), came_by_tls(&headers))?;
    Ok(([(header::SET_COOKIE, cookie), no_store()], Json(view_of(Some(&session)))).into_response())
}

/// Read whether a browser is logged in, and as whom. Needs no token.
#[utoipa::path(
    get, path = "/v1/session", tag = "tokens", security(()),
    responses(
        (status = 200, description = "Who it is", body = SessionView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn read_session(Shared(api): Shared<Api>, headers: HeaderMap) -> Result<Response, ApiError> {
    let session = match secret_of(&headers) {
        Some(secret) => api.beyond_tokens().session_of(secret).await?,
        None => None,
    };
    Ok(([no_store()], Json(view_of(session.as_ref()))).into_response())
}

/// Log a browser out: its cookie is worth nothing from now on. Needs no token.
#[utoipa::path(
    delete, path = "/v1/session", tag = "tokens", security(()),
    responses(
        (status = 204, description = "Logged out"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn log_out(Shared(api): Shared<Api>, headers: HeaderMap) -> Result<Response, ApiError> {
    check_origin(&Method::DELETE, &headers)?;
    if let Some(secret) = secret_of(&headers) {
        api.beyond_tokens().log_out(secret).await?;
    }
    let cookie = cookie("", 0, came_by_tls(&headers))?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

fn view_of(session: Option<&Session>) -> SessionView {
    SessionView {
        logged_in: session.is_some(),
        token: session.and_then(|session| Some(session.token.as_ref()?.name.clone())),
        expires_at: session.map(|session| session.expires_at),
    }
}

fn no_store() -> (header::HeaderName, HeaderValue) {
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

fn cookie(secret: &str, seconds: u64, by_tls: bool) -> Result<HeaderValue, ApiError> {
    let (name, secure) = if by_tls { (SECURE_SESSION_COOKIE, "; Secure") } else { (SESSION_COOKIE, "") };
    let text = format!("{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
}

/// The secret in the cookie of a browser, if it has one. Over TLS only the cookie that no other host can have set.
pub(crate) fn secret_of(headers: &HeaderMap) -> Option<&str> {
    let wanted = if came_by_tls(headers) { SECURE_SESSION_COOKIE } else { SESSION_COOKIE };
    std::str::from_utf8(cookie_of(headers, wanted)?).ok()
}

/// Refuses what a page other than our own may have made a browser ask.
pub(crate) fn check_origin(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let refuse =
        |why: &str| Err(ApiError::new(ErrorCode::Forbidden, format!("{why}, so the browser's login does not count")));
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let origin = text("origin");
    // An address that was typed or opened from a bookmark comes from nowhere.
    let from_elsewhere = text("sec-fetch-site").is_some_and(|site| !["same-origin", "none"].contains(&site));
    let foreign = origin.is_some_and(|origin| Some(origin) != own_origin(headers, origin).as_deref());
    if from_elsewhere || foreign {
        return refuse("another page asks");
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    let upgrades = headers.contains_key(header::UPGRADE);
    if upgrades && origin.is_none() {
        return refuse("a WebSocket without an origin");
    }
    if changes && text(PAGE_HEADER).is_none() {
        return refuse("this changes something and has no `X-Roost-Page`");
    }
    Ok(())
}

/// What the origin of our page is, for who asks for us by this name. The scheme is the browser's own matter.
fn own_origin(headers: &HeaderMap, origin: &str) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let scheme = origin.parse::<Uri>().ok()?.scheme_str()?.to_owned();
    Some(format!("{scheme}://{}", host.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn passes(method: &Method, pairs: &[(&'static str, &'static str)]) -> bool {
        let mut pairs = pairs.to_vec();
        pairs.push(("host", "boxes.example.com"));
        check_origin(method, &headers(&pairs)).is_ok()
    }

    const OWN: (&str, &str) = ("origin", "https://boxes.example.com");
    const PAGE: (&str, &str) = ("x-roost-page", "1");

    #[test]
    fn only_our_own_page_counts() {
        assert!(passes(&Method::GET, &[]));
        assert!(passes(&Method::GET, &[("sec-fetch-site", "same-origin")]));
        assert!(passes(&Method::GET, &[("sec-fetch-site", "none")]));
        assert!(passes(&Method::POST, &[OWN, PAGE, ("sec-fetch-site", "same-origin")]));
        for foreign in ["https://3000-web.boxes.example.com", "https://evil.test", "null", "boxes.example.com"] {
            assert!(!passes(&Method::GET, &[("origin", foreign)]), "{foreign}");
            assert!(!passes(&Method::POST, &[("origin", foreign), PAGE]), "{foreign}");
        }
        for site in ["same-site", "cross-site"] {
            assert!(!passes(&Method::GET, &[("sec-fetch-site", site)]), "{site}");
        }
    }

    #[test]
    fn what_changes_something_says_that_it_is_ours() {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(!passes(&method, &[OWN]), "{method}");
            assert!(passes(&method, &[OWN, PAGE]), "{method}");
        }
        assert!(!passes(&Method::GET, &[("upgrade", "websocket")]), "a WebSocket has an origin");
        assert!(passes(&Method::GET, &[("upgrade", "websocket"), OWN]));
    }

    #[test]
    fn the_cookie_is_found_by_its_name() {
        let cookies = "a=1; roost_session=rss_1; __Host-roost_session=rss_2";
        assert_eq!(secret_of(&headers(&[("cookie", cookies)])), Some("rss_1"));
        assert_eq!(secret_of(&headers(&[("cookie", cookies), ("x-forwarded-proto", "https")])), Some("rss_2"));
        assert_eq!(secret_of(&headers(&[("cookie", "xroost_session=rss_1")])), None);
        let beside = HeaderValue::from_bytes(b"x=\xe9; roost_session=rss_1").unwrap();
        assert_eq!(
            secret_of(&HeaderMap::from_iter([(header::COOKIE, beside)])),
            Some("rss_1"),
            "beside a cookie that is no text"
        );
        let made = cookie("rss_3", 60, true).unwrap();
        assert_eq!(made, "__Host-roost_session=rss_3; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure");
        assert!(!cookie("rss_3", 60, false).unwrap().to_str().unwrap().contains("Secure"));
    }
}
