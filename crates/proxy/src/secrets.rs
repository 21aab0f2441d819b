//! Secrets of this daemon, recognised by their form alone.
//!
//! A client may send a token under any name: in `X-API-Key`, in a second `Authorization` line, in a cookie of an application.
//! A sandbox must see none of them, so they are removed by value and not by the name of the header that carries them.

use axum::http::header::{COOKIE, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use roost_host::LINK_PARAMETER;

/// Prefixes of tokens, of sessions of the page, and of the tokens of one sandbox that E2B's clients receive.
const PREFIXES: [&[u8]; 3] = [b"rst_", b"rss_", b"e2b_"];
/// Hexadecimal digits behind a prefix. A shorter value is no secret of ours and stays.
const DIGITS: usize = 64;

/// Whether bytes contain a secret of this daemon: a token, or a link to a port with its proof (as `Referer` may).
pub(crate) fn contains(bytes: &[u8]) -> bool {
    contains_token(bytes) || contains_link(bytes)
}

fn contains_token(bytes: &[u8]) -> bool {
    let mut marks = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_').map(|(at, _)| at);
    marks.any(|at| {
        let prefix = at.checked_sub(3).map(|start| &bytes[start..=at]);
        prefix.is_some_and(|prefix| PREFIXES.contains(&prefix)) && starts_with_key(&bytes[at + 1..])
    })
}

/// A proof is the second at which it ends, a dash, and a keyed hash.
fn contains_link(bytes: &[u8]) -> bool {
    let mark = LINK_PARAMETER.as_bytes();
    let mut marks = bytes.windows(mark.len()).enumerate().filter(|(_, found)| *found == mark);
    marks.any(|(at, _)| {
        let Some(proof) = bytes[at + mark.len()..].strip_prefix(b"=") else { return false };
        let end = proof.iter().take_while(|byte| byte.is_ascii_digit()).count();
        proof[end..].strip_prefix(b"-").is_some_and(starts_with_key)
    })
}

fn starts_with_key(bytes: &[u8]) -> bool {
    bytes.get(..DIGITS).is_some_and(|digits| digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')))
}

/// Removes every header line that contains a secret. Of a list of WebSocket protocols only the item goes: the server chooses
/// among the others. Cookies are left to [`crate::cookies`], which removes them one by one.
pub(crate) fn take(headers: &mut HeaderMap) {
    let carries = |(name, value): (&HeaderName, &HeaderValue)| {
        (name != COOKIE && contains(value.as_bytes())).then(|| name.clone())
    };
    let names: Vec<HeaderName> = headers.iter().filter_map(carries).collect();
    for name in names {
        let lines: Vec<HeaderValue> = headers.get_all(&name).iter().cloned().collect();
        headers.remove(&name);
        for line in lines {
            let kept = if !contains(line.as_bytes()) {
                Some(line)
            } else if name == SEC_WEBSOCKET_PROTOCOL {
                without(line.as_bytes(), b',', b", ").and_then(|rest| HeaderValue::from_bytes(&rest).ok())
            } else {
                None
            };
            if let Some(kept) = kept {
                headers.append(&name, kept);
            }
        }
    }
}

/// A list without the items that contain a secret; nothing if none is left.
fn without(list: &[u8], separator: u8, joint: &[u8]) -> Option<Vec<u8>> {
    let items = list.split(|byte| *byte == separator).map(<[u8]>::trim_ascii);
    let kept: Vec<&[u8]> = items.filter(|item| !item.is_empty() && !contains(item)).collect();
    (!kept.is_empty()).then(|| kept.join(joint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(prefix: &str) -> String {
        format!("{prefix}{}", "0123456789abcdef".repeat(4))
    }

    #[test]
    fn secret_is_recognised_by_its_form_only() {
        for prefix in ["rst_", "rss_", "e2b_"] {
            let whole = secret(prefix);
            for around in [whole.clone(), format!("Bearer\t{whole}"), format!("{whole}0"), format!("\u{e9}{whole};")] {
                assert!(contains(around.as_bytes()), "{around}");
            }
            assert!(!contains(&whole.as_bytes()[..whole.len() - 1]));
            assert!(!contains(&whole.as_bytes()[1..]));
        }
        assert!(contains(format!("http://h/?x&roost_link=17-{}", &secret("rst_")[4..]).as_bytes()));
        assert!(!contains(b"http://h/?roost_link=17-ab&roost_link"));
        assert!(!contains(secret("xyz_").as_bytes()));
        assert!(!contains(b"rst_secret _ __") && !contains(b"") && !contains(b"_"));
    }

    #[test]
    fn header_with_a_secret_is_removed_and_its_other_lines_stay() {
        let token = secret("rst_");
        let mut headers = HeaderMap::new();
        let mut add = |name: &'static str, value: &str| {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        };
        add("x-api-key", &token);
        add("x-app", "first");
        add("x-app", &format!("\u{e9} {token}"));
        add("x-app", "rst_short");
        add("sec-websocket-protocol", &format!("chat, auth.{token} , v2"));
        take(&mut headers);
        let left: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(left, [("x-app", "first"), ("x-app", "rst_short"), ("sec-websocket-protocol", "chat, v2")]);
    }
}
