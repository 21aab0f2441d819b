//! The client against a stand-in for the daemon that speaks `/v1` badly on purpose.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a stand-in that fails is a test that fails")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path as Part, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use roost_client::{
    Client, ClientError, EventsFilter, ExecEvent, Offsets, OutputStream, TemplateProgress, Upload, WriteOptions,
};
use roost_model::{CreateSandbox, ErrorCode, ExecState, ImportTemplate, StartExec};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// A stand-in on a socket of its own; gone when dropped.
struct Stub {
    folder: tempfile::TempDir,
    task: JoinHandle<()>,
}

impl Stub {
    fn start(router: Router) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let task = serve(&folder.path().join("sock"), router);
        Self { folder, task }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    fn client(&self) -> Client {
        Client::unix(self.socket())
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn serve(socket: &Path, router: Router) -> JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() })
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({"error": {"code": code, "message": message, "hint": "look"}}))).into_response()
}

fn exec_view() -> Value {
    json!({"id": format!("exe_{}", "0".repeat(26)), "pid": 2, "argv": ["x"], "user": "root", "cwd": "/", "pty": false,
        "started_at": "2026-01-01T00:00:00Z", "status": {"state": "running"},
        "output": {"stdout_start": 0, "stdout_end": 0, "stderr_start": 0, "stderr_end": 0}})
}

fn exit_message() -> Message {
    let status =
        json!({"state": "exited", "exit_code": 7, "signal": null, "timed_out": false, "at": "2026-01-01T00:00:00Z"});
    Message::Text(json!({"type": "exit", "status": status, "exec": exec_view()}).to_string().into())
}

fn output(offset: u64, bytes: &[u8]) -> Message {
    let mut frame = vec![1];
    frame.extend(offset.to_le_bytes());
    frame.extend(bytes);
    Message::Binary(frame.into())
}

#[tokio::test]
async fn refusals_and_absence_are_told_apart() {
    let router = Router::new()
        .route("/v1/sandboxes", post(|| async { refusal(StatusCode::CONFLICT, "name_taken", "taken") }))
        .route(
            "/v1/sandboxes/{s}",
            get(|Part(s): Part<String>| async move {
                refusal(StatusCode::NOT_FOUND, "sandbox_not_found", &format!("no sandbox named `{s}`"))
            }),
        );
    let stub = Stub::start(router);
    let client = stub.client();

    let taken = client.create_sandbox(&CreateSandbox::default()).await.unwrap_err();
    assert_eq!((taken.code(), taken.hint().as_deref()), (Some(ErrorCode::NameTaken), Some("look")));
    let odd_name = client.sandbox("a/b ?").await.unwrap_err();
    assert_eq!(odd_name.to_string(), "no sandbox named `a/b ?`");

    let nobody = Client::unix("/nonexistent/roost.sock").sandbox("a").await.unwrap_err();
    assert!(matches!(nobody, ClientError::Connect { .. }));
    assert!(nobody.hint().unwrap().contains("roost serve"));
}

