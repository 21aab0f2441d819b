//! What holds while other programs change the host's rules and addresses, on hosts of the tests' own.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::support::{Instance, PATIENCE, Place, PrivateHost, run, sandbox};
use crate::netlink::{Socket, flows};
use crate::probe::Severity;
use crate::{Access, rules};

const PORT: u16 = 7000;
const SERVER: SocketAddrV4 = SocketAddrV4::new(PrivateHost::SERVER, PORT);
/// A connection that is to be tried again soon.
const ATTEMPT: Duration = Duration::from_millis(50);

/// Runs `nft` with one line of arguments.
fn nft(line: &str) -> bool {
    rules::nft().args(line.split(' ')).status().unwrap().success()
}

fn has_host_table(instance: &Instance) -> bool {
    run("nft", &["list", "table", "ip", &rules::host_table(&instance.config.tag)])
}

/// The text of the router's wall.
fn wall(instance: &Instance) -> String {
    let list = || rules::nft().args(["list", "table", "ip", rules::WALL_TABLE]).output().unwrap();
    String::from_utf8(Place::pinned(&instance.config).run(list).stdout).unwrap()
}

/// Repeats a look until it is as wanted.
async fn becomes(wanted: &str, look: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < deadline, "never came about: {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Addresses that no sandbox may reach, with a server at each.
fn walled_off(host: &PrivateHost) -> (Vec<TcpListener>, Vec<SocketAddrV4>) {
    let metadata = [[169, 254, 169, 254], [168, 63, 129, 16], [192, 0, 0, 192], [198, 18, 0, 1], [100, 100, 100, 200]];
    let metadata = metadata.map(Ipv4Addr::from);
    host.internet.run(|| {
        for address in metadata {
            assert!(run("ip", &["addr", "add", &format!("{address}/32"), "dev", "lo"]));
        }
    });
    let own = [PrivateHost::ADDRESS, PrivateHost::LINK_ADDRESS, PrivateHost::GATEWAY, PrivateHost::NEIGHBOUR];
    let listeners = vec![host.internet.listen(PORT), TcpListener::bind(("0.0.0.0", PORT)).unwrap()];
    let targets: Vec<_> = own.into_iter().chain(metadata).map(|address| SocketAddrV4::new(address, PORT)).collect();
    for target in &targets {
        TcpStream::connect_timeout(&(*target).into(), PATIENCE).unwrap();
    }
    (listeners, targets)
}

#[test]
fn host_its_network_and_metadata_stay_out_of_reach_without_the_hosts_rules() {
    PrivateHost::run(|host| async move {
        let instance = Instance::new();
        let network = instance.open().await;
        let (place, slot) = sandbox(&network, Access::Internet).await;
        let (_listeners, targets) = walled_off(&host);
        let unreached = || targets.iter().all(|target| !place.reaches(*target));
        assert!(place.reaches(SERVER));
        assert!(unreached());

        // Answers find back without the host's masquerade, so that only the wall in the router is in the way.
        host.internet.run(|| {
            assert!(run("ip", &["route", "add", "default", "via", &PrivateHost::LINK_ADDRESS.to_string()]));
        });
        // No daemon is there to load the rules again.
        drop(network);
        assert!(nft("flush ruleset") && !has_host_table(&instance));
        assert!(place.reaches(SERVER));
        for target in &targets {
            assert!(!place.reaches(*target), "{target} answered");
        }
        // Nothing but the wall was in the way.
        assert!(Place::pinned(&instance.config).run(|| nft(&format!("delete table ip {}", rules::WALL_TABLE))));
        assert!(place.reaches(targets[0]));
        let network = instance.reopen(&[(slot, Access::Internet)]).await;
        assert!(has_host_table(&instance));
        assert!(place.reaches(SERVER) && unreached());
        drop(network);
    });
}

/// Tries to connect again and again until it is told to stop; returns the number of tries.
fn attack(place: &Place, target: SocketAddrV4, stop: &AtomicBool, tries: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        place.reaches_within(target, ATTEMPT);
        tries.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn host_stays_closed_and_the_way_out_returns_within_a_second_of_a_flush() {
    PrivateHost::run(|host| async move {
        let instance = Instance::new();
        let network = instance.open().await;
        let (place, _) = sandbox(&network, Access::Internet).await;
        let (_server, closed) = (host.internet.listen(PORT), TcpListener::bind((PrivateHost::ADDRESS, PORT)).unwrap());
        closed.set_nonblocking(true).unwrap();
        let target = SocketAddrV4::new(PrivateHost::ADDRESS, PORT);
        let folder = tempfile::tempdir().unwrap();
        let reload = folder.path().join("nftables.conf");
        std::fs::write(&reload, "flush ruleset\ntable inet filter {\n chain input {\n }\n}\n").unwrap();
        let reload = format!("-f {}", reload.display());
        let delete = format!("delete table ip {}", rules::host_table(&instance.config.tag));

        let (stop, tries) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut slowest = Duration::ZERO;
        std::thread::scope(|scope| {
            scope.spawn(|| attack(&place, target, &stop, &tries));
            for round in 0..20 {
                let way = [delete.as_str(), "flush ruleset", reload.as_str()][round % 3];
                assert!(nft(way), "nft {way}");
                let gone = Instant::now();
                while !place.reaches_within(SERVER, ATTEMPT) {}
                slowest = slowest.max(gone.elapsed());
            }
            stop.store(true, Ordering::Relaxed);
        });
        println!("back after {slowest:?} at most; {} tries to reach the host", tries.load(Ordering::Relaxed));
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
        assert!(tries.load(Ordering::Relaxed) >= 20);
        assert_eq!(closed.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let findings = network.findings().await;
        assert!(findings.iter().any(|finding| finding.code == "host_table_loaded_again"), "{findings:?}");
    });
}

#[test]
fn changed_rule_in_the_hosts_table_is_taken_back() {
    PrivateHost::run(|_| async move {
        let instance = Instance::new();
        let network = instance.open().await;
        let table = rules::host_table(&instance.config.tag);
        assert!(nft(&format!("insert rule ip {table} input accept")));
        let list = || {
            let output = rules::nft().args(["list", "chain", "ip", &table, "input"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        becomes("an input chain as it was", || !list().is_empty() && !list().contains("\t\taccept")).await;
        // What others do in tables of their own is no reason to load anything.
        let loads = network.findings().await;
        assert!(nft("add table ip other") && nft("delete table ip other"));
        assert_eq!(network.findings().await, loads);
    });
}

#[test]
fn thousands_of_rules_of_another_program_cause_no_load() {
    PrivateHost::run(|_| async move {
        let instance = Instance::new();
        let network = instance.open().await;
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("rules");
        let rule = "add rule ip other chain1 ip saddr 192.0.2.1 tcp dport 80 counter accept\n";
        std::fs::write(&rules, format!("add table ip other\nadd chain ip other chain1\n{}", rule.repeat(5000)))
            .unwrap();
        assert!(nft(&format!("-f {}", rules.display())) && nft("delete table ip other"));
        // A change of our own table is reported after all of these.
        assert!(nft(&format!("delete table ip {}", rules::host_table(&instance.config.tag))));
        let deadline = Instant::now() + PATIENCE;
        let loaded = loop {
            let findings = network.findings().await;
            if let Some(loaded) = findings.into_iter().find(|finding| finding.code == "host_table_loaded_again") {
                break loaded;
            }
            assert!(Instant::now() < deadline, "the table was not loaded again");
        };
        assert!(loaded.message.ends_with("(1x)"), "{loaded:?}");
    });
}

#[test]
fn wall_follows_the_hosts_addresses() {
    PrivateHost::run(|_| async move {
        let instance = Instance::new();
        let network = instance.open().await;
        assert!(wall(&instance).contains("198.51.100.0/24"), "{}", wall(&instance));
        assert!(run("ip", &["addr", "add", "203.0.113.66/28", "dev", "lo"]));
        becomes("a wall with the new network", || wall(&instance).contains("203.0.113.64/28")).await;
        assert!(run("ip", &["addr", "del", "203.0.113.66/28", "dev", "lo"]));
        becomes("a wall without it", || !wall(&instance).contains("203.0.113.64/28")).await;
        // An address of the host's that is on no link.
        assert!(run("ip", &["route", "add", "local", "192.0.2.7/32", "dev", "lo"]));
        becomes("a wall with the address of the route", || wall(&instance).contains("192.0.2.7")).await;
        drop(network);
    });
}

#[test]
fn doctor_sees_the_host_as_it_is_now() {
    PrivateHost::run(|_| async move {
        let instance = Instance::new();
        let network = instance.open().await;
        let warnings = async || {
            let all = network.findings().await;
            let bad = all.into_iter().filter(|finding| finding.severity != Severity::Note);
            bad.map(|finding| finding.code).collect::<Vec<_>>()
        };
        assert!(warnings().await.is_empty());
        assert!(nft("add table ip filter"));
        assert!(nft("add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }"));
        assert_eq!(warnings().await, ["forward_policy_drop"]);
        assert!(nft("add rule ip filter FORWARD iifname \"ro*\" accept"));
        assert!(warnings().await.is_empty());
        assert!(nft("delete table ip filter"));
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
        assert_eq!(warnings().await, ["forwarding_off"]);
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        assert!(warnings().await.is_empty());
    });
}

/// The flows in a socket's namespace that name the server.
fn flows_to_server(socket: &mut Socket) -> usize {
    let mut count = 0;
    let server = PrivateHost::SERVER.octets();
    let is_meant = |payload: &[u8]| payload.windows(4).any(|bytes| bytes == server);
    flows::list(socket, |payload| count += usize::from(is_meant(payload))).unwrap();
    count
}

#[test]
fn flows_of_a_slot_are_forgotten_soon_after_it_is_cut_off() {
    PrivateHost::run(|host| async move {
        let instance = Instance::new();
        let network = instance.open().await;
        let (one, gone) = sandbox(&network, Access::Internet).await;
        let (two, _) = sandbox(&network, Access::Internet).await;
        let _server = host.internet.listen(PORT);
        let _gone: Vec<_> = (0..100).map(|n| one.connect_from(40_000 + n, SERVER)).collect();
        let _stays = two.connect_from(40_000, SERVER);
        let router = Place::pinned(&instance.config);
        let (mut inner, mut outer) = (router.run(|| Socket::netfilter().unwrap()), Socket::netfilter().unwrap());
        assert_eq!((flows_to_server(&mut inner), flows_to_server(&mut outer)), (101, 101));

        network.unplug(gone).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        while (flows_to_server(&mut inner), flows_to_server(&mut outer)) != (1, 1) {
            assert!(Instant::now() < deadline, "flows stay");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}
