//! The end of a cycle: the changes to write, and the record of their result for the next cycle.

use super::queue::Sleep;
use super::{ObjectWorker, QueuedEvent, SelectorMatch, WorkerContext, WorkerLog, WorkerMessage};
use crate::cause::EventType;
use crate::cycle::{Cycle, Decision};
use crate::handling::cause_id::Handling;
use crate::json::merge_patch::subtract;
use crate::json::value::{Map, Value};
use crate::object::Object;
use crate::persistence::consistency::Written;
use crate::persistence::memory::{HandlingStatus, ObjectMemory};
use crate::persistence::superseding::CalledHandler;
use crate::persistence::unwritten_patch::Unwritten;
use crate::time::Timestamp;
use crate::writes::{Rejection, WriteOutcome, WriteRequest};
use std::sync::Arc;

/// Seconds until a retry after a conflict, if the newer state may not be read and may not come as an event.
const CONFLICT_DELAY: f64 = 1.0;
/// Number of rejections in a row after which transformation functions are dropped: change handlers wait for them.
const MOST_FUNCTION_REJECTIONS: u8 = 5;
/// Number of rejections of a patch in a row after which its parts are written as far as the server accepts them.
const PARTIAL_AFTER: u32 = 3;

/// What follows the decision of a cycle.
#[derive(Debug)]
pub enum DecisionResult {
    /// Write this, then call [`ObjectWorker::on_write_result`].
    Write(Box<DecidedWrite>),
    /// The cycle has ended.
    Finished(Finished),
}

/// The changes that a cycle has decided to write.
#[derive(Clone, Debug)]
pub struct DecidedWrite {
    /// The changes.
    pub request: WriteRequest,
    /// Whether parts of the patch may be written if it is rejected as a whole.
    pub may_be_partial: bool,
    /// The event of the cycle.
    pub event: QueuedEvent,
    /// The object that the cycle decided about.
    pub object: Arc<Object>,
    /// The handling that the cycle has begun or continued.
    pub handling: Option<Handling>,
    /// The handlers that may have set fields of the patch.
    called: Vec<CalledHandler>,
    /// The parts that the server has rejected before.
    repeated: Map<String, Value>,
    deletion_handled: bool,
    stays_deletion_handled: bool,
    delay: Option<f64>,
    handling_status: HandlingStatus,
}

/// The end of a cycle.
#[derive(Debug, Default)]
pub struct Finished {
    /// The transformation functions are carried over to the next cycle.
    pub carry: bool,
    /// Seconds until the rejected parts are written again; none if they are not.
    pub delay: Option<f64>,
    /// The rejected parts, to be logged.
    pub rejections: Vec<Rejection>,
    /// The message to be logged.
    pub log: Option<WorkerLog>,
}

impl Finished {
    fn of(outcome: WriteOutcome, delay: Option<f64>, log: Option<WorkerLog>) -> Self {
        if outcome.gone {
            return Self { carry: outcome.carry, log, ..Self::default() };
        }
        Self { carry: outcome.carry, delay, rejections: outcome.rejections, log }
    }
}

impl ObjectWorker {
    /// Takes the decision of a cycle.
    pub fn on_decision(
        &mut self,
        running: &Cycle,
        decision: Decision,
        context: WorkerContext<'_>,
        now: Timestamp,
    ) -> DecisionResult {
        let event = running.event().clone();
        self.is_running = false;
        if let Some(error) = decision.error {
            let is_deleted = event.kind == EventType::Deleted;
            let log = Some(self.requeue_failed(event, error, true, context, now));
            if is_deleted {
                self.finish_deleted();
            }
            // Functions of an earlier cycle are still to be applied.
            let carry = self.memory.remaining_fns;
            return DecisionResult::Finished(Finished { carry, log, ..Finished::default() });
        }
        self.memory.fully_handled_once |= decision.fully_handled_once;
        self.memory.annotations_removed |= decision.annotations_removed;
        if event.kind == EventType::Deleted {
            self.finish_deleted();
            return DecisionResult::Finished(Finished::default());
        }
        let stays_deletion_handled =
            decision.deletion_handled_after_failed_write(&context.startup_config.settings);
        let rejected_patch = decision.rejected_patch.map_or_else(Map::new, |patch| patch.0);
        let write = DecidedWrite {
            stays_deletion_handled,
            deletion_handled: decision.deletion_handled,
            called: running.called().to_vec(),
            repeated: rejected_patch.clone(),
            request: WriteRequest {
                patch: decision.patch,
                final_progress: decision.final_progress,
                finalizer: decision.finalizer,
                deletion_handled: decision.deletion_handled,
                functions: decision.fns,
                rejected_patch,
            },
            may_be_partial: self.may_be_partial(context),
            object: Arc::clone(running.object()),
            handling: running.handling(),
            event,
            delay: decision.delay,
            handling_status: decision.handling_status,
        };
        if write.request.is_empty() {
            let finished = self.finish(write, WriteOutcome::default(), context, now);
            return DecisionResult::Finished(finished);
        }
        self.is_running = true;
        DecisionResult::Write(Box::new(write))
    }

