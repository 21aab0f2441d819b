//! Memory and processes saved by CRIU and brought back.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::pin::pin;
use std::time::Duration;

use roost_engine::{Dumped, Engine, EngineError, Presence, StartSpec, UID_RANGES};
use roost_engine_native::{NativeConfig, NativeEngine};

use crate::support::Bench;

/// Seconds of real time that pass while a sandbox is saved; clocks inside tell whether they noticed.
const GAP: Duration = Duration::from_secs(2);

async fn save(bench: &Bench, spec: &StartSpec) -> (tempfile::TempDir, Dumped) {
    let image = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    bench.engine.freeze(&spec.id).await.unwrap();
    let dumped = bench.engine.dump(&spec.id, image.path(), u64::MAX).await.unwrap();
    (image, dumped)
}

/// Starts a sandbox, runs `prepare`, saves it, ends it, restores it.
async fn through_an_image(bench: &Bench, prepare: &str) -> (StartSpec, Dumped) {
    let spec = bench.spec();
    bench.engine.start(spec.clone()).await.unwrap();
    let (code, output) = bench.shell(&spec.id, prepare).await;
    assert_eq!(code, 0, "{output}");
    let (image, dumped) = save(bench, &spec).await;
    bench.engine.kill(&spec.id).await.unwrap();
    bench.engine.restore(spec.clone(), image.path()).await.unwrap();
    (spec, dumped)
}

