//! Attacks from inside, each tried for real: refused or contained, with host and neighbours healthy.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use roost_e2e::wall::Wall;
use roost_e2e::{Canary, Daemon, Options, behind_each_wall};
use roost_model::{CreateSandbox, EventKind, LimitsRequest, StartExec};

behind_each_wall!(
    a_fork_bomb_stays_inside_its_limit,
    a_memory_hog_dies_and_its_sandbox_does_not,
    a_full_disk_is_an_error_inside_and_nothing_else,
    devices_and_mounts_are_refused,
    namespaces_do_not_nest,
    processes_elsewhere_cannot_be_seen_or_signalled,
    the_kernel_cannot_be_configured,
    dangerous_calls_are_refused_for_root_and_user,
    host_files_cannot_be_read_or_written,
    the_daemon_is_out_of_reach,
);

fn limited(name: &str, limits: LimitsRequest) -> CreateSandbox {
    CreateSandbox { name: Some(name.to_owned()), limits: Some(limits), ..CreateSandbox::default() }
}

async fn a_fork_bomb_stays_inside_its_limit(wall: Wall) -> Result<()> {
    let daemon = wall.daemon(true).await?;
    let neighbour = daemon.sandbox("neighbour").await?;
    // Where the end of it is awaited it shall not take long.
    let (pids, cpus) = if wall.limits_end_all { (32, 1.0) } else { (128, 0.5) };
    let limits = LimitsRequest { pids: Some(pids), cpus: Some(cpus), ..LimitsRequest::default() };
    let request = CreateSandbox { template: Some("base".to_owned()), ..limited("box", limits) };
    let sandbox = daemon.sandbox_with(request).await?;

    // A shell gives up at the first fork that fails; this one never does.
    sandbox.write("/tmp/bomb.py", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n").await?;
    let before = sandbox.newest_event().await?;
    sandbox.spawn("exec python3 /tmp/bomb.py").await?;
    if wall.limits_end_all {
        let ended = sandbox.happens_after(before, EventKind::Crashed).await?.reason.unwrap_or_default();
        ensure!(ended.contains("its limit of 32 processes was reached"), "{ended}");
        neighbour.answers().await?;
        return sandbox.answers().await;
    }
    let (began, mut most) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(4) {
        neighbour.answers().await?;
        most = most.max(daemon.client().stats("box").await?.pids);
        ensure!(most <= 128, "{most} processes in a sandbox of 128");
        // With no process to spare a command may be refused, but the sandbox says so instead of hanging.
        let asked = tokio::time::timeout(Duration::from_secs(10), sandbox.sh("true")).await;
        ensure!(asked.is_ok(), "the sandbox hangs");
    }
    ensure!(most > 100, "the bomb did not go off: {most} processes at most");
    tokio::time::timeout(Duration::from_secs(10), sandbox.delete()).await??;
    neighbour.answers().await
}

async fn a_memory_hog_dies_and_its_sandbox_does_not(wall: Wall) -> Result<()> {
    let daemon = wall.daemon(false).await?;
    let neighbour = daemon.sandbox("neighbour").await?;
    let request = limited("box", LimitsRequest { memory: Some(64 << 20), ..LimitsRequest::default() });
    let sandbox = daemon.sandbox_with(request).await?;
    let quiet = sandbox.spawn("while :; do sleep 1; done").await?;

    let hog = sandbox.sh(r#"awk 'BEGIN { s = "x"; while (1) s = s s }'"#).await?;
    // Behind gVisor's wall it loses the host's process that it ran in, which is no signal inside.
    ensure!(if wall.own_kernel { hog.exit_code != 0 } else { hog.exit_code == 137 }, "{hog:?}");
    sandbox.answers().await?;
    let still = daemon.client().exec("box", quiet.id.as_str()).await?;
    assert_eq!(still.status, quiet.status);
    ensure!(wall.own_kernel || daemon.client().stats("box").await?.oom_kills >= 1);

    // Files in memory count too.
    sandbox.sh("dd if=/dev/zero of=/dev/shm/big bs=1M count=500; rm -f /dev/shm/big").await?;
    sandbox.answers().await?;
    neighbour.answers().await
}

async fn a_full_disk_is_an_error_inside_and_nothing_else(wall: Wall) -> Result<()> {
    let daemon = wall.daemon(false).await?;
    let neighbour = daemon.sandbox("neighbour").await?;
    let request = limited("box", LimitsRequest { disk: Some(64 << 20), ..LimitsRequest::default() });
    let sandbox = daemon.sandbox_with(request).await?;

    let full = sandbox.refuses("dd if=/dev/urandom of=/root/big bs=1M count=300").await?;
    ensure!(full.stderr.contains("quota") || full.stderr.contains("No space"), "{}", full.stderr);
    let refused = sandbox.write("/root/more", &"more".repeat(1 << 20)).await;
    let refused = refused.expect_err("the disk is full");
    assert_eq!(refused.code(), Some(roost_model::ErrorCode::DiskFull), "{refused}");
    neighbour.sh_ok("dd if=/dev/urandom of=/root/mine bs=1M count=100 && rm /root/mine").await?;
    sandbox.answers().await?;
    // Whoever sleeps with a full disk can make room on it when it starts anew.
    sandbox.sh_ok("sync").await?;
    sandbox.suspend(roost_model::Level::Files).await?;
    sandbox.sh_ok("rm /root/big && sync && echo small > /root/small").await?;
    neighbour.answers().await
}

async fn devices_and_mounts_are_refused(wall: Wall) -> Result<()> {
    let daemon = wall.daemon(false).await?;
    let sandbox = daemon.sandbox("box").await?;
    let lines = [
        "mknod /root/disk b 254 0",
        "mknod /root/memory c 1 1",
        "mknod /root/null c 1 3",
        "ls /dev/mem /dev/kmem /dev/kmsg /dev/loop-control /dev/kvm 2>/dev/null | grep .",
        "ls /dev/fuse",
        "ls /dev | grep -E '^(vd|sd|nvme|loop|dm-)'",
        "mount -t tmpfs none /mnt",
        "mount -t proc none /mnt",
        "mount -o bind / /mnt",
        "mount -o remount,rw /",
        "mount -o remount,rw /proc/sys",
        "mount -o remount,rw /sys",
        "mount -t cgroup2 none /mnt",
        "umount /proc/sys",
        "umount -l /proc",
        "losetup -f /etc/passwd",
        "swapon /etc/passwd",
        "chroot / mount -t tmpfs none /mnt",
        "echo 1 > /sys/kernel/uevent_helper",
        "mkdir /sys/fs/cgroup/escape",
    ];
    wall.refuses(&sandbox, &lines, &["ls /dev/fuse"]).await?;
    // Devices that a program needs work.
    sandbox.sh_ok("head -c 8 /dev/urandom | wc -c; echo x > /dev/null; head -c 4 /dev/zero | wc -c").await?;
    sandbox.answers().await
}

async fn namespaces_do_not_nest(wall: Wall) -> Result<()> {
    let daemon = wall.daemon(false).await?;
    let sandbox = daemon.sandbox("box").await?;
    let lines = [
        "unshare -U true",
        "unshare -r true",
        "unshare -Ur id",
        "unshare -m true",
        "unshare -n true",
        "unshare -p true",
    ];
    wall.refuses(&sandbox, &lines, &["unshare -U true"]).await?;
    for line in ["unshare -U true", "unshare -m true"].into_iter().skip(usize::from(wall.own_kernel)) {
        let request = StartExec { shell: Some(line.to_owned()), user: Some("user".to_owned()), ..StartExec::default() };
        ensure!(sandbox.run(&request).await?.exit_code != 0, "`{line}` works for an ordinary user");
    }
    Ok(())
}

async fn processes_elsewhere_cannot_be_seen_or_signalled(wall: Wall) -> Result<()> {
    let daemon = wall.daemon(false).await?;
    let sandbox = daemon.sandbox("box").await?;
    let neighbour = daemon.sandbox("neighbour").await?;
    let work = neighbour.spawn("while :; do sleep 1; done").await?;
    let test = std::process::id();
    let daemon_pid = daemon.pid()?;
    for pid in [test, daemon_pid] {
        sandbox.refuses(&format!("kill -0 {pid}")).await?;
        sandbox.refuses(&format!("ls /proc/{pid}")).await?;
    }
    let seen: u64 = sandbox.sh_ok("ls -d /proc/[0-9]* | wc -l").await?.parse()?;
    ensure!(seen < 10, "{seen} processes are visible");
    // Everything it may signal, at once: itself.
    sandbox.sh("kill -KILL -1").await?;
    sandbox.answers().await?;
    let still = daemon.client().exec("neighbour", work.id.as_str()).await?;
    assert_eq!(still.status, work.status);
    neighbour.answers().await
}

async fn the_kernel_cannot_be_configured(wall: Wall) -> Result<()> {
    let daemon = wall.daemon(false).await?;
    let sandbox = daemon.sandbox("box").await?;
    // Where a write would do harm, what is written is what is there already.
    let lines = [
        "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern",
        "cat /proc/sys/vm/overcommit_memory > /proc/sys/vm/overcommit_memory",
        "cat /proc/sys/kernel/randomize_va_space > /proc/sys/kernel/randomize_va_space",
        "cat /proc/sys/fs/file-max > /proc/sys/fs/file-max",
        "echo h > /proc/sysrq-trigger",
        "! date -s @$(date +%s) 2>&1 | grep 'not permitted'",
        "hwclock -w",
        "insmod /bin/busybox",
        "rmmod loop",
        "dmesg",
        "reboot -f",
        "chrt -f 1 true",
        "chrt -r 1 true",
        "echo -1000 > /proc/self/oom_score_adj",
        "cat /proc/kcore | head -c 1 | grep -q .",
        "head -c 1 /proc/keys | grep -q .",
        "ls /sys/firmware | grep .",
        "ls /proc/scsi | grep .",
    ];
    wall.refuses(&sandbox, &lines, &["dmesg", "echo -1000 > /proc/self/oom_score_adj"]).await?;
    sandbox.answers().await
}

/// Calls that have no command: each is made by its number, and must be refused.
const CALLS: &str = r#"
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
calls = {
    "io_uring_setup": (425, 8, 0), "io_uring_enter": (426, 0, 0), "io_uring_register": (427, 0, 0), "bpf": (321, 0, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0), "request_key": (249, 0, 0, 0, 0), "keyctl": (250, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0), "kexec_file_load": (320, -1, -1, 0, 0, 0),
    "init_module": (175, 0, 0, 0), "finit_module": (313, -1, 0, 0), "delete_module": (176, 0, 0),
    "perf_event_open": (298, 0, 0, 0, -1, 0), "userfaultfd": (323, 0), "open_by_handle_at": (304, -1, 0, 0),
    "clone with a user namespace": (56, 0x10000000 | 17, 0, 0, 0, 0), "unshare of a user namespace": (272, 0x10000000),
    "reboot": (169, 0, 0, 0, 0), "swapon": (167, 0, 0), "iopl": (172, 3), "ioperm": (173, 0, 1, 1), "acct": (163, 0),
    "settimeofday": (164, 0, 0), "clock_settime": (227, 0, 0), "quotactl": (179, 0, 0, 0, 0), "setns": (308, -1, 0x10000000),
    "pivot_root": (155, 0, 0), "syslog": (103, 3, 0, 0),
}
# A kernel of its own may say no in words of its own, and lets a process have namespaces and messages of that kernel.
own = sys.argv[1:] == ["own"]
allowed = ("clone with a user namespace", "unshare of a user namespace", "syslog") if own else ()
for name, (number, *arguments) in calls.items():
    ctypes.set_errno(0)
    result = libc.syscall(number, *[ctypes.c_long(a) for a in arguments])
    if result == 0 and number == 56:
        libc._exit(0)
    error = ctypes.get_errno()
    if name in allowed or (own and result == -1):
        continue
    if result != -1 or error not in (errno.EPERM, errno.ENOSYS, errno.EBADF if name == "setns" else errno.EPERM):
        print(f"{name}: result {result}, {errno.errorcode.get(error, error)}")
"#;

async fn dangerous_calls_are_refused_for_root_and_user(wall: Wall) -> Result<()> {
    let daemon = wall.daemon(true).await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    sandbox.write("/tmp/calls.py", CALLS).await?;
    let calls = if wall.own_kernel { "python3 /tmp/calls.py own" } else { "python3 /tmp/calls.py" };
    assert_eq!(sandbox.sh_ok(calls).await?, "");
    assert_eq!(sandbox.root_ok(calls).await?, "");
    // A debugger works on one's own processes, which is what programs need.
    sandbox
        .root_ok(
            "sleep 100 & python3 -c \"import ctypes,os,sys; trace = ctypes.CDLL(None).ptrace; \
                  sys.exit(trace(16, $!, 0, 0) or not os.waitpid($!, 0x40000000) or trace(17, $!, 0, 0))\"",
        )
        .await?;
    sandbox.answers().await
}

async fn host_files_cannot_be_read_or_written(wall: Wall) -> Result<()> {
    let canary = Canary::new()?;
    let daemon = wall.daemon(false).await?;
    let sandbox = daemon.sandbox("box").await?;
    let secret = canary.path().display().to_string();
    let absent = canary.absent().display().to_string();
    for start in ["", "/proc/1/root", "/proc/self/root", "/proc/1/cwd/../../../../../..", "/proc/self/cwd/../../../.."]
    {
        sandbox.refuses(&format!("cat {start}{secret}")).await?;
        ensure!(sandbox.read(&format!("{start}{secret}")).await.is_err());
    }
    // The file calls: dots, links to outside, links in the middle of a path, links out of the way of a new file.
    let up = "/..".repeat(12);
    sandbox
        .sh_ok(&format!("ln -s {up}{secret} /root/link; ln -s {up} /root/rise; ln -s {up}{absent} /root/new"))
        .await?;
    for path in [format!("{up}{secret}"), "/root/link".to_owned(), format!("/root/rise{secret}")] {
        ensure!(sandbox.read(&path).await.is_err(), "read {path}");
    }
    let listed = sandbox.client().list_files("box", "/root/rise/var/tmp").await?;
    ensure!(listed.entries.is_empty(), "the host's folder is listed: {listed:?}");
    for path in [format!("{up}{absent}"), "/root/new".to_owned(), format!("/root/rise{absent}")] {
        // It may be written: inside, where the path leads as the sandbox sees it.
        drop(sandbox.write(&path, "planted").await);
        ensure!(canary.untouched(), "a write to {path} came out");
    }
    let client = sandbox.client();
    drop(client.remove_file("box", &format!("/root/rise{secret}"), true).await);
    drop(client.move_file("box", "/etc/passwd", &format!("/root/rise{absent}")).await);
    drop(client.write_archive("box", "/root/rise", roost_client::Upload::bytes(slip(&absent)?), None).await);
    ensure!(canary.untouched(), "the host's file was changed");
    Ok(())
}

/// A tar stream that tries to leave the folder it is unpacked in, in every way a tar can.
fn slip(target: &str) -> Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |name: &str, kind: tar::EntryType, link: Option<&str>| -> Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        let content: &[u8] = if kind == tar::EntryType::Regular { b"slipped" } else { b"" };
        header.set_size(content.len() as u64);
        // Written raw: the builder refuses names that leave the folder.
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        if let Some(link) = link {
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        }
        header.set_cksum();
        Ok(builder.append(&header, content)?)
    };
    let folder = target.rsplit_once('/').map_or("/", |(folder, _)| folder);
    add("bin", tar::EntryType::Directory, None)?;
    add(&format!("../../../../../../../..{target}"), tar::EntryType::Regular, None)?;
    add(target, tar::EntryType::Regular, None)?;
    add("out", tar::EntryType::Symlink, Some(folder))?;
    add("out/absent", tar::EntryType::Regular, None)?;
    add("rise", tar::EntryType::Symlink, Some("../../../../../../.."))?;
    add(&format!("rise{target}"), tar::EntryType::Regular, None)?;
    add("hard", tar::EntryType::Link, Some(&format!("..{}{folder}/secret", "/..".repeat(8))))?;
    add("hard", tar::EntryType::Regular, None)?;
    Ok(builder.into_inner()?)
}

