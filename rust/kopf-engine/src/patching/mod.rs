//! Patching: sends the requests of writes.
//!
//! Which requests, in which order, with which preconditions, and what follows from their responses, is decided in
//! `kopf_core::writes`.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use kopf_core::conditions::ConditionChanges;
use kopf_core::handler::registry::ResourceHandlers;
use kopf_core::handling::cause_id::Handling;
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::persistence::Persistence;
use kopf_core::resource::Resource;
use kopf_core::writes::{Action, Content, Request, WriteContext, WriteOutcome, WriteRequest, Writing};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::client::{Client, RequestBody};
use crate::error::RequestError;
use crate::host::{ApplyPatchFnsTask, CycleId, Host, HostTask, LogRecord};
use crate::metrics::{AcceptedPatches, PatchPart};
use crate::spans::write_span;
use crate::time::duration::seconds;

mod denials;
#[cfg(test)]
mod tests;

pub use denials::Denials;

/// Writes changes to objects of one resource.
pub struct Patching<'a> {
    /// The client of the API server.
    pub client: &'a Client,
    /// For the log and for the transformation functions.
    pub host: &'a Arc<dyn Host>,
    /// The resource of the objects.
    pub resource: &'a Resource,
    /// The name of our finalizer.
    pub finalizer: &'a str,
    /// Whether conflicts are left to the next watch event, and patches have no preconditions, as in Kopf 1.45.
    pub compat: bool,
    /// Whether patches contain the resource version: see [`WriteContext`].
    pub is_versioned: bool,
    /// Whether the deletion of the object was received: then nothing is sent.
    pub is_deleted: &'a (dyn Fn() -> bool + Send + Sync),
    /// The handlers and the storage of the progress to be purged when an object is released, if it is stored in the
    /// object.
    pub release_cleanup: Option<(&'a ResourceHandlers, &'a Persistence)>,
    /// The handling that the changes belong to, for log lines.
    pub handling: Option<Handling>,
    /// Whose parts of a patch are written if it is rejected as a whole: see [`WriteContext`].
    pub partial: Option<&'a Persistence>,
    /// The changes of conditions to be made instead of calls of functions.
    pub conditions: Option<&'a ConditionChanges>,
}

impl Patching<'_> {
    /// Writes the changes of the cycle to the object as seen by it.
    pub async fn apply(&self, object: &Arc<Object>, cycle: CycleId, request: WriteRequest) -> WriteOutcome {
        let span = write_span(self.resource, object, self.handling);
        self.send_all(object, cycle, request).instrument(span).await
    }

    async fn send_all(&self, object: &Arc<Object>, cycle: CycleId, request: WriteRequest) -> WriteOutcome {
        let context = self.context();
        let mut accepted = AcceptedPatches::new(self.client.patch_metrics());
        let mut writing = Writing::new(Arc::clone(object), request, &context);
        self.log(object, &mut writing);
        while let Some(action) = writing.next(&context) {
            match action {
                Action::Send(request) => {
                    let response = self.send(&request).await;
                    if let Some(part) = part_of(&request).filter(|_| response.is_ok()) {
                        accepted.add(part);
                    }
                    writing.on_response(response, &context);
                }
                Action::Transform(latest) => {
                    let result = match self.conditions {
                        Some(conditions) => {
                            let mut after = latest.to_value();
                            conditions.apply(&mut after, self.client.clock().now());
                            Ok(after)
                        }
                        None => self.call_functions(cycle, latest).await,
                    };
                    writing.on_transformed(result, &context);
                }
                Action::Wait(delay) => {
                    self.client.clock().sleep(seconds(delay)).await;
                    writing.on_waited(&context);
                }
            }
            self.log(object, &mut writing);
        }
        self.log(object, &mut writing);
        let outcome = writing.finish();
        accepted.count(outcome.latest.as_ref().is_some_and(|latest| is_same_version(latest, object)));
        outcome
    }

    fn context(&self) -> WriteContext<'_> {
        WriteContext {
            resource: self.resource,
            finalizer: self.finalizer,
            compat: self.compat,
            is_versioned: self.is_versioned,
            release_cleanup: self.release_cleanup,
            partial: self.partial,
            is_deleted: self.is_deleted,
            is_verbose: self.host.enabled(Level::Debug),
        }
    }

    async fn send(&self, request: &Request<'_>) -> Result<Bytes, RequestError> {
        let (method, body) = match request.content {
            Content::List => (Method::GET, RequestBody::None),
            Content::MergePatch(text) => (Method::PATCH, RequestBody::MergePatch(text)),
            Content::JsonPatch(text) => (Method::PATCH, RequestBody::JsonPatch(text)),
        };
        if request.is_once {
            self.client.request_once(&method, &request.url, body).await
        } else {
            self.client.request(&method, &request.url, body).await
        }
    }

    async fn call_functions(&self, cycle: CycleId, object: &Arc<Object>) -> Result<Value, String> {
        let (reply, receiver) = oneshot::channel();
        self.host.submit(HostTask::ApplyPatchFns(ApplyPatchFnsTask {
            cycle,
            object: Arc::clone(object),
            reply,
        }));
        receiver.await.unwrap_or_else(|_| Err("The operator is exiting.".to_owned()))
    }

    fn log(&self, object: &Arc<Object>, writing: &mut Writing) {
        for line in writing.drain_log() {
            self.host.log(LogRecord::local(line.level, object, line.text).of(self.handling));
        }
    }
}

/// The kind of a patch in the metrics.
fn part_of(request: &Request<'_>) -> Option<PatchPart> {
    match request.content {
        Content::List => None,
        Content::MergePatch(_) if request.is_status => Some(PatchPart::Status),
        Content::MergePatch(_) => Some(PatchPart::Body),
        Content::JsonPatch(_) => Some(PatchPart::Json),
    }
}

fn is_same_version(one: &Object, other: &Object) -> bool {
    one.resource_version().is_some() && one.resource_version() == other.resource_version()
}
