//! A small netlink client: just what a slot's life needs, without a process and without a thread.
//!
//! The kernel handles a request inside `send`, so once that returns every acknowledgement is already
//! queued on the socket: [`Socket::execute`] reads until the queue is empty and never waits.

pub(crate) mod carrier;
pub(crate) mod changes;
pub(crate) mod flows;
pub(crate) mod message;
pub(crate) mod nft;
pub(crate) mod route;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, sockopt};

use message::{Batch, Received, Tolerate};

/// The kernel's refusal of one step.
#[derive(Debug, thiserror::Error)]
#[error("failed to {attempt}")]
pub struct NetlinkError {
    /// What was attempted.
    pub attempt: &'static str,
    /// The kernel's answer.
    pub source: io::Error,
}

impl NetlinkError {
    fn new(attempt: &'static str, errno: Errno) -> Self {
        Self { attempt, source: errno.into() }
    }

    pub(crate) fn is(&self, errno: Errno) -> bool {
        self.source.raw_os_error() == Some(errno.raw_os_error())
    }
}

/// A netlink socket; it belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// Large enough for any datagram of a dump (the kernel fills at most 32 KiB).
const BUFFER: usize = 64 * 1024;
/// The number of acknowledgements that fit into a socket's queue with a good margin: those to some 250 requests did not.
pub(crate) const ANSWERS_AT_ONCE: usize = 64;
/// Room for the reports of thousands of rules that another program changes at once; it is taken only while they wait.
const REPORTS_QUEUE: usize = 8 << 20;
/// Bounds how many datagrams of reports are read in one go.
const REPORTS_AT_ONCE: usize = 4096;

impl Socket {
    /// Opens a socket for links, addresses, routes and neighbours.
    pub(crate) fn route() -> Result<Self, NetlinkError> {
        Self::open(None, "open a route netlink socket")
    }

    /// Opens a socket for nftables.
    pub(crate) fn netfilter() -> Result<Self, NetlinkError> {
        Self::open(Some(netlink::NETFILTER), "open a netfilter netlink socket")
    }

    /// Opens a socket that receives a report of every change of an IPv4 address or route.
    pub(crate) fn address_reports() -> Result<Self, NetlinkError> {
        let groups = libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV4_ROUTE;
        Self::route()?.join(groups as u32, "subscribe to changes of addresses")
    }

    /// Opens a socket that receives a report of every change of nftables.
    pub(crate) fn filter_reports() -> Result<Self, NetlinkError> {
        Self::netfilter()?.join(1 << (libc::NFNLGRP_NFTABLES - 1), "subscribe to changes of nftables")
    }

    fn join(self, groups: u32, attempt: &'static str) -> Result<Self, NetlinkError> {
        sockopt::set_socket_recv_buffer_size_force(&self.fd, REPORTS_QUEUE)
            .map_err(|errno| NetlinkError::new("make room for reports of changes", errno))?;
        rustix::net::bind(&self.fd, &netlink::SocketAddrNetlink::new(0, groups))
            .map_err(|errno| NetlinkError::new(attempt, errno))?;
        Ok(self)
    }

    /// Hands every report that waits to `each`. Returns whether the kernel dropped some because too many came at once.
    pub(crate) fn reports(&mut self, mut each: impl FnMut(&Received<'_>)) -> Result<bool, NetlinkError> {
        let mut lost = false;
        for _ in 0..REPORTS_AT_ONCE {
            match self.receive(RecvFlags::DONTWAIT) {
                Ok(None) => break,
                Ok(Some(length)) => message::split(&self.buffer[..length]).for_each(|report| each(&report)),
                Err(Errno::NOBUFS) => lost = true,
                Err(errno) => return Err(NetlinkError::new("read reports of changes", errno)),
            }
        }
        Ok(lost)
    }

    fn open(protocol: Option<rustix::net::Protocol>, attempt: &'static str) -> Result<Self, NetlinkError> {
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
            .map_err(|errno| NetlinkError::new(attempt, errno))?;
        Ok(Self { fd, buffer: vec![0; BUFFER] })
    }

    /// Sends all messages at once and reports the first that was refused and may not be.
    pub(crate) fn execute(&mut self, batch: &Batch) -> Result<(), NetlinkError> {
        let first = batch.purposes.first().map_or("talk to the kernel", |p| p.attempt);
        self.send(batch).map_err(|errno| NetlinkError::new(first, errno))?;

        let mut answers: Vec<Option<i32>> = vec![None; batch.purposes.len()];
        while let Some(length) = self.receive(RecvFlags::DONTWAIT).map_err(|errno| NetlinkError::new(first, errno))? {
            for received in message::split(&self.buffer[..length]) {
                if received.kind != libc::NLMSG_ERROR as u16 {
                    continue;
                }
                let code = message::u32_at(received.payload, 0).map_or(0, |code| code as i32);
                if let Some(answer) = answers.get_mut(received.sequence as usize) {
                    *answer = Some(-code);
                }
            }
        }

        for (purpose, answer) in batch.purposes.iter().zip(answers) {
            let errno = match answer {
                Some(0) => continue,
                None if !purpose.acknowledged => continue,
                // No answer at all: the batch was given up before this message's turn.
                None => Errno::CANCELED,
                Some(code) => Errno::from_raw_os_error(code),
            };
            let tolerated = match purpose.tolerate {
                Tolerate::Nothing => false,
                Tolerate::One(expected) => expected == errno,
                Tolerate::Anything => true,
            };
            if !tolerated {
                return Err(NetlinkError::new(purpose.attempt, errno));
            }
        }
        Ok(())
    }

    /// Sends one dump request and hands every answered message's payload to `each`.
    pub(crate) fn dump(
        &mut self,
        attempt: &'static str,
        kind: u16,
        header: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), NetlinkError> {
        let mut batch = Batch::new();
        batch.silent(attempt, kind, libc::NLM_F_DUMP).raw(header);
        self.send(&batch).map_err(|errno| NetlinkError::new(attempt, errno))?;
        loop {
            let length = self
                .receive(RecvFlags::empty())
                .map_err(|errno| NetlinkError::new(attempt, errno))?
                .unwrap_or_default();
            for received in message::split(&self.buffer[..length]) {
                match i32::from(received.kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        let code = message::u32_at(received.payload, 0).map_or(0, |code| code as i32);
                        return Err(NetlinkError::new(attempt, Errno::from_raw_os_error(-code)));
                    }
                    _ => each(received.payload),
                }
            }
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn send(&mut self, batch: &Batch) -> rustix::io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::net::send(&self.fd, &batch.bytes, SendFlags::empty()))?;
        Ok(())
    }

    fn receive(&mut self, flags: RecvFlags) -> rustix::io::Result<Option<usize>> {
        match rustix::io::retry_on_intr(|| rustix::net::recv(&self.fd, self.buffer.as_mut_slice(), flags)) {
            Ok((length, _)) => Ok(Some(length)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}
