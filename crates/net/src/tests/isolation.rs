//! What a sandbox cannot do.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};

use super::support::{Instance, PATIENCE, Place, REFUSAL, World, sandbox};
use crate::netlink::message::Batch;
use crate::netlink::route;
use crate::{Access, GATEWAY};

/// The addresses of the host, loopback left out.
fn host_addresses() -> Vec<Ipv4Addr> {
    let mut socket = crate::netlink::Socket::route().unwrap();
    let known = route::addresses(&mut socket).unwrap();
    known.into_iter().map(|k| k.address).filter(|address| !address.is_loopback()).collect()
}

#[tokio::test]
async fn no_way_to_another_sandbox() {
    let instance = Instance::new();
    let network = instance.open().await;
    let (one, first) = sandbox(&network, Access::Internet).await;
    let (two, _) = sandbox(&network, Access::Internet).await;
    let _server = one.listen(7000);
    let target = SocketAddrV4::new(first.address(), 7000);
    assert!(network.connect(target, PATIENCE).await.is_ok());
    assert!(!two.reaches(target));
    assert!(!two.reaches(SocketAddrV4::new(GATEWAY, 7000)));
}

#[tokio::test]
async fn no_way_to_the_host_or_another_instance() {
    let (world, instance, neighbour) = (World::new(), Instance::new(), Instance::new());
    let network = instance.open().await;
    let other = neighbour.open().await;
    let (place, _) = sandbox(&network, Access::Internet).await;
    let (beside, beside_slot) = sandbox(&other, Access::Internet).await;
    let _beside_server = beside.listen(7000);
    let server = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let _world_server = world.place.listen(8080);

    let addresses = host_addresses();
    assert!(addresses.contains(&world.host_side));
    for address in addresses {
        let target = SocketAddrV4::new(address, port);
        assert!(!place.reaches(target), "{target} answered");
        // Not even from the router: the host's own rules stand behind the router's.
        assert!(network.connect(target, REFUSAL).await.is_err(), "{target} answered the router");
    }
    assert!(!place.reaches(SocketAddrV4::new(GATEWAY, port)));
    assert!(!place.reaches(SocketAddrV4::new(beside_slot.address(), 7000)));
    // Both instances work side by side.
    assert!(place.reaches(world.at(8080)) && beside.reaches(world.at(8080)));
}

#[tokio::test]
async fn nothing_comes_in_from_the_world() {
    let (world, instance) = (World::new(), Instance::new());
    let network = instance.open().await;
    let (place, _) = sandbox(&network, Access::Internet).await;
    let _server = place.listen(7000);
    let router = Place::pinned(&instance.config);
    let up0 = route::addresses(&mut router.route_socket()).unwrap();
    let up0 = up0.iter().find(|known| known.prefix == 30).unwrap().address;

    let mut batch = Batch::new();
    let links = route::links(&mut world.place.route_socket()).unwrap();
    let index = links.iter().find(|link| link.name == "eth0").unwrap().index;
    let hop = route::Hop { gateway: world.host_side, index, source: None, onlink: false };
    route::add_route(&mut batch, route::NewRoute { destination: up0, prefix: 32, via: Some(hop) });
    world.place.route_socket().execute(&batch).unwrap();
    for port in [53, 7000] {
        assert!(!world.place.reaches(SocketAddrV4::new(up0, port)));
    }
}

#[tokio::test]
async fn private_ranges_and_forged_sources_are_dropped_in_the_router() {
    let (world, instance) = (World::new(), Instance::new());
    let network = instance.open().await;
    let (place, _) = sandbox(&network, Access::Internet).await;
    let router = Place::pinned(&instance.config);
    let server = world.place.run(|| UdpSocket::bind("0.0.0.0:9000").unwrap());
    server.set_read_timeout(Some(PATIENCE)).unwrap();

    // As root of its own namespace a sandbox may take any address it likes.
    let mut batch = Batch::new();
    route::add_address(&mut batch, 10, Ipv4Addr::new(10, 0, 0, 9), 32);
    route::add_address(&mut batch, 10, Ipv4Addr::new(198, 18, 255, 255), 32);
    place.route_socket().execute(&batch).unwrap();

    let honest = place.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
    let before = router.forwarded_packets();
    for blocked in [
        "169.254.169.254:80",
        "10.1.2.3:80",
        "172.16.0.1:80",
        "192.168.1.1:80",
        "100.64.0.99:80",
        "100.100.100.200:80",
        "168.63.129.16:80",
        "192.0.0.192:80",
        "198.18.0.1:80",
        "0.1.2.3:80",
        "224.0.0.1:80",
        "240.0.0.1:80",
    ] {
        // Some are refused by the sandbox's own kernel already, which is just as well.
        drop(honest.send_to(b"blocked", blocked));
    }
    for forged in ["10.0.0.9:0", "198.18.255.255:0"] {
        let socket = place.run(|| UdpSocket::bind(forged).unwrap());
        socket.send_to(forged.as_bytes(), world.at(9000)).unwrap();
    }
    // Packets keep their order, so whatever was sent before the marker and is not here was dropped.
    honest.send_to(b"marker", world.at(9000)).unwrap();
    let mut buffer = [0; 100];
    let length = server.recv(&mut buffer).unwrap();
    assert_eq!(String::from_utf8_lossy(&buffer[..length]), "marker");
    assert_eq!(router.forwarded_packets(), before + 1);
}

#[tokio::test]
async fn a_sandbox_without_network_can_only_answer() {
    let (world, instance) = (World::new(), Instance::with_resolvers(Vec::new()));
    let network = instance.open().await;
    let (place, slot) = sandbox(&network, Access::DaemonOnly).await;
    let server = world.place.listen(8080);
    let inside = place.listen(7000);
    let dns = SocketAddrV4::new(GATEWAY, 53);

    assert!(network.connect(SocketAddrV4::new(slot.address(), 7000), PATIENCE).await.is_ok());
    inside.accept().unwrap();
    assert!(!place.reaches(world.at(8080)));
    assert!(!place.reaches(dns));

    network.set_access(slot, Access::Internet).await.unwrap();
    assert!(place.reaches(dns));
    let mut client = place.connect_from(40_000, world.at(8080));
    let (mut served, _) = server.accept().unwrap();
    served.write_all(b"a").unwrap();
    client.read_exact(&mut [0]).unwrap();

    // Taken away, it is gone for open connections as well.
    network.set_access(slot, Access::DaemonOnly).await.unwrap();
    client.write_all(b"b").unwrap();
    served.write_all(b"c").unwrap();
    client.set_read_timeout(Some(REFUSAL)).unwrap();
    served.set_read_timeout(Some(REFUSAL)).unwrap();
    assert!(client.read_exact(&mut [0]).is_err());
    assert!(served.read_exact(&mut [0]).is_err());
    assert!(network.connect(SocketAddrV4::new(slot.address(), 7000), PATIENCE).await.is_ok());

    network.unplug(slot).await.unwrap();
    assert!(network.set_access(slot, Access::Internet).await.is_err());
}
