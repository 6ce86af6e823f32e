//! HTTP service: limits of bodies, authentication, faults, request log, compression and streaming.

use std::borrow::Cow;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as HttpBody, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use serde_json::Value;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::content;
use crate::api;
use crate::base::connections::{Counted, CountedStream, Counts};
use crate::base::user::User;
use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::http::request::{Query, Request};
use crate::http::response::{Body, BodyStream, NextChunk, Response};
use crate::http::route::{self, Route};
use crate::impersonation::impersonate;
use crate::testkit::request_log::LoggedRequest;

/// Maximum size of a request body, in bytes.
const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// Timeout of TLS handshakes.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of idle connections, and of reading request heads.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// Timeout of reading a request body.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);
/// Minimum size of compressed responses, in bytes, as in kube-apiserver.
const GZIP_FROM: usize = 128 * 1024;

/// Error that closes the connection without a response.
#[derive(Debug, thiserror::Error)]
#[error("connection reset on request")]
struct Reset;

/// Serves one connection until its end.
pub(crate) async fn connection(stream: CountedStream, acceptor: Option<TlsAcceptor>, cluster: Arc<Cluster>) {
    // HTTP/2 spawns a task per request.
    let tasks = cluster.tasks.clone();
    let counts = stream.counts();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (cluster, counts) = (cluster.clone(), counts.clone());
        async move { serve(&cluster, request, &counts).await }
    });
    let mut builder = auto::Builder::new(tasks);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
    builder.http2().max_concurrent_streams(1000);
    // Errors of connections are the client's.
    match acceptor {
        None => drop(builder.serve_connection(TokioIo::new(stream), service).await),
        Some(acceptor) => {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                drop(builder.serve_connection(TokioIo::new(stream), service).await);
            }
        }
    }
}

async fn serve(
    cluster: &Arc<Cluster>,
    request: http::Request<Incoming>,
    counts: &Arc<Counts>,
) -> Result<http::Response<ResponseBody>, Reset> {
    let _request = counts.request();
    let (parts, body) = request.into_parts();
    let gzip = accepts_gzip(&parts.headers);
    let raw_query = parts.uri.query().unwrap_or_default().to_owned();
    let mut request = Request {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: Query::parse(&raw_query),
        headers: parts.headers,
        body: Bytes::new(),
        duplicate_keys: Vec::new(),
        user: Arc::default(),
    };
    let response = match read(body).await {
        Ok(bytes) => {
            request.body = bytes;
            process(cluster, &mut request).await
        }
        Err(status) => Some(status.into()),
    };
    cluster.request_log.record(log_entry(
        cluster,
        &request,
        raw_query,
        response.as_ref().map_or(0, |r| r.code),
    ));
    match response {
        Some(response) => Ok(into_http(response, gzip, counts)),
        None => Err(Reset),
    }
}

async fn read(body: Incoming) -> Result<Bytes, Status> {
    match timeout(BODY_TIMEOUT, Limited::new(body, BODY_LIMIT).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(_)) => Err(Status::too_large(BODY_LIMIT)),
        Err(_) => Err(Status::new(408, "Timeout", "the request's body was not sent in time")),
    }
}

fn log_entry(cluster: &Cluster, request: &Request, query: String, code: u16) -> LoggedRequest {
    LoggedRequest {
        at: cluster.request_log.elapsed(),
        method: request.method.to_string(),
        path: request.path.clone(),
        query,
        content_type: request.header("content-type").to_owned(),
        accept: request.header("accept").to_owned(),
        user_agent: request.header("user-agent").to_owned(),
        body: request.body.clone(),
        code,
        user: request.user.name.clone(),
    }
}

/// Authenticates the request, injects faults, and handles it. `None` resets the connection.
async fn process(cluster: &Arc<Cluster>, request: &mut Request) -> Option<Response> {
    match authenticate(cluster, request).and_then(|user| impersonate(cluster, request, user)) {
        Ok(user) => request.user = user,
        Err(status) => return Some(status.into()),
    }
    let route = route::parse(&request.path);
    let (verb, plural) = classify(request, &route);
    let effects = cluster.faults.evaluate(verb, &plural, request.client());
    if !effects.delay.is_zero() {
        tokio::time::sleep(effects.delay).await;
    }
    if effects.reset {
        return None;
    }
    if let Some(status) = effects.status {
        return Some(status.into());
    }
    let answer = match content::decode(cluster, request, &route) {
        Ok(()) => api::handle(cluster, request, route).await,
        Err(status) => status.into(),
    };
    (!effects.lost).then_some(answer)
}

