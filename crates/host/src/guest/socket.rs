//! A connection's socket, which ends with its sandbox.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A stream to a guest; broken once its sandbox has no processes any more, and what had arrived until then is read.
///
/// Where a kernel of the sandbox's own ends with it, nobody is left to say so to the other end.
#[derive(Debug)]
pub struct GuestSocket {
    stream: TcpStream,
    /// One for each direction: a future wakes the last task alone that polled it, and who reads need not be who writes.
    ended_for_reader: Pin<Box<WaitForCancellationFutureOwned>>,
    ended_for_writer: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl GuestSocket {
    pub(super) fn new(stream: TcpStream, ended: CancellationToken) -> Self {
        let ended_for_reader = Box::pin(ended.clone().cancelled_owned());
        Self { stream, ended_for_reader, ended_for_writer: Box::pin(ended.cancelled_owned()) }
    }

    /// The stream alone, for who notices that end in another way.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// What the stream said; the end of the sandbox, if it has nothing to say.
fn or_end<T>(
    said: Poll<io::Result<T>>,
    ended: &mut Pin<Box<WaitForCancellationFutureOwned>>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<T>> {
    if said.is_ready() {
        return said;
    }
    let broken = |()| Err(io::Error::new(ErrorKind::ConnectionReset, "its processes have ended"));
    ended.as_mut().poll(cx).map(broken)
}

impl AsyncRead for GuestSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let said = Pin::new(&mut self.stream).poll_read(cx, buf);
        or_end(said, &mut self.ended_for_reader, cx)
    }
}

impl AsyncWrite for GuestSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let said = Pin::new(&mut self.stream).poll_write(cx, bytes);
        or_end(said, &mut self.ended_for_writer, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_had_arrived_is_read_before_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let ended = CancellationToken::new();
        let mut socket = GuestSocket::new(stream, ended.clone());
        far.write_all(b"last").await.unwrap();
        // Arrived for sure.
        socket.stream.readable().await.unwrap();
        ended.cancel();
        let mut words = [0; 4];
        socket.read_exact(&mut words).await.unwrap();
        assert_eq!(&words, b"last");
        assert_eq!(socket.read(&mut words).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn both_directions_hear_of_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_far, _) = listener.accept().await.unwrap();
        let ended = CancellationToken::new();
        let (mut reader, mut writer) = tokio::io::split(GuestSocket::new(stream, ended.clone()));
        let reading = tokio::spawn(async move { reader.read(&mut [0; 1]).await });
        // Nobody reads at the far end, so that it waits at last.
        let writing = tokio::spawn(async move { writer.write_all(&vec![0; 64 << 20]).await });
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        ended.cancel();
        assert_eq!(reading.await.unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}