    /// Records the result of a write. The cycle has ended then.
    pub fn on_write_result(
        &mut self,
        write: DecidedWrite,
        outcome: WriteOutcome,
        context: WorkerContext<'_>,
        now: Timestamp,
    ) -> Finished {
        self.is_running = false;
        if self.selector_match == SelectorMatch::Deselected {
            self.selector_match = SelectorMatch::Stale;
        }
        self.record_version(&write.object, &outcome, context, now);
        self.finish(write, outcome, context, now)
    }

    /// The end of every cycle that has no error and is not about a deleted object.
    fn finish(
        &mut self,
        write: DecidedWrite,
        mut outcome: WriteOutcome,
        context: WorkerContext<'_>,
        now: Timestamp,
    ) -> Finished {
        let settings = &context.startup_config.settings;
        let DecidedWrite { event, object, delay, handling_status, called, repeated, .. } = write;
        self.memory.supersede_rejected(&object, &called, &settings.persistence);
        // First, since these parts of an earlier patch are not written with the rest of it.
        let (retry_delay, has_rejections) = self.record_rejected(&outcome, &repeated, context, now);
        let Some(failure) = outcome.failure.take() else {
            self.memory.remaining_fns = outcome.carry;
            self.memory.deletion_handled = write.deletion_handled;
            self.memory.rejected_fns = 0;
            // Such a 404 does not name the object: its version may not be served any more, and another one continues.
            if outcome.gone && !outcome.deleted && !outcome.unwritten.is_empty() {
                self.keep_unwritten(&object, &mut outcome, false, handling_status, context);
            } else {
                self.memory.record_write(
                    &object,
                    outcome.accepted(),
                    handling_status,
                    settings,
                    context.resource_handlers,
                );
            }
            self.memory.record_called(&called, has_rejections);
            self.backoff = None;
            let delay = if outcome.must_retry { Some(delay.unwrap_or(CONFLICT_DELAY)) } else { delay };
            let delay = delay.into_iter().chain(retry_delay).min_by(f64::total_cmp);
            let log = self.requeue_delayed(event, &outcome, delay, now);
            return Finished::of(outcome, retry_delay, log);
        };
        let given_up = self.count_function_rejection(&object, &mut outcome);
        self.memory.remaining_fns = outcome.carry;
        self.memory.deletion_handled = write.stays_deletion_handled;
        if outcome.unwritten.is_empty() {
            self.memory.record_write(
                &object,
                outcome.accepted(),
                handling_status,
                settings,
                context.resource_handlers,
            );
        } else {
            self.keep_unwritten(&object, &mut outcome, failure.is_rejection(), handling_status, context);
            self.memory.record_part(&object, outcome.accepted(), settings, context.resource_handlers);
        }
        if failure.is_outcome_unknown() {
            self.mark_unknown(context, now);
        }
        self.memory.record_called(&called, has_rejections);
        let text = format!("{failure}{given_up}");
        let log = Some(self.requeue_failed(event, text, failure.is_exception(), context, now));
        Finished::of(outcome, retry_delay, log)
    }

    /// Keeps the changes that were not written, for the next cycle.
    fn keep_unwritten(
        &mut self,
        object: &Object,
        outcome: &mut WriteOutcome,
        is_rejected: bool,
        handling_status: HandlingStatus,
        context: WorkerContext<'_>,
    ) {
        let unwritten = Unwritten {
            patch: std::mem::take(&mut outcome.unwritten),
            final_progress: std::mem::take(&mut outcome.final_progress),
            is_rejected,
        };
        let settings = &context.startup_config.settings;
        self.memory.failed(object, unwritten, handling_status, settings, context.resource_handlers);
    }

    /// Records the result of writing the touch annotation: see [`super::NextAction::Touch`]. If its watch event will come, the sleep is
    /// over.
    pub fn on_touched(
        &mut self,
        object: &Object,
        outcome: &WriteOutcome,
        context: WorkerContext<'_>,
        now: Timestamp,
    ) {
        if self.selector_match == SelectorMatch::Deselected {
            self.selector_match = SelectorMatch::Stale;
        }
        self.record_version(object, outcome, context, now);
        if (outcome.gone || is_changed(object, outcome))
            && let Some(queue) = &mut self.queue
        {
            queue.sleep = None;
        }
    }

