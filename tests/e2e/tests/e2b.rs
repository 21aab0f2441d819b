//! E2B's wire by hand: timeouts, pauses, forks, snapshots and ports. Its SDKs have a suite of their own.
#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use roost_e2e::Witness;
use roost_e2e::e2b::{E2b, Made};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const NOTHING: &Value = &Value::Null;
const GONE: &str = "The sandbox was not found";

/// Seconds until it ends.
async fn left(e2b: &E2b, made: &Made) -> Result<i64> {
    Ok(e2b.end_of(made).await?.duration_since(Timestamp::now()).as_secs())
}

#[tokio::test]
async fn at_its_timeout_it_pauses_and_the_next_call_resumes_it() -> Result<()> {
    let e2b = E2b::start(false).await?;
    let wanted = json!({"templateID": "mini", "timeout": 600, "autoPause": true, "autoResume": {"enabled": true}});
    let made = e2b.create(&wanted).await?;
    let sandbox = e2b.sandbox(&made).await?;
    let witness = Witness::start(&sandbox).await?;
    e2b.expect(204, "POST", &format!("/sandboxes/{}/timeout", made.id), &json!({"timeout": 1})).await?;
    e2b.becomes(&made, "paused").await?;
    let info = e2b.info(&made).await?;
    assert_eq!(info["lifecycle"], json!({"autoResume": true, "onTimeout": "pause"}));
    // Who has no token neither wakes it nor learns more.
    let stranger = e2b.port(&made, 49983, "/health", &[]).await?;
    assert_eq!((stranger.status, &stranger.json()?["message"]), (502, &GONE.into()));
    e2b.becomes(&made, "paused").await?;
    assert_eq!(e2b.info(&made).await?["pauseMode"], "full");

    assert_eq!(e2b.health(&made).await?.status, 204);
    e2b.expect(204, "POST", &format!("/sandboxes/{}/timeout", made.id), &json!({"timeout": 600})).await?;
    e2b.becomes(&made, "running").await?;
    witness.goes_on(&sandbox).await?;

    // Without its memory it only goes on when it is told to.
    e2b.expect(204, "POST", &format!("/sandboxes/{}/pause", made.id), &json!({"memory": false})).await?;
    assert_eq!(e2b.info(&made).await?["pauseMode"], "filesystem");
    assert_eq!(e2b.health(&made).await?.status, 502);
    let path = format!("/v2/sandboxes/{}/connect", made.id);
    assert_eq!(
        Made::of(&e2b.expect(201, "POST", &path, &json!({"timeout": 600})).await?)?,
        made,
        "same id, same token"
    );
    ensure!(!witness.is_there(&sandbox).await?);
    Ok(())
}

#[tokio::test]
async fn a_pause_stops_the_clock_and_connecting_only_extends() -> Result<()> {
    let e2b = E2b::start(false).await?;
    let made = e2b.create(&json!({"templateID": "mini", "timeout": 100})).await?;
    let path = |verb: &str| format!("/sandboxes/{}/{verb}", made.id);
    let sandbox = e2b.sandbox(&made).await?;
    let witness = Witness::start(&sandbox).await?;
    e2b.expect(204, "POST", &path("pause"), NOTHING).await?;
    e2b.expect(409, "POST", &path("pause"), NOTHING).await?;
    e2b.expect(404, "POST", &path("timeout"), &json!({"timeout": 5})).await?;
    let asleep = e2b.daemon.client().sandbox(sandbox.id()).await?;
    ensure!(asleep.stays && asleep.expires_at.is_none(), "{asleep:?}");
    // Nothing but an order wakes it.
    let refused = sandbox.sh("true").await.expect_err("it shall stay asleep");
    let code = refused.downcast_ref::<roost_client::ClientError>().and_then(roost_client::ClientError::code);
    assert_eq!(code, Some(roost_model::ErrorCode::SandboxAsleep), "{refused:?}");
    assert_eq!(e2b.health(&made).await?.json()?["code"], 502);
    let listed = e2b.expect(200, "GET", "/v2/sandboxes?state=paused", NOTHING).await?;
    assert_eq!(listed[0]["sandboxID"], made.id.as_str());
    assert_eq!(e2b.expect(200, "GET", "/sandboxes", NOTHING).await?, json!([]));

    e2b.expect(201, "POST", &path("connect"), &json!({"timeout": 200})).await?;
    let time = left(&e2b, &made).await?;
    ensure!((150..=200).contains(&time), "{time} s are left");
    witness.goes_on(&sandbox).await?;
    let end = e2b.end_of(&made).await?;
    e2b.expect(200, "POST", &path("connect"), &json!({"timeout": 10})).await?;
    assert_eq!(e2b.end_of(&made).await?, end, "it had more");
    e2b.expect(200, "POST", &format!("/v2{}", path("connect")), &json!({})).await?;
    ensure!(e2b.end_of(&made).await? > end, "300 s are more");
    e2b.expect(409, "POST", &path("resume"), &json!({"timeout": 10})).await?;
    e2b.expect(204, "POST", &path("timeout"), &json!({"timeout": 50})).await?;
    ensure!(left(&e2b, &made).await? <= 50, "a timeout may shorten");
    e2b.expect(204, "POST", &path("refreshes"), &json!({"duration": 20})).await?;
    ensure!(left(&e2b, &made).await? > 20, "a refresh may not");
    e2b.expect(204, "POST", &path("timeout"), &json!({"timeout": 0})).await?;
    e2b.expect(404, "GET", &format!("/sandboxes/{}", made.id), NOTHING).await?;
    let told = e2b.health(&made).await?;
    let message = told.json()?["message"].as_str().context("no message")?.to_owned();
    ensure!(told.status == 502 && message.starts_with(GONE) && message.contains("time to live"), "{message}");
    Ok(())
}

