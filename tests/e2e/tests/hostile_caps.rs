//! The capabilities `NET_ADMIN` and `NET_RAW`: root in a sandbox has them only if a caller asked for them, in every way a
//! sandbox can come to life.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use roost_e2e::{Daemon, Options, Sandbox};
use roost_model::{Capability, CreateCheckpoint, CreateSandbox, EngineKind, ErrorCode, Fork, Level};
use serde_json::{Value, json};

/// Uses the doors that the two capabilities open, and prints how the kernel answered at each.
const PROBE: &str = r"
import errno, json, socket, struct, subprocess

def answer(work):
    try:
        return work() or 'ok'
    except OSError as error:
        return errno.errorcode[error.errno]

def message(kind, flags, body):
    return struct.pack('=IHHII', 16 + len(body), kind, flags | 1, 1, 0) + body

def attribute(kind, value):
    packed = struct.pack('=HH', 4 + len(value), kind) + value
    return packed + bytes(-len(packed) % 4)

def netlink(protocol, messages):
    asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    asked.settimeout(10)
    asked.send(messages)
    error = struct.unpack_from('=i', asked.recv(65536), 16)[0]
    return errno.errorcode[-error] if error else 'ok'

def table():
    edge = struct.pack('=BB', 0, 0) + struct.pack('>H', 10)
    new = struct.pack('=BBH', 2, 0, 0) + attribute(1, b'attack\0')
    return netlink(12, message(16, 0, edge) + message(10 << 8, 0x404, new) + message(17, 0, edge))

def neighbour():
    entry = struct.pack('=BBHiHBB', 2, 0, 0, socket.if_nametoindex('eth0'), 0x80, 0, 0)
    entry += attribute(1, bytes([10, 77, 0, 1])) + attribute(2, bytes([2, 0, 0, 0, 0, 1]))
    return netlink(0, message(28, 0x404, entry))

def device():
    kind = attribute(18, attribute(1, b'veth\0'))
    return netlink(0, message(16, 0x604, struct.pack('=BxHiII', 0, 0, 0, 0, 0) + attribute(3, b'attack\0') + kind))

print(json.dumps({
    'table': answer(table),
    'neighbour': answer(neighbour),
    'device': answer(device),
    'packet': answer(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3).close()),
    'raw': answer(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()),
}))
";

/// The two bits of the capabilities in a set of `/proc/PID/status`.
const BITS: u64 = 1 << 12 | 1 << 13;

fn both() -> BTreeSet<Capability> {
    Capability::ALL.into()
}

fn native(name: &str, capabilities: Option<BTreeSet<Capability>>) -> CreateSandbox {
    CreateSandbox {
        name: Some(name.to_owned()),
        template: Some("base".to_owned()),
        engine: Some("native".to_owned()),
        capabilities,
        ..CreateSandbox::default()
    }
}

async fn daemon() -> Result<Daemon> {
    Daemon::with(Options { base: true, ..Options::default() }).await
}

/// A sandbox with the probe in it, and a process that is there before any sleep.
async fn armed(daemon: &Daemon, request: CreateSandbox) -> Result<Sandbox> {
    let sandbox = daemon.sandbox_with(request).await?;
    sandbox.write("/home/user/probe.py", PROBE).await?;
    sandbox.spawn("exec sleep 100000").await?;
    Ok(sandbox)
}

async fn probed(sandbox: &Sandbox) -> Result<Value> {
    Ok(serde_json::from_str(&sandbox.root_ok("python3 /home/user/probe.py").await?)?)
}

/// The bits of the two capabilities that any process in a sandbox has or could gain.
async fn bits(sandbox: &Sandbox) -> Result<u64> {
    let sets = sandbox.root_ok("cat /proc/[0-9]*/status 2>/dev/null | awk '/^Cap/ {print $2}' | sort -u").await?;
    Ok(sets.lines().try_fold(0, |all, set| u64::from_str_radix(set, 16).map(|set| all | set))? & BITS)
}

async fn is_refused(sandbox: &Sandbox, when: &str) -> Result<()> {
    let refusals = json!({
        "table": "EPROTONOSUPPORT", "neighbour": "EPERM", "device": "EPERM", "packet": "EPERM", "raw": "EPERM",
    });
    let answers = probed(sandbox).await?;
    ensure!(answers == refusals, "{when}: {answers}");
    ensure!(bits(sandbox).await? == 0, "{when}: a process has the capabilities");
    Ok(())
}

async fn is_open(sandbox: &Sandbox, when: &str) -> Result<()> {
    let answers = probed(sandbox).await?;
    let ok = |door: &str| answers[door] == "ok" || answers[door] == "EEXIST";
    ensure!(["table", "neighbour", "device", "packet", "raw"].into_iter().all(ok), "{when}: {answers}");
    ensure!(bits(sandbox).await? == BITS, "{when}: a capability is missing");
    Ok(())
}

/// Looks at a sandbox after a start, a wake from disk, a restore, in a fork, and after a start from files.
async fn in_every_life(sandbox: &Sandbox, look: impl AsyncFn(&Sandbox, &str) -> Result<()>) -> Result<()> {
    look(sandbox, "after the start").await?;
    sandbox.suspend(Level::Disk).await?;
    look(sandbox, "after a wake from disk").await?;
    let (moment, _) = sandbox.checkpoint().await?;
    sandbox.restore(&moment).await?;
    look(sandbox, "after a restore").await?;
    let forks = sandbox.fork(&Fork::default()).await?;
    for (fork, _) in &forks {
        look(fork, "in a fork").await?;
    }
    sandbox.suspend(Level::Files).await?;
    look(sandbox, "after a start from files").await
}

