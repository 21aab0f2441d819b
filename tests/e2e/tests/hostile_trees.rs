//! Trees and files of strangers: archives, folders too deep for a stack, paths of the host, and files that never end.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{Client, ClientError, Upload, WriteOptions};
use roost_e2e::wall::Wall;
use roost_e2e::{Daemon, Options, behind_each_wall, peak_memory, raw_unix, reset_peak_memory};
use roost_model::{ErrorCode, ExecState, ImportTemplate, TemplateView};
use rustix::fs::{Mode, OFlags, mkdirat, openat};

/// The memory that a daemon may gain by an import, whatever is in the archive.
const MOST_GAINED: u64 = 100 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

behind_each_wall! {
    deep_folders_are_removed_and_moved_by_the_file_api,
    endless_files_are_refused_by_the_file_api,
}

/// Folders within one another, each stretch of them reached by a link to the end of the one before.
fn deep_archive(stretches: usize, length: usize) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let stretch = "d/".repeat(length);
    for number in 0..stretches {
        let before = if number == 0 { String::new() } else { format!("link{}/", number - 1) };
        let path = format!("{before}{stretch}");
        let mut header = header(tar::EntryType::Directory, 0);
        archive.append_data(&mut header, &path, std::io::empty())?;
        let mut header = self::header(tar::EntryType::Symlink, 0);
        archive.append_link(&mut header, format!("link{number}"), path.trim_end_matches('/'))?;
    }
    Ok(archive.into_inner()?)
}

fn header(kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o755);
    for set in [tar::Header::set_uid, tar::Header::set_gid, tar::Header::set_mtime] {
        set(&mut header, 0);
    }
    header
}

/// Makes folders within one another in a folder of the host.
fn make_deep(top: &Path, levels: usize) -> Result<()> {
    fs::create_dir_all(top)?;
    let mut folder = OwnedFd::from(File::open(top)?);
    for _ in 0..levels {
        mkdirat(&folder, "d", Mode::RWXU)?;
        folder = openat(&folder, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    }
    Ok(())
}

/// Uploads an archive and returns the last line of the answer.
async fn upload(daemon: &Daemon, name: &str, archive: &[u8]) -> Result<serde_json::Value> {
    let answer = raw_unix(&daemon.socket(), "PUT", &format!("/v1/templates/{name}"), &[], archive).await?;
    let text = answer.text();
    let last = text.lines().next_back().context("the answer is empty")?;
    Ok(serde_json::from_str(last)?)
}

/// The names in the folder of templates that are no templates.
fn staged(daemon: &Daemon) -> Result<Vec<String>> {
    let names = fs::read_dir(daemon.data_dir().join("templates"))?.flatten();
    Ok(names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect())
}

fn descriptors(daemon: &Daemon) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", daemon.pid()?))?.count())
}

#[tokio::test]
async fn deep_and_long_archives_are_refused_with_constant_memory_and_descriptors() -> Result<()> {
    let daemon = Daemon::start().await?;
    let pid = daemon.pid()?;
    reset_peak_memory(pid)?;
    let (memory, open) = (peak_memory(pid)?, descriptors(&daemon)?);
    let mut long = tar::Builder::new(Vec::new());
    long.append_data(&mut header(tar::EntryType::Regular, 0), "n".repeat(255), std::io::empty())?;
    let archives = [
        deep_archive(1, 1500)?,
        deep_archive(2, 1500)?,
        deep_archive(12, 1500)?,
        deep_archive(36, 1900)?,
        deep_archive(1, 100_000)?,
        long.into_inner()?,
    ];
    for (number, archive) in archives.iter().enumerate() {
        let last = upload(&daemon, "t", archive).await?;
        assert_eq!(last["error"]["code"], "template_invalid", "{number}: {last}");
        assert!(last.to_string().len() < 1000, "{number}: {last}");
    }
    assert_eq!(staged(&daemon)?, Vec::<String>::new());
    ensure!(peak_memory(pid)? < memory + MOST_GAINED, "{memory} became {}", peak_memory(pid)?);
    ensure!(descriptors(&daemon)? <= open + 8, "{open} became {}", descriptors(&daemon)?);
    daemon.sandbox("box").await?.answers().await
}

