//! Installs classic BPF programs as seccomp filters.

use std::io;

/// A limit of the kernel's on one program.
const MAX_INSTRUCTIONS: usize = 4096;

/// Puts `program` in force for this thread, its children and whatever they execute.
///
/// One element is one `struct sock_filter`, low half first: `code | jt << 16 | jf << 24 | k << 32`. The caller must hold
/// `CAP_SYS_ADMIN` in its user namespace or have set `no_new_privs`. A filter can never be taken off again.
pub fn install(program: &[u64]) -> io::Result<()> {
    if program.is_empty() || program.len() > MAX_INSTRUCTIONS {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut instructions: Vec<libc::sock_filter> = program.iter().map(|&packed| unpack(packed)).collect();
    let length = u16::try_from(instructions.len()).map_err(io::Error::other)?;
    let description = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // SAFETY: `description` points to `length` initialised instructions that outlive the call; the kernel copies and
    // validates them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            &raw const description,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[expect(clippy::cast_possible_truncation, reason = "each field is cut out of its own bits")]
fn unpack(packed: u64) -> libc::sock_filter {
    libc::sock_filter {
        code: packed as u16,
        jt: (packed >> 16) as u8,
        jf: (packed >> 24) as u8,
        k: (packed >> 32) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_places() {
        let filter = unpack(0x8000_0001_0203_0015);
        assert_eq!((filter.code, filter.jt, filter.jf, filter.k), (0x15, 3, 2, 0x8000_0001));
    }

    #[test]
    fn a_filter_denies_in_its_thread_only() {
        // ld [nr]; jeq getppid: ret EPERM; ret ALLOW
        let nr = u64::from(libc::SYS_getppid.unsigned_abs().to_le_bytes()[0]);
        let program = [0x20, 0x15 | (1 << 24) | (nr << 32), 0x06 | (0x0005_0001 << 32), 0x06 | (0x7fff_0000 << 32)];
        let inside = std::thread::spawn(move || {
            install(&program).unwrap();
            // SAFETY: takes no arguments and has no effect.
            unsafe { libc::syscall(libc::SYS_getppid) }
        });
        assert_eq!(inside.join().unwrap(), -1);
        // SAFETY: as above.
        assert!(unsafe { libc::syscall(libc::SYS_getppid) } > 0);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(install(&[]).is_err());
        assert!(install(&[0xffff]).is_err());
    }
}
