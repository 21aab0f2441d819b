//! The daemon's end of the process that launchers are forked from, and of the launchers themselves as processes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::launch::BIRTH;

/// A fork takes a fraction of a millisecond; one that has not answered by then is taken for dead.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has launchers forked; started with the first of them, and again if it was ended by somebody.
#[derive(Debug)]
pub(crate) struct Mother {
    program: PathBuf,
    line: Mutex<Option<Line>>,
}

/// The process, with nothing asked that is not answered.
#[derive(Debug)]
struct Line {
    socket: UnixStream,
    /// Ends with this.
    _process: Child,
}

impl Mother {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program, line: Mutex::default() }
    }

    /// Has a launcher forked whose end of its socket is `theirs`.
    pub(crate) async fn bear(&self, theirs: &OwnedFd) -> io::Result<Forked> {
        let mut line = self.line.lock().await;
        // Taken out: a conversation that breaks off in the middle is not gone on with.
        if let Some(mut known) = line.take()
            && let Ok(born) = known.ask(theirs).await
        {
            *line = Some(known);
            return Forked::of(born);
        }
        let mut fresh = Line::open(&self.program)?;
        let born = fresh.ask(theirs).await?;
        *line = Some(fresh);
        Forked::of(born)
    }

    /// Ends the process; launchers go on.
    pub(crate) async fn close(&self) {
        self.line.lock().await.take();
    }
}

impl Line {
    fn open(program: &PathBuf) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let process = Command::new(program)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { socket: UnixStream::from_std(ours)?, _process: process })
    }

    async fn ask(&mut self, theirs: &OwnedFd) -> io::Result<OwnedFd> {
        tokio::time::timeout(PATIENCE, self.talk(theirs)).await?
    }

    async fn talk(&mut self, theirs: &OwnedFd) -> io::Result<OwnedFd> {
        let socket = &self.socket;
        let descriptors = [theirs.as_fd()];
        socket
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
                    return Err(io::Error::from(io::ErrorKind::InvalidInput));
                }
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                Ok(sendmsg(socket, &[IoSlice::new(&[BIRTH])], &mut control, flags)?)
            })
            .await?;
        let born = socket.async_io(Interest::READABLE, || {
            let mut byte = [0];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
            Ok(control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            }))
        });
        born.await?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

/// A launcher's process, a child of the daemon that it must wait for itself.
#[derive(Debug)]
pub(crate) struct Forked {
    pidfd: AsyncFd<OwnedFd>,
}

impl Forked {
    fn of(pidfd: OwnedFd) -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "its replacement is unsafe to call; an owned descriptor stays the same while registered"
        )]
        let pidfd = AsyncFd::with_interest(pidfd, Interest::READABLE)?;
        Ok(Self { pidfd })
    }

    pub(crate) fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Waits for its end, and lets the kernel forget it.
    pub(crate) async fn wait(&self) -> io::Result<()> {
        // Readable from its end on, and never again not.
        drop(self.pidfd.readable().await?);
        match waitid(WaitId::PidFd(self.pidfd.get_ref().as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            // Waited for before.
            Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}
