//! The writes of the operator: the requests of a decision, and the report of their result to the object's worker.

use crate::cluster::{BASE, Cluster, OURS, Rejection, Version};
use crate::injected_defects::Defect;
use crate::operator::{Operator, Reply, Stage, Writing, context};
use crate::oracle::Oracle;
use crate::scenarios::Scenario;
use kopf_core::json::json_patch::{apply_merge, merge_patch};
use kopf_core::json::merge_patch::{Patch, subtract};
use kopf_core::object::Object;
use kopf_core::object_worker::{DecidedWrite, WriteFailure, WriteOutcome};
use kopf_core::persistence::consistency::{Consistency, Written};
use kopf_core::persistence::finalizer::{self, Edit};
use kopf_core::persistence::{own_annotations, pending_state};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Consistency timeout, in seconds.
const WINDOW: f64 = 5.0;

impl Operator {
    /// Sends the next request of a decision, or finishes the writing.
    pub fn write(
        &mut self,
        scenario: &Scenario,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        mut writing: Writing,
        reply: Reply,
    ) {
        if !writing.merged {
            let requests = writing.requests.get_or_insert_with(|| scenario.requests(&writing.write));
            let patch = requests.pop_front();
            writing.merged = requests.is_empty();
            if let Some(mut patch) = patch {
                if scenario.defect == Some(Defect::KeepsFreshest) {
                    freshen(&mut patch, cluster);
                }
                let is_last = writing.merged && writing.write.finalizer.is_none() && !writing.write.fns;
                let before = Arc::clone(&cluster.latest);
                let sent = self.send(cluster, reply, |cluster| cluster.merge_patch(&patch));
                if matches!(sent, Ok(_) | Err(Failure::Lost)) {
                    oracle.wrote(scenario, cluster, &before);
                }
                match sent {
                    Ok(version) => writing.latest = Some(version),
                    Err(Failure::Refused) if may_be_split(&writing.write, &patch) => {
                        split(scenario, cluster, oracle, &mut writing, &patch);
                    }
                    Err(failure) => {
                        writing.merged = false;
                        return self.ended(scenario, cluster, oracle, writing, Some(failure));
                    }
                }
                if matches!(reply, Reply::Accepted | Reply::Refused) && !is_last {
                    self.stage = Stage::Writing(Box::new(writing));
                    return;
                }
            }
        }
        let mut failure = None;
        if let Some((base, body)) = transform(scenario, cluster, oracle, &writing) {
            let desired_body = body.clone();
            let before = Arc::clone(&cluster.latest);
            let sent = match scenario.defect {
                Some(Defect::OverwritesFinalizers) => {
                    let finalizers = body["metadata"].get("finalizers").cloned().unwrap_or_default();
                    let patch = json!({"metadata": {"finalizers": finalizers}});
                    self.send(cluster, reply, |cluster| cluster.merge_patch(&patch))
                }
                _ => self.send(cluster, reply, |cluster| cluster.replace(base.number, body)),
            };
            let is_rejected = matches!(sent, Err(Failure::Rejected(_)));
            if is_rejected && writing.write.deletion_handled && cluster.ours && !self.in_doubt {
                oracle.report_violation("a released deletion is released again");
            }
            if matches!(sent, Ok(_) | Err(Failure::Lost)) {
                oracle.edited(scenario, cluster, &before, !self.running.is_empty());
            }
            match sent {
                Ok(version) => {
                    writing.latest = Some(version);
                    writing.transformed = merge_patch(&base.body, &desired_body);
                }
                Err(Failure::Rejected(Rejection::Conflict)) if !writing.recomposed => {
                    // The JSON patch is computed again from the latest version.
                    let latest = Some(Arc::clone(&cluster.latest));
                    self.stage = Stage::Writing(Box::new(Writing { latest, recomposed: true, ..writing }));
                    return;
                }
                Err(error) => failure = Some(error),
            }
        }
        if failure.is_none() && !writing.write.rejected_patch.is_empty() {
            self.write_pending(cluster, &mut writing, reply);
        }
        self.ended(scenario, cluster, oracle, writing, failure);
    }

    /// Sends the parts that were rejected before.
    fn write_pending(&self, cluster: &mut Cluster, writing: &mut Writing, reply: Reply) {
        let rejected_patch = Value::Object(writing.write.rejected_patch.clone());
        match self.send(cluster, reply, |cluster| cluster.merge_patch(&rejected_patch)) {
            Ok(version) => {
                writing.latest = Some(version);
                writing.transformed = merged(&writing.transformed, &writing.write.rejected_patch);
            }
            Err(_) => writing.rejected.merge(writing.write.rejected_patch.clone()),
        }
    }

