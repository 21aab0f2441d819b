//! Refusals: a page for browsers, JSON for everybody else.

use axum::body::Body;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{Response, StatusCode};
use roost_host::HostError;
use roost_model::{ErrorBody, ErrorCode, ErrorDetail, chain};

use crate::headers::ERROR_HEADER;

/// Why a request did not reach its port, or got no answer there.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    body: ErrorBody,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let error = ErrorDetail { code, message: message.into(), hint: None };
        Self { status: status_of(code), body: ErrorBody { error, sandbox: None } }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.body.error.hint = Some(hint.into());
        self
    }

    /// Leaves out what only those may know who may see the sandboxes.
    pub(crate) fn for_strangers(mut self) -> Self {
        if matches!(self.body.error.code, ErrorCode::SandboxNotFound | ErrorCode::SandboxTerminated) {
            self.body.error.hint = None;
        }
        if let Some(gone) = self.body.sandbox.take() {
            self.body.error.message = format!("sandbox `{}` is gone", gone.name);
        }
        self
    }

    /// What it says to people.
    pub fn message(&self) -> &str {
        &self.body.error.message
    }

    /// Why, in a word.
    pub fn code(&self) -> ErrorCode {
        self.body.error.code
    }

    /// The status it is answered with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether whoever asks wants a page: browsers name HTML first; programs that take anything get JSON.
    pub fn wants_page(headers: &HeaderMap) -> bool {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut kinds = accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
        kinds.any(|kind| kind.eq_ignore_ascii_case("text/html"))
    }

    /// The answer, as a page or as JSON.
    pub fn into_response(self, page: bool) -> Response<Body> {
        let (kind, text) = if page {
            ("text/html; charset=utf-8", html(self.status, &self.body.error))
        } else {
            ("application/json", serde_json::to_string(&self.body).unwrap_or_default())
        };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // Whoever reads an answer can tell ours from the sandbox's.
        headers.insert(ERROR_HEADER, HeaderValue::from_static(self.body.error.code.as_str()));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"roost\""));
        }
        response
    }
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        let code = error.code();
        if code == ErrorCode::Internal {
            tracing::error!(error = %chain(&error), "a request to a port failed");
        }
        let mut refusal = Self::new(code, error.to_string());
        refusal.body.error.hint = error.hint();
        refusal.body.sandbox = error.sandbox().cloned().map(Box::new);
        refusal
    }
}

/// The statuses of the codes that can be met on the way to a port.
fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadRequest | ErrorCode::InvalidName => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::SandboxNotFound => StatusCode::NOT_FOUND,
        ErrorCode::SandboxTerminated => StatusCode::GONE,
        ErrorCode::PortClosed
        | ErrorCode::ServiceFailed
        | ErrorCode::GuestReplyTooLarge
        | ErrorCode::GuestReplyInvalid => StatusCode::BAD_GATEWAY,
        ErrorCode::LimitExceeded | ErrorCode::ImageBudgetExceeded | ErrorCode::RateLimited => {
            StatusCode::TOO_MANY_REQUESTS
        }
        ErrorCode::Conflict | ErrorCode::HostFull | ErrorCode::SandboxAsleep | ErrorCode::GuestLost => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ErrorCode::MemoryNotSaved | ErrorCode::ImageIncompatible | ErrorCode::EngineUnfit => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn html(status: StatusCode, error: &ErrorDetail) -> String {
    let hint = error.hint.as_ref().map_or_else(String::new, |hint| format!("<p>{}</p>", marked_up(hint)));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:15vh auto;padding:0 1em;color-scheme:\
         light dark}}h1{{font-size:1.3em}}code{{font-family:ui-monospace,monospace}}small{{opacity:.6}}</style></head>\
         <body><h1>{message}</h1>{hint}<p><small>Roost: {code} ({number})</small></p></body></html>\n",
        title = escaped(error.code.as_str()),
        message = marked_up(&error.message),
        code = error.code,
        number = status.as_u16(),
    )
}

/// Text with its `code` set as such.
fn marked_up(text: &str) -> String {
    let pieces = escaped(text);
    let mut out = String::with_capacity(pieces.len() + 32);
    for (index, piece) in pieces.split('`').enumerate() {
        if index > 0 {
            out.push_str(if index % 2 == 1 { "<code>" } else { "</code>" });
        }
        out.push_str(piece);
    }
    if pieces.matches('`').count() % 2 == 1 {
        out.push_str("</code>");
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn shown(refusal: Refusal, accept: &str) -> (StatusCode, String, String) {
        let asked = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
        let response = refusal.into_response(Refusal::wants_page(&asked));
        let kind = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    fn closed() -> Refusal {
        HostError::PortClosed { sandbox: "web".to_owned(), port: 80, listening: vec![3000, 8000] }.into()
    }

    #[tokio::test]
    async fn a_browser_gets_a_page_and_everybody_else_json() {
        let (status, kind, page) = shown(closed(), "text/html,application/xhtml+xml,*/*;q=0.8").await;
        assert_eq!((status.as_u16(), kind.as_str()), (502, "text/html; charset=utf-8"));
        assert!(page.contains("nothing listens on port 80 in sandbox <code>web</code>"), "{page}");
        assert!(page.contains("3000, 8000"), "{page}");
        for accept in ["*/*", "application/json", ""] {
            let (_, kind, text) = shown(closed(), accept).await;
            let body: ErrorBody = serde_json::from_str(&text).unwrap();
            assert_eq!((kind.as_str(), body.error.code), ("application/json", ErrorCode::PortClosed));
        }
    }

    #[tokio::test]
    async fn a_page_shows_what_it_is_given_and_runs_none_of_it() {
        let (_, _, page) = shown(Refusal::bad_request("`<script>alert(1)</script>"), "text/html").await;
        assert!(page.contains("<code>&lt;script&gt;alert(1)&lt;/script&gt;</code>"), "{page}");
    }

    #[test]
    fn strangers_are_not_told_what_else_there_is() {
        let error = HostError::SandboxNotFound { name: "wbe".to_owned(), similar: Some("web".to_owned()) };
        assert_eq!(Refusal::from(error).for_strangers().body.error.hint, None);
        assert!(
            Refusal::from(HostError::PortClosed { sandbox: "web".to_owned(), port: 80, listening: vec![] })
                .for_strangers()
                .body
                .error
                .hint
                .is_some()
        );
    }
}
