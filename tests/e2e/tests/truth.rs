//! A sandbox describes itself by its own limits, and neither the host nor a neighbour shows.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Options, Sandbox};
use roost_model::{CreateSandbox, EngineKind, Fork, Level, LimitsRequest, PatchSandbox};

/// Files that speak of nothing but the host.
const EMPTY_FILES: [&str; 13] = [
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/partitions",
    "/proc/diskstats",
    "/proc/swaps",
    "/proc/vmstat",
    "/proc/zoneinfo",
    "/proc/buddyinfo",
    "/proc/interrupts",
    "/proc/softirqs",
    "/proc/schedstat",
    "/sys/kernel/vmcoreinfo",
    "/sys/kernel/notes",
];
/// Folders that speak of nothing but the host.
const EMPTY_FOLDERS: [&str; 6] =
    ["/proc/pressure", "/sys/kernel/btf", "/sys/fs/btrfs", "/sys/fs/ext4", "/sys/fs/xfs", "/sys/devices/system/node"];

const MIB: u64 = 1 << 20;

/// The size of a sandbox.
#[derive(Debug, Clone, Copy)]
struct Size {
    cpus: f64,
    /// The processors that programs count.
    processors: usize,
    memory: u64,
}

impl Size {
    fn new(cpus: f64, memory: u64) -> Result<Self> {
        let host = std::thread::available_parallelism()?.get();
        let processors = (1..host).find(|count| f64::from(u32::try_from(*count).unwrap_or(u32::MAX)) >= cpus);
        Ok(Self { cpus, processors: processors.unwrap_or(host), memory })
    }

    fn request(self) -> LimitsRequest {
        LimitsRequest { cpus: Some(self.cpus), memory: Some(self.memory), ..LimitsRequest::default() }
    }
}

async fn daemon() -> Result<Daemon> {
    let engine = Some(EngineKind::Native);
    Daemon::with(Options { engine, base: true, template: Some("base".to_owned()), ..Options::default() }).await
}

async fn sandbox(daemon: &Daemon, name: &str, size: Size) -> Result<Sandbox> {
    let limits = Some(size.request());
    daemon.sandbox_with(CreateSandbox { name: Some(name.to_owned()), limits, ..CreateSandbox::default() }).await
}

async fn set(sandbox: &Sandbox, size: Size) -> Result<()> {
    let patch = PatchSandbox { limits: Some(size.request()), ..PatchSandbox::default() };
    sandbox.client().patch_sandbox(sandbox.name(), &patch).await?;
    Ok(())
}

/// Returns the output of a line of shell as a number.
async fn number(sandbox: &Sandbox, line: &str) -> Result<f64> {
    let said = sandbox.sh_ok(line).await?;
    said.trim().parse().with_context(|| format!("`{line}` says {said:?}"))
}

