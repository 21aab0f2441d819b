//! Who may ask: whoever can open the socket, or whoever has a token.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use roost_model::ErrorCode;

use crate::Api;
use crate::errors::ApiError;

/// Lets a request through that carries the secret of a token.
///
/// The secret is hashed and looked up by its hash, so the work does not depend on how much of it is right.
pub(crate) async fn require_token(State(api): State<Api>, request: Request, next: Next) -> Result<Response, ApiError> {
    let secret = bearer(request.headers())?;
    match api.host().token_of(secret).await? {
        Some(_) => Ok(next.run(request).await),
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
