//! Metadata of E2B's clients, kept as labels.
//!
//! Labels have no control characters and no commas, and their keys no `=`; such characters are kept as `%XX`, and so is the
//! percent sign itself.

use std::collections::BTreeMap;

use crate::error::E2bError;

/// Labels for metadata.
pub(crate) fn to_labels(metadata: BTreeMap<String, String>) -> BTreeMap<String, String> {
    metadata.into_iter().map(|(key, value)| (escaped(&key, true), escaped(&value, false))).collect()
}

/// Metadata from labels.
pub(crate) fn from_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.iter().map(|(key, value)| (unescaped(key), unescaped(value))).collect()
}

/// The metadata that a list is narrowed to. The query was decoded once: it holds a form whose keys and values are
/// percent-encoded once more.
pub(crate) fn filter(form: &str) -> Result<BTreeMap<String, String>, E2bError> {
    let mut wanted = BTreeMap::new();
    for pair in form.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| E2bError::bad_request(format!("`{pair}` is no metadata to look for: write `key=value`")))?;
        let decoded = |text: &str| unescaped(&unescaped(&text.replace('+', " ")));
        wanted.insert(decoded(key), decoded(value));
    }
    Ok(wanted)
}

fn escaped(text: &str, key: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || letter == ',' || letter == '%' || (key && letter == '=') {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                out.extend(['%', hex(byte >> 4), hex(byte & 15)]);
            }
        } else {
            out.push(letter);
        }
    }
    out
}

fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase()
}

/// The text with every `%XX` as the byte it stands for; what is no such thing stays as it is.
pub(crate) fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| first == b'%' && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn metadata_comes_back_from_labels_as_it_went() {
        for pairs in
            [&[("team", "a b"), ("ä", "ö")][..], &[("k=v", "x=y"), ("list", "a,b\nc"), ("100%", "%20"), ("tab\t", "")]]
        {
            let labels = to_labels(map(pairs));
            assert!(labels.iter().all(|(key, value)| !key.contains(['=', ',']) && !value.contains([',', '\n'])));
            assert_eq!(from_labels(&labels), map(pairs));
        }
        assert_eq!(to_labels(map(&[("team", "a b")])), map(&[("team", "a b")]), "plain text stays readable");
    }

    #[test]
    fn a_filter_is_encoded_three_times_and_read_so() {
        // `metadata=a%3Db%252520c` on the wire, once decoded.
        assert_eq!(filter("a=b%2520c").unwrap(), map(&[("a", "b c")]));
        assert_eq!(filter("a=b&team=x%252Cy").unwrap(), map(&[("a", "b"), ("team", "x,y")]));
        assert_eq!(filter("").unwrap(), map(&[]));
        assert!(filter("team").is_err());
    }

    #[test]
    fn what_is_not_escaped_stays() {
        assert_eq!(unescaped("100% of %4"), "100% of %4");
        assert_eq!(unescaped("%zz%41"), "%zzA");
    }
}
