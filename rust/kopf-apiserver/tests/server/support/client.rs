//! Minimal HTTP client: one connection per request.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A response; code 0 if there was none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: String,
    pub(crate) warnings: Vec<String>,
}

pub(crate) struct Client {
    pub(crate) port: u16,
    pub(crate) token: String,
    tls: bool,
}

impl Client {
    pub(crate) fn plain(port: u16, token: &str) -> Self {
        Self { port, token: token.to_owned(), tls: false }
    }

    /// Reads the port and the token. The certificate is not verified: it is that of a local control plane.
    pub(crate) fn from_kubeconfig(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a kubeconfig");
        let after = |mark: &str| text.split(mark).nth(1).expect("a field of the kubeconfig").to_owned();
        let port: String = after("https://127.0.0.1:").chars().take_while(char::is_ascii_digit).collect();
        let token: String = after("token:")
            .trim_start_matches([' ', '"'])
            .chars()
            .take_while(|c| !" \"}\n".contains(*c))
            .collect();
        Self { port: port.parse().expect("a port"), token, tls: true }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &BTreeMap<String, String>,
        body: &str,
    ) -> Answer {
        let mut request = http::Request::builder().method(method).uri(path).header("host", "127.0.0.1");
        for (key, value) in headers {
            request = request.header(key, value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
        let work = async {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("a connection");
            if self.tls {
                let name = ServerName::try_from("127.0.0.1").expect("a name");
                let stream = connector().connect(name, stream).await.expect("a TLS connection");
                exchange(TokioIo::new(stream), request).await
            } else {
                exchange(TokioIo::new(stream), request).await
            }
        };
        tokio::time::timeout(Duration::from_secs(10), work).await.unwrap_or_default()
    }
}

async fn exchange<I>(io: I, request: http::Request<Full<Bytes>>) -> Answer
where
    I: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.expect("a handshake");
    let driver = tokio::spawn(connection);
    let Ok(answer) = sender.send_request(request).await else { return Answer::default() };
    let code = answer.status().as_u16();
    let warnings = answer
        .headers()
        .get_all("warning")
        .iter()
        .filter_map(|v| v.to_str().ok())
        .map(str::to_owned)
        .collect();
    let body =
        answer.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    driver.abort();
    Answer { code, body: String::from_utf8_lossy(&body).into_owned(), warnings }
}

pub(crate) fn connector() -> TlsConnector {
    connector_for(&[])
}

/// TLS connector with these ALPN protocols.
pub(crate) fn connector_for(protocols: &[&[u8]]) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAll))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// Verifier that accepts all certificates.
#[derive(Debug)]
struct TrustAll;

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
