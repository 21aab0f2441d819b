//! Where the daemon is and how to reach it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::ClientError;

/// Longer than any healthy network needs, short enough for a person who waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A byte stream to the daemon.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Where the daemon is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A unix socket, whose owner needs no token.
    Unix(PathBuf),
    /// Host and port, and the path under which the API lives there.
    Tcp {
        /// `host:port`.
        authority: String,
        /// Empty, or starts with a slash and ends without one.
        prefix: String,
    },
}

impl Address {
    /// Reads `http://host[:port][/prefix]`.
    pub(crate) fn from_url(url: &str) -> Result<Self, ClientError> {
        let wrong = |problem| ClientError::Address { given: url.to_owned(), problem };
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => {
                return Err(wrong("TLS is not spoken here, put a proxy on this side"));
            }
            Some(_) => return Err(wrong("only http:// is understood")),
            None => url,
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let uri: hyper::Uri = format!("http://{authority}/").parse().map_err(|_| wrong("it is not a URL"))?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("the host is missing"))?;
        let prefix = path.trim_end_matches('/');
        if prefix.contains(['?', '#']) {
            return Err(wrong("a query has no place in it"));
        }
        let port = uri.port_u16().unwrap_or(80);
        Ok(Self::Tcp { authority: format!("{host}:{port}"), prefix: prefix.to_owned() })
    }

    /// How people and the `Host` header call it.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Unix(path) => path.display().to_string(),
            Self::Tcp { authority, .. } => authority.clone(),
        }
    }

    /// What goes into the `Host` header.
    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Unix(_) => "roost",
            Self::Tcp { authority, .. } => authority,
        }
    }

    /// What stands before `/v1`.
    pub(crate) fn prefix(&self) -> &str {
        match self {
            Self::Unix(_) => "",
            Self::Tcp { prefix, .. } => prefix,
        }
    }

    /// Opens a new connection.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Transport>, ClientError> {
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, self.open()).await;
        let timed_out = || Err(io::Error::from(io::ErrorKind::TimedOut));
        opened.unwrap_or_else(|_| timed_out()).map_err(|source| ClientError::Connect { place: self.place(), source })
    }

    async fn open(&self) -> io::Result<Box<dyn Transport>> {
        Ok(match self {
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Self::Tcp { authority, .. } => {
                let stream = TcpStream::connect(authority.as_str()).await?;
                // Key strokes and small frames must not wait for each other's acknowledgements.
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(authority: &str, prefix: &str) -> Address {
        Address::Tcp { authority: authority.to_owned(), prefix: prefix.to_owned() }
    }

    #[test]
    fn urls_are_read() {
        assert_eq!(Address::from_url("http://127.0.0.1:7077").unwrap(), tcp("127.0.0.1:7077", ""));
        assert_eq!(Address::from_url("localhost:7077/").unwrap(), tcp("localhost:7077", ""));
        assert_eq!(Address::from_url("http://box/roost/").unwrap(), tcp("box:80", "/roost"));
        assert_eq!(Address::from_url("http://[::1]:1").unwrap(), tcp("[::1]:1", ""));
    }

    #[test]
    fn nonsense_is_refused() {
        for url in ["https://a", "ftp://a", "http://", "http://a b", "http://a/?q", ""] {
            assert!(Address::from_url(url).is_err(), "{url}");
        }
    }
}