#[tokio::test]
async fn root_without_capabilities_is_refused_in_every_life() -> Result<()> {
    let daemon = daemon().await?;
    let sandbox = armed(&daemon, native("box", None)).await?;
    ensure!(daemon.client().sandbox("box").await?.capabilities.is_empty());
    in_every_life(&sandbox, is_refused).await
}

#[tokio::test]
async fn root_with_capabilities_keeps_them_in_every_life() -> Result<()> {
    let daemon = daemon().await?;
    let sandbox = armed(&daemon, native("lab", Some(both()))).await?;
    assert_eq!(daemon.client().sandbox("lab").await?.capabilities, both());
    in_every_life(&sandbox, is_open).await?;
    let raw = armed(&daemon, native("raw", Some([Capability::NetRaw].into()))).await?;
    let answers = probed(&raw).await?;
    ensure!(answers["packet"] == "ok" && answers["raw"] == "ok" && answers["table"] == "EPROTONOSUPPORT", "{answers}");
    Ok(())
}

#[tokio::test]
async fn usual_tools_work_without_capabilities() -> Result<()> {
    let daemon = daemon().await?;
    let sandbox = daemon.sandbox_with(native("box", None)).await?;
    let lines = [
        "ping -c 1 -W 5 10.0.0.1",
        "ping -c 1 -W 5 127.0.0.1",
        "ip addr show eth0 && ip route && ip neigh && ip link",
        "ss -tulpn && ss -s",
        "test \"$(sudo id -un 2>&1)\" = root",
        "test -z \"$(sudo true 2>&1)\" && sudo ping -c 1 -W 5 10.0.0.1",
        "sudo apt-get --version && pip --version && npm --version && git --version",
        "python3 -m http.server 8000 >/dev/null 2>&1 & for try in $(seq 50); do curl -fsS -o /dev/null localhost:8000 && exit 0; sleep 0.1; done; exit 1",
        "getent hosts localhost && hostname && sudo hostname",
    ];
    for line in lines {
        sandbox.sh_ok(line).await?;
    }
    Ok(())
}

#[tokio::test]
async fn moment_with_memory_keeps_its_capabilities_and_files_take_others() -> Result<()> {
    let daemon = daemon().await?;
    let client = daemon.client();
    let sandbox = armed(&daemon, native("box", None)).await?;
    let from = |checkpoint, capabilities| CreateSandbox {
        from_checkpoint: Some(checkpoint),
        template: None,
        ..native("next", capabilities)
    };
    let (moment, _) = sandbox.checkpoint().await?;
    let refused = client.create_sandbox(&from(moment, Some(both()))).await.expect_err("its processes exist");
    assert_eq!(refused.code(), Some(ErrorCode::BadRequest), "{refused}");
    ensure!(refused.to_string().contains("keep their capabilities (none)"), "{refused}");
    let files = CreateCheckpoint { files_only: true, ..CreateCheckpoint::default() };
    let files = client.create_checkpoint("box", &files).await?.checkpoint.id;
    let next = daemon.sandbox_with(from(files, Some(both()))).await?;
    is_open(&next, "from files").await
}

#[tokio::test]
async fn configuration_decides_what_is_given_and_what_can_be() -> Result<()> {
    let settings = [("ROOST_CAPABILITIES_ALLOWED", "net-raw"), ("ROOST_CAPABILITIES_DEFAULT", "net-raw")];
    let environment = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let daemon = Daemon::with(Options { base: true, environment, ..Options::default() }).await?;
    let client = daemon.client();
    let given = daemon.sandbox_with(native("given", None)).await?;
    assert_eq!(client.sandbox("given").await?.capabilities, [Capability::NetRaw].into());
    assert_eq!(bits(&given).await?, 1 << 13);
    let none = daemon.sandbox_with(native("none", Some(BTreeSet::new()))).await?;
    assert_eq!(bits(&none).await?, 0);
    let refused = client.create_sandbox(&native("beyond", Some(both()))).await.expect_err("it is not allowed");
    assert_eq!(refused.code(), Some(ErrorCode::Forbidden), "{refused}");
    ensure!(refused.to_string().contains("does not allow the capabilities net-admin"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn gvisor_takes_the_field_and_its_own_kernel_keeps_them() -> Result<()> {
    let daemon = Daemon::with(Options { base: true, engine: Some(EngineKind::Gvisor), ..Options::default() }).await?;
    let on_gvisor = |name, capabilities| CreateSandbox { engine: None, ..native(name, capabilities) };
    for (name, capabilities) in [("without", None), ("with", Some(both()))] {
        let sandbox = armed(&daemon, on_gvisor(name, capabilities.clone())).await?;
        assert_eq!(daemon.client().sandbox(name).await?.capabilities, capabilities.unwrap_or_default());
        let answers = probed(&sandbox).await?;
        ensure!(answers["raw"] == "ok" && answers["packet"] == "ok", "{name}: {answers}");
    }
    Ok(())
}

#[tokio::test]
async fn command_line_gives_and_shows_capabilities() -> Result<()> {
    let daemon = daemon().await?;
    daemon.roost_ok(&["create", "lab", "-t", "base", "--engine", "native", "--cap", "net-admin,net-raw"]).await?;
    ensure!(daemon.roost_ok(&["info", "lab"]).await?.contains("net-admin,net-raw"));
    let line = "test $(( 0x$(awk '/CapBnd/ {print $2}' /proc/self/status) & 0x3000 )) = $(( 0x2000 ))";
    daemon.roost_ok(&["run", "base", "--engine", "native", "--cap", "net-raw", "--", "sh", "-c", line]).await?;
    let refused = daemon.roost(&["create", "odd", "--cap", "sys-admin"]).output().await?;
    let words = String::from_utf8_lossy(&refused.stderr);
    ensure!(!refused.status.success() && words.contains("no capability named `sys-admin`"), "{words}");
    Ok(())
}
