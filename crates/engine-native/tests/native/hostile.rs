//! A sandbox's root tries what it must not be able to do.

use roost_engine::Engine;

use crate::support::Bench;

/// Runs `command` as root inside a fresh sandbox that must answer afterwards, and returns its code and output.
async fn attempt(command: &str) -> (i32, String) {
    let bench = Bench::new().await;
    let id = bench.start().await;
    let outcome = bench.shell(&id, command).await;
    assert_eq!(bench.shell(&id, "echo alive").await.1, "alive\n", "after {command}");
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
    outcome
}

async fn refused(commands: &[&str]) {
    let bench = Bench::new().await;
    let id = bench.start().await;
    for command in commands {
        let (code, output) = bench.shell(&id, command).await;
        assert_ne!(code, 0, "`{command}` went through: {output}");
    }
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_and_mounts_are_out_of_reach() {
    refused(&[
        "mknod /tmp/disk b 254 0",
        "mknod /tmp/mem c 1 1",
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /sys",
        "mount -o bind / /tmp",
        "mount -o remount,rw /proc/sys",
        "umount /proc/sys",
        "umount -l /proc",
        "pivot_root / /tmp",
        "swapon /tmp",
        "losetup /dev/loop0 /bin/busybox",
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernels_switches_are_out_of_reach() {
    refused(&[
        "echo 1 > /proc/sys/kernel/sysrq",
        "echo core > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/vm/drop_caches",
        "echo b > /proc/sysrq-trigger",
        "echo 0 > /sys/kernel/mm/transparent_hugepage/enabled",
        "insmod /bin/busybox",
        "date -s 2001-01-01; [ $(date +%Y) = 2001 ]",
        "hwclock -w",
        "dmesg -c",
        "echo -1000 > /proc/1/oom_score_adj",
        "echo -1 > /proc/self/oom_score_adj",
        "test -s /proc/kcore",
        "test -s /proc/keys",
        "ls /sys/firmware/*",
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_do_not_nest() {
    refused(&[
        "unshare -U true",
        "unshare -r true",
        "unshare -m true",
        "unshare -p true",
        "unshare -n true",
        "nsenter -t 1 -m true",
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduling_stays_ordinary() {
    // Nice value and policy of PID 1 and of a process of its own, then the highest real-time priority one may ask for.
    let (code, output) =
        attempt("for p in 1 self; do cut -d' ' -f19,41 /proc/$p/stat; done; ulimit -r; nice -n -5 true 2> /dev/null")
            .await;
    assert_eq!(output.lines().take(3).collect::<Vec<_>>(), ["0 0", "0 0", "0"], "{output}");
    assert_ne!(code, 0, "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_processes_are_not_in_sight() {
    let (_, output) =
        attempt("ls /proc | grep -c '^[0-9]*$'; cat /proc/1/root/etc/hostname /proc/1/cwd/etc/shadow").await;
    let count: u32 = output.lines().next().unwrap().parse().unwrap();
    assert!(count < 10, "{output}");
    refused(&["kill -0 4000000", "kill -9 $(( $(cat /proc/sys/kernel/pid_max) - 1 ))"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_stays_inside() {
    let bench = Bench::new().await;
    let bomb = bench.start().await;
    let neighbour = bench.start().await;
    // In the background and a moment later, or the guest has no room left to follow its own exec.
    // Each round leaves one that stays: shells that cannot fork give up, and the bomb would die out.
    bench.shell(&bomb, "(sleep 1; b() { sleep 600 & b | b & }; b) > /dev/null 2>&1 &").await;
    let mut most = 0;
    let full = async {
        while most < 100 {
            most = bench.engine.usage(&bomb).await.unwrap().pids;
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), full).await.expect("the bomb goes off");
    assert!(most <= 128, "{most} processes");
    assert_eq!(bench.shell(&neighbour, "echo fine").await.1, "fine\n");
    bench.engine.kill(&bomb).await.unwrap();
    bench.engine.kill(&neighbour).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_runs_out_for_a_process_and_not_for_the_sandbox() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    let (code, _) = bench.shell(&id, "x=a; while true; do x=$x$x; done").await;
    assert_ne!(code, 0);
    let (code, _) = bench.shell(&id, "cat /dev/zero > /dev/shm/fill").await;
    assert_ne!(code, 0);
    assert_eq!(bench.shell(&id, "rm /dev/shm/fill; echo alive").await.1, "alive\n");
    assert!(bench.engine.usage(&id).await.unwrap().oom_kills >= 1);
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guest_cannot_be_replaced() {
    refused(&[
        "echo x > /run/roost/guest",
        "rm /run/roost/guest",
        "mv /run/roost/guest /tmp/guest",
        "echo x > /proc/1/exe",
        "chmod 777 /run/roost/guest",
    ])
    .await;
}