#[tokio::test]
async fn a_token_is_sent_over_tcp() {
    let router = Router::new().route(
        "/v1/tokens",
        get(|request: Request| async move {
            match request.headers().get("authorization").map(|value| value.to_str().unwrap()) {
                Some("Bearer s3cret") => Json(json!({"items": [], "next_cursor": null})).into_response(),
                _ => refusal(StatusCode::UNAUTHORIZED, "unauthorized", "no valid token"),
            }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    assert!(Client::http(&url, Some("s3cret")).unwrap().list_tokens().await.unwrap().is_empty());
    let refused = Client::http(&url, None).unwrap().list_tokens().await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::Unauthorized));
    task.abort();
}

#[tokio::test]
async fn connections_are_used_again_and_stale_ones_replaced() {
    let router = || Router::new().route("/healthz", get(|| async { Json(json!({"status": "ok", "version": "1"})) }));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("sock");
    // Counts connections and can drop them all, which axum's own loop cannot.
    let accepted = Arc::new(AtomicUsize::new(0));
    let listen = |accepted: Arc<AtomicUsize>| {
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                accepted.fetch_add(1, Ordering::SeqCst);
                let service = hyper_util::service::TowerToHyperService::new(router());
                let io = hyper_util::rt::TokioIo::new(stream);
                connections.spawn(async move {
                    hyper::server::conn::http1::Builder::new().serve_connection(io, service).await.unwrap();
                });
            }
        })
    };
    let first = listen(Arc::clone(&accepted));
    let client = Client::unix(&socket);
    for _ in 0..20 {
        client.health().await.unwrap();
    }
    assert_eq!(accepted.load(Ordering::SeqCst), 1);

    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    std::fs::remove_file(&socket).unwrap();
    let second = listen(Arc::clone(&accepted));
    client.health().await.unwrap();
    assert_eq!(accepted.load(Ordering::SeqCst), 2);
    second.abort();
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    const PIECES: usize = 512;
    let router = Router::new().route(
        "/v1/sandboxes/{s}/files",
        get(|| async {
            let pieces = futures_util::stream::iter(0..PIECES)
                .map(|n| Ok::<_, std::io::Error>(Bytes::from(vec![n as u8; 65536])));
            Body::from_stream(pieces)
        })
        .put(|request: Request| async move {
            assert_eq!(request.headers()["content-length"], (PIECES * 65536).to_string().as_str());
            let mut size = 0;
            let mut body = request.into_body().into_data_stream();
            while let Some(piece) = body.next().await {
                size += piece.unwrap().len();
            }
            Json(json!({"name": "f", "path": "/f", "kind": "file", "size": size, "mode": "0600", "uid": 0, "gid": 0,
                "modified_at": "2026-01-01T00:00:00Z", "target": null}))
        }),
    );
    let stub = Stub::start(router);
    let client = stub.client();

    let pieces = futures_util::stream::iter(0..PIECES).map(|_| Ok(Bytes::from(vec![7; 65536])));
    let upload = Upload::stream(pieces, Some((PIECES * 65536) as u64));
    let stat = client.write_file("a", "/f", upload, &WriteOptions::default()).await.unwrap();
    assert_eq!(stat.size, (PIECES * 65536) as u64);

    let mut sink = tokio::io::sink();
    let copied = client.read_file("a", "/f").await.unwrap().copy_to(&mut sink).await.unwrap().unwrap();
    assert_eq!(copied, (PIECES * 65536) as u64);
}

#[tokio::test]
async fn lines_and_events_are_read_however_they_are_cut() {
    let lines = "{\"type\":\"progress\",\"message\":\"unpack\",\"fraction\":0.5}\n{\"type\":\"error\",\"error\":{\"code\":\"template_invalid\",\"message\":\"no /bin\"}}\n";
    let event = |id: u64| {
        json!({"id": id, "at": "2026-01-01T00:00:00Z", "sandbox": format!("sbx_{}", "0".repeat(26)), "name": "a",
            "kind": "created", "state": "active", "reason": null})
    };
    let events =
        format!(": hello\n\nid: 1\nevent: created\ndata: {}\n\nid: 2\ndata:{}\n\ndata: cut", event(1), event(2));
    let bytewise = |text: String| {
        Body::from_stream(
            futures_util::stream::iter(text.into_bytes()).map(|byte| Ok::<_, std::io::Error>(Bytes::from(vec![byte]))),
        )
    };
    let router = Router::new()
        .route("/v1/templates", post(move || async move { bytewise(lines.to_owned()) }))
        .route("/v1/events", get(move || async move { bytewise(events) }));
    let stub = Stub::start(router);
    let client = stub.client();

    let mut progress = client.make_template(&ImportTemplate::default()).await.unwrap();
    let told = progress.next().await.unwrap().unwrap();
    assert_eq!(told, TemplateProgress::Progress { message: "unpack".to_owned(), fraction: Some(0.5) });
    assert_eq!(progress.next().await.unwrap_err().code(), Some(ErrorCode::TemplateInvalid));

    let mut stream = client.follow_events(&EventsFilter::default()).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().id, 1);
    assert_eq!(stream.next().await.unwrap().unwrap().id, 2);
    assert!(stream.next().await.unwrap().is_none());
}

