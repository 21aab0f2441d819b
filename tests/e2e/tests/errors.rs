//! Bad input: every row of the table in `docs/errors.md` is tried, and answered as it says.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, ErrorRow, Options, RawAnswer, error_rows, message_fits, raw_tcp, raw_unix};
use roost_model::Level;

/// What the document's table takes for granted: sandboxes `web` (with a few files), `asleep` (it stays so) and `gone`
/// (deleted).
async fn furnish(daemon: &Daemon) -> Result<()> {
    let web = daemon.sandbox("web").await?;
    web.sh_ok("echo text > /root/plain.txt; mkdir /root/folder; echo x > /root/folder/file").await?;
    daemon.sandbox("asleep").await?;
    daemon.client().suspend_to_stay("asleep", Level::Files).await?;
    let gone = daemon.sandbox("gone").await?;
    gone.delete().await
}

/// Sends what a row's request says.
async fn send(daemon: &Daemon, row: &ErrorRow) -> Result<RawAnswer> {
    let mut parts = row.request.splitn(3, ' ');
    let method = parts.next().context("no method")?;
    let path = parts.next().context("no path")?;
    let body = match parts.next().unwrap_or_default() {
        "(2 MiB)" => vec![b' '; 2 << 20],
        text => text.as_bytes().to_vec(),
    };
    if let Some(token) = row.wrong.strip_prefix("over TCP, ") {
        let address = daemon.address().context("no TCP address")?;
        let secret = token.contains("wrong").then_some(("authorization", "Bearer wrong"));
        return raw_tcp(address, method, path, &Vec::from_iter(secret), &body).await;
    }
    raw_unix(&daemon.socket(), method, path, &[("content-type", "application/json")], &body).await
}

#[tokio::test]
async fn every_row_of_the_document_holds() -> Result<()> {
    let daemon = Daemon::with(Options { tcp: true, ..Options::default() }).await?;
    furnish(&daemon).await?;
    let mut wrong = Vec::new();
    for row in error_rows()? {
        let answer = send(&daemon, &row).await.with_context(|| format!("row: {}", row.wrong))?;
        let body = answer.json().with_context(|| format!("row: {}", row.wrong))?;
        let text = |key: &str| body["error"][key].as_str().unwrap_or_default().to_owned();
        let fits =
            answer.status == row.status && text("code") == row.code && message_fits(&row.message, &text("message"));
        if !fits {
            wrong.push(format!(
                "{}: documented {} {} `{}`\n   answered {} {} `{}`",
                row.wrong,
                row.status,
                row.code,
                row.message,
                answer.status,
                text("code"),
                text("message")
            ));
        }
    }
    ensure!(wrong.is_empty(), "{} rows do not hold:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[tokio::test]
async fn a_terminated_sandbox_shows_its_tombstone() -> Result<()> {
    let daemon = Daemon::start().await?;
    furnish(&daemon).await?;
    let body = br#"{"argv": ["true"]}"#;
    for (method, path, body) in [
        ("GET", "/v1/sandboxes/gone", b"".as_slice()),
        ("POST", "/v1/sandboxes/gone/execs", body.as_slice()),
        ("DELETE", "/v1/sandboxes/gone", b"".as_slice()),
    ] {
        let headers = [("content-type", "application/json")];
        let answer = raw_unix(&daemon.socket(), method, path, &headers, body).await?;
        assert_eq!(answer.status, 410, "{method} {path}");
        let body = answer.json()?;
        assert_eq!(body["sandbox"]["tombstone"]["cause"], "deleted", "{method} {path}: {body}");
    }
    Ok(())
}

#[tokio::test]
async fn a_token_opens_tcp_until_it_is_revoked() -> Result<()> {
    let daemon = Daemon::with(Options { tcp: true, ..Options::default() }).await?;
    let address = daemon.address().context("no TCP address")?;
    let made = daemon.client().mint_token("test").await?;
    let bearer = format!("Bearer {}", made.secret);
    let headers = [("authorization", bearer.as_str())];
    for path in ["/v1/sandboxes", "/metrics", "/v1/events?follow=false"] {
        assert_eq!(raw_tcp(address, "GET", path, &headers, b"").await?.status, 200, "{path}");
        assert_eq!(raw_tcp(address, "GET", path, &[], b"").await?.status, 401, "{path}");
    }
    for path in ["/healthz", "/openapi.json"] {
        assert_eq!(raw_tcp(address, "GET", path, &[], b"").await?.status, 200, "{path}");
    }
    let database =
        std::fs::read_dir(daemon.data_dir())?.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    for file in database.filter(|path| path.to_string_lossy().contains(".db")) {
        let bytes = std::fs::read(&file)?;
        let found = bytes.windows(made.secret.len()).any(|window| window == made.secret.as_bytes());
        ensure!(!found, "the secret is in `{}`", file.display());
    }
    daemon.client().revoke_token(made.token.id.as_str()).await?;
    assert_eq!(raw_tcp(address, "GET", "/v1/sandboxes", &headers, b"").await?.status, 401);
    Ok(())
}
