//! Writes: the requests that write the changes of one cycle to the API server, as few as possible, without I/O.
//!
//! 1. The merge patch (`merging`): one request; two if the status is a subresource (`status`), or three if the order of the
//!    progress and the diff-base requires it (`ordered`).
//! 2. The finalizers and the transformation functions (`transform`): a JSON patch, which is computed from the latest state and fails
//!    on a conflict. It is sent in two requests if it contains operations on a status subresource.
//! 3. The parts that the server has rejected before (`rejected`): two requests at most.
//! 4. If the server has rejected the patch of the first step several times, the parts that it accepts (`partial`).
//!
//! No patch changes another object of the same name: see `identity`. In most cycles, only the first step is needed. Retries, and
//! reading the latest state after a conflict, come on top.
//!
//! The driver (the engine, or a test) executes the actions and reports their results. It decides nothing:
//!
//! 1. [`Writing::new`] begins.
//! 2. [`Writing::next`] is the next action; [`Writing::on_response`] and its siblings take the results.
//! 3. When there is no action any more, [`Writing::finish`] is the outcome.

mod body;
mod documents;
mod identity;
mod merged;
mod merging;
mod ordered;
mod outcome;
mod partial;
mod rejected;
mod rejection;
mod request;
mod sending;
mod status;
#[cfg(test)]
mod tests;
mod transform;

use crate::handler::registry::ResourceHandlers;
use crate::json::value::Value;
use crate::log_level::Level;
use crate::object::Object;
use crate::persistence::Persistence;
use crate::request_error::RequestError;
use crate::resource::Resource;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;

pub use outcome::{WriteFailure, WriteOutcome};
pub use rejection::Rejection;
pub use request::{Action, Content, Request, WriteRequest};

use identity::{gone, is_deletion};
use merged::Ended;
use merging::Merging;
use partial::PartialMerge;
use rejected::RejectedMerge;
use sending::Pending;
use transform::Transform;

/// How many times a change that depends on the state of the object is sent again for the latest one after a conflict. Then it is left
/// to the next cycle.
pub const CONFLICTS: usize = 3;

/// The characters to percent-encode in a query: all except those that are common in names.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');

/// The rules of the writes to objects of one resource.
#[derive(Clone, Copy)]
pub struct WriteContext<'a> {
    /// The resource of the objects.
    pub resource: &'a Resource,
    /// The name of our finalizer.
    pub finalizer: &'a str,
    /// Whether conflicts are left to the next watch event, and patches have no preconditions, as in Kopf 1.45.
    pub compat: bool,
    /// Whether patches contain the resource version, so that the server rejects those that were decided for an older state. Only
    /// with leader election.
    pub is_versioned: bool,
    /// The handlers and the storage of the progress to be purged when an object is released, if it is stored in the
    /// object.
    pub release_cleanup: Option<(&'a ResourceHandlers, &'a Persistence)>,
    /// Whose parts of a patch are written if it is rejected as a whole; none if no parts are to be written.
    pub partial: Option<&'a Persistence>,
    /// Whether the deletion of the object was received: then nothing is sent.
    pub is_deleted: &'a (dyn Fn() -> bool + Send + Sync),
    /// Whether debug lines are logged.
    pub is_verbose: bool,
}

impl WriteContext<'_> {
    fn url(&self, object: &Object, is_status: bool) -> String {
        self.resource.url(object.namespace(), object.name(), is_status.then_some("status"))
    }

    fn is_known_deleted(&self) -> bool {
        !self.compat && (self.is_deleted)()
    }

    /// The path of a list with this object only.
    fn list_url(&self, object: &Object) -> String {
        let name = object.name().unwrap_or_default();
        let name = name.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let selector = format!("metadata.name={name}");
        let url = self.resource.url(object.namespace(), None, None);
        format!("{url}?fieldSelector={}", utf8_percent_encode(&selector, QUERY))
    }
}

impl std::fmt::Debug for WriteContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteContext").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// A log line about the written object.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteLog {
    /// The level of the line.
    pub level: Level,
    /// The text of the line.
    pub text: String,
}

