//! Which port of which sandbox a request is for.

use axum::http::Uri;
use axum::http::request::Parts;
use axum::http::uri::{Authority, PathAndQuery};
use roost_model::{Domain, parse_port};

use crate::Refusal;

/// How far whoever asks is trusted before anything is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The owner of the socket: needs nothing.
    Owner,
    /// Anybody: needs a token or a link, unless the port is public.
    Nobody,
}

/// The port a request is for, and what of its path is not the sandbox's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name, id or start of an id.
    pub sandbox: String,
    /// The port.
    pub port: u16,
    /// What the path starts with before the sandbox's own begins; empty if the host says it all.
    pub prefix: String,
}

impl Target {
    /// The port that a request's host names; nothing if it is meant for the daemon itself.
    pub fn of_host(domain: &Domain, head: &Parts) -> Option<Result<Self, Refusal>> {
        let host = head.uri.authority().map(Authority::as_str).or_else(|| head.headers.get("host")?.to_str().ok())?;
        let (port, sandbox) = domain.split(host)?;
        Some(Self::new(&sandbox.to_ascii_lowercase(), port, String::new()))
    }

    /// The port that a path below `/v1/sandboxes` names.
    pub fn of_path(sandbox: &str, port: &str) -> Result<Self, Refusal> {
        Self::new(sandbox, port, format!("/v1/sandboxes/{sandbox}/ports/{port}"))
    }

    fn new(sandbox: &str, port: &str, prefix: String) -> Result<Self, Refusal> {
        let number = parse_port(port).map_err(|error| Refusal::bad_request(error.to_string()))?;
        Ok(Self { sandbox: sandbox.to_owned(), port: number, prefix })
    }

    /// The address as the sandbox shall see it.
    pub(crate) fn inner_uri(&self, uri: &Uri) -> Uri {
        let whole = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let rest = whole.strip_prefix(self.prefix.as_str()).unwrap_or(whole);
        let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        // A part of what was an address is one.
        rest.parse().unwrap_or_default()
    }

    /// The path to which cookies of this port belong.
    pub(crate) fn cookie_path(&self) -> &str {
        if self.prefix.is_empty() { "/" } else { &self.prefix }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn of_host(host: &str, uri: &str) -> Option<Result<Target, String>> {
        let request = Request::builder().uri(uri).header("host", host).body(()).unwrap();
        let target = Target::of_host(&"localhost:7077".parse().unwrap(), &request.into_parts().0)?;
        Some(target.map_err(|refusal| refusal.message().to_owned()))
    }

    #[test]
    fn the_host_decides() {
        let web = Target { sandbox: "web".to_owned(), port: 3000, prefix: String::new() };
        assert_eq!(of_host("3000-Web.localhost:7077", "/v1/sandboxes"), Some(Ok(web.clone())));
        assert_eq!(of_host("localhost:7077", "/"), None);
        // The address in the request line goes before the header.
        assert_eq!(of_host("localhost:7077", "http://3000-web.localhost:7077/x"), Some(Ok(web)));
        for port in ["0", "65536", "99999999999999999999"] {
            let refused = of_host(&format!("{port}-web.localhost"), "/").unwrap().unwrap_err();
            assert!(refused.contains("from 1 to 65535"), "{refused}");
        }
    }

    #[test]
    fn the_path_loses_what_is_ours() {
        let target = Target::of_path("web", "3000").unwrap();
        let inner = |uri: &str| target.inner_uri(&uri.parse().unwrap()).to_string();
        assert_eq!(inner("/v1/sandboxes/web/ports/3000/a/b?c=d%20e"), "/a/b?c=d%20e");
        assert_eq!(inner("/v1/sandboxes/web/ports/3000/"), "/");
        assert_eq!(inner("/v1/sandboxes/web/ports/3000?x"), "/?x");
        assert_eq!(inner("/v1/sandboxes/web/ports/3000//x"), "//x");
        assert!(Target::of_path("web", "http").is_err());
    }

    #[test]
    fn fuzz_every_address_leads_somewhere_or_nowhere() {
        let corpus = [
            "GET http://3000-web.localhost:7077/a?b=c",
            "3000-web.localhost:7077 /v1/sandboxes/web/ports/3000/a/b?roost-link=x&c=d%20e",
            "/v1/sandboxes/web/ports/3000//x/../..?%ff",
        ];
        let domain = "localhost:7077".parse().unwrap();
        let target = Target::of_path("web", "3000").unwrap();
        roost_fuzz::attack(&corpus, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            for word in text.split(' ') {
                drop(Target::of_path(word, word));
                let Ok(uri) = word.parse::<Uri>() else { continue };
                assert!(target.inner_uri(&uri).path().starts_with('/'), "{uri}");
                if let Ok(request) = Request::builder().uri(uri).header("host", word).body(()) {
                    drop(Target::of_host(&domain, &request.into_parts().0));
                }
            }
        });
    }
}
