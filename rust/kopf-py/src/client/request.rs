//! Requests and their options, from Python.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use kopf_core::user_request::{Call, DefaultNamespace, Verb, WriteOptions};
use kopf_engine::apply::{self, Applier, KnownState};
use kopf_engine::host::RunId;
use kopf_engine::user_client::{Api, CallOptions};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::apply::{ApplyOptions, read};
use super::outcome::Outcome;
use crate::convert::python_to_value;

/// The action of a request.
#[derive(Clone)]
pub(crate) enum RequestAction {
    /// A verb on a kind.
    Verb(String, Call),
    /// Any request: the method, the path, the body with its content type, the accepted types.
    Raw(String, String, Option<(Vec<u8>, String)>, String),
    /// The resource of a name.
    Resolve(String),
    /// All resources.
    Resources,
    /// Whether the verb is allowed on the kind, for the name, the namespace and the subresource of the call.
    Access(String, String, Call),
    /// The children of an owner.
    Apply(Box<apply::Request>),
}

/// Executes a request.
pub(crate) async fn run(
    api: Api,
    known: KnownState,
    action: RequestAction,
    options: Arc<CallOptions>,
) -> Outcome {
    let result = match action {
        RequestAction::Verb(kind, call) => api.call(&kind, &call, &options).await.map(Outcome::Response),
        RequestAction::Raw(method, path, body, accept) => {
            let body = body.as_ref().map(|(body, content_type)| (body.as_slice(), content_type.as_str()));
            api.request((&method, &path), body, &accept, &options).await.map(Outcome::Response)
        }
        RequestAction::Resolve(kind) => {
            api.resolve(&kind, &options).await.map(|one| Outcome::Resources(vec![one]))
        }
        RequestAction::Access(verb, kind, call) => {
            api.is_allowed((&verb, &kind), &call, &options).await.map(Outcome::Allowed)
        }
        RequestAction::Resources => api.resources(&options).await.map(Outcome::Resources),
        RequestAction::Apply(request) => {
            let applier = Applier::new(api, known);
            return applier.apply(*request, &options).await.into();
        }
    };
    result.unwrap_or_else(Outcome::Error)
}

/// A request to the API server.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct ApiRequest {
    pub(crate) action: RequestAction,
}

impl ApiRequest {
    /// The kind and the call, if it is a verb.
    pub(crate) fn verb(&self) -> Option<(String, Call)> {
        match &self.action {
            RequestAction::Verb(kind, call) => Some((kind.clone(), call.clone())),
            _ => None,
        }
    }
}

#[pymethods]
impl ApiRequest {
    /// A verb on a kind. `body_namespace` is the namespace in the body; `guarded` is whether the body names a resource version or a
    /// uid that the server compares.
    #[new]
    #[pyo3(signature = (verb, kind, name = None, namespace = None, *, body = None, body_namespace = None, subresource = None,
                        query = vec![], guarded = false, metadata_only = false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments, with their names at the call")]
    fn new(
        verb: &str,
        kind: String,
        name: Option<String>,
        namespace: Option<String>,
        body: Option<&Bound<'_, PyAny>>,
        body_namespace: Option<String>,
        subresource: Option<String>,
        query: Vec<(String, String)>,
        guarded: bool,
        metadata_only: bool,
    ) -> PyResult<Self> {
        let verb =
            Verb::of(verb).ok_or_else(|| PyValueError::new_err(format!("There is no verb {verb:?}.")))?;
        let body = body.map(to_json).transpose()?;
        let is_guarded = guarded;
        let call = Call {
            verb,
            namespace,
            body_namespace,
            name,
            subresource,
            body,
            query,
            is_guarded,
            metadata_only,
        };
        Ok(Self { action: RequestAction::Verb(kind, call) })
    }

    /// Any request. A body that is not bytes is sent as JSON.
    #[staticmethod]
    #[pyo3(signature = (method, path, *, body = None, content_type = None, accept = None))]
    fn raw(
        method: String,
        path: String,
        body: Option<&Bound<'_, PyAny>>,
        content_type: Option<String>,
        accept: Option<String>,
    ) -> PyResult<Self> {
        let json = || "application/json".to_owned();
        let body = body.map(|body| bytes_of(body).map_or_else(|| to_json(body), Ok)).transpose()?;
        let body = body.map(|body| (body, content_type.unwrap_or_else(json)));
        Ok(Self { action: RequestAction::Raw(method, path, body, accept.unwrap_or_else(json)) })
    }

    /// The resource of a name.
    #[staticmethod]
    fn resolve(kind: String) -> Self {
        Self { action: RequestAction::Resolve(kind) }
    }

    /// Whether the verb is allowed on the kind.
    #[staticmethod]
    #[pyo3(signature = (verb, kind, name = None, namespace = None, *, subresource = None))]
    fn access(
        verb: String,
        kind: String,
        name: Option<String>,
        namespace: Option<String>,
        subresource: Option<String>,
    ) -> Self {
        let call = Call {
            // All namespaces are possible, as for lists.
            verb: Verb::List,
            namespace,
            body_namespace: None,
            name,
            subresource,
            body: None,
            query: vec![],
            is_guarded: false,
            metadata_only: false,
        };
        Self { action: RequestAction::Access(verb, kind, call) }
    }

    /// The application of all children of an owner.
    #[staticmethod]
    fn apply_children(
        owner: &Bound<'_, PyAny>,
        children: &Bound<'_, PyList>,
        options: ApplyOptions,
    ) -> PyResult<Self> {
        Ok(Self { action: RequestAction::Apply(Box::new(read(owner, children, options)?)) })
    }

    /// All resources.
    #[staticmethod]
    fn resources() -> Self {
        Self { action: RequestAction::Resources }
    }
}

/// The content of an object with bytes; none for all others, such as lists of integers.
fn bytes_of(body: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    PyBuffer::<u8>::get(body).ok()?.to_vec(body.py()).ok()
}

fn to_json(body: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    serde_json::to_vec(&python_to_value(body)?).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The options of requests.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct RequestOptions(pub(crate) Arc<CallOptions>);

#[pymethods]
impl RequestOptions {
    /// `namespace` is the default one: none for that of the credentials, unless it is not known at all. `run` is the call of a
    /// reconciler that makes the requests.
    #[new]
    #[pyo3(signature = (*, namespace = None, namespace_known = true, dry_run = false, manager = None, validation = None,
                        timeout = None, retries = true, headers = vec![], run = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments, with their names at the call")]
    fn new(
        namespace: Option<String>,
        namespace_known: bool,
        dry_run: bool,
        manager: Option<String>,
        validation: Option<String>,
        timeout: Option<f64>,
        retries: bool,
        headers: Vec<(String, String)>,
        run: Option<RunId>,
    ) -> PyResult<Self> {
        let namespace = match namespace {
            Some(namespace) => DefaultNamespace::Named(namespace),
            None if namespace_known => DefaultNamespace::OfCredentials,
            None => DefaultNamespace::Unknown,
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            // The value may be a secret.
            let bad = || PyValueError::new_err(format!("The header {name:?} cannot be sent."));
            let parsed = HeaderName::try_from(&name).map_err(|_| bad())?;
            map.append(parsed, HeaderValue::try_from(value).map_err(|_| bad())?);
        }
        let write = WriteOptions { dry_run, manager, validation };
        Ok(Self(Arc::new(CallOptions { write, namespace, timeout, retries, headers: map, run })))
    }
}
