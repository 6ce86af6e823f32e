//! Connections to the API server: TCP, proxies, TLS.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::{HeaderValue, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::client::ConfigExt as _;
use rustls::pki_types::ServerName;
use tower::{BoxError, ServiceExt as _};

use super::http1::{Connector, Transport};
use super::metered::MeteredConnector;
use super::redact::explained;
use super::server_certificate::tls_config;
use crate::error::LoginError;
use crate::time::clock::Clock;

/// The idle time before the first TCP keep-alive probe, and the interval of the probes.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// How long sent bytes may stay unacknowledged before the connection fails.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// A proxy for requests to the API server.
pub(crate) struct Proxy {
    kind: ProxyKind,
    uri: Uri,
}

enum ProxyKind {
    /// `CONNECT` over TCP or TLS.
    Http { is_tls: bool, authorization: Option<HeaderValue> },
    /// SOCKS 5; names are resolved by the proxy.
    Socks { credentials: Option<(String, String)> },
}

impl Proxy {
    /// Reads the address of a proxy, such as `http://user:password@host:3128`.
    ///
    /// # Errors
    /// The address is not a URL, or the kind of proxy is not supported. The error does not quote the address, as it may
    /// contain a password.
    pub(crate) fn parse(address: &str, server: &Uri) -> Result<Self, LoginError> {
        let scheme = address.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let scheme = scheme.ok_or_else(|| {
            LoginError("The proxy's address has no scheme: write it like http://host:3128.".to_owned())
        })?;
        if !matches!(scheme.as_str(), "http" | "https" | "socks5" | "socks5h") {
            return Err(LoginError(format!(
                "Proxies of the kind {scheme:?} are not supported: use http, https, socks5, or socks5h."
            )));
        }
        let matcher = Matcher::builder().all(address.to_owned()).build();
        let found = matcher.intercept(server).ok_or_else(|| {
            LoginError(
                "The proxy's address is not a URL (it is not shown, as it may have a password).".to_owned(),
            )
        })?;
        let kind = if scheme.starts_with("socks") {
            let credentials = found.raw_auth().map(|(user, password)| (user.to_owned(), password.to_owned()));
            ProxyKind::Socks { credentials }
        } else {
            ProxyKind::Http { is_tls: scheme == "https", authorization: found.basic_auth().cloned() }
        };
        Ok(Self { kind, uri: found.uri().clone() })
    }

    /// The proxy for the server according to the environment (`HTTPS_PROXY`, `NO_PROXY`, and so on).
    pub(crate) fn of_environment(server: &Uri) -> Option<Self> {
        let found = Matcher::from_env().intercept(server)?;
        let is_tls = found.uri().scheme_str() == Some("https");
        let kind = match found.uri().scheme_str()? {
            "http" | "https" => ProxyKind::Http { is_tls, authorization: found.basic_auth().cloned() },
            "socks5" | "socks5h" => ProxyKind::Socks {
                credentials: found.raw_auth().map(|(user, password)| (user.to_owned(), password.to_owned())),
            },
            _ => return None,
        };
        Some(Self { kind, uri: found.uri().clone() })
    }
}

/// The connector for the server of the configuration. Opens no connection yet.
pub(crate) fn connector(
    config: &Config,
    proxy: Option<Proxy>,
    clock: Clock,
) -> Result<Connector, LoginError> {
    let tcp = MeteredConnector::new(tcp_connector(), clock);
    match proxy {
        None => over(config, tcp),
        Some(Proxy { kind: ProxyKind::Socks { credentials }, uri }) => {
            let socks = SocksV5::new(uri, tcp);
            over(
                config,
                match credentials {
                    Some((user, password)) => socks.with_auth(user, password),
                    None => socks,
                },
            )
        }
        Some(Proxy { kind: ProxyKind::Http { is_tls: false, authorization }, uri }) => {
            over(config, authorized(Tunnel::new(uri, tcp), authorization))
        }
        Some(Proxy { kind: ProxyKind::Http { is_tls: true, authorization }, uri }) => {
            // The proxy's certificate is verified with the system's CA certificates.
            let tls = Config::new(uri.clone())
                .rustls_https_connector_with_connector(tcp)
                .map_err(|error| unusable(&error))?;
            over(config, authorized(Tunnel::new(uri, tls), authorization))
        }
    }
}

/// Opens TCP connections that fail if the other side acknowledges neither data nor keep-alive probes.
fn tcp_connector() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // Nagle's algorithm delays writes by up to 40 ms.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(any(target_os = "linux", target_os = "android"))]
    tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
    tcp
}

