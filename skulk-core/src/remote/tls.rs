//! Whom does a peer trust, and how does it prove who it is? Certificates and keys, as PEM texts, for rustls.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::{Error, ErrorKind, Result};

/// A certificate, with those that lead from it to one that others trust, and its private key.
#[derive(Clone)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads PEM texts: certificates, the own one first, and a key in PKCS#8, PKCS#1 or SEC1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for texts that are none.
    pub fn from_pem(certificates: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Self> {
        let chain = chain("certificates", certificates.as_ref())?;
        let key = PrivateKeyDer::from_pem_slice(key.as_ref()).map_err(|e| {
            Error::argument("key", "expected a private key in PEM, found none").with_source(e)
        })?;
        Ok(Self { chain, key: Arc::new(key) })
    }
}

/// Certificates that others' must lead to.
#[derive(Debug, Clone)]
pub struct Roots(Arc<RootCertStore>);

impl Roots {
    /// Reads a PEM text of one certificate or more.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a text that is none.
    pub fn from_pem(certificates: impl AsRef<[u8]>) -> Result<Self> {
        let mut store = RootCertStore::empty();
        for certificate in chain("roots", certificates.as_ref())? {
            store.add(certificate).map_err(|e| {
                Error::argument("roots", "expected certificates of authorities, found another").with_source(e)
            })?;
        }
        Ok(Self(Arc::new(store)))
    }

    /// Those of public authorities, as Mozilla has them.
    pub fn public() -> Self {
        Self(Arc::new(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()))
    }
}

fn chain(field: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let invalid = || Error::argument(field, "expected certificates in PEM, found none");
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|e| invalid().with_source(e))?;
    if certificates.is_empty() { Err(invalid()) } else { Ok(certificates) }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unusable(e: rustls::Error) -> Error {
    Error::new(ErrorKind::InvalidArgument, "the certificate and its key cannot be used together")
        .with("field", "identity")
        .with_hint("give the certificate's own private key, of a kind that TLS knows")
        .with_source(e)
}

/// What connections are for, as TLS agrees on it.
const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// How a client speaks: it trusts servers by `roots`, and shows `identity` to those that ask. What it speaks is HTTP/2 or
/// HTTP/1.1.
pub(super) fn client(roots: &Roots, identity: Option<&Identity>, http2: bool) -> Result<Arc<ClientConfig>> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(Arc::clone(&roots.0));
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some(Identity { chain, key }) => {
            config.with_client_auth_cert(chain.clone(), key.clone_key()).map_err(unusable)?
        }
    };
    config.alpn_protocols = vec![if http2 { HTTP_2 } else { HTTP_1 }.to_vec()];
    Ok(Arc::new(config))
}

/// How a server speaks: it shows `identity`, and with `clients` asks them for certificates that lead there.
pub(super) fn server(identity: &Identity, clients: Option<&Roots>) -> Result<Arc<ServerConfig>> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots.0), provider());
            config.with_client_cert_verifier(verifier.build().map_err(|e| {
                Error::argument("clients", "expected certificates of authorities, found none").with_source(e)
            })?)
        }
    };
    let Identity { chain, key } = identity;
    let mut config = config.with_single_cert(chain.clone(), key.clone_key()).map_err(unusable)?;
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
    Ok(Arc::new(config))
}
