//! The Model Context Protocol on the host's handle: tools and resources with which an agent uses its computers.
//!
//! One server, two ways to it: `/mcp` is the protocol's streamable HTTP, and the same address turns a connection into a
//! line of JSON messages for `roost mcp`, which carries them between a client's pipes and the daemon. Whoever asks is known
//! by the [`roost_host::Caller`] that the listener put into the request, and every tool works for that caller alone.
#![forbid(unsafe_code)]

mod answer;
mod call;
mod door;
mod resources;
mod server;
mod text;
mod tools;

pub use door::{LINE_PROTOCOL, PATH, routes};
