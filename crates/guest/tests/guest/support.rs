//! A real guest as an ordinary process, on a loopback address of its own.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use roost_sys::spawn::{Receiver, send_signal};
use roost_wire::client::{CallError, Connection, ExecFrame, ExecStream};
use roost_wire::{Attach, ErrorCode, ExecInfo, ExecStart, GUEST_PORT, GuestConfig, Key, Program, READY, Stream};
use tokio::net::TcpStream;

/// A running guest, stopped with everything it started when dropped.
pub(crate) struct Guest {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) key: Key,
    pub(crate) folder: tempfile::TempDir,
}

impl Guest {
    /// Starts one with the usual configuration.
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    /// Starts one with a changed configuration.
    pub(crate) fn with(change: impl FnOnce(&mut GuestConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = Key::from_bytes([0x5a; 32]);
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let mut config = GuestConfig::new("sbx_test", "test", key.clone());
        config.listen = own_address();
        config.run_dir = path("run");
        config.etc_dir = path("etc");
        config.spool_dir = path("spool");
        config.log_dir = path("log");
        config.workdir = Some(path("work"));
        std::fs::create_dir(path("etc")).unwrap();
        std::fs::create_dir(path("work")).unwrap();
        change(&mut config);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        // The shell puts the socket where the guest expects it.
        let child = Command::new("/bin/sh")
            .args(["-c", "exec \"$0\" init 3<&0 </dev/null", env!("CARGO_BIN_EXE_roost-guest")])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .unwrap();
        let guest = Self { child, address: config.listen, key, folder };
        ours.write_all(&config.encode().unwrap()).unwrap();
        let mut answer = Vec::new();
        ours.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, [READY]);
        guest
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A path inside its folder.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) async fn connect(&self) -> Connection<TcpStream> {
        Connection::new(self.stream().await, &self.key).unwrap()
    }

    pub(crate) async fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Starts a process and follows it from its first byte.
    pub(crate) async fn follow(&self, start: ExecStart) -> ExecStream<TcpStream> {
        self.connect().await.start_and_follow(start, Attach::whole()).await.unwrap()
    }

    /// Runs a line of shell to its end.
    pub(crate) async fn shell(&self, id: &str, line: &str) -> Finished {
        self.run(shell(id, line)).await
    }

    pub(crate) async fn run(&self, start: ExecStart) -> Finished {
        collect(self.follow(start).await).await
    }

    /// Waits for the process of the guest itself.
    pub(crate) fn wait_for_exit(&mut self, limit: Duration) -> Option<i32> {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status.code(),
                None if Instant::now() > deadline => return None,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It stops what it started; only if it does not is it killed.
        send_signal(Receiver::Process(self.child.id() as i32), 15).ok();
        if self.wait_for_exit(Duration::from_secs(8)).is_none() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// A loopback address that no other guest of this or another test process has.
fn own_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed) as u8;
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(127, high, low, number), GUEST_PORT))
}

pub(crate) fn shell(id: &str, line: &str) -> ExecStart {
    ExecStart::new(id, Program::Shell(line.to_owned()))
}

pub(crate) fn argv(id: &str, argv: &[&str]) -> ExecStart {
    ExecStart::new(id, Program::Argv(argv.iter().map(|&text| text.to_owned()).collect()))
}

/// What a process wrote and how it ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) info: ExecInfo,
}

impl Finished {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn code(&self) -> i32 {
        self.info.exit().unwrap().shell_code()
    }
}

/// Reads an attachment from offset 0 to its end and checks that offsets are without gap or repeat.
pub(crate) async fn collect(mut stream: ExecStream<TcpStream>) -> Finished {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match stream.next().await.unwrap().unwrap() {
            ExecFrame::Output { stream, offset, bytes } => {
                let target = if stream == Stream::Stdout { &mut stdout } else { &mut stderr };
                assert_eq!(offset, target.len() as u64);
                target.extend_from_slice(&bytes);
            }
            ExecFrame::Gap(gap) => panic!("unexpected gap {gap:?}"),
            ExecFrame::End(info) => {
                assert!(stream.into_connection().is_some());
                return Finished { stdout, stderr, info };
            }
        }
    }
}

/// Reads until `text` has appeared on standard output.
pub(crate) async fn read_until(stream: &mut ExecStream<TcpStream>, text: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(text) {
        match stream.next().await.unwrap().unwrap() {
            ExecFrame::Output { bytes, .. } => seen.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} before `{text}` in `{seen}`"),
        }
    }
    seen
}

/// The code of a refusal.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, CallError>) -> ErrorCode {
    result.unwrap_err().failure().expect("a refusal").code
}
