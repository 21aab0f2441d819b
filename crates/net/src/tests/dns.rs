//! DNS through the forwarder, with stand-ins for the host's resolvers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};

use super::support::{Instance, PATIENCE, Place, sandbox};
use crate::{Access, GATEWAY};

const QUERY: &[u8] = b"\xab\xcd\x01\0\0\x01\0\0\0\0\0\0\x05roost\x04test\0\0\x01\0\x01";

/// A resolver on the host's loopback that answers each question once, by UDP and by TCP.
fn stand_in() -> SocketAddr {
    fn answer(query: &[u8]) -> Vec<u8> {
        let mut answer = query.to_vec();
        answer[2] |= 0x80;
        answer.extend_from_slice(b"the answer");
        answer
    }

    // The same port for both; another may hold the TCP one, so try until both are ours.
    let (udp, tcp) = loop {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
            break (udp, tcp);
        }
    };
    let address = udp.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        let (length, client) = udp.recv_from(&mut buffer).unwrap();
        // An answer to another question comes first and must be passed over.
        let mut wrong = answer(&buffer[..length]);
        wrong[0] ^= 1;
        udp.send_to(&wrong, client).unwrap();
        udp.send_to(&answer(&buffer[..length]), client).unwrap();
    });
    std::thread::spawn(move || {
        let (mut stream, _) = tcp.accept().unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query).unwrap();
        let answer = answer(&query);
        stream.write_all(&(answer.len() as u16).to_be_bytes()).unwrap();
        stream.write_all(&answer).unwrap();
    });
    address
}

/// An address where nobody answers, and that says so.
fn dead() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.local_addr().unwrap()
}

async fn ask_udp(place: &Place) -> Vec<u8> {
    ask_udp_for(place, QUERY).await
}

async fn ask_udp_for(place: &Place, query: &[u8]) -> Vec<u8> {
    let socket = place.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(query, (GATEWAY, 53)).unwrap();
    let received = tokio::task::spawn_blocking(move || {
        let mut buffer = [0; 512];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(from, SocketAddrV4::new(GATEWAY, 53).into());
        buffer[..length].to_vec()
    });
    received.await.unwrap()
}

async fn ask_tcp(place: &Place) -> Vec<u8> {
    ask_tcp_for(place, QUERY).await
}

async fn ask_tcp_for(place: &Place, query: &[u8]) -> Vec<u8> {
    let query = query.to_vec();
    let gateway = SocketAddr::from((GATEWAY, 53));
    let mut stream = place.run(|| TcpStream::connect_timeout(&gateway, PATIENCE).unwrap());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let received = tokio::task::spawn_blocking(move || {
        stream.write_all(&(query.len() as u16).to_be_bytes()).unwrap();
        stream.write_all(&query).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut answer).unwrap();
        answer
    });
    received.await.unwrap()
}

#[tokio::test]
async fn questions_are_answered_by_the_first_resolver_that_lives() {
    let instance = Instance::with_resolvers(vec![dead(), stand_in()]);
    let network = instance.open().await;
    let (place, _) = sandbox(&network, Access::Internet).await;
    assert!(ask_udp(&place).await.ends_with(b"the answer"));
    assert!(ask_tcp(&place).await.ends_with(b"the answer"));
}

#[tokio::test]
async fn without_a_resolver_the_answer_is_a_failure() {
    let instance = Instance::with_resolvers(vec![dead()]);
    let network = instance.open().await;
    let (place, _) = sandbox(&network, Access::Internet).await;
    for answer in [ask_udp(&place).await, ask_tcp(&place).await] {
        assert_eq!(answer[..2], QUERY[..2]);
        assert_eq!(answer[3] & 0x0f, 2);
        assert_eq!(answer[12..], QUERY[12..]);
    }
}

#[tokio::test]
async fn transfers_and_updates_are_refused_before_a_resolver_sees_them() {
    let instance = Instance::with_resolvers(vec![stand_in()]);
    let network = instance.open().await;
    let (place, _) = sandbox(&network, Access::Internet).await;
    let (mut transfer, mut update) = (QUERY.to_vec(), QUERY.to_vec());
    transfer[QUERY.len() - 3] = 252;
    update[2] = 5 << 3;
    for (query, code) in [(transfer, 5), (update, 4)] {
        for answer in [ask_udp_for(&place, &query).await, ask_tcp_for(&place, &query).await] {
            assert_eq!((&answer[..2], answer[3] & 0x0f), (&QUERY[..2], code));
            assert!(!answer.ends_with(b"the answer"));
        }
    }
    assert!(ask_udp(&place).await.ends_with(b"the answer"));
}

#[tokio::test]
async fn a_new_daemon_takes_over_dns() {
    let instance = Instance::with_resolvers(vec![dead()]);
    let network = instance.open().await;
    let (place, slot) = sandbox(&network, Access::Internet).await;
    ask_udp(&place).await;
    drop(network);
    let _network = instance.reopen(&[(slot, Access::Internet)]).await;
    ask_tcp(&place).await;
}
