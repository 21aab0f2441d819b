//! The command line as people and scripts use it.
#![forbid(unsafe_code)]

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use roost_e2e::Daemon;
use roost_model::Doctoring;

#[tokio::test]
async fn codes_are_passed_through() -> Result<()> {
    let daemon = Daemon::start().await?;
    daemon.roost_ok(&["create", "box"]).await?;
    let cases: [(&[&str], i32); 6] = [
        (&["exec", "box", "--", "true"], 0),
        (&["exec", "box", "--", "sh", "-c", "exit 3"], 3),
        (&["exec", "box", "--", "no-such-command"], 127),
        (&["exec", "box", "--", "/etc/passwd"], 126),
        (&["exec", "no-such-box", "--", "true"], 125),
        (&["create", "box"], 125),
    ];
    for (arguments, code) in cases {
        let output = daemon.roost(arguments).output().await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert_eq!(errors.is_empty(), code == 0 || code == 3, "{arguments:?}: {errors}");
    }
    let near = daemon.roost(&["info", "bxo"]).output().await?;
    ensure!(String::from_utf8_lossy(&near.stderr).contains("did you mean `box`"), "{near:?}");
    Ok(())
}

#[tokio::test]
async fn names_ids_and_prefixes_address_a_sandbox() -> Result<()> {
    let daemon = Daemon::start().await?;
    let id = daemon.roost_ok(&["create", "-q", "box"]).await?.trim().to_owned();
    ensure!(id.starts_with("sbx_"), "{id}");
    for address in ["box", &id, &id[..20]] {
        assert_eq!(daemon.roost_ok(&["exec", address, "--", "echo", "here"]).await?, "here\n");
    }
    assert_eq!(daemon.roost_ok(&["ls", "-q"]).await?.trim(), id);
    let listed: serde_json::Value = serde_json::from_str(&daemon.roost_ok(&["ls", "--json"]).await?)?;
    ensure!(listed.to_string().contains(&id), "{listed}");
    daemon.roost_ok(&["rm", "box"]).await?;
    assert_eq!(daemon.roost_ok(&["ls", "-q"]).await?, "");
    Ok(())
}

#[tokio::test]
async fn files_and_folders_are_copied_both_ways() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let folder = tempfile::Builder::new().prefix("roost-e2e-cp-").tempdir_in("/var/tmp")?;
    let path = |name: &str| Ok::<_, anyhow::Error>(folder.path().join(name).to_str().context("odd path")?.to_owned());
    std::fs::create_dir_all(path("tree/deep")?)?;
    std::fs::write(path("tree/deep/tool")?, "#!/bin/sh\necho ran\n")?;
    std::fs::set_permissions(path("tree/deep/tool")?, PermissionsExt::from_mode(0o755))?;

    sandbox.sh_ok("mkdir /srv").await?;
    daemon.roost_ok(&["cp", &path("tree")?, "box:/srv/"]).await?;
    assert_eq!(sandbox.sh_ok("/srv/tree/deep/tool").await?, "ran");
    daemon.roost_ok(&["cp", "box:/srv/tree", &path("back")?]).await?;
    assert_eq!(std::fs::read_to_string(path("back/deep/tool")?)?, "#!/bin/sh\necho ran\n");
    assert_eq!(std::fs::metadata(path("back/deep/tool")?)?.permissions().mode() & 0o777, 0o755);
    daemon.roost_ok(&["cp", "box:/srv/tree/deep/tool", "-"]).await.map(|text| assert!(text.contains("echo ran")))
}

