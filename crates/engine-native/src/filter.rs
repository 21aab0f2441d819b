//! The system calls a sandbox may not make.
//!
//! Everything is allowed but what is named here: a sandbox is a whole computer, and most of what it must not do fails
//! already for lack of a capability. Named are calls that reach parts of the kernel with a large attack surface, or whose
//! state cannot be saved with the sandbox's memory.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refused with `EPERM`, whatever the arguments.
const FORBIDDEN: &[i64] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Answered with `ENOSYS`, so that programs fall back: the flags of `clone3` lie in memory where no filter sees them, and
/// secret memory cannot be saved.
const UNKNOWN: &[i64] = &[libc::SYS_clone3, libc::SYS_memfd_secret];

/// Personalities that change no more than address randomisation and the reported machine.
const PERSONALITIES: [u64; 6] = [0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff];

/// Socket families whose sockets do not belong to the sandbox's network: hypervisor sockets, and the kernel's crypto.
const FAMILIES: [i32; 2] = [libc::AF_VSOCK, libc::AF_ALG];

/// Numbers from here on belong to the x32 calls, which would otherwise pass every rule above.
#[cfg(target_arch = "x86_64")]
const X32: u64 = 0x4000_0000;

/// The programs to install, packed as `roost_sys::seccomp::install` wants them.
pub(crate) fn programs() -> Result<Vec<Vec<u64>>, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let mut forbidden: Rules = FORBIDDEN.iter().map(|&call| (call, Vec::new())).collect();
    let new_user = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        let condition = SeccompCondition::new(0, Len::Qword, Op::MaskedEq(new_user), new_user)?;
        forbidden.insert(call, vec![SeccompRule::new(vec![condition])?]);
    }
    let unusual = PERSONALITIES
        .iter()
        .map(|&known| SeccompCondition::new(0, Len::Dword, Op::Ne, known))
        .collect::<Result<Vec<_>, _>>()?;
    forbidden.insert(libc::SYS_personality, vec![SeccompRule::new(unusual)?]);
    let families = FAMILIES
        .iter()
        .map(|&family| {
            let family = u64::from(family.unsigned_abs());
            SeccompRule::new(vec![SeccompCondition::new(0, Len::Dword, Op::Eq, family)?])
        })
        .collect::<Result<Vec<_>, _>>()?;
    forbidden.insert(libc::SYS_socket, families);

    let unknown: Rules = UNKNOWN.iter().map(|&call| (call, Vec::new())).collect();
    Ok(vec![compile(forbidden, libc::EPERM, arch)?, guard_abi(compile(unknown, libc::ENOSYS, arch)?)])
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

    /// What the kernel would answer: the most severe verdict of all programs.
    fn verdict(arch: u32, call: i64, argument: u64) -> u32 {
        let programs = programs().unwrap();
        programs.iter().map(|program| interpret(program, arch, call, argument)).min_by_key(|v| *v ^ KILL).unwrap()
    }

    /// Just as much of classic BPF as the programs use.
    fn interpret(program: &[u64], arch: u32, call: i64, argument: u64) -> u32 {
        let number = call as u32;
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
                        16 => argument as u32,
                        20 => (argument >> 32) as u32,
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

    fn refused(call: i64, argument: u64) -> Option<i32> {
        match verdict(OURS, call, argument) {
            ALLOW => None,
            other => Some((other - ERRNO) as i32),
        }
    }

    #[test]
    fn what_is_named_is_refused_and_the_rest_is_not() {
        for &call in FORBIDDEN {
            assert_eq!(refused(call, 0), Some(libc::EPERM), "call {call}");
        }
        for &call in UNKNOWN {
            assert_eq!(refused(call, 0), Some(libc::ENOSYS), "call {call}");
        }
        for call in
            [libc::SYS_read, libc::SYS_execve, libc::SYS_mount, libc::SYS_ptrace, libc::SYS_seccomp, libc::SYS_futex]
        {
            assert_eq!(refused(call, 0), None, "call {call}");
        }
    }

    #[test]
    fn arguments_decide_where_they_matter() {
        let threads = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64;
        let user = libc::CLONE_NEWUSER as u64;
        assert_eq!(refused(libc::SYS_clone, threads), None);
        assert_eq!(refused(libc::SYS_clone, libc::SIGCHLD as u64), None);
        assert_eq!(refused(libc::SYS_clone, threads | user), Some(libc::EPERM));
        assert_eq!(refused(libc::SYS_unshare, libc::CLONE_FILES as u64), None);
        assert_eq!(refused(libc::SYS_unshare, user | libc::CLONE_NEWNS as u64), Some(libc::EPERM));
        assert_eq!(refused(libc::SYS_socket, libc::AF_INET as u64), None);
        assert_eq!(refused(libc::SYS_socket, libc::AF_VSOCK as u64), Some(libc::EPERM));
        // The kernel looks at 32 bits of it only, so must the filter.
        assert_eq!(refused(libc::SYS_socket, 1 << 32 | libc::AF_VSOCK as u64), Some(libc::EPERM));
        for known in PERSONALITIES {
            assert_eq!(refused(libc::SYS_personality, known), None);
        }
        assert_eq!(refused(libc::SYS_personality, 0x0040_0000), Some(libc::EPERM));
    }

    #[test]
    fn no_other_table_of_calls_gets_through() {
        assert_eq!(verdict(I386, 11, 0), KILL);
        #[cfg(target_arch = "x86_64")]
        for call in [0, libc::SYS_read, libc::SYS_bpf, 0x1ff] {
            assert_eq!(refused(call | X32 as i64, 0), Some(libc::ENOSYS), "x32 call {call}");
        }
    }

    #[test]
    fn programs_stay_small() {
        assert!(programs().unwrap().iter().map(Vec::len).sum::<usize>() < 400);
    }
}
