//! TLS of the webhook server: the certificates that we show, those that we want to see, and what is told of a client's one.
//!
//! Files are read here, and read again when they are asked to be: a changed certificate is used for new connections, with the
//! listening socket untouched. How certificates are made is in `certificates`.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use kopf_core::value::Value;
use pkcs8::EncryptedPrivateKeyInfo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::admission::certificates::{Bundle, described};
use crate::admission::clients::{Clients, Demand};

/// Why there can be no TLS with what was given.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub String);

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
    pub clients: Clients,
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
        let Bundle { authority, chain, key } = Bundle::make(&sources.hostnames)?;
        let chain = certificates(chain.as_bytes(), "The certificate")?;
        (chain, private_key(key.as_bytes(), None)?, authority.into_bytes())
    };
    let config = configured(&sources.clients, chain, key)?;
    Ok(Loaded { config: Arc::new(config), mark, authority })
}

fn configured(
    clients: &Clients,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError(format!("TLS cannot be set up: {error}")))?;
    let builder = match clients.demand {
        Demand::None => builder.with_no_client_auth(),
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

pub(super) fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| TlsError(format!("{what} is not in the PEM format: {error}")))?;
    if found.is_empty() {
        return Err(TlsError(format!("{what}: there is no certificate in the file.")));
    }
    Ok(found)
}

fn private_key(text: &[u8], password: Option<&str>) -> Result<PrivateKeyDer<'static>, TlsError> {
    let blocks = pem::parse_many(text)
        .map_err(|error| TlsError(format!("The private key is not in the PEM format: {error}")))?;
    if let Some(block) = blocks.iter().find(|block| block.tag() == "ENCRYPTED PRIVATE KEY") {
        let password = password
            .ok_or_else(|| TlsError("The private key needs a password, but there is none.".to_owned()))?;
        let wrong = |_| TlsError("The private key cannot be decrypted: is the password right?".to_owned());
        let document = EncryptedPrivateKeyInfo::try_from(block.contents())
            .map_err(|error| TlsError(format!("The private key cannot be decrypted: {error}")))?
            .decrypt(password)
            .map_err(wrong)?;
        return Ok(PrivatePkcs8KeyDer::from(document.as_bytes().to_vec()).into());
    }
    if blocks.iter().any(|block| block.headers().get("DEK-Info").is_some()) {
        let advice =
            "The private key is encrypted in the old way of OpenSSL; convert it with: openssl pkcs8 -topk8";
        return Err(TlsError(advice.to_owned()));
    }
    PrivateKeyDer::from_pem_slice(text)
        .map_err(|error| TlsError(format!("The private key is not in the PEM format: {error}")))
}

/// Tells files as they are now from what they were.
fn mark(sources: &Sources) -> Result<u64, TlsError> {
    let mut hasher = DefaultHasher::new();
    for path in [&sources.certfile, &sources.pkeyfile, &sources.cafile].into_iter().flatten() {
        read(path)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

pub(super) fn read(path: &PathBuf) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError(format!("The file {} cannot be read: {error}", path.display())))
}