#[tokio::test]
async fn bombs_are_imported_with_constant_memory_or_refused() -> Result<()> {
    let daemon = Daemon::start().await?;
    let home = tempfile::tempdir_in("/var/tmp")?;
    for (name, gibibytes, tool) in [("gzip", 2, "gzip -1"), ("zstd", 2, "zstd -1 -q")] {
        let packed = home.path().join(name);
        let file = File::create(home.path().join("zeros"))?;
        file.set_len(gibibytes << 30)?;
        let line = format!("set -e; tar -C {0} -c zeros | {tool} > {1}", home.path().display(), packed.display());
        ensure!(Command::new("sh").args(["-c", &line]).status()?.success(), "failed to make the bomb");
        let bomb = fs::read(&packed)?;
        ensure!(bomb.len() < 16 << 20, "the bomb has {} bytes", bomb.len());
        let pid = daemon.pid()?;
        reset_peak_memory(pid)?;
        let before = peak_memory(pid)?;
        let last = upload(&daemon, name, &bomb).await?;
        let refused = last["error"]["code"] == "template_invalid" || last["error"]["code"] == "host_full";
        ensure!(refused || last["type"] == "done", "{last}");
        let gained = peak_memory(pid)?.saturating_sub(before);
        ensure!(gained < MOST_GAINED, "{name}: {gained} bytes more");
    }
    daemon.client().health().await?;
    Ok(())
}

#[tokio::test]
async fn daemon_killed_amid_a_deep_tree_starts_again_and_comes_down() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    daemon.sandbox("box").await?;
    // The daemon is killed while it unpacks, and again while it removes the leftovers.
    let socket = daemon.socket();
    let archive = deep_archive(2, 1000)?;
    let importing = tokio::spawn(async move {
        while raw_unix(&socket, "PUT", "/v1/templates/t", &[], &archive).await.is_ok_and(|answer| answer.status > 0) {}
    });
    let deadline = Instant::now() + PATIENCE;
    while staged(&daemon)?.is_empty() {
        ensure!(Instant::now() < deadline, "the import never began");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    daemon.kill9()?;
    importing.await?;

    make_deep(&daemon.data_dir().join("templates/.staging-deep/root"), 100_000)?;
    make_deep(&daemon.data_dir().join("images/.staging/deep"), 5000)?;
    fs::write(daemon.data_dir().join("images/.staging/odd"), "odd")?;
    let half = removed_half(&daemon)?;
    ensure!(half, "the sweep was over before the kill");
    daemon.start_again().await?;
    assert_eq!(staged(&daemon)?, Vec::<String>::new());
    assert_eq!(fs::read_dir(daemon.data_dir().join("aside"))?.count(), 1, "the odd file alone is put aside");
    let doctor = daemon.roost_ok(&["doctor"]).await?;
    ensure!(doctor.contains("leftovers put aside"), "{doctor}");
    daemon.stop().await?;

    make_deep(&daemon.data_dir().join("templates/.staging-deep/root"), 5000)?;
    daemon.take_down()
}

/// Kills a daemon while it removes the deep leftover of templates; whether something of that was left.
fn removed_half(daemon: &Daemon) -> Result<bool> {
    let mut child = Command::new(daemon.binary())
        .args(["serve", "--listen", "none", "--pool-size", "6g", "--data-dir"])
        .arg(daemon.data_dir())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let leftover = daemon.data_dir().join("templates/.staging-deep");
    // The images are swept before the templates.
    let images = daemon.data_dir().join("images/.staging/deep");
    let deadline = Instant::now() + PATIENCE;
    while images.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    child.wait()?;
    Ok(leftover.exists())
}

#[tokio::test]
async fn damaged_entries_of_a_data_folder_keep_no_daemon_from_starting() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    daemon.stop().await?;
    let data = daemon.data_dir().to_owned();
    fs::write(data.join("links.key"), "short")?;
    fs::write(data.join("ssh_host_key"), "no key")?;
    fs::write(data.join("engines.json"), "{")?;
    fs::create_dir_all(data.join("templates/damaged"))?;
    symlink("nowhere", data.join("templates/damaged/current"))?;
    fs::write(data.join("templates/file"), "odd")?;
    fs::write(data.join("templates/.staging-file"), "odd")?;
    fs::create_dir_all(data.join("batches/.cut-off"))?;
    fs::write(data.join("batches/.odd"), "odd")?;
    fs::write(data.join("builds"), "odd")?;
    fs::write(data.join("pool/staging/odd"), "odd")?;
    daemon.start_again().await?;
    daemon.sandbox("box").await?.answers().await?;
    let names: Vec<String> = daemon.client().list_templates().await?.into_iter().map(|found| found.name).collect();
    assert_eq!(names, ["mini"]);
    daemon.take_down()
}

async fn by_path(client: &Client, name: &str, path: &Path) -> Result<TemplateView, ClientError> {
    let path = Some(path.display().to_string());
    let wanted = ImportTemplate { name: name.to_owned(), path, ..ImportTemplate::default() };
    client.make_template(&wanted).await?.finish().await
}

