//! Cookies, read as bytes: a cookie that is no text must neither hide the cookies beside it nor let them pass.

use axum::http::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE};

use crate::secrets;

/// The cookie of a browser that has logged in to the daemon itself, and its name where there is TLS.
pub const SESSION_COOKIE: &str = "roost_session";
/// Browsers accept it only from the host itself, so that no page of a sandbox can put another in its place.
pub const SECURE_SESSION_COOKIE: &str = "__Host-roost_session";
/// The cookie that a link to a port becomes.
pub(crate) const PORT_COOKIE: &str = "roost_port";

/// Prefixes by which a browser binds a cookie to conditions. The rest of the name is what an application sees.
const BINDING_PREFIXES: [&[u8]; 4] = [b"__host-http-", b"__http-", b"__host-", b"__secure-"];

/// The value of the first cookie with a name, over all lines and whatever stands beside it.
pub fn cookie_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let lines = headers.get_all(COOKIE).into_iter();
    let mut pairs = lines.flat_map(|line| pairs_of(line.as_bytes())).map(split);
    pairs.find(|(found, _)| *found == name.as_bytes()).map(|(_, value)| value)
}

/// Removes our own cookies from a request and returns the proofs of links among them.
pub(crate) fn take(headers: &mut HeaderMap) -> Vec<String> {
    let mut proofs = Vec::new();
    let lines: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    headers.remove(COOKIE);
    for line in lines {
        let (ours, others): (Vec<&[u8]>, Vec<&[u8]>) = pairs_of(line.as_bytes()).partition(|pair| is_ours(pair));
        let named = ours.iter().map(|pair| split(pair)).filter(|(name, _)| *name == PORT_COOKIE.as_bytes());
        proofs.extend(named.filter_map(|(_, proof)| Some(std::str::from_utf8(proof).ok()?.to_owned())));
        if !others.is_empty()
            && let Ok(rest) = HeaderValue::from_bytes(&others.join(b"; ".as_slice()))
        {
            headers.append(COOKIE, rest);
        }
    }
    proofs
}

fn is_ours(pair: &[u8]) -> bool {
    let (name, _) = split(pair);
    let names = [SESSION_COOKIE, SECURE_SESSION_COOKIE, PORT_COOKIE];
    names.iter().any(|ours| name == ours.as_bytes()) || secrets::contains(pair)
}

/// Confines the cookies that a sandbox sets to its own host: without a `Domain` they reach neither the daemon nor the hosts of
/// other sandboxes.
pub(crate) fn confine_to_host(headers: &mut HeaderMap) {
    rewrite(headers, |cookie| {
        let (pair, attributes) = cookie_and_attributes(cookie);
        Some(joined(pair, attributes.filter(|part| !is_attribute(part, b"domain"))))
    });
}

/// Confines the cookies that a sandbox sets below the daemon's own address to the path of its port, and drops those that a
/// browser or the daemon could take for a login.
pub(crate) fn confine_to_path(headers: &mut HeaderMap, prefix: &str) {
    rewrite(headers, |cookie| {
        let (pair, attributes) = cookie_and_attributes(cookie);
        let name = pair.iter().position(|byte| *byte == b'=').map(|end| pair[..end].trim_ascii());
        // Some browsers send a cookie without a name as its bare value, which may look like another cookie.
        let name = name.filter(|name| !name.is_empty())?;
        if may_be_taken_for_ours(name) {
            return None;
        }
        let (places, kept): (Vec<&[u8]>, Vec<&[u8]>) = attributes.partition(|part| is_attribute(part, b"path"));
        let mut confined = joined(pair, kept.into_iter().filter(|part| !is_attribute(part, b"domain")));
        // The last attribute of a kind counts.
        let wanted = places.last().map_or(b"/".as_slice(), |place| split(place).1);
        confined.extend_from_slice(b"; Path=");
        confined.extend(below(prefix.as_bytes(), wanted));
        Some(confined)
    });
}

/// A path of the sandbox as the browser sees it. A server that knows of `X-Forwarded-Prefix` has put the prefix there itself.
fn below(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let already = path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    match path {
        _ if already => path.to_vec(),
        [b'/', ..] => [prefix, path].concat(),
        _ => [prefix, b"/"].concat(),
    }
}

fn may_be_taken_for_ours(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let bare = BINDING_PREFIXES.iter().find_map(|prefix| name.strip_prefix(*prefix)).unwrap_or(&name);
    // A browser refuses `__Host-` on any path but `/`, so this one could only be meant for the whole address.
    name.starts_with(b"__host-") || [SESSION_COOKIE, PORT_COOKIE].iter().any(|ours| bare == ours.as_bytes())
}

fn rewrite(headers: &mut HeaderMap, change: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let cookies: Vec<HeaderValue> = headers.get_all(SET_COOKIE).iter().cloned().collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        if let Some(changed) = change(cookie.as_bytes())
            && let Ok(changed) = HeaderValue::from_bytes(&changed)
        {
            headers.append(SET_COOKIE, changed);
        }
    }
}

/// The pair that a `Set-Cookie` starts with, and its attributes.
fn cookie_and_attributes(cookie: &[u8]) -> (&[u8], impl Iterator<Item = &[u8]>) {
    let end = cookie.iter().position(|byte| *byte == b';').unwrap_or(cookie.len());
    (cookie[..end].trim_ascii(), pairs_of(&cookie[end..]))
}

