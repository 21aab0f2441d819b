//! Opening again, plugging again, and leaving nothing behind.

use std::io::{Read, Write};
use std::net::SocketAddrV4;
use std::time::Instant;

use super::support::{Instance, PATIENCE, Place, World, sandbox};
use crate::netlink::Socket;
use crate::netlink::route;
use crate::{Access, PlugError, Slot, rules, uplink};

fn has_link(socket: &mut Socket, name: &str) -> bool {
    route::links(socket).unwrap().iter().any(|link| link.name == name)
}

fn has_table(name: &str) -> bool {
    let output = rules::nft().args(["list", "tables", "ip"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().any(|line| line == format!("table ip {name}"))
}

#[tokio::test]
async fn a_new_daemon_keeps_live_slots_and_sweeps_the_rest() {
    let (world, instance) = (World::new(), Instance::new());
    let network = instance.open().await;
    let (online, online_slot) = sandbox(&network, Access::Internet).await;
    let (offline, offline_slot) = sandbox(&network, Access::DaemonOnly).await;
    let (forgotten, forgotten_slot) = sandbox(&network, Access::Internet).await;
    let server = world.place.listen(8080);
    let _inside = offline.listen(7000);
    let mut client = online.connect_from(40_000, world.at(8080));
    let (mut served, _) = server.accept().unwrap();
    served.set_read_timeout(Some(PATIENCE)).unwrap();
    let uplink_address = |socket: &mut Socket| {
        let index = route::links(socket)
            .unwrap()
            .into_iter()
            .find(|link| link.name == uplink::host_device(&instance.config.tag))
            .unwrap()
            .index;
        let known = route::addresses(socket).unwrap();
        known.into_iter().find(|known| known.index == index).unwrap().address
    };
    let mut host = Socket::route().unwrap();
    let before = uplink_address(&mut host);

    drop(network);
    let in_use = [(online_slot, Access::Internet), (offline_slot, Access::DaemonOnly)];
    let network = instance.reopen(&in_use).await;

    assert_eq!(uplink_address(&mut host), before);
    client.write_all(b"still here").unwrap();
    let mut received = [0; 10];
    served.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"still here");
    assert!(online.reaches(world.at(8080)));
    assert!(!offline.reaches(world.at(8080)));
    let target = SocketAddrV4::new(offline_slot.address(), 7000);
    assert!(network.connect(target, PATIENCE).await.is_ok());
    assert!(!forgotten.reaches(world.at(8080)));
    let mut router = Place::pinned(&instance.config).route_socket();
    assert!(has_link(&mut router, &online_slot.device()));
    assert!(!has_link(&mut router, &forgotten_slot.device()));
    // What was adopted can be changed and let go like any other.
    network.set_access(offline_slot, Access::Internet).await.unwrap();
    assert!(offline.reaches(world.at(8080)));
    network.unplug(online_slot).await.unwrap();
    assert!(!online.reaches(world.at(8080)));
}

/// The kernel answers for each of them, and a socket has room for so many answers only.
#[tokio::test]
async fn hundreds_of_left_overs_are_swept() {
    let instance = Instance::new();
    let network = instance.open().await;
    let mut places = Vec::new();
    for _ in 0..300 {
        let (place, slot) = (Place::new(), network.allocate().unwrap());
        network.plug(slot, place.netns(), Access::Internet).await.unwrap();
        places.push((place, slot));
    }
    drop(network);
    let _network = instance.reopen(&[]).await;
    let mut router = Place::pinned(&instance.config).route_socket();
    assert!(places.iter().all(|(_, slot)| !has_link(&mut router, &slot.device())));
}

#[tokio::test]
async fn unplugging_may_be_repeated_and_plugging_heals_left_overs() {
    let (world, instance) = (World::new(), Instance::new());
    let network = instance.open().await;
    let (old, slot) = sandbox(&network, Access::Internet).await;
    let _server = world.place.listen(8080);
    network.unplug(slot).await.unwrap();
    network.unplug(slot).await.unwrap();
    assert!(!old.reaches(world.at(8080)));

    // The old namespace still lives, and with it the device of the slot.
    let new = Place::new();
    network.plug(slot, new.netns(), Access::Internet).await.unwrap();
    assert!(new.reaches(world.at(8080)));
    assert!(!old.reaches(world.at(8080)));
    // Again into the same namespace.
    network.plug(slot, new.netns(), Access::DaemonOnly).await.unwrap();
    assert!(!new.reaches(world.at(8080)));
}

#[tokio::test]
async fn a_failed_plug_leaves_nothing() {
    let instance = Instance::new();
    let network = instance.open().await;
    let slot = network.allocate().unwrap();
    let not_a_namespace = std::fs::File::open("/dev/null").unwrap();
    let error = network.plug(slot, not_a_namespace.into(), Access::Internet).await.unwrap_err();
    assert!(matches!(error, PlugError::Enter { .. }), "{error:?}");
    let error = network.plug(Slot(0), Place::new().netns(), Access::Internet).await.unwrap_err();
    assert!(matches!(error, PlugError::BadSlot(_)), "{error:?}");
    let mut router = Place::pinned(&instance.config).route_socket();
    assert!(!has_link(&mut router, &slot.device()));
    network.plug(slot, Place::new().netns(), Access::Internet).await.unwrap();
}

#[tokio::test]
async fn closing_leaves_nothing_on_the_host() {
    let instance = Instance::new();
    let network = instance.open().await;
    let (_place, _) = sandbox(&network, Access::Internet).await;
    let device = uplink::host_device(&instance.config.tag);
    let table = rules::host_table(&instance.config.tag);
    let pin = instance.config.router_pin();
    let mut host = Socket::route().unwrap();
    let mounted = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(has_link(&mut host, &device) && has_table(&table) && pin.exists());
    assert!(mounted().contains(pin.to_str().unwrap()));

    let clone = network.clone();
    network.close().await.unwrap();
    assert!(!has_link(&mut host, &device) && !has_table(&table) && !pin.exists());
    assert!(!mounted().contains(pin.to_str().unwrap()));

    let slot = clone.allocate().unwrap();
    let late = clone.plug(slot, Place::new().netns(), Access::Internet).await;
    assert!(matches!(late, Err(PlugError::Closed)));
    // Nothing there is nothing to remove.
    crate::destroy(&instance.config).unwrap();
    // And it can begin anew.
    drop(clone);
    instance.open().await.close().await.unwrap();
}

#[tokio::test]
async fn a_tag_that_could_break_out_of_a_rule_is_refused() {
    for tag in ["", "a\" drop", "toolong", "ABCDEF"] {
        let config = crate::Config::new(tag, "/nonexistent");
        assert!(crate::Network::open(config.clone(), &[]).await.is_err());
        assert!(crate::destroy(&config).is_err());
    }
}

#[tokio::test]
async fn a_hundred_plugs_are_quick() {
    let instance = Instance::new();
    let network = instance.open().await;
    let places: Vec<_> = (0..100).map(|_| Place::new()).collect();
    let mut plug = Vec::new();
    let mut connect = Vec::new();
    let mut unplug = Vec::new();
    for place in &places {
        let slot = network.allocate().unwrap();
        let _server = place.listen(1);
        let netns = place.netns();
        let started = Instant::now();
        network.plug(slot, netns, Access::Internet).await.unwrap();
        plug.push(started.elapsed());
        let started = Instant::now();
        network.connect(SocketAddrV4::new(slot.address(), 1), PATIENCE).await.unwrap();
        connect.push(started.elapsed());
        let started = Instant::now();
        network.unplug(slot).await.unwrap();
        unplug.push(started.elapsed());
    }
    plug.sort();
    connect.sort();
    unplug.sort();
    println!("plug p50 {:?} p95 {:?} max {:?}", plug[50], plug[95], plug[99]);
    println!("connect p50 {:?} p95 {:?} max {:?}", connect[50], connect[95], connect[99]);
    println!("unplug p50 {:?} p95 {:?} max {:?}", unplug[50], unplug[95], unplug[99]);
    // Made the slow way, by moving devices or running tools, it would be thirty times as long.
    assert!(plug[50].as_millis() < 20, "p50 {:?}", plug[50]);
}
