//! Attacks through ports: a sandbox that wants the secrets of its visitors, and speaks for more than itself.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::ports::Served;
use roost_e2e::{Options, RawAnswer, raw_bytes_tcp, raw_bytes_unix};
use roost_model::{EngineKind, PortAccess};
use serde_json::json;

const PORT: u16 = 8000;
const PATH: &str = "/v1/sandboxes/web/ports/8000";

/// A sandbox whose public port shows what reaches it, and a visitor of the daemon's page.
struct Trap {
    served: Served,
    /// The login of the visitor's browser.
    session: String,
}

impl Trap {
    async fn set(engine: EngineKind) -> Result<Self> {
        let options = Options { tcp: true, base: true, engine: Some(engine), ..Options::default() };
        let served = Served::with(options).await?;
        served.sandbox.write("/home/user/mirror.py", include_str!("../workload/mirror.py")).await?;
        served.sandbox.spawn(&format!("python3 /home/user/mirror.py {PORT}")).await?;
        served.listening(PORT).await?;
        served.daemon.client().set_port("web", PORT, PortAccess::Public).await?;
        let login = json!({ "token": served.token }).to_string();
        let head = format!("POST /v1/session HTTP/1.1\r\nhost: {}\r\nx-roost-page: 1\r\n", served.address());
        let head = format!("{head}content-type: application/json\r\ncontent-length: {}\r\n", login.len());
        let answer =
            raw_bytes_tcp(served.address(), format!("{head}connection: close\r\n\r\n{login}").as_bytes()).await?;
        let cookie = answer.header("set-cookie").with_context(|| answer.text())?;
        let session =
            cookie.split(';').next().and_then(|pair| pair.strip_prefix("roost_session=")).context("no login")?;
        Ok(Self { session: session.to_owned(), served })
    }

    /// Sends a request to an address on this daemon, with these lines in its head.
    async fn ask(&self, method: &str, host: &str, path: &str, lines: &[&[u8]]) -> Result<RawAnswer> {
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
        for line in lines {
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        raw_bytes_tcp(self.served.address(), &bytes).await
    }

    /// The head that reached the sandbox, by host name and by path.
    async fn seen(&self, lines: &[&[u8]], query: &str) -> Result<Vec<Vec<u8>>> {
        let by_host = self.ask("GET", &self.served.host(PORT), &format!("/{query}"), lines).await?;
        let by_path = self.ask("GET", self.served.address(), &format!("{PATH}/{query}"), lines).await?;
        [by_host, by_path].into_iter().map(|answer| unhex(&answer)).collect()
    }

    /// What the sandbox said with these headers, as it reaches a client by path or by host name.
    async fn said(&self, by_path: bool, headers: &[u8]) -> Result<Vec<(String, String)>> {
        let said: String = headers.iter().map(|byte| format!("{byte:02x}")).collect();
        let (host, prefix) =
            if by_path { (self.served.address().to_owned(), PATH) } else { (self.served.host(PORT), "") };
        let answer = self.ask("GET", &host, &format!("{prefix}/?{said}"), &[b"connection: close"]).await?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(answer.headers)
    }
}

fn unhex(answer: &RawAnswer) -> Result<Vec<u8>> {
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    let digits = answer.text();
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2).unwrap_or_default(), 16);
    Ok((0..digits.len()).step_by(2).map(byte).collect::<Result<_, _>>()?)
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn sandbox_sees_no_secret_of_its_visitors(engine: EngineKind) -> Result<()> {
    let trap = Trap::set(engine).await?;
    let (token, session) = (&trap.served.token, &trap.session);
    let key = token.strip_prefix("rst_").context("a token starts differently")?;
    let proof = trap.served.daemon.client().link_port("web", PORT, "1h".parse()?).await?.path;
    let proof = proof.rsplit_once('=').context("a link has no proof")?.1.to_owned();
    let line = |before: &[u8], text: &str| [before, text.as_bytes()].concat();
    let planted: Vec<Vec<u8>> = vec![
        line(b"cookie: x=\xe9; roost_session=", session),
        line(b"cookie: a=1;\troost_session\t= ", session),
        line(b"cookie: \xff\xfe=\xe9;roost_port=", &format!("{proof};__Host-roost_session={session}")),
        line(b"cookie: theme=dark; copy=\xe9", token),
        line(b"cookie: =", session),
        line(b"authorization: Basic dXNlcjpwYXNz\r\nauthorization: Bearer ", token),
        line(b"authorization: Bearer\t", token),
        line(b"authorization: bearer   ", token),
        line(b"authorization: Token \xe9", token),
        line(b"proxy-authorization: Bearer ", token),
        line(b"x-api-key: ", token),
        line(b"x-access-token: e2b_", key),
        line(b"x-roost-token: ", token),
        line(b"x-any-name: before,\xe9\t", &format!("{session}, after")),
        line(b"e2b-traffic-access-token: e2b_", key),
        line(b"referer: http://x/?roost_link=", &proof),
        line(b"connection: close, upgrade\r\nupgrade: websocket\r\nsec-websocket-protocol: chat, ", token),
    ];
    let everything: Vec<&[u8]> = planted.iter().map(Vec::as_slice).collect();
    let query = format!("?&t={token}&u={session}");
    for lines in everything.iter().map(std::slice::from_ref).chain([everything.as_slice()]) {
        let mut lines = lines.to_vec();
        // Each answer ends its connection; a request for an upgrade asks for that itself.
        if !lines.iter().any(|line| line.starts_with(b"connection")) {
            lines.push(b"connection: close");
        }
        for query in ["", query.as_str()] {
            for seen in trap.seen(&lines, query).await? {
                let shown = String::from_utf8_lossy(&seen).into_owned();
                for secret in [key, session.as_str()] {
                    ensure!(!contains(&seen, secret), "the sandbox sees {secret}: {shown}");
                }
                ensure!(!contains(&seen, "roost_port="), "{shown}");
            }
        }
    }
    // The application's own data arrives as it was sent.
    for seen in trap.seen(&[&everything[..], &[b"x-own: rst_mine"]].concat(), "?&x=rst_mine").await? {
        let shown = String::from_utf8_lossy(&seen).into_owned();
        for own in ["a=1", "theme=dark", "Basic dXNlcjpwYXNz", "chat", "x-own: rst_mine", "x=rst_mine"] {
            ensure!(contains(&seen, own), "`{own}` is missing: {shown}");
        }
        ensure!(seen.windows(3).any(|window| window == b"x=\xe9"), "{shown}");
    }
    Ok(())
}