#[tokio::test]
async fn what_happens_at_the_timeout_survives_resumes_and_daemons() -> Result<()> {
    let mut e2b = E2b::start(false).await?;
    let made = e2b.create(&json!({"templateID": "mini", "timeout": 600, "autoPause": true})).await?;
    let sandbox = e2b.sandbox(&made).await?;
    let witness = Witness::start(&sandbox).await?;
    let path = |verb: &str| format!("/sandboxes/{}/{verb}", made.id);
    e2b.expect(204, "POST", &path("pause"), NOTHING).await?;
    e2b.daemon.kill9()?;
    e2b.daemon.start_again().await?;
    assert_eq!(e2b.info(&made).await?["state"], "paused");
    assert_eq!(e2b.health(&made).await?.status, 502);

    let resumed = e2b.expect(201, "POST", &path("connect"), &json!({"timeout": 500})).await?;
    assert_eq!(Made::of(&resumed)?, made);
    let end = e2b.end_of(&made).await?;
    e2b.daemon.kill9()?;
    e2b.daemon.start_again().await?;
    assert_eq!(e2b.end_of(&made).await?, end);
    witness.goes_on(&sandbox).await?;
    assert_eq!(e2b.info(&made).await?["lifecycle"]["onTimeout"], "pause");

    // Its time ends while no daemon is there to see it.
    e2b.expect(204, "POST", &path("timeout"), &json!({"timeout": 1})).await?;
    e2b.daemon.kill9()?;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    e2b.daemon.start_again().await?;
    e2b.becomes(&made, "paused").await?;
    e2b.expect(201, "POST", &path("connect"), &json!({"timeout": 600})).await?;
    witness.goes_on(&sandbox).await?;
    Ok(())
}

#[tokio::test]
async fn forks_and_snapshots_have_lives_of_their_own() -> Result<()> {
    let e2b = E2b::start(false).await?;
    let made = e2b.create(&json!({"templateID": "mini", "metadata": {"team": "a, b"}})).await?;
    let path = |verb: &str| format!("/sandboxes/{}/{verb}", made.id);
    let sandbox = e2b.sandbox(&made).await?;
    let witness = Witness::start(&sandbox).await?;
    e2b.expect(400, "POST", &path("fork"), &json!({"count": 21})).await?;
    let forks = e2b.expect(201, "POST", &path("fork"), &json!({"count": 2, "timeout": 900})).await?;
    for fork in forks.as_array().context("no list")? {
        let fork = Made::of(&fork["sandbox"])?;
        ensure!(fork.id != made.id && fork.token != made.token);
        ensure!(left(&e2b, &fork).await? > 800);
        witness.goes_on(&e2b.sandbox(&fork).await?).await?;
    }
    ensure!(left(&e2b, &made).await? <= 300, "the source's time is its own");

    let named = e2b.expect(201, "POST", &path("snapshots"), &json!({"name": "kept"})).await?;
    assert_eq!(named, json!({"snapshotID": "kept:default", "names": ["kept:default"]}));
    let plain = e2b.expect(201, "POST", &path("snapshots"), &json!({"memory": false})).await?;
    e2b.expect(204, "DELETE", &format!("/sandboxes/{}", made.id), NOTHING).await?;
    let listed = e2b.expect(200, "GET", &format!("/snapshots?sandboxID={}", made.id), NOTHING).await?;
    assert_eq!(listed, json!([plain, named]));

    let again = e2b.create(&json!({"templateID": named["snapshotID"], "metadata": {"own": "1"}})).await?;
    witness.goes_on(&e2b.sandbox(&again).await?).await?;
    assert_eq!(e2b.info(&again).await?["metadata"], json!({"own": "1"}));
    let files = e2b.create(&json!({"templateID": plain["snapshotID"]})).await?;
    ensure!(!witness.is_there(&e2b.sandbox(&files).await?).await?, "it was of the files alone");
    let snapshot = plain["snapshotID"].as_str().context("no id")?.replace(':', "%3A");
    e2b.expect(204, "DELETE", &format!("/templates/{snapshot}"), NOTHING).await?;
    e2b.expect(404, "DELETE", &format!("/templates/{snapshot}"), NOTHING).await?;
    e2b.expect(404, "POST", "/v2/sandboxes", &json!({"templateID": plain["snapshotID"]})).await?;
    Ok(())
}

