//! A connection to the API server: its address, one set of credentials, and the pool of TCP connections.
//!
//! Created from the results of login handlers, from a kubeconfig, or from a service account. kube reads kubeconfigs and
//! prepares TLS; the requests are sent with hyper (`http1`). Requests are retried in the parent module, and [the
//! store](super::credentials) selects one of several connections.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use futures::future::ready;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Empty, Full};
use kopf_core::json::value::{Value, python_repr};
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::AuthInfo;
use tower::{BoxError, Layer as _, ServiceExt as _};

use crate::client::authorization::Authorization;
use crate::client::config::{certificate_file, config_of, header_of, identity_of, unusable};
use crate::client::connector::Proxy;
use crate::client::http1::{Connector, Http1Client, ResponseBody, SendOptions, Unsent};
use crate::client::redact::{explained, is_about_certificates};
use crate::error::{LoginError, RequestError};
use crate::fence::{Fence, Rejection};
use crate::host::credentials::Credentials;
use crate::time::clock::Clock;

/// The timeout for opening a connection, unless the settings specify another one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum body of a response in bytes, apart from watches: far more than a page of a listing usually has.
pub(crate) const MAX_BODY: usize = 512 * 1024 * 1024;

/// The options of all connections of an operator.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// The `User-Agent` header.
    pub agent: String,
    /// Whether connections from kubeconfigs and service accounts use the proxies of the environment.
    pub trust_env: bool,
    /// Whether contradictory credentials are accepted, as in Kopf 1.45.
    pub compat: bool,
    /// The clock for expirations.
    pub clock: Clock,
}

/// A request without its body.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'r> {
    /// The HTTP method.
    pub method: &'r Method,
    /// The path and the query.
    pub url: &'r str,
    /// The accepted content types.
    pub accept: &'r str,
    /// The content type of the body, if there is one.
    pub content_type: Option<&'r str>,
    /// Whether it may be sent again if a reused connection fails before the response.
    pub is_idempotent: bool,
    /// Whether a slash at the end of the path is intended. Otherwise, it is a sign of an empty name, and the request is rejected.
    pub may_end_with_slash: bool,
}

/// The TCP connections that a request uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    /// Those of most requests.
    Shared,
    /// Those of leader election.
    Dedicated,
}

/// The reason why there is no response.
enum SendError {
    Request(RequestError),
    Transport(BoxError),
}

impl From<BoxError> for SendError {
    fn from(error: BoxError) -> Self {
        Self::Transport(error)
    }
}

/// The failure of a request without a response.
#[derive(Debug)]
pub(crate) struct SendFailure {
    pub(crate) error: RequestError,
    /// One side has rejected the other's certificate: the files with certificates may have been replaced.
    pub(crate) is_about_certificates: bool,
}

/// The connections made with one set of credentials.
pub struct Connection {
    /// The id of the login handler.
    pub key: String,
    /// Connections with a higher priority are used first.
    pub priority: i64,
    /// The end of validity, in seconds since the epoch.
    pub expiration: Option<f64>,
    /// The server's address, for the log.
    pub server: String,
    /// The namespace of objects without one.
    pub default_namespace: Option<String>,
    /// A hash that distinguishes changed credentials from unchanged ones without keeping the secrets.
    pub fingerprint: u64,
    client: Http1Client,
    /// The connections of leader election, once there are requests.
    dedicated: OnceLock<Http1Client>,
    authorization: Authorization,
    clock: Clock,
    /// The headers of all requests.
    headers: HeaderMap,
    /// The prefix of all paths.
    base: String,
}

impl Connection {
    /// Connects with the result of a login handler.
    pub fn from_credentials(
        key: &str,
        given: &Credentials,
        options: &ConnectionOptions,
    ) -> Result<Self, LoginError> {
        let config = config_of(given)?;
        let proxy = given.proxy_url.as_deref();
        let proxy = proxy.map(|address| Proxy::parse(address, &config.cluster_url)).transpose()?;
        let authorization = header_of(given)?.map_or(Authorization::None, Authorization::Fixed);
        let fingerprint = fingerprint(&[identity_of(given).as_bytes(), &certificate_file(&config.auth_info)]);
        let connection = Self::new(key, config, proxy, authorization, options)?;
        Ok(Self {
            priority: given.priority,
            expiration: given.expiration,
            default_namespace: given.default_namespace.clone(),
            fingerprint,
            ..connection
        })
    }

