//! The writes of the operator: the requests of a decision, and the state kept after success or failure.

use crate::cluster::{BASE, Cluster, OURS, Rejection, Version};
use crate::flaws::Flaw;
use crate::laws::Oracle;
use crate::operator::{Event, Operator, Reply, Stage, Writing, versioned};
use crate::worlds::World;
use kopf_core::cycle::Decision;
use kopf_core::json::json_patch::{apply_merge, merge_patch};
use kopf_core::json::merge_patch::Patch;
use kopf_core::persistence::consistency::Written;
use kopf_core::persistence::finalizer::{self, Edit};
use kopf_core::persistence::memory::Accepted;
use kopf_core::persistence::memory::HandlingStatus;
use kopf_core::persistence::pending_state::{self, ObservedEssences};
use kopf_core::time::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// Consistency timeout, in seconds.
const WINDOW: f64 = 5.0;
/// Error delays, in seconds.
const PAUSES: [f64; 3] = [1.0, 2.0, 3.0];

impl Operator {
    /// Sends the next request of a decision, or finishes the writing.
    pub fn write(
        &mut self,
        world: &World,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        mut writing: Writing,
        reply: Reply,
    ) {
        let decision = &writing.decision;
        if !writing.merged {
            let requests = writing.requests.get_or_insert_with(|| world.requests(&writing.object, decision));
            let patch = requests.pop_front();
            writing.merged = requests.is_empty();
            if let Some(mut patch) = patch {
                if world.flaw == Some(Flaw::KeepsFreshest) {
                    freshen(&mut patch, cluster);
                }
                let is_last = writing.merged && decision.finalizer.is_none() && !decision.fns;
                let sent = self.send(cluster, reply, |cluster| cluster.merge_patch(&patch));
                if matches!(sent, Ok(_) | Err(Failure::Lost)) {
                    oracle.wrote(world, cluster);
                }
                match sent {
                    Ok(version) => writing.latest = Some(version),
                    Err(failure) => {
                        writing.merged = false;
                        return self.failed(world, cluster, oracle, &writing, failure);
                    }
                }
                if reply == Reply::Accepted && !is_last {
                    self.stage = Stage::Writing(Box::new(writing));
                    return;
                }
            }
        }
        let decision = &writing.decision;
        let mut has_conflict = false;
        if decision.finalizer.is_some() || decision.fns {
            let base = Arc::clone(writing.latest.as_ref().unwrap_or(&writing.event.version));
            let mut body = base.body.clone();
            if decision.fns {
                body["status"] = json!({"done": base.number});
            }
            let persistence = &world.rules.settings.persistence;
            let holds = |edit: &Edit| {
                world.flaw == Some(Flaw::TrustsFreshest)
                    || finalizer::holds(
                        *edit,
                        &writing.object,
                        &base.object,
                        persistence,
                        &world.plan.extra_fields,
                    )
            };
            if let Some(edit) = decision.finalizer.filter(|edit| decision.deletion_handled || holds(edit)) {
                finalizer::edit(&mut body, OURS, edit);
                if edit == Edit::Allow && base.is_deleting() {
                    let looked_at = writing.latest.as_ref().map_or(&writing.object, |latest| &latest.object);
                    let stale = pending_state::stale_progress(looked_at, persistence, &world.plan);
                    if stale != pending_state::stale_progress(&base.object, persistence, &world.plan) {
                        oracle.report_violation("progress is to be removed that is not on the object");
                    }
                    apply_merge(&mut body, &stale.0);
                }
            }
            if body != base.body {
                let desired_body = body.clone();
                let before = Arc::clone(&cluster.latest);
                let sent = match world.flaw {
                    Some(Flaw::OverwritesFinalizers) => {
                        let finalizers = body["metadata"].get("finalizers").cloned().unwrap_or_default();
                        let patch = json!({"metadata": {"finalizers": finalizers}});
                        self.send(cluster, reply, |cluster| cluster.merge_patch(&patch))
                    }
                    _ => self.send(cluster, reply, |cluster| cluster.replace(base.number, body)),
                };
                let changes = merge_patch(&base.body, &desired_body);
                let is_rejected = matches!(sent, Err(Failure::Rejected(_)));
                if is_rejected && writing.decision.deletion_handled && cluster.ours && !self.in_doubt {
                    oracle.report_violation("a released deletion is released again");
                }
                if matches!(sent, Ok(_) | Err(Failure::Lost)) {
                    oracle.edited(world, cluster, &before, !self.running.is_empty());
                }
                match sent {
                    Ok(version) => {
                        writing.latest = Some(version);
                        writing.transformed = changes;
                    }
                    Err(Failure::Rejected(Rejection::Conflict)) if !writing.recomposed => {
                        return self.recompose(cluster, writing);
                    }
                    Err(Failure::Rejected(Rejection::Conflict)) => has_conflict = true,
                    Err(failure) => return self.failed(world, cluster, oracle, &writing, failure),
                }
            }
        }
        oracle.succeeded();
        self.throttle.succeed();
        self.recorded(world, &writing);
        self.after(world, cluster, writing, has_conflict);
    }

    #[expect(clippy::unused_self, reason = "a request belongs to the operator")]
    fn send(
        &self,
        cluster: &mut Cluster,
        reply: Reply,
        request: impl FnOnce(&mut Cluster) -> Result<(), Rejection>,
    ) -> Result<Arc<Version>, Failure> {
        if reply == Reply::Rejected {
            return Err(Failure::Error);
        }
        request(cluster).map_err(Failure::Rejected)?;
        if reply == Reply::Lost { Err(Failure::Lost) } else { Ok(Arc::clone(&cluster.latest)) }
    }

