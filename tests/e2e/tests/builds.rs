//! Templates built step by step over E2B's wire, and images imported as templates.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use roost_e2e::{Daemon, RawAnswer, raw_unix};
use roost_model::{CreateSandbox, ErrorCode, State};
use serde_json::{Value, json};

/// As often as E2B's clients ask at most; more would take the time from what is asked for.
const ASK_EVERY: Duration = Duration::from_millis(50);

async fn ask(daemon: &Daemon, method: &str, path: &str, body: &Value) -> Result<RawAnswer> {
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
    raw_unix(&daemon.socket(), method, path, &[("content-type", "application/json")], &body).await
}

/// Asks for a build and starts it; returns the path of its status.
async fn begin(daemon: &Daemon, name: &str, plan: &Value) -> Result<String> {
    let asked = ask(daemon, "POST", "/v3/templates", &json!({"name": name})).await?;
    ensure!(asked.status == 202, "{}", asked.text());
    let asked = asked.json()?;
    let (template, build) = (asked["templateID"].as_str().unwrap_or(""), asked["buildID"].as_str().unwrap_or(""));
    let started = ask(daemon, "POST", &format!("/v2/templates/{template}/builds/{build}"), plan).await?;
    ensure!(started.status == 202, "{}", started.text());
    Ok(format!("/templates/{template}/builds/{build}/status"))
}

/// What became of a build, with all lines of its log.
async fn outcome(daemon: &Daemon, status: &str) -> Result<(Value, String)> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut lines, mut log) = (0, String::new());
    loop {
        let told = ask(daemon, "GET", &format!("{status}?logsOffset={lines}"), &Value::Null).await?.json()?;
        let entries = told["logEntries"].as_array().context("no log")?;
        lines += entries.len();
        for entry in entries {
            log = format!(
                "{log}{}: {}\n",
                entry["step"].as_str().unwrap_or("?"),
                entry["message"].as_str().unwrap_or("")
            );
        }
        if entries.is_empty() && ["ready", "error"].contains(&told["status"].as_str().unwrap_or("")) {
            return Ok((told, log));
        }
        ensure!(Instant::now() < deadline, "it does not end: {log}");
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn built(daemon: &Daemon, name: &str, plan: &Value) -> Result<String> {
    let status = begin(daemon, name, plan).await?;
    let (told, log) = outcome(daemon, &status).await?;
    ensure!(told["status"] == "ready", "{told}\n{log}");
    Ok(log)
}

fn run(command: &str) -> Value {
    json!({"type": "RUN", "args": [command]})
}

fn archive_of(files: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        archive.append_data(&mut header, name, *bytes)?;
    }
    Ok(archive.into_inner()?)
}

/// Hands files in under a hash.
async fn upload(daemon: &Daemon, hash: &str, files: &[(&str, &[u8])]) -> Result<()> {
    let archive = archive_of(files)?;
    let link = ask(daemon, "GET", &format!("/templates/app/files/{hash}"), &Value::Null).await?;
    ensure!(link.status == 201 && link.json()?["present"] == false, "{}", link.text());
    let url = link.json()?["url"].as_str().context("no url")?.to_owned();
    let path = url.strip_prefix("http://localhost").context("another host")?;
    let forged = path.replace(hash, &"e".repeat(64));
    ensure!(raw_unix(&daemon.socket(), "PUT", &forged, &[], &archive).await?.status == 403, "{forged}");
    ensure!(raw_unix(&daemon.socket(), "PUT", path, &[], &archive).await?.status == 200, "{path}");
    let link = ask(daemon, "GET", &format!("/templates/app/files/{hash}"), &Value::Null).await?;
    ensure!(link.json()?["present"] == true, "{}", link.text());
    Ok(())
}

async fn no_sandboxes(daemon: &Daemon) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let left = daemon.client().list_sandboxes(&roost_client::SandboxFilter::default()).await?.items;
        if left.iter().all(|view| view.state == State::Terminated) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "left behind: {left:?}");
        tokio::time::sleep(ASK_EVERY).await;
    }
}

