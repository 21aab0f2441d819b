//! What cannot be saved or brought back is refused in clear words, and nothing is lost by it.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Options, Sandbox};
use roost_model::{CreateCheckpoint, ErrorCode, ExecState, Fork, Level, Restore, State};

/// One process that watches another as a debugger does; the kernel allows only one to watch, so it cannot be saved.
const DEBUGGER: &str = r#"
import ctypes, os, time
child = os.fork()
if child:
    assert ctypes.CDLL(None).ptrace(16, child, 0, 0) == 0
    open("/tmp/attached", "w").close()
while True:
    time.sleep(1000)
"#;

#[tokio::test]
async fn a_process_that_cannot_be_saved_is_named_and_goes_on() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let client = daemon.client();
    let work = sandbox.spawn("while :; do sleep 1; done").await?;
    sandbox.write("/tmp/debugger.py", DEBUGGER).await?;
    let debugger = sandbox.spawn("exec python3 /tmp/debugger.py").await?;
    sandbox.becomes_true("test -e /tmp/attached").await?;

    let refused = client.suspend_sandbox("box", Level::Disk).await.expect_err("it cannot be saved");
    assert_eq!(refused.code(), Some(ErrorCode::MemoryNotSaved), "{refused}");
    ensure!(refused.to_string().contains("python3"), "the process is not named: {refused}");
    assert_eq!(client.sandbox("box").await?.state, State::Active);
    let refused = client.create_checkpoint("box", &CreateCheckpoint::default()).await.expect_err("nor a checkpoint");
    assert_eq!(refused.code(), Some(ErrorCode::MemoryNotSaved), "{refused}");
    let refused = client.fork_sandbox("box", &Fork::default()).await.expect_err("nor a fork");
    assert_eq!(refused.code(), Some(ErrorCode::MemoryNotSaved), "{refused}");
    for exec in [&work, &debugger] {
        assert_eq!(client.exec("box", exec.id.as_str()).await?.status, ExecState::Running);
    }
    // Asleep in RAM it stays there.
    sandbox.suspend(Level::Ram).await?;
    let refused = client.suspend_sandbox("box", Level::Disk).await.expect_err("still not");
    assert_eq!(refused.code(), Some(ErrorCode::MemoryNotSaved), "{refused}");
    let view = client.sandbox("box").await?;
    assert_eq!((view.state, view.level), (State::Suspended, Some(Level::Ram)));

    // Files can be kept always, and once the process is gone, everything.
    let files = CreateCheckpoint { files_only: true, comment: None };
    assert_eq!(client.create_checkpoint("box", &files).await?.receipt.kept, ["files"]);
    client.signal_exec("box", debugger.id.as_str(), "KILL").await?;
    client.wait_exec("box", debugger.id.as_str()).await?;
    sandbox.suspend(Level::Disk).await?;
    sandbox.wake().await?;
    assert_eq!(client.exec("box", work.id.as_str()).await?.status, ExecState::Running);
    daemon.keeps_nothing_in(&["images", "images/.staging", "staging"]).await
}

/// The folder of the image that a sandbox sleeps in.
fn image_of(daemon: &Daemon, sandbox: &Sandbox) -> Result<PathBuf> {
    let mut images = fs::read_dir(daemon.data_dir().join("images"))?.flatten().map(|entry| entry.path());
    let is_its = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(sandbox.id()));
    images.find(is_its).with_context(|| format!("`{}` has no image", sandbox.name()))
}

