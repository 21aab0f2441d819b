//! Small pieces put together, so that what is small is written at once.

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};

/// What is put together: as much as one frame to a guest carries, which writes each frame with one call.
const TOGETHER: usize = 256 * 1024;

/// The same bytes in pieces of [`TOGETHER`]; only the last is smaller.
pub(super) fn gathered<S, E>(pieces: S) -> impl Stream<Item = Result<Bytes, E>> + Send + Unpin
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Send,
{
    let start = Some((pieces, BytesMut::new()));
    let gather = stream::unfold(start, |state| async move {
        let (mut pieces, mut waiting) = state?;
        while waiting.len() < TOGETHER {
            match pieces.next().await {
                Some(Ok(piece)) => waiting.extend_from_slice(&piece),
                Some(Err(error)) => return Some((Err(error), None)),
                None => return (!waiting.is_empty()).then(|| (Ok(waiting.freeze()), None)),
            }
        }
        let piece = waiting.split_to(TOGETHER).freeze();
        Some((Ok(piece), Some((pieces, waiting))))
    });
    // Whoever looked for the first piece and found none asks again for the rest.
    Box::pin(gather.fuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sizes(pieces: &[usize]) -> Vec<usize> {
        let pieces: Vec<Result<Bytes, ()>> = pieces.iter().map(|size| Ok(vec![7; *size].into())).collect();
        gathered(stream::iter(pieces)).map(|piece| piece.unwrap().len()).collect().await
    }

    #[tokio::test]
    async fn what_is_small_is_one_piece() {
        assert_eq!(sizes(&[1, 2, 3]).await, [6]);
        assert!(sizes(&[]).await.is_empty());
        assert!(sizes(&[0, 0]).await.is_empty());
        assert_eq!(sizes(&[TOGETHER - 1, 3, 5]).await, [TOGETHER, 7]);
        assert_eq!(sizes(&[2 * TOGETHER + 1]).await, [TOGETHER, TOGETHER, 1]);
    }

    #[tokio::test]
    async fn its_end_can_be_asked_for_again() {
        let mut nothing = gathered(stream::iter(Vec::<Result<Bytes, ()>>::new()));
        assert!(nothing.next().await.is_none());
        assert!(nothing.next().await.is_none());
    }

    #[tokio::test]
    async fn a_failure_ends_it() {
        let pieces = vec![Ok(Bytes::from_static(b"x")), Err("broken"), Ok(Bytes::from_static(b"y"))];
        let got: Vec<Result<Bytes, &str>> = gathered(stream::iter(pieces)).collect().await;
        assert_eq!(got, [Err("broken")]);
    }
}
