//! What a sandbox can do.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, UdpSocket};
use std::time::Instant;

use super::support::{Instance, PATIENCE, Place, World, sandbox};
use crate::netlink::message::Batch;
use crate::netlink::route;
use crate::{Access, GATEWAY, INSIDE_ADDRESS};

#[tokio::test]
async fn two_sandboxes_talk_to_one_server_from_the_same_port() {
    let (world, instance) = (World::new(), Instance::new());
    let network = instance.open().await;
    let (one, _) = sandbox(&network, Access::Internet).await;
    let (two, _) = sandbox(&network, Access::Internet).await;
    let server = world.place.listen(8080);

    let mut clients = Vec::new();
    let mut served = Vec::new();
    for place in [&one, &two] {
        clients.push(place.connect_from(40_000, world.at(8080)));
        let (mut stream, peer) = server.accept().unwrap();
        assert_eq!(peer.ip(), world.host_side, "the world sees the host, not a sandbox");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&[served.len() as u8; 1000]).unwrap();
        served.push(stream);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let mut received = [9; 1000];
        client.read_exact(&mut received).unwrap();
        assert_eq!(received, [number as u8; 1000]);
        client.write_all(&[number as u8 + 10]).unwrap();
    }
    for (number, stream) in served.iter_mut().enumerate() {
        let mut received = [0];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(received, [number as u8 + 10]);
    }
}

#[tokio::test]
async fn large_transfers_fit_the_uplink() {
    let (world, instance) = (World::new(), Instance::new());
    let network = instance.open().await;
    let (place, _) = sandbox(&network, Access::Internet).await;
    let server = world.place.listen(8080);
    let mut client = place.connect_from(40_000, world.at(8080));
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let bytes: Vec<u8> = (0..8 << 20).map(|n: u32| (n % 251) as u8).collect();
        stream.write_all(&bytes).unwrap();
    });
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert_eq!(received.len(), 8 << 20);
    assert!(received.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8));
}

#[tokio::test]
async fn an_icmp_error_finds_its_socket() {
    let (world, instance) = (World::new(), Instance::new());
    let network = instance.open().await;
    let (place, _) = sandbox(&network, Access::Internet).await;
    let socket = place.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.connect(world.at(9)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(b"nobody listens").unwrap();
    let error = socket.recv(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn the_daemon_reaches_a_sandbox_right_after_plugging_it() {
    let instance = Instance::new();
    let network = instance.open().await;
    for _ in 0..20 {
        let place = Place::new();
        let server = place.listen(1);
        let slot = network.allocate().unwrap();
        network.plug(slot, place.netns(), Access::Internet).await.unwrap();
        let started = Instant::now();
        let client = network.connect(SocketAddrV4::new(slot.address(), 1), PATIENCE).await.unwrap();
        // A packet lost at the start would be repeated after one second.
        assert!(started.elapsed().as_millis() < 900, "took {:?}", started.elapsed());
        let (stream, peer) = server.accept().unwrap();
        assert_eq!(peer.ip(), GATEWAY);
        assert_eq!(stream.local_addr().unwrap().ip(), INSIDE_ADDRESS);
        drop(client);
    }
}

#[tokio::test]
async fn a_connect_fails_fast_or_in_time() {
    let instance = Instance::new();
    let network = instance.open().await;
    let (_place, slot) = sandbox(&network, Access::Internet).await;
    let closed = SocketAddrV4::new(slot.address(), 81);
    let error = network.connect(closed, PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);

    let unused = network.allocate().unwrap();
    let error = network.connect(SocketAddrV4::new(unused.address(), 81), PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
}

#[tokio::test]
async fn a_namespace_of_a_foreign_user_namespace_is_plugged_likewise() {
    let (world, instance) = (World::new(), Instance::new());
    let network = instance.open().await;
    let place = Place::of_another_user();
    let slot = network.allocate().unwrap();
    network.plug(slot, place.netns(), Access::Internet).await.unwrap();
    let _server = world.place.listen(8080);
    assert!(place.reaches(world.at(8080)));
}

#[tokio::test]
async fn loopback_works_inside_in_both_families() {
    let instance = Instance::new();
    let network = instance.open().await;
    let (place, _) = sandbox(&network, Access::DaemonOnly).await;
    place.run(|| {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
        if std::path::Path::new("/proc/thread-self/net/if_inet6").exists() {
            let server = std::net::TcpListener::bind("[::1]:0").unwrap();
            std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
            let addresses = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
            assert!(!addresses.contains("eth0"), "{addresses}");
        }
    });
}

#[tokio::test]
async fn a_connection_carried_to_another_slot_ends_at_once() {
    let (world, instance) = (World::new(), Instance::new());
    let network = instance.open().await;
    let (place, slot) = sandbox(&network, Access::Internet).await;
    let server = world.place.listen(8080);
    let mut client = place.connect_from(40_000, world.at(8080));
    let (_served, _) = server.accept().unwrap();

    // What a fork or a restore finds: its sockets are there, the router knows nothing of them.
    network.unplug(slot).await.unwrap();
    let mut batch = Batch::new();
    route::delete_link(&mut batch, slot.index());
    Place::pinned(&instance.config).route_socket().execute(&batch).unwrap();
    let next = network.allocate().unwrap();
    network.plug(next, place.netns(), Access::Internet).await.unwrap();

    client.write_all(b"as before").unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
