//! One way to the API server: where it is, how to be let in, and the connections to it.
//!
//! Made from what login handlers give, or from a kubeconfig or a service account. The pieces are kube's (TLS, tokens from
//! files, exec plugins); the connector is ours, for it must not wait for more bytes before it sends (Nagle's algorithm costs
//! 40 ms per write). Knows nothing of retries (`api.rs`) nor of choosing between several credentials (`vault.rs`).

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use secrecy::{ExposeSecret as _, SecretString};
use tower::BoxError;
use tower::util::MapErr;

use crate::client::causes::{explained, is_about_certificates};
use crate::credentials::Credentials;
use crate::error::{LoginError, RequestError};
use crate::wire::{Answer, Question, Wire, WireError};

pub(crate) mod causes;

/// Where a service account's token is, if the operator runs in a cluster.
const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The connections made with one set of credentials.
pub struct Connection {
    /// Which login handler it comes from.
    pub key: String,
    /// Higher ones are used first.
    pub priority: i64,
    /// When it stops being valid, in seconds since the epoch.
    pub expiration: Option<f64>,
    /// The server's address, for the log.
    pub server: String,
    /// The namespace for whatever has none of its own.
    pub default_namespace: Option<String>,
    /// Tells equal credentials from changed ones, without keeping the secrets for that.
    pub fingerprint: u64,
    client: Client,
    /// The shorter way of simple requests; only tests have none.
    wire: Option<Wire>,
    /// One side does not accept the other's certificate.
    distrust: AtomicBool,
}

impl Connection {
    /// Connects with what a login handler gave.
    pub fn from_credentials(key: &str, given: &Credentials, agent: &str) -> Result<Self, LoginError> {
        let config = config_of(given)?;
        let (priority, expiration) = (given.priority, given.expiration);
        let default_namespace = given.default_namespace.clone();
        let fingerprint = fingerprint(&[&identity_of(given)]);
        let server = address_of(&config);
        let (client, wire) = build(config, agent, headers_of(given)?)?;
        let key = key.to_owned();
        Ok(Self {
            key,
            priority,
            expiration,
            server,
            default_namespace,
            fingerprint,
            client,
            wire: Some(wire),
            distrust: AtomicBool::default(),
        })
    }

    /// Connects with the service account of the pod that we run in.
    pub fn from_service_account(agent: &str) -> Result<Self, LoginError> {
        let config = Config::incluster()
            .map_err(|error| LoginError(format!("The service account cannot be used: {error}")))?;
        let token = std::fs::read_to_string(TOKEN_FILE).unwrap_or_default();
        Self::from_config("login_with_service_account", 20, config, agent, fingerprint(&[&token]))
    }

