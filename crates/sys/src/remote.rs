//! Calls that a child of this process makes on our behalf, by ptrace.
//!
//! The child is stopped, brought to the entry of its next system call, and made to run ours in its place; then it goes on with
//! its own. The child must have one thread, which is in a call already or about to make one.
//!
//! ```text
//! running -- seize, interrupt --> stopped -- resume --> entry of its own call -- ours in its place --> exit of ours
//!                                                              ^                                           |
//!                                                              +----------- its own once more -------------+--> let go
//! ```

use std::io;

use rustix::process::Pid;

/// More stops than this between two system calls are not a child that waits to be told what to do.
const MOST_STOPS: usize = 64;

/// A child that makes more calls than this is not about to make a namespace.
const MOST_CALLS: usize = 100_000;

/// What marks the stop at a system call from other traps.
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// `PTRACE_EVENT_STOP`, the stop that an interruption leads to.
const EVENT_STOP: i32 = 128;

#[cfg(target_arch = "x86_64")]
mod machine {
    use super::{Registers, Tracee, io};

    const INSTRUCTION: u64 = 2;

    /// Puts a call in the place of the one that the registers stand at the entry of.
    pub(super) fn enter(tracee: &Tracee, at: &Registers, call: i64, arguments: [u64; 5]) -> io::Result<()> {
        let mut registers = *at;
        registers.orig_rax = call.cast_unsigned();
        let places =
            [&mut registers.rdi, &mut registers.rsi, &mut registers.rdx, &mut registers.r10, &mut registers.r8];
        places.into_iter().zip(arguments).for_each(|(place, argument)| *place = argument);
        tracee.set_registers(&registers)
    }

    /// The registers with which the call at whose entry they stand is made once more.
    pub(super) fn again(at: &Registers) -> Registers {
        Registers { rax: at.orig_rax, rip: at.rip - INSTRUCTION, ..*at }
    }

    /// The number of the call at whose entry the registers stand, and its first argument.
    pub(super) fn call(at: &Registers) -> (i64, u64) {
        (at.orig_rax.cast_signed(), at.rdi)
    }

