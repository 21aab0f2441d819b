//! What of a request's and an answer's head passes on, and what does not.

use std::net::IpAddr;

use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};

use crate::{Peer, Target};

/// Carries the code of a refusal of ours.
pub(crate) const ERROR_HEADER: HeaderName = HeaderName::from_static("x-roost-error");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// Headers that speak of one connection and not of the message.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The protocol that a message asks to change to, or has changed to.
pub(crate) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = list(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| asked).cloned()
}

/// Whether an answer is a stream of events, which has no end of its own.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get("content-type").and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

/// Leaves of what a request says of its way here what is true: the words of a proxy on this host are believed, those of
/// anybody else are not, and TLS that ends here is told in the same words.
pub(crate) fn settle(headers: &mut HeaderMap, peer: Peer) {
    if !peer.is_believed() {
        for name in [FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO] {
            headers.remove(name);
        }
    }
    if peer.tls && !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
    }
}

/// Whether whoever asks came by TLS, to us or to a proxy in front of us; true of requests that were settled.
pub fn came_by_tls(headers: &HeaderMap) -> bool {
    headers.get(FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
}

/// Makes a request's headers fit for the sandbox; `has_body` says that one of unknown length may follow.
pub(crate) fn to_sandbox(headers: &mut HeaderMap, target: &Target, peer: Option<IpAddr>, has_body: bool) {
    let upgrade = upgrade_of(headers);
    let trailers = list(headers, &TE).any(|word| word.eq_ignore_ascii_case("trailers"));
    remove_hop_by_hop(headers);
    // The promise to wait is kept on our side: the client is told to go on when the sandbox takes the body.
    headers.remove(EXPECT);
    let mut connection = Vec::new();
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
        connection.push("upgrade");
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        connection.push("te");
    }
    if !connection.is_empty()
        && let Ok(value) = HeaderValue::from_str(&connection.join(", "))
    {
        headers.insert(CONNECTION, value);
    }
    if has_body && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if !headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(&format!("localhost:{}", target.port))
    {
        headers.insert(HOST, host);
    }
    forward(headers, target, peer);
}

/// Says where a request came from, beyond what is known from before.
fn forward(headers: &mut HeaderMap, target: &Target, peer: Option<IpAddr>) {
    if let Some(peer) = peer {
        let mut way: Vec<String> = list(headers, &FORWARDED_FOR).map(str::to_owned).collect();
        way.push(peer.to_canonical().to_string());
        if let Ok(value) = HeaderValue::from_str(&way.join(", ")) {
            headers.insert(FORWARDED_FOR, value);
        }
    }
    if !headers.contains_key(FORWARDED_HOST)
        && let Some(host) = headers.get(HOST).cloned()
    {
        headers.insert(FORWARDED_HOST, host);
    }
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    headers.remove(FORWARDED_PREFIX);
    if !target.prefix.is_empty()
        && let Ok(prefix) = HeaderValue::from_str(&target.prefix)
    {
        headers.insert(FORWARDED_PREFIX, prefix);
    }
}

/// Makes an answer's headers fit for the client. By `X-Roost-Error` clients tell our own refusals from a sandbox's answers.
pub(crate) fn to_client(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
    headers.remove(ERROR_HEADER);
}

