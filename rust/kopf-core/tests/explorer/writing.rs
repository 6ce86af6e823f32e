//! The writes of the operator: a driver of the core's `Writing`, which sends its requests to the model's API server.

use crate::cluster::{BASE, Cluster, Rejection, Version};
use crate::injected_defects::Defect;
use crate::operator::{Operator, Reply, Stage, context};
use crate::oracle::Oracle;
use crate::scenarios::Scenario;
use bytes::Bytes;
use kopf_core::object::Object;
use kopf_core::object_worker::DecidedWrite;
use kopf_core::persistence::consistency::{Consistency, Written};
use kopf_core::request_error::{ApiError, RequestError};
use kopf_core::writes::{self, Action, Content, WriteContext, WriteFailure, WriteOutcome};
use serde_json::{Value, json};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Consistency timeout, in seconds.
const WINDOW: f64 = 5.0;

/// A write of the changes of a decision.
#[derive(Clone, Debug)]
pub struct Writing {
    pub write: DecidedWrite,
    machine: writes::Writing,
    /// The responses so far. With the decision, they determine the state of the machine.
    responses: Vec<Response>,
    /// The first result of the functions (`Defect::KeepsTransformed`).
    transformed: Option<Value>,
    /// Whether the server has rejected the content of a request (`Defect::RepeatsRefused`).
    is_blocked: bool,
}

/// The response to a request: the version in it, or the kind of the failure.
#[derive(Clone, Debug)]
enum Response {
    Accepted(Arc<Version>),
    Failed(Option<u16>),
}

/// A request of the machine.
struct Sent {
    content: Value,
    kind: Kind,
    is_status: bool,
    is_once: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Merge,
    Operations,
}

impl Writing {
    fn new(write: DecidedWrite, rules: &WriteContext<'_>) -> Self {
        let machine = writes::Writing::new(Arc::clone(&write.object), write.request.clone(), rules);
        Self { write, machine, responses: Vec::new(), transformed: None, is_blocked: false }
    }

    /// Executes the actions until the next request. Returns whether there is one.
    fn settle(&mut self, scenario: &Scenario, cluster: &mut Cluster, rules: &WriteContext<'_>) -> bool {
        loop {
            match self.machine.next(rules) {
                None => return false,
                Some(Action::Send(_)) => return true,
                Some(Action::Transform(latest)) => {
                    let mut body = latest.to_value();
                    body["status"] = json!({"done": cluster.version_of(latest).number});
                    if scenario.defect == Some(Defect::KeepsTransformed) {
                        body = self.transformed.get_or_insert(body).clone();
                    }
                    self.machine.on_transformed(Ok(body), rules);
                }
                Some(Action::Wait(seconds)) => {
                    cluster.now = cluster.now.plus(seconds);
                    self.machine.on_waited(rules);
                }
            }
        }
    }

    fn request(&mut self, rules: &WriteContext<'_>) -> Option<Sent> {
        let Some(Action::Send(request)) = self.machine.next(rules) else { return None };
        let (kind, content) = match request.content {
            Content::List => (Kind::List, Value::Null),
            Content::MergePatch(text) => (Kind::Merge, serde_json::from_slice(text).unwrap()),
            Content::JsonPatch(text) => (Kind::Operations, serde_json::from_slice(text).unwrap()),
        };
        Some(Sent { content, kind, is_status: request.is_status, is_once: request.is_once })
    }

    /// Adds the state to the hash of the model. Versions matter only by their order.
    pub fn hash_state(&self, newest: u64, hasher: &mut impl Hasher) {
        format!("{:?}", self.write.request).hash(hasher);
        (self.write.may_be_partial, self.is_blocked).hash(hasher);
        for response in &self.responses {
            match response {
                Response::Accepted(version) => (version.digest, newest - version.number).hash(hasher),
                Response::Failed(status) => status.hash(hasher),
            }
        }
    }
}

impl Operator {
    /// Begins to write the changes of a decision.
    pub fn begin_write(
        &mut self,
        scenario: &Scenario,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        write: DecidedWrite,
    ) {
        let is_deleted = self.is_deleted();
        let is_deleted = || is_deleted;
        let rules = scenario.write_context(write.may_be_partial, &is_deleted);
        let mut writing = Writing::new(write, &rules);
        if writing.settle(scenario, cluster, &rules) {
            self.stage = Stage::Writing(Box::new(writing));
        } else {
            self.ended(scenario, cluster, oracle, writing);
        }
    }

