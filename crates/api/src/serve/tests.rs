use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;

/// Long enough that a test which is over sooner was not held up.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(100);
/// More than any test here needs that is not about them.
const STRANGERS_HERE: usize = 8;

struct Server {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Server {
    async fn start(grace: Duration) -> Self {
        let lifetime = Lifetime::default();
        let closing = lifetime.closing.clone();
        let endless = move || {
            let ticks = stream::once(async { Ok::<_, io::Error>(Bytes::from_static(b"first")) });
            let body = ticks.chain(stream::pending()).take_until(closing.clone().cancelled_owned());
            async { Body::from_stream(body) }
        };
        let stuck = || stream::pending::<io::Result<Bytes>>();
        let router = Router::new()
            .route("/quick", get(|| async { "quick" }).post(|| async { "unread" }))
            .route("/endless", get(endless))
            .route("/stuck", get(move || async move { Body::from_stream(stuck()) }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let patience = Patience { keep_alive: LONG, first_head: SHORT, grace };
        let crowd = Crowd::new(Places { strangers: STRANGERS_HERE, all: 2 * STRANGERS_HERE });
        let stopped = async { drop(stopped.await) };
        let task = tokio::spawn(serve(listener, router, lifetime, crowd, patience, stopped));
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
        timeout(2 * LONG, self.task).await.unwrap().unwrap().unwrap();
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
    let server = Server::start(LONG).await;
    let mut stream = server.ask("/quick").await;
    read_until(&mut stream, "quick").await;
    // Longer than a new connection may dawdle: this one has shown that it means it.
    tokio::time::sleep(2 * SHORT).await;
    stream.write_all(b"GET /quick HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    read_until(&mut stream, "quick").await;
    // Idle connections do not hold the end up.
    assert!(server.stop().await < LONG);
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_stream_without_end_finds_one() {
    let server = Server::start(LONG).await;
    let mut stream = server.ask("/endless").await;
    read_until(&mut stream, "first").await;
    assert!(server.stop().await < LONG);
    read_until(&mut stream, "0\r\n\r\n").await;
}

#[tokio::test]
async fn a_request_that_never_ends_is_dropped_in_the_end() {
    let server = Server::start(SHORT).await;
    let mut stream = server.ask("/stuck").await;
    read_until(&mut stream, "200 OK").await;
    assert!(server.stop().await >= SHORT);
    // Cut off, not ended: the client must not take it for the whole body.
    let mut rest = Vec::new();
    drop(stream.read_to_end(&mut rest).await);
    assert!(!rest.ends_with(b"0\r\n\r\n"));
}

#[tokio::test]
async fn a_client_that_dawdles_is_hung_up_on() {
    let server = Server::start(SHORT).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /quick HT").await.unwrap();
    // With what it sent unread, hanging up is a reset.
    let read = timeout(LONG / 2, stream.read(&mut [0; 16])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn a_connection_is_good_after_an_answer_that_came_before_the_request_was_read() {
    let server = Server::start(SHORT).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    for _ in 0..2 {
        let head = b"POST /quick HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head).await.unwrap();
        // The answer is ready long before the rest of the request is.
        tokio::time::sleep(SHORT / 2).await;
        stream.write_all(b"5\r\nhello\r\n0\r\n\r\n").await.unwrap();
        let answer = read_until(&mut stream, "unread").await;
        assert!(!answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn an_answer_says_so_if_the_connection_ends_with_it() {
    let server = Server::start(SHORT).await;
    for more in
        ["content-length: 9999999\r\n", "content-length: 5\r\n", "content-length: 5\r\nexpect: 100-continue\r\n"]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(format!("POST /quick HTTP/1.1\r\nhost: localhost\r\n{more}\r\n").as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "unread").await;
        assert!(answer.contains("connection: close") && !answer.contains("100 Continue"), "{answer}");
    }
}

/// Whether the other end has hung up; what it still had to say is read first.
async fn hung_up(stream: &mut TcpStream) -> bool {
    timeout(LONG, stream.read_to_end(&mut Vec::new())).await.is_ok()
}

#[tokio::test]
async fn strangers_who_keep_what_they_have_make_room_for_others() {
    let server = Server::start(SHORT).await;
    // One does not read an answer without end; others came and asked once, and stay.
    let mut silent = server.ask("/endless").await;
    read_until(&mut silent, "first").await;
    let mut others = Vec::new();
    for _ in 0..2 * STRANGERS_HERE {
        let mut other = server.ask("/quick").await;
        read_until(&mut other, "quick").await;
        others.push(other);
    }
    assert!(hung_up(&mut silent).await);
    for other in &mut others[..STRANGERS_HERE] {
        assert!(hung_up(other).await);
    }
    // The last that came is served still.
    let last = others.last_mut().unwrap();
    last.write_all(b"GET /quick HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    read_until(last, "quick").await;
}

#[tokio::test]
async fn a_head_larger_than_its_buffer_is_refused() {
    let server = Server::start(SHORT).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("GET /quick HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(2 * BUFFER));
    // It may be hung up on before it has sent all of it.
    drop(stream.write_all(head.as_bytes()).await);
    read_until(&mut stream, "431 Request Header Fields Too Large").await;
}

#[tokio::test]
async fn request_with_two_readings_is_refused_and_ends_the_connection() {
    let server = Server::start(LONG).await;
    let fine = "POST /quick HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    for head in [
        "host: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked",
        "host: x\r\ntransfer-encoding: chunked\r\ncontent-length: 1",
        "host: x\r\nhost: y\r\ncontent-length: 1",
        "host: x\r\nhost: x\r\ncontent-length: 1",
    ] {
        for before in ["", fine] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let smuggled = "GET /quick HTTP/1.1\r\nhost: x\r\n\r\n";
            let sent = format!("{before}POST /quick HTTP/1.1\r\n{head}\r\n\r\n0\r\n\r\n{smuggled}");
            stream.write_all(sent.as_bytes()).await.unwrap();
            let mut answers = String::new();
            timeout(LONG, stream.read_to_string(&mut answers)).await.unwrap().unwrap();
            let count = |word: &str| answers.matches(word).count();
            assert_eq!(
                (count("HTTP/1.1 200"), count("HTTP/1.1 400")),
                (usize::from(!before.is_empty()), 1),
                "{answers}"
            );
            assert!(answers.contains("\"code\":\"bad_request\""), "{answers}");
        }
    }
    server.stop().await;
}