#[tokio::test]
async fn refusals_repeat_their_status_and_a_key_makes_one_sandbox() -> Result<()> {
    let e2b = E2b::start(false).await?;
    for (status, body) in [
        (404, json!({"templateID": "nope"})),
        (400, json!({"templateID": "mini", "timeout": 0})),
        (400, json!({"templateID": "mini", "autoPauseMemory": false})),
        (400, json!({"templateID": "mini", "network": {"denyOut": ["1.1.1.1"]}})),
        (400, json!({"templateID": "mini", "volumeMounts": [{"name": "v", "path": "/v"}]})),
    ] {
        let refused = e2b.expect(status, "POST", "/v2/sandboxes", &body).await?;
        assert_eq!(refused["code"], status, "{refused}");
    }
    let address = e2b.address()?;
    for key in [&[][..], &[("x-api-key", "rst_wrong")]] {
        let refused = roost_e2e::raw_tcp(address, "GET", "/v2/sandboxes", key, &[]).await?;
        assert_eq!((refused.status, &refused.json()?["code"]), (401, &401.into()));
    }
    let body = serde_json::to_vec(&json!({"templateID": "mini"}))?;
    let headers = [("x-api-key", e2b.key.as_str()), ("idempotency-key", "once-1")];
    let first = Made::of(&roost_e2e::raw_tcp(address, "POST", "/v2/sandboxes", &headers, &body).await?.json()?)?;
    let again = roost_e2e::raw_tcp(address, "POST", "/v2/sandboxes", &headers, &body).await?;
    assert_eq!((again.status, Made::of(&again.json()?)?), (201, first));
    Ok(())
}

#[tokio::test]
async fn a_stream_of_a_sandbox_that_is_killed_breaks_off() -> Result<()> {
    let e2b = E2b::start(false).await?;
    let made = e2b.create(&json!({"templateID": "mini"})).await?;
    let message = serde_json::to_vec(&json!({"process": {"cmd": "sleep", "args": ["1000"]}}))?;
    let mut body = vec![0];
    body.extend(u32::try_from(message.len())?.to_be_bytes());
    body.extend(message);
    let head = format!(
        "POST /process.Process/Start HTTP/1.1\r\nhost: localhost\r\ne2b-sandbox-id: {}\r\nx-access-token: {}\r\n\
         authorization: Basic cm9vdDo=\r\ncontent-type: application/connect+json\r\ncontent-length: {}\r\n\r\n",
        made.id,
        made.token,
        body.len()
    );
    let mut stream = TcpStream::connect(e2b.address()?).await?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    let mut read = Vec::new();
    let said = |read: &[u8], text: &str| String::from_utf8_lossy(read).contains(text);
    while !said(&read, "\"start\"") {
        ensure!(stream.read_buf(&mut read).await? > 0, "{}", String::from_utf8_lossy(&read));
    }
    e2b.expect(204, "DELETE", &format!("/sandboxes/{}", made.id), NOTHING).await?;
    // A reset is as good as an end.
    drop(stream.read_to_end(&mut read).await);
    ensure!(!read.ends_with(b"0\r\n\r\n"), "it ended cleanly: {}", String::from_utf8_lossy(&read));
    Ok(())
}

#[tokio::test]
async fn ports_answer_by_header_and_host_and_wake_what_may_be_woken() -> Result<()> {
    let e2b = E2b::start(true).await?;
    let wanted = json!({"templateID": "base", "timeout": 600, "autoPause": true, "autoResume": {"enabled": true}});
    let made = e2b.create(&wanted).await?;
    let serve = "cd /tmp && echo hello > index.html && python3 -m http.server 8000";
    e2b.sandbox(&made).await?.spawn(serve).await?;
    e2b.sandbox(&made).await?.becomes_true("curl -s localhost:8000 >/dev/null").await?;
    assert_eq!(e2b.port(&made, 8000, "/", &[]).await?.text().trim(), "hello");

    e2b.expect(204, "POST", &format!("/sandboxes/{}/pause", made.id), NOTHING).await?;
    let (_, own) = e2b.address()?.rsplit_once(':').context("no port")?;
    let host = format!("8000-{}.localhost:{own}", made.id);
    let answer = roost_e2e::raw_tcp(e2b.address()?, "GET", "/", &[("host", &host)], &[]).await?;
    assert_eq!((answer.status, answer.text().trim()), (200, "hello"), "a plain request resumes it");
    assert_eq!(e2b.info(&made).await?["state"], "running");

    let private = json!({"templateID": "base", "network": {"allowPublicTraffic": false}});
    let answer = e2b.expect(201, "POST", "/v2/sandboxes", &private).await?;
    let (made, traffic) = (Made::of(&answer)?, answer["trafficAccessToken"].as_str().context("no token")?.to_owned());
    assert_eq!(e2b.port(&made, 8000, "/", &[]).await?.status, 403);
    assert_eq!(e2b.port(&made, 8000, "/", &[("e2b-traffic-access-token", "e2b_wrong")]).await?.status, 403);
    let closed = e2b.port(&made, 8000, "/", &[("e2b-traffic-access-token", &traffic)]).await?;
    let open = "The sandbox is running but port is not open";
    assert_eq!((closed.status, &closed.json()?["message"]), (502, &open.into()));
    Ok(())
}
