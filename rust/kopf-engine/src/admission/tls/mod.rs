//! TLS of the webhook server: the certificates that we show, those that we want to see, and what is told of a client's one.
//!
//! Files are read here, and read again when they are asked to be: a changed certificate is used for new connections, with the
//! listening socket untouched. How certificates are made is in `certificates`.

pub mod certificates;
pub mod client_auth;
mod pem;

pub use pem::TlsError;

use pem::{certificates, private_key, read};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use kopf_core::json::value::Value;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::admission::tls::certificates::{GeneratedCertificates, described};
use crate::admission::tls::client_auth::{ClientAuth, ClientAuthMode};

/// Where the certificates come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The certificate, with those that lead to its authority.
    pub certfile: Option<PathBuf>,
    /// Its private key.
    pub pkeyfile: Option<PathBuf>,
    /// The password of the private key.
    pub password: Option<String>,
    /// The authority, for the clients.
    pub cafile: Option<PathBuf>,
    /// The same as text; it wins over the file.
    pub cadata: Option<Vec<u8>>,
    /// For whom a certificate is made if there is none.
    pub hostnames: Vec<String>,
    /// What we want of clients.
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
}

impl Tls {
    /// Reads or makes the certificates.
    pub fn load(sources: Sources) -> Result<Self, TlsError> {
        let loaded = load(&sources)?;
        Ok(Self { sources, loaded: RwLock::new(loaded) })
    }

    /// Reads the files again. True if their content has changed and is used now.
    pub fn reload(&self) -> Result<bool, TlsError> {
        if self.sources.certificate_files().is_none() && self.sources.cafile.is_none() {
            return Ok(false);
        }
        let known = self.loaded.read().unwrap_or_else(PoisonError::into_inner).mark;
        if mark(&self.sources)? == known {
            return Ok(false);
        }
        let fresh = match self.sources.certificate_files() {
            Some(_) => load(&self.sources)?,
            // What we made ourselves goes on: it does not depend on the files.
            None => return Ok(false),
        };
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(true)
    }

    /// The certificates, in PEM, that clients are to trust.
    pub fn authority(&self) -> Vec<u8> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).authority.clone()
    }

    /// Lets a client in.
    pub async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner).config);
        TlsAcceptor::from(config).accept(stream).await
    }

    /// What is to be told of the client's certificate, if it has shown one.
    pub fn peer(stream: &TlsStream<TcpStream>) -> Option<Value> {
        let (_, connection): (_, &ServerConnection) = stream.get_ref();
        described(connection.peer_certificates()?.first()?)
    }
}

impl Sources {
    fn certificate_files(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.certfile.as_ref().zip(self.pkeyfile.as_ref())
    }
}

fn load(sources: &Sources) -> Result<Loaded, TlsError> {
    // Taken before the files are read: if they change in between, they are read once more, and not too rarely.
    let mark = mark(sources)?;
    let (chain, key, authority) = if let Some((certfile, pkeyfile)) = sources.certificate_files() {
        let chain = read(certfile)?;
        let key = private_key(&read(pkeyfile)?, sources.password.as_deref())?;
        let authority = match (&sources.cadata, &sources.cafile) {
            (Some(data), _) => data.clone(),
            (None, Some(cafile)) => read(cafile)?,
            (None, None) => chain.clone(),
        };
        (certificates(&chain, "The certificate")?, key, authority)
    } else {
        let GeneratedCertificates { authority, chain, key } =
            GeneratedCertificates::make(&sources.hostnames)?;
        let chain = certificates(chain.as_bytes(), "The certificate")?;
        (chain, private_key(key.as_bytes(), None)?, authority.into_bytes())
    };
    let config = configured(&sources.clients, chain, key)?;
    Ok(Loaded { config: Arc::new(config), mark, authority })
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

/// Tells files as they are now from what they were.
fn mark(sources: &Sources) -> Result<u64, TlsError> {
    let mut hasher = DefaultHasher::new();
    for path in [&sources.certfile, &sources.pkeyfile, &sources.cafile].into_iter().flatten() {
        read(path)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}
