//! Who may ask: whoever can open the socket, whoever has a token, or a browser that has logged in.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use roost_host::Caller;
use roost_model::ErrorCode;
use roost_proxy::Standing;

use crate::Api;
use crate::errors::ApiError;
use crate::session;

/// Lets a request through that carries the secret of a token, or the cookie of a session and comes from our own page; as far
/// as that token goes.
///
/// Secrets are hashed and looked up by their hashes, so the work does not depend on how much of one is right.
pub(crate) async fn require_token(
    State(api): State<Api>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let caller = caller(&api, request.method(), request.headers()).await?;
    request.extensions_mut().insert(caller);
    Standing::note_known(request.extensions());
    Ok(next.run(request).await)
}

async fn caller(api: &Api, method: &Method, headers: &HeaderMap) -> Result<Caller, ApiError> {
    // Whoever shows a token means it; a cookie comes along by itself.
    if !headers.contains_key(header::AUTHORIZATION)
        && let Some(secret) = session::secret_of(headers)
    {
        let found = api.beyond_tokens().session_of(secret).await?;
        let over = || {
            ApiError::new(ErrorCode::Unauthorized, "this browser is not logged in any more")
                .with_hint("`roost open` prints a link that logs it in")
        };
        session::check_origin(method, headers)?;
        return Ok(found.ok_or_else(over)?.token.as_ref().map_or_else(Caller::session, Caller::from));
    }
    match api.beyond_tokens().token_of(bearer(headers)?).await? {
        Some(token) => Ok(Caller::from(&token)),
        None => Err(ApiError::new(ErrorCode::Unauthorized, "this token is not valid").with_hint(HINT)),
    }
}

const HINT: &str = "`roost token new` makes a token";

fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let missing =
        || ApiError::new(ErrorCode::Unauthorized, "a token is needed: `Authorization: Bearer …`").with_hint(HINT);
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).ok_or_else(missing)?;
    match value.split_once(' ') {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case("bearer") && !secret.trim().is_empty() => {
            Ok(secret.trim())
        }
        _ => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret_of(value: &str) -> Option<String> {
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        bearer(&headers).ok().map(str::to_owned)
    }

    #[test]
    fn only_a_bearer_token_counts() {
        assert_eq!(secret_of("Bearer rst_1").as_deref(), Some("rst_1"));
        assert_eq!(secret_of("bearer  rst_1").as_deref(), Some("rst_1"));
        for other in ["Basic cm9vdDo=", "Bearer", "Bearer ", "rst_1"] {
            assert_eq!(secret_of(other), None, "{other}");
        }
        assert_eq!(bearer(&HeaderMap::new()).unwrap_err().status(), 401);
    }
}
