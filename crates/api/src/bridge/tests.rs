//! A real WebSocket on one side, frames written by hand on the other.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use roost_wire::client::Connection;
use roost_wire::frame::{self, Header, Kind};
use roost_wire::{Attach, ExecInfo, ExecStart, ExecState as WireState, Exit, Gap, Key, Program, Reply, StreamRange};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message as Heard;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;
use crate::extract::Upgrade;

/// Small, so that a backlog comes about with little.
const PIPE: usize = 8 * 1024;

struct Guest {
    pipe: DuplexStream,
}

impl Guest {
    async fn send(&mut self, kind: Kind, body: &impl Serialize) {
        let mut bytes = Vec::new();
        frame::put_json(&mut bytes, kind, body).unwrap();
        self.pipe.write_all(&bytes).await.unwrap();
    }

    async fn output(&mut self, kind: Kind, offset: u64, text: &str) {
        let mut bytes = Vec::new();
        frame::put_data(&mut bytes, kind, &[&offset.to_le_bytes(), text.as_bytes()].concat()).unwrap();
        self.pipe.write_all(&bytes).await.unwrap();
    }

    async fn next(&mut self) -> (Kind, Vec<u8>) {
        let mut head = [0; frame::HEADER_LEN];
        self.pipe.read_exact(&mut head).await.unwrap();
        let header = Header::parse(&head).unwrap().unwrap();
        let mut body = vec![0; header.len];
        self.pipe.read_exact(&mut body).await.unwrap();
        (header.kind, body)
    }
}

fn exec_id() -> String {
    roost_model::ExecId::from_parts(1, 2).to_string()
}

fn info(state: WireState) -> ExecInfo {
    ExecInfo {
        id: exec_id(),
        pid: 7,
        argv: vec!["cat".to_owned()],
        started_at_ms: 1,
        state,
        stdout: StreamRange::default(),
        stderr: StreamRange::default(),
        pty: false,
        user: "root".to_owned(),
        cwd: "/".to_owned(),
        tag: None,
        env: std::collections::BTreeMap::new(),
        stdin_open: true,
    }
}

struct Scene {
    guest: Guest,
    client: WebSocketStream<TcpStream>,
    closing: CancellationToken,
    endings: mpsc::Receiver<String>,
}

async fn scene() -> Scene {
    let (ours, theirs) = duplex(PIPE);
    let mut guest = Guest { pipe: theirs };
    guest.send(Kind::Reply, &Reply::Exec(info(WireState::Running))).await;
    let start = ExecStart::new(exec_id(), Program::Shell("cat".to_owned()));
    let connection = Connection::new(ours, &Key::from_bytes([1; 32])).unwrap();
    let process = connection.start_and_follow(start, Attach::whole()).await.unwrap();
    assert_eq!(guest.next().await.0, Kind::Hello);
    assert_eq!(guest.next().await.0, Kind::Request);

    let closing = CancellationToken::new();
    let (tell_ending, endings) = mpsc::channel(1);
    let process = Arc::new(Mutex::new(Some(process)));
    let token = closing.clone();
    let handler = move |Upgrade(upgrade): Upgrade| async move {
        upgrade.on_upgrade(move |socket| async move {
            let (output, input) = process.lock().unwrap().take().unwrap().split();
            let mut conversation = Conversation::new(socket);
            let lost = |error: CallError| HostError::Conflict(error.to_string());
            let ending = conversation.carry(output, input, &token, lost, || std::future::ready(())).await;
            tell_ending.send(format!("{ending:?}")).await.unwrap();
            conversation.finish(ending).await;
        })
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", get(handler))).await });
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, _) = client_async(format!("ws://{address}/"), stream).await.unwrap();
    Scene { guest, client, closing, endings }
}

async fn heard(client: &mut WebSocketStream<TcpStream>) -> Heard {
    loop {
        match timeout(Duration::from_secs(10), client.next()).await.unwrap().unwrap().unwrap() {
            Heard::Ping(_) => {}
            message => return message,
        }
    }
}

async fn told(client: &mut WebSocketStream<TcpStream>) -> serde_json::Value {
    match heard(client).await {
        Heard::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("heard {other:?}"),
    }
}

