//! Where the daemon is and how to reach it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::ClientError;
use crate::tls::Tls;

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
        /// Whether TLS is spoken there.
        tls: bool,
    },
}

impl Address {
    /// Reads `http[s]://host[:port][/prefix]`.
    pub(crate) fn from_url(url: &str) -> Result<Self, ClientError> {
        let wrong = |problem| ClientError::Address { given: url.to_owned(), problem };
        let (tls, rest) = match url.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(wrong("only http:// and https:// are understood")),
            None => (false, url),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let uri: hyper::Uri = format!("http://{authority}/").parse().map_err(|_| wrong("it is not a URL"))?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("the host is missing"))?;
        let prefix = path.trim_end_matches('/');
        if prefix.contains(['?', '#']) {
            return Err(wrong("a query has no place in it"));
        }
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self::Tcp { authority: format!("{host}:{port}"), prefix: prefix.to_owned(), tls })
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
    pub(crate) async fn connect(&self, tls: Option<&Tls>) -> Result<Box<dyn Transport>, ClientError> {
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, self.open(tls)).await;
        let timed_out = || Err(io::Error::from(io::ErrorKind::TimedOut));
        opened.unwrap_or_else(|_| timed_out()).map_err(|source| ClientError::Connect { place: self.place(), source })
    }

    async fn open(&self, tls: Option<&Tls>) -> io::Result<Box<dyn Transport>> {
        Ok(match self {
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Self::Tcp { authority, .. } => {
                let stream = TcpStream::connect(authority.as_str()).await?;
                // Key strokes and small frames must not wait for each other's acknowledgements.
                stream.set_nodelay(true)?;
                match tls {
                    Some(tls) => Box::new(tls.connect(stream).await?),
                    None => Box::new(stream),
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(authority: &str, prefix: &str) -> Address {
        Address::Tcp { authority: authority.to_owned(), prefix: prefix.to_owned(), tls: false }
    }

    #[test]
    fn urls_are_read() {
        assert_eq!(Address::from_url("http://127.0.0.1:7077").unwrap(), tcp("127.0.0.1:7077", ""));
        assert_eq!(Address::from_url("localhost:7077/").unwrap(), tcp("localhost:7077", ""));
        assert_eq!(Address::from_url("http://box/roost/").unwrap(), tcp("box:80", "/roost"));
        assert_eq!(Address::from_url("http://[::1]:1").unwrap(), tcp("[::1]:1", ""));
        let secure =
            |authority: &str| Address::Tcp { authority: authority.to_owned(), prefix: String::new(), tls: true };
        assert_eq!(Address::from_url("https://box").unwrap(), secure("box:443"));
        assert_eq!(Address::from_url("https://box:7077/").unwrap(), secure("box:7077"));
    }

    #[test]
    fn nonsense_is_refused() {
        for url in ["https://", "ftp://a", "http://", "http://a b", "http://a/?q", ""] {
            assert!(Address::from_url(url).is_err(), "{url}");
        }
    }
}
