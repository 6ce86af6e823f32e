//! Requests with whole answers: each goes as one write, and comes back as few reads, in the task of whoever has asked.
//!
//! Owns: the connections for that, and what is said with every request. Must not know: retries, nor what is asked.
//! There is no task per connection, no channel and no frame in between: of what a small write costs, those are the most.
//! Streams go another way (`client.rs`), which is the way of all requests that are not simple.

mod answer;

use std::fmt::Write as _;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, poll_fn, ready};
use http::{Method, Request, Response, Uri};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use kube::Config;
use kube::client::ConfigExt as _;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, ReadBuf};
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer as _, ServiceExt as _};

pub use answer::Answer;
use answer::Incoming;

/// Connections that nobody has used for so long are closed; servers do that a little later.
const IDLE: Duration = Duration::from_mins(1);

/// What answers are read into at first: most fit.
const ROOM: usize = 8 * 1024;

/// What bytes go through.
trait Io: hyper::rt::Read + hyper::rt::Write + Send + Unpin {}

impl<T: hyper::rt::Read + hyper::rt::Write + Send + Unpin> Io for T {}

type Stream = TokioIo<Box<dyn Io>>;
type Dial = Box<dyn Fn() -> BoxFuture<'static, Result<Stream, BoxError>> + Send + Sync>;
type Stamp = BoxCloneSyncService<Request<Empty<Bytes>>, Response<()>, BoxError>;

/// What is asked, apart from the body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'q> {
    pub(crate) method: &'q Method,
    /// The path and the query.
    pub(crate) url: &'q str,
    /// What the answer is to be.
    pub(crate) accept: &'q str,
    /// What the body is, if there is one.
    pub(crate) content_type: Option<&'q str>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The server was not reached, or it did not say anything.
    #[error(transparent)]
    Unreachable(BoxError),
    /// The answer has begun, but not ended.
    #[error(transparent)]
    Cut(BoxError),
}

/// The connections to one server, with one set of credentials.
pub(crate) struct Wire {
    dial: Dial,
    stamp: Stamp,
    /// The headers that are said with every request, if they never change.
    headers: Option<String>,
    host: String,
    /// What all paths begin with.
    base: String,
    idle: Arc<Mutex<Vec<Idle>>>,
}

struct Idle {
    stream: Stream,
    since: Instant,
}

impl Wire {
    /// To the server of the configuration, over such connections. No connection is made yet.
    pub(crate) fn new<C>(config: &Config, connector: C) -> Result<Self, kube::Error>
    where
        C: tower::Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
        C::Error: Into<BoxError>,
        C::Future: Send + 'static,
    {
        let uri = config.cluster_url.clone();
        let host = host_of(&uri);
        let base = uri.path().trim_end_matches('/').to_owned();
        let dial = move || -> BoxFuture<'static, Result<Stream, BoxError>> {
            let stream = connector.clone().oneshot(uri.clone());
            Box::pin(
                stream.map(|stream| Ok(TokioIo::new(Box::new(stream.map_err(Into::into)?) as Box<dyn Io>))),
            )
        };
        let stamp = stamp_of(config)?;
        let mut wire = Self { dial: Box::new(dial), stamp, headers: None, host, base, idle: Arc::default() };
        if !is_refreshed(config) {
            wire.headers = wire.stamped().now_or_never().and_then(Result::ok);
        }
        Ok(wire)
    }

    /// Whether the path and query can be said as they are. Others go the other way, which knows what to do with them.
    pub(crate) fn is_plain(url: &str) -> bool {
        url.starts_with('/')
            && url.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/?&=%:,".contains(&byte))
    }

    /// Asks, and reads the whole answer.
    pub(crate) async fn ask(&self, question: Question<'_>, body: &[u8]) -> Result<Answer, WireError> {
        let request = self.request(question, body).await.map_err(WireError::Unreachable)?;
        let mut stream = match self.take() {
            Some(stream) => stream,
            None => (self.dial)().await.map_err(WireError::Unreachable)?,
        };
        let (answer, is_reusable) = exchange(&mut stream, &request).await?;
        if is_reusable {
            self.give_back(stream);
        }
        Ok(answer)
    }

    async fn request(&self, question: Question<'_>, body: &[u8]) -> Result<Vec<u8>, BoxError> {
        let Question { method, url, accept, content_type } = question;
        let mut head = String::with_capacity(512 + url.len());
        let _ = write!(head, "{method} {}{url} HTTP/1.1\r\n", self.base);
        match &self.headers {
            Some(headers) => head.push_str(headers),
            None => head.push_str(&self.stamped().await?),
        }
        let _ = write!(head, "accept: {accept}\r\n");
        if let Some(content_type) = content_type {
            let _ = write!(head, "content-type: {content_type}\r\ncontent-length: {}\r\n", body.len());
        }
        head.push_str("\r\n");
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        Ok(request)
    }

    /// The headers of this moment: tokens may be refreshed for it.
    async fn stamped(&self) -> Result<String, BoxError> {
        let stamped = self.stamp.clone().oneshot(Request::new(Empty::new())).await?;
        let mut text = format!("host: {}\r\n", self.host);
        for (name, value) in stamped.headers() {
            let value = value.to_str()?;
            let _ = write!(text, "{name}: {value}\r\n");
        }
        Ok(text)
    }

    /// A connection that is open and has nothing to say, the most recent one.
    fn take(&self) -> Option<Stream> {
        loop {
            let mut idle = lock(&self.idle).pop()?;
            if idle.since.elapsed() < IDLE && is_silent(&mut idle.stream) {
                return Some(idle.stream);
            }
        }
    }

    fn give_back(&self, stream: Stream) {
        let mut idle = lock(&self.idle);
        idle.push(Idle { stream, since: Instant::now() });
        // Only while there are any, somebody looks after them.
        if idle.len() == 1 {
            tokio::spawn(close_old(Arc::downgrade(&self.idle)));
        }
    }
}

