//! The observation of writes: caches show their responses before the calls return.

use std::sync::Arc;

use kopf_core::object::Object;
use kopf_core::resource::Resource;
use kopf_core::user_request::{Call, Verb};

use super::{CallError, CallOptions, Response};
use crate::host::RunId;

/// An observer of the writes of clients. Called by tasks; it does not wait.
pub trait WriteObserver: Send + Sync {
    /// A write is about to be sent. None if its response does not matter.
    fn start(&self, write: WrittenObject<'_>) -> Option<Box<dyn StartedWrite>>;
}

/// A write that is in progress. If it is dropped, its result is unknown.
pub trait StartedWrite: Send {
    /// The write has ended.
    fn finish(self: Box<Self>, outcome: WriteOutcome<'_>);
}

/// The object of a write.
#[derive(Clone, Copy, Debug)]
pub struct WrittenObject<'w> {
    /// The resource.
    pub resource: &'w Arc<Resource>,
    /// The namespace; none for cluster-scoped objects.
    pub namespace: Option<&'w str>,
    /// The name; none if the server makes it.
    pub name: Option<&'w str>,
    /// The field manager; none for the default one.
    pub manager: Option<&'w str>,
    /// The body of the request.
    pub body: Option<&'w [u8]>,
    /// The call of a reconciler that writes it.
    pub run: Option<RunId>,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug)]
pub enum WriteOutcome<'w> {
    /// The write was executed.
    Accepted {
        /// The response: the object, or the status of a deletion. None if it is not JSON.
        object: Option<&'w Arc<Object>>,
        /// Whether the object was to be deleted.
        is_deletion: bool,
    },
    /// The write was rejected, or not sent.
    Rejected,
    /// The server may have executed the write.
    Uncertain,
}

/// A call whose write is observed.
pub(super) struct ObservedCall {
    started: Vec<Box<dyn StartedWrite>>,
    is_deletion: bool,
}

impl ObservedCall {
    /// Reports the start of a call, if it writes one object.
    pub(super) fn start(
        observers: &[Arc<dyn WriteObserver>],
        (resource, namespace): (&Arc<Resource>, Option<&str>),
        call: &Call,
        options: &CallOptions,
    ) -> Self {
        let is_deletion = call.verb == Verb::Delete;
        let writes = matches!(
            call.verb,
            Verb::Create
                | Verb::Replace
                | Verb::MergePatch
                | Verb::JsonPatch
                | Verb::StrategicPatch
                | Verb::Apply
                | Verb::Delete
        );
        // The responses of other subresources are other objects.
        let is_whole = matches!(call.subresource.as_deref(), None | Some("status"));
        let is_dry = options.write.dry_run || call.query.iter().any(|(name, _)| name == "dryRun");
        if observers.is_empty() || !writes || !is_whole || is_dry || call.metadata_only {
            return Self { started: vec![], is_deletion };
        }
        let body = call.body.as_deref();
        let created = body.filter(|_| call.verb == Verb::Create);
        let created = created.and_then(|body| Object::decode(str::from_utf8(body).ok()?).ok());
        let name = call.name.as_deref().or_else(|| created.as_ref()?.name());
        let (manager, run) = (options.write.manager.as_deref(), options.run);
        let write = WrittenObject { resource, namespace, name, manager, body, run };
        Self { started: observers.iter().filter_map(|observer| observer.start(write)).collect(), is_deletion }
    }

    /// Reports the end of the call. The response is decoded once for all observers.
    pub(super) fn finish(self, result: &mut Result<Response, CallError>) {
        if self.started.is_empty() {
            return;
        }
        let outcome = match result {
            // The object was deleted by an attempt whose response was lost.
            Ok(Response { status: 404, .. }) => WriteOutcome::Uncertain,
            Ok(response) => {
                response.object = decoded(&response.body);
                WriteOutcome::Accepted { object: response.object.as_ref(), is_deletion: self.is_deletion }
            }
            Err(CallError::Failed(failure)) if failure.is_uncertain => WriteOutcome::Uncertain,
            Err(_) => WriteOutcome::Rejected,
        };
        for started in self.started {
            started.finish(outcome);
        }
    }
}

/// The object of a response; none if it is not JSON.
pub(crate) fn decoded(body: &[u8]) -> Option<Arc<Object>> {
    Object::decode(str::from_utf8(body).ok()?).ok().map(Arc::new)
}
