//! What a handler of the control plane gets: the wire for whoever asks, as far as its token goes.

use std::ops::Deref;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use roost_host::{Caller, Handle, Host, HostError, Visitor};

use crate::E2b;
use crate::e2b::from_wire_id;
use crate::error::E2bError;

/// The wire for one request.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    e2b: E2b,
    visitor: Visitor,
}

impl Visit {
    /// The host, as far as whoever asks may see it.
    pub(crate) fn visitor(&self) -> &Visitor {
        &self.visitor
    }

    /// The whole host, for those without limits; `what` reads on after `this token is limited, and cannot`.
    pub(crate) fn host(&self, what: &str) -> Result<&Host, HostError> {
        self.visitor.host(what)
    }

    /// The sandbox that a client means: by the id it was given here, or by Roost's own id or name. One that is gone is
    /// answered by its tombstone.
    pub(crate) fn find(&self, text: &str) -> Result<Handle, HostError> {
        match from_wire_id(text) {
            Some(id) => self.visitor.living(id.as_str()),
            None => self.visitor.living(text),
        }
    }
}

impl Deref for Visit {
    type Target = E2b;

    fn deref(&self) -> &E2b {
        &self.e2b
    }
}

impl FromRequestParts<E2b> for Visit {
    type Rejection = E2bError;

    async fn from_request_parts(parts: &mut Parts, e2b: &E2b) -> Result<Self, E2bError> {
        // A route before which nobody asked for a key is closed.
        let unknown = || E2bError::unauthorized("nobody has said who asks");
        let caller = parts.extensions.get::<Caller>().ok_or_else(unknown)?;
        Ok(Self { visitor: e2b.beyond_tokens().visit(caller.clone()), e2b: e2b.clone() })
    }
}
