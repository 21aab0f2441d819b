//! Files by E2B's wire, where its packages do not look: links, forms, parts, what breaks off, and watches over sleeps.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use jiff::Timestamp;
use roost_e2e::e2b::{E2b, Made};
use roost_e2e::{RawAnswer, raw_tcp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const RAW: (&str, &str) = ("content-type", "application/octet-stream");
const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=XX");

async fn start() -> Result<(E2b, Made)> {
    let e2b = E2b::start(false).await?;
    let made = e2b.create(&json!({"templateID": "mini", "timeout": 600})).await?;
    Ok((e2b, made))
}

/// Asks the data plane with the sandbox's token.
async fn ask(
    (e2b, made): (&E2b, &Made),
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<RawAnswer> {
    let named = [("e2b-sandbox-id", made.id.as_str()), ("x-access-token", made.token.as_str())];
    let headers: Vec<(&str, &str)> = named.into_iter().chain(headers.iter().copied()).collect();
    raw_tcp(e2b.address()?, method, path, &headers, body).await
}

/// Calls a method of `filesystem.Filesystem`.
async fn call(which: (&E2b, &Made), method: &str, message: &Value) -> Result<(u16, Value)> {
    let path = format!("/filesystem.Filesystem/{method}");
    let content = [("content-type", "application/json")];
    let answer = ask(which, "POST", &path, &content, message.to_string().as_bytes()).await?;
    Ok((answer.status, answer.json()?))
}

/// Reads a file, and expects it to be there.
async fn content(which: (&E2b, &Made), path: &str) -> Result<String> {
    let answer = ask(which, "GET", &format!("/files?path={path}"), &[], &[]).await?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(answer.text())
}

/// A link as the SDKs sign it; `end` in Unix seconds.
fn link(made: &Made, operation: &str, path: &str, end: Option<i64>) -> String {
    let until = end.map(|end| format!(":{end}")).unwrap_or_default();
    let signed = format!("{path}:{operation}::{}{until}", made.token);
    let signature = STANDARD_NO_PAD.encode(Sha256::digest(signed)).replace('+', "%2B").replace('/', "%2F");
    let until = end.map(|end| format!("&signature_expiration={end}")).unwrap_or_default();
    format!("/files?path={path}&signature=v1_{signature}{until}")
}

fn part(name: &str, filename: &str, data: &str) -> String {
    format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{filename}\"\r\n\r\n{data}\r\n")
}

#[tokio::test]
async fn a_link_finds_its_sandbox_and_is_good_for_nothing_else() -> Result<()> {
    let (e2b, made) = start().await?;
    let other = e2b.create(&json!({"templateID": "mini", "timeout": 600})).await?;
    let which = (&e2b, &made);
    ensure!(ask(which, "POST", "/files?path=/tmp/a", &[RAW], b"mine").await?.status == 200);
    ensure!(ask((&e2b, &other), "POST", "/files?path=/tmp/a", &[RAW], b"other").await?.status == 200);
    let get = async |path: &str, headers: &[(&str, &str)]| raw_tcp(e2b.address()?, "GET", path, headers, &[]).await;
    let later = Timestamp::now().as_second() + 100;
    for (sandbox, expected) in [(&made, "mine"), (&other, "other")] {
        for end in [None, Some(later)] {
            let answer = get(&link(sandbox, "read", "/tmp/a", end), &[]).await?;
            ensure!(answer.status == 200 && answer.text() == expected, "{answer:?}");
        }
    }
    let expired = get(&link(&made, "read", "/tmp/a", Some(later - 200)), &[]).await?;
    let body = r#"{"code":401,"message":"signature is already expired"}"#;
    ensure!(expired.status == 401 && expired.text() == body, "{expired:?}");
    let good = link(&made, "read", "/tmp/a", Some(later));
    for bad in [
        good.replace("/tmp/a", "/tmp/b"),
        good.replace("v1_", "v1_A"),
        good.replace(&later.to_string(), &(later + 1).to_string()),
        link(&made, "write", "/tmp/a", None),
        "/files?path=/tmp/a".to_owned(),
    ] {
        ensure!(get(&bad, &[]).await?.status == 401, "{bad}");
    }
    // Who shows a token is judged by it.
    ensure!(get(&good, &[("x-access-token", "wrong")]).await?.status == 401);
    ensure!(get(&good, &[("x-access-token", &other.token)]).await?.status == 401);
    ensure!(get(&good, &[("e2b-sandbox-id", &other.id)]).await?.status == 401);
    ensure!(get(&good, &[("e2b-sandbox-id", &made.id)]).await?.status == 200);
    let up = link(&made, "write", "/tmp/up", None);
    ensure!(raw_tcp(e2b.address()?, "POST", &up, &[RAW], b"up").await?.status == 200);
    ensure!(content(which, "/tmp/up").await? == "up");
    Ok(())
}

#[tokio::test]
async fn forms_and_what_is_not_quite_one() -> Result<()> {
    let (e2b, made) = start().await?;
    let which = (&e2b, &made);
    let post = async |path: &str, headers: &[(&str, &str)], body: &str| {
        ask(which, "POST", path, headers, body.as_bytes()).await
    };
    let two =
        [part("file", "/tmp/one", "1"), part("note", "x", "-"), part("file", "/tmp/zwei ü", "2"), "--XX--".into()];
    let written = post("/files", &[FORM], &two.concat()).await?;
    let expected = json!([
        {"name": "one", "path": "/tmp/one", "type": "file"}, {"name": "zwei ü", "path": "/tmp/zwei ü", "type": "file"}
    ]);
    ensure!(written.status == 200 && written.json()? == expected, "{written:?}");
    ensure!(content(which, "/tmp/zwei%20%C3%BC").await? == "2");
    // The address goes before the name in the form.
    let one = [part("file", "/tmp/ignored", "by address"), "--XX--".into()].concat();
    ensure!(post("/files?path=/tmp/named", &[FORM], &one).await?.status == 200);
    ensure!(content(which, "/tmp/named").await? == "by address");
    let twice = [part("file", "/tmp/t", "1"), part("file", "/tmp//t", "2"), "--XX--".into()].concat();
    let refused = post("/files", &[FORM], &twice).await?;
    ensure!(refused.status == 400 && refused.text().contains("same path"), "{refused:?}");

    // What does not arrive whole changes nothing.
    let open = part("file", "/tmp/one", "half of it");
    for (headers, body) in [
        (&[FORM][..], open.trim_end()),
        (&[FORM], "no form at all"),
        (&[("content-type", "multipart/form-data")], "--XX--"),
        (&[("content-type", "text/plain")], "text"),
        (&[RAW, ("content-encoding", "gzip")], "no gzip"),
        (&[RAW, ("content-encoding", "br")], "no gzip"),
        (&[RAW, ("x-metadata-a", "\u{fc}")], "text"),
    ] {
        let refused = post("/files?path=/tmp/one", headers, body).await?;
        ensure!(refused.status == 400 && refused.json()?["code"] == 400, "{headers:?} {refused:?}");
    }
    let mut stream = TcpStream::connect(e2b.address()?).await?;
    let head = format!(
        "POST /files?path=/tmp/one HTTP/1.1\r\nhost: x\r\ne2b-sandbox-id: {}\r\nx-access-token: {}\r\n\
         content-type: application/octet-stream\r\ncontent-length: 1000\r\n\r\nhalf",
        made.id, made.token
    );
    stream.write_all(head.as_bytes()).await?;
    stream.shutdown().await?;
    stream.read_to_end(&mut Vec::new()).await.ok();
    ensure!(content(which, "/tmp/one").await? == "1");

    let folder = post("/files?path=/tmp", &[RAW], &"x".repeat(3 << 20)).await?;
    ensure!(folder.status == 400, "{folder:?}");
    let full = post("/files?path=/dev/full", &[RAW], "x").await?;
    ensure!(full.status == 507 && full.json()?["code"] == 507, "{full:?}");
    let stranger = post("/files?path=/tmp/x&username=nobody-here", &[RAW], "x").await?;
    ensure!(stranger.status == 401, "{stranger:?}");
    Ok(())
}

#[tokio::test]
async fn parts_encodings_and_pieces() -> Result<()> {
    let (e2b, made) = start().await?;
    let which = (&e2b, &made);
    let note = [RAW, ("x-metadata-Colour", "blue")];
    let written = ask(which, "POST", "/files?path=/tmp/a", &note, b"0123456789").await?.json()?;
    ensure!(written[0]["metadata"] == json!({"colour": "blue"}), "{written}");
    let get = async |headers: &[(&str, &str)]| ask(which, "GET", "/files?path=/tmp/a", headers, &[]).await;
    let whole = get(&[]).await?;
    ensure!(
        whole.header("content-length") == Some("10") && whole.header("vary") == Some("Accept-Encoding"),
        "{whole:?}"
    );
    ensure!(whole.header("content-disposition") == Some("inline"), "{whole:?}");
    for (range, part, place) in [
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=8-99", "89", "bytes 8-9/10"),
    ] {
        let answer = get(&[("range", range)]).await?;
        ensure!(answer.status == 206 && answer.text() == part, "{range}: {answer:?}");
        ensure!(answer.header("content-range") == Some(place), "{range}: {answer:?}");
    }
    let beyond = get(&[("range", "bytes=10-")]).await?;
    ensure!(beyond.status == 416 && beyond.header("content-range") == Some("bytes */10"), "{beyond:?}");
    let packed = get(&[("accept-encoding", "gzip")]).await?;
    ensure!(packed.header("content-encoding") == Some("gzip") && packed.body.starts_with(&[0x1f, 0x8b]), "{packed:?}");
    let back = ask(which, "POST", "/files?path=/tmp/b", &[RAW, ("content-encoding", "gzip")], &packed.body).await?;
    ensure!(back.status == 200 && content(which, "/tmp/b").await? == "0123456789", "{back:?}");
    ensure!(get(&[("accept-encoding", "gzip, deflate, br")]).await?.header("content-encoding").is_none());
    ensure!(get(&[("accept-encoding", "br, identity;q=0")]).await?.status == 406);

    let compose = json!({"source_paths": ["/tmp/a", "/tmp/b"], "destination": "/tmp/new/whole"}).to_string();
    let json = [("content-type", "application/json")];
    let composed = ask(which, "POST", "/files/compose", &json, compose.as_bytes()).await?;
    ensure!(composed.json()? == json!({"name": "whole", "path": "/tmp/new/whole", "type": "file"}), "{composed:?}");
    ensure!(content(which, "/tmp/new/whole").await? == "01234567890123456789");
    ensure!(ask(which, "POST", "/files/compose", &json, compose.as_bytes()).await?.status == 404);
    let unnamed = raw_tcp(e2b.address()?, "POST", "/files/compose", &[("e2b-sandbox-id", &made.id)], b"{}").await?;
    ensure!(unnamed.status == 401, "{unnamed:?}");
    Ok(())
}

#[tokio::test]
async fn a_named_watch_sleeps_and_wakes_with_its_sandbox() -> Result<()> {
    let (mut e2b, made) = start().await?;
    let (status, created) =
        call((&e2b, &made), "CreateWatcher", &json!({"path": "/tmp", "recursive": true, "includeEntry": true})).await?;
    let id = json!({"watcherId": created["watcherId"].as_str().with_context(|| format!("{status} {created}"))?});
    // Nothing of it keeps the sandbox awake.
    let view = e2b.daemon.client().sandbox(e2b.sandbox(&made).await?.name()).await?;
    ensure!(view.quiet_since.is_some(), "{view:?}");
    ensure!(ask((&e2b, &made), "POST", "/files?path=/tmp/sub/a", &[RAW], b"text").await?.status == 200);
    e2b.expect(204, "POST", &format!("/sandboxes/{}/pause", made.id), &json!({})).await?;
    e2b.daemon.crash_and_restart().await?;
    e2b.expect(201, "POST", &format!("/v2/sandboxes/{}/connect", made.id), &json!({"timeout": 600})).await?;
    let which = (&e2b, &made);
    ensure!(ask(which, "POST", "/files?path=/tmp/sub/b", &[RAW], b"text").await?.status == 200);
    let (status, seen) = call(which, "GetWatcherEvents", &id).await?;
    let events: Vec<(&str, &str)> = seen["events"]
        .as_array()
        .with_context(|| format!("{status} {seen}"))?
        .iter()
        .map(|event| (event["name"].as_str().unwrap_or_default(), event["type"].as_str().unwrap_or_default()))
        .collect();
    for name in ["sub/a", "sub/b"] {
        for kind in ["EVENT_TYPE_CREATE", "EVENT_TYPE_WRITE"] {
            let times = events.iter().filter(|event| **event == (name, kind)).count();
            ensure!(times == 1, "{name} {kind} is there {times} times: {events:?}");
        }
    }
    let last = &seen["events"].as_array().and_then(|events| events.last()).context("no events")?["entry"];
    ensure!(last["path"] == "/tmp/sub/b" && last["size"] == "4", "{last}");
    ensure!(call(which, "RemoveWatcher", &id).await? == (200, json!({})));
    let (status, gone) = call(which, "GetWatcherEvents", &id).await?;
    ensure!(status == 404 && gone["code"] == "not_found", "{gone}");
    Ok(())
}

#[tokio::test]
async fn a_watch_goes_on_over_a_checkpoint() -> Result<()> {
    let (e2b, made) = start().await?;
    let sandbox = e2b.sandbox(&made).await?;
    let text = json!({"path": "/tmp"}).to_string();
    let message = [&[0][..], &u32::try_from(text.len())?.to_be_bytes(), text.as_bytes()].concat();
    let head = format!(
        "POST /filesystem.Filesystem/WatchDir HTTP/1.1\r\nhost: x\r\ne2b-sandbox-id: {}\r\nx-access-token: {}\r\n\
         content-type: application/connect+json\r\ncontent-length: {}\r\n\r\n",
        made.id,
        made.token,
        message.len()
    );
    let mut stream = TcpStream::connect(e2b.address()?).await?;
    stream.write_all(&[head.as_bytes(), &message].concat()).await?;
    let mut seen = Vec::new();
    let mut until = async |text: &str| -> Result<()> {
        while !String::from_utf8_lossy(&seen).contains(text) {
            ensure!(stream.read_buf(&mut seen).await? > 0, "it ended: {}", String::from_utf8_lossy(&seen));
        }
        Ok(())
    };
    until(r#"{"start":{}}"#).await?;
    sandbox.checkpoint().await?;
    // It is watched anew some time after; until then the same change is made again and again.
    let made_often = async {
        loop {
            sandbox.write("/tmp/after", "text").await?;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        told = until(r#""name":"after""#) => told,
        failed = made_often => failed,
    }
}