    /// Connects as the current context of the kubeconfig says: `KUBECONFIG`, else `~/.kube/config`.
    pub async fn from_kubeconfig(agent: &str) -> Result<Self, LoginError> {
        let explain = |error: kube::config::KubeconfigError| {
            LoginError(format!("The kubeconfig cannot be used: {}", explained(&error)))
        };
        let file = Kubeconfig::read().map_err(explain)?;
        if file.current_context.as_deref().unwrap_or_default().is_empty() {
            return Err(LoginError("Current context is not set in kubeconfigs.".to_owned()));
        }
        // A rotated token counts as other credentials, although the kubeconfig is the same.
        let text = serde_json::to_string(&file).unwrap_or_default();
        let tokens = file.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()?.token_file.clone());
        let tokens: Vec<String> =
            tokens.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect();
        let mark = fingerprint(&[&text, &tokens.join("\n")]);
        let config =
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(explain)?;
        Self::from_config("login_with_kubeconfig", 10, config, agent, mark)
    }

    fn from_config(
        key: &str,
        priority: i64,
        config: Config,
        agent: &str,
        mark: u64,
    ) -> Result<Self, LoginError> {
        let default_namespace = Some(config.default_namespace.clone());
        let server = address_of(&config);
        let (client, wire) = build(config, agent, vec![])?;
        Ok(Self {
            key: key.to_owned(),
            priority,
            expiration: None,
            server,
            default_namespace,
            fingerprint: mark,
            client,
            wire: Some(wire),
            distrust: AtomicBool::default(),
        })
    }

    /// Connects to nothing but what the test has made.
    #[cfg(test)]
    pub(crate) fn fake(key: &str, client: Client) -> Self {
        let default_namespace = Some("credentials-ns".to_owned());
        let fingerprint = fingerprint(&[key]);
        Self {
            key: key.to_owned(),
            server: "http://fake".to_owned(),
            priority: 0,
            expiration: None,
            default_namespace,
            fingerprint,
            client,
            wire: None,
            distrust: AtomicBool::default(),
        }
    }

    /// Whether a handshake has failed because of a certificate: those that were read may have been replaced since.
    pub fn is_distrusted(&self) -> bool {
        self.distrust.load(Ordering::Relaxed)
    }

    /// Sends one request, and reads the whole answer.
    pub(crate) async fn ask(&self, question: Question<'_>, body: &[u8]) -> Result<Answer, RequestError> {
        let Some(wire) = self.wire.as_ref().filter(|_| Wire::is_plain(question.url)) else {
            return self.ask_client(question, body).await;
        };
        wire.ask(question, body).await.map_err(|error| match error {
            WireError::Unreachable(error) => self.unreachable(&*error),
            WireError::Cut(error) => cut(&*error),
        })
    }

    async fn ask_client(&self, question: Question<'_>, body: &[u8]) -> Result<Answer, RequestError> {
        let response = self.send(request(question, body)?).await?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.map(str::to_owned);
        let body = response.into_body().collect().await.map_err(|error| cut(&*BoxError::from(error)))?;
        Ok(Answer { status, retry_after, body: body.to_bytes() })
    }

    /// Sends a request to be answered with a stream.
    pub(crate) async fn open(&self, url: &str, accept: &str) -> Result<Response<Body>, RequestError> {
        let question = Question { method: &Method::GET, url, accept, content_type: None };
        self.send(request(question, b"")?).await
    }

    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> RequestError {
        if is_about_certificates(error) {
            self.distrust.store(true, Ordering::Relaxed);
        }
        RequestError::Transport(format!("cannot reach {}: {}", self.server, explained(error)))
    }

    /// Sends one request; the response's body is still to be read.
    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, RequestError> {
        self.client.send(request).await.map_err(|error| self.unreachable(&error))
    }
}

fn request(question: Question<'_>, body: &[u8]) -> Result<Request<Body>, RequestError> {
    let Question { method, url, accept, content_type } = question;
    let mut request = Request::builder().method(method).uri(url).header(header::ACCEPT, accept);
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    let body = Body::from(Bytes::copy_from_slice(body));
    request.body(body).map_err(|error| RequestError::Malformed(format!("{method} {url}: {error}")))
}

