//! Connections to ports that are open inside alone.

use std::time::Duration;

use roost_wire::{Connect, Endpoint, ErrorCode, Request, TakeArrival};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{Guest, refused};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_connection_goes_through_with_both_its_ends() {
    let guest = Guest::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // It speaks first, as many protocols do.
        stream.write_all(b"hello ").await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        stream.write_all(&heard).await.unwrap();
    });
    let (mut stream, ahead) = guest.connect().await.tunnel(port).await.unwrap();
    let sent: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
    stream.write_all(&sent).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = ahead.to_vec();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer.split_at(6), (b"hello ".as_slice(), sent.as_slice()));
    server.await.unwrap();
}

#[tokio::test]
async fn the_side_that_ends_first_may_still_listen() {
    let guest = Guest::start();
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        heard
    });
    let (mut stream, ahead) = guest.connect().await.tunnel(port).await.unwrap();
    assert!(ahead.is_empty());
    assert_eq!(tokio::time::timeout(PATIENCE, stream.read(&mut [0])).await.unwrap().unwrap(), 0);
    stream.write_all(&[7; 1_000_000]).await.unwrap();
    drop(stream);
    assert_eq!(tokio::time::timeout(PATIENCE, server).await.unwrap().unwrap().len(), 1_000_000);
}

#[tokio::test]
async fn whoever_is_inside_hears_that_the_host_hung_up() {
    let guest = Guest::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (stream, _) = guest.connect().await.tunnel(port).await.unwrap();
    let (mut inside, _) = listener.accept().await.unwrap();
    guest.connect().await.quiesce().await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, inside.read(&mut [0])).await.unwrap().unwrap(), 0);
    // The other direction is over as well: nobody would read it.
    while tokio::time::timeout(PATIENCE, inside.write_all(&[0; 65536])).await.unwrap().is_ok() {}
    drop(stream);
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_told_and_the_connection_goes_on() {
    let guest = Guest::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    assert_eq!(refused(guest.connect().await.tunnel(port).await), ErrorCode::PortClosed);
    let mut connection = guest.connect().await;
    let asked = roost_wire::Request::Dial(roost_wire::Dial { port });
    assert_eq!(refused(connection.call(&asked).await), ErrorCode::PortClosed);
    connection.ping().await.unwrap();
}

#[tokio::test]
async fn addresses_and_sockets_are_reached_from_inside() {
    let guest = Guest::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        stream.write_all(&heard).await.unwrap();
    });
    let to = Endpoint::Unix { path: path.to_str().unwrap().to_owned() };
    let (mut stream, ahead) = guest.connect().await.tunnel_by(&Request::Connect(Connect { to })).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = ahead.to_vec();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, b"hello");
    server.await.unwrap();

    let nowhere = Connect { to: Endpoint::Unix { path: "/nowhere/at/all".to_owned() } };
    let failed = guest.connect().await.tunnel_by(&Request::Connect(nowhere)).await.unwrap_err();
    assert_eq!(failed.failure().unwrap().code, ErrorCode::PortClosed);
}

#[tokio::test]
async fn whoever_connects_to_a_listener_is_handed_over() {
    let guest = Guest::start();
    let at = Endpoint::Tcp { address: std::net::Ipv4Addr::LOCALHOST.into(), port: 0 };
    let mut arrivals = guest.connect().await.listen(at).await.unwrap();
    let port = arrivals.listening().port;
    for number in 0..3u8 {
        let mut inside = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let arrival = tokio::time::timeout(PATIENCE, arrivals.next()).await.unwrap().unwrap();
        assert_eq!((arrival.from.as_str(), arrival.port), ("127.0.0.1", inside.local_addr().unwrap().port()));
        let take = TakeArrival { listener: arrivals.listening().listener, number: arrival.number };
        let (mut stream, ahead) = guest.connect().await.tunnel_by(&Request::TakeArrival(take)).await.unwrap();
        assert!(ahead.is_empty());
        inside.write_all(&[number; 9]).await.unwrap();
        inside.shutdown().await.unwrap();
        let mut heard = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await.unwrap().unwrap();
        assert_eq!(heard, [number; 9]);
        // It is nobody else's any more.
        let again = guest.connect().await.tunnel_by(&Request::TakeArrival(take)).await.unwrap_err();
        assert_eq!(again.failure().unwrap().code, ErrorCode::BadRequest);
    }
    // The listener goes with whoever asked for it, and those who wait are hung up on.
    let mut waits = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    tokio::time::timeout(PATIENCE, arrivals.next()).await.unwrap().unwrap();
    drop(arrivals);
    assert!(matches!(tokio::time::timeout(PATIENCE, waits.read(&mut [0])).await.unwrap(), Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_listening_socket_is_gone_with_its_listener() {
    let guest = Guest::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let at = Endpoint::Unix { path: path.to_str().unwrap().to_owned() };
    let mut arrivals = guest.connect().await.listen(at.clone()).await.unwrap();
    let _inside = tokio::net::UnixStream::connect(&path).await.unwrap();
    tokio::time::timeout(PATIENCE, arrivals.next()).await.unwrap().unwrap();
    // The path is taken for as long as somebody listens there.
    let taken = guest.connect().await.listen(at).await.unwrap_err();
    assert!(taken.failure().is_some(), "{taken}");
    drop(arrivals);
    let gone = async {
        while path.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}
