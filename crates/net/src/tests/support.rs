//! Namespaces to test in: sandboxes, a world behind the host, and an instance that cleans up.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roost_sys::netns;

use crate::netlink::Socket;
use crate::netlink::carrier::Settle;
use crate::netlink::message::Batch;
use crate::netlink::route::{self, End};
use crate::{Access, Config, Network, Resolvers, Slot};

/// How long a connection that must not come about is waited for.
pub(super) const REFUSAL: Duration = Duration::from_millis(300);
/// How long something that must come about may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A number that no other test of this or a parallel run has, below 2^15.
fn unique() -> u32 {
    (std::process::id() & 0x1ff) << 6 | COUNTER.fetch_add(1, Ordering::Relaxed) & 0x3f
}

/// Runs a tool in the network namespace of the calling thread; says whether it succeeded.
pub(super) fn run(tool: &str, arguments: &[&str]) -> bool {
    Command::new(tool).args(arguments).stderr(Stdio::null()).status().unwrap().success()
}

/// Chooses an address of a range for documentation: the first from the nth on that `claim` gets, as no other test has it.
fn public_address(start: u32, claim: impl Fn(Ipv4Addr) -> bool) -> Ipv4Addr {
    let nth = |n: u32| Ipv4Addr::new(198, 51, 100, (n % 254 + 1) as u8);
    (start..start + 254).map(nth).find(|address| claim(*address)).expect("all addresses for tests are in use")
}

/// A network namespace to do things in.
pub(super) struct Place {
    home: OwnedFd,
    netns: OwnedFd,
    _owner: Option<Owner>,
}

/// A process in a user namespace of its own, whose network namespace is the place.
struct Owner(Child);

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Place {
    pub(super) fn new() -> Self {
        Self { home: netns::current().unwrap(), netns: netns::create().unwrap(), _owner: None }
    }

    /// A namespace that belongs to a foreign user namespace, as a sandbox's does.
    pub(super) fn of_another_user() -> Self {
        use std::io::{Read, Write};
        let mut child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // An echo means that the namespaces are made.
        child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let path = format!("/proc/{}/ns/net", child.id());
        let netns = std::fs::File::open(path).unwrap().into();
        Self { home: netns::current().unwrap(), netns, _owner: Some(Owner(child)) }
    }

    pub(super) fn pinned(config: &Config) -> Self {
        let netns = netns::open_pinned(&config.router_pin()).unwrap().unwrap();
        Self { home: netns::current().unwrap(), netns, _owner: None }
    }

    pub(super) fn netns(&self) -> OwnedFd {
        self.netns.try_clone().unwrap()
    }

    /// Runs `work` inside; sockets made there stay there.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        netns::visit(&self.home, &self.netns, work).unwrap()
    }

    pub(super) fn listen(&self, port: u16) -> TcpListener {
        self.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
    }

    /// Tries to connect from inside.
    pub(super) fn reaches(&self, to: SocketAddrV4) -> bool {
        self.reaches_within(to, REFUSAL)
    }

    pub(super) fn reaches_within(&self, to: SocketAddrV4, patience: Duration) -> bool {
        self.run(|| TcpStream::connect_timeout(&to.into(), patience).is_ok())
    }

    /// A TCP connection from a given port of the inside address.
    pub(super) fn connect_from(&self, port: u16, to: SocketAddrV4) -> TcpStream {
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        let socket = self.run(|| {
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
        });
        rustix::net::bind(&socket, &SocketAddrV4::new(crate::INSIDE_ADDRESS, port)).unwrap();
        rustix::net::connect(&socket, &to).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The packets that were passed on from one link to another so far.
    pub(super) fn forwarded_packets(&self) -> u64 {
        let table = self.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
        let mut lines = table.lines().filter(|line| line.starts_with("Ip:"));
        let names = lines.next().unwrap().split_whitespace();
        let values = lines.next().unwrap().split_whitespace();
        let (_, value) = names.zip(values).find(|(name, _)| *name == "ForwDatagrams").unwrap();
        value.parse().unwrap()
    }

    pub(super) fn route_socket(&self) -> Socket {
        self.run(|| Socket::route().unwrap())
    }
}

/// A stretch of internet behind the host: one namespace, one link, one address that the host reaches by a route.
pub(super) struct World {
    pub(super) place: Place,
    pub(super) address: Ipv4Addr,
    /// The host's own address on that link.
    pub(super) host_side: Ipv4Addr,
    index: u32,
}