/// The write of the changes of one cycle.
#[derive(Clone, Debug)]
pub struct Writing {
    /// The object as seen by the cycle.
    object: Arc<Object>,
    request: WriteRequest,
    outcome: WriteOutcome,
    stage: Stage,
    log: Vec<WriteLog>,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it, and it is not moved")]
enum Stage {
    Merging(Merging),
    Transform(Transform),
    Rejected(RejectedMerge),
    Partial(PartialMerge),
    Over,
}

/// The result of an action.
enum Input {
    Response(Result<Bytes, RequestError>),
    Transformed(Result<Value, String>),
    Waited,
}

/// The facts of a part of a write, and its results.
struct Scope<'s> {
    object: &'s Arc<Object>,
    context: &'s WriteContext<'s>,
    outcome: &'s mut WriteOutcome,
    log: &'s mut Vec<WriteLog>,
}

impl Writing {
    /// Begins to write changes to the object as seen by the cycle.
    pub fn new(object: Arc<Object>, request: WriteRequest, context: &WriteContext<'_>) -> Self {
        // If nothing is applied, the functions are carried over to the next cycle.
        let carry = request.functions && !context.compat;
        let outcome = WriteOutcome { carry, ..WriteOutcome::default() };
        let mut writing = Self { object, request, outcome, stage: Stage::Over, log: Vec::new() };
        if context.is_known_deleted() {
            writing.end(Err(gone().into()), context);
        } else {
            writing.begin(context);
        }
        writing
    }

    /// The next action; none if the write is over.
    pub fn next(&mut self, context: &WriteContext<'_>) -> Option<Action<'_>> {
        while matches!(self.pending(), Some(Pending::Patch(_))) && context.is_known_deleted() {
            self.on(Input::Response(Err(gone())), context);
        }
        let object = &self.object;
        let pending = pending(&self.stage)?;
        Some(pending.action(object, context))
    }

    /// Takes the body of the response, or the failure of the request.
    pub fn on_response(&mut self, response: Result<Bytes, RequestError>, context: &WriteContext<'_>) {
        self.on(Input::Response(response), context);
    }

    /// Takes the object as changed by the transformation functions, or the error that a function raised.
    pub fn on_transformed(&mut self, result: Result<Value, String>, context: &WriteContext<'_>) {
        self.on(Input::Transformed(result), context);
    }

    /// The time to wait is over.
    pub fn on_waited(&mut self, context: &WriteContext<'_>) {
        self.on(Input::Waited, context);
    }

    /// The log lines since the last call.
    pub fn drain_log(&mut self) -> std::vec::Drain<'_, WriteLog> {
        self.log.drain(..)
    }

    /// The outcome, when there is no action any more.
    pub fn finish(self) -> WriteOutcome {
        WriteOutcome { final_progress: self.request.final_progress.0, ..self.outcome }
    }