#[tokio::test]
async fn both_directions_are_carried_to_the_exit() {
    let Scene { mut guest, mut client, mut endings, .. } = scene().await;
    client.send(Heard::Binary(b"\0hello".as_slice().into())).await.unwrap();
    assert_eq!(guest.next().await, (Kind::Stdin, b"hello".to_vec()));
    for (text, kind) in [
        (r#"{"type":"resize","cols":80,"rows":24}"#, Kind::Resize),
        (r#"{"type":"signal","signal":"INT"}"#, Kind::Signal),
        (r#"{"type":"close_stdin"}"#, Kind::StdinClose),
    ] {
        client.send(Heard::Text(text.into())).await.unwrap();
        assert_eq!(guest.next().await.0, kind);
    }

    guest.output(Kind::Stdout, 0, "hi").await;
    guest.send(Kind::Gap, &Gap { stream: Stream::Stderr, from: 0, to: 5 }).await;
    guest.output(Kind::Stderr, 5, "oh").await;
    assert_eq!(heard(&mut client).await.into_data().as_ref(), b"\x01\0\0\0\0\0\0\0\0hi");
    let gap = serde_json::json!({"type": "gap", "stream": "stderr", "from": 0, "to": 5});
    assert_eq!(told(&mut client).await, gap);
    assert_eq!(heard(&mut client).await.into_data().as_ref(), b"\x02\x05\0\0\0\0\0\0\0oh");

    let exit = Exit { code: Some(3), signal: None, timed_out: false, at_ms: 5 };
    guest.send(Kind::ExecEnd, &info(WireState::Exited(exit))).await;
    let last = told(&mut client).await;
    assert_eq!((&last["type"], &last["status"]["exit_code"]), (&"exit".into(), &3.into()));
    assert_eq!(last["exec"]["pid"], 7);
    assert!(matches!(heard(&mut client).await, Heard::Close(Some(frame)) if u16::from(frame.code) == 1000));
    assert!(endings.recv().await.unwrap().starts_with("Exited"));
}

#[tokio::test]
async fn input_that_is_not_taken_holds_neither_output_nor_the_end_up() {
    let Scene { mut guest, mut client, mut endings, .. } = scene().await;
    // More than the pipe to the guest holds; the guest reads none of it.
    for _ in 0..4 {
        client.send(Heard::Binary(vec![0; PIPE].into())).await.unwrap();
    }
    guest.output(Kind::Stdout, 0, "still here").await;
    assert!(heard(&mut client).await.into_data().ends_with(b"still here"));
    // Nobody reads what the client sends, and yet its leaving is noticed.
    drop(client);
    let ending = timeout(Duration::from_secs(10), endings.recv()).await.unwrap().unwrap();
    assert_eq!(ending, "Left");
}

#[tokio::test]
async fn nonsense_is_answered_before_hanging_up() {
    for (message, part) in [
        (Heard::Text(r#"{"type":"dance"}"#.into()), "unknown variant `dance`"),
        (Heard::Text(r#"{"type":"signal","signal":"LOUD"}"#.into()), "`LOUD` is not a signal"),
        (Heard::Binary(b"\x07".as_slice().into()), "starts with the byte 0"),
    ] {
        let Scene { mut client, mut endings, guest: _guest, .. } = scene().await;
        client.send(message).await.unwrap();
        let error = told(&mut client).await;
        assert_eq!((&error["type"], &error["error"]["code"]), (&"error".into(), &"bad_request".into()));
        assert!(error["error"]["message"].as_str().unwrap().contains(part), "{error}");
        assert!(heard(&mut client).await.is_close());
        assert!(endings.recv().await.unwrap().starts_with("Failed"));
    }
}

#[tokio::test]
async fn a_lost_guest_is_told() {
    let Scene { guest, mut client, endings: _endings, .. } = scene().await;
    drop(guest);
    assert_eq!(told(&mut client).await["error"]["code"], "conflict");
    assert!(heard(&mut client).await.is_close());
}

#[tokio::test]
async fn a_daemon_that_stops_says_so() {
    let Scene { mut client, closing, mut endings, guest: _guest } = scene().await;
    closing.cancel();
    assert!(matches!(heard(&mut client).await, Heard::Close(Some(frame)) if u16::from(frame.code) == 1001));
    assert_eq!(endings.recv().await.unwrap(), "Closing");
}
