//! The one place where the proxy says that a sandbox is in use.

use roost_host::{Busy, Handle};
use roost_model::Signal;

/// Somebody uses a port of a sandbox for as long as this lives.
#[derive(Debug)]
pub(crate) struct InUse {
    _busy: Busy,
}

/// A request that waits for its answer; raised before the sandbox is looked at. One that is put to sleep by hand wakes again
/// for it.
pub(crate) fn in_use(sandbox: &Handle, port: u16) -> InUse {
    InUse { _busy: sandbox.request(format!("port {port}")) }
}

/// A client that is connected, to a stream of answers or a tunnel; raised before the request's guard goes.
pub(crate) fn connected(sandbox: &Handle, port: u16) -> InUse {
    InUse { _busy: sandbox.busy(Signal::Connections, format!("connection to port {port}")) }
}