#[derive(Deserialize)]
struct AttachQuery {
    offset: u64,
}

const TEXT_LENGTH: u64 = 5000;

fn text(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(|n| (n % 251) as u8).collect()
}

/// Sends a few bytes from where it was asked, repeats some of them, and hangs up; later connections get further.
async fn unreliable(mut socket: WebSocket, attempt: usize, offset: u64) {
    let start = offset.saturating_sub(3);
    let end = (offset + 300).min(TEXT_LENGTH);
    for from in (start..end).step_by(50) {
        if socket.send(output(from, &text(from, (from + 60).min(end)))).await.is_err() {
            return;
        }
    }
    if end == TEXT_LENGTH {
        socket.send(exit_message()).await.unwrap();
    } else if attempt.is_multiple_of(2) {
        // Half of the breaks are rude.
        drop(socket);
    } else {
        socket.send(Message::Close(None)).await.unwrap_or_default();
    }
}

#[tokio::test]
async fn a_followed_exec_has_neither_gap_nor_repeat() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let router = Router::new()
        .route(
            "/v1/sandboxes/{s}/execs/{e}/attach",
            get(
                |State(attempts): State<Arc<AtomicUsize>>,
                 Query(query): Query<AttachQuery>,
                 upgrade: WebSocketUpgrade| async move {
                    let attempt = attempts.fetch_add(1, Ordering::SeqCst);
                    if attempt % 5 == 3 {
                        return refusal(StatusCode::SERVICE_UNAVAILABLE, "internal", "starting");
                    }
                    upgrade.on_upgrade(move |socket| unreliable(socket, attempt, query.offset))
                },
            ),
        )
        .with_state(Arc::clone(&attempts));
    let stub = Stub::start(router);

    let mut followed = stub.client().follow_exec("a", "exe_1", Offsets::default()).await.unwrap();
    let mut seen = Vec::new();
    let mut exit = None;
    while let Some(event) = followed.next().await.unwrap() {
        match event {
            ExecEvent::Output { stream, offset, bytes } => {
                assert_eq!((stream, offset), (OutputStream::Stdout, seen.len() as u64));
                seen.extend_from_slice(&bytes);
            }
            ExecEvent::Exit(state) => exit = Some(state),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, text(0, TEXT_LENGTH));
    assert!(matches!(exit, Some(ExecState::Exited { exit_code: 7, .. })));
    assert!(followed.reconnects() > 5, "{}", followed.reconnects());
}

#[tokio::test]
async fn a_follower_gives_up_when_refused_or_out_of_patience() {
    let router = Router::new().route(
        "/v1/sandboxes/{s}/execs/{e}/attach",
        get(|Part((s, _)): Part<(String, String)>, Query(query): Query<AttachQuery>, upgrade: WebSocketUpgrade| async move {
            match (s.as_str(), query.offset) {
                ("gone", 3..) => refusal(StatusCode::NOT_FOUND, "exec_not_found", "no such exec"),
                ("gone", _) => upgrade.on_upgrade(|mut socket| async move {
                    socket.send(output(0, b"abc")).await.unwrap();
                }),
                _ => upgrade.on_upgrade(|_| async {}),
            }
        }),
    );
    let stub = Stub::start(router);
    let client = stub.client();

    let mut gone = client.follow_exec("gone", "exe_1", Offsets::default()).await.unwrap();
    assert!(matches!(gone.next().await.unwrap(), Some(ExecEvent::Output { .. })));
    assert_eq!(gone.next().await.unwrap_err().code(), Some(ErrorCode::ExecNotFound));

    let mut hollow = client.follow_exec("hollow", "exe_1", Offsets::default()).await.unwrap();
    hollow.set_patience(Duration::from_millis(80));
    assert!(matches!(hollow.next().await.unwrap_err(), ClientError::Broken { .. }));
}

