//! The system calls a sandbox may not make.
//!
//! Everything is allowed but what is named here: a sandbox is a whole computer, and most of what it must not do fails
//! already for lack of a capability. Named are calls that reach parts of the kernel with a large attack surface, or whose
//! state cannot be saved with the sandbox's memory.

use std::collections::{BTreeMap, BTreeSet};

use roost_model::Capability;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// One line of the table: a call, the error that it returns, and the cases in which it does.
struct Line(i64, i32, Cases);

/// A call returns its error if all tests of any one case hold. [`ALWAYS`] has no case: the arguments do not matter.
type Cases = &'static [&'static [Test]];

const ALWAYS: Cases = &[];

/// A test of one argument, counted from 0. The kernel reads 32 bits of all of them but of `Bits`, so the tests do, too.
#[derive(Clone, Copy)]
enum Test {
    Is(u8, i32),
    IsNot(u8, i32),
    Bits(u8, i32),
}

use Test::{Bits, Is, IsNot};

/// `EPERM` where a call is refused as to any unprivileged user; `ENOSYS` where programs fall back if a kernel lacks the call;
/// otherwise the error of a kernel that was built without the feature.
const TABLE: &[Line] = &[
    // io_uring runs system calls that no filter sees, and its rings cannot be saved.
    Line(libc::SYS_io_uring_setup, libc::EPERM, ALWAYS),
    Line(libc::SYS_io_uring_enter, libc::EPERM, ALWAYS),
    Line(libc::SYS_io_uring_register, libc::EPERM, ALWAYS),
    // Programs and counters in the kernel: a large surface, and a way to observe the host.
    Line(libc::SYS_bpf, libc::EPERM, ALWAYS),
    Line(libc::SYS_perf_event_open, libc::EPERM, ALWAYS),
    Line(libc::SYS_lookup_dcookie, libc::EPERM, ALWAYS),
    // Stops the kernel in the middle of an access to memory, which makes races in it easy to win.
    Line(libc::SYS_userfaultfd, libc::EPERM, ALWAYS),
    // Opens a file by its number, past the folders that lead to it.
    Line(libc::SYS_open_by_handle_at, libc::EPERM, ALWAYS),
    // Keys are counted and named per user of the host, not per sandbox.
    Line(libc::SYS_keyctl, libc::EPERM, ALWAYS),
    Line(libc::SYS_add_key, libc::EPERM, ALWAYS),
    Line(libc::SYS_request_key, libc::EPERM, ALWAYS),
    // The running kernel and its modules, clock, swap, quotas, accounting and log belong to the host.
    Line(libc::SYS_kexec_load, libc::EPERM, ALWAYS),
    Line(libc::SYS_kexec_file_load, libc::EPERM, ALWAYS),
    Line(libc::SYS_init_module, libc::EPERM, ALWAYS),
    Line(libc::SYS_finit_module, libc::EPERM, ALWAYS),
    Line(libc::SYS_delete_module, libc::EPERM, ALWAYS),
    Line(libc::SYS_quotactl, libc::EPERM, ALWAYS),
    Line(libc::SYS_quotactl_fd, libc::EPERM, ALWAYS),
    Line(libc::SYS_swapon, libc::EPERM, ALWAYS),
    Line(libc::SYS_swapoff, libc::EPERM, ALWAYS),
    Line(libc::SYS_reboot, libc::EPERM, ALWAYS),
    Line(libc::SYS_acct, libc::EPERM, ALWAYS),
    Line(libc::SYS_clock_settime, libc::EPERM, ALWAYS),
    Line(libc::SYS_settimeofday, libc::EPERM, ALWAYS),
    Line(libc::SYS_nfsservctl, libc::EPERM, ALWAYS),
    // Any user may read the log where `kernel.dmesg_restrict` is 0.
    Line(libc::SYS_syslog, libc::EPERM, ALWAYS),
    // Ports of the machine's devices.
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_iopl, libc::EPERM, ALWAYS),
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_ioperm, libc::EPERM, ALWAYS),
    // A user namespace inside gives every capability over new parts of the kernel, and cannot be saved.
    Line(libc::SYS_clone, libc::EPERM, &[&[Bits(0, libc::CLONE_NEWUSER)]]),
    Line(libc::SYS_unshare, libc::EPERM, &[&[Bits(0, libc::CLONE_NEWUSER)]]),
    // Its flags lie in memory, where no filter sees them.
    Line(libc::SYS_clone3, libc::ENOSYS, ALWAYS),
    // Personalities of other systems open old paths of the kernel. The allowed ones change no more than address randomisation
    // and the reported machine.
    Line(
        libc::SYS_personality,
        libc::EPERM,
        &[&[IsNot(0, 0), IsNot(0, 0x8), IsNot(0, 0x2_0000), IsNot(0, 0x2_0008), IsNot(0, 0x4_0000), IsNot(0, -1)]],
    ),
    // Secret memory cannot be saved.
    Line(libc::SYS_memfd_secret, libc::ENOSYS, ALWAYS),
    // All contexts of the host share one small number, `fs.aio-max-nr`, and belong to nobody. Databases do without.
    Line(libc::SYS_io_setup, libc::ENOSYS, ALWAYS),
    // Watches whole file systems; few programs know it, and all of them have inotify to fall back to.
    Line(libc::SYS_fanotify_init, libc::ENOSYS, ALWAYS),
    // Segments of 16-bit programs, which many kernels are built without.
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_modify_ldt, libc::ENOSYS, ALWAYS),
    // The families of sockets that a sandbox has a use for. All others are code of the kernel that few machines run, or lead
    // to hypervisors (VSOCK), to the kernel's crypto (ALG), and to rings in memory that no control group pays for (XDP).
    Line(libc::SYS_socket, libc::EAFNOSUPPORT, &[OTHER_FAMILIES]),
    Line(libc::SYS_socketpair, libc::EAFNOSUPPORT, &[OTHER_FAMILIES]),
    // What the kernel queues at a socket is charged to a control group for few families. A larger buffer would only multiply it,
    // so the option is taken and changes nothing, as beyond the host's own limit. TCP sizes its buffers by itself.
    Line(
        libc::SYS_setsockopt,
        DONE,
        &[&[Is(1, libc::SOL_SOCKET), Is(2, libc::SO_RCVBUF)], &[Is(1, libc::SOL_SOCKET), Is(2, libc::SO_RCVBUFFORCE)]],
    ),
    // Rings, and the tables of a fanout, are memory of the kernel that no control group pays for: gigabytes of it for one
    // socket. A capture does without them.
    Line(
        libc::SYS_setsockopt,
        libc::ENOPROTOOPT,
        &[
            &[Is(1, libc::SOL_PACKET), Is(2, libc::PACKET_RX_RING)],
            &[Is(1, libc::SOL_PACKET), Is(2, libc::PACKET_TX_RING)],
            &[Is(1, libc::SOL_PACKET), Is(2, libc::PACKET_FANOUT)],
        ],
    ),
];