#[tokio::test]
async fn steps_make_a_template_and_are_not_done_twice() -> Result<()> {
    let daemon = Daemon::start().await?;
    let hash = "ab".repeat(32);
    upload(&daemon, &hash, &[("src/main.txt", b"hello"), ("src/deep/er.txt", b"deep")]).await?;
    let steps = json!([
        run("echo $RANDOM$RANDOM > /number; echo said; echo complained >&2"),
        {"type": "COPY", "args": ["src", "/app/", "user", "0640"], "filesHash": hash},
        {"type": "ENV", "args": ["WHO", "world", "GREETING", "hello $PATH"]},
        {"type": "USER", "args": ["user"]},
        {"type": "WORKDIR", "args": ["/app/work"]},
        run("id -un; pwd; echo $WHO > made"),
    ]);
    let plan = json!({"fromTemplate": "mini", "steps": steps});
    let log = built(&daemon, "app", &plan).await?;
    for line in ["1: said", "1: complained", "6: user", "6: /app/work"] {
        ensure!(log.lines().any(|told| told == line), "no `{line}` in\n{log}");
    }
    no_sandboxes(&daemon).await?;
    let sandbox = daemon.sandbox_of("app", "one").await?;
    assert_eq!(
        sandbox.sh_ok("id -un; pwd; echo $WHO; cat made; echo $GREETING").await?,
        "user\n/app/work\nworld\nworld\nhello /usr/bin"
    );
    assert_eq!(sandbox.sh_ok("cd ..; cat main.txt deep/er.txt; stat -c '%U %a' main.txt").await?, "hellodeepuser 640");
    let number = sandbox.sh_ok("cat /number").await?;

    let again = built(&daemon, "app:v2", &plan).await?;
    ensure!(again.contains("[6/6] CACHED") && !again.contains("said\n"), "{again}");
    assert_eq!(daemon.sandbox_of("app:v2", "two").await?.sh_ok("cat /number").await?, number);
    let mut forced = plan.clone();
    forced["steps"][4]["force"] = true.into();
    let again = built(&daemon, "app:v3", &forced).await?;
    ensure!(again.contains("[4/6] CACHED") && again.contains("6: user\n"), "{again}");
    forced["force"] = true.into();
    built(&daemon, "app:v4", &forced).await?;
    assert_ne!(daemon.sandbox_of("app:v4", "four").await?.sh_ok("cat /number").await?, number);
    Ok(())
}

#[tokio::test]
async fn what_fails_says_where_and_leaves_nothing() -> Result<()> {
    let daemon = Daemon::start().await?;
    let missing = "cd".repeat(32);
    let copy = json!({"type": "COPY", "args": ["a", "/a"], "filesHash": missing});
    for (plan, step, why) in [
        (
            json!({"fromTemplate": "mini", "steps": [run("true"), run("echo why >&2; exit 3")]}),
            "2",
            "exit code 3:\nwhy",
        ),
        (json!({"fromTemplate": "mini", "steps": [copy]}), "1", "were not uploaded"),
        (json!({"fromTemplate": "none", "steps": []}), "base", "no template named `none`"),
        (json!({"fromImage": "python:3.11", "steps": []}), "base", "roost template import python:3.11"),
        (json!({"fromTemplate": "mini", "startCmd": "exit 4", "readyCmd": "false"}), "finalize", "exit code 4"),
        (
            json!({"fromTemplate": "mini", "steps": [{"type": "USER", "args": ["nobody-here"]}, run("true")]}),
            "2",
            "nobody-here",
        ),
    ] {
        let status = begin(&daemon, "broken", &plan).await?;
        let (told, log) = outcome(&daemon, &status).await?;
        ensure!(told["status"] == "error" && told["reason"]["step"] == step, "{told}\n{log}");
        ensure!(told["reason"]["message"].as_str().unwrap_or("").contains(why), "{told}");
    }
    no_sandboxes(&daemon).await?;
    assert_eq!(ask(&daemon, "GET", "/templates/aliases/broken", &Value::Null).await?.status, 404);
    let refused = begin(&daemon, "broken", &json!({"fromTemplate": "mini", "steps": [{"type": "ADD"}]})).await;
    ensure!(refused.is_err_and(|error| format!("{error:#}").contains("step 1 (ADD)")));
    Ok(())
}

