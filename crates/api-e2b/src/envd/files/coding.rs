//! Gzip, both ways, piece by piece and with bounded memory.

use std::io::{self, Write};

use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};
use futures_util::{Stream, StreamExt, stream};

/// How content is written on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Plain,
    Gzip,
}

/// A coding that is not spoken here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown;

/// How the content of a request is written.
pub(super) fn of_request(headers: &HeaderMap) -> Result<Coding, Unknown> {
    let Some(value) = headers.get(header::CONTENT_ENCODING) else { return Ok(Coding::Plain) };
    match name_of(value.to_str().map_err(|_| Unknown)?).0.as_str() {
        "" | "identity" => Ok(Coding::Plain),
        "gzip" | "x-gzip" => Ok(Coding::Gzip),
        _ => Err(Unknown),
    }
}

/// How an answer is to be written.
///
/// Gzip only where it is the one thing asked for, or nothing else will do. HTTP clients say by themselves that they would
/// understand it; on the short way from here it costs more time than it saves.
pub(super) fn for_answer(headers: &HeaderMap) -> Result<Coding, Unknown> {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter();
    let listed: Vec<(String, bool)> = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(name_of)
        .filter(|(name, _)| !name.is_empty())
        .collect();
    let wanted = |name: &str| listed.iter().find(|(listed, _)| listed == name).map(|(_, wanted)| *wanted);
    let any = wanted("*");
    let plain = wanted("identity").or(any.filter(|any| !any)).unwrap_or(true);
    let gzip = wanted("gzip").or(wanted("x-gzip")).or(any).unwrap_or(false);
    let only_gzip = gzip && listed.iter().all(|(name, wanted)| !wanted || name == "gzip" || name == "x-gzip");
    match (plain, gzip) {
        (_, true) if only_gzip || !plain => Ok(Coding::Gzip),
        (true, _) => Ok(Coding::Plain),
        (false, _) => Err(Unknown),
    }
}

/// The name of a coding and whether it is wanted at all.
fn name_of(text: &str) -> (String, bool) {
    let text = text.to_ascii_lowercase();
    let mut parts = text.split(';');
    let name = parts.next().unwrap_or_default().trim().to_owned();
    let weight = parts.filter_map(|part| part.trim().strip_prefix("q=")?.trim().parse::<f32>().ok()).next();
    (name, weight.is_none_or(|weight| weight > 0.0))
}

/// The value of `Content-Encoding`, where one is needed.
pub(super) fn header_of(coding: Coding) -> Option<HeaderValue> {
    (coding == Coding::Gzip).then(|| HeaderValue::from_static("gzip"))
}

/// Unpacks a stream. A small piece can become a thousand times as large, so it is unpacked little by little.
pub(super) fn unpacked<S>(packed: S) -> impl Stream<Item = io::Result<Bytes>> + Send + Unpin
where
    S: Stream<Item = io::Result<Bytes>> + Send + Unpin + 'static,
{
    let start = Some((packed, MultiGzDecoder::new(Vec::new()), Bytes::new()));
    let plain = stream::unfold(start, |state| async move {
        let (mut packed, mut decoder, mut piece) = state?;
        loop {
            if piece.is_empty() {
                piece = match packed.next().await {
                    Some(Ok(piece)) => piece,
                    Some(Err(error)) => return Some((Err(error), None)),
                    None => {
                        // Also tells if something is missing at the end.
                        let last = decoder.finish().map_err(broken);
                        return last
                            .map(|last| (!last.is_empty()).then(|| (Ok(Bytes::from(last)), None)))
                            .unwrap_or_else(|error| Some((Err(error), None)));
                    }
                };
                continue;
            }
            match decoder.write(&piece) {
                Ok(taken) => drop(piece.split_to(taken)),
                Err(error) => return Some((Err(broken(error)), None)),
            }
            let plain = std::mem::take(decoder.get_mut());
            if !plain.is_empty() {
                return Some((Ok(Bytes::from(plain)), Some((packed, decoder, piece))));
            }
        }
    });
    Box::pin(plain.fuse())
}

fn broken(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the content is not sound gzip: {error}"))
}

