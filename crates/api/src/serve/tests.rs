use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;

struct Server {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Server {
    async fn start() -> Self {
        let lifetime = Lifetime::default();
        let closing = lifetime.closing.clone();
        let endless = move || {
            let ticks = stream::once(async { Ok::<_, io::Error>(Bytes::from_static(b"first")) });
            let body = ticks.chain(stream::pending()).take_until(closing.clone().cancelled_owned());
            async { Body::from_stream(body) }
        };
        let stuck = || stream::pending::<io::Result<Bytes>>();
        let router = Router::new()
            .route("/quick", get(|| async { "quick" }))
            .route("/endless", get(endless))
            .route("/stuck", get(move || async move { Body::from_stream(stuck()) }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, router, lifetime, async { drop(stopped.await) }));
        Self { address, stop, task }
    }

    async fn ask(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn stop(self) -> Duration {
        let started = Instant::now();
        self.stop.send(()).unwrap();
        timeout(Duration::from_secs(20), self.task).await.unwrap().unwrap().unwrap();
        started.elapsed()
    }
}

async fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "hung up after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    text
}

#[tokio::test]
async fn a_connection_is_kept_and_let_go_at_the_end() {
    let server = Server::start().await;
    let mut stream = server.ask("/quick").await;
    read_until(&mut stream, "quick").await;
    stream.write_all(b"GET /quick HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    read_until(&mut stream, "quick").await;
    // Idle connections do not hold the end up.
    assert!(server.stop().await < Duration::from_secs(2));
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_stream_without_end_finds_one() {
    let server = Server::start().await;
    let mut stream = server.ask("/endless").await;
    read_until(&mut stream, "first").await;
    assert!(server.stop().await < Duration::from_secs(2));
    read_until(&mut stream, "0\r\n\r\n").await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_is_dropped_in_the_end() {
    let server = Server::start().await;
    let mut stream = server.ask("/stuck").await;
    read_until(&mut stream, "200 OK").await;
    let time = server.stop().await;
    assert!((GRACE..GRACE + Duration::from_secs(1)).contains(&time), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_dawdles_is_hung_up_on() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /quick HT").await.unwrap();
    let started = Instant::now();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    assert!(started.elapsed() >= FIRST_HEAD);
}