    fn new(
        key: &str,
        mut config: Config,
        proxy: Option<Proxy>,
        authorization: Authorization,
        options: &ConnectionOptions,
    ) -> Result<Self, LoginError> {
        // The rest is for the header. It is removed, so that kube neither reads the files nor runs the plugin again.
        let given = std::mem::take(&mut config.auth_info);
        let headers = headers_of(&config, &given, &options.agent)?;
        config.auth_info.client_certificate = given.client_certificate;
        config.auth_info.client_certificate_data = given.client_certificate_data;
        config.auth_info.client_key = given.client_key;
        config.auth_info.client_key_data = given.client_key_data;
        let connector = crate::client::connector::connector(&config, proxy, options.clock.clone())?;
        let server = address_of(&config);
        let namespace = Some(config.default_namespace.clone());
        let base = config.cluster_url.path().trim_end_matches('/').to_owned();
        Ok(Self::over(key, connector, authorization, headers, options.clock.clone())
            .located(server, base, namespace))
    }

    fn over(
        key: &str,
        connector: Connector,
        authorization: Authorization,
        headers: HeaderMap,
        clock: Clock,
    ) -> Self {
        Self {
            key: key.to_owned(),
            priority: 0,
            expiration: None,
            server: String::new(),
            default_namespace: None,
            fingerprint: fingerprint(&[key.as_bytes()]),
            client: Http1Client::new(connector),
            dedicated: OnceLock::new(),
            authorization,
            clock,
            headers,
            base: String::new(),
        }
    }

    fn located(self, server: String, base: String, default_namespace: Option<String>) -> Self {
        Self { server, default_namespace, base, ..self }
    }

    /// Connects to a test server.
    #[cfg(test)]
    pub(crate) fn fake(key: &str, connector: Connector) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("fake"));
        Self::over(key, connector, Authorization::None, headers, Clock::start()).located(
            "http://fake".to_owned(),
            String::new(),
            Some("credentials-ns".to_owned()),
        )
    }

    /// The current `Authorization` header, if there is one. May wait for an exec plugin.
    pub(crate) async fn authorization(&self) -> Result<Option<HeaderValue>, RequestError> {
        let header = self.authorization.header(&self.clock).await;
        header.map_err(|error| RequestError::Unsent(error.0))
    }

    /// Sends one request, and waits for the head of the response. Cancel safe.
    ///
    /// `connect_timeout` applies if a new connection is needed. The fence, if there is one, is passed when the connection is open.
    pub(crate) async fn send(
        &self,
        head: RequestHead<'_>,
        headers: &HeaderMap,
        body: &[u8],
        authorization: Option<HeaderValue>,
        (pool, connect_timeout, fence): (Pool, Option<Duration>, Option<&Fence>),
    ) -> Result<Response<ResponseBody>, SendFailure> {
        let body = Bytes::copy_from_slice(body);
        let request = || -> Result<_, SendError> {
            if fence.is_some_and(|fence| fence.admit(Rejection::Write).is_err()) {
                return Err(SendError::Request(RequestError::Fenced));
            }
            let mut request = self.request(head).map_err(SendError::Request)?;
            for (name, value) in headers {
                request.headers_mut().append(name, value.clone());
            }
            if let Some(value) = &authorization {
                request.headers_mut().insert(header::AUTHORIZATION, value.clone());
            }
            Ok(request.map(|()| Full::new(body.clone())))
        };
        let options = SendOptions {
            is_idempotent: head.is_idempotent,
            connect_timeout: connect_timeout.unwrap_or(CONNECT_TIMEOUT),
        };
        let client = match pool {
            Pool::Shared => &self.client,
            Pool::Dedicated => self.dedicated.get_or_init(|| self.client.separate()),
        };
        client.send(request, options).await.map_err(|error| match error {
            SendError::Request(error) => SendFailure { error, is_about_certificates: false },
            SendError::Transport(error) => match error.downcast::<Unsent>() {
                Ok(unsent) => self.unreachable(&*unsent.0, RequestError::Unsent),
                Err(error) => self.unreachable(&*error, RequestError::Transport),
            },
        })
    }

    fn request(&self, head: RequestHead<'_>) -> Result<Request<()>, RequestError> {
        let RequestHead { method, url, accept, content_type, may_end_with_slash, .. } = head;
        check_path(url, may_end_with_slash)?;
        let malformed =
            |error: &dyn std::fmt::Display| RequestError::Malformed(format!("{method} {url}: {error}"));
        let path = PathAndQuery::from_maybe_shared(Bytes::from(format!("{}{url}", self.base)));
        let mut request = Request::new(());
        *request.method_mut() = method.clone();
        *request.uri_mut() = Uri::from(path.map_err(|error| malformed(&error))?);
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        let value = |text: &str| HeaderValue::from_str(text).map_err(|error| malformed(&error));
        headers.insert(header::ACCEPT, value(accept)?);
        if let Some(content_type) = content_type {
            headers.insert(header::CONTENT_TYPE, value(content_type)?);
        }
        Ok(request)
    }

    fn unreachable(
        &self,
        error: &(dyn std::error::Error + 'static),
        of_kind: fn(String) -> RequestError,
    ) -> SendFailure {
        let text = format!("cannot reach {}: {}", self.server, explained(error));
        SendFailure { error: of_kind(text), is_about_certificates: is_about_certificates(error) }
    }
}