impl World {
    pub(super) fn new() -> Self {
        let place = Place::new();
        let number = unique();
        let base = Ipv4Addr::new(10, 200, 0, 0).to_bits() + 4 * number;
        let (host_side, far_side) = (Ipv4Addr::from_bits(base + 1), Ipv4Addr::from_bits(base + 2));
        let name = format!("rw{number}");
        let end = |name| End { name, index: 0, mac: None, group: 0, up: false };

        let mut host = Socket::route().unwrap();
        let mut batch = Batch::new();
        route::add_veth(&mut batch, end(&name), end("eth0"), place.netns.as_fd(), 1400);
        host.execute(&batch).unwrap();
        let index_of = |socket: &mut Socket, name: &str| {
            route::links(socket).unwrap().iter().find(|link| link.name == name).unwrap().index
        };
        let index = index_of(&mut host, &name);
        let mut inside = place.route_socket();
        let far = index_of(&mut inside, "eth0");
        for (socket, index, address) in [(&mut host, index, host_side), (&mut inside, far, far_side)] {
            let mut batch = Batch::new();
            route::set_up(&mut batch, "bring up the world", index);
            route::add_address(&mut batch, index, address, 30);
            socket.execute(&batch).unwrap();
        }
        let mut batch = Batch::new();
        // The way of older kernels, so that both are used.
        Settle::Requeue.request(&mut batch, index);
        host.execute(&batch).unwrap();

        let address = public_address(number, |address| {
            run("ip", &["route", "add", &format!("{address}/32"), "via", &far_side.to_string(), "dev", &name])
        });
        let mut batch = Batch::new();
        route::set_up(&mut batch, "bring up the world's loopback", 1);
        route::add_address(&mut batch, 1, address, 32);
        inside.execute(&batch).unwrap();
        Self { place, address, host_side, index }
    }

    pub(super) fn at(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, port)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let mut batch = Batch::new();
        route::delete_link(&mut batch, self.index);
        drop(Socket::route().and_then(|mut socket| socket.execute(&batch)));
    }
}

/// A host of a test's own, with public addresses and a gateway to an internet that consists of one namespace.
pub(super) struct PrivateHost {
    pub(super) internet: Place,
}

impl PrivateHost {
    /// An address of the host that is on no link.
    pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
    pub(super) const LINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
    pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
    /// Another machine in the host's own network.
    pub(super) const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
    /// A server beyond the gateway.
    pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 200);

    /// Runs a test on a thread that is on such a host, with all that it starts.
    pub(super) fn run<F: Future<Output = ()>>(test: impl FnOnce(Arc<Self>) -> F + Send + 'static) {
        let thread = std::thread::spawn(|| {
            netns::unshare().unwrap();
            let host = Arc::new(Self { internet: Place::new() });
            let far = format!("/proc/{}/fd/{}", std::process::id(), host.internet.netns.as_raw_fd());
            let ip = |line: &str| assert!(run("ip", &line.split(' ').collect::<Vec<_>>()), "ip {line}");
            ip("link set lo up");
            ip(&format!("addr add {}/32 dev lo", Self::ADDRESS));
            ip(&format!("link add wan type veth peer name eth0 netns {far}"));
            ip(&format!("addr add {}/24 dev wan", Self::LINK_ADDRESS));
            ip("link set wan up");
            host.internet.run(|| {
                ip("link set lo up");
                ip(&format!("addr add {}/32 dev lo", Self::SERVER));
                ip(&format!("addr add {}/24 dev eth0", Self::GATEWAY));
                ip(&format!("addr add {}/24 dev eth0", Self::NEIGHBOUR));
                ip("link set eth0 up");
            });
            ip(&format!("route add default via {}", Self::GATEWAY));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(test(Arc::clone(&host)));
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// An instance with a tag of its own that is removed at the end, whatever happens.
pub(super) struct Instance {
    pub(super) config: Config,
    _folder: tempfile::TempDir,
}

impl Instance {
    pub(super) fn new() -> Self {
        Self::with_resolvers(Vec::new())
    }

    pub(super) fn with_resolvers(resolvers: Vec<std::net::SocketAddr>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::new(format!("{:06x}", 0xe0_0000 | unique()), folder.path());
        config.resolvers = Resolvers::Fixed(resolvers);
        Self { config, _folder: folder }
    }

    pub(super) async fn open(&self) -> Network {
        self.reopen(&[]).await
    }

    pub(super) async fn reopen(&self, in_use: &[(Slot, Access)]) -> Network {
        Network::open(self.config.clone(), in_use).await.unwrap()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let gone = crate::destroy(&self.config);
        if !std::thread::panicking() {
            gone.unwrap();
        }
    }
}

/// Plugs a fresh namespace.
pub(super) async fn sandbox(network: &Network, access: Access) -> (Place, Slot) {
    let place = Place::new();
    let slot = network.allocate().unwrap();
    network.plug(slot, place.netns(), access).await.unwrap();
    (place, slot)
}
