//! Who may ask the control plane: holders of a token of Roost's, as E2B's clients carry it.

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;
use roost_host::Caller;
use roost_proxy::Standing;

use crate::E2b;
use crate::error::E2bError;

/// Lets a request through that carries the secret of a token, as far as that token goes.
pub(crate) async fn require_key(
    State(e2b): State<E2b>,
    mut request: Request,
    next: Next,
) -> Result<Response, E2bError> {
    let Some(secret) = key(request.headers()).map(str::to_owned) else {
        return Err(E2bError::unauthorized("an API key is needed: `roost token new` makes one"));
    };
    match e2b.beyond_tokens().token_of(&secret).await? {
        Some(token) => {
            request.extensions_mut().insert(Caller::from(&token));
            Standing::note_known(request.extensions());
            Ok(next.run(request).await)
        }
        None => Err(E2bError::unauthorized("this API key is not valid: `roost token new` makes one")),
    }
}

/// The key; some of E2B's own tools send it as a bearer token.
fn key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = || {
        let (scheme, secret) = text(AUTHORIZATION.as_str())?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(secret)
    };
    text("x-api-key").or_else(bearer).map(str::trim).filter(|secret| !secret.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_in_either_header() {
        let headers =
            |name: &'static str, value: &str| HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        assert_eq!(key(&headers("x-api-key", "rst_1")), Some("rst_1"));
        assert_eq!(key(&headers("authorization", "Bearer rst_1")), Some("rst_1"));
        assert_eq!(key(&headers("authorization", "Basic dXNlcjo=")), None);
        assert_eq!(key(&headers("x-api-key", "")), None);
    }
}