/// Says that the connection now speaks another protocol.
pub(crate) fn switching(headers: &mut HeaderMap, protocol: HeaderValue) {
    remove_hop_by_hop(headers);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = list(headers, &CONNECTION).filter_map(|name| name.parse().ok()).collect();
    // Nobody may have the headers removed that the message itself needs.
    let needed = [CONTENT_LENGTH, HOST];
    for name in named.iter().filter(|name| !needed.contains(name)).chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// The words of a header with commas, over all its lines.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn values<const N: usize>(headers: &HeaderMap, names: [&str; N]) -> [String; N] {
        names.map(|name| headers[name].to_str().unwrap().to_owned())
    }

    fn sent(pairs: &[(&'static str, &str)], peer: &str) -> HeaderMap {
        let (mut headers, peer) = (map(pairs), peer.parse().unwrap());
        settle(&mut headers, Peer::over_tcp(peer));
        to_sandbox(&mut headers, &Target::of_path("web", "80").unwrap(), Some(peer), false);
        headers
    }

    #[test]
    fn what_is_of_one_connection_stays_there() {
        let headers = sent(
            &[
                ("host", "a.test"),
                ("connection", "close, X-Own, content-length"),
                ("x-own", "1"),
                ("content-length", "5"),
                ("keep-alive", "timeout=5"),
                ("te", "gzip, trailers"),
                ("expect", "100-continue"),
                ("upgrade", "h2c"),
                ("x-app", "stays"),
            ],
            "127.0.0.1",
        );
        for gone in ["x-own", "keep-alive", "expect", "upgrade", "transfer-encoding"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
        assert_eq!(values(&headers, ["content-length", "x-app", "te"]), ["5", "stays", "trailers"]);
        assert_eq!(headers["connection"], "te");
    }

    #[test]
    fn an_upgrade_passes() {
        let headers = sent(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")], "127.0.0.1");
        assert_eq!(values(&headers, ["connection", "upgrade"]), ["upgrade", "websocket"]);
        assert_eq!(headers["host"], "localhost:80");
        assert_eq!(upgrade_of(&map(&[("upgrade", "websocket")])), None);
    }

    #[test]
    fn where_it_came_from_is_told_and_not_made_up() {
        let claims = [("host", "a.test"), ("x-forwarded-for", "9.9.9.9"), ("x-forwarded-proto", "https")];
        let near = sent(&claims, "127.0.0.1");
        let told = ["x-forwarded-for", "x-forwarded-proto"];
        assert_eq!(values(&near, told), ["9.9.9.9, 127.0.0.1", "https"]);
        let far = sent(&claims, "::ffff:192.0.2.1");
        assert_eq!(values(&far, told), ["192.0.2.1", "http"]);
        assert!(came_by_tls(&near) && !came_by_tls(&far));
        let mut ours = map(&claims[..2]);
        settle(&mut ours, Peer::over_tls("192.0.2.1".parse().unwrap()));
        assert!(came_by_tls(&ours) && !ours.contains_key("x-forwarded-for"));
        let told = ["x-forwarded-host", "x-forwarded-prefix"];
        assert_eq!(values(&far, told), ["a.test", "/v1/sandboxes/web/ports/80"]);
    }

    /// The headers of a head, line by line; lines that HTTP itself refuses are left out.
    fn head(bytes: &[u8]) -> HeaderMap {
        let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let mut headers = HeaderMap::new();
        for line in lines.take(100) {
            let mut parts = line.splitn(2, |byte| *byte == b':');
            let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii())) {
                headers.append(name, value);
            }
        }
        headers
    }

    #[test]
    fn fuzz_no_head_takes_more_along_than_it_may() {
        let secret = "5e".repeat(32);
        let ours = format!(
            "Authorization: Bearer rst_secret\nAuthorization: Bearer\trst_{secret}\nX-Roost-Token: rst_secret\n\
             X-API-Key: rst_{secret}\nX-Access-Token: e2b_{secret}\nSec-WebSocket-Protocol: chat, rst_{secret}\n\
             Referer: http://a/?roost_link=17-{secret}\n\
             Cookie: a=1; roost_port=secret; roost_session=secret\nCookie: x=\u{e9}; __Host-roost_session=rss_{secret};z\n\
             Set-Cookie: roost_session=x; Path=/\nSet-Cookie: b=\u{e9}; Path=/; Domain=a\nSet-Cookie: =roost_session=x\n"
        );
        let corpus = [
            "Host: 80-web.localhost\nConnection: keep-alive, Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n",
            "Host: a\nTransfer-Encoding: chunked\nTE: trailers, gzip\nConnection: close, x-own, content-length, host\nX-Own: 1\n",
            "Host: a\nContent-Length: 5\nExpect: 100-continue\nX-Forwarded-For: 1.2.3.4, 5.6.7.8\nX-Forwarded-Proto: https\n",
            ours.as_str(),
        ];
        let target = Target::of_path("web", "80").unwrap();
        let far = "192.0.2.1".parse().unwrap();
        let is_token = |window: &[u8]| [b"rst_", b"rss_", b"e2b_"].iter().any(|prefix| window.starts_with(*prefix));
        roost_fuzz::attack(&corpus, |bytes| {
            let mut headers = head(bytes);
            let has_body = bytes.first().is_some_and(|byte| byte % 2 == 0);
            settle(&mut headers, Peer::over_tcp(far));
            crate::access::take_headers(&mut headers);
            to_sandbox(&mut headers, &target, Some(far), has_body);
            let one = |name: HeaderName| headers.get_all(name).iter().count() <= 1;
            assert!(one(CONNECTION) && one(UPGRADE) && one(TE) && one(TRANSFER_ENCODING), "{headers:?}");
            // Where a body ends is said once, or a sandbox and we could disagree about it.
            assert!(!(headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)), "{headers:?}");
            assert!(headers.get(TRANSFER_ENCODING).is_none_or(|coding| coding == "chunked"), "{headers:?}");
            assert!(headers.contains_key(HOST), "{headers:?}");
            assert_eq!(headers["x-forwarded-for"], "192.0.2.1");
            assert!(!headers.contains_key("x-roost-token"), "{headers:?}");
            for value in headers.values() {
                let keys = value.as_bytes().windows(68).filter(|window| is_token(window));
                let whole = |key: &[u8]| key[4..].iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
                assert_eq!(keys.filter(|key| whole(key)).count(), 0, "{headers:?}");
            }
            for line in headers.get_all("cookie") {
                for pair in line.as_bytes().split(|byte| *byte == b';') {
                    let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
                    let own: [&[u8]; 3] = [b"roost_session", b"__Host-roost_session", b"roost_port"];
                    assert!(!own.contains(&name), "{headers:?}");
                }
            }
            let mut answer = head(bytes);
            to_client(&mut answer);
            crate::origin::confine(&mut answer, &target);
            assert!(!answer.contains_key(CONNECTION) && !answer.contains_key(TRANSFER_ENCODING), "{answer:?}");
            for cookie in answer.get_all("set-cookie") {
                let text = String::from_utf8_lossy(cookie.as_bytes()).to_ascii_lowercase();
                assert!(!text.starts_with("roost_session=") && !text.starts_with('='), "{answer:?}");
                let path = text.rsplit_once("; path=").map(|(_, path)| path.to_owned());
                assert!(path.is_some_and(|path| path.starts_with("/v1/sandboxes/web/ports/80")), "{answer:?}");
                assert!(!text.split(';').skip(1).any(|part| part.trim().starts_with("domain=")), "{answer:?}");
            }
        });
    }
}
