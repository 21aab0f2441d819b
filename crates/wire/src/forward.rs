//! Connections beyond the sandbox's own ports: to other addresses and sockets as seen from inside, and from listeners inside
//! to somebody outside.

use serde::{Deserialize, Serialize};

/// One end of a connection, as processes inside name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// An address and a port; names are not looked up.
    Tcp {
        /// IPv4 or IPv6.
        address: std::net::IpAddr,
        /// The port; 0 lets the kernel choose where one is listened on.
        port: u16,
    },
    /// A socket in the file system.
    Unix {
        /// Absolute path.
        path: String,
    },
}

/// Asks for a connection to something that processes inside can reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connect {
    /// Where to.
    pub to: Endpoint,
}

/// Asks the guest to listen for as long as the connection that asks is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// Where.
    pub at: Endpoint,
}

/// A listener that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Names it in [`TakeArrival`].
    pub listener: u64,
    /// Its port; 0 for a socket in the file system.
    pub port: u16,
}

/// Somebody inside has connected to a listener and waits to be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Names it in [`TakeArrival`].
    pub number: u64,
    /// Address of whoever connected; empty where there is none.
    #[serde(default)]
    pub from: String,
    /// Its port.
    #[serde(default)]
    pub port: u16,
}

/// Asks for a connection that has come to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeArrival {
    /// Of which listener.
    pub listener: u64,
    /// Which one.
    pub number: u64,
}