/// A call that is answered with this error succeeds without an effect.
const DONE: i32 = 0;

/// Protocols of netlink that every sandbox may use: addresses and routes, lists of sockets, and devices that come and go. Programs
/// take the error of the others for a kernel without the protocol.
const NETLINK: [i32; 3] = [libc::NETLINK_ROUTE, libc::NETLINK_SOCK_DIAG, libc::NETLINK_KOBJECT_UEVENT];

/// With `NET_ADMIN`, root inside also configures its network by nf_tables, xfrm and the families of generic netlink.
const NETLINK_OF_ADMINISTRATORS: [i32; 3] = [libc::NETLINK_NETFILTER, libc::NETLINK_XFRM, libc::NETLINK_GENERIC];

const OTHER_FAMILIES: &[Test] = &[
    IsNot(0, libc::AF_UNIX),
    IsNot(0, libc::AF_INET),
    IsNot(0, libc::AF_INET6),
    IsNot(0, libc::AF_NETLINK),
    IsNot(0, libc::AF_PACKET),
];

/// Numbers from here on belong to the x32 calls, which would otherwise pass every line of the table.
#[cfg(target_arch = "x86_64")]
const X32: u64 = 0x4000_0000;

/// The filters of sandboxes without and with the capability `NET_ADMIN`.
#[derive(Debug)]
pub(crate) struct Filters {
    usual: Vec<Vec<u64>>,
    of_administrators: Vec<Vec<u64>>,
}

