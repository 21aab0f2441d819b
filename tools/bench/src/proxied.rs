//! A request to a port of a sandbox, as a user's browser makes it: through the daemon, which wakes whoever sleeps.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::DEFAULT_SOCKET;

/// One request on a connection of its own, and how long it took until all of the answer was there, which has to have this body.
pub(crate) fn request(name: &str, port: u16, body: &str) -> Result<Duration> {
    let began = Instant::now();
    let mut stream = UnixStream::connect(socket()).context("failed to connect to the daemon")?;
    write!(stream, "GET /v1/sandboxes/{name}/ports/{port}/ HTTP/1.1\r\nHost: roost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let took = began.elapsed();
    // It stands on a line of its own, whether it came in pieces or not; a header does not.
    let fits = answer.starts_with("HTTP/1.1 200") && answer.contains(&format!("\r\n{body}"));
    ensure!(fits, "the port answered {answer:?}");
    Ok(took)
}

/// Where the daemon listens.
pub(crate) fn socket() -> PathBuf {
    std::env::var_os("ROOST_SOCKET").filter(|value| !value.is_empty()).map_or_else(|| DEFAULT_SOCKET.into(), Into::into)
}
