//! Services: kept up, stopped for good, in order, with logs that outlive every sleep.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Options, Sandbox, raw_unix};
use roost_model::{
    CreateSandbox, ErrorCode, Fork, Level, Name, RestartPolicy, ServiceSpec, ServiceState, ServiceView, StartPolicy,
};

const PATIENCE: Duration = Duration::from_secs(30);
const LEVELS: [Level; 3] = [Level::Ram, Level::Disk, Level::Files];

/// A daemon whose guests are in more of a hurry than ordinary ones.
async fn daemon() -> Result<Daemon> {
    let limits = r#"{"first_pause_ms": 100, "longest_pause_ms": 400, "healthy_ms": 60000, "log_file": 65536}"#;
    let environment = vec![("ROOST_TEST_SERVICE_LIMITS".to_owned(), limits.to_owned())];
    Daemon::with(Options { environment, ..Options::default() }).await
}

/// A line of shell that succeeds if a server answers at a port.
fn reach(port: u16) -> String {
    format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 127.0.0.1 {port} | grep -q HTTP")
}

fn shell(line: &str) -> ServiceSpec {
    ServiceSpec { shell: Some(line.to_owned()), ..ServiceSpec::default() }
}

fn named(services: &[(&str, ServiceSpec)]) -> BTreeMap<Name, ServiceSpec> {
    services.iter().map(|(name, spec)| (name.parse().expect("a name"), spec.clone())).collect()
}

async fn with_services(daemon: &Daemon, services: &[(&str, ServiceSpec)]) -> Result<Sandbox> {
    let services = named(services);
    daemon.sandbox_with(CreateSandbox { name: Some("box".into()), services, ..CreateSandbox::default() }).await
}

/// Waits until a service is as wanted.
async fn until(sandbox: &Sandbox, name: &str, wanted: impl Fn(&ServiceView) -> bool) -> Result<ServiceView> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let view = sandbox.client().service(sandbox.name(), name).await?;
        if wanted(&view) {
            return Ok(view);
        }
        ensure!(Instant::now() < deadline, "it stays {view:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn is(sandbox: &Sandbox, name: &str, state: ServiceState) -> Result<ServiceView> {
    until(sandbox, name, |view| view.state == state).await
}