/// Reads the body of a response to its end.
///
/// # Errors
/// The connection failed, or the body is longer than the limit.
pub(crate) async fn read_body(mut body: ResponseBody, limit: usize) -> Result<Bytes, RequestError> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            RequestError::Transport(format!("the response was cut: {}", explained(&error)))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limit {
            return Err(too_long(limit));
        }
        match (first.is_empty(), rest.is_empty()) {
            (true, true) => first = data,
            (false, _) => {
                rest.extend_from_slice(&std::mem::take(&mut first));
                rest.extend_from_slice(&data);
            }
            (true, false) => rest.extend_from_slice(&data),
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// The error of a response that is longer than the limit.
pub(super) fn too_long(limit: usize) -> RequestError {
    RequestError::Malformed(format!(
        "the response is longer than {} MiB: if it is a listing, set settings.watching.chunk_size to less",
        limit / 1024 / 1024
    ))
}

/// Rejects paths with a segment that is empty, `.`, or `..`: servers and proxies would normalise them to other paths.
fn check_path(url: &str, may_end_with_slash: bool) -> Result<(), RequestError> {
    let path = url.split('?').next().unwrap_or_default();
    let names = if may_end_with_slash { path.strip_suffix('/').unwrap_or(path) } else { path };
    let mut segments = names.split('/').skip(1);
    if path.starts_with('/') && segments.all(|segment| !matches!(segment, "" | "." | "..")) {
        return Ok(());
    }
    let shown = python_repr(&Value::String(path.to_owned()));
    Err(RequestError::Malformed(format!("{shown} is not requested: a name in it is empty, '.', or '..'")))
}

/// The headers of all requests: the host, the agent, the impersonation.
fn headers_of(config: &Config, auth: &AuthInfo, agent: &str) -> Result<HeaderMap, LoginError> {
    let agent =
        HeaderValue::from_str(agent).map_err(|error| LoginError(format!("Bad User-Agent: {error}")))?;
    let mut impersonating = Config::new(config.cluster_url.clone());
    impersonating.auth_info.clone_from(auth);
    // kube's layer adds the headers to a request, which this service returns.
    let service = tower::service_fn(|request: Request<Empty<Bytes>>| {
        ready(Ok::<_, BoxError>(request.into_parts().0.headers))
    });
    let layer = impersonating.extra_headers_layer().map_err(|error| unusable(&error))?;
    let headers = layer.layer(service).oneshot(Request::new(Empty::new())).now_or_never();
    let mut headers = headers.and_then(Result::ok).unwrap_or_default();
    let host = HeaderValue::from_str(&host_of(&config.cluster_url));
    headers.insert(header::HOST, host.map_err(|error| LoginError(format!("Bad host: {error}")))?);
    headers.insert(header::USER_AGENT, agent);
    Ok(headers)
}

/// The `Host` header. The port is included only if it is not the default one.
fn host_of(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    match (uri.port_u16(), uri.scheme_str()) {
        (None, _) | (Some(443), Some("https")) | (Some(80), Some("http")) => host.to_owned(),
        (Some(port), _) => format!("{host}:{port}"),
    }
}

/// The server's address without its password, if it has one.
fn address_of(config: &Config) -> String {
    let url = config.cluster_url.to_string();
    let url = url.trim_end_matches('/');
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

fn fingerprint(parts: &[&[u8]]) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

mod fallback;
#[cfg(test)]
mod tests;

pub use fallback::{
    KubeconfigFailure, ServiceAccount, has_kubeconfig, has_named_kubeconfig, has_service_account,
};
