//! What a handler gets instead of the host: the API for whoever asks.
//!
//! There is no other way from a handler to the host, so that a limited token is limited on every route: what is not
//! offered to it expressly is refused.

use std::ops::Deref;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use roost_host::{Caller, Handle, Host, Visitor};
use roost_model::ErrorCode;

use crate::Api;
use crate::errors::ApiError;

/// The API for one request.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    api: Api,
    visitor: Visitor,
}

impl Visit {
    /// The host, as far as whoever asks may see it.
    pub(crate) fn visitor(&self) -> &Visitor {
        &self.visitor
    }

    /// The whole host, for those without limits; `what` reads on after `this token is limited, and cannot`.
    pub(crate) fn host(&self, what: &str) -> Result<&Host, ApiError> {
        Ok(self.visitor.host(what)?)
    }

    /// A sandbox that is not gone.
    pub(crate) fn living(&self, name: &str) -> Result<Handle, ApiError> {
        Ok(self.visitor.living(name)?)
    }
}

impl Deref for Visit {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

impl FromRequestParts<Api> for Visit {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        // A route before which nobody asked for access is closed.
        let unknown = || ApiError::new(ErrorCode::Unauthorized, "nobody has said who asks");
        let caller = parts.extensions.get::<Caller>().ok_or_else(unknown)?;
        Ok(Self { visitor: api.visitor(caller.clone()), api: api.clone() })
    }
}