/// Waits until the image has its checksums, which come in the background.
fn wait_until_sealed(image: &Path) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !image.join("checksums.json").exists() {
        ensure!(Instant::now() < deadline, "`{}` got no checksums", image.display());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Wakes a sandbox whose image was spoilt: refused, asleep as before, and awake once it is mended.
async fn refused_then_mended(sandbox: &Sandbox, file: &Path, spoil: impl Fn(&[u8]) -> Vec<u8>) -> Result<()> {
    let good = fs::read(file)?;
    fs::write(file, spoil(&good))?;
    for attempt in ["wake", "exec"] {
        let refused = match attempt {
            "wake" => sandbox.client().wake_sandbox(sandbox.name()).await.map(drop),
            _ => sandbox.client().list_files(sandbox.name(), "/").await.map(drop),
        };
        let refused = refused.err().with_context(|| format!("`{}` was not noticed by {attempt}", file.display()))?;
        eprintln!("{}: {refused}", file.display());
        assert_eq!(refused.code(), Some(ErrorCode::ImageIncompatible), "{attempt}: {refused}");
        let view = sandbox.client().sandbox(sandbox.name()).await?;
        assert_eq!((view.state, view.level), (State::Suspended, Some(Level::Disk)));
    }
    fs::write(file, good)?;
    sandbox.wake().await?;
    Ok(())
}

#[tokio::test]
async fn an_image_that_does_not_fit_is_refused_and_kept() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let work = sandbox.spawn("while :; do sleep 1; done").await?;
    sandbox.sh_ok("echo precious > /root/file").await?;

    sandbox.suspend(Level::Disk).await?;
    let image = image_of(&daemon, &sandbox)?;
    let newer = |text: &[u8]| String::from_utf8_lossy(text).replace("criu 4", "criu 99").into_bytes();
    refused_then_mended(&sandbox, &image.join("manifest.json"), newer).await?;

    sandbox.suspend(Level::Disk).await?;
    let image = image_of(&daemon, &sandbox)?;
    wait_until_sealed(&image)?;
    let flipped = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        bytes
    };
    refused_then_mended(&sandbox, &image.join("memory/pstree.img"), flipped).await?;
    assert_eq!(daemon.client().exec("box", work.id.as_str()).await?.status, ExecState::Running);

    // The files of one whose memory is lost can be had.
    sandbox.suspend(Level::Disk).await?;
    let image = image_of(&daemon, &sandbox)?;
    fs::write(image.join("manifest.json"), "{}")?;
    let refused = daemon.client().wake_sandbox("box").await.expect_err("an image without a description");
    assert_eq!(refused.code(), Some(ErrorCode::ImageIncompatible), "{refused}");
    sandbox.suspend(Level::Files).await?;
    assert_eq!(sandbox.sh_ok("cat /root/file; pidof sleep; true").await?, "precious");
    Ok(())
}

#[tokio::test]
async fn a_checkpoint_that_does_not_fit_is_refused_before_anything_is_given_up() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let work = sandbox.spawn("while :; do sleep 1; done").await?;
    let (checkpoint, _) = sandbox.checkpoint().await?;
    sandbox.sh_ok("echo after > /root/file").await?;
    let manifest = daemon.data_dir().join("images").join(checkpoint.as_str()).join("manifest.json");
    let text = fs::read_to_string(&manifest)?;
    fs::write(&manifest, text.replace("criu 4", "criu 99"))?;

    let wanted = roost_model::Restore { checkpoint: checkpoint.clone() };
    let refused = daemon.client().restore_sandbox("box", &wanted).await.expect_err("an image of another version");
    assert_eq!(refused.code(), Some(ErrorCode::ImageIncompatible), "{refused}");
    assert_eq!(daemon.client().exec("box", work.id.as_str()).await?.status, ExecState::Running);
    assert_eq!(sandbox.sh_ok("cat /root/file").await?, "after");
    Ok(())
}

#[tokio::test]
async fn without_a_network_left_nobody_wakes_and_nothing_is_lost() -> Result<()> {
    let environment = vec![("ROOST_NETWORK_SLOTS".to_owned(), "2".to_owned())];
    let daemon = Daemon::with(Options { environment, ..Options::default() }).await?;
    let client = daemon.client();
    let (_first, second) = (daemon.sandbox("first").await?, daemon.sandbox("second").await?);
    second.sh_ok("echo precious > /root/file").await?;
    let kept = client.create_checkpoint("second", &CreateCheckpoint::default()).await?.checkpoint;
    let refused = format!("{:#}", daemon.sandbox("third").await.expect_err("there are two networks"));
    ensure!(refused.contains("all 2 network slots are in use"), "{refused}");

    // Asleep on disk it needs none.
    second.suspend(Level::Disk).await?;
    let third = daemon.sandbox("third").await?;
    let refused = client.wake_sandbox("second").await.expect_err("its network is another's");
    assert_eq!(refused.code(), Some(ErrorCode::HostFull), "{refused}");
    ensure!(refused.hint().is_some_and(|hint| hint.contains("--to disk")), "{refused:?}");
    let generation = client.sandbox("second").await?.generation;
    let refused =
        client.restore_sandbox("second", &Restore { checkpoint: kept.id }).await.expect_err("nor can it go back");
    assert_eq!(refused.code(), Some(ErrorCode::HostFull), "{refused}");
    let view = client.sandbox("second").await?;
    assert_eq!((view.state, view.level), (State::Suspended, Some(Level::Disk)));
    assert_eq!(view.generation, generation, "it did not go back by half");
    third.delete().await?;
    assert_eq!(second.sh_ok("cat /root/file").await?, "precious");
    Ok(())
}
