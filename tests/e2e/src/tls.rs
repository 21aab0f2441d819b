//! Certificates of a test's own, and HTTP by hand over TLS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::RawAnswer;
use crate::raw::exchange;

/// The domain below which ports are served; every name that ends in `.localhost` is this host.
pub const DOMAIN: &str = "boxes.localhost";

/// An authority that only a test trusts.
#[derive(Debug)]
pub struct Authority {
    folder: tempfile::TempDir,
}

impl Authority {
    /// Makes one; needs `openssl`.
    pub fn new() -> Result<Self> {
        let authority = Self { folder: tempfile::tempdir()? };
        let mut request = authority.openssl(&["req", "-x509", "-days", "30", "-subj", "/CN=roost test"]);
        request.args(NEW_KEY).args(["-keyout", "ca.key", "-out", "ca.pem"]);
        done(request.args(["-addext", "keyUsage=critical,keyCertSign"]))?;
        Ok(authority)
    }

    /// Its own certificate, which vouches for the others.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Puts `cert.pem` and `key.pem` into a folder, for this host and everything below [`DOMAIN`].
    pub fn issue_into(&self, folder: &Path) -> Result<(PathBuf, PathBuf)> {
        let names = format!("subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:{DOMAIN},DNS:*.{DOMAIN}\n");
        fs::write(self.folder.path().join("names"), names)?;
        let mut request = self.openssl(&["req", "-subj", "/CN=localhost", "-keyout", "leaf.key", "-out", "leaf.csr"]);
        done(request.args(NEW_KEY))?;
        let mut sign = self.openssl(&["x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key"]);
        done(sign.args(["-set_serial", "7", "-days", "30", "-extfile", "names", "-out", "leaf.pem"]))?;
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        fs::copy(self.folder.path().join("leaf.pem"), &cert)?;
        fs::copy(self.folder.path().join("leaf.key"), &key)?;
        Ok((cert, key))
    }

    /// Connects to an address by TLS, expecting `name` there.
    pub async fn connect(&self, address: &str, name: &str) -> Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.certificate())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(address).await?;
        Ok(TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned())?, stream).await?)
    }

    /// Sends one request to the host `name` at an address, by TLS.
    pub async fn ask(
        &self,
        address: &str,
        name: &str,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<RawAnswer> {
        let headers: Vec<(&str, &str)> = [("host", name)].into_iter().chain(headers.iter().copied()).collect();
        exchange(self.connect(address, name).await?, method, path, &headers, body).await
    }

    fn openssl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(self.folder.path());
        command
    }
}

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

fn done(command: &mut Command) -> Result<()> {
    let output = command.output().context("failed to start openssl")?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
