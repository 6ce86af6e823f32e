//! Responses.

use std::pin::Pin;

use bytes::Bytes;
use serde_json::Value;

use crate::error::status::Status;

/// A response.
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) content_type: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Full(Bytes),
    Stream(Box<dyn BodyStream>),
}

impl Response {
    pub(crate) fn bytes(code: u16, body: impl Into<Bytes>) -> Self {
        Self { code, content_type: "application/json", headers: Vec::new(), body: Body::Full(body.into()) }
    }
    pub(crate) fn json(code: u16, value: &Value) -> Self {
        Self::bytes(code, value.to_string())
    }
    pub(crate) fn text(code: u16, text: impl Into<String>) -> Self {
        let body = Body::Full(Bytes::from(text.into()));
        Self { code, content_type: "text/plain; charset=utf-8", headers: Vec::new(), body }
    }
    /// Decoded JSON body, or the text of another one; null for streams.
    pub(crate) fn value(&self) -> Value {
        match &self.body {
            Body::Full(bytes) if self.content_type.starts_with("application/json") => {
                serde_json::from_slice(bytes).unwrap_or_default()
            }
            Body::Full(bytes) => String::from_utf8_lossy(bytes).into(),
            Body::Stream(_) => Value::Null,
        }
    }
    /// 404 of the router, which is not a Status.
    pub(crate) fn page_not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }
    pub(crate) fn warn(mut self, warnings: &[String]) -> Self {
        for warning in warnings {
            let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
            self.headers.push(("warning", format!("299 - \"{escaped}\"")));
        }
        self
    }
}

impl From<Status> for Response {
    fn from(status: Status) -> Self {
        let mut out = Self::bytes(status.code, format!("{}\n", status.to_value()));
        if let Some(seconds) = status.retry_after {
            out.headers.push(("retry-after", seconds.to_string()));
        }
        out
    }
}

/// The next chunk of a stream, with the stream; `None` at its end.
pub(crate) type NextChunk = Pin<Box<dyn Future<Output = Option<(Box<dyn BodyStream>, Bytes)>> + Send>>;

/// A body that is produced chunk by chunk.
pub(crate) trait BodyStream: Send {
    /// Waits for the next chunk. Dropping the future drops the stream.
    fn next_chunk(self: Box<Self>) -> NextChunk;
}