    #[expect(clippy::unused_self, reason = "a request belongs to the operator")]
    fn send(
        &self,
        cluster: &mut Cluster,
        reply: Reply,
        request: impl FnOnce(&mut Cluster) -> Result<(), Rejection>,
    ) -> Result<Arc<Version>, Failure> {
        match reply {
            Reply::Rejected => return Err(Failure::Error),
            Reply::Refused => return Err(Failure::Refused),
            Reply::Accepted | Reply::Lost => {}
        }
        request(cluster).map_err(Failure::Rejected)?;
        if reply == Reply::Lost { Err(Failure::Lost) } else { Ok(Arc::clone(&cluster.latest)) }
    }

    /// The writing has ended: reports its result to the object's worker.
    fn ended(
        &mut self,
        scenario: &Scenario,
        cluster: &Cluster,
        oracle: &mut Oracle,
        mut writing: Writing,
        failure: Option<Failure>,
    ) {
        let is_gone = failure == Some(Failure::Rejected(Rejection::Gone));
        let has_conflict = failure == Some(Failure::Rejected(Rejection::Conflict));
        let is_failed = failure.is_some() && !is_gone && !has_conflict;
        if is_failed {
            oracle.failed(cluster.now);
        } else {
            oracle.succeeded();
        }
        let patch = std::mem::take(&mut writing.write.patch);
        let is_merged = writing.merged || patch.is_empty();
        let written = subtract(patch.0.clone(), &writing.rejected.0);
        let mut merged = if is_merged && !is_gone { Patch(written) } else { Patch::default() };
        merged.merge(std::mem::take(&mut writing.transformed));
        let stale =
            writing.latest.as_ref().map(|latest| stale_copy(writing.write.event.object.raw(), latest));
        let latest = writing.latest.as_ref().map(|latest| match (&stale, scenario.defect) {
            (Some(stale), Some(Defect::TakesOwnForOthers)) => stale,
            _ => &*latest.object,
        });
        let outcome = WriteOutcome {
            latest,
            gone: is_gone,
            carry: (is_failed || has_conflict) && writing.write.fns,
            merged: merged.0,
            unwritten: if is_failed && !is_merged { patch.0.clone() } else { Map::new() },
            rejected: if scenario.defect == Some(Defect::ForgetsRejectedPart) {
                Patch::default()
            } else {
                writing.rejected.clone()
            },
            failure: is_failed.then(|| WriteFailure {
                is_rejection: failure == Some(Failure::Refused),
                is_outcome_unknown: failure == Some(Failure::Lost)
                    && scenario.defect != Some(Defect::TrustsFailure),
                ..WriteFailure::default()
            }),
            ..WriteOutcome::default()
        };
        let before = self.worker.consistency.clone();
        if is_failed && scenario.defect == Some(Defect::NeverSlower) {
            self.worker.backoff = None;
        }
        let write = writing.write.clone();
        self.worker.on_write_result(write, outcome, context(scenario), cluster.now);
        self.note_doubt(cluster, &writing, failure);
        self.spoil(scenario, cluster, &writing, (before, failure, is_failed, !patch.is_empty()));
        self.on_idle();
    }

    /// Whether the watch event that the worker awaits may never come.
    fn note_doubt(&mut self, cluster: &Cluster, writing: &Writing, failure: Option<Failure>) {
        if let Some(latest) = &writing.latest {
            let vanishing = latest.is_deleting() && latest.object.finalizers().next().is_none();
            let is_same = latest.number == cluster.version_of(&writing.write.event.object).number;
            self.in_doubt = vanishing || (self.in_doubt && is_same);
        }
        let is_gone = failure == Some(Failure::Rejected(Rejection::Gone));
        self.in_doubt |= is_gone || failure == Some(Failure::Lost);
    }

