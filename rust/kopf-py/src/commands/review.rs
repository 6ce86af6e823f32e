//! `AdmissionReview`: an admission review with its handlers, as Python sees it, and its response.

use std::sync::Arc;

use kopf_core::admission::{
    Denial, ErrorPrecedence, Request, ReviewError, ReviewFilter, Verdict, admission_response, operations,
};
use kopf_core::json::value::Value;
use kopf_core::object;
use kopf_engine::admission::AdmissionRouter;
use kopf_engine::host::admission::Rejection;
use kopf_engine::host::admission::{AdmissionReviewTask, Review as OpenReview};
use kopf_engine::metrics::OpenedReview;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyNone};

use crate::commands::reply_sender::ReplySender;
use crate::convert::{headers_to_python, peer_to_python};
use crate::convert::{python_to_map, python_to_value, value_to_python};
use crate::views::Object;

/// Call the handlers of an admission review.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct AdmissionReview {
    /// The handlers to call, each with whether its filters are to be called first.
    #[pyo3(get)]
    handlers: Vec<(usize, bool)>,
    /// The key of the object's memo.
    #[pyo3(get)]
    uid: String,
    /// The resource of the object.
    #[pyo3(get)]
    resource: Py<PyAny>,
    /// The object under review.
    #[pyo3(get)]
    object: Py<Object>,
    /// The old object.
    #[pyo3(get)]
    old: Option<Py<Object>>,
    /// The new object.
    #[pyo3(get)]
    new: Option<Py<Object>>,
    /// The user info of the request.
    #[pyo3(get)]
    userinfo: Py<PyAny>,
    /// The headers of the HTTP request, if known.
    #[pyo3(get)]
    headers: Py<PyAny>,
    /// The client's certificate, if it is known.
    #[pyo3(get)]
    sslpeer: Py<PyAny>,
    request: Request,
    opened: OpenedReview,
    reply: Option<ReplySender<Result<Vec<u8>, Rejection>>>,
}

impl AdmissionReview {
    /// A review that our own webhook server has received.
    pub(crate) fn received(py: Python<'_>, task: AdmissionReviewTask, resource: Py<PyAny>) -> PyResult<Self> {
        let headers = headers_to_python(py, &task.headers)?.into_any();
        let sslpeer = match &task.peer {
            Some(peer) => peer_to_python(py, peer)?,
            None => PyNone::get(py).to_owned().into_any(),
        };
        Self::new(py, task.review, resource, (headers, sslpeer), Some(task.reply.into()))
    }

    fn new(
        py: Python<'_>,
        review: OpenReview,
        resource: Py<PyAny>,
        (headers, sslpeer): (Bound<'_, PyAny>, Bound<'_, PyAny>),
        reply: Option<ReplySender<Result<Vec<u8>, Rejection>>>,
    ) -> PyResult<Self> {
        let OpenReview { request, candidates, opened, .. } = review;
        let view = |object: &Arc<object::Object>| Py::new(py, Object::new(Arc::clone(object)));
        let new = request.new.as_ref().map(view).transpose()?;
        let old = request.old.as_ref().map(view).transpose()?;
        let object = match new.as_ref().or(old.as_ref()) {
            Some(view) => view.clone_ref(py),
            None => view(&request.body)?,
        };
        Ok(Self {
            handlers: candidates.iter().map(|one| (one.handler, one.guarded)).collect(),
            uid: request.body.uid().unwrap_or_default().to_owned(),
            resource,
            object,
            old,
            new,
            userinfo: value_to_python(py, &request.user_info)?.unbind(),
            headers: headers.unbind(),
            sslpeer: sslpeer.unbind(),
            request,
            opened,
            reply,
        })
    }
}