impl Filters {
    pub(crate) fn new() -> Result<Self, BackendError> {
        let of_administrators = [NETLINK, NETLINK_OF_ADMINISTRATORS].concat();
        Ok(Self { usual: programs(&NETLINK)?, of_administrators: programs(&of_administrators)? })
    }

    /// Returns the programs for a sandbox with these capabilities.
    pub(crate) fn of(&self, capabilities: &BTreeSet<Capability>) -> Vec<Vec<u64>> {
        let administrators = capabilities.contains(&Capability::NetAdmin);
        if administrators { self.of_administrators.clone() } else { self.usual.clone() }
    }
}

/// The programs to install, one for each error, packed as `roost_sys::seccomp::install` wants them.
///
/// Of the protocols of netlink, those in `netlink` are allowed. For most calls no argument matters; the kernel finds that out once, and then runs no program for them.
fn programs(netlink: &[i32]) -> Result<Vec<Vec<u64>>, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let mut by_error: BTreeMap<i32, Rules> = BTreeMap::new();
    for Line(call, error, cases) in TABLE {
        let rules = cases.iter().map(|case| SeccompRule::new(conditions(case)?)).collect::<Result<Vec<_>, _>>()?;
        by_error.entry(*error).or_default().insert(*call, rules);
    }
    let other_protocols: Vec<Test> =
        std::iter::once(Is(0, libc::AF_NETLINK)).chain(netlink.iter().map(|protocol| IsNot(2, *protocol))).collect();
    let rule = SeccompRule::new(conditions(&other_protocols)?)?;
    by_error.entry(libc::EPROTONOSUPPORT).or_default().insert(libc::SYS_socket, vec![rule]);
    let compiled = by_error.into_iter().map(|(error, rules)| {
        let program = compile(rules, error, arch)?;
        Ok(if error == libc::ENOSYS { guard_abi(program) } else { program })
    });
    compiled.collect()
}

fn conditions(case: &[Test]) -> Result<Vec<SeccompCondition>, BackendError> {
    let condition = |test: &Test| match *test {
        Is(argument, value) => SeccompCondition::new(argument, Len::Dword, Op::Eq, low(value)),
        IsNot(argument, value) => SeccompCondition::new(argument, Len::Dword, Op::Ne, low(value)),
        Bits(argument, bits) => SeccompCondition::new(argument, Len::Qword, Op::MaskedEq(low(bits)), low(bits)),
    };
    case.iter().map(condition).collect()
}

fn low(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}

/// Calls by another architecture's table (32-bit programs) end the process: seccompiler sees to it.
fn compile(rules: Rules, errno: i32, arch: TargetArch) -> Result<Vec<u64>, BackendError> {
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?.try_into()?;
    Ok(program
        .iter()
        .map(|i| u64::from(i.code) | u64::from(i.jt) << 16 | u64::from(i.jf) << 24 | u64::from(i.k) << 32)
        .collect())
}

/// Puts in front: load the number; if it is an x32 one, `ENOSYS`.
#[cfg(target_arch = "x86_64")]
fn guard_abi(program: Vec<u64>) -> Vec<u64> {
    const LOAD_NUMBER: u64 = 0x20;
    const UNLESS_AT_LEAST: u64 = 0x35 | 1 << 24;
    const RETURN_ENOSYS: u64 = 0x06 | (0x0005_0000 | 38) << 32;
    let mut guarded = vec![LOAD_NUMBER, UNLESS_AT_LEAST | X32 << 32, RETURN_ENOSYS];
    guarded.extend(program);
    guarded
}