#[tokio::test]
async fn what_is_started_runs_on_in_every_sandbox() -> Result<()> {
    let daemon = Daemon::start().await?;
    let plan = json!({
        "fromTemplate": "mini",
        "steps": [{"type": "ENV", "args": ["WHO", "template"]}, run("echo page > /index.html")],
        "startCmd": "echo $$ > /tmp/pid; exec httpd -f -p 8000 -h /",
        "readyCmd": "wget -qO- 127.0.0.1:8000/index.html",
    });
    let log = built(&daemon, "warm", &plan).await?;
    ensure!(log.contains("with what runs in it"), "{log}");
    let mut pids = Vec::new();
    for name in ["one", "two"] {
        let request = CreateSandbox {
            name: Some(name.to_owned()),
            template: Some("warm".to_owned()),
            env: [("MINE".to_owned(), name.to_owned())].into(),
            ..CreateSandbox::default()
        };
        let sandbox = daemon.sandbox_with(request).await?;
        assert_eq!(sandbox.sh_ok("wget -qO- 127.0.0.1:8000/index.html").await?, "page");
        assert_eq!(sandbox.sh_ok("echo $WHO $MINE").await?, format!("template {name}"));
        pids.push(sandbox.sh_ok("cat /tmp/pid").await?);
    }
    assert_eq!(pids[0], pids[1], "it was not started anew");
    assert!(daemon.client().template("warm").await?.memory);
    Ok(())
}

#[tokio::test]
async fn a_build_that_a_daemon_did_not_finish_has_failed() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let steps = json!([run("echo first"), run("echo second; sleep 1000")]);
    let status = begin(&daemon, "slow", &json!({"fromTemplate": "mini", "steps": steps})).await?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !ask(&daemon, "GET", &status, &Value::Null).await?.text().contains("\"second\"") {
        ensure!(Instant::now() < deadline, "it does not begin");
        tokio::time::sleep(ASK_EVERY).await;
    }
    let waiting = ask(&daemon, "POST", "/v3/templates", &json!({"name": "later"})).await?.json()?;
    daemon.crash_and_restart().await?;
    let (told, log) = outcome(&daemon, &status).await?;
    ensure!(told["status"] == "error" && told["reason"]["step"] == "2", "{told}\n{log}");
    ensure!(log.contains("1: first"), "what it said is lost: {log}");
    no_sandboxes(&daemon).await?;
    // One that nobody had started yet still can be, and the first step was done before.
    let (template, build) = (waiting["templateID"].as_str().unwrap_or(""), waiting["buildID"].as_str().unwrap_or(""));
    let plan = json!({"fromTemplate": "mini", "steps": [run("echo first")]});
    let path = format!("/v2/templates/{template}/builds/{build}");
    assert_eq!(ask(&daemon, "POST", &path, &plan).await?.status, 202);
    assert_eq!(ask(&daemon, "POST", &path, &plan).await?.status, 409);
    let (told, log) = outcome(&daemon, &format!("/templates/{template}/builds/{build}/status")).await?;
    ensure!(told["status"] == "ready" && log.contains("[1/1] CACHED"), "{told}\n{log}");
    Ok(())
}

