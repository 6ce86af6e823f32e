//! Generated certificates, and descriptions of peer certificates in the format of Python's `ssl`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use kopf_core::json::value::{Map, Value};
use kopf_core::time::Timestamp;
use pkcs8::pkcs5::pbes2;
use pkcs8::{LineEnding, PrivateKeyInfo};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Name;

use crate::admission::tls::TlsError;
use crate::time::clock::Clock;

const DAY: u64 = 24 * 60 * 60;
/// Valid from yesterday, as clocks differ, for ten years: operators need no restart to renew it.
const VALID_DAYS: u64 = 3652;
/// Slow enough against guessing, fast enough for the operator's start.
const PASSWORD_ROUNDS: u32 = 600_000;

/// A generated certificate with its key and CA, in PEM.
pub struct GeneratedCertificates {
    /// The CA certificate, which clients trust.
    pub authority: String,
    /// The server's certificate.
    pub chain: String,
    /// Its private key.
    pub key: String,
}

impl GeneratedCertificates {
    /// Generates a CA and a server certificate signed by it. The CA's private key is not kept.
    pub fn make(hostnames: &[String]) -> Result<Self, TlsError> {
        let authority = signing_params(&["kopf".to_owned()])?;
        let authority_key = new_key()?;
        let root = authority.self_signed(&authority_key).map_err(unmade)?;
        let mut params = params(hostnames)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = new_key()?;
        let issuer = Issuer::from_params(&authority, &authority_key);
        let certificate: Certificate = params.signed_by(&key, &issuer).map_err(unmade)?;
        Ok(Self { authority: root.pem(), chain: certificate.pem(), key: key.serialize_pem() })
    }
}

/// Generates a self-signed certificate and its private key, both in PEM. The key is encrypted if there is a password.
pub fn self_signed(hostnames: &[String], password: Option<&str>) -> Result<(String, String), TlsError> {
    let key = new_key()?;
    let certificate = signing_params(hostnames)?.self_signed(&key).map_err(unmade)?;
    let key = match password {
        None => key.serialize_pem(),
        Some(password) => encrypted(key.serialized_der(), password)?,
    };
    Ok((certificate.pem(), key))
}

fn new_key() -> Result<KeyPair, TlsError> {
    KeyPair::generate().map_err(unmade)
}

fn signing_params(hostnames: &[String]) -> Result<CertificateParams, TlsError> {
    let mut params = params(hostnames)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // OpenSSL distinguishes certificates of one name by it, such as the current and the next one of a Secret.
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params(hostnames: &[String]) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(hostnames.to_vec()).map_err(unmade)?;
    let is_address = |name: &&String| name.parse::<IpAddr>().is_ok();
    let common = hostnames.iter().find(|name| !is_address(name)).or(hostnames.first());
    params.distinguished_name.push(DnType::CommonName, common.map_or("localhost", String::as_str));
    let now = u64::try_from(Clock::start().now().micros() / 1_000_000).unwrap_or_default();
    let since = |seconds: u64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    params.not_before = since(now.saturating_sub(DAY));
    params.not_after = since(now + VALID_DAYS * DAY);
    Ok(params)
}

fn encrypted(key: &[u8], password: &str) -> Result<String, TlsError> {
    let failed =
        |error: &dyn std::fmt::Display| TlsError(format!("The private key cannot be encrypted: {error}"));
    let (mut salt, mut iv) = ([0_u8; 16], [0_u8; 16]);
    let random = rustls::crypto::ring::default_provider().secure_random;
    for bytes in [&mut salt, &mut iv] {
        random.fill(bytes).map_err(|_| failed(&"the system gives no random numbers"))?;
    }
    let params = pbes2::Parameters::pbkdf2_sha256_aes256cbc(PASSWORD_ROUNDS, &salt, &iv)
        .map_err(|error| failed(&error))?;
    let document = PrivateKeyInfo::try_from(key)
        .map_err(|error| failed(&error))?
        .encrypt_with_params(params, password)
        .map_err(|error| failed(&error))?;
    let pem = document.to_pem("ENCRYPTED PRIVATE KEY", LineEnding::LF).map_err(|error| failed(&error))?;
    Ok(pem.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn unmade(error: rcgen::Error) -> TlsError {
    TlsError(format!("A certificate cannot be made: {error}"))
}

/// The end of the validity of a certificate.
pub fn expiry(der: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(Timestamp::from_micros(certificate.validity().not_after.timestamp().saturating_mul(1_000_000)))
}

/// Describes a certificate as Python's `ssl.SSLSocket.getpeercert()` does.
pub fn described(der: &[u8]) -> Option<Value> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let mut fields = Map::new();
    fields.insert("subject".to_owned(), names(certificate.subject()));
    fields.insert("issuer".to_owned(), names(certificate.issuer()));
    fields.insert("version".to_owned(), json!(certificate.version().0 + 1));
    fields.insert("serialNumber".to_owned(), json!(serial(certificate.raw_serial())));
    fields.insert("notBefore".to_owned(), json!(moment(certificate.validity().not_before)));
    fields.insert("notAfter".to_owned(), json!(moment(certificate.validity().not_after)));
    let alternatives: Vec<Value> = certificate
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|extension| extension.value.general_names.iter().filter_map(alternative).collect())
        .unwrap_or_default();
    if !alternatives.is_empty() {
        fields.insert("subjectAltName".to_owned(), Value::Array(alternatives));
    }
    Some(Value::Object(fields))
}

