//! TLS of the connections to the API server.
//!
//! Client libraries of Go and Python accept a server certificate that is itself trusted, also if it may sign others: `openssl req
//! -x509` makes such certificates. rustls rejects them, as the certificate of a server must not be that of a CA.

use std::sync::Arc;

use kube::Config;
use kube::client::ConfigExt as _;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

use super::redact::explained;
use crate::error::LoginError;

/// The TLS configuration of a client.
///
/// # Errors
/// A certificate or a key cannot be used.
pub(super) fn tls_config(config: &Config) -> Result<ClientConfig, LoginError> {
    let unusable = |error: &(dyn std::error::Error + 'static)| {
        LoginError(format!("The credentials cannot be used: {}", explained(error)))
    };
    let is_verified = !config.accept_invalid_certs && config.cluster_url.scheme_str() == Some("https");
    let mut prepared = config.clone();
    if !is_verified {
        // Otherwise, kube loads the certificates of the system, which may have none.
        prepared.root_cert.get_or_insert_default();
    }
    let mut tls = prepared.rustls_client_config().map_err(|error| unusable(&error))?;
    if let Some(trusted) = config.root_cert.as_deref().filter(|_| !config.accept_invalid_certs) {
        let verifier = Verifier::new(trusted).map_err(|error| unusable(&error))?;
        tls.dangerous().set_certificate_verifier(Arc::new(verifier));
    }
    Ok(tls)
}

/// Verifies as usual, but also accepts a trusted certificate as that of the server if its period, its purpose, and its names fit.
#[derive(Debug)]
struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// `trusted` are certificates in DER.
    fn new(trusted: &[Vec<u8>]) -> Result<Self, Error> {
        let trusted: Vec<_> = trusted.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let mut roots = RootCertStore::empty();
        for certificate in &trusted {
            roots.add(certificate.clone())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let usual = usual.map_err(|error| Error::Other(OtherError(Arc::new(error))))?;
        Ok(Self { usual, trusted })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if verified.is_ok() || !self.trusted.iter().any(|it| it == end_entity) || !is_valid(end_entity, now)?
        {
            return verified;
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// Whether a certificate is valid at this time, and servers may use it.
fn is_valid(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<bool, Error> {
    let unreadable = || Error::from(CertificateError::BadEncoding);
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
    let seconds = i64::try_from(now.as_secs()).map_err(|_| unreadable())?;
    let now = ASN1Time::from_timestamp(seconds).map_err(|_| unreadable())?;
    let purposes = parsed.extended_key_usage().map_err(|_| unreadable())?;
    let is_for_servers = purposes.is_none_or(|it| it.value.any || it.value.server_auth);
    Ok(is_for_servers && parsed.validity().is_valid_at(now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd};

    use super::*;

    const WITHIN: u64 = 1_750_000_000; // in 2025
    const AFTER: u64 = 2_000_000_000; // in 2033

    /// A certificate for this name that may sign others, from 2020 to 2029.
    fn signing(name: &str, purposes: Vec<ExtendedKeyUsagePurpose>) -> Vec<u8> {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2030, 1, 1));
        params.extended_key_usages = purposes;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    /// Whether the certificate is accepted for api.example.com at this time, in seconds since 1970.
    fn accepts(trusted: &[u8], certificate: &[u8], seconds: u64) -> bool {
        let verifier = Verifier::new(&[trusted.to_vec()]).unwrap();
        let name = ServerName::try_from("api.example.com").unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verifier.verify_server_cert(&CertificateDer::from(certificate), &[], &name, &[], now).is_ok()
    }

    #[test]
    fn a_trusted_certificate_is_accepted_as_that_of_the_server_even_if_it_may_sign_others() {
        for purposes in [vec![], vec![ExtendedKeyUsagePurpose::ServerAuth]] {
            let certificate = signing("api.example.com", purposes);
            assert!(accepts(&certificate, &certificate, WITHIN));
        }
    }

    #[test]
    fn other_certificates_are_rejected_and_those_of_other_times_names_and_purposes() {
        let certificate = signing("api.example.com", vec![]);
        assert!(!accepts(&certificate, &certificate, AFTER));
        assert!(!accepts(&certificate, &signing("api.example.com", vec![]), WITHIN));
        let other = signing("other.example.com", vec![]);
        assert!(!accepts(&other, &other, WITHIN));
        let of_clients = signing("api.example.com", vec![ExtendedKeyUsagePurpose::ClientAuth]);
        assert!(!accepts(&of_clients, &of_clients, WITHIN));
    }
}