    pub(super) fn result(registers: &Registers) -> i64 {
        registers.rax.cast_signed()
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use super::{Registers, Tracee, io};

    const INSTRUCTION: u64 = 4;

    /// Puts a call in the place of the one that the registers stand at the entry of.
    pub(super) fn enter(tracee: &Tracee, at: &Registers, call: i64, arguments: [u64; 5]) -> io::Result<()> {
        let mut registers = *at;
        registers.regs[..5].copy_from_slice(&arguments);
        registers.regs[8] = call.cast_unsigned();
        tracee.set_registers(&registers)?;
        // The kernel has read the number from its register already.
        tracee.set_call(i32::try_from(call).map_err(io::Error::other)?)
    }

    /// The registers with which the call at whose entry they stand is made once more.
    pub(super) fn again(at: &Registers) -> Registers {
        Registers { pc: at.pc - INSTRUCTION, ..*at }
    }

    /// The number of the call at whose entry the registers stand, and its first argument.
    pub(super) fn call(at: &Registers) -> (i64, u64) {
        (at.regs[8].cast_signed(), at.regs[0])
    }

    pub(super) fn result(registers: &Registers) -> i64 {
        registers.regs[0].cast_signed()
    }
}

type Registers = libc::user_regs_struct;

/// Gives a child of this process another effective user, for whom it still makes files as root. Its capabilities stay as they are
/// if it was started after [`keep_capabilities`].
///
/// What the kernel shows of the child in /proc belongs to root from then on, also of what the child clones.
pub fn set_effective_user(child: Pid, uid: u32) -> io::Result<()> {
    let tracee = Tracee::seize(child)?;
    tracee.stop_at_call()?;
    tracee.become_user(uid)
}

/// Does `work` while a child of this process that is `user` is stopped with root as its effective user.
///
/// The child is in a system call or makes one soon; a call that it is interrupted in is made once more.
pub fn while_root<T>(child: Pid, user: u32, work: impl FnOnce() -> T) -> io::Result<T> {
    let tracee = Tracee::seize(child)?;
    tracee.stop_at_call()?;
    tracee.become_user(0)?;
    let done = work();
    tracee.stop_at_call()?;
    tracee.become_user(user)?;
    Ok(done)
}

/// Lets a stopped child go on by `go`, until it has made its next user namespace, whose owner is `owner`.
///
/// The child, which root has started, is that user for the one call alone: other parts of the kernel know root by its user and not
/// by its capabilities, which the child keeps as [`set_effective_user`] says.
pub fn own_next_namespace(child: Pid, owner: u32, go: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let tracee = Tracee::seize(child)?;
    go()?;
    for _ in 0..MOST_CALLS {
        tracee.stop_at_call()?;
        if tracee.makes_user_namespace()? {
            tracee.become_user(owner)?;
            tracee.stop_at_call()?;
            // The end of the clone, in the child; then whatever it does next.
            tracee.stop_at_call()?;
            tracee.stop_at_call()?;
            return tracee.become_user(0);
        }
        tracee.stop_at_call()?;
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}

/// Lets this process, and the programs that it starts, keep their capabilities when they change their user.
pub fn keep_capabilities() -> io::Result<()> {
    use rustix::thread::{CapabilitiesSecureBits, capabilities_secure_bits, set_capabilities_secure_bits};
    Ok(set_capabilities_secure_bits(capabilities_secure_bits()? | CapabilitiesSecureBits::NO_SETUID_FIXUP)?)
}

/// A child under trace, let go when dropped.
struct Tracee(libc::pid_t);

impl Tracee {
    fn seize(child: Pid) -> io::Result<Self> {
        let pid = child.as_raw_nonzero().get();
        request(libc::PTRACE_SEIZE, pid, 0, libc::PTRACE_O_TRACESYSGOOD as usize)?;
        let tracee = Self(pid);
        request(libc::PTRACE_INTERRUPT, pid, 0, 0)?;
        // The interruption is the last of the stops that may be on their way.
        tracee.await_stop(|status| status >> 8 == EVENT_STOP, libc::PTRACE_CONT)?;
        Ok(tracee)
    }

    /// Lets the child run until it enters a system call.
    fn stop_at_call(&self) -> io::Result<()> {
        request(libc::PTRACE_SYSCALL, self.0, 0, 0)?;
        self.await_stop(|status| status == CALL_STOP, libc::PTRACE_SYSCALL)
    }

    /// At the entry of a call: makes ours in its place, and leaves the child about to make its own once more.
    fn call(&self, call: i64, arguments: [u64; 5]) -> io::Result<()> {
        let own = self.registers()?;
        machine::enter(self, &own, call, arguments)?;
        let made = self.stop_at_call().and_then(|()| self.registers());
        self.set_registers(&machine::again(&own))?;
        match machine::result(&made?) {
            error @ -4095..0 => Err(io::Error::from_raw_os_error(i32::try_from(-error).unwrap_or(libc::EIO))),
            _ => Ok(()),
        }
    }

    /// At the entry of a call: changes the effective user, but not the one for whom files are made.
    fn become_user(&self, uid: u32) -> io::Result<()> {
        let keep = u64::from(u32::MAX);
        self.call(libc::SYS_setresuid, [keep, u64::from(uid), keep, 0, 0])?;
        self.stop_at_call()?;
        self.call(libc::SYS_setfsuid, [0; 5])
    }

    /// At the entry of a call: whether it is a clone into a new user namespace.
    fn makes_user_namespace(&self) -> io::Result<bool> {
        let (call, first) = machine::call(&self.registers()?);
        let flags = match call {
            libc::SYS_clone => first,
            libc::SYS_clone3 => self.read_word(first)?,
            _ => return Ok(false),
        };
        Ok(flags & u64::from(libc::CLONE_NEWUSER.cast_unsigned()) != 0)
    }

    /// Reads eight bytes of the child's memory.
    fn read_word(&self, address: u64) -> io::Result<u64> {
        let mut word = [0_u8; 8];
        let ours = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() };
        let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: word.len() };
        // SAFETY: the kernel writes at most eight bytes to `word`, which outlives the call; the other address is never
        // followed in this process.
        let read = unsafe { libc::process_vm_readv(self.0, &raw const ours, 1, &raw const theirs, 1, 0) };
        if read == 8 { Ok(u64::from_ne_bytes(word)) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for the wanted stop; at any other the child goes on, with the signal that it was stopped for.
    fn await_stop(&self, wanted: impl Fn(i32) -> bool, on: libc::c_uint) -> io::Result<()> {
        for _ in 0..MOST_STOPS {
            let status = self.wait()?;
            if wanted(status) {
                return Ok(());
            }
            let signal = if status == CALL_STOP || status >> 8 != 0 { 0 } else { status };
            request(on, self.0, 0, usize::try_from(signal).unwrap_or(0))?;
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// The next stop. The end of the child is an error, and stays to be waited for by its owner.
    fn wait(&self) -> io::Result<i32> {
        // SAFETY: all fields of `siginfo_t` are integers for which zero is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL;
        // SAFETY: the kernel writes to `info`, which outlives the call.
        let result = unsafe { libc::waitid(libc::P_PID, self.0.cast_unsigned(), &raw mut info, options) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        if info.si_code != libc::CLD_TRAPPED && info.si_code != libc::CLD_STOPPED {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: the kernel filled in the fields of a child that changed its state.
        Ok(unsafe { info.si_status() })
    }

    fn registers(&self) -> io::Result<Registers> {
        // SAFETY: all fields are integers for which zero is valid.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        let mut space = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<Registers>() };
        request(libc::PTRACE_GETREGSET, self.0, libc::NT_PRSTATUS as usize, (&raw mut space) as usize)?;
        Ok(registers)
    }

    fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let mut registers = *registers;
        let mut space = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<Registers>() };
        request(libc::PTRACE_SETREGSET, self.0, libc::NT_PRSTATUS as usize, (&raw mut space) as usize)
    }

    #[cfg(target_arch = "aarch64")]
    fn set_call(&self, mut call: i32) -> io::Result<()> {
        const NT_ARM_SYSTEM_CALL: usize = 0x404;
        let mut space = libc::iovec { iov_base: (&raw mut call).cast(), iov_len: size_of::<i32>() };
        request(libc::PTRACE_SETREGSET, self.0, NT_ARM_SYSTEM_CALL, (&raw mut space) as usize)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        request(libc::PTRACE_DETACH, self.0, 0, 0).ok();
    }
}

fn request(what: libc::c_uint, pid: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests of this module read and write the registers of the child alone; where `data` is the address of an
    // `iovec`, it and the buffer behind it live in the caller's frame, and the kernel stays within its length.
    let result = unsafe { libc::ptrace(what, pid, address, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A child that answers each line.
    fn child() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn answers(child: &mut Child) -> bool {
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let mut byte = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut byte).is_ok() && byte == *b"x"
    }

    fn users(child: &Child) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Uid:\t")).unwrap().replace('\t', " ")
    }

    #[test]
    fn child_changes_its_effective_user_and_goes_on() {
        let mut child = child();
        let pid = Pid::from_child(&child);
        for _ in 0..20 {
            // The child is about to read, or in the middle of it.
            assert!(answers(&mut child));
            set_effective_user(pid, 0x8000_0007).unwrap();
            assert_eq!(users(&child), "0 2147483655 0 0");
            assert!(answers(&mut child));
            set_effective_user(pid, 0).unwrap();
            assert_eq!(users(&child), "0 0 0 0");
        }
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn child_is_root_for_the_moment_of_the_work() {
        let mut child = child();
        let pid = Pid::from_child(&child);
        set_effective_user(pid, 0x8000_0007).unwrap();
        for _ in 0..20 {
            assert!(answers(&mut child));
            assert_eq!(while_root(pid, 0x8000_0007, || users(&child)).unwrap(), "0 0 0 0");
            assert_eq!(users(&child), "0 2147483655 0 0");
        }
        assert!(answers(&mut child));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn child_that_makes_no_namespace_runs_to_its_end() {
        let mut child = child();
        assert!(answers(&mut child));
        let input = child.stdin.take();
        let ended = own_next_namespace(Pid::from_child(&child), 1, || {
            drop(input);
            Ok(())
        });
        assert_eq!(ended.unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn dead_child_is_an_error_and_can_still_be_waited_for() {
        let mut child = child();
        child.kill().unwrap();
        let pid = Pid::from_child(&child);
        assert!(set_effective_user(pid, 1).is_err());
        assert!(!child.wait().unwrap().success());
    }
}