#[cfg(not(target_arch = "x86_64"))]
fn guard_abi(program: Vec<u64>) -> Vec<u64> {
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;
    const ERRNO: u32 = 0x0005_0000;
    #[cfg(target_arch = "x86_64")]
    const OURS: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const OURS: u32 = 0xc000_00b7;
    const I386: u32 = 0x4000_0003;

    /// The kernel's verdict: the most severe one of all programs.
    fn verdict(arch: u32, call: i64, arguments: &[u64]) -> u32 {
        verdict_of(&NETLINK, arch, call, arguments)
    }

    fn verdict_of(netlink: &[i32], arch: u32, call: i64, arguments: &[u64]) -> u32 {
        let programs = programs(netlink).unwrap();
        programs.iter().map(|program| interpret(program, arch, call, arguments)).min_by_key(|v| *v ^ KILL).unwrap()
    }

    /// Runs as much of classic BPF as the programs use.
    fn interpret(program: &[u64], arch: u32, call: i64, arguments: &[u64]) -> u32 {
        let number = call as u32;
        let argument = |place: u32| arguments.get(place as usize / 8).copied().unwrap_or(0) >> (place % 8 * 8);
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let (code, k) = (program[at] as u16, (program[at] >> 32) as u32);
            let (yes, no) = ((program[at] >> 16) as u8, (program[at] >> 24) as u8);
            at += 1;
            let branch = match code {
                0x20 => {
                    accumulator = match k {
                        0 => number,
                        4 => arch,
                        16..64 if k % 4 == 0 => argument(k - 16) as u32,
                        other => panic!("load of {other}"),
                    };
                    continue;
                }
                0x54 => {
                    accumulator &= k;
                    continue;
                }
                0x06 => return k,
                0x05 => {
                    at += k as usize;
                    continue;
                }
                0x15 => accumulator == k,
                0x25 => accumulator > k,
                0x35 => accumulator >= k,
                0x45 => accumulator & k != 0,
                other => panic!("code {other:#x}"),
            };
            at += usize::from(if branch { yes } else { no });
        }
    }

    fn refused(call: i64, arguments: &[u64]) -> Option<i32> {
        match verdict(OURS, call, arguments) {
            ALLOW => None,
            other => Some((other - ERRNO) as i32),
        }
    }

    #[test]
    fn named_calls_are_refused_and_others_are_not() {
        for Line(call, error, cases) in TABLE {
            if cases.is_empty() {
                assert_eq!(refused(*call, &[]), Some(*error), "call {call}");
                assert_eq!(refused(*call, &[u64::MAX; 6]), Some(*error), "call {call}");
            }
        }
        for call in
            [libc::SYS_read, libc::SYS_execve, libc::SYS_mount, libc::SYS_ptrace, libc::SYS_seccomp, libc::SYS_futex]
        {
            assert_eq!(refused(call, &[]), None, "call {call}");
        }
        for call in [libc::SYS_syslog, libc::SYS_bpf] {
            assert_eq!(refused(call, &[]), Some(libc::EPERM));
        }
        for call in [libc::SYS_io_setup, libc::SYS_fanotify_init, libc::SYS_clone3] {
            assert_eq!(refused(call, &[]), Some(libc::ENOSYS));
        }
    }

    #[test]
    fn no_call_has_two_lines_with_one_error() {
        let mut seen = std::collections::BTreeSet::new();
        for Line(call, error, _) in TABLE {
            assert!(seen.insert((call, error)), "the second line of call {call} replaces the first");
        }
    }

    #[test]
    fn arguments_decide_where_they_matter() {
        let threads = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64;
        let user = libc::CLONE_NEWUSER as u64;
        assert_eq!(refused(libc::SYS_clone, &[threads]), None);
        assert_eq!(refused(libc::SYS_clone, &[libc::SIGCHLD as u64]), None);
        assert_eq!(refused(libc::SYS_clone, &[threads | user]), Some(libc::EPERM));
        assert_eq!(refused(libc::SYS_clone, &[1 << 40 | user]), Some(libc::EPERM));
        assert_eq!(refused(libc::SYS_unshare, &[libc::CLONE_FILES as u64]), None);
        assert_eq!(refused(libc::SYS_unshare, &[user | libc::CLONE_NEWNS as u64]), Some(libc::EPERM));
        for known in [0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff, u64::MAX] {
            assert_eq!(refused(libc::SYS_personality, &[known]), None);
        }
        assert_eq!(refused(libc::SYS_personality, &[0x0040_0000]), Some(libc::EPERM));
    }

    /// The kernel reads 32 bits of these arguments, so upper halves must change nothing.
    const UPPER: [u64; 2] = [0, 0xdead_beef << 32];

    #[test]
    fn only_known_families_of_sockets_are_made() {
        let allowed = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];
        for (family, upper) in (0..64).chain([-1, i32::MAX]).flat_map(|family| UPPER.map(|upper| (family, upper))) {
            let expected = (!allowed.contains(&family)).then_some(libc::EAFNOSUPPORT);
            for call in [libc::SYS_socket, libc::SYS_socketpair] {
                assert_eq!(refused(call, &[upper | low(family), 1, 0]), expected, "family {family}");
            }
        }
    }

    #[test]
    fn only_known_protocols_of_netlink_are_made() {
        let usual = vec![libc::NETLINK_ROUTE, libc::NETLINK_SOCK_DIAG, libc::NETLINK_KOBJECT_UEVENT];
        let more = [usual.as_slice(), &[libc::NETLINK_NETFILTER, libc::NETLINK_XFRM, libc::NETLINK_GENERIC]].concat();
        let of_administrators = [NETLINK, NETLINK_OF_ADMINISTRATORS].concat();
        for (netlink, allowed) in [(NETLINK.to_vec(), usual), (of_administrators, more)] {
            for (protocol, upper) in (0..32).chain([-1]).flat_map(|protocol| UPPER.map(|upper| (protocol, upper))) {
                let call = |family: i32| {
                    let arguments = [upper | low(family), 3, upper | low(protocol)];
                    verdict_of(&netlink, OURS, libc::SYS_socket, &arguments)
                };
                let expected =
                    if allowed.contains(&protocol) { ALLOW } else { ERRNO + libc::EPROTONOSUPPORT.cast_unsigned() };
                assert_eq!(call(libc::AF_NETLINK), expected, "protocol {protocol}");
                assert_eq!(call(libc::AF_INET), ALLOW, "protocol {protocol}");
            }
        }
    }

    #[test]
    fn administrators_of_the_network_have_a_filter_of_their_own() {
        let filters = Filters::new().unwrap();
        let [none, raw, admin] = [vec![], vec![Capability::NetRaw], vec![Capability::NetAdmin]];
        let of = |given: Vec<Capability>| filters.of(&given.into_iter().collect());
        assert_eq!(of(none), of(raw));
        assert_ne!(of(admin), filters.usual);
    }

    #[test]
    fn uncharged_options_of_packet_sockets_are_unknown() {
        let uncharged = [libc::PACKET_RX_RING, libc::PACKET_TX_RING, libc::PACKET_FANOUT];
        for (option, upper) in (0..64).flat_map(|option| UPPER.map(|upper| (option, upper))) {
            let call = |level: i32| refused(libc::SYS_setsockopt, &[3, upper | low(level), upper | low(option)]);
            let expected = uncharged.contains(&option).then_some(libc::ENOPROTOOPT);
            assert_eq!(call(libc::SOL_PACKET), expected, "option {option}");
            for level in [libc::IPPROTO_IP, libc::IPPROTO_TCP] {
                assert_eq!(call(level), None, "option {option} of level {level}");
            }
            let ignored = [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE].contains(&option).then_some(DONE);
            assert_eq!(call(libc::SOL_SOCKET), ignored, "option {option} of any socket");
        }
    }

    #[test]
    fn no_other_table_of_calls_gets_through() {
        assert_eq!(verdict(I386, 11, &[]), KILL);
        #[cfg(target_arch = "x86_64")]
        for call in [0, libc::SYS_read, libc::SYS_bpf, 0x1ff] {
            assert_eq!(refused(call | X32 as i64, &[]), Some(libc::ENOSYS), "x32 call {call}");
        }
    }

    #[test]
    fn programs_stay_small() {
        assert!(
            programs(&[NETLINK, NETLINK_OF_ADMINISTRATORS].concat()).unwrap().iter().map(Vec::len).sum::<usize>() < 440
        );
    }
}