#[tokio::test]
async fn a_template_cannot_slip_out_of_its_folder() -> Result<()> {
    let canary = Canary::new()?;
    let daemon = Daemon::start().await?;
    let archive = slip(&canary.absent().display().to_string())?;
    let wanted = roost_client::TemplateUpload { name: "slippery".to_owned(), ..Default::default() };
    let outcome = daemon.client().upload_template(&wanted, roost_client::Upload::bytes(archive)).await;
    if let Ok(stream) = outcome {
        // Refused or contained: what came of it does not matter, where it came does.
        drop(stream.finish().await);
    }
    ensure!(canary.untouched(), "the import wrote outside its folder");
    daemon.sandbox("box").await?.answers().await
}

async fn the_daemon_is_out_of_reach(wall: Wall) -> Result<()> {
    let daemon = Daemon::with(Options { tcp: true, ..wall.options() }).await?;
    let sandbox = daemon.sandbox("box").await?;
    let port = daemon.address().and_then(|address| address.rsplit(':').next()).unwrap_or("7077");
    for address in ["127.0.0.1", "10.0.0.1", "localhost"] {
        sandbox.refuses(&format!("nc -w 2 {address} {port} </dev/null")).await?;
    }
    sandbox.refuses(&format!("ls {}", daemon.socket().display())).await?;
    sandbox.refuses("ls /run/roost/roost.sock").await?;
    // The guest listens inside, and answers nobody without the key.
    let garbage = sandbox.sh("head -c 4096 /dev/urandom | nc -w 2 10.0.0.2 1 | wc -c").await?;
    ensure!(garbage.stdout.trim().parse::<u64>().unwrap_or(0) < 1024, "{}", garbage.stdout);
    sandbox.answers().await
}
