//! Takes as much of a thing as there is, and keeps it.

use std::any::Any;
use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use roost_sys::scarce;
use rustix::fs::MemfdFlags;
use rustix::process::{Resource, Rlimit};

use crate::{Thing, neighbours, queues};

/// More than any sandbox should get.
const MOST: u64 = 100_000;
/// Taking ends after this time: what was taken by then is kept.
const TIME: Duration = Duration::from_secs(8);
const MIB: usize = 1 << 20;
/// A ring of this size shows that rings are made; a kernel that makes one makes many.
const RING: u32 = 64 << 20;
const RINGS: u64 = 4;

/// The outcome of taking. The things are held until this value ends.
#[derive(Debug)]
pub struct Taken {
    /// How many were taken.
    pub count: u64,
    /// Why there were no more.
    pub until: String,
    /// The things themselves.
    held: Vec<Box<dyn Any>>,
}

impl Thing {
    /// Takes as many of this thing as there are, within bounds of number and time.
    pub fn take(self) -> io::Result<Taken> {
        raise_open_files()?;
        Ok(match self {
            Self::Watches => {
                gather(MOST, |_| Ok(rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC)?))
            }
            Self::Timers => gather(MOST, |_| scarce::timer()),
            Self::Queues => gather(1000, |number| scarce::message_queue(&format!("{}-{number}", std::process::id()))),
            Self::Signals => {
                scarce::block_queued_signal()?;
                gather(MOST, |_| scarce::queue_signal())
            }
            Self::LockedMemory => gather(4096, |_| scarce::LockedSegment::new(MIB)),
            Self::Pipes => gather(4096, |_| large_pipe(MIB)),
            Self::AsyncContexts => gather(MOST, |_| scarce::aio_context()),
            Self::Terminals => gather(MOST, |_| Ok(rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR)?)),
            Self::TcpMemory => fill_connections()?,
            Self::NetlinkQueues => gather(queues::SOCKETS, |_| queues::netlink()),
            Self::PingQueues => gather(queues::SOCKETS, |_| queues::ping()),
            Self::Datagrams => gather(queues::SOCKETS, |_| queues::datagrams()),
            Self::Neighbours => neighbours::fill()?,
            Self::PacketRings => gather(RINGS, |_| scarce::packet_ring(RING)),
            Self::ExpressRings => gather(RINGS, |_| scarce::express_ring(RING / 16)),
            Self::Processes => gather(MOST, |_| thread::Builder::new().stack_size(16 << 10).spawn(thread::park)),
            Self::Memory | Self::SharedMemory => burn(self)?,
            Self::Disk => fill_disk()?,
            Self::Files => make_files()?,
            Self::Cpu => gather(8, |_| thread::Builder::new().spawn(spin)),
        })
    }

    /// Takes memory until the kernel ends this process.
    pub fn burn(self) -> io::Result<()> {
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let mut files: Vec<File> = Vec::new();
        loop {
            if self == Self::SharedMemory {
                let mut file = File::from(rustix::fs::memfd_create("filler", MemfdFlags::CLOEXEC)?);
                file.write_all(&vec![1_u8; 4 * MIB])?;
                files.push(file);
            } else {
                pieces.push(vec![1_u8; 4 * MIB]);
            }
        }
    }
}

/// Makes one thing after the other until an error, the number or the time.
pub(crate) fn gather<T: 'static>(most: u64, mut make: impl FnMut(u64) -> io::Result<T>) -> Taken {
    let (began, mut held) = (Instant::now(), Vec::<Box<dyn Any>>::new());
    let mut until = "the end of the attempt".to_owned();
    for number in 0..most {
        match make(number) {
            Ok(thing) => held.push(Box::new(thing)),
            Err(error) => {
                until = error.to_string();
                break;
            }
        }
        if began.elapsed() > TIME {
            "the end of its time".clone_into(&mut until);
            break;
        }
    }
    Taken { count: held.len() as u64, until, held }
}

fn raise_open_files() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum.map(|most| most.min(MOST)), maximum: limit.maximum };
    Ok(rustix::process::setrlimit(Resource::Nofile, raised)?)
}

/// A pipe whose buffer has `bytes`, with one byte in it.
pub(crate) fn large_pipe(bytes: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::pipe::fcntl_setpipe_size(&writer, bytes)?;
    rustix::io::write(&writer, b"x")?;
    Ok((reader, writer))
}

/// Connections over the loopback whose receivers never read.
fn fill_connections() -> io::Result<Taken> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let block = vec![1_u8; 64 << 10];
    let mut taken = gather(3000, |_| {
        let mut writer = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        let (reader, _) = listener.accept()?;
        writer.set_nonblocking(true)?;
        loop {
            match writer.write(&block) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((reader, writer)),
                Err(error) => return Err(error),
            }
        }
    });
    taken.held.push(Box::new(listener));
    Ok(taken)
}

/// Children take memory until the kernel ends them, one after the other for as long as this process lives.
fn burn(thing: Thing) -> io::Result<Taken> {
    let child = move || -> io::Result<ExitStatus> {
        let program = std::env::current_exe()?;
        Command::new(program).args(["burn", thing.name()]).stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    let status = child()?;
    thread::spawn(move || while child().is_ok() {});
    Ok(Taken { count: 1, until: format!("the first process that took it ended with {status}"), held: Vec::new() })
}

fn fill_disk() -> io::Result<Taken> {
    let mut file = File::create("/var/tmp/filler")?;
    // Bytes that no compression makes small.
    let block: Vec<u8> = (0..MIB as u64).map(|place| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    Ok(gather(1 << 20, |_| {
        file.write_all(&block)?;
        rustix::fs::fdatasync(&file).map_err(io::Error::from)
    }))
}

fn make_files() -> io::Result<Taken> {
    std::fs::create_dir_all("/var/tmp/files")?;
    Ok(gather(MOST, |number| {
        let folder = format!("/var/tmp/files/{number}");
        std::fs::create_dir(&folder)?;
        File::create(format!("{folder}/{}", "x".repeat(200))).map(drop)
    }))
}

fn spin() {
    loop {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_gathered_until_the_first_error() {
        let taken = gather(10, |number| if number < 3 { Ok(number) } else { Err(io::Error::other("full")) });
        assert_eq!((taken.count, taken.until.as_str()), (3, "full"));
        assert_eq!(gather(2, Ok).count, 2);
    }
}