    /// Whether the deletion of the object was received.
    fn is_deleted(&self) -> bool {
        self.worker.pending().any(|event| event.kind == kopf_core::cause::EventType::Deleted)
    }

    /// Sends the next request of a write, or finishes it.
    pub fn write(
        &mut self,
        scenario: &Scenario,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        mut writing: Writing,
        reply: Reply,
    ) {
        let is_deleted = self.is_deleted();
        let is_deleted = || is_deleted;
        let rules = scenario.write_context(writing.write.may_be_partial, &is_deleted);
        let Some(sent) = writing.request(&rules) else {
            return self.ended(scenario, cluster, oracle, writing);
        };
        writing.is_blocked |= reply == Reply::Refused && scenario.defect == Some(Defect::RepeatsRefused);
        let reply = match reply {
            _ if self.is_fenced => Reply::Fenced,
            _ if writing.is_blocked => Reply::Refused,
            // Not all requests are sent again by the client.
            Reply::Repeated if sent.is_once => Reply::Lost,
            reply => reply,
        };
        self.is_fenced |= reply == Reply::Fenced;
        self.is_disconnected |= reply == Reply::Unserved;
        let response = self.exchange(scenario, cluster, oracle, (&writing, sent), reply);
        writing.responses.push(match &response {
            Ok(_) => Response::Accepted(Arc::clone(&cluster.latest)),
            Err(error) => Response::Failed(error.status()),
        });
        oracle.requested(writing.responses.len());
        if !writing.is_blocked {
            writing.machine.on_response(response, &rules);
        }
        if writing.settle(scenario, cluster, &rules) {
            self.stage = Stage::Writing(Box::new(writing));
        } else {
            self.ended(scenario, cluster, oracle, writing);
        }
    }

    /// Executes a request, and has the result checked.
    fn exchange(
        &self,
        scenario: &Scenario,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        (writing, mut sent): (&Writing, Sent),
        reply: Reply,
    ) -> Result<Bytes, RequestError> {
        match reply {
            Reply::Rejected => return Err(rejected(Rejection::Status(500))),
            Reply::Refused if sent.kind == Kind::List => return Err(rejected(Rejection::Status(403))),
            Reply::Refused => return Err(rejected(invalid_field(&sent))),
            Reply::Conflict if scenario.defect == Some(Defect::TakesConflictForSuccess) => {
                return Ok(Bytes::from(cluster.latest.body.to_string()));
            }
            Reply::Conflict => return Err(rejected(Rejection::Status(409))),
            Reply::Unserved => return Err(rejected(Rejection::Status(404))),
            Reply::Fenced => return Err(RequestError::Fenced),
            Reply::Accepted | Reply::Lost | Reply::Repeated | Reply::Garbled => {}
        }
        if self.is_standby {
            oracle.report_violation("a replica that does not lead writes to the object");
        }
        let is_edit = sent.kind == Kind::Operations && !sent.is_status;
        spoil_request(scenario, cluster, &mut sent);
        let before = Arc::clone(&cluster.latest);
        let Sent { content, kind, is_status, .. } = sent;
        if kind != Kind::List && cluster.is_replaced && !names_another(&content) {
            oracle.report_violation("another object of the same name is changed");
        }
        let lacks_endpoint = is_status && scenario.lacks_subresource;
        let is_separate = scenario.has_subresource() && !scenario.lacks_subresource;
        let part = is_separate.then_some(is_status);
        let mut apply = || match kind {
            Kind::List => Ok(cluster.list()),
            _ if lacks_endpoint => Err(Rejection::Status(404)),
            Kind::Merge => cluster.merge_patch(&content, part),
            Kind::Operations => cluster.json_patch(&content, part),
        };
        let first = apply();
        let answer = if reply == Reply::Repeated { apply() } else { first.clone() };
        let is_missing = answer == Err(Rejection::Status(404));
        if scenario.defect == Some(Defect::TakesMissingForSuccess) && is_status && is_missing {
            return Ok(Bytes::from(cluster.latest.body.to_string()));
        }
        if is_edit
            && answer.is_err()
            && writing.write.request.deletion_handled
            && cluster.ours
            && !self.in_doubt
        {
            oracle.report_violation("a released deletion is released again");
        }
        if first.is_ok() {
            match kind {
                Kind::List => {}
                _ if is_edit => oracle.edited(scenario, cluster, &before, !self.running.is_empty()),
                _ => oracle.wrote(scenario, cluster, &before),
            }
        }
        match answer {
            Ok(_) if reply == Reply::Lost => Err(RequestError::Timeout),
            Ok(_) if reply == Reply::Garbled => Ok(Bytes::from_static(b"<html>")),
            Ok(body) => Ok(Bytes::from(body.to_string())),
            Err(rejection) => Err(rejected(rejection)),
        }
    }