#[tokio::test]
async fn tags_name_versions_of_a_template() -> Result<()> {
    let daemon = Daemon::start().await?;
    for version in ["v1", "v2"] {
        let plan = json!({"fromTemplate": "mini", "steps": [run(&format!("echo {version} > /version"))]});
        built(&daemon, &format!("app:{version}"), &plan).await?;
    }
    let refused = daemon.sandbox_of("app", "none").await;
    ensure!(refused.is_err(), "nothing is meant without a tag yet");
    let assign = json!({"target": "team/app:v1", "tags": ["default", "stable"]});
    let assigned = ask(&daemon, "POST", "/templates/tags", &assign).await?;
    assert_eq!((assigned.status, &assigned.json()?["tags"]), (201, &json!(["default", "stable"])));
    for (template, name, version) in [("app", "a", "v1"), ("app:stable", "b", "v1"), ("app:v2", "c", "v2")] {
        assert_eq!(daemon.sandbox_of(template, name).await?.sh_ok("cat /version").await?, version);
    }
    let tags = ask(&daemon, "GET", "/templates/team%2Fapp/tags", &Value::Null).await?.json()?;
    let names: Vec<_> = tags.as_array().context("no list")?.iter().map(|tag| tag["tag"].clone()).collect();
    assert_eq!(names, ["default", "stable", "v1", "v2"]);
    for (body, status) in [
        (json!({"name": "app", "tags": ["stable", "none"]}), 404),
        (json!({"name": "app", "tags": ["default"]}), 400),
        (json!({"name": "app", "tags": ["stable", "v2"]}), 204),
    ] {
        let removed = ask(&daemon, "DELETE", "/templates/tags", &body).await?;
        assert_eq!(removed.status, status, "{}", removed.text());
    }
    daemon.roost_ok(&["template", "tag", "app:v1", "last"]).await?;
    assert_eq!(daemon.sandbox_of("app:last", "d").await?.sh_ok("cat /version").await?, "v1");
    assert_eq!(ask(&daemon, "DELETE", "/templates/app", &Value::Null).await?.status, 204);
    assert_eq!(ask(&daemon, "DELETE", "/templates/app", &Value::Null).await?.status, 404);
    let error = daemon.client().template("app:v1").await.expect_err("its tags went with it");
    match error {
        roost_client::ClientError::Api { detail, .. } => assert_eq!(detail.code, ErrorCode::TemplateNotFound),
        other => bail!("{other}"),
    }
    Ok(())
}

#[tokio::test]
async fn an_image_is_imported_under_its_name_and_built_from() -> Result<()> {
    let daemon = Daemon::start().await?;
    let folder = tempfile::tempdir()?;
    // A root filesystem that runs, out of a sandbox of ours.
    let mini = daemon.sandbox_of("mini", "root").await?;
    mini.root_ok("tar -C / -cf /layer.tar bin lib sbin usr etc home root").await?;
    let config = br#"{"config": {"Env": ["FROM=image"], "WorkingDir": "/home/user", "User": "user", "Cmd": ["sh"]}}"#;
    let manifest = br#"[{"Config": "config.json", "RepoTags": ["tiny:1.0"], "Layers": ["layer.tar"]}]"#;
    let layer = mini.read("/layer.tar").await?;
    let archive = archive_of(&[("config.json", config), ("manifest.json", manifest), ("layer.tar", &layer)])?;
    let path = folder.path().join("tiny.tar");
    std::fs::write(&path, archive)?;
    daemon.roost_ok(&["template", "import", "tiny:1.0", path.to_str().context("not UTF-8")?]).await?;
    assert_eq!(daemon.client().template("tiny:1.0").await?.command, ["sh"]);
    built(&daemon, "app", &json!({"fromImage": "library/tiny:1.0", "steps": [run("echo $FROM > ~/made")]})).await?;
    let sandbox = daemon.sandbox_of("app", "one").await?;
    assert_eq!(sandbox.sh_ok("id -un; pwd; cat made; echo $FROM").await?, "user\n/home/user\nimage\nimage");
    Ok(())
}
