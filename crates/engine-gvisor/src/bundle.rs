//! What runsc is told about a sandbox: an OCI runtime configuration.

use serde_json::{Value, json};

use crate::keep::{GUEST, GUEST_SOURCE, ROOT};

/// What processes find unless they are told otherwise.
pub(crate) const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the guest may do, all of it to gVisor's kernel only. It gives up the first before it starts anything; the others are
/// those that root inside has on every engine.
const CAPABILITIES: [&str; 18] = [
    "CAP_SYS_ADMIN",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_OWNER",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_SETFCAP",
];

/// The configuration, as JSON. Of one that is restored only what is outside of the sentry counts: the rest is in the image.
///
/// Without a host name it is for one whose name is not known yet: its guest sets it.
///
/// Folders for what does not last are gVisor's own memory filesystems: a file that is deleted while it is open there is saved
/// with the memory, which one on the root is not.
pub(crate) fn of(hostname: Option<&str>, memory: u64) -> String {
    let mut arguments = vec![GUEST, "init", "privileged"];
    if hostname.is_none() {
        arguments.push("nameless");
    }
    let tmpfs = |path: &str, options: &[&str]| json!({ "destination": path, "type": "tmpfs", "source": "tmpfs", "options": options });
    // What is written there is memory: full is an error for who writes, before it is the end of the sentry.
    let half = format!("size={}", memory / 2);
    let limit =
        |name: &str, soft: u64, hard: u64| json!({ "type": format!("RLIMIT_{name}"), "soft": soft, "hard": hard });
    let sets: serde_json::Map<String, Value> =
        ["bounding", "effective", "permitted"].map(|set| (set.to_owned(), json!(CAPABILITIES))).into_iter().collect();
    json!({
        "ociVersion": "1.0.0",
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "args": arguments,
            "env": [PATH],
            "cwd": "/",
            "capabilities": sets,
            "rlimits": [
                limit("NOFILE", 65_536, 524_288),
                limit("CORE", 0, 0),
                // A heap that grows past it is refused; what is mapped gVisor does not count, so that meets the group's limit.
                limit("DATA", memory, memory),
            ],
        },
        "root": { "path": ROOT, "readonly": false },
        "hostname": hostname.unwrap_or("roost"),
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid", "noexec", "nodev"] },
            tmpfs("/dev/shm", &["mode=1777", "nosuid", "nodev", &half]),
            tmpfs("/tmp", &["mode=1777", "nosuid", "nodev", &half]),
            tmpfs("/var/tmp", &["mode=1777", "nosuid", "nodev", &half]),
            tmpfs("/run", &["mode=0755", "nosuid", "nodev", "size=67108864"]),
            { "destination": GUEST, "type": "bind", "source": GUEST_SOURCE, "options": ["ro", "bind"] },
        ],
        "linux": { "namespaces": [
            { "type": "pid" }, { "type": "mount" }, { "type": "ipc" }, { "type": "uts" },
            // That of the keeper, who is PID 1 where runsc runs; without one it would make an empty one.
            { "type": "network", "path": "/proc/1/ns/net" },
        ] },
    })
    .to_string()
}