/// Packs a stream.
pub(super) fn packed<S, E>(plain: S) -> impl Stream<Item = Result<Bytes, E>> + Send
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: From<io::Error> + Send,
{
    let start = Some((plain, GzEncoder::new(Vec::new(), Compression::fast())));
    stream::unfold(start, |state| async move {
        let (mut plain, mut encoder) = state?;
        loop {
            let written = match plain.next().await {
                Some(Ok(piece)) => encoder.write_all(&piece),
                Some(Err(error)) => return Some((Err(error), None)),
                None => {
                    let last = encoder.finish().map(Bytes::from).map_err(E::from);
                    return Some((last, None));
                }
            };
            if let Err(error) = written {
                return Some((Err(E::from(error)), None));
            }
            let packed = std::mem::take(encoder.get_mut());
            if !packed.is_empty() {
                return Some((Ok(Bytes::from(packed)), Some((plain, encoder))));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(data: &[u8], size: usize) -> Vec<io::Result<Bytes>> {
        data.chunks(size.max(1)).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect()
    }

    async fn whole(stream: impl Stream<Item = io::Result<Bytes>>) -> io::Result<Vec<u8>> {
        let pieces: Vec<io::Result<Bytes>> = stream.collect().await;
        pieces.into_iter().try_fold(Vec::new(), |mut all, piece| {
            all.extend_from_slice(&piece?);
            Ok(all)
        })
    }

    fn answer(values: &[&str]) -> Result<Coding, Unknown> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::ACCEPT_ENCODING, value.parse().unwrap());
        }
        for_answer(&headers)
    }

    #[test]
    fn gzip_is_for_those_who_ask_for_it() {
        for wanted in [&["gzip"][..], &["GZIP;q=0.5"], &["gzip, br;q=0"], &["identity;q=0, gzip"], &["identity;q=0, *"]]
        {
            assert_eq!(answer(wanted), Ok(Coding::Gzip), "{wanted:?}");
        }
        let usual = "gzip, deflate, br, zstd";
        for not in [&[][..], &[""], &[usual], &["gzip", "deflate"], &["*"], &["gzip;q=0"], &["br"], &["gzip, identity"]]
        {
            assert_eq!(answer(not), Ok(Coding::Plain), "{not:?}");
        }
        for neither in [&["identity;q=0"][..], &["br, identity;q=0"], &["*;q=0"], &["gzip;q=0, *;q=0"]] {
            assert_eq!(answer(neither), Err(Unknown), "{neither:?}");
        }
    }

    #[test]
    fn content_is_plain_or_gzip() {
        let of = |value: &str| of_request(&HeaderMap::from_iter([(header::CONTENT_ENCODING, value.parse().unwrap())]));
        assert_eq!((of("gzip"), of("Identity"), of("br")), (Ok(Coding::Gzip), Ok(Coding::Plain), Err(Unknown)));
        assert_eq!(of_request(&HeaderMap::new()), Ok(Coding::Plain));
    }

    #[tokio::test]
    async fn a_little_that_becomes_much_is_unpacked_little_by_little() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![0; 32 << 20]).unwrap();
        let small = encoder.finish().unwrap();
        let length = small.len();
        let mut unpacked = unpacked(stream::iter(pieces(&small, length)));
        let mut all = 0;
        while let Some(piece) = unpacked.next().await {
            let piece = piece.unwrap();
            assert!(piece.len() <= 128 << 10, "{} at once", piece.len());
            all += piece.len();
        }
        assert_eq!(all, 32 << 20);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_packed_is_unpacked_again(data in proptest::collection::vec(any::<u8>(), 0..5000), size in 1..700usize, cut in 1..20usize) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let small = whole(packed(stream::iter(pieces(&data, size)))).await.unwrap();
                let back = whole(unpacked(stream::iter(pieces(&small, size / 2)))).await.unwrap();
                assert_eq!(back, data);
                // Two members, one after the other, are the content of both.
                let twice = whole(unpacked(stream::iter(pieces(&[small.clone(), small.clone()].concat(), size)))).await;
                assert_eq!(twice.unwrap(), [data.clone(), data].concat());
                let short = &small[..small.len() - cut];
                assert!(whole(unpacked(stream::iter(pieces(short, size)))).await.is_err());
            });
        }

        #[test]
        fn garbage_is_refused_and_nothing_else(data in proptest::collection::vec(any::<u8>(), 1..2000)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            drop(runtime.block_on(whole(unpacked(stream::iter(pieces(&data, 100))))));
        }
    }
}
