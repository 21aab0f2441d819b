//! Servers in sandboxes, reached from outside: by host name, by path, by links, by tunnels.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_e2e::ports::{BLOCK, Served, block};
use roost_e2e::{RawAnswer, peak_memory, raw_tcp, raw_unix, reset_peak_memory};
use roost_model::{ErrorCode, Level, PortAccess, Span};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(60);

/// Reads the head of an answer, without its last empty line.
async fn head(stream: &mut BufReader<TcpStream>) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        ensure!(stream.read_line(&mut line).await? > 0, "hung up after {lines:?}");
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            return Ok(lines);
        }
        lines.push(line);
    }
}

fn code_of(answer: &RawAnswer) -> Result<(u16, ErrorCode)> {
    let body: roost_model::ErrorBody = serde_json::from_slice(&answer.body).context("no error")?;
    assert_eq!(answer.header("x-roost-error"), Some(body.error.code.as_str()));
    Ok((answer.status, body.error.code))
}

#[tokio::test]
async fn requests_pass_by_host_and_by_path_and_nothing_of_ours_with_them() -> Result<()> {
    let served = Served::with_servers().await?;
    let token = format!("Bearer {}", served.token);
    for port in [3000, 4000] {
        assert_eq!(served.get(port, "/").await?.text(), "hello");
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
            let headers = [
                ("authorization", token.as_str()),
                ("cookie", "a=1; roost_port=5-x; b=2"),
                ("x-roost-token", "rst_no"),
                ("connection", "x-hop"),
                ("x-hop", "1"),
                ("x-app", "kept"),
            ];
            let answer = served.ask(method, port, "/echo?x=%2F&y", &headers, b"body").await?;
            ensure!(answer.status == 200, "{method}: {}", answer.text());
            ensure!(
                answer.header("x-own") == Some("1") && answer.header("keep-alive").is_none(),
                "{:?}",
                answer.headers
            );
            let heard = answer.json()?;
            assert_eq!((heard["method"].as_str(), heard["path"].as_str()), (Some(method), Some("/echo?x=%2F&y")));
            assert_eq!(heard["body"], "body");
            let got = &heard["headers"];
            assert_eq!((&got["host"], &got["cookie"]), (&served.host(port).into(), &"a=1; b=2".into()));
            assert_eq!((&got["x-forwarded-for"], &got["x-forwarded-proto"]), (&"127.0.0.1".into(), &"http".into()));
            assert_eq!((&got["x-forwarded-host"], &got["x-app"]), (&served.host(port).into(), &"kept".into()));
            ensure!(!answer.text().contains("rst_") && !answer.text().contains("x-hop"), "{}", answer.text());
        }
        // By path, over TCP with a token and as the owner of the socket.
        let path = format!("/v1/sandboxes/web/ports/{port}/echo?x");
        let tcp = raw_tcp(served.address(), "POST", &path, &[("authorization", &token)], b"body").await?;
        let unix = raw_unix(&served.daemon.socket(), "POST", &path, &[], b"body").await?;
        for answer in [tcp, unix] {
            let heard = answer.json().with_context(|| answer.text())?;
            assert_eq!((&heard["path"], &heard["body"]), (&"/echo?x".into(), &"body".into()));
            assert_eq!(heard["headers"]["x-forwarded-prefix"], format!("/v1/sandboxes/web/ports/{port}"));
            assert_eq!(heard["headers"]["authorization"], serde_json::Value::Null);
        }
        let id = served.sandbox.id();
        let by_id = raw_tcp(
            served.address(),
            "GET",
            "/",
            &[("host", &format!("{port}-{id}.localhost")), ("x-roost-token", &served.token)],
            &[],
        )
        .await?;
        assert_eq!(by_id.text(), "hello");
    }
    // The daemon's own routes are not the sandbox's, and the other way round.
    assert_eq!(served.get(3000, "/healthz").await?.status, 404);
    assert_eq!(raw_tcp(served.address(), "GET", "/healthz", &[], &[]).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn one_connection_carries_many_requests_of_every_form() -> Result<()> {
    let served = Served::with_servers().await?;
    let mut stream = BufReader::new(TcpStream::connect(served.address()).await?);
    let common = format!("host: {}\r\nx-roost-token: {}\r\n", served.host(3000), served.token);
    for _ in 0..3 {
        stream.write_all(format!("HEAD /hello HTTP/1.1\r\n{common}\r\n").as_bytes()).await?;
        let answer = head(&mut stream).await?;
        ensure!(answer[0].contains("200") && answer.contains(&"content-length: 5".to_owned()), "{answer:?}");
        // The client waits with its body until it is told to go on.
        let ask = format!("POST /echo HTTP/1.1\r\n{common}expect: 100-continue\r\ncontent-length: 3\r\n\r\n");
        stream.write_all(ask.as_bytes()).await?;
        ensure!(head(&mut stream).await?[0].contains("100"), "not told to go on");
        stream.write_all(b"abc").await?;
        let answer = head(&mut stream).await?;
        let length = answer.iter().find_map(|line| line.strip_prefix("content-length: ")).context("no length")?;
        let mut body = vec![0; length.parse()?];
        stream.read_exact(&mut body).await?;
        ensure!(String::from_utf8_lossy(&body).contains("\"body\": \"abc\""), "{body:?}");
        // A body of unknown length, and an answer with trailers.
        let ask =
            format!("POST /echo HTTP/1.1\r\n{common}transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");
        stream.write_all(ask.as_bytes()).await?;
        let answer = head(&mut stream).await?;
        let length = answer.iter().find_map(|line| line.strip_prefix("content-length: ")).context("no length")?;
        let mut body = vec![0; length.parse()?];
        stream.read_exact(&mut body).await?;
        ensure!(String::from_utf8_lossy(&body).contains("\"body\": \"abc\""), "{body:?}");
        stream.write_all(format!("GET /trailers HTTP/1.1\r\n{common}te: trailers\r\n\r\n").as_bytes()).await?;
        let answer = head(&mut stream).await?;
        ensure!(answer.contains(&"transfer-encoding: chunked".to_owned()), "{answer:?}");
        let rest = head(&mut stream).await?;
        assert_eq!(rest, ["3", "abc", "0", "x-sum: 6"]);
    }
    Ok(())
}

#[tokio::test]
async fn private_ports_take_a_token_or_a_link_and_public_ones_nothing() -> Result<()> {
    let served = Served::with_servers().await?;
    let client = served.daemon.client();
    let bare = |port: u16, path: &'static str, headers: Vec<(&'static str, String)>| {
        let served = &served;
        async move {
            let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            served.ask("GET", port, path, &headers, &[]).await
        }
    };
    let refused = bare(3000, "/", vec![]).await?;
    assert_eq!(code_of(&refused)?, (401, ErrorCode::Unauthorized));
    assert_eq!(code_of(&bare(3000, "/", vec![("x-roost-token", "rst_wrong".into())]).await?)?.0, 401);
    assert_eq!(bare(3000, "/", vec![("authorization", format!("Bearer {}", served.token))]).await?.status, 200);
    // Nobody without access wakes it.
    served.sandbox.suspend(Level::Ram).await?;
    assert_eq!(bare(3000, "/", vec![]).await?.status, 401);
    assert_eq!(client.sandbox("web").await?.level, Some(Level::Ram));
    // A browser gets a page.
    let page = bare(3000, "/", vec![("accept", "text/html,*/*".into())]).await?;
    ensure!(page.status == 401 && page.text().contains("<h1>port 3000 is private"), "{}", page.text());

    // A link becomes a cookie for this port alone.
    let url = served.daemon.roost_ok(&["open", "web", "3000", "--link", "1h", "-q"]).await?;
    let (start, proof) = url.trim().split_once("/?").context("no proof")?;
    assert_eq!(start, format!("http://{}", served.host(3000)));
    let visit = served.ask("GET", 3000, &format!("/echo?a=1&{proof}"), &[], &[]).await?;
    assert_eq!((visit.status, visit.header("location")), (303, Some("/echo?a=1")));
    let cookie = visit.header("set-cookie").context("no cookie")?;
    ensure!(cookie.contains("HttpOnly") && cookie.contains("Path=/;") && cookie.contains("SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().context("no pair")?.to_owned();
    let heard = bare(3000, "/echo?a=1", vec![("cookie", format!("x=1; {cookie}"))]).await?.json()?;
    assert_eq!((&heard["headers"]["cookie"], &heard["path"]), (&"x=1".into(), &"/echo?a=1".into()));
    assert_eq!(bare(4000, "/", vec![("cookie", cookie.clone())]).await?.status, 401);
    // A program that sends something is let in at once; the proof stays here.
    let posted = served.ask("POST", 3000, &format!("/echo?{proof}"), &[], b"x").await?;
    assert_eq!((posted.status, &posted.json()?["path"]), (200, &"/echo".into()));
    // By path too.
    let link = client.link_port("web", 3000, Span::seconds(60)).await?;
    let visit = raw_tcp(served.address(), "GET", &link.path, &[], &[]).await?;
    let there = visit.header("location").context("no location")?;
    let cookie_there = visit.header("set-cookie").context("no cookie")?.to_owned();
    ensure!(cookie_there.contains("Path=/v1/sandboxes/web/ports/3000;"), "{cookie_there}");
    let pair = cookie_there.split(';').next().context("no pair")?;
    assert_eq!(raw_tcp(served.address(), "GET", there, &[("cookie", pair)], &[]).await?.text(), "hello");

    // Forged, for another port, expired.
    let forged = served.ask("GET", 3000, &format!("/?{}0", &proof[..proof.len() - 1]), &[], &[]).await?;
    let other = served.ask("GET", 4000, &format!("/?{proof}"), &[], &[]).await?;
    for answer in [forged, other] {
        assert_eq!(code_of(&answer)?, (403, ErrorCode::Forbidden));
        ensure!(answer.text().contains("not valid"), "{}", answer.text());
    }
    let short = client.link_port("web", 3000, Span::seconds(1)).await?.url.context("no url")?;
    let (_, short) = short.split_once("/?").context("no proof")?;
    let deadline = Instant::now() + PATIENCE;
    let expired = loop {
        let answer = served.ask("GET", 3000, &format!("/?{short}"), &[], &[]).await?;
        if answer.status != 303 {
            break answer;
        }
        ensure!(Instant::now() < deadline, "the link never expires");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(code_of(&expired)?, (403, ErrorCode::Forbidden));
    ensure!(expired.text().contains("expired"), "{}", expired.text());
    for length in [Span::seconds(0), Span::NEVER] {
        let refused = client.link_port("web", 3000, length).await.unwrap_err();
        assert_eq!(refused.code(), Some(ErrorCode::BadRequest));
    }

    // Public, and private again: old links and cookies are worthless.
    served.daemon.roost_ok(&["open", "web", "3000", "--public"]).await?;
    assert_eq!(bare(3000, "/", vec![]).await?.text(), "hello");
    let heard = bare(3000, "/echo", vec![("authorization", format!("Bearer {}", served.token))]).await?;
    ensure!(!heard.text().contains("rst_"), "a token reached a public port");
    assert_eq!(bare(4000, "/", vec![]).await?.status, 401);
    let view = client.sandbox("web").await?;
    let port = view.ports.iter().find(|port| port.port == 3000).context("the view does not list it")?;
    assert_eq!((port.access, port.url.as_deref()), (PortAccess::Public, Some(start)));
    served.daemon.roost_ok(&["open", "web", "3000", "--private"]).await?;
    assert_eq!(bare(3000, "/", vec![]).await?.status, 401);
    assert_eq!(bare(3000, "/", vec![("cookie", cookie)]).await?.status, 401);
    assert_eq!(served.ask("GET", 3000, &format!("/?{proof}"), &[], &[]).await?.status, 403);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_reached_says_why() -> Result<()> {
    let served = Served::with_servers().await?;
    let token = served.token.as_str();
    let closed = served.get(9999, "/").await?;
    // It has just started: something might have come to listen.
    assert_eq!(code_of(&closed)?, (502, ErrorCode::PortClosed));
    let text = closed.text();
    ensure!(text.contains("nothing listens on port 9999 in sandbox `web`") && text.contains("3000, 4000"), "{text}");
    // One that wakes with its memory has what it had.
    served.sandbox.suspend(Level::Ram).await?;
    let since = Instant::now();
    assert_eq!(code_of(&served.get(9999, "/").await?)?, (502, ErrorCode::PortClosed));
    ensure!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    served.sandbox.spawn("python3 -c 'import socket; s = socket.create_server((\"\", 7000)); \nwhile 1:\n c = s.accept()[0]; c.sendall(b\"220 mail\\n\")\n try: c.recv(9999)\n except OSError: pass'").await?;
    served.sandbox.becomes_true("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 7000))'").await?;
    // Its words may come before ours or after.
    for _ in 0..200 {
        let odd = served.get(7000, "/").await?;
        ensure!(code_of(&odd)?.0 == 502 && odd.text().contains("does not speak HTTP"), "{}", odd.text());
    }
    served.sandbox.spawn("python3 -c 'import socket; s = socket.create_server((\"\", 7001)); \nwhile 1: c = s.accept()[0]; c.recv(9999); c.sendall(b\"HTTP/1.1 200 OK\\r\\ncontent-length: 9\\r\\n\\r\\n\"); c.close()'").await?;
    served.sandbox.becomes_true("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 7001))'").await?;
    let half = served.get(7001, "/").await?;
    ensure!(code_of(&half)?.0 == 502 && half.text().contains("hung up before it had answered"), "{}", half.text());

    let (_, own) = served.address().rsplit_once(':').context("no port")?;
    let at = |label: &str| format!("{label}.localhost:{own}");
    served.daemon.sandbox("gone").await?.delete().await?;
    for (label, status, code, said) in [
        ("3000-wbe", 404, ErrorCode::SandboxNotFound, "did you mean `web`?"),
        ("3000-gone", 410, ErrorCode::SandboxTerminated, "gone"),
        ("0-web", 400, ErrorCode::BadRequest, "1 to 65535"),
        ("65536-web", 400, ErrorCode::BadRequest, "1 to 65535"),
        ("14-web", 400, ErrorCode::BadRequest, "Roost's own"),
    ] {
        let answer =
            raw_tcp(served.address(), "GET", "/", &[("host", &at(label)), ("x-roost-token", token)], &[]).await?;
        assert_eq!(code_of(&answer)?, (status, code), "{label}");
        ensure!(answer.text().contains(said), "{label}: {}", answer.text());
    }
    // A stranger is not told what there is.
    let stranger = raw_tcp(served.address(), "GET", "/", &[("host", &at("3000-wbe"))], &[]).await?;
    ensure!(stranger.status == 404 && !stranger.text().contains("`web`"), "{}", stranger.text());
    Ok(())
}

#[tokio::test]
async fn a_sandbox_that_has_just_started_is_given_time_to_listen() -> Result<()> {
    let served = Served::start().await?;
    let early = served.get(3000, "/");
    let start = served.sandbox.spawn("python3 /home/user/ports.py 3000 127.0.0.1");
    let (early, started) = tokio::join!(early, start);
    started?;
    assert_eq!(early?.text(), "hello");
    Ok(())
}

#[tokio::test]
async fn upgrades_and_events_flow_both_ways_at_once() -> Result<()> {
    let served = Served::with_servers().await?;
    for port in [3000, 4000] {
        let common = format!("host: {}\r\nx-roost-token: {}\r\n", served.host(port), served.token);
        // A WebSocket: a masked frame goes there, the same comes back without a mask.
        let mut socket = BufReader::new(TcpStream::connect(served.address()).await?);
        let ask = format!(
            "GET /upgrade HTTP/1.1\r\n{common}connection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        socket.write_all(ask.as_bytes()).await?;
        let answer = head(&mut socket).await?;
        ensure!(answer[0].contains("101"), "{answer:?}");
        ensure!(answer.contains(&"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=".to_owned()), "{answer:?}");
        for round in 0..20u8 {
            let text = [b'a' + round; 100];
            let mask = [1, 2, 3, round];
            let masked: Vec<u8> = text.iter().enumerate().map(|(index, byte)| byte ^ mask[index % 4]).collect();
            socket.write_all(&[[0x81, 0x80 | 100].as_slice(), &mask, &masked].concat()).await?;
            let mut frame = [0; 102];
            socket.read_exact(&mut frame).await?;
            assert_eq!((&frame[..2], &frame[2..]), ([0x81, 100].as_slice(), text.as_slice()));
            if round == 10 {
                // It may sleep under an idle socket; what is said next wakes it.
                served.sandbox.suspend(Level::Ram).await?;
            }
        }
        // Another protocol, and its end in one direction alone.
        let mut raw = BufReader::new(TcpStream::connect(served.address()).await?);
        let ask = format!("GET /upgrade HTTP/1.1\r\n{common}connection: Upgrade\r\nupgrade: shout\r\n\r\nearly ");
        raw.write_all(ask.as_bytes()).await?;
        let answer = head(&mut raw).await?;
        ensure!(answer[0].contains("101") && answer.contains(&"upgrade: shout".to_owned()), "{answer:?}");
        raw.write_all(b"late").await?;
        raw.get_mut().shutdown().await?;
        let mut said = String::new();
        raw.read_to_string(&mut said).await?;
        assert_eq!(said, "EARLY LATE");
        // Events come one by one, long before the answer has an end.
        let mut events = BufReader::new(TcpStream::connect(served.address()).await?);
        events.write_all(format!("GET /events HTTP/1.1\r\n{common}\r\n").as_bytes()).await?;
        let answer = head(&mut events).await?;
        ensure!(answer.contains(&"content-type: text/event-stream".to_owned()), "{answer:?}");
        let mut seen = 0;
        let wait = async {
            while seen < 10 {
                let mut line = String::new();
                ensure!(events.read_line(&mut line).await? > 0, "the events ended");
                seen += usize::from(line.starts_with("data: "));
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, wait).await.context("events are held back")??;
    }
    Ok(())
}

#[tokio::test]
async fn bodies_of_two_hundred_megabytes_pass_in_flat_memory() -> Result<()> {
    const BLOCKS: u64 = 200;
    let served = Served::with_servers().await?;
    let daemon = served.daemon.pid()?;
    for (port, chunked) in [(3000, false), (3000, true), (4000, false)] {
        reset_peak_memory(daemon)?;
        let before = peak_memory(daemon)?;
        let common = format!("host: {}\r\nx-roost-token: {}\r\n", served.host(port), served.token);
        let mut stream = BufReader::new(TcpStream::connect(served.address()).await?);
        let framing = if chunked {
            "transfer-encoding: chunked".to_owned()
        } else {
            format!("content-length: {}", BLOCKS * BLOCK as u64)
        };
        stream.write_all(format!("POST /check HTTP/1.1\r\n{common}{framing}\r\n\r\n").as_bytes()).await?;
        for number in 0..BLOCKS {
            if chunked {
                stream.write_all(format!("{BLOCK:x}\r\n").as_bytes()).await?;
            }
            stream.write_all(&block(number)).await?;
            if chunked {
                stream.write_all(b"\r\n").await?;
            }
        }
        if chunked {
            stream.write_all(b"0\r\n\r\n").await?;
        }
        let answer = head(&mut stream).await?;
        ensure!(answer[0].contains("200"), "{answer:?}");
        let expected = format!("{{\"blocks\": {BLOCKS}, \"right\": true}}");
        let mut text = vec![0; expected.len()];
        stream.read_exact(&mut text).await?;
        assert_eq!(String::from_utf8(text)?, expected);

        let query = if chunked { "&chunked" } else { "" };
        stream.write_all(format!("GET /blocks?n={BLOCKS}{query} HTTP/1.1\r\n{common}\r\n").as_bytes()).await?;
        let answer = head(&mut stream).await?;
        ensure!(answer[0].contains("200"), "{answer:?}");
        read_blocks(&mut stream, BLOCKS, chunked).await?;
        let grown = peak_memory(daemon)?.saturating_sub(before);
        ensure!(grown < 16 << 20, "the daemon grew by {grown} bytes");
    }
    Ok(())
}

/// Checks a body of blocks; chunks may have any size by now.
async fn read_blocks(stream: &mut BufReader<TcpStream>, count: u64, chunked: bool) -> Result<()> {
    let (mut got, mut number) = (Vec::with_capacity(2 * BLOCK), 0);
    while number < count {
        let size = if chunked {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            usize::from_str_radix(line.trim(), 16)?
        } else {
            BLOCK
        };
        let start = got.len();
        got.resize(start + size, 0);
        stream.read_exact(&mut got[start..]).await?;
        if chunked {
            stream.read_exact(&mut [0; 2]).await?;
        }
        while got.len() >= BLOCK {
            ensure!(got[..BLOCK] == block(number), "block {number} is not what was sent");
            got.drain(..BLOCK);
            number += 1;
        }
    }
    ensure!(got.is_empty(), "{} bytes too many", got.len());
    Ok(())
}
