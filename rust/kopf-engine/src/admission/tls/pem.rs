//! Reading of PEM files: certificates and private keys.

use std::fs;
use std::path::PathBuf;

use pkcs8::EncryptedPrivateKeyInfo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// An error of the TLS configuration.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub String);

pub(super) fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| TlsError(format!("{what} is not in the PEM format: {error}")))?;
    if found.is_empty() {
        return Err(TlsError(format!("{what}: there is no certificate in the file.")));
    }
    Ok(found)
}

pub(super) fn private_key(text: &[u8], password: Option<&str>) -> Result<PrivateKeyDer<'static>, TlsError> {
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

pub(super) fn read(path: &PathBuf) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError(format!("The file {} cannot be read: {error}", path.display())))
}
