//! `X-Metadata-<key>`: what a client notes about a file, kept as its attributes `user.e2b.<key>`.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use roost_host::SetAttributes;

use crate::error::E2bError;

/// What the names of the attributes start with, within the namespace `user`.
pub(crate) const PREFIX: &str = "e2b.";
const HEADER: &str = "x-metadata-";
/// The kernel's limit for a name is 255 bytes, with `user.e2b.` in front.
const LONGEST_KEY: usize = 246;
/// Names and values of all, as they are stored.
const MOST_BYTES: usize = 4096;
const STORED_PREFIX: usize = "user.e2b.".len();

/// The attributes that an upload asks for. Those of an earlier one that are not among them go.
pub(super) fn of_upload(headers: &HeaderMap) -> Result<SetAttributes, E2bError> {
    let mut values = BTreeMap::new();
    let mut bytes = 0;
    // Of a header that comes twice the first counts. Names are in lower case already.
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(HEADER).filter(|key| !key.is_empty()) else { continue };
        let Some(value) = headers.get(name) else { continue };
        if key.len() > LONGEST_KEY {
            return Err(invalid(format!("key `{key}` has more than {LONGEST_KEY} bytes")));
        }
        let printable = value.as_bytes().iter().all(|byte| (0x20..=0x7e).contains(byte));
        let Some(value) = value.to_str().ok().filter(|_| printable) else {
            return Err(invalid(format!("value of `{key}` is not printable ASCII")));
        };
        bytes += STORED_PREFIX + key.len() + value.len();
        values.insert(key.to_owned(), value.to_owned());
    }
    if bytes > MOST_BYTES {
        return Err(invalid(format!("{bytes} bytes in all are more than {MOST_BYTES}")));
    }
    Ok(SetAttributes { prefix: PREFIX.to_owned(), values })
}

fn invalid(why: String) -> E2bError {
    E2bError::bad_request(format!("invalid metadata: {why}"))
}

/// What of a file's attributes was noted by clients.
pub(crate) fn of_attributes(attributes: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let ours =
        attributes.iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value.clone())));
    ours.collect()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn read(pairs: &[(&str, &[u8])]) -> Result<BTreeMap<String, String>, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        of_upload(&headers).map(|set| set.values).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn keys_are_in_lower_case_and_the_first_value_counts() {
        let found =
            read(&[("X-Metadata-Author", b"me"), ("x-metadata-author", b"you"), ("x-metadata-", b"-"), ("host", b"h")]);
        assert_eq!(found.unwrap(), BTreeMap::from([("author".to_owned(), "me".to_owned())]));
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let long = format!("x-metadata-{}", "k".repeat(LONGEST_KEY));
        assert!(read(&[(&long, b"v")]).is_ok());
        assert!(read(&[(&format!("{long}k"), b"v")]).unwrap_err().starts_with("invalid metadata"));
        assert!(read(&[("x-metadata-a", "ü".as_bytes())]).is_err());
        assert!(read(&[("x-metadata-a", b"tab\there")]).is_err());
        let fits = vec![b'v'; MOST_BYTES - STORED_PREFIX - 1];
        assert!(read(&[("x-metadata-a", &fits)]).is_ok());
        assert!(read(&[("x-metadata-a", &fits), ("x-metadata-b", b"")]).is_err());
    }

    #[test]
    fn other_attributes_are_not_the_clients() {
        let pair = |name: &str| (name.to_owned(), "v".to_owned());
        let attributes = BTreeMap::from([pair("e2b.a"), pair("other"), pair("e2bx")]);
        assert_eq!(of_attributes(&attributes), BTreeMap::from([pair("a")]));
    }
}
