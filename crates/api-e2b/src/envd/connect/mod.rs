//! The Connect protocol with JSON, as a server speaks it.
//!
//! ```text
//! unary           POST message                     -> 200 message        | 4xx, 5xx {"code","message"}
//! server stream   POST envelope                    -> 200 envelopes … end
//! client stream   POST envelopes …                 -> 200 envelope end
//! envelope        flags (1 byte) length (4, big endian) JSON
//! end             an envelope with flag 2: {} or {"error":{"code","message"}}
//! ```
//! A stream is answered with 200 also when it is refused; its end says so. One that ends without its end was broken
//! off, which is how a client hears that the other side is gone.
//!
//! A service is three things: request messages that read tolerantly (see [`json`]), answers that serialize to what
//! proto3 makes of them, and handlers for [`unary`], [`server_stream`] and [`client_stream`].

mod code;
mod envelope;
mod head;
pub(crate) mod json;
mod outgoing;
mod serve;

pub(crate) use code::{Code, ConnectError};
pub(crate) use head::Head;
pub(crate) use outgoing::{Broken, Event};
pub(crate) use serve::{Incoming, client_stream, server_stream, unary};
