//! A webhook with TLS.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

type Answers = dyn Fn(&str, &Value) -> Value + Send + Sync;

/// A running webhook.
pub(crate) struct Webhook {
    port: u16,
    bundle: String,
    /// Paths and reviews of all calls.
    calls: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Webhook {
    /// Starts a webhook. `answers` makes the `response` of a path and a review, without its uid.
    pub(crate) async fn start(answers: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Self {
        let generated = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(generated.signing_key.serialize_der());
        let provider = rustls::crypto::ring::default_provider();
        let config = rustls::ServerConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .expect("protocol versions")
            .with_no_client_auth()
            .with_single_cert(vec![generated.cert.der().clone()], key.into())
            .expect("a configuration");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let bundle = base64::engine::general_purpose::STANDARD.encode(generated.cert.pem());
        let calls: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let (answers, recorded): (Arc<Answers>, _) = (Arc::new(answers), calls.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answers, calls) = (acceptor.clone(), answers.clone(), recorded.clone());
                tokio::spawn(async move {
                    let stream = acceptor.accept(stream).await.expect("a TLS connection");
                    let service = hyper::service::service_fn(|request| answer(request, &answers, &calls));
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service);
                    let _closed = connection.await;
                });
            }
        });
        Self { port, bundle, calls }
    }

    /// `clientConfig` with a path.
    pub(crate) fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.bundle})
    }

    /// Takes the paths and the requests of all calls.
    pub(crate) fn take_calls(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.calls.lock().expect("the calls"))
    }
}

async fn answer(
    request: http::Request<hyper::body::Incoming>,
    answers: &Arc<Answers>,
    calls: &Mutex<Vec<(String, Value)>>,
) -> Result<http::Response<Full<bytes::Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let bytes = request.into_body().collect().await.expect("a body").to_bytes();
    let mut review: Value = serde_json::from_slice(&bytes).expect("a review");
    let mut response = answers(&path, &review["request"]);
    response["uid"] = review["request"]["uid"].clone();
    calls.lock().expect("the calls").push((path, review["request"].take()));
    review["response"] = response;
    Ok(http::Response::new(Full::new(bytes::Bytes::from(review.to_string()))))
}

/// The response of an admission webhook with a JSON patch.
pub(crate) fn patched(patch: &Value) -> Value {
    let patch = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}