    /// The write has ended: reports its outcome to the object's worker.
    fn ended(&mut self, scenario: &Scenario, cluster: &Cluster, oracle: &mut Oracle, writing: Writing) {
        let Writing { write, machine, .. } = writing;
        let mut outcome = machine.finish();
        let latest = outcome.latest.as_ref().map(|latest| cluster.version_of(latest));
        let end = End {
            is_gone: outcome.gone,
            is_failed: outcome.failure.is_some(),
            is_lost: outcome.failure.as_ref().is_some_and(WriteFailure::is_outcome_unknown)
                || outcome.is_in_doubt(),
            has_patch: !write.request.patch.is_empty(),
            seen: cluster.version_of(&write.event.object),
            latest,
        };
        if end.is_failed {
            oracle.failed(cluster.now);
        } else {
            oracle.succeeded();
        }
        spoil_outcome(scenario, &end, &mut outcome);
        let before = self.worker.consistency.clone();
        if end.is_failed && scenario.defect == Some(Defect::NeverSlower) {
            self.worker.backoff = None;
        }
        self.worker.on_write_result(write, outcome, context(scenario), cluster.now);
        self.note_doubt(&end);
        self.spoil(scenario, cluster, &end, before);
        self.on_idle();
    }

    /// Whether the watch event that the worker awaits may never come.
    fn note_doubt(&mut self, end: &End) {
        if let Some(latest) = &end.latest {
            self.in_doubt = is_vanishing(latest) || (self.in_doubt && latest.number == end.seen.number);
        }
        self.in_doubt |= end.is_gone || end.is_lost;
    }

    /// Injects the defects in what remains after a write.
    fn spoil(&mut self, scenario: &Scenario, cluster: &Cluster, end: &End, before: Option<Box<Consistency>>) {
        match scenario.defect {
            Some(Defect::ForgetsHandledDeletion) => self.worker.memory.deletion_handled = false,
            Some(Defect::ForgetsHandledDeletionAfterPatch) if end.is_failed && end.has_patch => {
                self.worker.memory.deletion_handled = false;
            }
            Some(Defect::ForgetsFunctions) => self.worker.memory.remaining_fns = false,
            Some(Defect::ForgetsMissing) if end.is_gone => self.worker.consistency = before,
            Some(Defect::ForgetsHalf) if end.is_failed && !end.is_lost => {
                self.worker.consistency = before;
            }
            Some(Defect::ForgetsFailed)
                if end.is_failed && self.worker.pending().all(|event| event.requeued) =>
            {
                self.worker.release();
            }
            Some(Defect::ExpectsEvent) if end.latest.is_some() => self.worker.on_pause(),
            Some(Defect::SkipsNext) => self.skipping |= end.latest.is_some(),
            Some(Defect::ExactVersion | Defect::AwaitsNoop) => {
                let Some(latest) = &end.latest else { return };
                let version = format!("v{}", latest.number);
                let seen = format!("v{}", end.seen.number);
                let seen = (scenario.defect == Some(Defect::ExactVersion)).then_some(&*seen);
                let mut consistency = Consistency::default();
                let written = Written { version: &version, vanishing: is_vanishing(latest) };
                consistency.record_write(written, seen, WINDOW, cluster.now);
                self.worker.consistency = Some(Box::new(consistency));
            }
            _ => {}
        }
    }
}

/// The facts about the end of a write.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct End {
    is_gone: bool,
    is_failed: bool,
    /// Whether a response was lost.
    is_lost: bool,
    has_patch: bool,
    /// The version of the event.
    seen: Arc<Version>,
    /// The version in the last response.
    latest: Option<Arc<Version>>,
}

