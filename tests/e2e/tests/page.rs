//! The page: who gets in, and everything it does, in a real browser.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Options, RawAnswer, raw_tcp};
use roost_model::Level;
use serde_json::{Value, json};

const PAGE: (&str, &str) = ("x-roost-page", "1");

async fn with_http() -> Result<Daemon> {
    Daemon::with(Options { tcp: true, ..Options::default() }).await
}

async fn ask(daemon: &Daemon, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Result<RawAnswer> {
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
    raw_tcp(daemon.address().context("the daemon has no address")?, method, path, headers, &body).await
}

fn code_of(link: &str) -> Result<&str> {
    Ok(link.split_once("#login=").context("the link has no code")?.1)
}

/// Logs in and returns what goes into `Cookie`.
async fn log_in(daemon: &Daemon, by: &Value) -> Result<String> {
    let answer = ask(daemon, "POST", "/v1/session", &[PAGE], by).await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    let cookie = answer.header("set-cookie").context("no cookie")?;
    ensure!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    Ok(cookie.split(';').next().unwrap_or_default().to_owned())
}

async fn status(daemon: &Daemon, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<u16> {
    Ok(ask(daemon, method, path, headers, &Value::Null).await?.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_logs_in_once_and_the_session_outlives_the_daemon() -> Result<()> {
    let mut daemon = with_http().await?;
    let link: Value = serde_json::from_str(&daemon.roost_ok(&["open", "--json"]).await?)?;
    let code = json!({ "code": code_of(link["path"].as_str().context("no path")?)? });
    let cookie = log_in(&daemon, &code).await?;
    let again = ask(&daemon, "POST", "/v1/session", &[PAGE], &code).await?;
    assert_eq!((again.status, again.json()?["error"]["code"].as_str()), (403, Some("forbidden")));
    assert_eq!(status(&daemon, "GET", "/v1/sandboxes", &[("cookie", &cookie)]).await?, 200);

    daemon.crash_and_restart().await?;
    assert_eq!(status(&daemon, "GET", "/v1/sandboxes", &[("cookie", &cookie)]).await?, 200);
    let out = ask(&daemon, "DELETE", "/v1/session", &[("cookie", &cookie), PAGE], &Value::Null).await?;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").context("no cookie")?.contains("Max-Age=0"));
    assert_eq!(status(&daemon, "GET", "/v1/sandboxes", &[("cookie", &cookie)]).await?, 401);

    // By the command line: the plain link, and a token's.
    let printed = daemon.roost_ok(&["open", "-q"]).await?;
    assert!(printed.trim().starts_with("http://localhost:"), "{printed}");
    let secret = daemon.client().mint_token("browser").await?;
    let cookie = log_in(&daemon, &json!({ "token": secret.secret })).await?;
    let who = ask(&daemon, "GET", "/v1/session", &[("cookie", &cookie)], &Value::Null).await?.json()?;
    assert_eq!((who["logged_in"].as_bool(), who["token"].as_str()), (Some(true), Some("browser")));
    // A link that is made with it is good for as much, and all of it ends with the token.
    let link = ask(&daemon, "POST", "/v1/logins", &[("cookie", &cookie), PAGE], &Value::Null).await?.json()?;
    let code = json!({ "code": code_of(link["path"].as_str().context("no path")?)? });
    let other = log_in(&daemon, &code).await?;
    daemon.client().revoke_token(secret.token.id.as_str()).await?;
    for cookie in [cookie, other] {
        assert_eq!(status(&daemon, "GET", "/v1/sandboxes", &[("cookie", &cookie)]).await?, 401);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_counts_only_with_our_own_page() -> Result<()> {
    let daemon = with_http().await?;
    let code = json!({ "code": code_of(&daemon.client().make_login().await?.path)? });
    let cookie = log_in(&daemon, &code).await?;
    let cookie = ("cookie", cookie.as_str());
    let own = "http://localhost";
    let other = "http://3000-web.localhost:7077";
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    daemon.sandbox("web").await?;

    for (method, path, headers, expected) in [
        ("POST", "/v1/sandboxes/web/wake", vec![], 403),
        ("POST", "/v1/sandboxes/web/wake", vec![("origin", own)], 403),
        ("POST", "/v1/sandboxes/web/wake", vec![("origin", other), PAGE], 403),
        ("POST", "/v1/sandboxes/web/wake", vec![("origin", own), PAGE], 200),
        ("GET", "/v1/sandboxes", vec![("origin", other)], 403),
        ("GET", "/v1/sandboxes", vec![("sec-fetch-site", "same-site")], 403),
        ("GET", "/v1/sandboxes", vec![("sec-fetch-site", "same-origin")], 200),
        ("GET", "/v1/sandboxes/web/execs/start", [&upgrade[..], &[key]].concat(), 403),
        ("GET", "/v1/sandboxes/web/execs/start", [&upgrade[..], &[key, ("origin", other)]].concat(), 403),
    ] {
        let headers = [&[cookie][..], &headers[..]].concat();
        assert_eq!(status(&daemon, method, path, &headers).await?, expected, "{method} {path} {headers:?}");
    }
    // To log somebody in who does not know of it is refused, too.
    let code = json!({ "code": code_of(&daemon.client().make_login().await?.path)? });
    assert_eq!(ask(&daemon, "POST", "/v1/session", &[("origin", other), PAGE], &code).await?.status, 403);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_protected_and_no_sandbox_gets_at_it() -> Result<()> {
    let daemon = with_http().await?;
    let page = ask(&daemon, "GET", "/", &[], &Value::Null).await?;
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").context("no policy")?;
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    // By the name of a port the same path is the sandbox's own.
    let port = ask(&daemon, "GET", "/", &[("host", "3000-web.localhost")], &Value::Null).await?;
    assert_ne!(port.status, 200);

    // What a sandbox serves below our own address is of nobody's origin, gets none of our cookies and sets none.
    let sandbox = daemon.sandbox("web").await?;
    let script = "#!/bin/sh\nprintf 'Content-Type: text/html\\r\\nSet-Cookie: roost_session=stolen; Path=/\\r\\n\\r\\n%s' \"$HTTP_COOKIE\"\n";
    sandbox.sh_ok("mkdir -p /tmp/srv/cgi-bin").await?;
    sandbox.write("/tmp/srv/cgi-bin/page", script).await?;
    sandbox.sh_ok("chmod 755 /tmp/srv/cgi-bin/page && httpd -p 3000 -h /tmp/srv").await?;
    let path = daemon.client().link_port("web", 3000, "1h".parse()?).await?.path;
    let proof = path.split_once("roost_link=").context("no proof")?.1.to_owned();
    let cookies = format!("roost_session=rss_secret; roost_port={proof}; theirs=1");
    let answer =
        ask(&daemon, "GET", "/v1/sandboxes/web/ports/3000/cgi-bin/page", &[("cookie", &cookies)], &Value::Null).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("content-security-policy").is_some_and(|policy| policy.starts_with("sandbox ")));
    assert_eq!(answer.header("set-cookie"), None);
    let heard = answer.text();
    assert!(heard.contains("theirs=1") && !heard.contains("rss_secret"), "{heard}");
    Ok(())
}

/// Where the page's sources, its tests and their packages are.
fn web() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    ensure!(
        folder.join("node_modules/playwright-core").is_dir(),
        "the packages of the page are missing: run scripts/web"
    );
    Ok(folder)
}

/// Pictures of a run are kept, for people to look at.
fn shots() -> Result<PathBuf> {
    let test = std::env::current_exe().context("failed to find the test's own binary")?;
    Ok(test.ancestors().nth(3).context("the test's binary is in no target folder")?.join("page-shots"))
}

/// Runs a script of the page's own, and returns what it printed.
async fn in_browser(daemon: &Daemon, script: &str, more: &[(&str, &String)]) -> Result<String> {
    let web = web()?;
    let output = tokio::process::Command::new("node")
        .arg(web.join("e2e").join(script))
        .env("ROOST_BIN", daemon.binary())
        .env("ROOST_SOCKET", daemon.socket())
        .env("ROOST_PAGE_SHOTS", shots()?)
        .envs(more.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("failed to run node")?;
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("{told}{errors}");
    ensure!(output.status.success(), "{script} ended with {}", output.status);
    Ok(told.into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_done_in_a_browser_without_a_reload() -> Result<()> {
    in_browser(&with_http().await?, "page.mjs", &[]).await.map(drop)
}

/// With `ROOST_E2E_FULL` 500 of them, and the daemon may spend no more than a hundredth of a processor on the page.
#[tokio::test(flavor = "multi_thread")]
async fn many_sandboxes_are_one_short_list() -> Result<()> {
    let full = std::env::var_os("ROOST_E2E_FULL").is_some();
    let (count, seconds) = if full { (500, 20) } else { (60, 1) };
    let daemon = with_http().await?;
    for number in 0..count {
        daemon.sandbox(&format!("box-{number}")).await?.suspend(Level::Ram).await?;
    }
    let (count, seconds, pid) = (count.to_string(), seconds.to_string(), daemon.pid()?.to_string());
    let more = [("ROOST_PAGE_COUNT", &count), ("ROOST_PAGE_SECONDS", &seconds), ("ROOST_PAGE_PID", &pid)];
    let told = in_browser(&daemon, "many.mjs", &more).await?;
    let figures: Value = serde_json::from_str(told.lines().last().context("no figures")?)?;
    if full {
        let cost = figures["cost_percent"].as_f64().context("no cost")?;
        ensure!(cost < 1.0, "an open page costs the daemon {cost} % of a processor");
    }
    Ok(())
}