/// Asks every program that sizes itself. The files follow a change within a second.
async fn agrees(sandbox: &Sandbox, size: Size) -> Result<()> {
    let Size { processors, memory, .. } = size;
    let kib = memory / 1024;
    sandbox.becomes_true(&format!("grep -q '^MemTotal: *{kib} kB' /proc/meminfo")).await?;
    sandbox.becomes_true(&format!("[ $(grep -c ^processor /proc/cpuinfo) = {processors} ]")).await?;
    let says = [
        ("free -m | awk '/^Mem:/ {print $2}'", memory / MIB),
        ("free -m | awk '/^Swap:/ {print $2}'", 0),
        ("nproc", processors as u64),
        ("getconf _NPROCESSORS_ONLN", processors as u64),
        ("grep -c '^cpu[0-9]' /proc/stat", processors as u64),
        ("python3 -c 'import os; print(os.cpu_count())'", processors as u64),
        ("python3 -c 'import os; print(len(os.sched_getaffinity(0)))'", processors as u64),
        ("node -p 'require(\"os\").availableParallelism()'", processors as u64),
        ("node -p 'require(\"os\").cpus().length'", processors as u64),
        ("node -p 'require(\"os\").totalmem()'", memory),
        ("node -p 'process.constrainedMemory()'", memory),
        ("cd /sys/fs/cgroup; cat memory.max 2>/dev/null || cat memory/memory.limit_in_bytes", memory),
    ];
    for (line, wanted) in says {
        let said = sandbox.sh_ok(line).await?;
        ensure!(said.trim() == wanted.to_string(), "`{line}` says {said:?}, and not {wanted}");
    }
    let heap = number(sandbox, "node -p 'v8.getHeapStatistics().heap_size_limit'").await?;
    ensure!(heap <= memory as f64, "node's heap may grow to {heap} bytes of {memory}");
    let free = number(sandbox, "awk '/^MemAvailable:/ {print $2}' /proc/meminfo").await?;
    ensure!(free > 0.0 && free <= kib as f64, "{free} KiB of {kib} are available");
    let quota = "cat /sys/fs/cgroup/cpu.max 2>/dev/null || paste /sys/fs/cgroup/cpu/cpu.cfs_quota_us \
                 /sys/fs/cgroup/cpu/cpu.cfs_period_us";
    let quota = number(sandbox, &format!("{{ {quota}; }} | awk '{{print $1 / $2}}'")).await?;
    ensure!((quota - size.cpus).abs() < 0.01, "the quota is {quota} processors of {}", size.cpus);
    Ok(())
}

#[tokio::test]
async fn programs_see_the_limits_over_changes_sleeps_and_forks() -> Result<()> {
    let daemon = daemon().await?;
    let mut size = Size::new(0.5, 512 * MIB)?;
    let sandbox = sandbox(&daemon, "box", size).await?;
    agrees(&sandbox, size).await?;

    size = Size::new(1.5, 768 * MIB)?;
    set(&sandbox, size).await?;
    agrees(&sandbox, size).await?;
    size = Size::new(1.0, 384 * MIB)?;
    set(&sandbox, size).await?;
    agrees(&sandbox, size).await?;

    sandbox.suspend(Level::Ram).await?;
    sandbox.wake().await?;
    agrees(&sandbox, size).await?;

    // A limit that changes during a sleep is seen by processes that were saved before.
    sandbox.suspend(Level::Disk).await?;
    size = Size::new(0.75, 640 * MIB)?;
    set(&sandbox, size).await?;
    sandbox.wake().await?;
    agrees(&sandbox, size).await?;

    for (child, _) in sandbox.fork(&Fork { count: Some(2), ..Fork::default() }).await? {
        agrees(&child, size).await?;
        let of_child = Size::new(1.25, 896 * MIB)?;
        set(&child, of_child).await?;
        agrees(&child, of_child).await?;
        child.suspend(Level::Disk).await?;
        child.wake().await?;
        agrees(&child, of_child).await?;
    }
    agrees(&sandbox, size).await
}

#[tokio::test]
async fn used_memory_is_the_sandboxs_own() -> Result<()> {
    let daemon = daemon().await?;
    let size = Size::new(1.0, 512 * MIB)?;
    let sandbox = sandbox(&daemon, "box", size).await?;
    let available = "awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo";
    ensure!(number(&sandbox, available).await? > 400.0, "most of it is free");
    sandbox.spawn("exec python3 -c 'import time; x = b\"x\" * (300 << 20); time.sleep(1000)'").await?;
    sandbox.becomes_true(&format!("[ $({available}) -lt 212 ]")).await?;
    sandbox.becomes_true("[ $(free -m | awk '/^Mem:/ {print $3}') -gt 300 ]").await
}

