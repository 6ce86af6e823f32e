//! HTTP client for webhooks: one POST, in plain text or with TLS against the CA bundle of the webhook configuration.

use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;

use super::tls;
use crate::base::json::member_text;

/// Maximum size of a webhook response, in bytes.
const ANSWER_LIMIT: usize = 3 * 1024 * 1024;

/// Posts a review and returns the body of the response. `seconds` is the timeout. The error is the text for a Status.
pub(crate) async fn post(
    url: &str,
    ca: Option<&[u8]>,
    review: &Value,
    seconds: u64,
) -> Result<Bytes, String> {
    let work = exchange(url, ca, review);
    match tokio::time::timeout(Duration::from_secs(seconds), work).await {
        Ok(Ok(answer)) => answer.body(),
        Ok(Err(why)) => Err(format!("Post \"{url}\": {why}")),
        Err(_) => Err(format!("Post \"{url}\": context deadline exceeded")),
    }
}

/// Response of a webhook.
struct Answer {
    code: StatusCode,
    headers: HeaderMap,
    bytes: Bytes,
}

impl Answer {
    /// The body of a successful response. The error is that of client-go for other ones.
    fn body(self) -> Result<Bytes, String> {
        let content_type =
            self.headers.get("content-type").and_then(|it| it.to_str().ok()).unwrap_or_default();
        let code = self.code.as_u16();
        if !(200..=206).contains(&code) {
            if let Some(message) = status_message(&self.bytes) {
                return Err(message);
            }
            let text = String::from_utf8_lossy(&self.bytes);
            let is_text = content_type.is_empty() || content_type.starts_with("text/");
            return Err(generic_error(code, if is_text { text.trim() } else { "unknown" }));
        }
        if self.bytes.is_empty() {
            return Err(format!(
                "0-length response with status code: {code} and content type: {content_type}"
            ));
        }
        Ok(self.bytes)
    }
}

/// The message of a `Status` that is a failure.
fn status_message(bytes: &[u8]) -> Option<String> {
    let status: Value = serde_json::from_slice(bytes).ok()?;
    let is_failure = member_text(&status, "kind") == "Status" && member_text(&status, "status") == "Failure";
    is_failure.then(|| member_text(&status, "message").to_owned())
}

/// What client-go reports for a response with this status code. `text` is its body, if that is plain text.
fn generic_error(code: u16, text: &str) -> String {
    let fixed = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 406 | 415 => text,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            let quoted = Value::from(text).to_string();
            return format!("an error on the server ({quoted}) has prevented the request from succeeding");
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    fixed.to_owned()
}

async fn exchange(url: &str, ca: Option<&[u8]>, review: &Value) -> Result<Answer, String> {
    let uri: http::Uri = url.parse().map_err(|e| format!("{e}"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let secure = uri.scheme_str() != Some("http");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port))
        .await
        .map_err(|e| format!("dial tcp {host}:{port}: {}", connect_error(&e)))?;
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
        let connecting = tls::connector(ca)?.connect(name.clone(), stream);
        let stream = connecting.await.map_err(|e| tls::handshake_error(&e, &name))?;
        send(TokioIo::new(stream), request).await
    } else {
        send(TokioIo::new(stream), request).await
    }
}

/// Text of a failed connection, as Go words it.
fn connect_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        _ => error.to_string(),
    }
}

async fn send<I>(io: I, request: http::Request<Full<Bytes>>) -> Result<Answer, String>
where
    I: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(io).await.map_err(|e| e.to_string())?;
    let mut answered = pin!(async {
        let answer = sender.send_request(request).await.map_err(|e| response_error(&e))?;
        let (code, headers) = (answer.status(), answer.headers().clone());
        let body = Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await;
        Ok::<_, String>(Answer { code, headers, bytes: body.map_err(|e| e.to_string())?.to_bytes() })
    });
    tokio::select! {
        answered = &mut answered => answered,
        // The server has closed the connection: the rest of its response has been received.
        _closed = connection => answered.await,
    }
}

/// Text of a connection that ends before the response, as Go words it.
fn response_error(error: &hyper::Error) -> String {
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let is_end = source.is_some_and(|source| source.kind() == std::io::ErrorKind::UnexpectedEof);
    if is_end || error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return "EOF".to_owned();
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_servers_are_those_of_client_go() {
        let answer = |code, content_type: &'static str, body: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", http::HeaderValue::from_static(content_type));
            Answer { code, headers, bytes: Bytes::from(body) }.body()
        };
        let internal = StatusCode::INTERNAL_SERVER_ERROR;
        for (code, content_type, body, expected) in [
            (StatusCode::OK, "application/json", "{}", Ok("{}")),
            (
                StatusCode::OK,
                "application/json",
                "",
                Err("0-length response with status code: 200 and content type: application/json"),
            ),
            (
                internal,
                "text/plain",
                "a\n",
                Err("an error on the server (\"a\") has prevented the request from succeeding"),
            ),
            (
                internal,
                "application/json",
                "{}",
                Err("an error on the server (\"unknown\") has prevented the request from succeeding"),
            ),
            (
                StatusCode::NOT_FOUND,
                "text/plain",
                "a",
                Err("the server could not find the requested resource"),
            ),
            (StatusCode::FORBIDDEN, "text/plain", "a", Err("a")),
        ] {
            let found = answer(code, content_type, body);
            assert_eq!(found, expected.map(Bytes::from).map_err(str::to_owned), "{code} {body}");
        }
    }
}