fn cut(error: &(dyn std::error::Error + 'static)) -> RequestError {
    RequestError::Transport(format!("the response was cut: {error}"))
}

/// The server's address as people write it, without a password, if it has one.
fn address_of(config: &Config) -> String {
    let url = config.cluster_url.to_string();
    let url = url.trim_end_matches('/');
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

/// Whether this process runs in a cluster's pod with a service account.
pub fn has_service_account() -> bool {
    Path::new(TOKEN_FILE).exists()
}

/// Whether there is a kubeconfig: named by the environment, or at its usual place.
pub fn has_kubeconfig() -> bool {
    let named = std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
    let home = std::env::home_dir().is_some_and(|home| home.join(".kube/config").exists());
    named || home
}

fn fingerprint(parts: &[&str]) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Everything that makes two sets of credentials different.
fn identity_of(given: &Credentials) -> String {
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

/// The `Authorization` header, where kube has no field for it.
fn headers_of(given: &Credentials) -> Result<Vec<HeaderValue>, LoginError> {
    let basic = given.username.is_some() && given.password.is_some();
    let text = match (&given.scheme, &given.token) {
        (Some(scheme), Some(token)) if !basic => format!("{scheme} {}", token.expose_secret()),
        (Some(scheme), None) if !basic => scheme.clone(),
        _ => return Ok(vec![]),
    };
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| LoginError("The token or its scheme cannot be sent as an HTTP header.".to_owned()))?;
    value.set_sensitive(true);
    Ok(vec![value])
}

pub(crate) fn config_of(given: &Credentials) -> Result<Config, LoginError> {
    let url = given.server.parse();
    let url = url.map_err(|error| {
        LoginError(format!("The server's address {:?} is not a URL: {error}", given.server))
    })?;
    let mut config = Config::new(url);
    if let Some(namespace) = &given.default_namespace {
        config.default_namespace.clone_from(namespace);
    }
    config.accept_invalid_certs = given.insecure.unwrap_or(false);
    config.root_cert = authority_of(given)?;
    config.auth_info = auth_of(given)?;
    if let Some(proxy) = &given.proxy_url {
        let parsed = proxy.parse();
        config.proxy_url =
            Some(parsed.map_err(|error| LoginError(format!("The proxy's address is not a URL: {error}")))?);
    }
    Ok(config)
}

fn authority_of(given: &Credentials) -> Result<Option<Vec<Vec<u8>>>, LoginError> {
    let text = match (&given.ca_path, &given.ca_data) {
        (Some(path), _) => std::fs::read(path).map_err(|error| {
            LoginError(format!("The authority's certificates {path:?} cannot be read: {error}"))
        })?,
        (None, Some(data)) => pem_of(data, "The authority's certificates")?,
        (None, None) => return Ok(None),
    };
    let blocks = pem::parse_many(&text).map_err(|error| {
        LoginError(format!("The authority's certificates are not in the PEM format: {error}"))
    })?;
    Ok(Some(blocks.into_iter().map(pem::Pem::into_contents).collect()))
}

fn auth_of(given: &Credentials) -> Result<AuthInfo, LoginError> {
    let mut auth = AuthInfo::default();
    if given.username.is_some() && given.password.is_some() {
        auth.username.clone_from(&given.username);
        auth.password.clone_from(&given.password);
    } else if given.scheme.is_none() {
        auth.token.clone_from(&given.token);
    }
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

/// PEM as it is, or out of its base64.
fn pem_of(data: &str, what: &str) -> Result<Vec<u8>, LoginError> {
    if data.trim_start().starts_with("-----BEGIN ") {
        return Ok(data.as_bytes().to_vec());
    }
    let compact: String = data.split_whitespace().collect();
    STANDARD.decode(compact).map_err(|_| LoginError(format!("{what}: neither PEM nor base64 of PEM.")))
}

fn build(config: Config, agent: &str, authorization: Vec<HeaderValue>) -> Result<(Client, Wire), LoginError> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(std::time::Duration::from_secs(30)));
    match config.proxy_url.clone() {
        Some(proxy) => build_over(Tunnel::new(proxy, connector), config, agent, authorization),
        None => build_over(connector, config, agent, authorization),
    }
}

fn build_over<C>(
    connector: C,
    config: Config,
    agent: &str,
    authorization: Vec<HeaderValue>,
) -> Result<(Client, Wire), LoginError>
where
    C: tower::Service<http::Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper_util::client::legacy::connect::Connection
        + hyper::rt::Read
        + hyper::rt::Write
        + Send
        + Unpin
        + 'static,
    C::Future: Send + 'static,
    C::Error: Into<Box<dyn std::error::Error + Send + Sync>> + std::error::Error + Send + Sync + 'static,
{
    let explain =
        |error: kube::Error| LoginError(format!("The credentials cannot be used: {}", explained(&error)));
    let mut config = config;
    let agent =
        HeaderValue::from_str(agent).map_err(|error| LoginError(format!("Bad User-Agent: {error}")))?;
    config.headers.push((header::USER_AGENT, agent));
    config.headers.extend(authorization.into_iter().map(|value| (header::AUTHORIZATION, value)));
    let https = config.rustls_https_connector_with_connector(connector).map_err(explain)?;
    let wire = Wire::new(&config, https.clone()).map_err(explain)?;
    let transport = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(https);
    let transport = MapErr::new(transport, BoxError::from);
    let auth = config.auth_layer().map_err(explain)?;
    let builder = ClientBuilder::new(transport, config.default_namespace.clone());
    let extra = config.extra_headers_layer().map_err(explain)?;
    let client = match auth {
        Some(auth) => {
            builder.with_layer(&extra).with_layer(&auth).with_layer(&config.base_uri_layer()).build()
        }
        None => builder.with_layer(&extra).with_layer(&config.base_uri_layer()).build(),
    };
    Ok((client, wire))
}
