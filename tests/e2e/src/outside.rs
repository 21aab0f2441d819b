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
        // Apart from those of tests of the network alone, which take the other half.
        let number = 0x4000 | (std::process::id() & 0x1ff) << 5 | COUNTER.fetch_add(1, Ordering::Relaxed) & 0x1f;
        // 198.18.0.0/15 is set apart for tests of networks.
        let base = Ipv4Addr::new(198, 18, 0, 0).to_bits() + 4 * number;
        let (host_side, address) = (Ipv4Addr::from_bits(base + 1), Ipv4Addr::from_bits(base + 2));
        let outside = Self { home: netns::current()?, netns: netns::create()?, device: format!("rx{number}"), address };
        let inside = format!("/proc/{}/fd/{}", std::process::id(), outside.netns.as_raw_fd());
        let device = &outside.device;
        ip(&["link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", &inside])?;
        ip(&["addr", "add", &format!("{host_side}/30"), "dev", device])?;
        ip(&["link", "set", device, "up"])?;
        for arguments in
            [["addr", "add", &format!("{address}/30"), "dev", "eth0"].as_slice(), &["link", "set", "eth0", "up"]]
        {
            let output = Command::new("nsenter").arg(format!("--net={inside}")).arg("ip").args(arguments).output()?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
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
        if let Err(error) = ip(&["link", "del", &self.device]) {
            eprintln!("failed to remove `{}`: {error:#}", self.device);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("failed to run `ip`")?;
    ensure!(output.status.success(), "`ip {}`: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(())
}
