//! The end of a cycle: writes the decision and records the result of the write for the next cycle.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::cycle::{Decision, OperatorConfig};
use kopf_core::handling::error_backoff;
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::value::Map;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::persistence::consistency::Written;
use kopf_core::persistence::memory::HandlingStatus;

use super::{CycleOutcome, Worker};
use crate::host::{CycleId, HostTask, LogRecord};
use crate::objects::membership::Membership;
use crate::objects::slots::{QueuedEvent, Slot};
use crate::patching::partial;
use crate::patching::{PatchFailure, Patching, PatchingError, WriteRequest, WriteResult};

/// Seconds until a retry after a conflict, if the newer state may not be read and may not come as an event.
const CONFLICT_DELAY: f64 = 1.0;
/// Number of rejections in a row after which transformation functions are dropped: change handlers wait for them.
const MOST_REJECTIONS: u8 = 5;

impl Worker {
    /// Applies the decision of the cycle, and stores its results.
    pub(super) async fn conclude(
        &self,
        of: (CycleId, bool),
        decision: Box<Decision>,
        event: QueuedEvent,
    ) -> CycleOutcome {
        let (id, closed) = of;
        let close = |carry: bool| {
            if !closed {
                self.shared().host.submit(HostTask::Close { cycle: id, carry });
            }
        };
        if let Some(error) = &decision.error {
            self.throttle(&event, error, Some(id));
            // After the log line: closing the cycle drops the exception that is logged.
            close(false);
            return CycleOutcome::Rest;
        }
        self.remember(&decision);
        if event.kind == EventType::Deleted {
            if let Some(slot) = self.dispatcher.slots().get(&self.key) {
                slot.gone = true;
                slot.throttle.succeed();
            }
            close(false);
            return CycleOutcome::Rest;
        }
        let deletion_handled = decision.deletion_handled;
        let stays_parted = decision.deletion_handled_after_failed_write(&self.shared().rules.settings);
        let Decision { delay, patch, outcomes, finalizer, fns: functions, handling_status, pending, .. } =
            *decision;
        let pending = pending.map_or_else(Map::new, |pending| pending.0);
        let change =
            WriteRequest { cycle: id, patch, outcomes, finalizer, deletion_handled, functions, pending };
        let rules = self.shared().current.get();
        let result = if change.is_empty() {
            Ok(WriteResult::default())
        } else {
            Box::pin(self.apply(&rules, &event.object, change)).await
        };
        let mut applied = match result {
            Ok(applied) => applied,
            Err(PatchFailure { mut applied, error }) => {
                let given_up = self.count_rejection(&event.object, &mut applied);
                self.set_deletion_handled(stays_parted);
                self.note_write(&event.object, &applied);
                self.note_failure(&event.object, &error, &mut applied, handling_status);
                self.note_rejections(&event.object, &mut applied);
                let with_traceback = matches!(error, PatchingError::Function(_)).then_some(id);
                self.throttle(&event, &format!("{error}{given_up}"), with_traceback);
                close(applied.carry);
                return CycleOutcome::Rest;
            }
        };
        close(applied.carry);
        self.set_deletion_handled(deletion_handled);
        self.note_write(&event.object, &applied);
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.memory.rejected_fns = 0;
            let plan = &self.dispatcher.plan;
            slot.memory.record_write(
                &event.object,
                applied.accepted(),
                handling_status,
                &self.shared().rules.settings,
                plan,
            );
        }
        let pause = self.note_rejections(&event.object, &mut applied);
        self.succeed();
        let delay = if applied.must_retry { Some(delay.unwrap_or(CONFLICT_DELAY)) } else { delay };
        let delay = delay.into_iter().chain(pause).min_by(f64::total_cmp);
        self.next_step(event, &applied, delay)
    }

    /// Applies the change. If the server rejects it repeatedly, applies the parts that it accepts.
    async fn apply(
        &self,
        rules: &OperatorConfig,
        object: &Arc<Object>,
        change: WriteRequest,
    ) -> Result<WriteResult, PatchFailure> {
        let patching = self.patching(rules);
        let failure = match patching.apply(object, change).await {
            Err(failure) if failure.error.is_rejection() && !failure.applied.unwritten.is_empty() => failure,
            result => return result,
        };
        let refusals = {
            let mut slots = self.dispatcher.slots();
            slots
                .get(&self.key)
                .and_then(|slot| Some(slot.memory.pending_state.as_ref()?.rejections()))
                .unwrap_or(0)
        };
        if self.shared().rules.settings.compat || refusals + 1 < partial::MAX_REJECTIONS {
            return Err(failure);
        }
        patching.merge_part(object, failure, &self.shared().rules.settings.persistence).await
    }

    /// Drops the functions whose result is rejected too often, or holds up a deletion. Returns the sentence for the log line.
    fn count_rejection(&self, object: &Object, applied: &mut WriteResult) -> &'static str {
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key).filter(|_| applied.functions_rejected) else { return "" };
        slot.memory.rejected_fns = slot.memory.rejected_fns.saturating_add(1);
        if slot.memory.rejected_fns < MOST_REJECTIONS && object.deletion_timestamp().is_none() {
            return "";
        }
        slot.memory.rejected_fns = 0;
        applied.carry = false;
        " The functions are given up."
    }

    /// Keeps the rejected parts for a later attempt; returns the delay in seconds.
    fn note_rejections(&self, object: &Arc<Object>, applied: &mut WriteResult) -> Option<f64> {
        let rejections = std::mem::take(&mut applied.rejections);
        let shared = self.shared();
        let pause = {
            let mut slots = self.dispatcher.slots();
            let slot = slots.get(&self.key)?;
            slot.memory.accepted(&applied.merged);
            let mut rejected = Patch::default();
            for rejection in &rejections {
                rejected.merge(rejection.patch.clone());
            }
            slot.memory.rejected(rejected.0, shared.clock.now(), &shared.rules.settings)
        };
        if applied.gone {
            return None;
        }
        let resource = &self.dispatcher.plan.resource;
        for rejection in rejections {
            let level = if rejection.is_denied() { shared.denials.level(resource) } else { Level::Warning };
            if shared.host.enabled(level) {
                shared.host.log(LogRecord::local(level, object, rejection.text(object, resource, pause)));
            }
        }
        pause
    }

    /// Keeps the unwritten change for the next cycle.
    fn note_failure(
        &self,
        object: &Object,
        error: &PatchingError,
        applied: &mut WriteResult,
        handling_status: HandlingStatus,
    ) {
        let settings = &self.shared().rules.settings;
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key) else { return };
        if applied.unwritten.is_empty() {
            slot.memory.record_write(
                object,
                applied.accepted(),
                handling_status,
                settings,
                &self.dispatcher.plan,
            );
        } else {
            let unwritten = std::mem::take(&mut applied.unwritten);
            let unwritten = (unwritten, error.is_rejection());
            slot.memory.failed(object, unwritten, handling_status, settings, &self.dispatcher.plan);
        }
        if error.is_of_unknown_fate() {
            self.mark_unknown(slot);
        }
    }

    /// Whether the object becomes idle or is handled again after a delay.
    fn next_step(&self, event: QueuedEvent, applied: &WriteResult, delay: Option<f64>) -> CycleOutcome {
        let changed = applied
            .latest
            .as_ref()
            .filter(|latest| latest.resource_version() != event.object.resource_version());
        if applied.gone || changed.is_some() {
            self.discard_requeues();
        }
        if applied.gone {
            return CycleOutcome::Rest;
        }
        match (changed, delay) {
            // The watch event of the write starts the next cycle.
            (Some(_), Some(delay)) if delay > 0.0 => {
                self.debug(&event.object, || {
                    format!("Sleeping was skipped because of the patch, {delay} seconds left.")
                });
                CycleOutcome::Rest
            }
            (None, Some(delay)) => CycleOutcome::Again(event, delay),
            (Some(_) | None, _) => CycleOutcome::Rest,
        }
    }

    /// Drops requeued states: they are older than the written one, whose watch event will come.
    fn discard_requeues(&self) {
        let mut slots = self.dispatcher.slots();
        if let Some(active) = slots.get(&self.key).and_then(|slot| slot.active.as_mut()) {
            active.pending.retain(|event| !event.requeued);
        }
    }

    pub(super) fn patching<'a>(&'a self, rules: &'a OperatorConfig) -> Patching<'a> {
        let shared = self.shared();
        Patching {
            api: &shared.api,
            host: &shared.host,
            resource: &self.dispatcher.plan.resource,
            finalizer: &rules.settings.persistence.finalizer,
            compat: shared.rules.settings.compat,
            release_cleanup: (!shared.rules.settings.compat && !rules.settings.persistence.is_foreign())
                .then_some((&*self.dispatcher.plan, &rules.settings.persistence)),
        }
    }

    fn remember(&self, decision: &Decision) {
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.memory.fully_handled_once |= decision.fully_handled_once;
            slot.memory.annotations_removed |= decision.annotations_removed;
        }
    }

    /// Records whether all deletion handlers are done, so that only our finalizer is left to remove.
    fn set_deletion_handled(&self, deletion_handled: bool) {
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.memory.deletion_handled = deletion_handled;
        }
    }

    /// A cycle has succeeded, including its writes: resets the error back-off.
    fn succeed(&self) {
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.throttle.succeed();
        }
    }

    /// Records the result of our write, so that its watch event is recognised.
    pub(super) fn note_write(&self, object: &Object, applied: &WriteResult) {
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key) else { return };
        slot.memory.remaining_fns = applied.carry;
        if slot.membership == Membership::Deselected {
            slot.membership = Membership::Stale;
        }
        if applied.gone {
            // The object only waits for its deletion; until then, no state of it is reliable.
            self.mark_unknown(slot);
            return;
        }
        if applied.latest.is_none() && applied.is_in_doubt() {
            self.mark_unknown(slot);
        }
        let Some(latest) = &applied.latest else { return };
        let Some(version) = latest.resource_version() else { return };
        let vanishing = latest.deletion_timestamp().is_some() && latest.finalizers().next().is_none();
        let timeout = self.shared().current.get().settings.persistence.consistency_timeout;
        let consistency = slot.consistency.get_or_insert_default();
        consistency.record_write(
            Written { version, vanishing },
            object.resource_version(),
            timeout,
            self.shared().clock.now(),
        );
    }

    /// Treats the states of the object as outdated until the consistency timeout.
    fn mark_unknown(&self, slot: &mut Slot) {
        let timeout = self.shared().current.get().settings.persistence.consistency_timeout;
        slot.consistency.get_or_insert_default().mark_unknown(timeout, self.shared().clock.now());
    }

    /// Applies the error back-off after an unexpected error; the state is handled again afterwards.
    pub(super) fn throttle(&self, event: &QueuedEvent, error: &str, cycle: Option<CycleId>) {
        let now = self.shared().clock.now();
        let rules = self.shared().current.get();
        let delays = &rules.settings.queueing.error_delays;
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key) else { return };
        let delay = slot.throttle.fail(delays, now);
        // Kopf 1.45 drops the event; here, the object must not wait for its next change.
        if event.kind != EventType::Deleted
            && !self.shared().rules.settings.compat
            && let Some(active) = &mut slot.active
            && active.pending.is_empty()
        {
            active.pending.push_back(QueuedEvent { requeued: true, ..event.clone() });
        }
        drop(slots);
        let entry = LogRecord::local(Level::Error, &event.object, error_backoff::text(delay, error));
        self.shared().host.log(match cycle {
            Some(cycle) => entry.with_exception_of(cycle),
            None => entry,
        });
    }
}
