//! TLS of the webhook server: its certificate and key, and the verification and description of client certificates.
//!
//! [`Tls::reload`] reads the files again: new connections use a changed certificate, and the listening socket stays
//! open. Certificates are generated in `certificates`.

pub mod certificates;
pub mod client_auth;
mod pem;

pub use pem::TlsError;

use pem::{certificates, private_key, read};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use kopf_core::json::value::Value;
use kopf_core::time::Timestamp;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::admission::tls::certificates::{GeneratedCertificates, described, expiry};
use crate::admission::tls::client_auth::{ClientAuth, ClientAuthMode, files_in};

/// The configuration of TLS: files, generated certificates, client authentication.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The server's certificate chain.
    pub certfile: Option<PathBuf>,
    /// Its private key.
    pub pkeyfile: Option<PathBuf>,
    /// The password of the private key.
    pub password: Option<String>,
    /// The CA certificate for the clients.
    pub cafile: Option<PathBuf>,
    /// The same as text; it takes precedence over the file.
    pub cadata: Option<Vec<u8>>,
    /// The names and addresses in the generated certificate, if there are no files.
    pub hostnames: Vec<String>,
    /// The policy for client certificates.
    pub clients: ClientAuth,
}

/// The TLS of one server.
pub struct Tls {
    sources: Sources,
    loaded: RwLock<Loaded>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    mark: u64,
    authority: Vec<u8>,
    expiry: Option<Timestamp>,
    /// The generated certificates, if there are no files.
    generated: Option<Arc<GeneratedCertificates>>,
}

impl Tls {
    /// Reads or generates the certificates.
    pub fn load(sources: Sources) -> Result<Self, TlsError> {
        let loaded = load(&sources, None)?;
        Ok(Self { sources, loaded: RwLock::new(loaded) })
    }

    /// Reads the files again. Returns true if their content has changed and is used from now on.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let (known, generated) = {
            let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
            (loaded.mark, loaded.generated.clone())
        };
        if mark(&self.sources)? == known {
            return Ok(false);
        }
        let fresh = load(&self.sources, generated)?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(true)
    }

    /// The CA certificates, in PEM, that clients have to trust.
    pub fn authority(&self) -> Vec<u8> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).authority.clone()
    }

    /// The end of the validity of the server's certificate.
    pub fn expiry(&self) -> Option<Timestamp> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).expiry
    }

    /// Performs the TLS handshake with a client.
    pub async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner).config);
        TlsAcceptor::from(config).accept(stream).await
    }

    /// The description of the client's certificate, if the client has sent one.
    pub fn peer(stream: &TlsStream<TcpStream>) -> Option<Value> {
        let (_, connection): (_, &ServerConnection) = stream.get_ref();
        described(connection.peer_certificates()?.first()?)
    }
}

/// The end of the validity of the server's certificate, which is the first one of a chain in PEM.
pub fn expiry_of_chain(chain: &[u8]) -> Option<Timestamp> {
    certificates(chain, "The certificate").ok()?.first().and_then(|certificate| expiry(certificate))
}

impl Sources {
    fn certificate_files(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.certfile.as_ref().zip(self.pkeyfile.as_ref())
    }
}

/// Reads the files. Generated certificates stay in use: they do not depend on the files.
fn load(sources: &Sources, generated: Option<Arc<GeneratedCertificates>>) -> Result<Loaded, TlsError> {
    // The hash is taken before the files are read: if they change in between, the next reload reads them again.
    let mark = mark(sources)?;
    let (chain, key, authority, generated) = if let Some((certfile, pkeyfile)) = sources.certificate_files() {
        let chain = read(certfile)?;
        let key = private_key(&read(pkeyfile)?, sources.password.as_deref())?;
        let authority = match (&sources.cadata, &sources.cafile) {
            (Some(data), _) => data.clone(),
            (None, Some(cafile)) => read(cafile)?,
            (None, None) => chain.clone(),
        };
        (certificates(&chain, "The certificate")?, key, authority, None)
    } else {
        let made = match generated {
            Some(made) => made,
            None => Arc::new(GeneratedCertificates::make(&sources.hostnames)?),
        };
        let chain = certificates(made.chain.as_bytes(), "The certificate")?;
        let key = private_key(made.key.as_bytes(), None)?;
        (chain, key, made.authority.clone().into_bytes(), Some(made))
    };
    let expiry = chain.first().and_then(|certificate| expiry(certificate));
    let config = configured(&sources.clients, chain, key)?;
    Ok(Loaded { config: Arc::new(config), mark, authority, expiry, generated })
}

fn configured(
    clients: &ClientAuth,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError(format!("TLS cannot be set up: {error}")))?;
    let builder = match clients.demand {
        ClientAuthMode::None => builder.with_no_client_auth(),
        demand => {
            let verifier = clients.verifier(demand, provider)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError(format!("The certificate cannot be used with its private key: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The hash of the files' content, to detect changes.
fn mark(sources: &Sources) -> Result<u64, TlsError> {
    let mut hasher = DefaultHasher::new();
    for path in [&sources.certfile, &sources.pkeyfile, &sources.cafile].into_iter().flatten() {
        read(path)?.hash(&mut hasher);
    }
    let clients = &sources.clients;
    if clients.demand != ClientAuthMode::None {
        if let Some(path) = &clients.cafile {
            read(path)?.hash(&mut hasher);
        }
        if let Some(folder) = &clients.capath {
            for path in files_in(folder)? {
                read(&path)?.hash(&mut hasher);
            }
        }
    }
    Ok(hasher.finish())
}