/// Verb and resource of a request for the matching of faults. The resource of the discovery of a group version is that version.
fn classify<'r>(request: &Request, route: &'r Route) -> (&'static str, Cow<'r, str>) {
    let target = match route {
        Route::Resource(target) => target,
        Route::Version { group, version } => return ("get", format!("{group}/{version}").into()),
        _ => return ("get", "".into()),
    };
    let verb = match (request.method.as_str(), target.name.is_some()) {
        ("GET" | "HEAD", _) if target.watch || request.query.flag("watch") => "watch",
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        _ => "deletecollection",
    };
    let resource = match &target.subresource {
        Some(subresource) => format!("{}/{subresource}", target.plural).into(),
        None => target.plural.as_str().into(),
    };
    (verb, resource)
}

fn authenticate(cluster: &Cluster, request: &Request) -> Result<Arc<User>, Status> {
    let header = request.header("authorization");
    let token = header.strip_prefix("Bearer ").or_else(|| header.strip_prefix("bearer ")).map(str::trim);
    match token {
        Some(token) => cluster.authenticate(token).ok_or_else(Status::unauthorized),
        // Anonymous requests are rejected, also for discovery and health.
        None => Err(Status::unauthorized()),
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers.get("accept-encoding").and_then(|v| v.to_str().ok()).is_some_and(|v| v.contains("gzip"))
}

fn into_http(response: Response, gzip: bool, counts: &Arc<Counts>) -> http::Response<ResponseBody> {
    let mut out = http::Response::new(ResponseBody::Full(None));
    *out.status_mut() =
        http::StatusCode::from_u16(response.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = out.headers_mut();
    headers.insert("content-type", HeaderValue::from_static(response.content_type));
    headers.insert("cache-control", HeaderValue::from_static("no-cache, private"));
    if let Ok(id) = HeaderValue::from_str(&crate::base::random::uid()) {
        headers.insert("audit-id", id);
    }
    for (name, value) in response.headers {
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.append(name, value);
        }
    }
    *out.body_mut() = match response.body {
        Body::Full(bytes) => {
            let compressed = if gzip && bytes.len() >= GZIP_FROM { compress(&bytes) } else { None };
            if compressed.is_some() {
                out.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
                out.headers_mut().insert("vary", HeaderValue::from_static("Accept-Encoding"));
            }
            ResponseBody::Full(Some(compressed.unwrap_or(bytes)))
        }
        Body::Stream(stream) => ResponseBody::Stream(Some((stream.next_chunk(), counts.stream()))),
    };
    out
}

fn compress(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// Body of a response. A stream is polled when its connection can take more data, and is dropped with it.
enum ResponseBody {
    Full(Option<Bytes>),
    Stream(Option<(NextChunk, Counted)>),
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Reset;
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Reset>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Stream(open) => {
                let Some((pending, _)) = open else { return Poll::Ready(None) };
                pending.as_mut().poll(context).map(|chunk| {
                    let (stream, bytes) = chunk.unzip();
                    *open = open
                        .take()
                        .and_then(|(_, counted)| Some((stream.map(BodyStream::next_chunk)?, counted)));
                    bytes.map(|bytes| Ok(Frame::data(bytes)))
                })
            }
        }
    }
    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }
    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Full(bytes) => {
                hyper::body::SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Self::Stream(_) => hyper::body::SizeHint::default(),
        }
    }
}

/// Handles a request of the server's owner, without a socket.
pub(crate) async fn handle(
    cluster: &Arc<Cluster>,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Response {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut headers = HeaderMap::new();
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    headers.insert("content-type", HeaderValue::from_static(media));
    headers.insert("user-agent", HeaderValue::from_static("kopf-apiserver"));
    let request = Request {
        method: Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET),
        path: path.to_owned(),
        query: Query::parse(query),
        headers,
        body: body.map(|b| Bytes::from(b.to_string())).unwrap_or_default(),
        duplicate_keys: Vec::new(),
        user: Arc::new(User {
            name: "admin".into(),
            uid: "admin".into(),
            groups: vec!["system:masters".into()],
            ..User::default()
        }),
    };
    let route = route::parse(&request.path);
    api::handle(cluster, &request, route).await
}