#[tokio::test]
async fn sandbox_on_native_sees_no_secret_of_its_visitors() -> Result<()> {
    sandbox_sees_no_secret_of_its_visitors(EngineKind::Native).await
}

#[tokio::test]
async fn sandbox_on_gvisor_sees_no_secret_of_its_visitors() -> Result<()> {
    sandbox_sees_no_secret_of_its_visitors(EngineKind::Gvisor).await
}

#[tokio::test]
async fn sandbox_speaks_for_its_own_port_only() -> Result<()> {
    let trap = Trap::set(EngineKind::Native).await?;
    let cookies: &[u8] = b"Set-Cookie: =roost_session=evil\r\nSet-Cookie: roost_session=evil; Path=/\r\n\
        Set-Cookie: x=\xe9; Path=/; Domain=localhost\r\nSet-Cookie: __Secure-roost_session=1; Secure; Path=/\r\n\
        Set-Cookie: big=1; PATH = /app\r\n";
    let told = b"Clear-Site-Data: \"*\"\r\nNEL: {}\r\nReport-To: {}\r\nStrict-Transport-Security: max-age=9\r\n\
        Service-Worker-Allowed: /\r\nAlt-Svc: h3=\":1\"\r\nX-Roost-Error: internal\r\nX-Own: 1\r\n";
    let headers = [cookies, told].concat();
    let set = |answer: &[(String, String)]| {
        let cookies = answer.iter().filter(|(name, _)| name == "set-cookie").map(|(_, value)| value.clone());
        cookies.collect::<Vec<_>>()
    };
    let has = |answer: &[(String, String)], name: &str| answer.iter().any(|(found, _)| found == name);

    let by_path = trap.said(true, &headers).await?;
    assert_eq!(set(&by_path), [format!("x=\u{fffd}; Path={PATH}/"), format!("big=1; Path={PATH}/app")]);
    for name in
        ["clear-site-data", "nel", "report-to", "strict-transport-security", "service-worker-allowed", "alt-svc"]
    {
        ensure!(!has(&by_path, name), "{name}: {by_path:?}");
    }
    ensure!(has(&by_path, "x-own") && !has(&by_path, "x-roost-error"), "{by_path:?}");

    let by_host = trap.said(false, &headers).await?;
    ensure!(set(&by_host).contains(&"x=\u{fffd}; Path=/".to_owned()), "{by_host:?}");
    ensure!(has(&by_host, "clear-site-data") && !has(&by_host, "x-roost-error"), "{by_host:?}");
    Ok(())
}

#[tokio::test]
async fn cookie_that_is_no_text_does_not_log_the_page_out() -> Result<()> {
    let trap = Trap::set(EngineKind::Native).await?;
    let cookie = [b"cookie: x=\xe9; roost_session=", trap.session.as_bytes()].concat();
    let lines = [cookie.as_slice(), b"connection: close"];
    let listed = trap.ask("GET", trap.served.address(), "/v1/sandboxes", &lines).await?;
    ensure!(listed.status == 200, "{}: {}", listed.status, listed.text());
    Ok(())
}

#[tokio::test]
async fn request_with_two_readings_is_refused_everywhere() -> Result<()> {
    let trap = Trap::set(EngineKind::Native).await?;
    let (own, port) = (trap.served.address().to_owned(), trap.served.host(PORT));
    for (host, path) in [(&own, "/v1/sandboxes"), (&own, "/"), (&own, PATH), (&port, "/"), (&own, "/sandboxes")] {
        for lines in [
            format!("host: {host}\r\nhost: {host}\r\ncontent-length: 5\r\n"),
            format!("host: {own}\r\nhost: {port}\r\ncontent-length: 5\r\n"),
            format!("host: {host}\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n"),
            format!("host: {host}\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n"),
        ] {
            let request = format!("POST {path} HTTP/1.1\r\n{lines}\r\n0\r\n\r\n");
            let by_tcp = raw_bytes_tcp(&own, request.as_bytes()).await?;
            let by_socket = raw_bytes_unix(&trap.served.daemon.socket(), request.as_bytes()).await?;
            for answer in [by_tcp, by_socket] {
                assert_eq!(
                    (answer.status, &answer.json()?["error"]["code"]),
                    (400, &"bad_request".into()),
                    "{request}"
                );
            }
        }
    }
    Ok(())
}
