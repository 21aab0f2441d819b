//! The `Range` header of a download: one range of bytes, also one counted from the end.

use axum::http::{HeaderMap, header};
use roost_host::ReadRange;

/// A range as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// From a byte on, perhaps to another.
    From(u64, Option<u64>),
    /// So many at the end.
    Last(u64),
}

/// What is asked for; nothing if that is the whole, or of a form that may be ignored.
pub(super) fn asked(headers: &HeaderMap) -> Option<Asked> {
    // Nothing that it could name is handed out here, so that it names something else.
    if headers.contains_key(header::IF_RANGE) {
        return None;
    }
    let text = headers.get(header::RANGE)?.to_str().ok()?;
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let last = match last.trim() {
        "" => None,
        last => Some(last.parse::<u64>().ok()?),
    };
    match (first.trim(), last) {
        ("", last) => last.map(Asked::Last),
        (first, last) => {
            let first = first.parse().ok()?;
            last.is_none_or(|last| last >= first).then_some(Asked::From(first, last))
        }
    }
}

/// The bytes of a file of this size that are meant; nothing if it has none of them.
pub(super) fn within(asked: Asked, size: u64) -> Option<ReadRange> {
    let (first, end) = match asked {
        Asked::From(first, last) => (first, last.map_or(size, |last| last.saturating_add(1).min(size))),
        Asked::Last(count) => (size.saturating_sub(count), size),
    };
    (first < end).then(|| ReadRange { offset: first, length: Some(end - first) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, size: u64) -> Option<Option<(u64, u64)>> {
        let headers = HeaderMap::from_iter([(header::RANGE, text.parse().unwrap())]);
        let asked = asked(&headers)?;
        Some(within(asked, size).map(|range| (range.offset, range.length.unwrap())))
    }

    #[test]
    fn one_range_is_understood_from_either_end() {
        assert_eq!(read("bytes=0-99", 1000), Some(Some((0, 100))));
        assert_eq!(read("bytes=100-", 1000), Some(Some((100, 900))));
        assert_eq!(read("bytes=990-2000", 1000), Some(Some((990, 10))));
        assert_eq!(read("bytes=-5", 1000), Some(Some((995, 5))));
        assert_eq!(read("bytes=-5000", 1000), Some(Some((0, 1000))));
        assert_eq!(read("bytes=0-18446744073709551615", 10), Some(Some((0, 10))));
    }

    #[test]
    fn what_is_beyond_the_end_is_nothing() {
        for text in ["bytes=1000-", "bytes=1000-1001", "bytes=-0"] {
            assert_eq!(read(text, 1000), Some(None), "{text}");
        }
        assert_eq!(read("bytes=0-", 0), Some(None));
    }

    #[test]
    fn other_forms_are_ignored() {
        for text in ["bytes=5-4", "bytes=0-1,3-4", "lines=1-2", "bytes=-", "bytes=a-b", "bytes", "bytes=1-x"] {
            assert_eq!(read(text, 1000), None, "{text}");
        }
        let pairs = [(header::RANGE, "bytes=0-1"), (header::IF_RANGE, "x")];
        assert_eq!(asked(&HeaderMap::from_iter(pairs.map(|(name, value)| (name, value.parse().unwrap())))), None);
    }
}
