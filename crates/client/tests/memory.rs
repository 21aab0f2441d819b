//! Suspend, checkpoints, restore and fork: what is sent where, and what is understood.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a stand-in that fails is a test that fails")]

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use roost_client::Client;
use roost_model::{CheckpointId, CreateCheckpoint, ErrorCode, Fork, Level, Restore};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// A stand-in that knows one answer to each request; gone when dropped.
struct Stub {
    folder: tempfile::TempDir,
    task: JoinHandle<()>,
}

impl Stub {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("sock")).unwrap();
        let router = Router::new().fallback(answer);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { folder, task }
    }

    fn client(&self) -> Client {
        Client::unix(self.folder.path().join("sock"))
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn earlier() -> CheckpointId {
    CheckpointId::from_parts(1, 1)
}

fn later() -> CheckpointId {
    CheckpointId::from_parts(2, 2)
}

fn receipt(operation: &str) -> Value {
    json!({"operation": operation, "level": null, "kept": ["files"], "not_kept": [], "bytes": {"memory": 5},
        "parts_ms": {}, "total_ms": 1.5, "generation": 2})
}

fn checkpoint() -> Value {
    json!({"id": earlier(), "sandbox": format!("sbx_{}", "0".repeat(26)), "sandbox_name": "box",
        "created_at": "2027-01-01T00:00:00Z", "comment": "c", "automatic": false, "memory": true, "parent": null,
        "bytes": {"memory": 5, "disk_exclusive": 1, "disk_referenced": 3}, "generation": 1, "template": "base",
        "processes": [], "not_kept": []})
}

/// Answers the requests a client should send, with the bodies it should send, and refuses every other.
async fn answer(request: Request) -> Response {
    let line = format!("{} {}", request.method(), request.uri());
    let bytes = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let (from, to) = (earlier(), later());
    let known = [
        ("POST /v1/sandboxes/box/suspend".to_owned(), json!({"to": "disk"}), 200, receipt("suspend")),
        (
            "POST /v1/sandboxes/box/checkpoints".to_owned(),
            json!({"comment": "c", "files_only": true}),
            201,
            json!({"checkpoint": checkpoint(), "receipt": receipt("checkpoint")}),
        ),
        (
            "GET /v1/sandboxes/box/checkpoints".to_owned(),
            Value::Null,
            200,
            json!({"items": [checkpoint()], "next_cursor": null}),
        ),
        (format!("GET /v1/checkpoints/{from}"), Value::Null, 200, checkpoint()),
        (format!("GET /v1/sandboxes/box/checkpoints/{from}"), Value::Null, 200, checkpoint()),
        (format!("DELETE /v1/sandboxes/box/checkpoints/{from}"), Value::Null, 204, Value::Null),
        (
            format!("GET /v1/sandboxes/box/checkpoints/{from}/diff/{to}"),
            Value::Null,
            200,
            json!({"from": from, "to": to, "files": [{"path": "/a", "kind": "added", "size": 1}],
                "processes_started": [], "processes_ended": [], "truncated": false}),
        ),
        ("POST /v1/sandboxes/box/restore".to_owned(), json!({"checkpoint": from}), 200, receipt("restore")),
        (
            "POST /v1/sandboxes/box/fork".to_owned(),
            json!({"count": 2, "names": ["a"]}),
            201,
            json!([{"error": {"code": "name_taken", "message": "taken"}}, {"receipt": receipt("fork")}]),
        ),
    ];
    match known.into_iter().find(|(known, fits, ..)| *known == line && *fits == body) {
        Some((_, _, 204, _)) => StatusCode::NO_CONTENT.into_response(),
        Some((_, _, status, answer)) => (StatusCode::from_u16(status).unwrap(), Json(answer)).into_response(),
        None => {
            let error = json!({"error": {"code": "not_found", "message": format!("{line} {body}")}});
            (StatusCode::NOT_FOUND, Json(error)).into_response()
        }
    }
}

#[tokio::test]
async fn every_request_is_as_the_document_says() {
    let stub = Stub::start();
    let client = stub.client();
    let id = earlier();

    assert_eq!(client.suspend_sandbox("box", Level::Disk).await.unwrap().bytes["memory"], 5);
    let wanted = CreateCheckpoint { comment: Some("c".to_owned()), files_only: true };
    let made = client.create_checkpoint("box", &wanted).await.unwrap();
    assert_eq!((&made.checkpoint.id, made.receipt.generation), (&id, 2));
    assert_eq!(client.list_checkpoints("box").await.unwrap(), std::slice::from_ref(&made.checkpoint));
    assert_eq!(client.checkpoint(id.as_str()).await.unwrap(), made.checkpoint);
    assert_eq!(client.checkpoint_of("box", id.as_str()).await.unwrap(), made.checkpoint);
    let diff = client.diff_checkpoints("box", id.as_str(), later().as_str()).await.unwrap();
    assert_eq!(diff.files[0].path, "/a");
    client.restore_sandbox("box", &Restore { checkpoint: id.clone() }).await.unwrap();
    client.delete_checkpoint("box", id.as_str()).await.unwrap();
}

#[tokio::test]
async fn each_fork_has_a_result_of_its_own() {
    let stub = Stub::start();
    let wanted = Fork { count: Some(2), names: Some(vec!["a".to_owned()]), from: None };
    let forks = stub.client().fork_sandbox("box", &wanted).await.unwrap();
    assert_eq!(forks[0].error.as_ref().unwrap().code, ErrorCode::NameTaken);
    assert!(forks[1].error.is_none() && forks[1].receipt.is_some());
}
