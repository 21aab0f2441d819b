//! Bytes both ways, with an end for each direction, and next to nothing kept while nobody speaks.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::ports::Line;

const PIECE: usize = 16 * 1024;
/// Pieces of one direction before others have their turn.
const TURN: usize = 16;
/// What was sent this recently, and has had no answer, may not have been read when a sandbox falls asleep.
const UNREAD: Duration = Duration::from_secs(2);

/// One direction.
#[derive(Debug, Default)]
struct Pipe {
    /// What the other side has not taken yet; nothing is kept while it takes everything.
    waiting: BytesMut,
    ended: bool,
    flush: bool,
}

impl Pipe {
    /// Moves bytes until there are none, or no room for them; ready when the end was passed on.
    ///
    /// `sent` hears of everything that was written.
    fn poll_move<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        sent: &impl Fn(),
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        // On the stack, so that an idle direction has no buffer at all.
        let mut piece = [0; PIECE];
        for _ in 0..TURN {
            while !self.waiting.is_empty() {
                let count = ready!(Pin::new(&mut *to).poll_write(cx, &self.waiting))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.waiting.advance(count);
                self.flush = true;
                sent();
            }
            self.waiting = BytesMut::new();
            if self.ended {
                return Pin::new(&mut *to).poll_shutdown(cx);
            }
            let mut buffer = ReadBuf::new(&mut piece);
            match Pin::new(&mut *from).poll_read(cx, &mut buffer) {
                Poll::Pending => {
                    if self.flush {
                        ready!(Pin::new(&mut *to).poll_flush(cx))?;
                        self.flush = false;
                    }
                    return Poll::Pending;
                }
                Poll::Ready(read) => read?,
            }
            let bytes = buffer.filled();
            if bytes.is_empty() {
                self.ended = true;
                continue;
            }
            let taken = match Pin::new(&mut *to).poll_write(cx, bytes) {
                Poll::Ready(count) => count?,
                Poll::Pending => 0,
            };
            if taken > 0 {
                self.flush = true;
                sent();
            }
            self.waiting.extend_from_slice(bytes.get(taken..).unwrap_or_default());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Carries bytes between two streams until both directions have ended or one breaks.
async fn carry<A, B>(one: &mut A, other: &mut B, sent: impl Fn(), answered: impl Fn()) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut there, mut back) = (Pipe::default(), Pipe::default());
    let (mut there_done, mut back_done) = (false, false);
    poll_fn(move |cx| {
        if !there_done && let Poll::Ready(outcome) = there.poll_move(cx, one, other, &sent) {
            outcome?;
            there_done = true;
        }
        if !back_done && let Poll::Ready(outcome) = back.poll_move(cx, other, one, &answered) {
            outcome?;
            back_done = true;
        }
        if there_done && back_done { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// Connects a client with a port until either is done, the sandbox is gone, or the daemon stops.
///
/// A sandbox may be put to sleep under it; what the client sends wakes it again. `_in_use` is held as long as it lasts.
pub async fn tunnel<C, P, G>(mut client: C, mut port: P, line: Line, closing: CancellationToken, _in_use: G)
where
    C: AsyncRead + AsyncWrite + Unpin,
    P: AsyncRead + AsyncWrite + Unpin,
{
    let (unanswered, touched) = (Mutex::new(None::<Instant>), Notify::new());
    let note = |since| *unanswered.lock().unwrap_or_else(PoisonError::into_inner) = since;
    let is_unread = || {
        let since = *unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < UNREAD)
    };
    let sent = || {
        note(Some(Instant::now()));
        if line.is_asleep() {
            touched.notify_one();
        }
    };
    let waking = async {
        loop {
            touched.notified().await;
            line.touched().await;
        }
    };
    let mut watched = line.clone();
    tokio::select! {
        outcome = carry(&mut client, &mut port, sent, || note(None)) => {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a tunnel to a port broke");
            }
        }
        () = watched.lost(is_unread) => tracing::debug!("a tunnel lost its sandbox"),
        () = closing.cancelled() => {}
        () = waking => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn both_directions_end_by_themselves() {
        let (mut client, mut near) = duplex(1000);
        let (mut far, mut server) = duplex(700);
        let tunnel = tokio::spawn(async move { carry(&mut near, &mut far, || (), || ()).await });
        let echo = tokio::spawn(async move {
            let mut heard = Vec::new();
            server.read_to_end(&mut heard).await.unwrap();
            server.write_all(&heard).await.unwrap();
            server.write_all(b" and more").await.unwrap();
        });
        let sent: Vec<u8> = (0..1_000_000u32).map(|number| (number % 251) as u8).collect();
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, [sent.as_slice(), b" and more"].concat());
        echo.await.unwrap();
        tunnel.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_side_that_is_gone_ends_it() {
        let (client, mut near) = duplex(64);
        let (mut far, mut server) = duplex(64);
        let tunnel = tokio::spawn(async move { carry(&mut near, &mut far, || (), || ()).await });
        drop(client);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
        // Whoever still speaks to nobody finds out.
        server.write_all(&[0; 1000]).await.unwrap_err();
        assert!(tunnel.await.unwrap().is_err());
    }
}
