//! The client configuration for the result of a login handler or for a kubeconfig: server, certificates, `Authorization` header.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use kube::Config;
use kube::config::{AuthInfo, ExecAuthCluster, KubeconfigError};
use secrecy::{ExposeSecret as _, SecretString};

use crate::client::authorization;
use crate::client::kubeconfig::Current;
use crate::client::redact::explained;
use crate::error::LoginError;
use crate::host::credentials::Credentials;

/// All fields that distinguish two sets of credentials.
pub(super) fn identity_of(given: &Credentials) -> String {
    let secret = |value: &Option<SecretString>| value.as_ref().map(|it| it.expose_secret().to_owned());
    format!(
        "{:?}",
        (
            (&given.server, &given.ca_path, &given.ca_data, given.insecure, &given.proxy_url),
            (&given.username, secret(&given.password), &given.scheme, secret(&given.token)),
            (&given.certificate_path, &given.certificate_data),
            (&given.private_key_path, secret(&given.private_key_data), given.priority),
        )
    )
}

/// The `Authorization` header for the result of a login handler.
pub(super) fn header_of(given: &Credentials) -> Result<Option<HeaderValue>, LoginError> {
    if let (Some(user), Some(password)) = (&given.username, &given.password) {
        return authorization::basic(user, password).map(Some);
    }
    match (&given.scheme, &given.token) {
        (None, None) => Ok(None),
        (None, Some(token)) => authorization::bearer(token.expose_secret()).map(Some),
        (Some(scheme), None) => authorization::sensitive(scheme, "The scheme").map(Some),
        (Some(scheme), Some(token)) => {
            let text = format!("{scheme} {}", token.expose_secret().trim());
            authorization::sensitive(&text, "The token or its scheme").map(Some)
        }
    }
}

/// The server and TLS for the result of a login handler. Values that HTTP cannot send are rejected here, not when a
/// request is sent.
pub(crate) fn config_of(given: &Credentials) -> Result<Config, LoginError> {
    let url: Uri = given.server.trim().parse().map_err(|error| {
        // Addresses with a password are not quoted.
        let shown = Some(&given.server).filter(|server| !server.contains('@'));
        let shown = shown.map_or_else(String::new, |server| format!(" {server:?}"));
        LoginError(format!("The server's address{shown} is not a URL: {error}"))
    })?;
    check_server(&url)?;
    header_of(given)?;
    let mut config = Config::new(url);
    if let Some(namespace) = &given.default_namespace {
        config.default_namespace.clone_from(namespace);
    }
    config.accept_invalid_certs = given.insecure.unwrap_or(false);
    // Client libraries give both if only their verification is switched off: the authority is ignored then.
    config.root_cert = authority_of(given)?;
    config.auth_info = certificate_of(given)?;
    Ok(config)
}

/// The server, TLS and the user for the current context of a kubeconfig.
///
/// kube's own conversion is not used: it also evaluates the proxies of the environment.
pub(super) fn config_of_context(current: Current, compat: bool) -> Result<Config, LoginError> {
    let Current { context, mut cluster, user, .. } = current;
    let address = cluster.server.as_deref().ok_or_else(|| unusable(&KubeconfigError::MissingClusterUrl))?;
    let url: Uri = address.parse().map_err(|error| unusable(&KubeconfigError::ParseClusterUrl(error)))?;
    check_server(&url)?;
    let mut config = Config::new(url);
    // The authority in base64, or the content of its file.
    cluster.certificate_authority_data = cluster.certificate_authority_data.map(|data| in_one_line(&data));
    let described = ExecAuthCluster::try_from(&cluster).map_err(|error| unusable(&error))?;
    let authority = described.certificate_authority_data.as_deref();
    config.root_cert = authority.map(certificates_in).transpose().map_err(|error| unusable(&error))?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    if config.accept_invalid_certs && config.root_cert.is_some() && !compat {
        let reason = "specifying a root certificates file with the insecure flag is not allowed";
        return Err(LoginError(format!("The kubeconfig cannot be used: {reason}")));
    }
    config.tls_server_name = cluster.tls_server_name;
    if let Some(namespace) = context.namespace {
        config.default_namespace = namespace;
    }
    config.auth_info = user.unwrap_or_default();
    let AuthInfo { client_certificate_data: certificate, client_key_data: key, .. } = &mut config.auth_info;
    *certificate = certificate.take().map(|data| in_one_line(&data));
    *key = key.take().map(|data| SecretString::from(in_one_line(data.expose_secret())));
    if let Some(plugin) = config.auth_info.exec.as_mut().filter(|plugin| plugin.provide_cluster_info) {
        plugin.cluster = Some(described);
    }
    Ok(config)
}

