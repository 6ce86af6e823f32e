//! The queue of events, and the sleeps between two cycles.

use super::{ObjectWorker, QueuedEvent, SelectorMatch, WorkerContext, WorkerLog, WorkerMessage};
use crate::cause::EventType;
use crate::object::Object;
use crate::time::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;

/// The events since the start of the current cycle, and what follows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) pending: VecDeque<QueuedEvent>,
    /// The number of the first events that are from before a pause, if the queue is blocked.
    outdated: usize,
    /// The sleep after the last cycle.
    pub(super) sleep: Option<Sleep>,
    /// Events were skipped, and that was logged.
    overflowed: bool,
    /// Another worker continues with the object: sleeps are cut short.
    leaving: bool,
}

/// The state to be handled again after a delay.
#[derive(Clone, Debug)]
pub(super) struct Sleep {
    pub(super) event: QueuedEvent,
    pub(super) delay: f64,
    pub(super) until: Timestamp,
    /// The start of the sleep was logged.
    pub(super) announced: bool,
    /// The touch annotation was written.
    pub(super) touched: bool,
}

impl Sleep {
    pub(super) fn new(event: QueuedEvent, delay: f64, now: Timestamp) -> Self {
        Self { event, delay, until: now.plus(delay.max(0.0)), announced: false, touched: false }
    }
}

/// The next action of the driver.
#[derive(Clone, Debug)]
pub enum NextAction {
    /// Start a cycle for this event.
    Start(QueuedEvent),
    /// Sleep until this time, then ask again. See [`SleepKind`] for what ends the sleep earlier.
    Sleep {
        /// The end of the sleep.
        until: Timestamp,
        /// The reason.
        kind: SleepKind,
    },
    /// Write the touch annotation to the object, then call [`ObjectWorker::on_touched`] and ask again. Only in compat mode.
    Touch(QueuedEvent),
    /// End: the object is idle.
    Idle,
}

/// The reason for a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepKind {
    /// Delayed handlers. New events end it, and a pause or the end of the operator.
    Delay,
    /// The back-off after an error. The deletion of the object ends it, or its hand-over, and the end of the operator.
    Backoff,
}

/// The next action, and the messages to be logged before.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The action.
    pub next: NextAction,
    /// The messages.
    pub log: Vec<WorkerLog>,
}

/// The state of the operator.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperatorState {
    /// A pause has begun since the last listing: other operators may handle the objects. The listing after the pause delivers
    /// the objects again.
    pub paused: bool,
    /// The operator is stopping.
    pub stopping: bool,
}

impl ObjectWorker {
    /// Whether the object is idle but held after an error: its next event waits, and a driver is needed that asks for the next action.
    pub fn is_throttled(&self) -> bool {
        self.backoff.as_ref().is_some_and(|backoff| backoff.is_held())
    }

    /// Adds an event to those that wait. Returns the line to be logged, if there is one; the driver is to be notified.
    pub fn enqueue(&mut self, event: QueuedEvent, context: WorkerContext<'_>) -> Option<WorkerLog> {
        let settings = &context.startup_config.settings;
        // Kopf 1.45 handles the deletion after the back-off.
        if event.kind == EventType::Deleted
            && !settings.compat
            && let Some(backoff) = &mut self.backoff
        {
            backoff.cut_short();
        }
        let most = settings.queueing.max_pending_events.max(1);
        let queue = self.queue.get_or_insert_default();
        let mut skipped = None;
        if !context.handles_every_event() {
            queue.pending.clear();
            queue.outdated = 0;
        } else if !settings.compat && queue.pending.len() >= most {
            queue.pending.pop_front();
            queue.outdated = queue.outdated.saturating_sub(1);
            if !std::mem::replace(&mut queue.overflowed, true) {
                skipped = Some(WorkerLog::of(&event.object, WorkerMessage::Skipped(most)));
            }
        }
        queue.pending.push_back(event);
        skipped
    }

    /// The event that handles the state again without a watch event; none if that is not needed: the next event, or the listing after
    /// a pause, will handle the object anyway.
    pub fn on_wake(&self, object: Arc<Object>, operator: OperatorState) -> Option<QueuedEvent> {
        let is_needed = !self.gone && !operator.paused && self.pending().next().is_none();
        is_needed.then(|| QueuedEvent::requeued(object))
    }