/// Decodes a review that the user's own server has received. An error is returned as the pair of its kind and its text.
pub(crate) fn open<'py>(
    admission_router: &AdmissionRouter,
    request: &Bound<'py, PyAny>,
    (webhook, reason): (Option<&str>, Option<&str>),
    (headers, sslpeer): (Bound<'py, PyAny>, Bound<'py, PyAny>),
    to_python: impl FnOnce(&Arc<kopf_core::resource::Resource>) -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let py = request.py();
    let text = python_to_value(request)?.to_string();
    match admission_router.open(text.as_bytes(), ReviewFilter { webhook, reason }) {
        Ok(review) => {
            let resource = to_python(&review.resource)?;
            Ok(Py::new(py, AdmissionReview::new(py, review, resource, (headers, sslpeer), None)?)?.into_any())
        }
        Err(problem) => Ok((kind(&problem), problem.to_string()).into_pyobject(py)?.into_any().unbind()),
    }
}

fn kind(problem: &ReviewError) -> &'static str {
    match problem {
        ReviewError::NotJson(_) | ReviewError::Malformed(_) | ReviewError::TooDeep { .. } => "malformed",
        ReviewError::MissingData(_) => "missing",
        ReviewError::UnknownHandler(_) => "handler",
        ReviewError::UnknownResource(_) => "unknown",
        ReviewError::AmbiguousResource(_) => "ambiguous",
    }
}

#[pymethods]
impl AdmissionReview {
    /// Authors' functions get its values, and may store in them what refers to it: see `Object`.
    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)?;
        visit.call(&self.old)?;
        visit.call(&self.new)?;
        visit.call(&self.userinfo)?;
        visit.call(&self.headers)?;
        visit.call(&self.sslpeer)
    }

    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    #[getter]
    fn operation(&self) -> Option<&str> {
        self.request.operation.as_deref()
    }

    /// The subresource of the request.
    #[getter]
    fn subresource(&self) -> Option<&str> {
        self.request.subresource.as_deref()
    }

    /// Whether the request is a dry run.
    #[getter]
    fn dryrun(&self) -> bool {
        self.request.dry_run
    }

    /// Sends the response to the webhook server; returns it instead if Python has opened the review.
    ///
    /// A denial is the rank of the error (0: for admission, 1: permanent, 2: temporary, 3: other), its message, its code. The
    /// changes are either a merge patch or RFC 6902 operations.
    ///
    /// # Errors
    /// If the changes are not JSON; no response is sent then.
    #[pyo3(signature = (denials, warnings, patch=None, changes=None))]
    #[expect(clippy::needless_pass_by_value, reason = "arguments as Python gives them")]
    fn respond<'py>(
        &self,
        py: Python<'py>,
        denials: Vec<(u8, String, Option<i64>)>,
        warnings: Vec<String>,
        patch: Option<&Bound<'py, PyDict>>,
        changes: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let denials: Vec<Denial> = denials
            .into_iter()
            .map(|(kind, message, code)| Denial { rank: rank(kind), message, code })
            .collect();
        let changes = match (patch, changes) {
            (Some(patch), _) => operations(&self.request, &python_to_map(patch.as_any())?),
            (None, Some(changes)) => match python_to_value(changes)? {
                Value::Array(changes) => changes,
                _ => vec![],
            },
            (None, None) => vec![],
        };
        let response = admission_response(&self.request, &denials, &warnings, &changes);
        self.opened.on_response(Verdict::of(&denials));
        let Some(reply) = &self.reply else { return value_to_python(py, &response).map(Some) };
        reply.send(Ok(response.to_string().into_bytes()));
        Ok(None)
    }

    /// Reports that the review cannot be handled.
    fn fail(&self, reason: String) {
        self.opened.on_response(Verdict::Errored);
        if let Some(reply) = &self.reply {
            reply.send(Err(Rejection { status: 500, reason }));
        }
    }
}

fn rank(kind: u8) -> ErrorPrecedence {
    match kind {
        0 => ErrorPrecedence::Admission,
        1 => ErrorPrecedence::Permanent,
        2 => ErrorPrecedence::Temporary,
        _ => ErrorPrecedence::Arbitrary,
    }
}
