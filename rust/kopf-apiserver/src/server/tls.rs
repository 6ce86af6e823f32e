//! Generation of a CA and a server certificate.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::error::server::ServerError;

pub(crate) struct GeneratedTls {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) ca_pem: String,
}

pub(crate) fn generate() -> Result<GeneratedTls, ServerError> {
    let generation_error = |e: rcgen::Error| ServerError::Certificates(e.to_string());
    let ca_key = KeyPair::generate().map_err(generation_error)?;
    let mut ca = CertificateParams::new(Vec::new()).map_err(generation_error)?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    ca.distinguished_name.push(DnType::CommonName, "kopf-apiserver-ca");
    let ca_cert = ca.self_signed(&ca_key).map_err(generation_error)?;
    let key = KeyPair::generate().map_err(generation_error)?;
    let names =
        ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let mut server = CertificateParams::new(names.map(str::to_owned).to_vec()).map_err(generation_error)?;
    server.distinguished_name.push(DnType::CommonName, "kopf-apiserver");
    server.use_authority_key_identifier_extension = true;
    let issuer = Issuer::new(ca, ca_key);
    let cert = server.signed_by(&key, &issuer).map_err(generation_error)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls_error = |e: rustls::Error| ServerError::Certificates(e.to_string());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], private)
        .map_err(tls_error)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(GeneratedTls { config: Arc::new(config), ca_pem: ca_cert.pem() })
}
