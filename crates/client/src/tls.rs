//! TLS to a daemon: whom to trust, and whom to expect.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ClientError;

/// How connections to one daemon are secured.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    expected: ServerName<'static>,
}

impl Tls {
    /// Expects the daemon at `authority`, vouched for by the authorities in the file `ca`, or else by the system's.
    pub(crate) fn new(url: &str, authority: &str, ca: Option<&Path>) -> Result<Self, ClientError> {
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']']);
        let wrong = |problem| ClientError::Address { given: url.to_owned(), problem };
        let expected = ServerName::try_from(host.to_owned()).map_err(|_| wrong("its host can have no certificate"))?;
        let mut roots = RootCertStore::empty();
        match ca {
            Some(path) => trust_file(&mut roots, path)?,
            // One that cannot be read vouches for nobody; the others do.
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|_| wrong("TLS cannot be spoken here"))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), expected })
    }

    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.expected.clone(), stream).await
    }
}

fn trust_file(roots: &mut RootCertStore, path: &Path) -> Result<(), ClientError> {
    let unread = |problem: String| ClientError::Authorities { path: path.to_owned(), problem };
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| unread(error.to_string()))?;
    if found.is_empty() {
        return Err(unread("no certificate is in it".to_owned()));
    }
    for certificate in found {
        roots.add(certificate).map_err(|error| unread(error.to_string()))?;
    }
    Ok(())
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("expected", &self.expected).finish_non_exhaustive()
    }
}
