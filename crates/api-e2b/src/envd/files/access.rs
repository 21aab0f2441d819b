//! Who may: whoever shows the sandbox's token, or a link that was signed with it.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use jiff::Timestamp;
use roost_host::{Handle, UserFiles};
use serde::Deserialize;

use crate::E2b;
use crate::envd::{Call, TOKEN_HEADER};
use crate::error::E2bError;
use crate::token::{Signed, access_token, same};

/// What a link says.
#[derive(Debug, Default, Deserialize)]
struct Link {
    path: Option<String>,
    username: Option<String>,
    signature: Option<String>,
    signature_expiration: Option<i64>,
}

impl Link {
    fn read(uri: &Uri) -> Result<Self, E2bError> {
        let read = Query::<Self>::try_from_uri(uri);
        let Query(mut link) = read.map_err(|error| E2bError::bad_request(format!("the address is wrong: {error}")))?;
        // One that was not escaped has lost its pluses on the way.
        link.signature = link.signature.map(|signature| signature.replace(' ', "+"));
        Ok(link)
    }

    /// What must have been signed.
    fn signed(&self, method: &Method) -> Signed<'_> {
        let reads = *method == Method::GET || *method == Method::HEAD;
        Signed {
            path: self.path.as_deref().unwrap_or_default(),
            operation: if reads { "read" } else { "write" },
            user: self.username.as_deref().unwrap_or_default(),
            expiration: self.signature_expiration,
        }
    }

    /// Whether the signature is that of a sandbox.
    fn check(&self, method: &Method, token: &str, now: Timestamp) -> Result<(), E2bError> {
        let Some(signature) = &self.signature else {
            return Err(E2bError::unauthorized("missing signature query parameter"));
        };
        if !same(&self.signed(method).by(token), signature) {
            return Err(E2bError::unauthorized("invalid signature"));
        }
        match self.signature_expiration {
            Some(end) if end < now.as_second() => Err(E2bError::unauthorized("signature is already expired")),
            _ => Ok(()),
        }
    }
}

/// The sandbox whose token signed a link.
pub(crate) fn signer(e2b: &E2b, head: &Parts) -> Result<Handle, E2bError> {
    let link = Link::read(&head.uri)?;
    let Some(signature) = &link.signature else {
        return Err(E2bError::unauthorized("missing signature query parameter"));
    };
    let signed = link.signed(&head.method);
    let mut living = e2b.beyond_tokens().handles().into_iter();
    let found = living.find(|handle| same(&signed.by(&access_token(e2b.beyond_tokens(), handle.id())), signature));
    found.ok_or_else(|| E2bError::unauthorized("no sandbox here has signed this link"))
}

/// A call that may use files; an extractor.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) call: Call,
    /// The path of the address, if it names one.
    pub(super) path: Option<String>,
    user: Option<String>,
}

impl Access {
    /// The files as the caller's user means them.
    pub(super) fn files(&self) -> UserFiles<'_> {
        self.call.handle.files_of(self.user.as_deref())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Access {
    type Rejection = E2bError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, E2bError> {
        let call = Call::from_request_parts(parts, state).await?;
        let link = Link::read(&parts.uri)?;
        let token = access_token(call.e2b.beyond_tokens(), call.handle.id());
        match parts.headers.get(TOKEN_HEADER).map(|value| value.to_str().unwrap_or_default()) {
            Some(shown) if same(shown, &token) => {}
            Some(_) => return Err(E2bError::unauthorized("access token present in header but does not match")),
            None if call.trusted => {}
            None => link.check(&parts.method, &token, Timestamp::now())?,
        }
        let named = link.username.filter(|name| !name.is_empty());
        Ok(Self { user: named.or_else(|| call.user.clone()), path: link.path, call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(query: &str) -> Link {
        Link::read(&format!("/files?{query}").parse().unwrap()).unwrap()
    }

    fn checked(query: &str, method: Method) -> Result<(), String> {
        let now = Timestamp::from_second(1000).unwrap();
        link(query).check(&method, "tok", now).map_err(|error| format!("{} {}", error.status(), error.message()))
    }

    fn signature(operation: &'static str, expiration: Option<i64>) -> String {
        let signature = Signed { path: "/a b", operation, user: "user", expiration }.by("tok");
        signature.replace('+', "%2B").replace('/', "%2F")
    }

    #[test]
    fn a_link_is_good_for_what_it_was_signed_for() {
        let query = format!("path=%2Fa%20b&username=user&signature={}", signature("read", None));
        assert_eq!(checked(&query, Method::GET), Ok(()));
        assert_eq!(checked(&query, Method::HEAD), Ok(()));
        let refused = Err("401 Unauthorized invalid signature".to_owned());
        assert_eq!(checked(&query, Method::POST), refused);
        for other in [query.replace("b&", "c&"), query.replace("user&", "root&"), format!("{query}x")] {
            assert_eq!(checked(&other, Method::GET), refused, "{other}");
        }
        assert_eq!(checked(&format!("{query}&signature_expiration=2000"), Method::GET), refused);
        assert!(checked("path=a", Method::GET).unwrap_err().contains("missing signature"));
    }

    #[test]
    fn a_link_that_has_expired_says_so() {
        let query = |end| {
            let signature = signature("write", Some(end));
            format!("path=/a+b&username=user&signature={signature}&signature_expiration={end}")
        };
        assert_eq!(checked(&query(1000), Method::POST), Ok(()));
        let expired = Err("401 Unauthorized signature is already expired".to_owned());
        assert_eq!(checked(&query(999), Method::POST), expired);
    }

    #[test]
    fn pluses_that_were_not_escaped_are_put_back() {
        assert_eq!(link("signature=v1_a+b%2Bc/d").signature.as_deref(), Some("v1_a+b+c/d"));
        assert!(Link::read(&"/files?signature_expiration=soon".parse().unwrap()).is_err());
    }
}