    fn pending(&self) -> Option<Pending<'_>> {
        pending(&self.stage)
    }

    fn on(&mut self, input: Input, context: &WriteContext<'_>) {
        let Self { object, request, outcome, stage, log } = self;
        let mut scope = Scope { object, context, outcome, log };
        let ended = match stage {
            Stage::Merging(merging) => merging.on(input, &request.final_progress.0, &mut scope),
            Stage::Transform(transform) => transform.on(input, &mut scope),
            Stage::Rejected(merge) => (!merge.on(input, &mut scope)).then_some(Ok(())),
            Stage::Partial(partial) => partial.on(input, &mut scope),
            Stage::Over => None,
        };
        if let Some(ended) = ended {
            self.after(ended, context);
        }
    }

    fn begin(&mut self, context: &WriteContext<'_>) {
        let Self { object, request, outcome, stage, log } = self;
        let mut scope = Scope { object, context, outcome, log };
        let patch = std::mem::take(&mut request.patch.0);
        if patch.is_empty() {
            return self.begin_transform(context);
        }
        // The status is not retried if it is known to be rejected, or if the object is being deleted.
        let may_retry = request.rejected_patch.is_empty() && scope.object.deletion_timestamp().is_none();
        let (merging, ended) = Merging::begin(patch, &request.final_progress.0, may_retry, &mut scope);
        *stage = Stage::Merging(merging);
        if let Some(ended) = ended {
            self.after(ended, context);
        }
    }

    /// A step has ended: the next one follows, or the write ends.
    fn after(&mut self, ended: Ended, context: &WriteContext<'_>) {
        match &self.stage {
            Stage::Merging(_) if ended.is_ok() => self.begin_transform(context),
            Stage::Transform(_) if ended.is_ok() => self.begin_rejected(context),
            Stage::Rejected(_) if self.outcome.gone => self.end(Err(gone().into()), context),
            Stage::Partial(_) => self.end_partial(ended, context),
            _ => self.end(ended, context),
        }
    }

    fn begin_transform(&mut self, context: &WriteContext<'_>) {
        let Self { object, request, outcome, stage, log } = self;
        if !request.functions && request.finalizer.is_none() {
            return self.begin_rejected(context);
        }
        let mut scope = Scope { object, context, outcome, log };
        let (transform, ended) = Transform::begin(request, &mut scope);
        *stage = Stage::Transform(transform);
        if let Some(ended) = ended {
            self.after(ended, context);
        }
    }

    fn begin_rejected(&mut self, context: &WriteContext<'_>) {
        let Self { object, request, outcome, stage, log } = self;
        let patch = std::mem::take(&mut request.rejected_patch);
        let mut scope = Scope { object, context, outcome, log };
        let merge = if patch.is_empty() { None } else { RejectedMerge::begin(patch, &mut scope) };
        match merge {
            Some(merge) => *stage = Stage::Rejected(merge),
            None => self.end(Ok(()), context),
        }
    }

    /// The end, unless a rejected patch is written in parts.
    fn end(&mut self, ended: Ended, context: &WriteContext<'_>) {
        match (ended, context.partial) {
            (Err(WriteFailure::Request(cause)), Some(persistence))
                if outcome::is_rejection(&cause) && !self.outcome.unwritten.is_empty() =>
            {
                let Self { object, outcome, stage, log, .. } = self;
                let mut scope = Scope { object, context, outcome, log };
                let (partial, ended) = PartialMerge::begin(cause, persistence, &mut scope);
                *stage = Stage::Partial(partial);
                if let Some(ended) = ended {
                    self.end_partial(ended, context);
                }
            }
            (ended, _) => self.end_partial(ended, context),
        }
    }

    /// The end. A write to an object that does not exist is no failure.
    fn end_partial(&mut self, ended: Ended, context: &WriteContext<'_>) {
        self.stage = Stage::Over;
        match ended {
            Err(WriteFailure::Request(error)) if error.status() == Some(404) => {
                let Self { object, outcome, log, .. } = self;
                let mut scope = Scope { object, context, outcome, log };
                scope.debug(|_| "Patching was skipped: the object does not exist anymore.".to_owned());
                self.outcome.gone = true;
                self.outcome.deleted = !context.compat && is_deletion(&error, object);
                if self.outcome.deleted {
                    self.outcome.rejections.clear();
                }
            }
            ended => self.outcome.failure = ended.err(),
        }
    }
}

fn pending(stage: &Stage) -> Option<Pending<'_>> {
    match stage {
        Stage::Merging(merging) => merging.pending(),
        Stage::Transform(transform) => Some(transform.pending()),
        Stage::Rejected(merge) => merge.pending(),
        Stage::Partial(partial) => partial.pending(),
        Stage::Over => None,
    }
}

impl Scope<'_> {
    /// The field that is written by requests to a subresource, if it is one.
    fn separate_status(&self) -> Option<&'static str> {
        self.context.resource.has_subresource("status").then_some("status")
    }

    /// The object after the last accepted request, or as seen by the cycle.
    fn latest(&self) -> Arc<Object> {
        Arc::clone(self.outcome.latest.as_ref().unwrap_or(self.object))
    }

    fn log(&mut self, level: Level, text: String) {
        self.log.push(WriteLog { level, text });
    }

    fn debug(&mut self, text: impl FnOnce(&Object) -> String) {
        if self.context.is_verbose {
            let text = text(self.object);
            self.log(Level::Debug, text);
        }
    }
}