/// Base64 without whitespace, which kube does not skip.
fn in_one_line(base64: &str) -> String {
    base64.split_whitespace().collect()
}

pub(super) fn unusable(error: &(dyn std::error::Error + 'static)) -> LoginError {
    LoginError(format!("The kubeconfig cannot be used: {}", explained(error)))
}

pub(super) fn check_server(url: &Uri) -> Result<(), LoginError> {
    match (url.scheme_str(), url.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(()),
        _ => Err(LoginError(
            "The server's address has no scheme, or another one than http and https: write it like \
             https://host:6443."
                .to_owned(),
        )),
    }
}

fn authority_of(given: &Credentials) -> Result<Option<Vec<Vec<u8>>>, LoginError> {
    match (&given.ca_path, &given.ca_data) {
        (Some(path), _) => authority_in(path).map(Some),
        (None, Some(data)) => certificates_in(&pem_of(data, "The authority's certificates")?).map(Some),
        (None, None) => Ok(None),
    }
}

/// The certificates of an authority in a file, in DER.
pub(super) fn authority_in(path: &str) -> Result<Vec<Vec<u8>>, LoginError> {
    let text = std::fs::read(path);
    certificates_in(&text.map_err(|error| {
        LoginError(format!("The authority's certificates {path:?} cannot be read: {error}"))
    })?)
}

/// The certificates among the PEM blocks of a text, in DER.
fn certificates_in(text: &[u8]) -> Result<Vec<Vec<u8>>, LoginError> {
    let blocks = pem::parse_many(text).map_err(|error| {
        LoginError(format!("The authority's certificates are not in the PEM format: {error}"))
    })?;
    let is_certificate = |block: &pem::Pem| matches!(block.tag(), "CERTIFICATE" | "X509 CERTIFICATE");
    Ok(blocks.into_iter().filter(is_certificate).map(pem::Pem::into_contents).collect())
}

fn certificate_of(given: &Credentials) -> Result<AuthInfo, LoginError> {
    let mut auth = AuthInfo::default();
    auth.client_certificate.clone_from(&given.certificate_path);
    auth.client_key.clone_from(&given.private_key_path);
    if let Some(data) = &given.certificate_data {
        auth.client_certificate_data = Some(STANDARD.encode(pem_of(data, "The client's certificate")?));
    }
    if let Some(data) = &given.private_key_data {
        auth.client_key_data = Some(SecretString::from(
            STANDARD.encode(pem_of(data.expose_secret(), "The client's private key")?),
        ));
    }
    Ok(auth)
}

/// The file with the client's certificate, if there is one: it may be replaced at any time.
pub(super) fn certificate_file(auth: &AuthInfo) -> Vec<u8> {
    let content = auth.client_certificate.as_ref().and_then(|path| std::fs::read(path).ok());
    content.unwrap_or_default()
}

/// PEM, either plain or encoded in base64.
fn pem_of(data: &str, what: &str) -> Result<Vec<u8>, LoginError> {
    if data.trim_start().starts_with("-----BEGIN ") {
        return Ok(data.as_bytes().to_vec());
    }
    STANDARD
        .decode(in_one_line(data))
        .map_err(|_| LoginError(format!("{what}: neither PEM nor base64 of PEM.")))
}