    /// Injects the defects in what remains after a write.
    fn spoil(
        &mut self,
        scenario: &Scenario,
        cluster: &Cluster,
        writing: &Writing,
        (before, failure, is_failed, has_patch): (Option<Box<Consistency>>, Option<Failure>, bool, bool),
    ) {
        let is_gone = failure == Some(Failure::Rejected(Rejection::Gone));
        match scenario.defect {
            Some(Defect::ForgetsHandledDeletion) => self.worker.memory.deletion_handled = false,
            Some(Defect::ForgetsHandledDeletionAfterPatch) if is_failed && has_patch => {
                self.worker.memory.deletion_handled = false;
            }
            Some(Defect::ForgetsFunctions) => self.worker.memory.remaining_fns = false,
            Some(Defect::ForgetsMissing) if is_gone => self.worker.consistency = before,
            Some(Defect::ForgetsHalf) if is_failed && failure != Some(Failure::Lost) => {
                self.worker.consistency = before;
            }
            Some(Defect::ForgetsFailed) if is_failed && self.worker.pending().all(|event| event.requeued) => {
                self.worker.release();
            }
            Some(Defect::ExpectsEvent) if writing.latest.is_some() => self.worker.on_pause(),
            Some(Defect::SkipsNext) => self.skipping |= writing.latest.is_some(),
            Some(Defect::ExactVersion | Defect::AwaitsNoop) => {
                let Some(latest) = &writing.latest else { return };
                let vanishing = latest.is_deleting() && latest.object.finalizers().next().is_none();
                let version = format!("v{}", latest.number);
                let seen = writing.write.event.object.resource_version().map(|number| format!("v{number}"));
                let seen = seen.filter(|_| scenario.defect == Some(Defect::ExactVersion));
                let mut consistency = Consistency::default();
                let written = Written { version: &version, vanishing };
                consistency.record_write(written, seen.as_deref(), WINDOW, cluster.now);
                self.worker.consistency = Some(Box::new(consistency));
            }
            _ => {}
        }
    }
}

fn is_status(patch: &Value) -> bool {
    patch.get("status").is_some()
}

/// Whether a part of the rejected patch is kept for later, and the rest is written.
fn may_be_split(write: &DecidedWrite, patch: &Value) -> bool {
    is_status(patch) || write.may_be_partial
}

/// Writes the acceptable part of a rejected patch, which are our annotations, and keeps the rest for later.
fn split(
    scenario: &Scenario,
    cluster: &mut Cluster,
    oracle: &mut Oracle,
    writing: &mut Writing,
    patch: &Value,
) {
    let Value::Object(patch) = patch else { return };
    let persistence = &scenario.config.settings.persistence;
    let kept = own_annotations::own_annotations(&writing.write.object, patch, persistence);
    let before = Arc::clone(&cluster.latest);
    if !kept.is_empty() && cluster.merge_patch(&Value::Object(kept.clone())).is_ok() {
        oracle.wrote(scenario, cluster, &before);
        writing.latest = Some(Arc::clone(&cluster.latest));
    }
    writing.rejected.merge(subtract(subtract(patch.clone(), &kept), &writing.write.final_progress.0));
}

fn merged(one: &Map<String, Value>, other: &Map<String, Value>) -> Map<String, Value> {
    let mut both = Patch(one.clone());
    both.merge(other.clone());
    both.0
}

/// The latest version known to the writing, and its body with the JSON patch; none if that changes nothing.
fn transform(
    scenario: &Scenario,
    cluster: &Cluster,
    oracle: &mut Oracle,
    writing: &Writing,
) -> Option<(Arc<Version>, Value)> {
    let write = &writing.write;
    if write.finalizer.is_none() && !write.fns {
        return None;
    }
    let base = writing.latest.clone().unwrap_or_else(|| cluster.version_of(&write.event.object));
    let mut body = base.body.clone();
    if write.fns {
        body["status"] = json!({"done": base.number});
    }
    let persistence = &scenario.config.settings.persistence;
    let holds = |edit: &Edit| {
        scenario.custom
            || scenario.defect == Some(Defect::TrustsFreshest)
            || finalizer::holds(
                *edit,
                &write.object,
                &base.object,
                persistence,
                &scenario.resource_handlers.extra_fields,
            )
    };
    if let Some(edit) = write.finalizer.filter(|edit| write.deletion_handled || holds(edit)) {
        finalizer::edit(&mut body, OURS, edit);
        if edit == Edit::Allow && base.is_deleting() && !scenario.custom {
            let looked_at = writing.latest.as_ref().map_or(&write.object, |latest| &latest.object);
            let stale = pending_state::stale_progress(looked_at, persistence, &scenario.resource_handlers);
            if stale != pending_state::stale_progress(&base.object, persistence, &scenario.resource_handlers)
            {
                oracle.report_violation("progress is to be removed that is not on the object");
            }
            apply_merge(&mut body, &stale.0);
        }
    }
    (body != base.body).then_some((base, body))
}

/// The old state with the version of the new one.
fn stale_copy(old: &str, latest: &Version) -> Object {
    let mut body: Value = serde_json::from_str(old).unwrap();
    body["metadata"]["resourceVersion"] = json!(latest.number.to_string());
    Object::decode(&body.to_string()).unwrap()
}

/// The failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Rejected(Rejection),
    Error,
    Lost,
    /// The content is rejected.
    Refused,
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
