//! A host's network of a test's own, in which rules may be flushed without harm to anything else.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use roost_sys::netns;

use crate::outside::{ip, path_of};

/// A network namespace with public addresses, and a gateway in it to another that is all of the internet.
#[derive(Debug)]
pub struct PrivateHost {
    home: OwnedFd,
    host: OwnedFd,
    internet: OwnedFd,
}

/// The addresses at which clients have reached a server.
#[derive(Clone, Debug, Default)]
pub struct Server(Arc<Mutex<BTreeSet<Ipv4Addr>>>);

impl Server {
    /// Those at which it was reached since it was asked last.
    pub fn take_reached(&self) -> Vec<Ipv4Addr> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }
}

impl PrivateHost {
    /// An address of the host that belongs to none of its links.
    pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
    /// Its address in the network of its gateway.
    pub const LINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
    /// Its gateway.
    pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
    /// Another machine in that network.
    pub const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
    /// A machine beyond the gateway.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 200);
    /// Where clouds answer for the machines that run in them; here the internet does.
    pub const METADATA: [Ipv4Addr; 5] = [
        Ipv4Addr::new(169, 254, 169, 254),
        Ipv4Addr::new(168, 63, 129, 16),
        Ipv4Addr::new(192, 0, 0, 192),
        Ipv4Addr::new(198, 18, 0, 1),
        Ipv4Addr::new(100, 100, 100, 200),
    ];
    /// The port of all servers.
    pub const PORT: u16 = 7000;

    /// Makes one.
    pub fn new() -> Result<Self> {
        let made = Self { home: netns::current()?, host: netns::create()?, internet: netns::create()? };
        let far = path_of(&made.internet);
        netns::visit(&made.home, &made.host, || {
            ip("link set lo up")?;
            ip(&format!("addr add {}/32 dev lo", Self::ADDRESS))?;
            ip(&format!("link add wan type veth peer name eth0 netns {far}"))?;
            ip(&format!("addr add {}/24 dev wan", Self::LINK_ADDRESS))?;
            ip("link set wan up")?;
            ip(&format!("route add default via {}", Self::GATEWAY))
        })??;
        netns::visit(&made.home, &made.internet, || {
            ip("link set lo up")?;
            for address in Self::METADATA.iter().chain([&Self::SERVER]) {
                ip(&format!("addr add {address}/32 dev lo"))?;
            }
            for address in [Self::GATEWAY, Self::NEIGHBOUR] {
                ip(&format!("addr add {address}/24 dev eth0"))?;
            }
            ip("link set eth0 up")?;
            // Answers find the host's sandboxes also while nothing masquerades them.
            ip(&format!("route add default via {}", Self::LINK_ADDRESS))
        })??;
        Ok(made)
    }

    /// Where its network is found.
    pub fn path(&self) -> PathBuf {
        path_of(&self.host).into()
    }

    /// Runs `nft` on it.
    pub fn nft(&self, line: &str) -> Result<()> {
        let run = || Command::new("nft").args(line.split(' ')).output();
        let output = netns::visit(&self.home, &self.host, run)?.context("failed to run `nft`")?;
        ensure!(output.status.success(), "`nft {line}`: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Listens on every address of the host.
    pub fn serve_on_host(&self) -> Result<Server> {
        self.serve(&self.host)
    }

    /// Listens on every address of the internet, the host's neighbours' among them.
    pub fn serve_on_internet(&self) -> Result<Server> {
        self.serve(&self.internet)
    }

    fn serve(&self, place: &OwnedFd) -> Result<Server> {
        let bound = netns::visit(&self.home, place, || TcpListener::bind((Ipv4Addr::UNSPECIFIED, Self::PORT)))?;
        let (listener, server) = (bound.context("failed to listen")?, Server::default());
        let reached = Arc::clone(&server.0);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                if let Ok(std::net::SocketAddr::V4(address)) = stream.local_addr() {
                    reached.lock().unwrap_or_else(PoisonError::into_inner).insert(*address.ip());
                }
                // A client that has gone has been counted all the same.
                drop(stream.write_all(b"reached\n"));
            }
        });
        Ok(server)
    }

    /// Counts the packets of sandboxes that the wall in a daemon's router has dropped.
    pub fn dropped_by_wall(&self, data_dir: &Path) -> Result<u64> {
        let router = netns::open_pinned(&data_dir.join("run/router"))?.context("there is no router")?;
        let list = || Command::new("nft").args(["list", "table", "ip", "roost_wall"]).output();
        let text = String::from_utf8(netns::visit(&self.home, &router, list)??.stdout)?;
        let count = text.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
        Ok(count.with_context(|| format!("no counter in {text}"))?.parse()?)
    }
}
