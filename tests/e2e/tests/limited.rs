//! A limited token is limited on every route, the E2B wire's too; a route that nobody thought of is closed.

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Options, RawAnswer, raw_tcp};
use roost_model::{Access, CreateCheckpoint, Fork, OverviewChange, PatchSandbox, Reach};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;

struct Limited {
    daemon: Daemon,
    secret: String,
}

impl Limited {
    async fn start(access: Access) -> Result<Self> {
        let daemon = Daemon::with(Options { tcp: true, ..Options::default() }).await?;
        let secret = daemon.client().mint_limited_token("agent", access).await?.secret;
        Ok(Self { daemon, secret })
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> Result<RawAnswer> {
        let bearer = format!("Bearer {}", self.secret);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(&body)? };
        raw_tcp(self.daemon.address().context("no address")?, method, path, &headers, &body).await
    }

    /// Expects a refusal that says so.
    async fn forbidden(&self, method: &str, path: &str, body: Value) -> Result<String> {
        let answer = self.ask(method, path, body).await?;
        ensure!(answer.status == 403, "{method} {path}: {} {}", answer.status, answer.text());
        let words = answer.json()?;
        // E2B's refusals have the message on top.
        let words = words["error"]["message"].as_str().or(words["message"].as_str()).context("no words")?;
        ensure!(words.contains("this token"), "{method} {path}: {words}");
        Ok(words.to_owned())
    }
}

fn prefix() -> Access {
    Access { reach: Reach::Prefix("agent-".to_owned()), at_most: Some(2), may_destroy: false }
}

/// What a limited token may ask of a host in which nothing is within its reach.
const OPEN: [&str; 9] = [
    "GET /healthz",
    "GET /openapi.json",
    "GET /v1/sandboxes",
    "GET /v1/events",
    "GET /v1/usage",
    "GET /v1/templates",
    "GET /v1/templates/{template}",
    // A browser that logs in has the rights of the token.
    "POST /v1/logins",
    "GET /v1/session",
];

#[tokio::test]
async fn every_route_is_closed_to_what_is_out_of_reach() -> Result<()> {
    let limited = Limited::start(prefix()).await?;
    let web = limited.daemon.sandbox("web").await?;
    let wanted = CreateCheckpoint { files_only: true, ..CreateCheckpoint::default() };
    let kept = limited.daemon.client().create_checkpoint("web", &wanted).await?.checkpoint;
    let exec = web.spawn("sleep 1000").await?;
    let document = limited.ask("GET", "/openapi.json", Value::Null).await?.json()?;
    let mut open = Vec::new();
    for (path, item) in document["paths"].as_object().context("no paths")? {
        // A stream without an end; what it shows has a test of its own.
        if path == "/v1/overview/watch" {
            continue;
        }
        for method in item.as_object().context("no methods")?.keys().map(|method| method.to_uppercase()) {
            let real = path
                .replace("{sandbox}", "web")
                .replace("{exec}", exec.id.as_str())
                .replace("{checkpoint}", kept.id.as_str())
                .replace("{from}", kept.id.as_str())
                .replace("{to}", kept.id.as_str())
                .replace("{template}", "mini")
                .replace("{pid}", &exec.pid.to_string())
                .replace("{port}", "8000");
            let query = if path.contains("/files") { "?path=/etc/hostname" } else { "" };
            let query = if path == "/v1/events" { "?follow=false" } else { query };
            let answer = limited.ask(&method, &format!("{real}{query}"), Value::Null).await?;
            if answer.status < 400 {
                open.push(format!("{method} {path}"));
            }
        }
    }
    open.retain(|route| route != "POST /v1/sandboxes" && route != "POST /v1/run");
    open.sort();
    let mut expected: Vec<String> = OPEN.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(open, expected);
    assert_eq!(web.sh_ok("echo still here").await?.trim(), "still here");
    for path in ["/v1/tokens", "/v1/pools", "/v1/batches", "/v1/doctor", "/v1/info", "/metrics"] {
        limited.forbidden("GET", path, Value::Null).await?;
    }
    limited.forbidden("POST", "/v1/tokens", json!({"name": "more"})).await?;
    limited.forbidden("GET", "/v1/sandboxes/web/processes", Value::Null).await?;
    let signal = format!("/v1/sandboxes/web/processes/{}/signal", exec.pid);
    limited.forbidden("POST", &signal, json!({"signal": "KILL"})).await?;
    limited.forbidden("DELETE", "/v1/templates/mini", Value::Null).await?;
    limited.forbidden("GET", "/v1/events?sandbox=web", Value::Null).await?;
    limited.forbidden("POST", "/v1/sandboxes", json!({"from_checkpoint": kept.id})).await?;
    for path in ["/v1/sandboxes/web/ports/8000/", "/v1/sandboxes/never-was/ports/8000/"] {
        let answer = limited.ask("GET", path, Value::Null).await?;
        assert!([401, 404].contains(&answer.status), "{path}: {}", answer.text());
    }
    Ok(())
}