    /// Computes the JSON patch again from the latest version, after a conflict.
    fn recompose(&mut self, cluster: &Cluster, writing: Writing) {
        let latest = Some(Arc::clone(&cluster.latest));
        self.stage = Stage::Writing(Box::new(Writing { latest, recomposed: true, ..writing }));
    }

    fn failed(
        &mut self,
        world: &World,
        cluster: &Cluster,
        oracle: &mut Oracle,
        writing: &Writing,
        failure: Failure,
    ) {
        let now = cluster.now;
        if failure == Failure::Rejected(Rejection::Gone) {
            if world.flaw != Some(Flaw::ForgetsMissing) {
                self.doubt(now);
            }
            oracle.succeeded();
            self.throttle.succeed();
            let unwritten = Decision { patch: Patch::default(), ..writing.decision.clone() };
            self.recorded(world, &Writing { decision: unwritten, ..writing.clone() });
            self.pending.retain(|event| !event.requeued);
            return;
        }
        let stays_handled = writing.decision.deletion_handled_after_failed_write(&world.rules.settings);
        let is_more = !writing.decision.patch.is_empty();
        self.memory.deletion_handled = match world.flaw {
            Some(Flaw::ForgetsHandledDeletion) => false,
            Some(Flaw::ForgetsHandledDeletionAfterPatch) => stays_handled && !is_more,
            _ => stays_handled,
        };
        // Unwritten state is kept in memory, and lost with it.
        if writing.merged || writing.decision.patch.is_empty() {
            self.recorded(world, writing);
        } else {
            let (patch, handling_status) =
                (writing.decision.patch.0.clone(), writing.decision.handling_status.clone());
            let (settings, plan) = (&world.rules.settings, &world.plan);
            self.memory.failed(&writing.object, (patch, false), handling_status, settings, plan);
        }
        self.memory.remaining_fns = writing.decision.fns && world.flaw != Some(Flaw::ForgetsFunctions);
        // Writes accepted before the failure also cause watch events.
        if let Some(latest) = &writing.latest
            && world.flaw != Some(Flaw::ForgetsHalf)
        {
            self.note_write(world, now, &writing.event, latest);
        }
        if failure == Failure::Lost && world.flaw != Some(Flaw::TrustsFailure) {
            self.doubt(now);
        }
        oracle.failed(now);
        let pauses = if world.flaw == Some(Flaw::NeverSlows) { &[0.0] } else { &PAUSES[..] };
        if world.flaw == Some(Flaw::NeverSlower) {
            self.throttle.succeed();
        }
        self.throttle.fail(pauses, now);
        if self.pending.is_empty() && world.flaw != Some(Flaw::ForgetsFailed) {
            self.pending.push_back(Event { requeued: true, ..writing.event.clone() });
        }
    }

    fn recorded(&mut self, world: &World, writing: &Writing) {
        let (patch, handling_status) = (&writing.decision.patch.0, writing.decision.handling_status.clone());
        let handling_status = if world.flaw == Some(Flaw::ForgetsSeen) {
            HandlingStatus::Over(ObservedEssences::default())
        } else {
            handling_status
        };
        let mut patch = Patch(patch.clone());
        patch.merge(writing.transformed.clone());
        let latest = writing.latest.as_ref().filter(|_| world.flaw != Some(Flaw::TakesOwnForOthers));
        let accepted = Accepted { patch: &patch.0, latest: latest.map(|latest| &*latest.object) };
        self.memory.record_write(
            &writing.object,
            accepted,
            handling_status,
            &world.rules.settings,
            &world.plan,
        );
    }

    fn doubt(&mut self, now: Timestamp) {
        self.in_doubt = true;
        self.consistency.get_or_insert_default().mark_unknown(WINDOW, now);
    }

    fn after(&mut self, world: &World, cluster: &Cluster, writing: Writing, has_conflict: bool) {
        let Writing { event, decision, latest, .. } = writing;
        self.memory.deletion_handled =
            decision.deletion_handled && world.flaw != Some(Flaw::ForgetsHandledDeletion);
        self.memory.remaining_fns =
            has_conflict && decision.fns && world.flaw != Some(Flaw::ForgetsFunctions);
        if let Some(latest) = &latest {
            self.note_write(world, cluster.now, &event, latest);
        }
        let changed = latest.as_ref().is_some_and(|latest| latest.number != event.version.number);
        let trusts = world.flaw == Some(Flaw::ExpectsEvent) && latest.is_some();
        if changed {
            self.pending.retain(|event| !event.requeued);
        }
        if let (false, Some(delay)) = (changed || trusts, decision.delay) {
            self.stage = Stage::Sleeping { event, until: cluster.now.plus(delay) };
        }
    }

    fn note_write(&mut self, world: &World, now: Timestamp, event: &Event, latest: &Version) {
        let vanishing = latest.is_deleting() && latest.object.finalizers().next().is_none();
        self.in_doubt = vanishing || (self.in_doubt && latest.number == event.version.number);
        let seen = versioned(world, &event.version.number.to_string());
        let number = versioned(world, &latest.number.to_string());
        match world.flaw {
            Some(Flaw::SkipsNext) => self.skipping = true,
            Some(Flaw::AwaitsNoop) => {
                let written = Written { version: &number, vanishing };
                self.consistency.get_or_insert_default().record_write(written, None, WINDOW, now);
            }
            _ => {
                let written = Written { version: &number, vanishing };
                self.consistency.get_or_insert_default().record_write(written, Some(&seen), WINDOW, now);
            }
        }
    }
}

/// The failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Rejected(Rejection),
    Error,
    Lost,
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
