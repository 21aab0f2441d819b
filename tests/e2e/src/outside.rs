//! A stretch of internet behind the host, with servers that do as a test says.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use roost_sys::netns;

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A network namespace that sandboxes reach through the host; gone when dropped.
#[derive(Debug)]
pub struct Outside {
    home: OwnedFd,
    netns: OwnedFd,
    device: String,
    address: Ipv4Addr,
}

impl Outside {
    /// Makes one, with an address of its own.
    pub fn new() -> Result<Self> {
        let number = (std::process::id() & 0x1ff) << 5 | COUNTER.fetch_add(1, Ordering::Relaxed) & 0x1f;
        let base = Ipv4Addr::new(10, 202, 0, 0).to_bits() + 4 * number;
        let (host_side, far_side) = (Ipv4Addr::from_bits(base + 1), Ipv4Addr::from_bits(base + 2));
        let (home, netns, device) = (netns::current()?, netns::create()?, format!("rx{number}"));
        let mut outside = Self { home, netns, device, address: Ipv4Addr::UNSPECIFIED };
        let device = &outside.device;
        ip(&format!("link add {device} type veth peer name eth0 netns {}", path_of(&outside.netns)))?;
        ip(&format!("addr add {host_side}/30 dev {device}"))?;
        ip(&format!("link set {device} up"))?;
        // No sandbox may reach the host's own networks, so the server is behind the far end of the link. The first route that
        // no other test has is ours.
        let address = (number..number + 254)
            .map(public_address)
            .find(|address| ip(&format!("route add {address}/32 via {far_side} dev {device}")).is_ok())
            .context("all addresses for tests are in use")?;
        outside.address = address;
        netns::visit(&outside.home, &outside.netns, || {
            ip("link set lo up")?;
            ip(&format!("addr add {address}/32 dev lo"))?;
            ip(&format!("addr add {far_side}/30 dev eth0"))?;
            ip("link set eth0 up")
        })??;
        Ok(outside)
    }

    /// A listener out there, and where sandboxes find it.
    pub fn listen(&self) -> Result<(TcpListener, SocketAddrV4)> {
        let bound = netns::visit(&self.home, &self.netns, || TcpListener::bind((self.address, 0)))?;
        let listener = bound.context("failed to listen outside")?;
        let port = listener.local_addr()?.port();
        Ok((listener, SocketAddrV4::new(self.address, port)))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Err(error) = ip(&format!("link del {}", self.device)) {
            eprintln!("failed to remove `{}`: {error:#}", self.device);
        }
    }
}

/// The nth address of a range that is set apart for documentation.
fn public_address(n: u32) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, (n % 254 + 1) as u8)
}

/// A path by which tools find a namespace of this process.
pub(crate) fn path_of(netns: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), netns.as_raw_fd())
}

/// Runs `ip` in the network namespace of the calling thread.
pub(crate) fn ip(line: &str) -> Result<()> {
    let output = Command::new("ip").args(line.split(' ')).output().context("failed to run `ip`")?;
    ensure!(output.status.success(), "`ip {line}`: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