/// Closes what is not used, until there is nothing.
async fn close_old(idle: Weak<Mutex<Vec<Idle>>>) {
    loop {
        sleep(IDLE).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut idle = lock(&idle);
        idle.retain(|one| one.since.elapsed() < IDLE);
        if idle.is_empty() {
            return;
        }
    }
}

fn lock(idle: &Mutex<Vec<Idle>>) -> MutexGuard<'_, Vec<Idle>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server that says something unasked says goodbye.
fn is_silent(stream: &mut Stream) -> bool {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    let read = poll_fn(|context| Poll::Ready(Pin::new(&mut *stream).poll_read(context, &mut buffer)));
    matches!(read.now_or_never(), Some(Poll::Pending))
}

/// Writes and reads at the same time: a server may answer before it has read everything.
async fn exchange(stream: &mut Stream, request: &[u8]) -> Result<(Answer, bool), WireError> {
    let (mut rest, mut flushed) = (request, false);
    let mut incoming = Incoming::default();
    incoming.buffer.reserve(ROOM);
    poll_fn(|context| {
        let written = poll_write(stream, context, &mut rest, &mut flushed);
        loop {
            if incoming.buffer.capacity() - incoming.buffer.len() < ROOM / 4 {
                incoming.buffer.reserve(ROOM);
            }
            let read = match (pin!(stream.read_buf(&mut incoming.buffer)).poll(context), &written) {
                (Poll::Ready(read), _) => read,
                (Poll::Pending, Poll::Ready(Err(error))) => Err(error.kind().into()),
                (Poll::Pending, _) => return Poll::Pending,
            };
            let advanced = match read {
                Ok(length) => incoming.advance(length == 0).map_err(BoxError::from),
                Err(error) => Err(error.into()),
            };
            match advanced {
                // Whoever has not read all will not understand what follows.
                Ok(Some((answer, is_reusable))) => return Poll::Ready(Ok((answer, is_reusable && flushed))),
                Ok(None) => {}
                Err(error) if incoming.has_head() => return Poll::Ready(Err(WireError::Cut(error))),
                Err(error) => return Poll::Ready(Err(WireError::Unreachable(error))),
            }
        }
    })
    .await
}

fn poll_write(
    stream: &mut Stream,
    context: &mut std::task::Context<'_>,
    rest: &mut &[u8],
    flushed: &mut bool,
) -> Poll<io::Result<()>> {
    while !rest.is_empty() {
        match Pin::new(&mut *stream).poll_write(context, rest)? {
            Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(length) => *rest = rest.get(length..).unwrap_or_default(),
            Poll::Pending => return Poll::Pending,
        }
    }
    if !*flushed {
        match Pin::new(stream).poll_flush(context)? {
            Poll::Ready(()) => *flushed = true,
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(Ok(()))
}

/// What puts the headers of the configuration to a request: kube's own, over something that gives them back.
fn stamp_of(config: &Config) -> Result<Stamp, kube::Error> {
    let echo = tower::service_fn(|request: Request<Empty<Bytes>>| {
        let mut response = Response::new(());
        *response.headers_mut() = request.into_parts().0.headers;
        ready(Ok::<_, BoxError>(response))
    });
    let extra = config.extra_headers_layer()?.layer(echo);
    Ok(match config.auth_layer()? {
        Some(auth) => BoxCloneSyncService::new(auth.layer(extra)),
        None => BoxCloneSyncService::new(extra),
    })
}

/// Whether the headers may be others the next time.
fn is_refreshed(config: &Config) -> bool {
    let auth = &config.auth_info;
    auth.token_file.is_some() || auth.exec.is_some() || auth.auth_provider.is_some()
}

/// The header `Host`: the port only if it is not the usual one.
fn host_of(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    match (uri.port_u16(), uri.scheme_str()) {
        (None, _) | (Some(443), Some("https")) | (Some(80), Some("http")) => host.to_owned(),
        (Some(port), _) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests;