#[tokio::test]
async fn a_hostile_folder_stays_in_its_destination() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let canary = roost_e2e::Canary::new()?;
    let folder = tempfile::Builder::new().prefix("roost-e2e-cp-").tempdir_in("/var/tmp")?;
    let outside = canary.absent();
    let outside = outside.parent().context("no parent")?.display();
    // Links out of the tree may be copied as links; nothing may be written through them.
    sandbox.sh_ok(&format!("mkdir -p /srv/t && ln -s {outside} /srv/t/out && ln -s /etc/passwd /srv/t/file")).await?;
    let target = folder.path().to_str().context("odd path")?;
    drop(daemon.roost(&["cp", "box:/srv/t", target]).output().await?);
    sandbox.sh_ok("rm /srv/t/out && mkdir /srv/t/out && echo x > /srv/t/out/absent").await?;
    drop(daemon.roost(&["cp", "box:/srv/t", target]).output().await?);
    ensure!(canary.untouched(), "the copy wrote through a link");
    Ok(())
}

#[tokio::test]
async fn a_terminal_is_a_terminal() -> Result<()> {
    let daemon = Daemon::start().await?;
    daemon.sandbox("box").await?;
    // `script` gives the client a terminal of its own.
    let inner = format!(
        "{} exec -it box -- sh -c 'tty; stty size; read line; echo got $line'",
        roost_e2e::roost_binary()?.display()
    );
    let mut command = tokio::process::Command::new("script");
    command.args(["-qec", &format!("stty rows 33 cols 77; {inner}"), "/dev/null"]);
    command
        .env("ROOST_SOCKET", daemon.socket())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut child = command.spawn().context("failed to run `script`")?;
    let mut stdin = child.stdin.take().context("no input")?;
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"hello\n").await?;
    let output = child.wait_with_output().await?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{text}");
    ensure!(text.contains("/dev/pts/") && text.contains("33 77") && text.contains("got hello"), "{text}");
    Ok(())
}

#[tokio::test]
async fn the_host_is_measured_and_left_as_it_was() -> Result<()> {
    let daemon = Daemon::start().await?;
    let folder = tempfile::Builder::new().prefix("roost-e2e-bench-").tempdir_in("/var/tmp")?;
    let report = folder.path().join("report");
    let told = daemon.roost_ok(&["bench", "--quick", "--report", report.to_str().context("odd path")?]).await?;
    for part in ["create from a pool", "wake from ram and exec", "10 forks of 64 MB", "file in (MB/s)", "burst of 16"] {
        ensure!(told.contains(part), "{part} is missing in {told}");
    }
    let raw: serde_json::Value = serde_json::from_slice(&std::fs::read(report.join("raw.json"))?)?;
    ensure!(raw["series"][0]["values"].as_array().is_some_and(|values| values.len() == 8), "{raw}");
    for curve in ["memory", "dirty", "files", "sandboxes"] {
        let plot = std::fs::read_to_string(report.join(format!("{curve}.svg")))?;
        ensure!(plot.contains("<circle") && !plot.contains("NaN"), "{plot}");
    }
    assert_eq!(daemon.roost_ok(&["ls", "-q"]).await?, "");
    let pool = daemon.client().pool("mini").await?;
    assert_eq!((pool.min, pool.max), (0, 0));
    Ok(())
}

#[tokio::test]
async fn the_doctor_proves_an_engine() -> Result<()> {
    let daemon = Daemon::start().await?;
    let report = daemon.client().doctor(Doctoring::Measure).await?;
    for engine in &report.engines {
        ensure!(engine.fit && engine.proven_ms.is_some(), "{report:?}");
        let figures = engine.figures.as_ref().context("no figures")?;
        ensure!(figures.create_ms > 0.0 && figures.ram_wake_ms.is_some() && figures.disk_wake_ms.is_some());
    }
    let told = daemon.roost_ok(&["doctor"]).await?;
    for line in ["engine native: works", "engine gvisor: works", "a kernel of its own", "from disk"] {
        ensure!(told.contains(line), "{told}");
    }
    Ok(())
}

#[tokio::test]
async fn the_demo_runs_and_leaves_nothing() -> Result<()> {
    let daemon = Daemon::start().await?;
    daemon.roost_ok(&["demo"]).await?;
    assert_eq!(daemon.roost_ok(&["ls", "-q"]).await?, "");
    Ok(())
}
