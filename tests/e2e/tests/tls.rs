//! TLS, by the daemon itself and by a proxy in front of it, for everything that goes over HTTP.
#![forbid(unsafe_code)]

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{Client, EventsFilter, ExecEvent, Upload, WriteOptions};
use roost_e2e::ports::{BLOCK, Served, block};
use roost_e2e::tls::{Authority, DOMAIN};
use roost_e2e::{Daemon, Nginx, Options, raw_tcp, roost_binary};
use roost_model::{Span, StartExec};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCKS: usize = 32;

/// A daemon with a certificate of the authority's, a sandbox `web` and servers in it.
async fn served_by_tls(authority: &Authority, folder: &std::path::Path) -> Result<Served> {
    let (cert, key) = authority.issue_into(folder)?;
    let text = |path: std::path::PathBuf| path.display().to_string();
    let arguments = [
        vec!["--tls-cert".to_owned(), text(cert), "--tls-key".to_owned(), text(key)],
        vec!["--domain".to_owned(), format!("https://{DOMAIN}")],
    ];
    let options = Options { tcp: true, base: true, arguments: arguments.concat(), ..Options::default() };
    let served = Served::with(options).await?;
    served.serve(3000, "127.0.0.1").await?;
    Ok(served)
}

/// Everything a client does, over one address that speaks TLS.
async fn all_surfaces_work(authority: &Authority, address: &str, token: &str) -> Result<()> {
    let client = Client::trusting(&format!("https://{address}"), Some(token), Some(&authority.certificate()))?;

    // Events, and a terminal by WebSocket.
    let mut events = client.follow_events(&EventsFilter::default()).await?;
    let first = tokio::time::timeout(PATIENCE, events.next()).await??.context("no event")?;
    ensure!(first.id > 0, "{first:?}");
    let shell = Some("read line; echo \"<$line>\"".to_owned());
    let start = StartExec { shell, stdin: true, ..StartExec::default() };
    let mut session = client.open_exec("web", &start).await?;
    session.send_stdin(b"across\n").await?;
    let mut said = Vec::new();
    while let Some(event) = tokio::time::timeout(PATIENCE, session.next()).await?? {
        if let ExecEvent::Output { bytes, .. } = event {
            said.extend_from_slice(&bytes);
        }
    }
    assert_eq!(String::from_utf8_lossy(&said), "<across>\n");

    // An agent's line, as `roost mcp` asks for it.
    let (from_daemon, mut to_daemon) = tokio::io::split(client.connect_mcp().await?);
    to_daemon.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").await?;
    to_daemon.flush().await?;
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, BufReader::new(from_daemon).read_line(&mut answer)).await??;
    ensure!(answer.contains("\"id\":1") && answer.contains("\"result\""), "{answer}");

    // A large file there and back.
    let content: Vec<u8> = (0..BLOCKS as u64).flat_map(block).collect();
    let upload = Upload::bytes(content.clone());
    client.write_file("web", "/home/user/large", upload, &WriteOptions::default()).await?;
    let back = client.read_file("web", "/home/user/large").await?.bytes().await?;
    ensure!(back == content, "the file came back as another");

    // A port by its host name: who asks is told, bodies and upgrades pass.
    let host = format!("3000-web.{DOMAIN}");
    let link = client.link_port("web", 3000, Span::seconds(60)).await?.url.context("no link")?;
    let (_, query) = link.split_once('?').context("no proof")?;
    let (with_link, all_blocks) = (format!("/?{query}"), format!("/blocks?n={BLOCKS}"));
    let ask = |what, headers, body| authority.ask(address, &host, what, headers, body);
    let with_token = [("x-roost-token", token)];
    let told = ask(("GET", "/echo"), &with_token, b"").await?.json()?;
    let header = |name: &str| told["headers"][name].as_str().unwrap_or_default().to_owned();
    assert_eq!(header("x-forwarded-proto"), "https");
    assert_eq!(header("x-forwarded-host"), host);
    ensure!(header("x-forwarded-for").starts_with("127.0.0.1"), "{told}");
    ensure!(header("x-roost-token").is_empty(), "{told}");
    let checked = ask(("POST", "/check"), &with_token, &content).await?.json()?;
    assert_eq!(checked, serde_json::json!({"blocks": BLOCKS, "right": true}));
    let sent = ask(("GET", &all_blocks), &with_token, b"").await?;
    assert_eq!(sent.body.len(), BLOCKS * BLOCK);
    assert_eq!(ask(("GET", "/"), &[], b"").await?.status, 401);

    // A link becomes a cookie that is sent by TLS alone.
    ensure!(link.starts_with(&format!("https://{host}/")), "{link}");
    let visit = ask(("GET", &with_link), &[], b"").await?;
    let cookie = visit.header("set-cookie").context("no cookie")?;
    ensure!(cookie.contains("Secure") && cookie.contains("HttpOnly"), "{cookie}");

    // Anything that upgrades.
    let mut stream = authority.connect(address, &host).await?;
    let request = format!(
        "GET /upgrade HTTP/1.1\r\nhost: {host}\r\nx-roost-token: {token}\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        heard.push(tokio::time::timeout(PATIENCE, stream.read_u8()).await??);
    }
    ensure!(heard.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&heard));
    stream.write_all(b"abc").await?;
    stream.flush().await?;
    let mut answer = [0; 3];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await??;
    assert_eq!(&answer, b"ABC");

    // E2B's wire.
    let listed = authority.ask(address, "localhost", ("GET", "/v2/sandboxes"), &[("x-api-key", token)], b"").await?;
    ensure!(listed.status == 200 && listed.json()?.as_array().is_some_and(|all| !all.is_empty()), "{}", listed.text());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_speaks_tls_and_takes_a_new_certificate_up() -> Result<()> {
    let (authority, folder) = (Authority::new()?, tempfile::tempdir()?);
    let served = served_by_tls(&authority, folder.path()).await?;
    let (address, token) = (served.address().to_owned(), served.token.clone());
    all_surfaces_work(&authority, &address, &token).await?;

    // The command line, by variables and by flags.
    let url = format!("https://{address}");
    let cli = |ca: Option<&Authority>, arguments: &[&str]| {
        let mut command = served.daemon.roost(arguments);
        command.env_remove("ROOST_SOCKET").env("ROOST_URL", &url).env("ROOST_TOKEN", &token);
        command.envs(ca.map(|ca| ("ROOST_CA", ca.certificate())));
        command
    };
    let output = cli(Some(&authority), &["exec", "web", "--", "echo", "by TLS"]).output().await?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "by TLS\n");
    let certificate = authority.certificate().display().to_string();
    let output = cli(None, &["--ca", &certificate, "ls", "-q"]).output().await?;
    ensure!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
    let output = cli(None, &["ls"]).output().await?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(125) && words.contains("ROOST_CA"), "{words}");
    let output = cli(None, &["--ca", "/nowhere.pem", "ls"]).output().await?;
    ensure!(String::from_utf8_lossy(&output.stderr).contains("/nowhere.pem"), "{output:?}");

    // Whoever forgets the `s` is told.
    let plain = raw_tcp(&address, "GET", "/healthz", &[], &[]).await?;
    ensure!(plain.status == 400 && plain.text().contains("https://"), "{}", plain.text());

    // A renewed certificate is for new connections, one that makes no sense for none.
    let mut kept = authority.connect(&address, "localhost").await?;
    let renewed = Authority::new()?;
    fs::write(folder.path().join("cert.pem"), "no certificate")?;
    hang_up_on(&served.daemon)?;
    served.daemon.logs("kept the certificate as it was").await?;
    authority.ask(&address, "localhost", ("GET", "/healthz"), &[], b"").await?;
    renewed.issue_into(folder.path())?;
    hang_up_on(&served.daemon)?;
    let deadline = Instant::now() + PATIENCE;
    while renewed.connect(&address, "localhost").await.is_err() {
        ensure!(Instant::now() < deadline, "the new certificate was never served");
    }
    ensure!(authority.connect(&address, "localhost").await.is_err(), "the old certificate is still served");
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    kept.flush().await?;
    let mut answer = String::new();
    kept.read_to_string(&mut answer).await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

