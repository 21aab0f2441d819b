//! One call to a sandbox's envd, authorised.

use std::future::Future;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use roost_host::Handle;

use crate::E2b;
use crate::error::E2bError;

/// What a route of envd is given; an extractor.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) e2b: E2b,
    /// The sandbox. It may be asleep in RAM: whatever is asked of its handle wakes it.
    pub(crate) handle: Handle,
    /// Whom the caller wants to be; the sandbox's default user if it does not say.
    pub(crate) user: Option<String>,
    /// Whether it showed the sandbox's access token. Only `/files` and `/health` are reached without.
    pub(crate) trusted: bool,
}

impl Call {
    pub(crate) fn new(e2b: E2b, handle: Handle, headers: &HeaderMap, trusted: bool) -> Self {
        Self { e2b, handle, user: basic_user(headers), trusted }
    }

    /// Resolves when nothing more can come from the sandbox: it was ended, put to a sleep that stays, or the daemon stops.
    ///
    /// A stream that is cut by this must be broken off, with an error in its body: clients take a clean end for the end of
    /// what they asked for.
    pub(crate) fn cut(&self) -> impl Future<Output = ()> + Send + 'static {
        let (handle, closing) = (self.handle.clone(), self.e2b.closing().clone());
        async move {
            tokio::select! {
                () = handle.ended() => {}
                () = closing.cancelled() => {}
            }
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Call {
    type Rejection = E2bError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, E2bError> {
        let call = parts.extensions.get::<Self>().cloned();
        call.ok_or_else(|| E2bError::not_found("this address is that of a sandbox"))
    }
}

/// The user of `Authorization: Basic base64("<user>:")`.
fn basic_user(headers: &HeaderMap) -> Option<String> {
    let (scheme, secret) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let plain = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(secret.trim()).ok()).flatten()?;
    let text = String::from_utf8(plain).ok()?;
    let user = text.split(':').next().unwrap_or_default();
    (!user.is_empty()).then(|| user.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_comes_by_basic_authentication() {
        let user = |value: &str| basic_user(&HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]));
        assert_eq!(user("Basic cm9vdDo=").as_deref(), Some("root"));
        for other in ["Basic Og==", "Basic %", "Bearer cm9vdDo=", "Basic"] {
            assert_eq!(user(other), None, "{other}");
        }
    }
}
