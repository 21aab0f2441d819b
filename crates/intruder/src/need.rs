//! Checks that a process still gets the little of a thing that ordinary programs need.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use roost_sys::scarce;

use crate::take::large_pipe;
use crate::{Thing, neighbours, queues};

/// So many at once are an ordinary need.
const FEW: usize = 3;
const PATIENCE: Duration = Duration::from_secs(10);
const SENT: usize = 256 << 10;

impl Thing {
    /// Gets a few of this thing and gives them back. Fails with the kernel's reason if they are not there.
    pub fn need(self) -> io::Result<()> {
        match self {
            Self::Watches => few(|| Ok(rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC)?)),
            Self::Timers => few(scarce::timer),
            // The number is unique on the host, whose queues have one name space.
            Self::Queues => scarce::message_queue(&format!("roost-need-{}", std::process::id())).map(drop),
            Self::Signals => {
                scarce::block_queued_signal()?;
                few(scarce::queue_signal)
            }
            Self::LockedMemory => scarce::LockedSegment::new(4096).map(drop),
            Self::Pipes => few(|| large_pipe(64 << 10)),
            Self::AsyncContexts => few(scarce::aio_context),
            Self::Terminals => few(|| Ok(rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR)?)),
            Self::TcpMemory => converse(),
            Self::NetlinkQueues => few(queues::netlink),
            Self::PingQueues | Self::Datagrams => few(queues::exchange),
            Self::Neighbours => neighbours::reach_gateway(),
            Self::Processes => {
                few(|| thread::Builder::new().spawn(|| ())?.join().map_err(|_| io::ErrorKind::Other.into()))
            }
            Self::Memory | Self::PacketRings | Self::ExpressRings => touch(),
            Self::SharedMemory | Self::Files => few(|| {
                let file = File::from(rustix::fs::memfd_create("need", rustix::fs::MemfdFlags::CLOEXEC)?);
                (&file).write_all(&[1; 4096]).map(|()| file)
            }),
            Self::Disk => write_and_remove(),
            Self::Cpu => Ok(()),
        }
    }
}

fn few<T>(mut make: impl FnMut() -> io::Result<T>) -> io::Result<()> {
    let made: Vec<T> = (0..FEW).map(|_| make()).collect::<io::Result<_>>()?;
    drop(made);
    Ok(())
}

/// Sends bytes over a connection of the loopback and reads all of them.
fn converse() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let sender = thread::spawn(move || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&vec![1; SENT])
    });
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen)?;
    sender.join().map_err(|_| io::Error::from(io::ErrorKind::Other))??;
    if seen.len() == SENT { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Uses some memory.
fn touch() -> io::Result<()> {
    let piece = vec![1_u8; 4 << 20];
    if std::hint::black_box(&piece).iter().all(|byte| *byte == 1) {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn write_and_remove() -> io::Result<()> {
    let path = std::env::temp_dir().join(format!("roost-need-{}", std::process::id()));
    let mut file = File::create(&path)?;
    let written = file.write_all(&vec![1; 1 << 20]).and_then(|()| Ok(rustix::fs::fdatasync(&file)?));
    std::fs::remove_file(&path)?;
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_needs_are_met_here() {
        for thing in [Thing::Watches, Thing::Timers, Thing::Pipes, Thing::TcpMemory, Thing::Disk, Thing::Memory] {
            thing.need().unwrap_or_else(|error| panic!("{}: {error}", thing.name()));
        }
    }
}
