//! Who may pass: holders of a token, of a link, or of the cookie that a link became; everybody, if the port is public.

use axum::http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Uri};
use jiff::Timestamp;
use roost_host::{Caller, Handle, Host, HostError, LINK_PARAMETER, LinkRefusal};
use roost_model::{ErrorCode, PortAccess};

use crate::cookies::PORT_COOKIE;
use crate::headers::{came_by_tls, upgrade_of};
use crate::{Refusal, Target, Trust, cookies, secrets};

const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-roost-token");
const TOKEN_PREFIX: &[u8] = b"rst_";

/// What a request brought of ours. Taken out of it, so that no sandbox ever sees it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Brought {
    tokens: Vec<String>,
    cookies: Vec<String>,
    link: Option<String>,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Passage {
    /// It goes on.
    Granted,
    /// Its link becomes a cookie, and the client asks again for the plain address.
    Exchanged {
        /// For `Set-Cookie`.
        cookie: String,
        /// Where to.
        location: String,
    },
}

/// Removes our own secrets from a request's headers: by name where they belong, by their form wherever else they stand.
pub(crate) fn take_headers(headers: &mut HeaderMap) -> Brought {
    let mut brought = Brought::default();
    let lines: Vec<HeaderValue> = headers.get_all(AUTHORIZATION).iter().cloned().collect();
    headers.remove(AUTHORIZATION);
    for line in lines {
        match bearer_token(line.as_bytes()) {
            Some(secret) => brought.tokens.push(secret),
            None => drop(headers.append(AUTHORIZATION, line)),
        }
    }
    brought.tokens.extend(headers.get_all(TOKEN_HEADER).iter().map(|line| text_of(line.as_bytes())));
    headers.remove(TOKEN_HEADER);
    brought.cookies = cookies::take(headers);
    secrets::take(headers);
    brought
}

/// The token of ours in an `Authorization` line, whatever whitespace separates it from the scheme.
fn bearer_token(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace)?;
    let secret = line[end..].trim_ascii();
    let ours = line[..end].eq_ignore_ascii_case(b"bearer") && secret.starts_with(TOKEN_PREFIX);
    ours.then(|| text_of(secret))
}

/// A secret as text. Bytes that are no text make it a secret that no one has.
fn text_of(secret: &[u8]) -> String {
    String::from_utf8_lossy(secret.trim_ascii()).into_owned()
}

/// Removes the proof of a link, and whatever contains a secret of ours, from the query of an address.
pub(crate) fn take_link(uri: &Uri, brought: &mut Brought) -> Uri {
    let Some(query) = uri.query() else { return uri.clone() };
    let mark = format!("{LINK_PARAMETER}=");
    let (own, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(|pair| pair.starts_with(&mark));
    brought.link = own.last().and_then(|last| last.strip_prefix(&mark)).map(str::to_owned);
    let kept: Vec<&str> = others.iter().copied().filter(|pair| !secrets::contains(pair.as_bytes())).collect();
    if own.is_empty() && kept.len() == others.len() {
        return uri.clone();
    }
    let rest = if kept.is_empty() { uri.path().to_owned() } else { format!("{}?{}", uri.path(), kept.join("&")) };
    // A part of what was an address is one.
    rest.parse().unwrap_or_default()
}

/// Who asks, if a request brought a token that is good, or needs none.
pub(crate) async fn caller_of(host: &Host, brought: &Brought, trust: Trust) -> Result<Option<Caller>, HostError> {
    if trust == Trust::Owner {
        return Ok(Some(Caller::owner()));
    }
    for token in &brought.tokens {
        if let Some(token) = host.token_of(token).await? {
            return Ok(Some(Caller::from(&token)));
        }
    }
    Ok(None)
}

/// Finds the sandbox for whoever asks; the flag says whether a token opened it. One that is out of a token's reach may still
/// be open to everybody, or by a link.
pub(crate) fn find(host: &Host, sandbox: &str, caller: Option<Caller>) -> Result<(Handle, bool), Refusal> {
    let living = || host.find(sandbox).and_then(|handle| handle.living().map(|()| handle));
    let Some(caller) = caller else {
        return Ok((living().map_err(|error| Refusal::from(error).for_strangers())?, false));
    };
    match host.visit(caller).living(sandbox) {
        Err(HostError::Forbidden(_)) => Ok((living().map_err(|error| Refusal::from(error).for_strangers())?, false)),
        found => Ok((found?, true)),
    }
}

/// What a request is about, as far as access goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    /// As the client sent it, but for the link.
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) target: &'a Target,
}

/// Decides about a request that brought no good token.
pub(crate) fn without_token(handle: &Handle, brought: &Brought, asked: Asked<'_>) -> Result<Passage, Refusal> {
    let port = asked.target.port;
    if let Some(proof) = &brought.link {
        match handle.check_link(port, proof) {
            Ok(expires) if becomes_cookie(asked) => return Ok(exchange(proof, expires, asked)),
            Ok(_) => return Ok(Passage::Granted),
            Err(_) if handle.port_access(port) == PortAccess::Public => {}
            Err(refusal) => return Err(forbidden(refusal)),
        }
    }
    if handle.port_access(port) == PortAccess::Public {
        return Ok(Passage::Granted);
    }
    let mut expired = false;
    for proof in &brought.cookies {
        match handle.check_link(port, proof) {
            Ok(_) => return Ok(Passage::Granted),
            Err(refusal) => expired |= refusal == LinkRefusal::Expired,
        }
    }
    if expired {
        return Err(forbidden(LinkRefusal::Expired));
    }
    let why = if brought.tokens.is_empty() {
        format!("port {port} is private: it takes a token or a link")
    } else {
        "this token is not valid here".to_owned()
    };
    let hint =
        format!("`roost open {} {port} --link 1h` makes a link; `--public` opens the port", asked.target.sandbox);
    Err(Refusal::new(ErrorCode::Unauthorized, why).with_hint(hint))
}