async fn log(sandbox: &Sandbox, name: &str) -> Result<String> {
    let bytes = sandbox.client().service_logs(sandbox.name(), name, 0, false).await?.bytes().await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The processes of a sandbox with this command line.
async fn pids(sandbox: &Sandbox, command: &str) -> Result<Vec<u32>> {
    let line = "for p in /proc/[0-9]*; do echo \"${p#/proc/} $(tr '\\0' ' ' < $p/cmdline)\"; done 2>/dev/null";
    let all = sandbox.sh_ok(line).await?;
    ensure!(all.lines().any(|line| line.starts_with("1 ")), "there is always a first process: {all}");
    let pairs = all.lines().filter_map(|line| line.split_once(' '));
    pairs.filter(|(_, found)| found.trim_end() == command).map(|(pid, _)| Ok(pid.parse()?)).collect()
}

/// Waits until a sandbox has no process with this command line.
async fn ends(sandbox: &Sandbox, command: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !pids(sandbox, command).await?.is_empty() {
        ensure!(Instant::now() < deadline, "`{command}` runs on");
    }
    Ok(())
}

#[tokio::test]
async fn what_crashes_is_started_again_with_growing_pauses_until_it_is_repaired() -> Result<()> {
    let daemon = daemon().await?;
    let sandbox = with_services(&daemon, &[("web", shell("echo try; echo no >&2; exit 7"))]).await?;
    let view = until(&sandbox, "web", |view| view.restarts >= 4 && view.state == ServiceState::Backoff).await?;
    assert_eq!(view.last_exit.as_ref().context("no exit")?.exit_code, 7);
    ensure!(view.reason.as_deref().is_some_and(|why| why.contains("code 7") && why.contains("400 ms")), "{view:?}");
    ensure!(log(&sandbox, "web").await?.starts_with("try\nno\ntry\nno\n"));
    let refused = daemon.client().start_service("box", "web").await.expect_err("it ends at once");
    assert_eq!(refused.code(), Some(ErrorCode::ServiceFailed));
    daemon.client().put_service("box", "web", &shell("echo well; exec sleep 1000")).await?;
    let view = is(&sandbox, "web", ServiceState::Running).await?;
    assert_eq!(pids(&sandbox, "sleep 1000").await?, [view.pid.context("no pid")?]);
    Ok(())
}

#[tokio::test]
async fn a_stop_sticks_through_every_sleep_and_a_crash_of_the_daemon() -> Result<()> {
    let mut daemon = daemon().await?;
    let services = [("down", shell("exec sleep 1001")), ("up", shell("exec sleep 1002"))];
    let sandbox = with_services(&daemon, &services).await?;
    is(&sandbox, "down", ServiceState::Running).await?;
    let client = daemon.client();
    assert_eq!(client.stop_service("box", "down").await?.state, ServiceState::Stopped);
    ensure!(pids(&sandbox, "sleep 1001").await?.is_empty());
    for level in LEVELS {
        let before = is(&sandbox, "up", ServiceState::Running).await?.pid;
        sandbox.suspend(level).await?;
        let asleep = client.list_services("box").await?;
        assert_eq!(
            asleep.iter().map(|view| view.state).collect::<Vec<_>>(),
            [ServiceState::Stopped, ServiceState::Suspended]
        );
        daemon.crash_and_restart().await?;
        sandbox.wake().await?;
        let after = is(&sandbox, "up", ServiceState::Running).await?;
        // With its memory it goes on as it was; without, it is started.
        assert_eq!(after.pid == before && after.restarts == 0, level != Level::Files, "{level}: {before:?} {after:?}");
        assert_eq!(client.service("box", "down").await?.state, ServiceState::Stopped, "{level}");
        ensure!(pids(&sandbox, "sleep 1001").await?.is_empty());
    }
    // What is stopped while its sandbox sleeps is found stopped when that wakes.
    for level in LEVELS {
        client.start_service("box", "down").await?;
        sandbox.suspend(level).await?;
        assert_eq!(client.stop_service("box", "down").await?.state, ServiceState::Stopped);
        sandbox.wake().await?;
        is(&sandbox, "down", ServiceState::Stopped).await?;
        ends(&sandbox, "sleep 1001").await?;
    }
    is(&sandbox, "up", ServiceState::Running).await?;
    Ok(())
}

#[tokio::test]
async fn a_change_that_the_daemon_did_not_live_to_tell_is_told_by_the_next() -> Result<()> {
    let mut daemon = daemon().await?;
    let sandbox = with_services(&daemon, &[("web", shell("exec sleep 1001"))]).await?;
    is(&sandbox, "web", ServiceState::Running).await?;
    daemon.kill9()?;
    daemon.start_again_failing_at("record-stored").await?;
    ensure!(daemon.client().stop_service("box", "web").await.is_err(), "the daemon ended");
    daemon.wait_until_killed().await?;
    daemon.start_again().await?;
    ends(&sandbox, "sleep 1001").await?;
    assert_eq!(daemon.client().service("box", "web").await?.state, ServiceState::Stopped);
    Ok(())
}

#[tokio::test]
async fn needs_order_starts_and_stops() -> Result<()> {
    let daemon = daemon().await?;
    let step = |name: &str, then: &str| {
        format!(
            "trap 'echo -{name} >> /root/order; exit 0' TERM; echo +{name} >> /root/order; {then}; while :; do sleep 0.05; done"
        )
    };
    let needs = |name: &str| vec![name.parse().expect("a name")];
    let db = ServiceSpec { port: Some(5432), ..shell(&step("db", "sleep 0.3; (httpd -f -p 5432 &)")) };
    let reached = format!("{} && echo reached; (httpd -f -p 8080 &)", reach(5432));
    let app = ServiceSpec { port: Some(8080), needs: needs("db"), ..shell(&step("app", &reached)) };
    let web = ServiceSpec { needs: needs("app"), ..shell(&step("web", "echo ready")) };
    let sandbox = with_services(&daemon, &[("app", app), ("db", db), ("web", web)]).await?;
    until(&sandbox, "web", |view| view.log.end > 0).await?;
    assert_eq!(log(&sandbox, "app").await?, "reached\n");
    sandbox.suspend(Level::Files).await?;
    sandbox.wake().await?;
    sandbox.becomes_true("test $(wc -l < /root/order) -ge 9").await?;
    let order = sandbox.sh_ok("cat /root/order | tr '\\n' ' '").await?;
    assert_eq!(order.trim(), "+db +app +web -web -app -db +db +app +web");
    Ok(())
}

#[tokio::test]
async fn logs_survive_every_sleep_and_tell_nothing_twice() -> Result<()> {
    let mut daemon = daemon().await?;
    let line = "i=0; echo boot; while :; do i=$((i+1)); echo $i; sleep 0.02; done";
    let sandbox = with_services(&daemon, &[("web", shell(line))]).await?;
    let (mut seen, mut offset) = (String::new(), 0);
    for level in LEVELS {
        let wanted = offset + 200;
        until(&sandbox, "web", |view| view.log.end >= wanted).await?;
        sandbox.suspend(level).await?;
        daemon.crash_and_restart().await?;
        let mut read = daemon.client().service_logs("box", "web", offset, false).await?;
        assert_eq!((read.offset(), read.gap()), (Some(offset), None), "{level}");
        while let Some(piece) = read.chunk().await? {
            offset += piece.len() as u64;
            seen.push_str(std::str::from_utf8(&piece)?);
        }
    }
    let mut following = daemon.client().service_logs("box", "web", offset, true).await?;
    let mut read_until_boots = async |wanted: usize| -> Result<()> {
        while seen.matches("boot\n").count() < wanted {
            seen.push_str(std::str::from_utf8(&following.chunk().await?.context("it ended")?)?);
        }
        Ok(())
    };
    // One that is ended before it came to its first line would have told nothing of that life.
    read_until_boots(2).await?;
    daemon.client().restart_service("box", "web").await?;
    read_until_boots(3).await?;
    let lives: Vec<&str> = seen.split("boot\n").skip(1).collect();
    for life in &lives[..2] {
        let numbers: Vec<u32> = life.lines().map(str::parse).collect::<Result<_, _>>()?;
        ensure!(numbers.iter().copied().eq(1..=numbers.len() as u32), "{numbers:?}");
    }
    ensure!(lives[0].lines().count() > 40, "{seen}");
    // Plain files inside, for whoever looks there.
    assert_eq!(sandbox.sh_ok("cat /var/log/roost/web/*.log | head -2").await?, "boot\n1");
    // Whoever follows is told when there is nothing more to come.
    daemon.client().delete_service("box", "web").await?;
    while following.chunk().await?.is_some() {}
    sandbox.refuses("test -e /var/log/roost/web").await?;
    Ok(())
}

#[tokio::test]
async fn on_demand_waits_to_be_asked() -> Result<()> {
    let daemon = daemon().await?;
    let lazy = |port, line: &str| ServiceSpec { port, start: StartPolicy::OnDemand, ..shell(line) };
    let app = ServiceSpec { needs: vec!["db".parse()?], ..lazy(None, "exec sleep 1001") };
    let bad = ServiceSpec { restart: RestartPolicy::Never, ..lazy(Some(81), "echo broken pipe dream; exit 1") };
    let services = [("app", app), ("bad", bad), ("db", lazy(Some(80), "exec httpd -f -p 80"))];
    let sandbox = with_services(&daemon, &services).await?;
    let client = daemon.client();
    for _ in 0..2 {
        for name in ["app", "bad", "db"] {
            assert_eq!(client.service("box", name).await?.state, ServiceState::Stopped);
        }
        assert_eq!(client.start_service("box", "app").await?.state, ServiceState::Running);
        assert_eq!(client.service("box", "db").await?.state, ServiceState::Running);
        sandbox.sh_ok(&reach(80)).await?;
        sandbox.suspend(Level::Files).await?;
        sandbox.wake().await?;
    }
    let failed = client.start_service("box", "bad").await.expect_err("it ends at once");
    assert_eq!(failed.code(), Some(ErrorCode::ServiceFailed));
    ensure!(failed.to_string().contains("code 1") && failed.to_string().contains("broken pipe dream"), "{failed}");
    Ok(())
}

#[tokio::test]
async fn a_request_starts_what_its_port_belongs_to() -> Result<()> {
    let daemon = daemon().await?;
    let lazy = |port, line: &str| ServiceSpec { port, start: StartPolicy::OnDemand, ..shell(line) };
    let web = ServiceSpec {
        needs: vec!["db".parse()?],
        ..lazy(Some(80), "mkdir -p /w; echo hello >/w/index.html; exec httpd -f -p 80 -h /w")
    };
    let bad = ServiceSpec { restart: RestartPolicy::Never, ..lazy(Some(81), "echo broken pipe dream; exit 1") };
    let sandbox = with_services(&daemon, &[("bad", bad), ("db", lazy(None, "exec sleep 1001")), ("web", web)]).await?;
    let client = daemon.client();
    let ask = async |port: u16| {
        let path = format!("/v1/sandboxes/box/ports/{port}/");
        raw_unix(&daemon.socket(), "GET", &path, &[], &[]).await
    };
    for level in [None, Some(Level::Files), Some(Level::Disk), Some(Level::Ram)] {
        if let Some(level) = level {
            sandbox.suspend(level).await?;
        } else {
            assert_eq!(client.service("box", "web").await?.state, ServiceState::Stopped);
        }
        let answer = ask(80).await?;
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello\n"), "{level:?}");
        assert_eq!(client.service("box", "db").await?.state, ServiceState::Running);
    }
    let broken = ask(81).await?;
    ensure!(broken.status == 502 && broken.text().contains("broken pipe dream"), "{broken:?}");
    client.stop_service("box", "web").await?;
    let stopped = ask(80).await?;
    ensure!(stopped.status == 502 && stopped.text().contains("roost service start box web"), "{stopped:?}");
    Ok(())
}

#[tokio::test]
async fn services_go_with_forks_and_moments() -> Result<()> {
    let daemon = daemon().await?;
    let sandbox = with_services(&daemon, &[("web", shell("exec sleep 1001"))]).await?;
    let web = is(&sandbox, "web", ServiceState::Running).await?;
    let (moment, _) = sandbox.checkpoint().await?;
    let client = daemon.client();
    client.stop_service("box", "web").await?;
    client.put_service("box", "late", &shell("exec sleep 1002")).await?;
    let fork = Fork { count: Some(1), names: Some(vec!["child".into()]), from: Some(moment.clone()) };
    let (child, _) = sandbox.fork(&fork).await?.remove(0);
    assert_eq!(is(&child, "web", ServiceState::Running).await?.pid, web.pid);
    assert_eq!(
        client.service("child", "late").await.expect_err("it came later").code(),
        Some(ErrorCode::ServiceNotFound)
    );
    client.stop_service("child", "web").await?;
    ensure!(pids(&child, "sleep 1001").await?.is_empty());
    sandbox.restore(&moment).await?;
    assert_eq!(is(&sandbox, "web", ServiceState::Running).await?.pid, web.pid);
    assert_eq!(client.list_services("box").await?.len(), 1);
    client.put_service("box", "late", &shell("exec sleep 1003")).await?;
    is(&sandbox, "late", ServiceState::Running).await?;
    Ok(())
}

#[tokio::test]
async fn the_command_line_sees_to_services() -> Result<()> {
    let daemon = daemon().await?;
    daemon.roost_ok(&["create", "box", "--service", "echo=httpd -f -p 7"]).await?;
    let put = ["service", "put", "box", "web", "--port", "80", "--needs", "echo", "-e", "A=1", "--", "sh", "-c"];
    daemon.roost_ok(&[&put[..], &["echo A is $A; exec httpd -f -p 80"]].concat()).await?;
    let up = daemon.roost_ok(&["service", "start", "box", "web"]).await?;
    ensure!(up.contains("web") && up.contains("running"), "{up}");
    let listed = daemon.roost_ok(&["service", "ls", "box"]).await?;
    ensure!(listed.lines().nth(2).is_some_and(|line| line.starts_with("web") && line.contains("80")), "{listed}");
    assert_eq!(daemon.roost_ok(&["service", "ls", "-q", "box"]).await?, "echo\nweb\n");
    assert_eq!(daemon.roost_ok(&["service", "logs", "box", "web"]).await?, "A is 1\n");
    daemon.roost_ok(&["service", "restart", "box", "web"]).await?;
    let needed = daemon.roost(&["service", "rm", "box", "echo"]).output().await?;
    ensure!(String::from_utf8_lossy(&needed.stderr).contains("service `web` needs `echo`"), "{needed:?}");
    let stopped: serde_json::Value =
        serde_json::from_str(&daemon.roost_ok(&["service", "stop", "--json", "box", "web"]).await?)?;
    assert_eq!((&stopped["state"], &stopped["pid"]), (&"stopped".into(), &serde_json::Value::Null));
    // A reader that follows ends with the service.
    let follower =
        daemon.roost(&["service", "logs", "-f", "box", "web"]).stdout(std::process::Stdio::piped()).spawn()?;
    daemon.roost_ok(&["service", "rm", "box", "web"]).await?;
    let followed = tokio::time::timeout(PATIENCE, follower.wait_with_output()).await??;
    let told = String::from_utf8_lossy(&followed.stdout);
    ensure!(told.is_empty() || told.starts_with("A is 1\nA is 1\n"), "{told}");
    assert_eq!(daemon.roost_ok(&["service", "ls", "-q", "box"]).await?, "echo\n");
    Ok(())
}
