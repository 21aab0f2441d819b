//! Standard input and output by threads of their own, so that a full pipe or an idle terminal holds up nothing else.

use std::io;
use std::os::fd::BorrowedFd;
use std::thread;

use bytes::Bytes;
use roost_client::OutputStream;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};

/// Pieces on their way to the terminal or pipe; with pieces of 64 KiB this is all the memory output takes.
const PIECES: usize = 8;
const READ_SIZE: usize = 64 * 1024;

/// Writes to both standard output streams in the order given.
#[derive(Debug)]
pub(crate) struct Output {
    pieces: mpsc::Sender<(OutputStream, Bytes)>,
    ended: oneshot::Receiver<io::Result<()>>,
}

impl Output {
    pub(crate) fn start() -> io::Result<Self> {
        let (pieces, mut incoming) = mpsc::channel::<(OutputStream, Bytes)>(PIECES);
        let (end, ended) = oneshot::channel();
        thread::Builder::new().name("output".to_owned()).spawn(move || {
            let mut result = Ok(());
            while let Some((stream, bytes)) = incoming.blocking_recv() {
                let target = match stream {
                    OutputStream::Stdout => rustix::stdio::stdout(),
                    OutputStream::Stderr => rustix::stdio::stderr(),
                };
                result = write_all(target, &bytes);
                if result.is_err() {
                    break;
                }
            }
            drop(incoming);
            // Nobody asks when the process is ending.
            end.send(result).unwrap_or_default();
        })?;
        Ok(Self { pieces, ended })
    }

    /// Hands a piece over; waits while the reader is slow. An error is that of an earlier piece.
    pub(crate) async fn write(&mut self, stream: OutputStream, bytes: Bytes) -> io::Result<()> {
        match self.pieces.send((stream, bytes)).await {
            Ok(()) => Ok(()),
            Err(_) => self.outcome().await,
        }
    }

    /// Waits until everything is written.
    pub(crate) async fn finish(mut self) -> io::Result<()> {
        let (closed, _) = mpsc::channel(1);
        self.pieces = closed;
        self.outcome().await
    }

    async fn outcome(&mut self) -> io::Result<()> {
        let ended = (&mut self.ended).await;
        ended.unwrap_or_else(|_| Err(io::Error::other("the output thread ended")))
    }
}

/// Reads standard input piece by piece; the channel closes at its end.
pub(crate) fn read_stdin() -> io::Result<mpsc::Receiver<io::Result<Bytes>>> {
    let (pieces, incoming) = mpsc::channel(PIECES);
    thread::Builder::new().name("input".to_owned()).spawn(move || {
        let stdin = rustix::stdio::stdin();
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let piece = match rustix::io::read(stdin, &mut buffer[..]) {
                Ok(0) => return,
                Ok(count) => Ok(Bytes::copy_from_slice(&buffer[..count])),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => match wait(stdin, PollFlags::IN) {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error.into()),
            };
            let failed = piece.is_err();
            if pieces.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    })?;
    Ok(incoming)
}

fn write_all(target: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(target, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            // Somebody else made the terminal we share with them non-blocking.
            Err(Errno::AGAIN) => wait(target, PollFlags::OUT)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait(stream: BorrowedFd<'_>, what: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(&stream, what)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