#[tokio::test]
async fn only_the_owner_of_the_socket_names_any_path_of_the_host() -> Result<()> {
    let home = tempfile::tempdir_in("/var/tmp")?;
    let (allowed, secret) = (home.path().join("allowed"), home.path().join("secret"));
    for folder in [allowed.join("tree"), secret.clone()] {
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("file"), "content")?;
    }
    symlink(&secret, allowed.join("out"))?;
    symlink("../secret", allowed.join("up"))?;
    let folders = ("ROOST_TEMPLATE_FOLDERS".to_owned(), allowed.display().to_string());
    let daemon = Daemon::with(Options { tcp: true, environment: vec![folders], ..Options::default() }).await?;
    let owner = daemon.client();
    let token = owner.mint_token("any").await?;
    let address = daemon.address().context("it listens")?;
    let anybody = Client::http(&format!("http://{address}"), Some(&token.secret))?;

    for path in [&secret, &allowed.join("out"), &allowed.join("up"), &allowed.join("../secret"), Path::new("/etc")] {
        let refused = by_path(&anybody, "refused", path).await.expect_err("it is not theirs");
        assert_eq!(refused.code(), Some(ErrorCode::Forbidden), "{}: {refused}", path.display());
        ensure!(refused.hint().is_some_and(|hint| hint.contains("template_folders")), "no hint: {refused:?}");
    }
    by_path(&anybody, "allowed", &allowed.join("tree")).await?;
    by_path(&owner, "any", &secret).await?;
    by_path(&owner, "linked", &allowed.join("out")).await?;
    Ok(())
}

async fn deep_folders_are_removed_and_moved_by_the_file_api(wall: Wall) -> Result<()> {
    let daemon = wall.daemon(true).await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let client = daemon.client();
    let work = sandbox.spawn("sleep 1000").await?;
    let make = "import os, sys\nos.makedirs(sys.argv[1])\nos.chdir(sys.argv[1])\n\
                for _ in range(6000):\n os.mkdir('d')\n os.chdir('d')\nopen('file', 'w').close()\n";
    sandbox.write("/tmp/make.py", make).await?;
    sandbox.sh_ok("python3 /tmp/make.py /tmp/deep").await?;
    client.remove_file("box", "/tmp/deep", true).await?;
    sandbox.sh_ok("test ! -e /tmp/deep && python3 /tmp/make.py /tmp/deep").await?;
    // To another filesystem, so each folder is copied.
    client.move_file("box", "/tmp/deep", "/dev/shm/deep").await?;
    sandbox.sh_ok("test ! -e /tmp/deep && test -d /dev/shm/deep/d/d/d").await?;
    client.remove_file("box", "/dev/shm/deep", true).await?;
    sandbox.sh_ok("test ! -e /dev/shm/deep").await?;
    assert_eq!(client.exec("box", work.id.as_str()).await?.status, ExecState::Running);
    Ok(())
}

async fn endless_files_are_refused_by_the_file_api(wall: Wall) -> Result<()> {
    let daemon = wall.daemon(false).await?;
    let sandbox = daemon.sandbox("box").await?;
    let client = daemon.client();
    sandbox.root_ok("ln -s /dev/ptmx /tmp/link; mkfifo /tmp/pipe; ls /proc/1/fd > /tmp/before").await?;
    for _ in 0..5 {
        for path in ["/dev/ptmx", "/tmp/link", "/dev/zero", "/dev/tty", "/tmp/pipe", "/proc/1/mem"] {
            let refused = sandbox.read(path).await.expect_err("it has no end");
            let code = refused.code().with_context(|| format!("{path}: {refused}"))?;
            ensure!(matches!(code, ErrorCode::BadRequest | ErrorCode::PermissionDenied), "{path}: {refused}");
        }
        for path in ["/dev/tty", "/tmp/pipe"] {
            let content = Upload::bytes(b"x".to_vec());
            let refused = client.write_file("box", path, content, &WriteOptions::default()).await.expect_err("no file");
            assert_eq!(refused.code(), Some(ErrorCode::BadRequest), "{path}: {refused}");
        }
    }
    let status = sandbox.read("/proc/self/status").await?;
    ensure!(status.starts_with(b"Name:"), "{}", String::from_utf8_lossy(&status));
    ensure!(!daemon.log_tail().contains("ERROR"), "{}", daemon.log_tail());
    // None of them left a descriptor in the guest.
    let few = "most=$(($(wc -l < /tmp/before) + 8)); for try in $(seq 100); do now=$(ls /proc/1/fd | wc -l); \
               [ $now -le $most ] && exit; sleep 0.1; done; ls -l /proc/1/fd; exit 1";
    sandbox.root_ok(few).await?;
    Ok(())
}
