//! Ports of sandboxes as the outside sees them: addresses, access and links.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Name, Span};

/// Who may reach a port from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortAccess {
    /// Holders of a token or of a link.
    #[default]
    Private,
    /// Everybody who reaches the daemon.
    Public,
}

impl fmt::Display for PortAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Private => "private",
            Self::Public => "public",
        })
    }
}

/// What was decided about one port of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRule {
    /// The port.
    pub port: u16,
    /// Who may reach it.
    #[serde(default)]
    pub access: PortAccess,
    /// Counts how often its links were taken back.
    #[serde(default)]
    pub links: u64,
}

/// A port of a sandbox: one that listens inside, or one about which something was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortView {
    /// The port.
    pub port: u16,
    /// The address it listens on; nothing if it does not listen now, or that is not known.
    #[serde(default)]
    pub address: Option<String>,
    /// The process that listens, where it can be told.
    #[serde(default)]
    pub process: Option<String>,
    /// Where it is reached from outside, if the daemon serves HTTP.
    #[serde(default)]
    pub url: Option<String>,
    /// Who may reach it there.
    #[serde(default)]
    pub access: PortAccess,
}

/// Decides who may reach a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPort {
    /// Who; `private` also takes back every link that was given before.
    pub access: PortAccess,
}

/// Asks for a link to a private port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeLink {
    /// How long it is good for; an hour if absent.
    #[serde(default = "an_hour")]
    pub expires: Span,
}

impl Default for MakeLink {
    fn default() -> Self {
        Self { expires: an_hour() }
    }
}

fn an_hour() -> Span {
    Span::seconds(3600)
}

/// A link that opens a private port to whoever has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortLink {
    /// The link itself, if the daemon serves HTTP.
    pub url: Option<String>,
    /// The same below the daemon's own address.
    pub path: String,
    /// When it stops to open anything.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

/// A text that is no port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a port: write a number from 1 to 65535")]
pub struct PortError(pub String);

/// Reads a port.
pub fn parse_port(text: &str) -> Result<u16, PortError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.then(|| text.parse().ok()).flatten().filter(|port| *port != 0);
    port.ok_or_else(|| PortError(text.to_owned()))
}

/// The domain below which ports are served: `localhost:7077`, or `https://boxes.example.com` behind a proxy with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    scheme: &'static str,
    /// Host and perhaps port, in lower case.
    authority: String,
}

/// A text that is no domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a domain: write for example `localhost:7077` or `https://boxes.example.com`")]
pub struct DomainError(pub String);

impl Domain {
    /// The address of a port.
    pub fn url(&self, port: u16, name: &Name) -> String {
        format!("{}://{port}-{name}.{}", self.scheme, self.authority)
    }

    /// The daemon's own address.
    pub fn own_url(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    /// Host and perhaps port, as they stand in an address.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    fn host(&self) -> &str {
        host_of(&self.authority)
    }

    /// The port and the sandbox that a `Host` header names, as they are written there.
    ///
    /// The port of the header itself does not matter: behind a proxy it is another one than ours.
    pub fn split<'a>(&self, host: &'a str) -> Option<(&'a str, &'a str)> {
        let host = host_of(host);
        let label = host.len().checked_sub(self.host().len() + 1)?;
        let (label, rest) = (host.get(..label)?, host.get(label..)?);
        let below = rest.strip_prefix('.').is_some_and(|rest| rest.eq_ignore_ascii_case(self.host()));
        let (port, sandbox) = label.split_once('-')?;
        let fits = below
            && !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && !sandbox.is_empty()
            && !sandbox.contains('.');
        fits.then_some((port, sandbox))
    }
}

/// A host without its port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

impl FromStr for Domain {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        let wrong = || DomainError(text.to_owned());
        let (scheme, authority) = match text.split_once("://") {
            Some(("http", rest)) => ("http", rest),
            Some(("https", rest)) => ("https", rest),
            Some(_) => return Err(wrong()),
            None => ("http", text),
        };
        let host = host_of(authority);
        let fits = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        if !host.split('.').all(fits) || authority.ends_with(':') {
            return Err(wrong());
        }
        Ok(Self { scheme, authority: authority.to_ascii_lowercase() })
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(domain: &str, host: &'static str) -> Option<(&'static str, &'static str)> {
        domain.parse::<Domain>().unwrap().split(host)
    }

    #[test]
    fn a_host_names_a_port_and_a_sandbox() {
        assert_eq!(split("localhost:7077", "3000-web.localhost:7077"), Some(("3000", "web")));
        assert_eq!(split("localhost:7077", "3000-web.LocalHost"), Some(("3000", "web")));
        assert_eq!(split("https://boxes.example.com", "80-a-b.boxes.example.com"), Some(("80", "a-b")));
        assert_eq!(split("localhost", "8080-3000-web.localhost"), Some(("8080", "3000-web")));
        // Ports that cannot be are still ours to refuse.
        assert_eq!(split("localhost", "99999-web.localhost"), Some(("99999", "web")));
    }

    #[test]
    fn every_other_host_is_the_daemons_own() {
        for host in [
            "localhost",
            "localhost:7077",
            "127.0.0.1:7077",
            "web.localhost",
            "-web.localhost",
            "3000-.localhost",
            "3000-a.b.localhost",
            "3000-web.localhost.example.com",
            "3000-webXlocalhost",
            "[::1]:7077",
            "",
            "é-web.localhost",
        ] {
            assert_eq!(split("localhost:7077", host), None, "{host}");
        }
    }

    #[test]
    fn what_is_made_is_understood() {
        for text in ["localhost:7077", "http://a.test", "https://boxes.example.com:8443"] {
            let domain: Domain = text.parse().unwrap();
            let url = domain.url(3000, &"web-1".parse().unwrap());
            let (_, host) = url.split_once("://").unwrap();
            assert_eq!(domain.split(host), Some(("3000", "web-1")), "{url}");
        }
        assert!("https://x.test".parse::<Domain>().unwrap().url(1, &"a".parse().unwrap()).starts_with("https://1-a.x"));
    }

    #[test]
    fn nonsense_is_no_domain_and_no_port() {
        for text in ["", "ftp://x", "a b", "a/b", "x..y", "x:", "://"] {
            assert!(text.parse::<Domain>().is_err(), "{text}");
        }
        for text in ["", "0", "65536", "-1", "+80", "http", "99999999999"] {
            assert!(parse_port(text).is_err(), "{text}");
        }
        assert_eq!((parse_port("1"), parse_port("65535")), (Ok(1), Ok(65535)));
    }
}