fn is_vanishing(version: &Version) -> bool {
    version.is_deleting() && version.object.finalizers().next().is_none()
}

/// Injects the defects in a request.
fn spoil_request(scenario: &Scenario, cluster: &Cluster, sent: &mut Sent) {
    let drop_tests = |sent: &mut Sent| {
        if let Some(operations) = sent.content.as_array_mut() {
            operations.retain(|operation| operation["op"] != "test");
        }
    };
    match (scenario.defect, sent.kind) {
        (Some(Defect::KeepsFreshest), Kind::Merge) => freshen(&mut sent.content, cluster),
        (Some(Defect::OverwritesFinalizers), Kind::Operations) if !sent.is_status => {
            if let Some(body) = cluster.body_after(&sent.content) {
                let finalizers = body["metadata"].get("finalizers").cloned().unwrap_or_default();
                sent.content = json!({"metadata": {"finalizers": finalizers}});
                sent.kind = Kind::Merge;
            }
        }
        (Some(Defect::ForgetsVersion), Kind::Operations) if !sent.is_status => drop_tests(sent),
        (Some(Defect::ForgetsIdentity), Kind::Operations) if sent.is_status => drop_tests(sent),
        (Some(Defect::ForgetsIdentity), Kind::Merge) if sent.is_status => {
            sent.content.as_object_mut().unwrap().shift_remove("metadata");
        }
        _ => {}
    }
}

/// Injects the defects in the outcome of a write.
fn spoil_outcome(scenario: &Scenario, end: &End, outcome: &mut WriteOutcome) {
    match scenario.defect {
        Some(Defect::TakesOwnForOthers) => {
            outcome.latest =
                end.latest.as_ref().map(|latest| Arc::new(stale_copy(end.seen.object.raw(), latest)));
        }
        Some(Defect::ForgetsRejectedPart) => outcome.rejections.clear(),
        Some(Defect::TrustsFailure) if end.is_lost => {
            let known = rejected(Rejection::Status(500));
            outcome.rejections.iter_mut().for_each(|rejection| rejection.error = known.clone());
            outcome.failure = outcome.failure.take().map(|_| known.into());
        }
        Some(Defect::ForgetsUnwritten) => outcome.unwritten.clear(),
        Some(Defect::TakesUnservedForDeleted) => outcome.deleted |= outcome.gone,
        Some(Defect::ForgetsFinalProgress) => outcome.final_progress.clear(),
        _ => {}
    }
}

/// Whether a patch is for another object than the one that has its name now.
fn names_another(content: &Value) -> bool {
    match content {
        Value::Array(operations) => operations.iter().any(|operation| operation["op"] == "test"),
        patch => {
            let metadata = patch.get("metadata");
            metadata.is_some_and(|it| it.get("uid").or(it.get("resourceVersion")).is_some())
        }
    }
}

/// The error of a request with this response.
fn rejected(rejection: Rejection) -> RequestError {
    let body = rejection.body().to_string();
    RequestError::Api(Box::new(ApiError::from_response(rejection.status(), None, body.as_bytes())))
}

/// The rejection by a schema, which names a field of the patch: not one of the metadata.
fn invalid_field(sent: &Sent) -> Rejection {
    let names = |field: &str| match &sent.content {
        Value::Object(patch) => patch.contains_key(field),
        _ => sent.is_status && field == "status",
    };
    let field = ["status", "spec"].into_iter().find(|field| names(field));
    field.map_or(Rejection::Status(422), Rejection::Field)
}

/// The old state with the version of the new one.
fn stale_copy(old: &str, latest: &Version) -> Object {
    let mut body: Value = serde_json::from_str(old).unwrap();
    body["metadata"]["resourceVersion"] = json!(latest.number.to_string());
    Object::decode(&body.to_string()).unwrap()
}

/// Replaces the diff-base with the essence of the latest version.
fn freshen(patch: &mut Value, cluster: &Cluster) {
    let annotations = patch.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(base) = annotations.and_then(|all| all.get_mut(BASE))
        && base.is_string()
    {
        *base = json!(format!("{}\n", cluster.latest.essence));
    }
}
