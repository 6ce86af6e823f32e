//! TCP connections to servers whose name has several addresses: "Happy Eyeballs", RFC 8305.
//!
//! hyper-util tries the addresses of a family one after another. So the first one would use up the timeout of the connection
//! if nothing responds there. The order and the delay are those of `kopf_core::server_addresses`.

use std::io;
use std::net::SocketAddr;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use kopf_core::server_addresses::UntriedAddresses;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;
use tower::{BoxError, ServiceExt as _};

use crate::time::duration::seconds;

/// The name of the server cannot be resolved.
#[derive(Debug, thiserror::Error)]
#[error("dns error")]
struct Unresolved(#[source] io::Error);

/// Connects to the first address of the server that responds.
///
/// # Errors
/// The name cannot be resolved, or all addresses have failed: the error is that of the first failure.
pub(super) async fn connect(tcp: HttpConnector, uri: Uri) -> Result<TcpStream, BoxError> {
    let addresses = resolve(&uri).await.map_err(Unresolved)?;
    let connecting = |address: SocketAddr| {
        let tcp = tcp.clone();
        async move {
            let address: Uri = format!("http://{}", SocketAddr::new(address.ip(), address.port())).parse()?;
            Ok::<_, BoxError>(tcp.oneshot(address).await?.into_inner())
        }
    };
    first_of(UntriedAddresses::new(addresses), connecting).await
}

async fn resolve(uri: &Uri) -> io::Result<Vec<SocketAddr>> {
    let host = uri.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let usual = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    Ok(lookup_host((host, uri.port_u16().unwrap_or(usual))).await?.collect())
}

/// The first connection. Each attempt begins a moment after the one before it, or when one has failed. Cancel safe.
async fn first_of<T, F: Future<Output = Result<T, BoxError>>>(
    mut addresses: UntriedAddresses,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<T, BoxError> {
    let mut running = FuturesUnordered::new();
    let mut failure = None;
    loop {
        running.extend(addresses.next_attempt().map(&connect));
        let delay = addresses.delay();
        tokio::select! {
            biased;
            ended = running.next() => match ended {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(error)) => failure = failure.or(Some(error)),
                None => return Err(failure.unwrap_or_else(|| "the name has no address".into())),
            },
            () = sleep(seconds(delay.unwrap_or_default())), if delay.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use futures::future::{pending, ready};
    use tokio::net::TcpListener;
    use tokio::time::{Instant, timeout};

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Connects to addresses by their ports: nothing responds at port 1, port 2 is closed, others respond at once. Returns the port
    /// or the error, and the elapsed time.
    async fn connected(ports: &[u16]) -> (Result<u16, String>, Duration) {
        let begun = Instant::now();
        let addresses = ports.iter().map(|port| SocketAddr::from(([10, 0, 0, 1], *port))).collect();
        let connecting = first_of(UntriedAddresses::new(addresses), |address| match address.port() {
            1 => pending().boxed(),
            2 => ready(Err(BoxError::from("refused"))).boxed(),
            port => ready(Ok(port)).boxed(),
        });
        let result = timeout(Duration::from_secs(30), connecting).await;
        let result = result.unwrap_or_else(|_| Err("timeout".into())).map_err(|error| error.to_string());
        (result, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_without_response_delays_the_connection_only_for_a_moment() {
        assert_eq!(connected(&[3]).await, (Ok(3), Duration::ZERO));
        assert_eq!(connected(&[1, 3]).await, (Ok(3), Duration::from_millis(250)));
        assert_eq!(connected(&[1, 1, 3, 4]).await, (Ok(3), Duration::from_millis(500)));
        assert_eq!(connected(&[1]).await, (Err("timeout".to_owned()), Duration::from_secs(30)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_fails_is_followed_by_the_next_one_at_once() {
        assert_eq!(connected(&[2, 3]).await, (Ok(3), Duration::ZERO));
        assert_eq!(connected(&[1, 2, 3]).await, (Ok(3), Duration::from_millis(250)));
        assert_eq!(connected(&[2, 2]).await, (Err("refused".to_owned()), Duration::ZERO));
        assert_eq!(connected(&[]).await.0, Err("the name has no address".to_owned()));
    }

    #[tokio::test]
    async fn names_are_resolved_and_the_port_is_that_of_the_scheme() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let connected = connect(tcp.clone(), format!("https://localhost:{port}").parse().unwrap()).await;
        assert_eq!(connected.unwrap().peer_addr().unwrap().port(), port);
        let error = connect(tcp, Uri::from_static("https://name.invalid")).await.unwrap_err();
        assert_eq!(error.to_string(), "dns error");
        for (uri, expected) in [
            ("https://127.0.0.1", "127.0.0.1:443"),
            ("http://[::1]", "[::1]:80"),
            ("http://[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(resolve(&Uri::from_static(uri)).await.unwrap(), addresses(&[expected]));
        }
    }
}