#[tokio::test]
async fn a_lost_piece_is_told_as_a_gap() {
    let router = Router::new().route(
        "/v1/sandboxes/{s}/execs/{e}/attach",
        get(|upgrade: WebSocketUpgrade| async move {
            upgrade.on_upgrade(|mut socket| async move {
                socket.send(output(0, b"abc")).await.unwrap();
                let gap = json!({"type": "gap", "stream": "stdout", "from": 3, "to": 10});
                socket.send(Message::Text(gap.to_string().into())).await.unwrap();
                socket.send(output(10, b"def")).await.unwrap();
                // A hole that the other side did not announce.
                socket.send(output(20, b"ghi")).await.unwrap();
                socket.send(exit_message()).await.unwrap();
            })
        }),
    );
    let stub = Stub::start(router);
    let mut followed = stub.client().follow_exec("a", "exe_1", Offsets::default()).await.unwrap();
    let mut gaps = Vec::new();
    while let Some(event) = followed.next().await.unwrap() {
        if let ExecEvent::Gap { from, to, .. } = event {
            gaps.push((from, to));
        }
    }
    assert_eq!(gaps, [(3, 10), (13, 20)]);
    assert_eq!(followed.offsets().stdout, 23);
}

#[tokio::test]
async fn a_session_starts_takes_input_and_reports_errors() {
    let router = Router::new().route(
        "/v1/sandboxes/{s}/execs/start",
        get(|Part(s): Part<String>, upgrade: WebSocketUpgrade| async move {
            if s == "asleep" {
                return refusal(StatusCode::NOT_FOUND, "sandbox_not_found", "none");
            }
            upgrade.on_upgrade(move |mut socket| async move {
                let first = socket.recv().await.unwrap().unwrap();
                let start: StartExec = serde_json::from_str(first.to_text().unwrap()).unwrap();
                if start.argv == ["missing"] {
                    let error =
                        json!({"type": "error", "error": {"code": "command_not_found", "message": "no `missing`"}});
                    socket.send(Message::Text(error.to_string().into())).await.unwrap();
                    return;
                }
                socket
                    .send(Message::Text(json!({"type": "started", "exec": exec_view()}).to_string().into()))
                    .await
                    .unwrap();
                let mut echoed = 0;
                while let Some(Ok(message)) = socket.recv().await {
                    match message {
                        Message::Binary(bytes) => {
                            assert_eq!(bytes[0], 0);
                            socket.send(output(echoed, &bytes[1..])).await.unwrap();
                            echoed += bytes.len() as u64 - 1;
                        }
                        Message::Text(text) if text.contains("close_stdin") => break,
                        Message::Text(_) => {}
                        other => panic!("{other:?}"),
                    }
                }
                socket.send(exit_message()).await.unwrap();
            })
        }),
    );
    let stub = Stub::start(router);
    let client = stub.client();

    let missing = StartExec { argv: vec!["missing".to_owned()], ..Default::default() };
    let mut session = client.open_exec("a", &missing).await.unwrap();
    assert_eq!(session.next().await.unwrap_err().code(), Some(ErrorCode::CommandNotFound));
    let refused = client.open_exec("asleep", &missing).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::SandboxNotFound));

    let mut session = client.open_exec("a", &StartExec::default()).await.unwrap();
    assert!(matches!(session.next().await.unwrap(), Some(ExecEvent::Started(_))));
    // More than any buffer on the way holds: input and output must flow at the same time.
    let input = session.input();
    let total = 24 << 20;
    let writer = tokio::spawn(async move {
        let piece = vec![1; 1 << 20];
        for _ in 0..24 {
            input.send_stdin(&piece).await.unwrap();
        }
        input.close_stdin().await.unwrap();
    });
    let mut received = 0;
    loop {
        match session.next().await.unwrap().unwrap() {
            ExecEvent::Output { bytes, .. } => received += bytes.len(),
            ExecEvent::Exit(_) => break,
            other => panic!("{other:?}"),
        }
    }
    writer.await.unwrap();
    assert_eq!(received, total);
    assert!(session.next().await.unwrap().is_none());
}
