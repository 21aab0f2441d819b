//! A real nginx in front of a daemon, with the configuration that the documentation shows.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::daemon::free_address;
use crate::docs::{self, Block};
use crate::tls::{Authority, DOMAIN};

/// A server that does not listen by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running nginx; dropping it ends it.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// Starts one before the daemon at `daemon`, with a certificate of `authority`.
    pub fn before(daemon: &str, authority: &Authority) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let here = folder.path().display();
        authority.issue_into(folder.path())?;
        let address = free_address()?;
        let page = docs::read("docs/reverse-proxy.md")?;
        let shown = Block::all(&page).into_iter().find(|block| block.info == "nginx");
        let mut server = shown.context("the page shows no configuration of nginx")?.text;
        for (shown, real) in [
            ("listen 443 ssl;", format!("listen {address} ssl;")),
            ("boxes.example.com", DOMAIN.to_owned()),
            ("/etc/ssl/boxes/", format!("{here}/")),
            ("127.0.0.1:7077", daemon.to_owned()),
        ] {
            ensure!(server.contains(shown), "the page does not say `{shown}`");
            server = server.replace(shown, &real);
        }
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths: String = paths.iter().map(|kind| format!("{kind}_temp_path {here}/{kind};\n")).collect();
        let whole = format!(
            "daemon off;\nuser root;\nworker_processes 1;\npid {here}/pid;\nerror_log stderr warn;\n\
             events {{}}\nhttp {{\naccess_log off;\n{paths}{server}\n}}\n"
        );
        let configuration = folder.path().join("nginx.conf");
        fs::write(&configuration, whole)?;
        let log = fs::File::create(folder.path().join("log"))?;
        let mut command = Command::new(binary()?);
        command.arg("-p").arg(folder.path()).arg("-c").arg(&configuration).stdin(Stdio::null()).stderr(log);
        let mut child = command.spawn().context("failed to start nginx")?;
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(&address).is_err() {
            let ended = child.try_wait()?.is_some() || Instant::now() > deadline;
            ensure!(!ended, "nginx does not listen: {}", fs::read_to_string(folder.path().join("log"))?);
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { child, address, _folder: folder })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its worker ends with it if it is asked, and would be left behind if it were killed.
        drop(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status());
        drop(self.child.wait());
    }
}

/// `ROOST_NGINX`, or what scripts/nginx put into the target folder.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ROOST_NGINX") {
        return Ok(PathBuf::from(path));
    }
    let test = std::env::current_exe().context("failed to find the test's own binary")?;
    Ok(test.ancestors().nth(3).context("the test's binary is in no target folder")?.join("nginx/nginx"))
}
