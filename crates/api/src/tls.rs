//! TLS with a certificate of the owner's own, which may be replaced while connections go on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The first byte of every connection that speaks TLS.
const HANDSHAKE: u8 = 22;
/// What whoever speaks HTTP to a port with TLS is told.
const PLAIN_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 45\r\nconnection: close\r\n\r\nthis address speaks TLS: write https:// here\n";

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there, or holds nothing of the kind.
    #[error("failed to read the {what} in `{}`", path.display())]
    Read {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What was found instead.
        source: pem::Error,
    },
    /// The file of the certificate has none in it.
    #[error("`{}` has no certificate in it", .0.display())]
    Empty(PathBuf),
    /// The key does not belong to the certificate, or is of a kind that is not known.
    #[error("the key in `{}` does not fit the certificate in `{}`", key.display(), cert.display())]
    Unfit {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What does not fit.
        source: rustls::Error,
    },
}

/// A certificate with its key, read from two files in PEM; cheap to clone, clones serve the same.
#[derive(Debug, Clone)]
pub struct Tls {
    acceptor: Arc<ServerConfig>,
    files: Arc<Files>,
}

#[derive(Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    served: Arc<Served>,
    /// When the files were last changed, as far as they were read.
    read_at: Mutex<[Option<SystemTime>; 2]>,
}

/// What new connections get.
#[derive(Debug)]
struct Served(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Served {
    fn resolve(&self, _asked: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Tls {
    /// Reads certificate (with whatever is between it and its authority) and key.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let changed = [changed_at(cert), changed_at(key)];
        let served = Arc::new(Served(RwLock::new(Arc::new(read(&provider, cert, key)?))));
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let unfit = |source| TlsError::Unfit { cert: cert.to_owned(), key: key.to_owned(), source };
        let mut config = builder.map_err(unfit)?.with_no_client_auth().with_cert_resolver(served.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (cert, key, read_at) = (cert.to_owned(), key.to_owned(), Mutex::new(changed));
        Ok(Self { acceptor: Arc::new(config), files: Arc::new(Files { cert, key, provider, served, read_at }) })
    }

    /// Reads both files again; new connections get what is in them. If they make no sense, nothing changes.
    pub fn reload(&self) -> Result<(), TlsError> {
        let files = &self.files;
        // Noted before it is read: what is written meanwhile counts as a change.
        *files.read_at.lock().unwrap_or_else(PoisonError::into_inner) =
            [changed_at(&files.cert), changed_at(&files.key)];
        let fresh = Arc::new(read(&files.provider, &files.cert, &files.key)?);
        *files.served.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Whether a file is another than the one that was last read.
    pub fn has_changed(&self) -> bool {
        let now = [changed_at(&self.files.cert), changed_at(&self.files.key)];
        *self.files.read_at.lock().unwrap_or_else(PoisonError::into_inner) != now
    }

    /// Agrees on keys with whoever connected; tells a client that forgot the `s` of `https` so.
    pub(crate) async fn accept(self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            stream.write_all(PLAIN_ANSWER).await?;
            // Its request is read, or hanging up would be a reset that swallows the answer.
            stream.shutdown().await?;
            tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not speak TLS"));
        }
        TlsAcceptor::from(self.acceptor).accept(stream).await
    }
}

fn read(provider: &CryptoProvider, cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let unread = |what, path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Read { what, path, source }
    };
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(unread("certificate", cert))?;
    if chain.is_empty() {
        return Err(TlsError::Empty(cert.to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(unread("key", key))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|source| TlsError::Unfit {
        cert: cert.to_owned(),
        key: key.to_owned(),
        source,
    })
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
}
