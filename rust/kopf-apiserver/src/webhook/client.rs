//! HTTP client for webhooks: one POST, in plain text or with TLS against the CA bundle of the webhook configuration.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Maximum size of a webhook response, in bytes.
const ANSWER_LIMIT: usize = 3 * 1024 * 1024;

/// Posts an admission review and decodes the response. `seconds` is the timeout. The error is the text for a Status.
pub(crate) async fn post(
    url: &str,
    ca: Option<&[u8]>,
    review: &Value,
    seconds: u64,
) -> Result<Value, String> {
    let work = exchange(url, ca, review);
    match tokio::time::timeout(Duration::from_secs(seconds), work).await {
        Ok(done) => done.map_err(|why| format!("Post \"{url}\": {why}")),
        Err(_) => Err(format!("Post \"{url}\": context deadline exceeded")),
    }
}

async fn exchange(url: &str, ca: Option<&[u8]>, review: &Value) -> Result<Value, String> {
    let uri: http::Uri = url.parse().map_err(|e| format!("{e}"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let secure = uri.scheme_str() != Some("http");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port))
        .await
        .map_err(|e| format!("dial tcp {host}:{port}: {e}"))?;
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let request = http::Request::post(path)
        .header("host", uri.authority().map_or("", |a| a.as_str()))
        .header("content-type", "application/json")
        .header("accept", "application/json, */*")
        .header("user-agent", "kube-apiserver-admission")
        .body(Full::new(Bytes::from(review.to_string())))
        .map_err(|e| e.to_string())?;
    if secure {
        let name = ServerName::try_from(host).map_err(|e| e.to_string())?;
        let stream = connector(ca)?.connect(name, stream).await.map_err(|e| format!("tls: {e}"))?;
        send(TokioIo::new(stream), request).await
    } else {
        send(TokioIo::new(stream), request).await
    }
}

fn connector(ca: Option<&[u8]>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.unwrap_or_default()) {
        roots.add(certificate.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn send<I>(io: I, request: http::Request<Full<Bytes>>) -> Result<Value, String>
where
    I: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(io).await.map_err(|e| e.to_string())?;
    let mut answered = pin!(async {
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await;
        Ok::<_, String>((code, body.map_err(|e| e.to_string())?.to_bytes()))
    });
    let (code, body) = tokio::select! {
        answered = &mut answered => answered?,
        // The server has closed the connection: the rest of its response has been received.
        _closed = connection => answered.await?,
    };
    if !code.is_success() {
        return Err(format!(
            "an error on the server (\"{}\") has prevented the request from succeeding",
            String::from_utf8_lossy(&body)
        ));
    }
    serde_json::from_slice(&body).map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))
}