fn joined<'a>(pair: &'a [u8], attributes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    std::iter::once(pair).chain(attributes).collect::<Vec<_>>().join(b"; ".as_slice())
}

fn is_attribute(part: &[u8], name: &[u8]) -> bool {
    split(part).0.eq_ignore_ascii_case(name)
}

/// The parts between semicolons that are not empty.
fn pairs_of(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b';').map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty())
}

/// Name and value of a pair; a pair without `=` is all name.
fn split(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(end) => (pair[..end].trim_ascii(), pair[end + 1..].trim_ascii()),
        None => (pair.trim_ascii(), b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(name: axum::http::HeaderName, values: &[&[u8]]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_bytes(value).unwrap())).collect()
    }

    fn left(headers: &HeaderMap, name: axum::http::HeaderName) -> Vec<Vec<u8>> {
        headers.get_all(name).iter().map(|value| value.as_bytes().to_vec()).collect()
    }

    #[test]
    fn own_cookies_are_removed_beside_cookies_that_are_no_text() {
        let secret = format!("t=rst_{}", "a".repeat(64));
        let mut headers = lines(
            COOKIE,
            &[
                b"x=\xe9; roost_session=rss_1; roost_port=5-ab;y=2",
                b"\t__Host-roost_session\t= rss_2 ;\xff",
                secret.as_bytes(),
                b"roost_port=\xe9",
            ],
        );
        assert_eq!(cookie_of(&headers, SESSION_COOKIE), Some(b"rss_1".as_slice()));
        assert_eq!(cookie_of(&headers, SECURE_SESSION_COOKIE), Some(b"rss_2".as_slice()));
        assert_eq!(take(&mut headers), ["5-ab"]);
        assert_eq!(left(&headers, COOKIE), [b"x=\xe9; y=2".to_vec(), b"\xff".to_vec()]);
    }

    #[test]
    fn cookie_of_a_sandbox_stays_below_the_path_of_its_port() {
        let prefix = "/v1/sandboxes/web/ports/80";
        for (set, confined) in [
            ("a=1", "a=1; Path=/v1/sandboxes/web/ports/80/"),
            ("a=1; path = / ;HttpOnly", "a=1; HttpOnly; Path=/v1/sandboxes/web/ports/80/"),
            ("a=b=c; Path=/x; PATH=/app", "a=b=c; Path=/v1/sandboxes/web/ports/80/app"),
            ("a=; Path=/v1/sandboxes/web/ports/80/y", "a=; Path=/v1/sandboxes/web/ports/80/y"),
            ("a=; Path=/v1/sandboxes/web/ports/80", "a=; Path=/v1/sandboxes/web/ports/80"),
            (
                "a=1; Path=/v1/sandboxes/web/ports/8000",
                "a=1; Path=/v1/sandboxes/web/ports/80/v1/sandboxes/web/ports/8000",
            ),
            ("a=1; Path=x; Domain=.test; domain", "a=1; Path=/v1/sandboxes/web/ports/80/"),
            ("__Secure-a=1; Path; Secure", "__Secure-a=1; Secure; Path=/v1/sandboxes/web/ports/80/"),
            ("roost_sessions=1", "roost_sessions=1; Path=/v1/sandboxes/web/ports/80/"),
        ] {
            let mut headers = lines(SET_COOKIE, &[set.as_bytes()]);
            confine_to_path(&mut headers, prefix);
            assert_eq!(left(&headers, SET_COOKIE), [confined.as_bytes().to_vec()], "{set}");
        }
        let mut headers = lines(SET_COOKIE, &[b"x=\xe9; Path=/"]);
        confine_to_path(&mut headers, prefix);
        assert_eq!(left(&headers, SET_COOKIE), [b"x=\xe9; Path=/v1/sandboxes/web/ports/80/".to_vec()]);
    }

    #[test]
    fn cookie_that_may_be_taken_for_a_login_is_dropped_below_our_path() {
        for set in [
            "roost_session=x; Path=/",
            " \tRoost_Session =y",
            "__host-Roost_Session=y",
            "__Secure-roost_session=y",
            "__Http-roost_session=y",
            "__Host-Http-roost_session=y",
            "__Host-other=y",
            "roost_port=y",
            "=roost_session=evil",
            "roost_session",
            "; Path=/",
            "",
        ] {
            let mut headers = lines(SET_COOKIE, &[set.as_bytes()]);
            confine_to_path(&mut headers, "/p");
            assert_eq!(left(&headers, SET_COOKIE), Vec::<Vec<u8>>::new(), "{set}");
        }
    }

    #[test]
    fn cookie_at_a_host_of_its_own_reaches_no_other_host() {
        let mut headers = lines(
            SET_COOKIE,
            &[b"a=\xe9; Path=/x; DOMAIN = boxes.test; Secure", b"__Host-b=1; Path=/", b"domain=1;domain"],
        );
        confine_to_host(&mut headers);
        let kept = [b"a=\xe9; Path=/x; Secure".to_vec(), b"__Host-b=1; Path=/".to_vec(), b"domain=1".to_vec()];
        assert_eq!(left(&headers, SET_COOKIE), kept);
    }
}
