//! Calls of the kernel that a sandbox has no use for, made with arguments that change nothing.
//!
//! Where such a call is refused for its number, its family or for lack of a capability, the door is shut. Where the kernel
//! complains about the arguments instead, its code was reached.

use std::io;

use crate::scarce::check;

/// One door: the name of a call, and the errors that say it is shut.
#[derive(Debug, Clone, Copy)]
pub struct Door {
    /// The name of the call, with the variant of it that is tried.
    pub name: &'static str,
    call: libc::c_long,
    arguments: [usize; 4],
}

const fn door(name: &'static str, call: libc::c_long, arguments: [usize; 4]) -> Door {
    Door { name, call, arguments }
}

const fn socket(name: &'static str, family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> Door {
    door(name, libc::SYS_socket, [family as usize, kind as usize, protocol as usize, 0])
}

/// A descriptor that is never open.
const NONE: usize = usize::MAX;
const NETLINK_XFRM: libc::c_int = 6;
const SMC: libc::c_int = 43;

/// All doors. Every pointer among the arguments is null and every descriptor is invalid, so no call has an effect.
pub const DOORS: &[Door] = &[
    door("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0]),
    door("bpf", libc::SYS_bpf, [0, 0, 0, 0]),
    door("perf_event_open", libc::SYS_perf_event_open, [0, 0, NONE, NONE]),
    door("userfaultfd", libc::SYS_userfaultfd, [0x8000_0000, 0, 0, 0]),
    door("open_by_handle_at", libc::SYS_open_by_handle_at, [NONE, 0, 0, 0]),
    door("add_key", libc::SYS_add_key, [0, 0, 0, 0]),
    door("keyctl", libc::SYS_keyctl, [0, 0, 0, 0]),
    door("request_key", libc::SYS_request_key, [0, 0, 0, 0]),
    door("kexec_load", libc::SYS_kexec_load, [0, 0, 0, 0x8000_0000]),
    door("init_module", libc::SYS_init_module, [0, 0, 0, 0]),
    door("finit_module", libc::SYS_finit_module, [NONE, 0, 0, 0]),
    door("delete_module", libc::SYS_delete_module, [0, 0, 0, 0]),
    door("quotactl", libc::SYS_quotactl, [0, 0, 0, 0]),
    door("swapon", libc::SYS_swapon, [0, 0, 0, 0]),
    door("reboot", libc::SYS_reboot, [0, 0, 0, 0]),
    door("acct", libc::SYS_acct, [1, 0, 0, 0]),
    door("clock_settime", libc::SYS_clock_settime, [0, 0, 0, 0]),
    door("settimeofday", libc::SYS_settimeofday, [1, 0, 0, 0]),
    door("syslog", libc::SYS_syslog, [10, 0, 0, 0]),
    // The second flag is not valid there, so an open door does not lead this process into a namespace.
    door("unshare user", libc::SYS_unshare, [(libc::CLONE_NEWUSER | libc::CLONE_PARENT_SETTID) as usize, 0, 0, 0]),
    door("clone3", libc::SYS_clone3, [0, 0, 0, 0]),
    door("memfd_secret", libc::SYS_memfd_secret, [0, 0, 0, 0]),
    door("io_setup", libc::SYS_io_setup, [0, 0, 0, 0]),
    door("fanotify_init", libc::SYS_fanotify_init, [0, 0, 0, 0]),
    door("fsopen", libc::SYS_fsopen, [0, 0, 0, 0]),
    door("move_mount", libc::SYS_move_mount, [NONE, 0, NONE, 0]),
    #[cfg(target_arch = "x86_64")]
    door("modify_ldt", libc::SYS_modify_ldt, [0, 0, 0, 0]),
    #[cfg(target_arch = "x86_64")]
    door("iopl", libc::SYS_iopl, [3, 0, 0, 0]),
    #[cfg(target_arch = "x86_64")]
    door("ioperm", libc::SYS_ioperm, [0, 1, 1, 0]),
    // The same table of calls for 32-bit pointers.
    #[cfg(target_arch = "x86_64")]
    door("bpf by x32", 0x4000_0000 | libc::SYS_bpf, [0, 0, 0, 0]),
    socket("AF_XDP", libc::AF_XDP, libc::SOCK_RAW, 0),
    socket("AF_VSOCK", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
    socket("AF_ALG", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
    socket("AF_CAN", libc::AF_CAN, libc::SOCK_RAW, 1),
    socket("AF_TIPC", libc::AF_TIPC, libc::SOCK_DGRAM, 0),
    socket("AF_RDS", libc::AF_RDS, libc::SOCK_SEQPACKET, 0),
    socket("AF_KEY", libc::AF_KEY, libc::SOCK_RAW, 2),
    socket("AF_BLUETOOTH", libc::AF_BLUETOOTH, libc::SOCK_RAW, 1),
    socket("AF_SMC", SMC, libc::SOCK_STREAM, 0),
    socket("AF_PACKET", libc::AF_PACKET, libc::SOCK_RAW, 0),
    socket("raw AF_INET", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW),
    socket("netlink netfilter", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER),
    socket("netlink xfrm", libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_XFRM),
    socket("netlink audit", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
    socket("netlink generic", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC),
    socket("netlink crypto", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_CRYPTO),
];

/// Errors by which the kernel, or a filter before it, refuses a call whatever its arguments are.
const REFUSALS: [libc::c_int; 6] =
    [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT, libc::ESOCKTNOSUPPORT];

impl Door {
    /// Tries the door. Returns the error if it is shut, and otherwise how far the call came.
    pub fn try_open(&self) -> Result<io::Error, String> {
        let [first, second, third, fourth] = self.arguments;
        // SAFETY: `DOORS` is the only source of values of this type. Its pointers are null and its descriptors are never
        // open, so the kernel reads and writes no memory of this process; a new socket is all that such a call can make.
        let outcome = check(unsafe { libc::syscall(self.call, first, second, third, fourth, 0_usize, 0_usize) });
        match outcome {
            Ok(number) => Err(format!("the call returned {number}")),
            Err(error) if error.raw_os_error().is_some_and(|code| REFUSALS.contains(&code)) => Ok(error),
            Err(error) => Err(format!("the call came as far as its arguments: {error}")),
        }
    }
}
