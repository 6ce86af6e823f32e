//! The single requests, with the options of the call.

use std::fmt;
use std::sync::Arc;

use kopf_core::apply::ChildKey;
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use kopf_core::user_request::{Call, DefaultNamespace, KindError, Verb};
use serde_json::json;

use crate::host::{LogRecord, Logger};
use crate::time::clock::Clock;
use crate::user_client::{Api, CallError, CallOptions, Response, decoded};

const LOGGER: Logger = Logger::Objects;

/// The number of objects in a page of a list.
const CHUNK: &str = "500";

/// Sends requests.
#[derive(Clone)]
pub(super) struct Requests<'a> {
    api: &'a Api,
    call_options: CallOptions,
}

/// The target of a request: the name of the kind for discovery, the namespace, the name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'t> {
    pub(super) kind: &'t str,
    pub(super) namespace: Option<&'t str>,
    pub(super) name: &'t str,
}

/// The response to an accepted apply.
pub(super) struct Answer {
    pub(super) status: u16,
    /// The object, for the rules.
    pub(super) value: Value,
    /// The same object, for the result.
    pub(super) object: Arc<Object>,
}

impl<'t> Target<'t> {
    pub(super) fn of(kind: &'t str, key: &'t ChildKey) -> Self {
        Self { kind, namespace: key.namespace.as_deref(), name: &key.name }
    }
}

/// Whether a failure has this status.
pub(super) fn has_code(error: &CallError, code: u16) -> bool {
    matches!(error, CallError::Failed(failure) if failure.code == code)
}

impl<'a> Requests<'a> {
    pub(super) fn new(api: &'a Api, call_options: &CallOptions) -> Self {
        let call_options = CallOptions { namespace: DefaultNamespace::OfCredentials, ..call_options.clone() };
        Self { api, call_options }
    }

    pub(super) fn clock(&self) -> &Clock {
        self.api.clock()
    }

    pub(super) fn log(&self, level: Level, text: String) {
        self.api.log(LogRecord::general(level, LOGGER, text));
    }

    pub(super) async fn resolve(&self, kind: &str) -> Result<Arc<Resource>, CallError> {
        self.api.resolve(kind, &self.call_options).await
    }

    /// The resource; none if the kind does not exist.
    pub(super) async fn resolve_served(&self, kind: &str) -> Result<Option<Arc<Resource>>, CallError> {
        match self.resolve(kind).await {
            Err(CallError::Kind(KindError::Unknown(_))) => Ok(None),
            resolved => resolved.map(Some),
        }
    }

    /// Reads an object; none if there is none.
    pub(super) async fn find(
        &self,
        target: Target<'_>,
        metadata_only: bool,
    ) -> Result<Option<Value>, CallError> {
        let call = Call { metadata_only, ..call(Verb::Get, target, None) };
        match self.send(target, &call).await {
            Err(error) if has_code(&error, 404) => Ok(None),
            found => found.map(|(_, object)| Some(object)),
        }
    }

    /// Applies an object.
    pub(super) async fn apply(
        &self,
        target: Target<'_>,
        document: &Value,
        is_forced: bool,
    ) -> Result<Answer, CallError> {
        let mut call = call(Verb::Apply, target, Some(document));
        if is_forced {
            call.query.push(("force".to_owned(), "true".to_owned()));
        }
        let response = self.api.call(target.kind, &call, &self.call_options).await?;
        let value = parsed(target, &response)?;
        let object = response.object.clone().or_else(|| decoded(&response.body));
        let object = object.ok_or_else(|| not_json(target, &"it is no object"))?;
        Ok(Answer { status: response.status, value, object })
    }

    /// Merges a patch into an object. The patch names the uid or the resource version.
    pub(super) async fn merge(&self, target: Target<'_>, patch: &Value) -> Result<Value, CallError> {
        let call = Call { is_guarded: true, ..call(Verb::MergePatch, target, Some(patch)) };
        self.send(target, &call).await.map(|(_, object)| object)
    }

    /// Executes a JSON patch that tests the resource version.
    pub(super) async fn patch(&self, target: Target<'_>, operations: &Value) -> Result<Value, CallError> {
        let call = Call { is_guarded: true, ..call(Verb::JsonPatch, target, Some(operations)) };
        self.send(target, &call).await.map(|(_, object)| object)
    }

    /// Deletes the object of this uid. Returns whether it still exists, because of finalizers or a grace period.
    pub(super) async fn delete(
        &self,
        target: Target<'_>,
        uid: &str,
        propagation: &str,
    ) -> Result<bool, CallError> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "propagationPolicy": propagation, "preconditions": {"uid": uid},
        });
        let call = Call { is_guarded: true, ..call(Verb::Delete, target, Some(&options)) };
        match self.send(target, &call).await {
            // It is gone, or another object has its name.
            Err(error) if has_code(&error, 404) || has_code(&error, 409) => Ok(false),
            deleted => deleted.map(|(_, object)| object.pointer("/metadata/deletionTimestamp").is_some()),
        }
    }

    /// The metadata of all objects with the label, in the namespace or in all of them.
    pub(super) async fn list(
        &self,
        kind: &str,
        namespace: Option<&str>,
        label: (&str, &str),
    ) -> Result<Vec<Value>, CallError> {
        let mut found = vec![];
        let mut token = None;
        loop {
            let target = Target { kind, namespace: Some(namespace.unwrap_or("*")), name: "" };
            let mut call = Call { metadata_only: true, name: None, ..call(Verb::List, target, None) };
            call.query.push(("labelSelector".to_owned(), format!("{}={}", label.0, label.1)));
            call.query.push(("limit".to_owned(), CHUNK.to_owned()));
            call.query.extend(token.map(|token| ("continue".to_owned(), token)));
            let (_, mut page) = self.send(target, &call).await?;
            if let Some(items) = page.get_mut("items").and_then(Value::as_array_mut) {
                found.append(items);
            }
            let next = page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default();
            if next.is_empty() {
                return Ok(found);
            }
            token = Some(next.to_owned());
        }
    }

    /// Whether the namespace exists. It is listed, as operators that watch namespaces may do that.
    pub(super) async fn has_namespace(&self, name: &str) -> Result<bool, CallError> {
        let target = Target { kind: "v1/namespaces", namespace: None, name: "" };
        let mut call = Call { metadata_only: true, name: None, ..call(Verb::List, target, None) };
        call.query.push(("fieldSelector".to_owned(), format!("metadata.name={name}")));
        let (_, page) = self.send(target, &call).await?;
        Ok(page.get("items").and_then(Value::as_array).is_none_or(|items| !items.is_empty()))
    }

    async fn send(&self, target: Target<'_>, call: &Call) -> Result<(u16, Value), CallError> {
        let response = self.api.call(target.kind, call, &self.call_options).await?;
        Ok((response.status, parsed(target, &response)?))
    }
}

fn parsed(target: Target<'_>, response: &Response) -> Result<Value, CallError> {
    if response.body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&response.body).map_err(|error| not_json(target, &error))
}

fn not_json(target: Target<'_>, error: &dyn fmt::Display) -> CallError {
    CallError::Misuse(format!("The response to {} {} is not JSON: {error}", target.kind, target.name))
}

fn call(verb: Verb, target: Target<'_>, body: Option<&Value>) -> Call {
    Call {
        verb,
        namespace: target.namespace.map(str::to_owned),
        body_namespace: None,
        name: Some(target.name.to_owned()),
        subresource: None,
        body: body.map(|body| body.to_string().into_bytes()),
        query: vec![],
        is_guarded: false,
        metadata_only: false,
    }
}