    /// The cycle of a deletion event is over. What arrived after it is another object in the same place.
    pub(super) fn finish_deleted(&mut self) {
        self.drop_requeued();
        let is_followed = self.pending().any(|event| event.kind != EventType::Deleted);
        self.backoff = None;
        self.gone = !is_followed;
        if is_followed {
            (self.memory, self.consistency) = (ObjectMemory::default(), None);
        }
    }

    /// Whether parts of a patch may be written if the server rejects it once more.
    fn may_be_partial(&self, context: WorkerContext<'_>) -> bool {
        let rejections = self.memory.pending_state.as_ref().map_or(0, |pending| pending.rejections());
        !context.startup_config.settings.compat && rejections + 1 >= PARTIAL_AFTER
    }

    /// Drops the functions whose result is rejected too often, or holds up a deletion. Returns the sentence for the log line.
    fn count_function_rejection(&mut self, object: &Object, outcome: &mut WriteOutcome) -> &'static str {
        if !outcome.functions_rejected {
            return "";
        }
        self.memory.rejected_fns = self.memory.rejected_fns.saturating_add(1);
        if self.memory.rejected_fns < MOST_FUNCTION_REJECTIONS && object.deletion_timestamp().is_none() {
            return "";
        }
        self.memory.rejected_fns = 0;
        outcome.carry = false;
        " The functions are given up."
    }

    /// Keeps the rejected parts for a later attempt. Returns the delay in seconds, and whether some of the parts are rejected for the
    /// first time.
    fn record_rejected(
        &mut self,
        outcome: &WriteOutcome,
        repeated: &Map<String, Value>,
        context: WorkerContext<'_>,
        now: Timestamp,
    ) -> (Option<f64>, bool) {
        self.memory.accepted(&outcome.merged);
        let rejected = outcome.rejected().0;
        let has_new = !subtract(rejected.clone(), repeated).is_empty();
        (self.memory.rejected(rejected, now, &context.startup_config.settings), has_new)
    }

    /// The next handling of the same state after a delay, if any.
    fn requeue_delayed(
        &mut self,
        event: QueuedEvent,
        outcome: &WriteOutcome,
        delay: Option<f64>,
        now: Timestamp,
    ) -> Option<WorkerLog> {
        let is_changed = is_changed(&event.object, outcome);
        if outcome.gone || is_changed {
            // They are older than the written state, whose watch event will come.
            self.drop_requeued();
        }
        let delay = delay.filter(|_| !outcome.gone)?;
        if !is_changed {
            self.queue.get_or_insert_default().sleep = Some(Sleep::new(event, delay, now));
            return None;
        }
        // The watch event of the write starts the next cycle.
        (delay > 0.0).then(|| WorkerLog::of(&event.object, WorkerMessage::SkippedSleep(delay)))
    }

    /// Records the written version, so that its watch event is recognised.
    fn record_version(
        &mut self,
        object: &Object,
        outcome: &WriteOutcome,
        context: WorkerContext<'_>,
        now: Timestamp,
    ) {
        // An object that is gone only waits for its deletion event; until then, no state of it is reliable. If the deletion is not
        // certain, the wait ends with the timeout.
        if outcome.deleted {
            self.consistency.get_or_insert_default().mark_deleted();
        }
        if outcome.gone || (outcome.latest.is_none() && outcome.is_in_doubt()) {
            return self.mark_unknown(context, now);
        }
        let Some(latest) = &outcome.latest else { return };
        let Some(version) = latest.resource_version() else { return };
        let vanishing = latest.deletion_timestamp().is_some() && latest.finalizers().next().is_none();
        let timeout = context.live_config.settings.persistence.consistency_timeout;
        self.memory.has_unknown_writes |= outcome.is_in_doubt() || timeout <= 0.0;
        self.consistency.get_or_insert_default().record_write(
            Written { version, vanishing },
            object.resource_version(),
            timeout,
            now,
        );
    }

    /// Treats the states of the object as outdated until the consistency timeout.
    fn mark_unknown(&mut self, context: WorkerContext<'_>, now: Timestamp) {
        let timeout = context.live_config.settings.persistence.consistency_timeout;
        self.memory.has_unknown_writes = true;
        self.consistency.get_or_insert_default().mark_unknown(timeout, now);
    }
}

/// Whether the write has changed the object, so that a watch event will come.
fn is_changed(object: &Object, outcome: &WriteOutcome) -> bool {
    outcome.latest.as_ref().is_some_and(|latest| latest.resource_version() != object.resource_version())
}