fn names(name: &X509Name<'_>) -> Value {
    let parts = name.iter_rdn().map(|part| {
        let attributes = part.iter().filter_map(|attribute| {
            let known = x509_parser::objects::oid_registry().get(attribute.attr_type());
            let label =
                known.map_or_else(|| attribute.attr_type().to_id_string(), |entry| entry.sn().to_owned());
            Some(json!([long_name(&label), attribute.as_str().ok()?]))
        });
        Value::Array(attributes.collect())
    });
    Value::Array(parts.collect())
}

/// OpenSSL's long names; the registry has only the short ones.
fn long_name(short: &str) -> &str {
    match short {
        "CN" => "commonName",
        "O" => "organizationName",
        "OU" => "organizationalUnitName",
        "C" => "countryName",
        "L" => "localityName",
        "ST" => "stateOrProvinceName",
        other => other,
    }
}

fn serial(raw: &[u8]) -> String {
    let mut digits = String::new();
    for byte in raw.iter().skip_while(|byte| **byte == 0) {
        let _infallible = write!(digits, "{byte:02X}");
    }
    if digits.is_empty() { "00".to_owned() } else { digits }
}

fn moment(time: ASN1Time) -> String {
    let time = time.to_datetime();
    let month = time.month().to_string();
    let month = month.get(..3).unwrap_or_default();
    let (hour, minute, second) = time.to_hms();
    format!("{month} {:>2} {hour:02}:{minute:02}:{second:02} {} GMT", time.day(), time.year())
}

fn alternative(name: &GeneralName<'_>) -> Option<Value> {
    Some(match name {
        GeneralName::DNSName(name) => json!(["DNS", name]),
        GeneralName::RFC822Name(name) => json!(["email", name]),
        GeneralName::URI(name) => json!(["URI", name]),
        GeneralName::IPAddress(bytes) => {
            let address: IpAddr = match <[u8; 4]>::try_from(*bytes) {
                Ok(bytes) => bytes.into(),
                Err(_) => <[u8; 16]>::try_from(*bytes).ok()?.into(),
            };
            json!(["IP Address", address.to_string()])
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(pem: &str) -> Vec<u8> {
        pem::parse(pem).unwrap().into_contents()
    }

    #[test]
    fn a_certificate_is_for_its_names_and_signs_itself() {
        let names = ["10.0.0.1".to_owned(), "host.local".to_owned()];
        let (certificate, _) = self_signed(&names, None).unwrap();
        let fields = described(&der(&certificate)).unwrap();
        assert_eq!(fields["subject"], json!([[["commonName", "host.local"]]]));
        assert_eq!(fields["issuer"], fields["subject"]);
        assert_eq!(fields["subjectAltName"], json!([["IP Address", "10.0.0.1"], ["DNS", "host.local"]]));
        let text = der(&certificate);
        let (_, parsed) = X509Certificate::from_der(&text).unwrap();
        assert!(parsed.is_ca());
    }

    #[test]
    fn a_generated_certificate_expires_after_ten_years() {
        let now = Clock::start().now();
        let made = GeneratedCertificates::make(&["localhost".to_owned()]).unwrap();
        let left = expiry(&der(&made.chain)).unwrap().seconds_since(now);
        assert!((left / 86_400.0 - 3652.0).abs() < 1.0, "{left}");
        assert_eq!(expiry(b"no certificate"), None);
    }

    #[test]
    fn a_key_with_a_password_is_encrypted() {
        let (_, plain) = self_signed(&["localhost".to_owned()], None).unwrap();
        let (_, encrypted) = self_signed(&["localhost".to_owned()], Some("secret")).unwrap();
        assert!(plain.starts_with("-----BEGIN PRIVATE KEY-----"));
        assert!(encrypted.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"));
    }

    #[test]
    fn times_are_formatted_as_by_openssl() {
        let time = ASN1Time::from_timestamp(1_767_225_600).unwrap();
        assert_eq!(moment(time), "Jan  1 00:00:00 2026 GMT");
    }
}