    /// Adds an event of a blocked object: it waits until the queue is released. With `first_and_last`, only the first and the newest
    /// event are kept.
    pub(crate) fn block(&mut self, event: QueuedEvent, first_and_last: bool) {
        let queue = self.queue.get_or_insert_default();
        if first_and_last {
            queue.pending.truncate(1);
            queue.outdated = queue.outdated.min(1);
        }
        queue.pending.push_back(event);
    }

    /// The first event of a blocked queue.
    pub(crate) fn first_blocked(&mut self) -> Option<&mut QueuedEvent> {
        self.queue.as_mut()?.pending.front_mut()
    }

    /// Takes the newest event out of a blocked queue, and drops the others. The queue stays blocked.
    pub(crate) fn take_newest_blocked(&mut self) -> Option<QueuedEvent> {
        let queue = self.queue.as_mut()?;
        queue.outdated = 0;
        let newest = queue.pending.pop_back();
        queue.pending.clear();
        newest
    }

    /// Releases a blocked queue: the object becomes idle, and its events are returned, to be reported again. Those from before a
    /// pause are dropped, apart from a deletion.
    pub fn release(&mut self) -> VecDeque<QueuedEvent> {
        let Some(mut queue) = self.queue.take() else { return VecDeque::new() };
        let current = queue.pending.split_off(queue.outdated.min(queue.pending.len()));
        queue.pending.retain(|event| event.kind == EventType::Deleted);
        queue.pending.extend(current);
        queue.pending
    }

    /// Releases a blocked queue, possibly during a pause: see [`ObjectWorker::release`].
    pub(crate) fn release_in(
        &mut self,
        operator: OperatorState,
        context: WorkerContext<'_>,
    ) -> VecDeque<QueuedEvent> {
        // Kopf 1.45 handles the events that have arrived before the pause.
        if operator.paused && !context.startup_config.settings.compat {
            self.drop_outdated();
        }
        self.release()
    }

