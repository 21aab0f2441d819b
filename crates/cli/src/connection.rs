//! Which daemon a command talks to.

use std::env;
use std::path::PathBuf;

use roost_client::{Client, ClientError};

use crate::args::{ConnectionArgs, SettingArgs};
use crate::config;

/// The client that flags and environment ask for: flags first, then `ROOST_URL`, then the socket of the daemon's own
/// settings.
pub(crate) fn connect(wanted: &ConnectionArgs) -> Result<Client, ClientError> {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(socket) = &wanted.socket {
        return Ok(Client::unix(socket));
    }
    if let Some(url) = wanted.url.clone().or_else(|| set("ROOST_URL")) {
        let token = wanted.token.clone().or_else(|| set("ROOST_TOKEN"));
        let ca = wanted.ca.clone().or_else(|| set("ROOST_CA").map(PathBuf::from));
        return Client::trusting(&url, token.as_deref(), ca.as_deref());
    }
    match config::load(&SettingArgs::default(), None, &set) {
        Ok(loaded) => Ok(Client::unix(loaded.config.socket)),
        // The daemon's file may not be ours to read, or be broken; neither concerns a client.
        Err(_) => Client::from_env(),
    }
}
