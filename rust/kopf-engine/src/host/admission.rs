//! Admission reviews on their way to the handlers.

use http::StatusCode;
use std::sync::Arc;

use kopf_core::admission::{Candidate, Request};
use kopf_core::json::value::Value;
use kopf_core::resource::Resource;
use tokio::sync::oneshot;

/// A review that has found its handlers.
#[derive(Debug)]
pub struct Review {
    /// What is asked.
    pub request: Request,
    /// What kind of object it is about.
    pub resource: Arc<Resource>,
    /// Who is to be called.
    pub candidates: Vec<Candidate>,
}

/// An admission review with the sender of its response.
#[derive(Debug)]
pub struct ReviewTask {
    /// The review.
    pub review: Review,
    /// The headers of the HTTP request.
    pub headers: Vec<(String, String)>,
    /// The client's certificate.
    pub peer: Option<Arc<Value>>,
    /// Where the answer goes: as JSON, or what went wrong.
    pub reply: oneshot::Sender<Result<Vec<u8>, Rejection>>,
}

/// A request that has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The HTTP status.
    pub status: u16,
    /// What to say.
    pub reason: String,
}

impl Rejection {
    /// With the usual words.
    pub fn of(status: StatusCode) -> Self {
        let reason = status.canonical_reason().unwrap_or_default().to_owned();
        Self { status: status.as_u16(), reason }
    }
}