#[tokio::test]
async fn clocks_begin_with_the_sandbox_and_go_on_over_a_sleep() -> Result<()> {
    let daemon = daemon().await?;
    let sandbox = sandbox(&daemon, "box", Size::new(1.0, 512 * MIB)?).await?;
    let uptime = "cut -d. -f1 /proc/uptime";
    let first = number(&sandbox, uptime).await?;
    ensure!(first < 60.0, "the sandbox is up for {first} s");
    for clock in ["CLOCK_BOOTTIME", "CLOCK_MONOTONIC"] {
        let clock =
            number(&sandbox, &format!("python3 -c 'import time; print(time.clock_gettime(time.{clock}))'")).await?;
        ensure!(clock < 60.0, "a clock says {clock} s");
    }
    sandbox.becomes_true(&format!("[ $({uptime}) -ge 2 ]")).await?;
    // A process began after the sandbox did and before now.
    let age = number(&sandbox, "sleep 100 & ps -o etimes= -p $!").await?;
    ensure!((0.0..60.0).contains(&age), "a new process is {age} s old");
    let booted = number(&sandbox, "echo $(($(date +%s) - $(awk '/^btime/ {print $2}' /proc/stat)))").await?;
    ensure!((1.0..60.0).contains(&booted), "the sandbox began {booted} s ago");

    sandbox.suspend(Level::Disk).await?;
    sandbox.wake().await?;
    let later = number(&sandbox, uptime).await?;
    ensure!((2.0..120.0).contains(&later), "after a sleep the sandbox is up for {later} s");
    let (child, _) = sandbox.fork(&Fork::default()).await?.remove(0);
    let of_child = number(&child, uptime).await?;
    ensure!((2.0..120.0).contains(&of_child), "a fork is up for {of_child} s");
    Ok(())
}

#[tokio::test]
async fn load_of_a_neighbour_does_not_show() -> Result<()> {
    let daemon = daemon().await?;
    let size = Size::new(1.0, 256 * MIB)?;
    let (quiet, busy) = (sandbox(&daemon, "quiet", size).await?, sandbox(&daemon, "busy", size).await?);
    let used = "awk '/^cpu / {print $2 + $4}' /proc/stat";
    let before = number(&quiet, used).await?;
    busy.spawn("while :; do :; done").await?;
    // 3 s of a processor, in hundredths.
    busy.becomes_true(&format!("[ $({used}) -gt 300 ]")).await?;
    busy.becomes_true("awk '{exit !($1 > 0.03)}' /proc/loadavg").await?;
    let spent = number(&quiet, used).await? - before;
    ensure!(spent < 100.0, "a quiet sandbox counts {spent} hundredths of a second of its neighbour's");
    let load = number(&quiet, "cut -d' ' -f1 /proc/loadavg").await?;
    ensure!(load < 0.03, "a quiet sandbox has a load of {load}");
    let idle = number(&quiet, "awk '{print $2 / $1}' /proc/uptime").await?;
    ensure!(idle > 0.8, "a quiet sandbox was idle for {idle} of its time");
    Ok(())
}

/// Expects that the host's details are hidden and that nothing of the description can be written.
async fn hides_the_host(sandbox: &Sandbox) -> Result<()> {
    for file in EMPTY_FILES {
        let bytes = number(sandbox, &format!("cat {file} 2>/dev/null | wc -c")).await?;
        ensure!(bytes == 0.0, "{file} says something");
    }
    for folder in EMPTY_FOLDERS {
        let entries = number(sandbox, &format!("ls -A {folder} 2>/dev/null | wc -l")).await?;
        ensure!(entries == 0.0, "{folder} has entries");
    }
    // The groups that are shown are the sandbox's own, and no file of them can be written.
    sandbox.root_ok("cut -d: -f3 /proc/self/cgroup | grep -vx / && exit 1 || true").await?;
    sandbox.root_ok("find /sys/fs/cgroup -type f -name '*.max' -o -type f -name '*limit_in_bytes' | grep -q .").await?;
    sandbox
        .root_ok(
            "for f in $(find /sys/fs/cgroup -type f -perm -u=w); do (echo 1 > $f) 2>/dev/null && exit 1; done; true",
        )
        .await?;
    sandbox
        .root_ok("for f in meminfo stat loadavg uptime cpuinfo; do (echo > /proc/$f) 2>/dev/null && exit 1; done; true")
        .await?;
    Ok(())
}