async fn output(bench: &Bench, spec: &StartSpec, command: &str) -> String {
    bench.shell(&spec.id, command).await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_files_and_tmpfs_come_back() {
    let bench = Bench::new().await;
    let prepare = "
        dd if=/dev/urandom of=/dev/shm/big bs=1M count=4 2>/dev/null; sha256sum /dev/shm/big > /tmp/sum
        exec 7> /tmp/deleted; echo unlinked >&7; rm /tmp/deleted
        mkfifo /tmp/ask /tmp/answer
        (value=secret; exec 8<> /tmp/ask 9<> /tmp/answer; while read line <&8; do echo \"$value $line\" >&9; done) >/dev/null 2>&1 &
        yes | head -c 1000000 | (cat > /dev/null; sleep 600) >/dev/null 2>&1 &
        until pidof sleep >/dev/null; do :; done";
    let (spec, dumped) = through_an_image(&bench, prepare).await;
    assert!(dumped.processes.iter().any(|process| process.name == "sleep"), "{dumped:?}");
    let check = "sha256sum -c /tmp/sum; echo 1 > /tmp/ask; read line < /tmp/answer; echo $line; pidof sleep | wc -w";
    assert_eq!(output(&bench, &spec, check).await, "/dev/shm/big: OK\nsecret 1\n1\n");
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_folders_in_memory_hold_comes_back_as_it_was() {
    let bench = Bench::new().await;
    let usual = "cd /dev/shm && mkdir -p a/b && echo one > a/b/file && ln -s ../b/file a/link && : > empty &&
        chmod 4640 a/b/file && chown 1000:1001 a/b/file && chown -h 7:8 a/link && chmod 500 a/b && chown 9:9 a/b &&
        touch -d '2001-09-09 01:46:40' a/b/file a/b a";
    // A pipe, a second name and a hole are more than the launcher packs by itself.
    let unusual = "cd /dev/shm && mkfifo -m 600 pipe && ln a/b/file again && truncate -s 1M hole";
    let look =
        "find /dev/shm | sort | while read -r name; do stat -c '%n %f %u:%g %Y %h %b' \"$name\"; readlink \"$name\";
        [ -f \"$name\" ] && cat \"$name\" | sha256sum; done";
    let (spec, _) = through_an_image(&bench, "true").await;
    for change in [usual, unusual] {
        let (code, said) = bench.shell(&spec.id, change).await;
        assert_eq!(code, 0, "{said}");
        let before = output(&bench, &spec, look).await;
        let (image, _) = save(&bench, &spec).await;
        bench.engine.kill(&spec.id).await.unwrap();
        bench.engine.restore(spec.clone(), image.path()).await.unwrap();
        assert_eq!(output(&bench, &spec, look).await, before);
    }
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_restored_sandbox_may_do_is_what_it_might_before() {
    let bench = Bench::new().await;
    let spec = bench.spec();
    bench.engine.start(spec.clone()).await.unwrap();
    // Numbers of mounts and devices change, and the host's names of its users do; what is mounted how does not.
    let look = "grep -hE '^(Cap|Seccomp|NoNewPrivs|Uid|Gid)' /proc/1/status; cat /proc/1/uid_map /proc/1/cgroup;
        cut -d' ' -f4- /proc/self/mountinfo | grep -v ' - overlay ' | sort; hostname; cat /proc/sys/net/ipv4/ip_nonlocal_bind";
    let before = output(&bench, &spec, look).await;
    let (image, _) = save(&bench, &spec).await;
    bench.engine.kill(&spec.id).await.unwrap();
    bench.engine.restore(spec.clone(), image.path()).await.unwrap();
    assert_eq!(output(&bench, &spec, look).await, before);
    for forbidden in
        ["umount /proc/keys", "mount -t tmpfs none /tmp", "unshare -U true", "echo 1 > /proc/sys/kernel/sysrq"]
    {
        assert_ne!(bench.shell(&spec.id, forbidden).await.0, 0, "{forbidden}");
    }
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn monotonic_clocks_go_on_and_the_wall_clock_is_right() {
    let bench = Bench::new().await;
    let spec = bench.spec();
    bench.engine.start(spec.clone()).await.unwrap();
    let clocks = "cut -d' ' -f1 /proc/uptime; date +%s";
    let read = |text: String| {
        let mut numbers = text.lines().map(|line| line.parse::<f64>().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    };
    let (uptime, wall) = read(output(&bench, &spec, clocks).await);
    let (image, _) = save(&bench, &spec).await;
    bench.engine.kill(&spec.id).await.unwrap();
    tokio::time::sleep(GAP).await;
    bench.engine.restore(spec.clone(), image.path()).await.unwrap();
    let (uptime_after, wall_after) = read(output(&bench, &spec, clocks).await);
    assert!(wall_after - wall >= GAP.as_secs_f64() - 1.0, "{wall} to {wall_after}");
    let noticed = uptime_after - uptime;
    assert!(noticed >= 0.0 && noticed < (wall_after - wall) - GAP.as_secs_f64() + 1.5, "{uptime} to {uptime_after}");
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_inside_live_on_and_those_to_outside_end() {
    let bench = Bench::new().await;
    let prepare = "
        mkfifo /tmp/a /tmp/b /tmp/c /tmp/d
        (exec 8<> /tmp/a; nc -l -p 4000 <&8 > /tmp/inside) >/dev/null 2>&1 &
        (exec 8<> /tmp/b; nc -l -p 5000 <&8) >/dev/null 2>&1 &
        until netstat -ltn | grep -q :4000 && netstat -ltn | grep -q :5000; do :; done
        (exec 8<> /tmp/c; nc 127.0.0.1 4000 <&8) >/dev/null 2>&1 &
        (exec 8<> /tmp/d; nc 10.0.0.1 5000 <&8; echo ended > /tmp/ended) >/dev/null 2>&1 &
        until [ $(netstat -tn | grep -cE ':(4000|5000) .*ESTABLISHED') = 4 ]; do :; done";
    let (spec, dumped) = through_an_image(&bench, prepare).await;
    // Both ends of it are inside here, so it is counted twice.
    assert_eq!(dumped.not_kept.len(), 2, "{:?}", dumped.not_kept);
    assert!(dumped.not_kept.iter().any(|lost| lost.what.ends_with("to 10.0.0.1 port 5000")), "{:?}", dumped.not_kept);
    let check = "until [ -e /tmp/ended ]; do :; done; echo through > /tmp/c; until [ -s /tmp/inside ]; do :; done; cat /tmp/inside";
    assert_eq!(output(&bench, &spec, check).await, "through\n");
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_saved_is_named_and_goes_on() {
    let bench = Bench::new().await;
    let spec = bench.spec();
    let id = spec.id.clone();
    bench.engine.start(spec).await.unwrap();
    let stubborn = "touch /tmp/a; ln /tmp/a /tmp/b; (exec 9< /tmp/a; rm /tmp/a; exec sleep 600) >/dev/null 2>&1 & until pidof sleep >/dev/null; do :; done";
    bench.shell(&id, stubborn).await;
    let image = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    bench.engine.freeze(&id).await.unwrap();
    match bench.engine.dump(&id, image.path(), u64::MAX).await {
        Err(EngineError::NotSaved { process: Some(process), why, .. }) => {
            assert!(process.starts_with("sleep (pid "), "{process}");
            assert!(why.contains("another name"), "{why}");
        }
        other => panic!("a refusal with a process: {other:?}"),
    }
    assert_eq!(bench.engine.inspect(&id).await.unwrap(), roost_engine::Presence::Frozen);
    bench.engine.thaw(&id).await.unwrap();
    assert_eq!(bench.shell(&id, "pidof sleep | wc -w").await.1, "1\n");
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_does_not_change_once_its_processes_are_saved() {
    let bench = Bench::new().await;
    let spec = bench.spec();
    bench.engine.start(spec.clone()).await.unwrap();
    bench.shell(&spec.id, "(i=0; while :; do i=$((i+1)); echo $i > /tmp/count; done) >/dev/null 2>&1 & until [ -s /tmp/count ]; do :; done").await;
    for _ in 0..5 {
        let (image, _) = save(&bench, &spec).await;
        let count = bench.disk(&spec.id).join("root/tmp/count");
        let saved = std::fs::read(&count).unwrap();
        bench.engine.kill(&spec.id).await.unwrap();
        assert_eq!(std::fs::read(&count).unwrap(), saved);
        bench.engine.restore(spec.clone(), image.path()).await.unwrap();
    }
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

/// The kernel takes ids above 2^31 in fewer places.
#[tokio::test(flavor = "multi_thread")]
async fn sandbox_of_the_last_range_comes_back_with_its_users_and_pings() {
    let bench = Bench::new().await;
    let spec = StartSpec { uid_range: UID_RANGES - 1, ..bench.spec() };
    bench.engine.start(spec.clone()).await.unwrap();
    let look = "id -u; stat -c %u /etc /root/mark; cat /proc/sys/net/ipv4/ping_group_range";
    let (_, before) = bench.shell(&spec.id, &format!("touch /root/mark; chown 1000 /root/mark; {look}")).await;
    assert_eq!(before.split_whitespace().collect::<Vec<_>>(), ["0", "0", "1000", "0", "65535"], "{before}");
    let (image, _) = save(&bench, &spec).await;
    bench.engine.kill(&spec.id).await.unwrap();
    bench.engine.restore(spec.clone(), image.path()).await.unwrap();
    assert_eq!(bench.shell(&spec.id, look).await, (0, before));
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_another_kind_is_refused() {
    let bench = Bench::new().await;
    let spec = bench.spec();
    bench.engine.start(spec.clone()).await.unwrap();
    let (image, _) = save(&bench, &spec).await;
    bench.engine.kill(&spec.id).await.unwrap();
    let other_users = StartSpec { uid_range: (spec.uid_range + 1) % UID_RANGES, ..spec.clone() };
    let refused = bench.engine.restore(other_users, image.path()).await;
    assert!(matches!(&refused, Err(EngineError::ImageUnfit { why, .. }) if why.contains("users")), "{refused:?}");
    let info = image.path().join("engine.json");
    let text = std::fs::read_to_string(&info).unwrap();
    std::fs::write(&info, text.replace("criu 4", "criu 3")).unwrap();
    let refused = bench.engine.restore(spec.clone(), image.path()).await;
    assert!(matches!(&refused, Err(EngineError::ImageUnfit { why, .. }) if why.contains("criu 3")), "{refused:?}");
    std::fs::write(&info, text).unwrap();
    std::fs::write(image.path().join("pstree.img"), "broken").unwrap();
    let refused = bench.engine.restore(spec.clone(), image.path()).await;
    assert!(matches!(&refused, Err(EngineError::ImageUnfit { .. })), "{refused:?}");
    assert_eq!(bench.engine.inspect(&spec.id).await.unwrap(), roost_engine::Presence::Absent);
    bench.finish().await;
}

/// A program that holds much memory of its own: what it was given goes in and out through its sums.
const HOLD_MUCH: &str = "
    mkfifo /tmp/in /tmp/go
    (tail -c 110000000 < /tmp/in | sha256sum > /tmp/after) >/dev/null 2>&1 &
    (exec 7> /tmp/in; head -c 110000000 /dev/urandom | tee /tmp/in | sha256sum > /tmp/before; read line < /tmp/go) >/dev/null 2>&1 &
    until [ -s /tmp/before ]; do :; done";
const IS_IT_THERE: &str =
    "echo go > /tmp/go; until [ -s /tmp/after ]; do :; done; cmp /tmp/before /tmp/after && echo equal";

#[tokio::test(flavor = "multi_thread")]
async fn much_memory_comes_while_it_runs_already() {
    let bench = Bench::new().await;
    let spec = bench.spec();
    bench.engine.start(spec.clone()).await.unwrap();
    let (code, said) = bench.shell(&spec.id, HOLD_MUCH).await;
    assert_eq!(code, 0, "{said}");
    let mut image = save(&bench, &spec).await.0;
    // Saved again before all of it is there, as far as the test can be quick enough; nobody needs the image after that.
    for _ in 0..5 {
        bench.engine.kill(&spec.id).await.unwrap();
        let running = bench.engine.restore(spec.clone(), image.path()).await.unwrap();
        image.close().unwrap();
        assert!(running.parts_us.iter().any(|(part, _)| *part == "pages served"), "{running:?}");
        image = save(&bench, &spec).await.0;
        bench.engine.thaw(&spec.id).await.unwrap();
    }
    assert_eq!(output(&bench, &spec, IS_IT_THERE).await, "equal\n");
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_moves_while_it_is_saved_is_saved_at_the_next_attempt() {
    let moved = "recv failed (0, want 444): Invalid argument";
    let (bench, failures) = Bench::with_criu_that_fails(moved).await;
    let spec = bench.spec();
    bench.engine.start(spec.clone()).await.unwrap();
    std::fs::write(&failures, "\n\n").unwrap();
    let (image, _) = save(&bench, &spec).await;
    assert_eq!(std::fs::read_to_string(&failures).unwrap(), "", "it gave up twice");
    bench.engine.kill(&spec.id).await.unwrap();
    bench.engine.restore(spec.clone(), image.path()).await.unwrap();
    assert_eq!(output(&bench, &spec, "echo well").await, "well\n");

    // What never stops moving is named in the end, and the sandbox goes on.
    std::fs::write(&failures, "\n".repeat(100)).unwrap();
    bench.engine.freeze(&spec.id).await.unwrap();
    let refused = bench.engine.dump(&spec.id, image.path(), u64::MAX).await.unwrap_err();
    assert!(matches!(&refused, EngineError::NotSaved { why, .. } if why == moved), "{refused}");
    bench.engine.thaw(&spec.id).await.unwrap();
    assert_eq!(output(&bench, &spec, "echo well").await, "well\n");
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_whom_an_earlier_daemon_saves_is_waited_for() {
    let bench = Bench::new().await;
    let (saved, other) = (bench.spec(), bench.spec());
    bench.engine.start(saved.clone()).await.unwrap();
    bench.engine.start(other.clone()).await.unwrap();
    bench.engine.freeze(&saved.id).await.unwrap();
    // What a launcher holds for as long as its CRIU is at it.
    let lock = SocketAddr::from_abstract_name(format!("roost-{}-dump-{}", bench.config.tag, saved.id)).unwrap();
    let lock = UnixDatagram::bind_addr(&lock).unwrap();

    let next = NativeEngine::open(NativeConfig { reserve: 0, ..bench.config.clone() }).await.unwrap();
    assert_eq!(next.inspect(&other.id).await.unwrap(), Presence::Running);
    let mut look = pin!(next.inspect(&saved.id));
    tokio::time::timeout(Duration::from_millis(100), &mut look).await.unwrap_err();
    drop(lock);
    assert_eq!(look.await.unwrap(), Presence::Frozen);
    for spec in [&saved, &other] {
        bench.engine.kill(&spec.id).await.unwrap();
    }
    next.close().await;
    bench.finish().await;
}