fn hang_up_on(daemon: &Daemon) -> Result<()> {
    ensure!(Command::new("kill").args(["-HUP", &daemon.pid()?.to_string()]).status()?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_behind_nginx_as_documented() -> Result<()> {
    let authority = Authority::new()?;
    let arguments = vec!["--domain".to_owned(), format!("https://{DOMAIN}")];
    let served = Served::with(Options { tcp: true, base: true, arguments, ..Options::default() }).await?;
    served.serve(3000, "127.0.0.1").await?;
    let nginx = Nginx::before(served.address(), &authority)?;
    all_surfaces_work(&authority, nginx.address(), &served.token).await
}

#[test]
fn a_certificate_that_cannot_be_served_is_told_before_anything_starts() -> Result<()> {
    let (authority, folder) = (Authority::new()?, tempfile::tempdir()?);
    let aside = folder.path().join("aside");
    fs::create_dir(&aside)?;
    let (cert, key) = authority.issue_into(folder.path())?;
    let (_, foreign_key) = authority.issue_into(&aside)?;
    let serve = |arguments: &[&std::path::Path]| -> Result<String> {
        let data = tempfile::tempdir_in("/var/tmp")?;
        let mut command = Command::new(roost_binary()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data.path());
        for (flag, path) in ["--tls-cert", "--tls-key"].iter().zip(arguments) {
            command.arg(flag).arg(path);
        }
        let output = command.output()?;
        ensure!(output.status.code() == Some(125), "{output:?}");
        ensure!(!data.path().join("roost.db").exists(), "something was started");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let words = serve(&[&cert])?;
    ensure!(words.contains("tls_key"), "{words}");
    let words = serve(&[&folder.path().join("none.pem"), &key])?;
    ensure!(words.contains("none.pem"), "{words}");
    let words = serve(&[&cert, &foreign_key])?;
    ensure!(words.contains("does not fit"), "{words}");
    Ok(())
}
