//! HTTP by hand, for requests that a well-behaved client would never send.

use std::path::Path;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// An answer, body and all.
#[derive(Debug)]
pub struct RawAnswer {
    /// HTTP status.
    pub status: u16,
    /// Names in lower case and values, in their order.
    pub headers: Vec<(String, String)>,
    /// Body, chunks joined.
    pub body: Vec<u8>,
}

impl RawAnswer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("the body is not JSON: {}", String::from_utf8_lossy(&self.body)))
    }
}

/// Sends one request over a unix socket.
pub async fn raw_unix(
    socket: &Path,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<RawAnswer> {
    let stream =
        UnixStream::connect(socket).await.with_context(|| format!("failed to connect to `{}`", socket.display()))?;
    exchange(stream, method, path, headers, body).await
}

/// Sends one request over TCP.
pub async fn raw_tcp(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<RawAnswer> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("failed to connect to `{address}`"))?;
    exchange(stream, method, path, headers, body).await
}

/// Sends bytes over TCP as they are, and reads the answer until the connection ends.
pub async fn raw_bytes_tcp(address: &str, bytes: &[u8]) -> Result<RawAnswer> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("failed to connect to `{address}`"))?;
    say(stream, &[bytes]).await
}

/// Sends bytes over a unix socket as they are, and reads the answer until the connection ends.
pub async fn raw_bytes_unix(socket: &Path, bytes: &[u8]) -> Result<RawAnswer> {
    let stream =
        UnixStream::connect(socket).await.with_context(|| format!("failed to connect to `{}`", socket.display()))?;
    say(stream, &[bytes]).await
}

/// Sends one request over a connection that is there.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<RawAnswer> {
    let length = body.len();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let host = if headers.iter().any(|(name, _)| *name == "host") { "" } else { "host: localhost\r\n" };
    let head = format!("{method} {path} HTTP/1.1\r\n{host}connection: close\r\ncontent-length: {length}\r\n{more}\r\n");
    say(stream, &[head.as_bytes(), body]).await.with_context(|| format!("{method} {path}"))
}

async fn say<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, pieces: &[&[u8]]) -> Result<RawAnswer> {
    // A server that refuses what is too large may answer and close before it has read all of it: the answer counts.
    let sent = async {
        for piece in pieces {
            stream.write_all(piece).await?;
        }
        // TLS takes more than it has sent, and keeps the rest until it is told not to.
        stream.flush().await
    };
    let sent = sent.await;
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes).await {
        Ok(_) => {}
        Err(_) if !bytes.is_empty() => {}
        Err(error) => return Err(error).with_context(|| format!("no answer (sent: {sent:?})")),
    }
    parse(&bytes).context("failed to read the answer")
}

fn parse(bytes: &[u8]) -> Result<RawAnswer> {
    let end = find(bytes, b"\r\n\r\n").context("the head has no end")?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("the head has no status")?;
    let rest = &bytes[end + 4..];
    let chunked = head.lines().any(|line| line.to_ascii_lowercase().starts_with("transfer-encoding: chunked"));
    let body = if chunked { join_chunks(rest)? } else { rest.to_vec() };
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers = head.lines().skip(1).filter_map(header).collect();
    Ok(RawAnswer { status, headers, body })
}

fn join_chunks(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = find(rest, b"\r\n").context("a chunk has no size")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line])?.trim(), 16)
            .context("a chunk's size is no number")?;
        if size == 0 {
            return Ok(body);
        }
        let chunk = rest.get(line + 2..line + 2 + size).context("a chunk is cut short")?;
        body.extend_from_slice(chunk);
        rest = rest.get(line + 4 + size..).context("a chunk has no end")?;
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_with_and_without_chunks() {
        let plain = parse(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").unwrap();
        assert_eq!((plain.status, plain.body.as_slice()), (404, b"no".as_slice()));
        let chunked =
            parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n").unwrap();
        assert_eq!(chunked.body, b"abc");
        assert!(parse(b"nonsense").is_err());
    }
}
