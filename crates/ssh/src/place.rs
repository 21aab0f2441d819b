//! Where a connection leads, and on whose behalf.

use std::net::SocketAddr;
use std::sync::Arc;

use roost_host::{Handle, HostError, Visitor};
use roost_model::CreateSandbox;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::door::Door;

/// What the name before the `@` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// `roost`: no sandbox, but all of them.
    Lobby,
    /// `new`, `new+template`: one that is made when it is needed first.
    New { template: Option<String> },
    /// A name, an id, or the beginning of one.
    Sandbox(String),
}

impl Place {
    pub(crate) fn of(user: &str) -> Self {
        match user.split_once('+') {
            None if user == "roost" => Self::Lobby,
            None if user == "new" => Self::New { template: None },
            Some(("new", template)) => Self::New { template: Some(template.to_owned()) },
            _ => Self::Sandbox(user.to_owned()),
        }
    }
}

/// A connection that was let in.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) door: Arc<Door>,
    pub(crate) visitor: Visitor,
    pub(crate) place: Place,
    pub(crate) addresses: [SocketAddr; 2],
    /// Told when the connection is over.
    pub(crate) gone: CancellationToken,
    /// What `new` has made; all sessions of the connection go there.
    made: OnceCell<Handle>,
}

/// A sandbox, and whether it was made for this.
pub(crate) struct Found {
    pub(crate) handle: Handle,
    pub(crate) is_new: bool,
}

impl Visit {
    pub(crate) fn new(
        door: Arc<Door>,
        visitor: Visitor,
        place: Place,
        addresses: [SocketAddr; 2],
        gone: CancellationToken,
    ) -> Self {
        Self { door, visitor, place, addresses, gone, made: OnceCell::new() }
    }

    /// The sandbox that the connection leads to.
    pub(crate) async fn sandbox(&self) -> Result<Found, HostError> {
        match &self.place {
            Place::Sandbox(name) => Ok(Found { handle: self.visitor.living(name)?, is_new: false }),
            Place::New { template } => {
                let is_new = !self.made.initialized();
                let make = || async {
                    let wanted = CreateSandbox { template: template.clone(), ..CreateSandbox::default() };
                    let (view, _) = self.visitor.create(wanted, None).await?;
                    self.visitor.living(view.id.as_str())
                };
                let handle = self.made.get_or_try_init(make).await?.clone();
                Ok(Found { handle, is_new })
            }
            Place::Lobby => {
                let message = "`roost` is the lobby, not a sandbox: put the name of one before the @";
                Err(HostError::BadRequest(message.to_owned()))
            }
        }
    }

    /// What programs expect to know of the line they are on.
    pub(crate) fn environment(&self) -> [(String, String); 2] {
        let [client, server] = self.addresses;
        let (from, to) = (format!("{} {}", client.ip(), client.port()), format!("{} {}", server.ip(), server.port()));
        [
            ("SSH_CLIENT".to_owned(), format!("{from} {}", server.port())),
            ("SSH_CONNECTION".to_owned(), format!("{from} {to}")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_where_they_say() {
        assert_eq!(Place::of("roost"), Place::Lobby);
        assert_eq!(Place::of("new"), Place::New { template: None });
        assert_eq!(Place::of("new+mini"), Place::New { template: Some("mini".to_owned()) });
        assert_eq!(Place::of("web"), Place::Sandbox("web".to_owned()));
        assert_eq!(Place::of("newt"), Place::Sandbox("newt".to_owned()));
    }
}
