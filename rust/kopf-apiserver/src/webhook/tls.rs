//! TLS of webhooks: the certificates that the CA bundle of a webhook configuration trusts.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

/// A connector that trusts the certificates of the bundle, which is in PEM. The error is a text.
pub(super) fn connector(bundle: Option<&[u8]>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    let mut trusted = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(bundle.unwrap_or_default()) {
        let certificate = certificate.map_err(|e| e.to_string())?;
        roots.add(certificate.clone()).map_err(|e| e.to_string())?;
        trusted.push(certificate);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let config = if trusted.is_empty() {
        builder.with_root_certificates(roots).with_no_client_auth()
    } else {
        let verifier = Arc::new(Verifier::new(trusted, roots, provider)?);
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Verifies as usual, but also accepts a server certificate that is itself in the bundle, even if it is a CA certificate, as
/// kube-apiserver does. Its period, its purpose and its names must fit.
#[derive(Debug)]
struct Verifier {
    strict: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn new(
        trusted: Vec<CertificateDer<'static>>,
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let strict = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self { strict: strict.map_err(|e| e.to_string())?, trusted })
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
            self.strict.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let is_trusted = self.trusted.iter().any(|certificate| certificate == end_entity);
        if verified.is_ok() || !is_trusted || !is_server_certificate(end_entity, now)? {
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

/// Whether a certificate is valid now and, if its purposes are restricted, those of a server.
fn is_server_certificate(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<bool, Error> {
    let bad = |_| Error::from(CertificateError::BadEncoding);
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = ASN1Time::from_timestamp(i64::try_from(now.as_secs()).unwrap_or(i64::MAX)).map_err(bad)?;
    let purposes = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    let serves = purposes.is_none_or(|it| it.value.any || it.value.server_auth);
    Ok(serves && parsed.validity().is_valid_at(now))
}

/// Text of a failed handshake, as Go words it.
pub(super) fn handshake_error(error: &std::io::Error, server: &ServerName<'_>) -> String {
    let cause = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
    let Some(Error::InvalidCertificate(problem)) = cause else { return format!("tls: {error}") };
    let text = match problem {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } => other_names(presented, server),
        CertificateError::ExpiredContext { time, not_after } => {
            let (now, end) = (timestamp(*time), timestamp(*not_after));
            format!("certificate has expired or is not yet valid: current time {now} is after {end}")
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let (now, start) = (timestamp(*time), timestamp(*not_before));
            format!("certificate has expired or is not yet valid: current time {now} is before {start}")
        }
        _ => return format!("tls: {error}"),
    };
    format!("tls: failed to verify certificate: x509: {text}")
}

/// `presented` are the names of the certificate, such as `DnsName("localhost")`.
fn other_names(presented: &[String], server: &ServerName<'_>) -> String {
    let is_address = matches!(server, ServerName::IpAddress(_));
    let name = server.to_str();
    let kind = if is_address { "IpAddress(" } else { "DnsName(" };
    let names: Vec<&str> = presented
        .iter()
        .filter_map(|it| it.strip_prefix(kind)?.strip_suffix(')'))
        .map(|it| it.trim_matches('"'))
        .collect();
    match (names.is_empty(), is_address) {
        (true, true) => {
            format!("cannot validate certificate for {name} because it doesn't contain any IP SANs")
        }
        (true, false) => format!("certificate is not valid for {name}"),
        (false, _) => format!("certificate is valid for {}, not {name}", names.join(", ")),
    }
}

fn timestamp(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A certificate of the years 2020 to 2029 that is a CA.
    fn self_signed(name: &str) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    /// Verifies a certificate for the loopback address at a time, in seconds since 1970.
    fn verify(
        trusted: &CertificateDer<'static>,
        given: &CertificateDer<'_>,
        seconds: u64,
    ) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new(vec![trusted.clone()], roots, provider).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let name = ServerName::try_from("127.0.0.1").unwrap();
        verifier.verify_server_cert(given, &[], &name, &[], now).map(|_| ())
    }

    #[test]
    fn a_ca_certificate_in_the_bundle_is_accepted_as_that_of_the_server() {
        const IN_2025: u64 = 1_750_000_000;
        const IN_2033: u64 = 2_000_000_000;
        let certificate = self_signed("127.0.0.1");
        verify(&certificate, &certificate, IN_2025).unwrap();
        verify(&certificate, &certificate, IN_2033).unwrap_err();
        let other_name = self_signed("127.0.0.2");
        let error = verify(&other_name, &other_name, IN_2025).unwrap_err();
        let is_name =
            matches!(error, Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }));
        assert!(is_name, "{error:?}");
        verify(&certificate, &self_signed("127.0.0.1"), IN_2025).unwrap_err();
    }
}