fn forbidden(refusal: LinkRefusal) -> Refusal {
    Refusal::new(ErrorCode::Forbidden, refusal.to_string()).with_hint("ask whoever gave it to you for a new one")
}

/// Programs that send something, and those that change protocols, would not come back.
fn becomes_cookie(asked: Asked<'_>) -> bool {
    matches!(*asked.method, Method::GET | Method::HEAD) && upgrade_of(asked.headers).is_none()
}

fn exchange(proof: &str, expires: Timestamp, asked: Asked<'_>) -> Passage {
    let left = expires.duration_since(Timestamp::now()).as_secs().max(1);
    let secure = if came_by_tls(asked.headers) { "; Secure" } else { "" };
    let path = asked.target.cookie_path();
    let cookie = format!("{PORT_COOKIE}={proof}; Path={path}; Max-Age={left}; HttpOnly; SameSite=Lax{secure}");
    Passage::Exchanged { cookie, location: own_location(asked.uri) }
}

/// The same address without the link. A path that starts like another host's address would lead there.
fn own_location(uri: &Uri) -> String {
    let text = uri.path_and_query().map_or("/", |whole| whole.as_str());
    let leads_away = text.get(1..).is_some_and(|rest| rest.starts_with(['/', '\\']));
    if leads_away || !text.starts_with('/') { "/".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pairs: &[(&'static str, &str)]) -> (Brought, Vec<String>) {
        let mut headers: HeaderMap =
            pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        let brought = take_headers(&mut headers);
        let left = headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        (brought, left)
    }

    #[test]
    fn tokens_are_removed_from_every_line_and_under_every_name() {
        let token = format!("rst_{}", "0a".repeat(32));
        let (tab, basic) = (format!("bearer\t {token}"), format!("Basic {token}"));
        let (brought, mut left) = taken(&[
            ("authorization", "Bearer eyJhbGciOi"),
            ("authorization", &format!("Bearer {token}")),
            ("authorization", &tab),
            ("authorization", &basic),
            ("x-roost-token", "rst_1"),
            ("x-roost-token", "rst_2"),
            ("x-api-key", &token),
            ("x-access-token", &token.replace("rst_", "e2b_")),
            ("cookie", &format!("a=1; b={token}")),
            ("sec-websocket-protocol", &token),
            ("x-app", "kept"),
        ]);
        assert_eq!(brought.tokens, [token.as_str(), token.as_str(), "rst_1", "rst_2"]);
        left.sort();
        assert_eq!(left, ["authorization: Bearer eyJhbGciOi", "cookie: a=1", "x-app: kept"]);
    }

    #[test]
    fn what_is_ours_never_stays() {
        let (brought, left) = taken(&[
            ("authorization", "Bearer rst_secret"),
            ("x-roost-token", "rst_other"),
            ("cookie", "a=1; roost_port=5-abc; roost_session=rss_1; __Host-roost_session=rss_2; b=2"),
        ]);
        assert_eq!(
            (brought.tokens, brought.cookies),
            (vec!["rst_secret".into(), "rst_other".into()], vec!["5-abc".into()])
        );
        assert_eq!(left, ["cookie: a=1; b=2"]);
        assert_eq!(taken(&[("cookie", "roost_port=1")]).1, Vec::<String>::new());
    }

    #[test]
    fn what_is_the_sandboxs_own_stays() {
        for value in ["Basic dXNlcg==", "Bearer eyJhbGciOi", "Bearer"] {
            let (brought, left) = taken(&[("authorization", value), ("cookie", "roost_portal=1; x=roost_port=2")]);
            assert_eq!(brought, Brought::default(), "{value}");
            assert_eq!(left.len(), 2, "{left:?}");
        }
    }

    #[test]
    fn a_link_leaves_the_address() {
        for (uri, link, rest) in [
            ("/a?roost_link=5-ab", Some("5-ab"), "/a"),
            ("/?x=1&roost_link=5-ab&y=%20", Some("5-ab"), "/?x=1&y=%20"),
            ("/a?x=roost_link=5", None, "/a?x=roost_link=5"),
            ("/a", None, "/a"),
            ("/a?x=rst_1&&y", None, "/a?x=rst_1&&y"),
            (&format!("/a?x=1&t=rss_{}&roost_link=5-ab", "f".repeat(64)), Some("5-ab"), "/a?x=1"),
        ] {
            let mut brought = Brought::default();
            assert_eq!(take_link(&uri.parse().unwrap(), &mut brought).to_string(), rest);
            assert_eq!(brought.link.as_deref(), link);
        }
    }

    #[test]
    fn nobody_is_sent_elsewhere() {
        let location = |uri: &str| own_location(&uri.parse().unwrap());
        assert_eq!(location("/a/b?c"), "/a/b?c");
        assert_eq!((location("//evil.test/x"), location("/\\evil.test")), ("/".to_owned(), "/".to_owned()));
    }
}
