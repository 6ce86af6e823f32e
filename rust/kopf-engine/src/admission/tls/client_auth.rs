//! Verification of client certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

use crate::admission::tls::{TlsError, certificates, read};

const WHAT: &str = "The authority of clients";

/// The policy for client certificates.
#[derive(Debug, Clone, Default)]
pub struct ClientAuth {
    /// Whether certificates are requested or required.
    pub demand: ClientAuthMode,
    /// A file with the CA certificates for client certificates.
    pub cafile: Option<PathBuf>,
    /// A folder with such files.
    pub capath: Option<PathBuf>,
    /// CA certificates as text (PEM) or as bytes (DER).
    pub cadata: Option<Vec<u8>>,
}

/// Whether client certificates are requested or required.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientAuthMode {
    /// Not requested.
    #[default]
    None,
    /// Requested, but clients without a certificate are accepted, too.
    Optional,
    /// Required.
    Required,
}

impl ClientAuth {
    /// The verifier for this mode, which must not be `None`.
    pub(crate) fn verifier(
        &self,
        demand: ClientAuthMode,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let trusted = trusted(self)?;
        let mut roots = RootCertStore::empty();
        for certificate in &trusted {
            roots
                .add(certificate.clone())
                .map_err(|error| TlsError(format!("{WHAT}: a bad certificate: {error}")))?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder =
            if demand == ClientAuthMode::Optional { builder.allow_unauthenticated() } else { builder };
        let strict = builder
            .build()
            .map_err(|error| TlsError(format!("Clients' certificates cannot be verified: {error}")))?;
        Ok(Arc::new(Verifier { strict, trusted }))
    }
}

/// All trusted certificates.
fn trusted(clients: &ClientAuth) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut found = vec![];
    if let Some(path) = &clients.cafile {
        found.extend(certificates(&read(path)?, WHAT)?);
    }
    if let Some(folder) = &clients.capath {
        for path in files_in(folder)? {
            // Such folders often contain other files, which are ignored.
            found.extend(certificates(&read(&path)?, WHAT).unwrap_or_default());
        }
    }
    match &clients.cadata {
        Some(data) if data.trim_ascii_start().starts_with(b"-----BEGIN") => {
            found.extend(certificates(data, WHAT)?);
        }
        Some(data) => found.push(CertificateDer::from(data.clone())),
        None => {}
    }
    Ok(found)
}

/// The files in a folder, in a fixed order.
pub(super) fn files_in(folder: &Path) -> Result<Vec<PathBuf>, TlsError> {
    let unreadable =
        |error: std::io::Error| TlsError(format!("The folder {} cannot be read: {error}", folder.display()));
    let mut found = vec![];
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Verifies as usual, but also accepts a client certificate that is itself in the list of trusted certificates, even if
/// it is a CA certificate. Such self-signed certificates are common between two machines.
#[derive(Debug)]
struct Verifier {
    strict: Arc<dyn ClientCertVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        self.strict.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.strict.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.strict.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if !self.trusted.iter().any(|certificate| certificate == end_entity) {
            return self.strict.verify_client_cert(end_entity, intermediates, now);
        }
        let (_, certificate) =
            X509Certificate::from_der(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        match ASN1Time::from_timestamp(now) {
            Ok(now) if certificate.validity().is_valid_at(now) => Ok(ClientCertVerified::assertion()),
            _ => Err(CertificateError::Expired.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.strict.supported_verify_schemes()
    }
}