/// The next message of an overview.
async fn next_change(lines: &mut Lines<BufReader<TcpStream>>) -> Result<OverviewChange> {
    loop {
        let line = lines.next_line().await?.context("the overview ended")?;
        if let Some(data) = line.strip_prefix("data:") {
            return Ok(serde_json::from_str(data)?);
        }
    }
}

#[tokio::test]
async fn the_overview_shows_what_is_within_reach_while_it_is() -> Result<()> {
    let reach = Reach::Label { key: "team".to_owned(), value: "a".to_owned() };
    let limited = Limited::start(Access { reach, ..Access::default() }).await?;
    let (mine, other) = (limited.daemon.sandbox("mine").await?, limited.daemon.sandbox("other").await?);
    let client = limited.daemon.client();
    let label = async |name: &str, team: Option<&str>| {
        let labels = [("team".to_owned(), team.map(str::to_owned))].into();
        client.patch_sandbox(name, &PatchSandbox { labels: Some(labels), ..PatchSandbox::default() }).await
    };
    label("mine", Some("a")).await?;
    // By HTTP/1.0, in which a stream has no chunks.
    let mut stream = TcpStream::connect(limited.daemon.address().context("no address")?).await?;
    let head = format!("GET /v1/overview/watch HTTP/1.0\r\nauthorization: Bearer {}\r\n\r\n", limited.secret);
    stream.write_all(head.as_bytes()).await?;
    let mut lines = BufReader::new(stream).lines();
    let first = next_change(&mut lines).await?;
    let names: Vec<&str> = first.rows.iter().map(|row| row.name.as_str()).collect();
    assert!(first.all && names == ["mine"], "{first:?}");

    label("other", Some("b")).await?;
    other.delete().await?;
    label("mine", None).await?;
    loop {
        let change = next_change(&mut lines).await?;
        let told = change.rows.iter().map(|row| &row.id).chain(&change.gone);
        assert!(told.map(|id| id.as_str()).all(|id| id == mine.id()), "{change:?}");
        if !change.gone.is_empty() {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn within_reach_it_makes_and_uses_but_destroys_nothing() -> Result<()> {
    let limited = Limited::start(prefix()).await?;
    limited.daemon.sandbox("web").await?;
    let words = limited.forbidden("POST", "/v1/sandboxes", json!({"name": "mine"})).await?;
    assert!(words.contains("`agent-…`"), "{words}");
    let made = limited.ask("POST", "/v1/sandboxes", json!({})).await?;
    assert_eq!(made.status, 201, "{}", made.text());
    let name = made.json()?["name"].as_str().context("no name")?.to_owned();
    assert!(name.starts_with("agent-"), "{name}");
    let path = |rest: &str| format!("/v1/sandboxes/{name}{rest}");
    let ran = limited.ask("POST", &path("/execs"), json!({"argv": ["echo", "hello"], "wait": true})).await?;
    assert_eq!(ran.status, 200, "{}", ran.text());
    let kept = limited.ask("POST", &path("/checkpoints"), json!({"files_only": true})).await?.json()?;
    let kept = kept["checkpoint"]["id"].as_str().context("no checkpoint")?.to_owned();
    limited.forbidden("POST", &path("/restore"), json!({"checkpoint": kept})).await?;
    limited.forbidden("DELETE", &path(&format!("/checkpoints/{kept}")), Value::Null).await?;
    limited.forbidden("DELETE", &path(""), Value::Null).await?;
    let words = limited.forbidden("POST", &path("/fork"), json!({"count": 2, "from": kept})).await?;
    assert!(words.contains("may have 2 sandboxes, has 1, and 2 more"), "{words}");
    let forks = limited.ask("POST", &path("/fork"), json!({"from": kept})).await?;
    assert_eq!(forks.status, 201, "{}", forks.text());
    limited.forbidden("POST", "/v1/sandboxes", json!({})).await?;
    limited.forbidden("POST", "/v1/run", json!({"exec": {"argv": ["true"]}})).await?;
    let listed = limited.ask("GET", "/v1/sandboxes", Value::Null).await?.json()?;
    let listed: Vec<&str> = listed["items"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(listed.len() == 2 && listed.iter().all(|name| name.starts_with("agent-")), "{listed:?}");
    // The owner is bound by nothing.
    let forks = Fork { count: Some(2), from: Some(kept.parse()?), ..Fork::default() };
    assert_eq!(limited.daemon.client().fork_sandbox(&name, &forks).await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn limited_token_cannot_give_capabilities_beyond_the_default() -> Result<()> {
    let limited = Limited::start(prefix()).await?;
    let words = limited.forbidden("POST", "/v1/sandboxes", json!({"capabilities": ["net-raw"]})).await?;
    assert!(words.contains("is limited, and cannot give a sandbox the capabilities net-raw"), "{words}");
    let run = json!({"sandbox": {"capabilities": ["net-admin"]}, "exec": {"argv": ["true"]}});
    limited.forbidden("POST", "/v1/run", run).await?;
    let made = limited.ask("POST", "/v1/sandboxes", json!({"capabilities": []})).await?;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json()?["capabilities"], json!([]));
    Ok(())
}

#[tokio::test]
async fn the_e2b_wire_is_as_limited() -> Result<()> {
    let limited = Limited::start(prefix()).await?;
    limited.daemon.sandbox("web").await?;
    let wanted = CreateCheckpoint { comment: Some("snapshot mine:default".to_owned()), files_only: true };
    limited.daemon.client().create_checkpoint("web", &wanted).await?;
    for (method, rest, body) in [
        ("GET", "", Value::Null),
        ("DELETE", "", Value::Null),
        ("POST", "/pause", json!({})),
        ("POST", "/connect", json!({"timeout": 60})),
        ("POST", "/timeout", json!({"timeout": 60})),
        ("POST", "/fork", json!({})),
        ("POST", "/snapshots", json!({})),
        ("GET", "/logs", Value::Null),
        ("GET", "/metrics", Value::Null),
        ("PUT", "/network", json!({})),
    ] {
        limited.forbidden(method, &format!("/sandboxes/web{rest}"), body).await?;
    }
    assert_eq!(limited.ask("GET", "/v2/sandboxes", Value::Null).await?.json()?, json!([]));
    assert_eq!(limited.ask("GET", "/snapshots", Value::Null).await?.json()?, json!([]));
    limited.forbidden("POST", "/v3/templates", json!({"name": "mine"})).await?;
    limited.forbidden("DELETE", "/templates/mini", Value::Null).await?;
    limited.forbidden("POST", "/templates/tags", json!({"target": "mini", "tags": ["v1"]})).await?;
    assert_eq!(limited.ask("GET", "/templates", Value::Null).await?.status, 200);

    let made = limited.ask("POST", "/sandboxes", json!({"templateID": "mini", "timeout": 600})).await?;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()?["sandboxID"].as_str().context("no id")?.to_owned();
    let path = |rest: &str| format!("/sandboxes/{id}{rest}");
    limited.forbidden("DELETE", &path(""), Value::Null).await?;
    limited.forbidden("POST", &path("/timeout"), json!({"timeout": 5})).await?;
    assert_eq!(limited.ask("POST", &path("/timeout"), json!({"timeout": 6000})).await?.status, 204);
    let snapshot = limited.ask("POST", &path("/snapshots"), json!({"memory": false})).await?.json()?;
    let snapshot = snapshot["snapshotID"].as_str().context("no snapshot")?;
    limited.forbidden("DELETE", &format!("/templates/{snapshot}"), Value::Null).await?;
    assert_eq!(limited.ask("POST", "/sandboxes", json!({"templateID": snapshot})).await?.status, 201);
    limited.forbidden("POST", "/sandboxes", json!({"templateID": "mini"})).await?;
    Ok(())
}
