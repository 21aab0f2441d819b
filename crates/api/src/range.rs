//! The `Range` header, as far as it is worth: one range of bytes with a beginning.

use axum::http::{HeaderMap, header};
use roost_host::ReadRange;

/// What `Range` asks for; nothing if it is absent or of a form that may be ignored.
pub(crate) fn range_of(headers: &HeaderMap) -> Option<ReadRange> {
    let text = headers.get(header::RANGE)?.to_str().ok()?;
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let offset: u64 = first.trim().parse().ok()?;
    let length = match last.trim() {
        "" => None,
        last => Some(last.parse::<u64>().ok()?.checked_sub(offset)?.checked_add(1)?),
    };
    Some(ReadRange { offset, length })
}

/// The value of `Content-Range` for `length` bytes from `offset` on.
pub(crate) fn content_range(offset: u64, length: u64, size: u64) -> String {
    match length.checked_sub(1) {
        Some(last) => format!("bytes {offset}-{}/{size}", offset + last),
        None => format!("bytes */{size}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(u64, Option<u64>)> {
        let headers = HeaderMap::from_iter([(header::RANGE, text.parse().unwrap())]);
        range_of(&headers).map(|range| (range.offset, range.length))
    }

    #[test]
    fn one_range_of_bytes_is_understood() {
        assert_eq!(read("bytes=0-99"), Some((0, Some(100))));
        assert_eq!(read("bytes=100-"), Some((100, None)));
        for ignored in ["bytes=-5", "bytes=5-4", "bytes=0-1,3-4", "lines=1-2", "bytes=0-18446744073709551615"] {
            assert_eq!(read(ignored), None, "{ignored}");
        }
    }

    #[test]
    fn what_was_sent_is_named() {
        assert_eq!(content_range(10, 5, 100), "bytes 10-14/100");
        assert_eq!(content_range(100, 0, 100), "bytes */100");
    }
}