fn authorized<C>(tunnel: Tunnel<C>, authorization: Option<HeaderValue>) -> Tunnel<C> {
    match authorization {
        Some(value) => tunnel.with_auth(value),
        None => tunnel,
    }
}

/// Adds TLS to the connections if the server's address is `https`.
fn over<C>(config: &Config, connector: C) -> Result<Connector, LoginError>
where
    C: tower::Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper_util::client::legacy::connect::Connection
        + hyper::rt::Read
        + hyper::rt::Write
        + Send
        + Unpin
        + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let uri = config.cluster_url.clone();
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls_config(config)?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone()).map_err(|error| unusable(&error))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let tls = Arc::new(builder.enable_http1().wrap_connector(connector));
    Ok(Box::new(move || {
        let connecting = (*tls).clone().oneshot(uri.clone());
        connecting.map(|stream| Ok(Box::new(stream?) as Box<dyn Transport>)).boxed()
    }))
}

fn unusable(error: &(dyn std::error::Error + 'static)) -> LoginError {
    LoginError(format!("The credentials cannot be used: {}", explained(error)))
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tower::Service as _;

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_detects_connections_whose_other_side_acknowledges_nothing() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let socket = tcp_connector().call(uri).await.unwrap().into_inner();
        // While data is sent, and while a response is awaited.
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 30_000);
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        let idle = sockopt::tcp_keepidle(&socket).unwrap();
        let probes = sockopt::tcp_keepintvl(&socket).unwrap() * sockopt::tcp_keepcnt(&socket).unwrap();
        assert_eq!(idle + probes, Duration::from_secs(30));
    }

    fn parsed(address: &str) -> Result<Proxy, String> {
        Proxy::parse(address, &Uri::from_static("https://example.com:6443")).map_err(|error| error.0)
    }

    #[test]
    fn proxy_credentials_are_extracted_from_the_address() {
        let proxy = parsed("http://user:p%40ss@proxy:3128").unwrap();
        assert_eq!(proxy.uri, "http://proxy:3128/");
        let ProxyKind::Http { is_tls: false, authorization: Some(value) } = proxy.kind else { panic!() };
        assert_eq!(value, "Basic dXNlcjpwQHNz");
        let ProxyKind::Socks { credentials } = parsed("socks5://user:pass@proxy:1080").unwrap().kind else {
            panic!()
        };
        assert_eq!(credentials, Some(("user".to_owned(), "pass".to_owned())));
        assert!(matches!(
            parsed("https://proxy").unwrap().kind,
            ProxyKind::Http { is_tls: true, authorization: None }
        ));
    }

    /// Connects to a server through a proxy at this kind of address. The proxy responds so to the beginning of the connection;
    /// returns the beginning, and what follows the response.
    async fn proxied(address: &str, response: &[u8]) -> [Vec<u8>; 2] {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = address.replace("PROXY", &listener.local_addr().unwrap().to_string());
        let config = Config::new(Uri::from_static("https://example.com:6443"));
        let connector = connector(&config, Some(parsed(&address).unwrap()), Clock::start()).unwrap();
        let proxy = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = [vec![0; 1024], vec![0; 1024]];
            for part in &mut received {
                let length = stream.read(part).await.unwrap();
                part.truncate(length);
                stream.write_all(response).await.unwrap();
            }
            received
        };
        let (connected, received) = tokio::join!(connector(), proxy);
        assert!(connected.is_err(), "this proxy leads to no server");
        received
    }

    #[tokio::test]
    async fn proxies_get_the_credentials_of_their_address() {
        let [request, _] = proxied("http://user:p%40ss@PROXY", b"HTTP/1.1 200 OK\r\n\r\n").await;
        let request = String::from_utf8(request).unwrap();
        assert!(request.starts_with("CONNECT example.com:6443 HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n"), "{request}");
        let [greeting, credentials] = proxied("socks5://user:pass@PROXY", &[5, 2]).await;
        assert!(greeting.starts_with(&[5]) && greeting[2..].contains(&2), "{greeting:?}");
        assert_eq!(credentials, b"\x01\x04user\x04pass");
    }

    #[test]
    fn addresses_that_cannot_be_used_are_rejected_without_their_passwords() {
        for address in [
            "proxy:3128",
            "ftp://user:planted@proxy",
            "socks4://user:planted@proxy",
            "http://user:planted@ proxy",
        ] {
            let text = parsed(address).err().unwrap();
            assert!(!text.contains("planted"), "{text}");
        }
    }
}
