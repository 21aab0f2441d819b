//! Files inside a sandbox, through the API.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use roost_client::{ClientError, Upload, WriteOptions};
use roost_e2e::Daemon;
use roost_model::{ErrorCode, FileKind, MakeFolder, PatchFile};

#[tokio::test]
async fn files_are_written_read_moved_and_removed() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let client = daemon.client();

    let stat = sandbox.write("/srv/new/folder/a.txt", "hello ").await?;
    assert_eq!((stat.size, stat.kind), (6, FileKind::File));
    let append = WriteOptions { append: true, ..WriteOptions::default() };
    client.write_file("box", "/srv/new/folder/a.txt", Upload::bytes("world"), &append).await?;
    assert_eq!(sandbox.read("/srv/new/folder/a.txt").await?, b"hello world");
    assert_eq!(sandbox.sh_ok("cat /srv/new/folder/a.txt").await?, "hello world");

    client
        .make_folder(
            "box",
            &MakeFolder { path: "/srv/deep/er".to_owned(), parents: true, mode: Some("0700".to_owned()) },
        )
        .await?;
    assert_eq!(sandbox.sh_ok("stat -c %a /srv/deep/er").await?, "700");
    client.move_file("box", "/srv/new/folder/a.txt", "/srv/deep/b.txt").await?;
    let names: Vec<String> =
        client.list_files("box", "/srv/deep").await?.entries.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["b.txt", "er"]);

    let owner = PatchFile { mode: Some("0640".to_owned()), owner: Some("user".to_owned()), symlink_to: None };
    let stat = client.patch_file("box", "/srv/deep/b.txt", &owner).await?;
    assert_eq!((stat.uid, stat.mode.as_str()), (1000, "0640"));
    assert_eq!(sandbox.sh_ok("stat -c %U:%a /srv/deep/b.txt").await?, "user:640");

    let link = PatchFile { symlink_to: Some("b.txt".to_owned()), ..PatchFile::default() };
    client.patch_file("box", "/srv/deep/link", &link).await?;
    let stat = client.stat_file("box", "/srv/deep/link").await?;
    assert_eq!((stat.kind, stat.target.as_deref()), (FileKind::Symlink, Some("b.txt")));

    let full = client.remove_file("box", "/srv/deep", false).await.expect_err("a full folder");
    assert!(full.code().is_some(), "{full}");
    client.remove_file("box", "/srv/deep", true).await?;
    let gone = client.stat_file("box", "/srv/deep").await.expect_err("removed");
    assert_eq!(gone.code(), Some(ErrorCode::PathNotFound));
    Ok(())
}

#[tokio::test]
async fn wrong_paths_have_their_own_codes() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("echo x > /root/file; mkdir /root/folder").await?;
    let code = |outcome: Result<Vec<u8>, ClientError>| outcome.err().and_then(|error| error.code());
    assert_eq!(code(sandbox.read("/root/absent").await), Some(ErrorCode::PathNotFound));
    assert_eq!(code(sandbox.read("/root/folder").await), Some(ErrorCode::IsADirectory));
    assert_eq!(code(sandbox.read("/root/file/below").await), Some(ErrorCode::NotADirectory));
    let denied = sandbox.write("/sys/kernel/new", "x").await.expect_err("read-only");
    assert!(matches!(denied.code(), Some(ErrorCode::PermissionDenied)), "{denied}");
    Ok(())
}

#[tokio::test]
async fn folders_travel_as_archives() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("mkdir -p /srv/a/b && echo one > /srv/a/b/1 && chmod 751 /srv/a/b && ln -s b/1 /srv/a/l").await?;
    let archive = daemon.client().read_archive("box", "/srv/a").await?.bytes().await?;
    daemon.client().write_archive("box", "/srv/copy", Upload::bytes(archive), None).await?;
    assert_eq!(sandbox.sh_ok("cat /srv/copy/l; stat -c %a /srv/copy/b; readlink /srv/copy/l").await?, "one\n751\nb/1");
    Ok(())
}

#[tokio::test]
async fn a_watch_sees_what_happens_below() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("mkdir -p /srv/watched").await?;
    let mut events = daemon.client().watch_files("box", "/srv/watched", true).await?;
    sandbox.sh_ok("echo x > /srv/watched/new; mkdir /srv/watched/sub; mv /srv/watched/new /srv/watched/old; rm /srv/watched/old").await?;
    let mut kinds = Vec::new();
    while kinds.last().map(String::as_str) != Some("removed") {
        let event = events.next().await?.context("the watch ended early")?;
        assert!(event.path.starts_with("/srv/watched/"), "{event:?}");
        kinds.push(event.kind);
    }
    assert_eq!(kinds.first().map(String::as_str), Some("created"), "{kinds:?}");
    assert!(kinds.iter().any(|kind| kind == "moved"), "{kinds:?}");
    Ok(())
}