    /// Marks the waiting events of a blocked queue as those from before a pause. They stay until the release: the first one may be
    /// being indexed.
    pub(crate) fn mark_outdated(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.outdated = queue.pending.len();
        }
    }

    /// Another worker will continue with the object: sleeps are cut short.
    pub(crate) fn leave(&mut self) {
        self.queue.get_or_insert_default().leaving = true;
    }

    /// Whether a wait of the driver is to be interrupted: by events, or since the object does not exist any more.
    pub fn has_events(&self) -> bool {
        self.gone || self.queue.as_ref().is_some_and(|queue| queue.leaving || !queue.pending.is_empty())
    }

    /// Whether the error back-off lasts: the driver sleeps until its end.
    pub fn is_held(&self, now: Timestamp) -> bool {
        let is_ending = self.gone || self.queue.as_ref().is_some_and(|queue| queue.leaving);
        let left = self.backoff.as_ref().and_then(|backoff| backoff.remaining(now));
        !is_ending && left.is_some_and(|left| left > 0.0)
    }

    /// The waiting events.
    pub fn pending(&self) -> impl Iterator<Item = &QueuedEvent> {
        self.queue.iter().flat_map(|queue| &queue.pending)
    }

    /// The sleep for delayed handlers: the state that is handled afterwards, and the end.
    pub fn sleep(&self) -> Option<(&QueuedEvent, Timestamp)> {
        self.queue.as_ref()?.sleep.as_ref().map(|sleep| (&sleep.event, sleep.until))
    }

    /// Whether an action follows, now or later; otherwise, the object is idle from now on. For a driver that has ended a cycle
    /// and would have to be started for the next action.
    pub fn needs_driver(&mut self) -> bool {
        self.is_running = false;
        let is_needed =
            self.queue.as_ref().is_some_and(|queue| queue.sleep.is_some() || !queue.pending.is_empty());
        if !is_needed {
            self.queue = None;
        }
        is_needed
    }

    /// The next action after a cycle, a sleep, or the start of the driver.
    pub fn next(
        &mut self,
        context: WorkerContext<'_>,
        operator: OperatorState,
        now: Timestamp,
    ) -> Transition {
        self.is_running = false;
        let mut log = Vec::new();
        let sleep = self.queue.as_mut().and_then(|queue| queue.sleep.take());
        let next = sleep.and_then(|sleep| self.after_sleep(sleep, context, operator, now, &mut log));
        let next = next.unwrap_or_else(|| self.next_event(context, operator, now, &mut log));
        Transition { next, log }
    }

    /// The action that belongs to a sleep for delayed handlers; none if the sleep is cut short.
    fn after_sleep(
        &mut self,
        mut sleep: Sleep,
        context: WorkerContext<'_>,
        operator: OperatorState,
        now: Timestamp,
        log: &mut Vec<WorkerLog>,
    ) -> Option<NextAction> {
        let is_long = sleep.delay > 0.0 && !sleep.touched;
        if operator.paused || self.gone {
            return None;
        }
        if is_long && !std::mem::replace(&mut sleep.announced, true) {
            log.push(WorkerLog::of(&sleep.event.object, WorkerMessage::Sleeping(sleep.delay)));
        }
        if is_long && self.has_events() {
            let left = sleep.until.seconds_since(now).max(0.0);
            log.push(WorkerLog::of(&sleep.event.object, WorkerMessage::Interrupted(left)));
            return None;
        }
        if is_long && operator.stopping {
            return None;
        }
        if now < sleep.until {
            let until = sleep.until;
            self.queue.get_or_insert_default().sleep = Some(sleep);
            return Some(NextAction::Sleep { until, kind: SleepKind::Delay });
        }
        if context.startup_config.settings.compat && !sleep.touched {
            let event = sleep.event.clone();
            self.queue.get_or_insert_default().sleep = Some(Sleep { touched: true, ..sleep });
            return Some(NextAction::Touch(event));
        }
        if self.selector_match != SelectorMatch::Selected {
            // The watch does not report changes of this object: it has to be looked up.
            self.selector_match = SelectorMatch::Stale;
            return None;
        }
        let event = QueuedEvent { kind: EventType::Modified, requeued: true, arrived: None, ..sleep.event };
        (!self.has_events()).then_some(NextAction::Start(event))
    }

    fn next_event(
        &mut self,
        context: WorkerContext<'_>,
        operator: OperatorState,
        now: Timestamp,
        log: &mut Vec<WorkerLog>,
    ) -> NextAction {
        // Kopf 1.45 handles the events that have arrived before the pause.
        if operator.paused && !context.startup_config.settings.compat {
            self.drop_outdated();
        }
        if self.gone {
            self.drop_requeued();
        }
        let Some(queue) = self.queue.as_mut().filter(|queue| !queue.pending.is_empty()) else {
            self.queue = None;
            return NextAction::Idle;
        };
        if let Some(backoff) = self.backoff.as_mut().filter(|backoff| backoff.is_held()) {
            let left = backoff.remaining(now).unwrap_or(0.0);
            if left > 0.0 && queue.leaving {
                // The next worker waits for the rest, and gets the latest state.
                self.queue = None;
                return NextAction::Idle;
            }
            if left > 0.0 && !self.gone {
                return NextAction::Sleep { until: now.plus(left), kind: SleepKind::Backoff };
            }
            backoff.release();
            let last = queue.pending.pop_back();
            queue.pending.clear();
            if let Some(last) = last {
                log.push(WorkerLog::of(&last.object, WorkerMessage::BackoffOver));
                return NextAction::Start(last);
            }
        }
        match queue.pending.pop_front() {
            Some(event) => NextAction::Start(event),
            None => NextAction::Idle,
        }
    }

    /// Drops the waiting states of the object: another operator may have handled them. A deletion is final, and its cycle writes
    /// nothing.
    pub fn drop_outdated(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.sleep = None;
            queue.pending.retain(|event| event.kind == EventType::Deleted);
        }
    }

    /// Drops the states that are only to be handled again.
    pub(super) fn drop_requeued(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.pending.retain(|event| !event.requeued);
        }
    }

    /// A pause of the operator has begun: it ends the sleep for delayed handlers.
    pub fn on_pause(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.sleep = None;
        }
    }
}
