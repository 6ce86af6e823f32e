//! Failed cycles: the error back-off of the object, and the repetition of the failed state.

use super::queue::Sleep;
use super::{ObjectWorker, QueuedEvent, WorkerContext, WorkerLog, WorkerMessage};
use crate::cause::EventType;
use crate::handling::error_backoff::ErrorBackoff;
use crate::time::Timestamp;

/// Seconds until a failed state is handled again if it is not throttled. New events are handled before.
const UNTHROTTLED_DELAY: f64 = 60.0;

impl ObjectWorker {
    /// The cycle of this event has ended without a decision, because of an internal error: the event is handled again after the
    /// error back-off. Without one, only the latest state is, after a while. With `may_be_written`, a
    /// part of the cycle may have been written.
    pub fn on_internal_error(
        &mut self,
        event: QueuedEvent,
        error: String,
        may_be_written: bool,
        context: WorkerContext<'_>,
        now: Timestamp,
    ) -> WorkerLog {
        if may_be_written {
            // The record of our writes may be incomplete; the persisted progress is on the object.
            self.memory.pending_state = None;
            self.memory.handled = None;
            self.memory.has_unknown_writes = true;
            self.consistency = None;
        }
        self.is_running = false;
        let delay = self.fail(context, now);
        let message = WorkerMessage::Failed { delay, error, with_exception: false };
        let line = WorkerLog::of(&event.object, message);
        if is_throttled(delay, context) {
            self.queue.get_or_insert_default().pending.push_front(event);
        } else if event.kind == EventType::Deleted {
            self.finish_deleted();
        } else if !context.startup_config.settings.compat {
            self.repeat_unthrottled(event, now);
        }
        line
    }

    /// Applies the error back-off; the state is handled again afterwards, unless the object is deleted.
    pub(super) fn requeue_failed(
        &mut self,
        event: QueuedEvent,
        error: String,
        with_exception: bool,
        context: WorkerContext<'_>,
        now: Timestamp,
    ) -> WorkerLog {
        let compat = context.startup_config.settings.compat;
        // A deleted object is not handled again, so there is no back-off; Kopf 1.45 logs one.
        let is_repeated = event.kind != EventType::Deleted;
        let delay = if is_repeated || compat { self.fail(context, now) } else { None };
        let line = WorkerLog::of(&event.object, WorkerMessage::Failed { delay, error, with_exception });
        // Kopf 1.45 drops the event; here, the object must not wait for its next change.
        if is_repeated && !compat {
            if !is_throttled(delay, context) {
                self.repeat_unthrottled(event, now);
            } else if self.pending().next().is_none() {
                let queue = self.queue.get_or_insert_default();
                queue.pending.push_back(QueuedEvent { requeued: true, arrived: None, ..event });
            }
        }
        line
    }

    /// The cycle of this event has failed, and the settings have no delay: it would fail again at once. The state is handled again
    /// after a sleep, unless there are newer ones.
    fn repeat_unthrottled(&mut self, event: QueuedEvent, now: Timestamp) {
        let queue = self.queue.get_or_insert_default();
        if queue.pending.is_empty() {
            queue.sleep = Some(Sleep { announced: true, ..Sleep::new(event, UNTHROTTLED_DELAY, now) });
        }
    }

    /// Starts the error back-off; returns its seconds. There is none for an object that does not exist any more; Kopf 1.45 has one.
    fn fail(&mut self, context: WorkerContext<'_>, now: Timestamp) -> Option<f64> {
        let is_deleted = self.gone || self.pending().any(|event| event.kind == EventType::Deleted);
        if is_deleted && !context.startup_config.settings.compat {
            return None;
        }
        let delays = &context.live_config.settings.queueing.error_delays;
        self.backoff.get_or_insert_with(|| Box::new(ErrorBackoff::default())).fail(delays, now)
    }
}

/// Whether the delays slow the repetitions down: this one, or those that follow.
fn is_throttled(delay: Option<f64>, context: WorkerContext<'_>) -> bool {
    let last = context.live_config.settings.queueing.error_delays.last();
    delay.is_some_and(|delay| delay > 0.0 || last.is_some_and(|last| *last > 0.0))
}
