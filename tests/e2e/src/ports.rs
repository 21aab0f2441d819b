//! A daemon with a sandbox in which servers run, and requests to them from outside.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{Client, Upload, WriteOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{Daemon, Options, RawAnswer, Sandbox, raw_tcp};

/// What has not come true by then will not.
const PATIENCE: Duration = Duration::from_secs(30);
/// A body is made of blocks of this size.
pub const BLOCK: usize = 1 << 20;

/// A daemon that serves HTTP, a sandbox `web` of template `base`, and a token.
#[derive(Debug)]
pub struct Served {
    /// The daemon.
    pub daemon: Daemon,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The secret of a token.
    pub token: String,
    address: String,
}

impl Served {
    /// Starts everything but the servers inside.
    pub async fn start() -> Result<Self> {
        Self::with(Options { tcp: true, base: true, ..Options::default() }).await
    }

    /// The same, with a daemon that differs; it must have `tcp` and `base`.
    pub async fn with(options: Options) -> Result<Self> {
        let daemon = Daemon::with(options).await?;
        let sandbox = daemon.sandbox_of("base", "web").await?;
        sandbox.write("/home/user/ports.py", include_str!("../workload/ports.py")).await?;
        let block = Upload::bytes(block(0));
        daemon.client().write_file("web", "/home/user/block", block, &WriteOptions::default()).await?;
        let token = daemon.client().mint_token("test").await?.secret;
        let address = daemon.address().context("the daemon has no address")?.to_owned();
        Ok(Self { daemon, sandbox, token, address })
    }

    /// Starts everything, with a server on port 3000 that everybody inside reaches, and on 4000 one on the loopback alone.
    pub async fn with_servers() -> Result<Self> {
        let served = Self::start().await?;
        served.serve(3000, "0.0.0.0").await?;
        served.serve(4000, "127.0.0.1").await?;
        Ok(served)
    }

    /// Starts a server inside and waits until it listens.
    pub async fn serve(&self, port: u16, address: &str) -> Result<()> {
        self.sandbox.spawn(&format!("python3 /home/user/ports.py {port} {address}")).await?;
        self.listening(port).await
    }

    /// Waits until a port is open.
    pub async fn listening(&self, port: u16) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.daemon.client().ports("web").await?.iter().any(|open| open.port == port && open.address.is_some()) {
            ensure!(Instant::now() < deadline, "port {port} never opened");
        }
        Ok(())
    }

    /// Where the daemon listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The host name of a port.
    pub fn host(&self, port: u16) -> String {
        let (_, own) = self.address.rsplit_once(':').unwrap_or_default();
        format!("{port}-web.localhost:{own}")
    }

    /// Asks a port by its host name, with the token.
    pub async fn get(&self, port: u16, path: &str) -> Result<RawAnswer> {
        self.ask("GET", port, path, &[("x-roost-token", &self.token)], &[]).await
    }

    /// Asks a port by its host name, with nothing but these headers.
    pub async fn ask(
        &self,
        method: &str,
        port: u16,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<RawAnswer> {
        let host = self.host(port);
        let headers: Vec<(&str, &str)> = [("host", host.as_str())].into_iter().chain(headers.iter().copied()).collect();
        raw_tcp(&self.address, method, path, &headers, body).await
    }

    /// A client of the daemon's HTTP.
    pub fn http_client(&self) -> Result<Client> {
        Ok(Client::http(&format!("http://{}", self.address), Some(&self.token))?)
    }
}

/// A block of a body: its number, and bytes that cannot be compressed away.
pub fn block(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Says everything to an address, ends that direction and returns what comes back.
pub async fn say_all(address: &str, text: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(text).await?;
    stream.shutdown().await?;
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.context("no answer")??;
    Ok(answer)
}