#[tokio::test]
async fn details_of_the_host_are_hidden_over_sleeps_and_forks() -> Result<()> {
    let daemon = daemon().await?;
    let sandbox = sandbox(&daemon, "box", Size::new(1.0, 512 * MIB)?).await?;
    hides_the_host(&sandbox).await?;
    sandbox.suspend(Level::Disk).await?;
    sandbox.wake().await?;
    hides_the_host(&sandbox).await?;
    let (child, _) = sandbox.fork(&Fork::default()).await?.remove(0);
    hides_the_host(&child).await
}

#[tokio::test]
async fn files_that_root_inside_changes_are_its_own() -> Result<()> {
    let daemon = daemon().await?;
    let size = Size::new(1.0, 512 * MIB)?;
    let (liar, other) = (sandbox(&daemon, "liar", size).await?, sandbox(&daemon, "other", size).await?);
    liar.root_ok("echo MemTotal: 7 kB > /run/roost/proc/meminfo; rm /run/roost/proc/stat; ln -s /etc/passwd /run/roost/proc/stat").await?;
    agrees(&other, size).await?;
    // The guest follows no link, and its other files stay true.
    liar.answers().await?;
    liar.becomes_true("grep -q '^MemTotal: *524288 kB' /proc/meminfo").await?;
    // An image of it could not be restored, so its memory stays in RAM.
    let refused = daemon.client().suspend_sandbox("liar", Level::Disk).await.unwrap_err();
    ensure!(refused.to_string().contains("was removed"), "{refused}");
    liar.answers().await
}

/// The kernel's `statfs` knows no quota of a subvolume, so the `df` of the template asks the guest.
#[tokio::test]
async fn df_and_the_guests_command_show_the_quota_of_the_disk() -> Result<()> {
    let daemon = daemon().await?;
    let limits = LimitsRequest { disk: Some(96 * MIB), ..LimitsRequest::default() };
    let request = CreateSandbox { name: Some("box".to_owned()), limits: Some(limits), ..CreateSandbox::default() };
    let sandbox = daemon.sandbox_with(request).await?;
    sandbox.root_ok("head -c 20M /dev/urandom > /root/block; sync").await?;
    sandbox.becomes_true("roost-guest info | grep -Eq '96 MiB of disk, of which (2[0-9]) MiB are used'").await?;
    let info: serde_json::Value = serde_json::from_str(&sandbox.sh_ok("roost-guest info --json").await?)?;
    let data = &info["ok"]["data"];
    ensure!(data["limits"]["disk"] == 96 * MIB && data["usage"]["disk"].as_u64() >= Some(20 * MIB), "{info}");
    let row = async |sandbox: &Sandbox| -> Result<Vec<String>> {
        let row = sandbox.sh_ok("df -h / | tail -n 1").await?;
        Ok(row.split_whitespace().map(str::to_owned).collect())
    };
    let shown = row(&sandbox).await?;
    ensure!(shown[1] == "96M" && shown[2].starts_with('2'), "{shown:?}");
    // Options that the guest does not know are left to the distribution's own.
    sandbox.sh_ok("df | grep -q ' /$' && df -i / | grep -q IFree").await?;
    daemon.roost_ok(&["set", "box", "--disk", "128m"]).await?;
    assert_eq!(row(&sandbox).await?[1], "128M");
    sandbox.suspend(Level::Disk).await?;
    assert_eq!(row(&sandbox).await?[1], "128M");
    for (fork, _) in sandbox.fork(&Fork::default()).await? {
        assert_eq!(row(&fork).await?[1], "128M");
    }
    Ok(())
}
