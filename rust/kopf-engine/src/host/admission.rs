//! Admission reviews for the host.

use http::StatusCode;
use std::sync::Arc;

use kopf_core::admission::{Candidate, Request};
use kopf_core::json::value::Value;
use kopf_core::resource::Resource;
use tokio::sync::oneshot;

use crate::metrics::OpenedReview;

/// A review with its handlers.
#[derive(Debug)]
pub struct Review {
    /// The admission request.
    pub request: Request,
    /// The resource of the object under review.
    pub resource: Arc<Resource>,
    /// The handlers to be called.
    pub candidates: Vec<Candidate>,
    /// The review in the metrics, until its response.
    pub opened: OpenedReview,
}

/// An admission review with the sender of its response.
#[derive(Debug)]
pub struct AdmissionReviewTask {
    /// The review.
    pub review: Review,
    /// The headers of the HTTP request.
    pub headers: Vec<(String, String)>,
    /// The client's certificate.
    pub peer: Option<Arc<Value>>,
    /// The channel for the response: a JSON text, or the rejection.
    pub reply: oneshot::Sender<Result<Vec<u8>, Rejection>>,
}

/// A review that is rejected with an HTTP error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The HTTP status.
    pub status: u16,
    /// The reason phrase of the response.
    pub reason: String,
}

impl Rejection {
    /// With the standard reason phrase of the status.
    pub fn of(status: StatusCode) -> Self {
        let reason = status.canonical_reason().unwrap_or_default().to_owned();
        Self { status: status.as_u16(), reason }
    }
}
