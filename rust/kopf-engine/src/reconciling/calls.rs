//! The calls of reconcilers: start, stop, timeout, and result.

use std::sync::Arc;

use kopf_core::conditions::ConditionChanges;
use kopf_core::daemon::StopReasons;
use kopf_core::json::value::{Map, Value};
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use kopf_core::schedule::{Call, Conclusion, Grant, Priority, ReconcileResult};
use kopf_core::time::Timestamp;
use tracing::Span;

use super::Reconcilers;
use super::effects::{Effects, Inspect};
use super::event::described;
use super::state::{Deadline, Reconciler, Run, State, kept};
use crate::host::reconcile::{CallReconcilerReply, CallReconcilerTask, Cancellation, InspectObjectTask};
use crate::host::{HostTask, LogRecord, Responder, RunId};
use crate::spans::reconciliation_span;

/// The patch that a call has left.
pub(super) struct CallPatch {
    pub(super) uid: Arc<str>,
    pub(super) reconciler: usize,
    pub(super) resource: Arc<Resource>,
    pub(super) object: Arc<Object>,
    pub(super) patch: Map<String, Value>,
    pub(super) fns: bool,
    pub(super) conditions: Option<ConditionChanges>,
    pub(super) result: ReconcileResult,
    pub(super) span: Span,
}

impl State {
    /// Starts all reconciliations that are due and get a permit, if the lists of their feeds are from after the last of so many
    /// pauses and terms.
    pub(super) fn start_due(
        &mut self,
        shared: &Arc<Reconcilers>,
        pauses: u64,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        self.refresh_level(&*shared.base.host);
        if self.is_closing {
            return;
        }
        for index in 0..self.reconcilers.len() {
            let reconciler = &mut self.reconcilers[index];
            if !reconciler.barrier.is_open() || reconciler.awaits_lists(pauses, now) {
                continue;
            }
            while let Some(grant) = self.reconcilers[index].queue.grant(now) {
                self.start(index, grant, shared, now, effects);
            }
        }
    }

    fn start(
        &mut self,
        index: usize,
        grant: Grant<u64>,
        shared: &Arc<Reconcilers>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let is_debug = self.is_debug;
        let Reconciler { primaries, numbers, options, label, handler, queue, .. } =
            &mut self.reconcilers[index];
        let key = numbers.get(&grant.key).cloned();
        let primary = key.as_ref().and_then(|key| primaries.get_mut(key));
        let started = primary.and_then(|primary| {
            let (call, start) = primary.schedule.start(options.deletion, now)?;
            Some((primary, call, start))
        });
        let (Some(key), Some((primary, call, start))) = (key.clone(), started) else {
            queue.release();
            if let Some(key) = key {
                self.establish(index, &key, now, effects);
            }
            return;
        };
        let run = shared.base.next_id();
        primary.run = Some(run);
        primary.on_start(now);
        let cause = primary.cause.take();
        if is_debug {
            let reason = match (grant.position.priority, cause) {
                (Priority::Scheduled, _) => "the time has come".to_owned(),
                (Priority::Initial, _) => {
                    format!("{} is listed", described(&primary.resource, &primary.object))
                }
                (Priority::Changed, Some(cause)) => format!("{cause} has changed"),
                (Priority::Changed, None) => {
                    format!("{} has changed", described(&primary.resource, &primary.object))
                }
            };
            let text = format!("{label} is called: {reason}.");
            effects.records.push(LogRecord::local(Level::Debug, &primary.object, text));
        }
        let id = self.rules.registry.handlers.get(*handler).map_or("", |handler| &*handler.id);
        let span = reconciliation_span(run, id, &primary.resource, &primary.object);
        let replying = Arc::clone(shared);
        effects.tasks.push(HostTask::CallReconciler(Box::new(CallReconcilerTask {
            run,
            handler: *handler,
            uid: Arc::clone(&key),
            resource: Arc::clone(&primary.resource),
            object: Arc::clone(&primary.object),
            is_deleting: call == Call::Deleting,
            start,
            reply: Responder::new(move |reply| replying.on_reply(run, reply)),
        })));
        if let Some(timeout) = options.reconcile_timeout {
            self.deadlines.insert((now.plus(timeout), run), Deadline::Timeout);
        }
        let entry = Run {
            reconciler: index,
            uid: Arc::clone(&key),
            call,
            writes_before: self.writes.as_ref().map_or(0, |writes| writes.mark()),
            is_stopping: false,
            is_cancelled: false,
            is_timed_out: false,
            started: now,
            span,
        };
        self.runs.insert(run, entry);
        self.establish(index, &key, now, effects);
    }

    /// Sets the stop flag of a call, and limits the time until its end.
    pub(super) fn stop(&mut self, run: RunId, reasons: StopReasons, now: Timestamp, effects: &mut Effects) {
        let Some(entry) = self.runs.get_mut(&run).filter(|entry| !entry.is_stopping) else { return };
        entry.is_stopping = true;
        let grace = self.reconcilers[entry.reconciler].options.exit_timeout;
        self.deadlines.insert((now.plus(grace), run), Deadline::Exit);
        effects.tasks.push(HostTask::StopReconciler { run, reasons, cancel: None });
    }

    /// Sets the stop flags of all calls.
    pub(super) fn stop_all(&mut self, reasons: StopReasons, now: Timestamp, effects: &mut Effects) {
        let runs: Vec<_> = self.runs.keys().copied().collect();
        for run in runs {
            self.stop(run, reasons, now, effects);
        }
    }

    /// Cancels all calls: the operator does not wait any longer.
    pub(super) fn cancel_all(&mut self, effects: &mut Effects) {
        for (run, entry) in &mut self.runs {
            entry.is_cancelled = true;
            let (reasons, cancel) = (StopReasons::CANCELLED, Some(Cancellation::Stopped));
            effects.tasks.push(HostTask::StopReconciler { run: *run, reasons, cancel });
        }
    }

    /// Cancels the calls whose time is over.
    pub(super) fn expire(&mut self, now: Timestamp, effects: &mut Effects) {
        while let Some((&(at, run), &deadline)) = self.deadlines.first_key_value() {
            if at > now {
                return;
            }
            self.deadlines.remove(&(at, run));
            let Some(entry) = self.runs.get_mut(&run).filter(|entry| !entry.is_cancelled) else { continue };
            entry.is_cancelled = true;
            entry.is_timed_out = deadline == Deadline::Timeout;
            // Deletion handlers do not wait for cancelled calls.
            effects.has_ended = true;
            let cancel = match deadline {
                Deadline::Timeout => Cancellation::TimedOut,
                Deadline::Exit => Cancellation::Stopped,
            };
            let reasons = StopReasons::CANCELLED;
            effects.tasks.push(HostTask::StopReconciler { run, reasons, cancel: Some(cancel) });
        }
    }

    /// Takes the result of a call. Returns its patch, if there is one to be written.
    fn on_reply(
        &mut self,
        run: RunId,
        reply: Option<CallReconcilerReply>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Option<CallPatch> {
        let entry = self.runs.get(&run)?;
        let (index, key) = (entry.reconciler, Arc::clone(&entry.uid));
        let is_dropped = entry.is_cancelled && !entry.is_timed_out;
        let span = entry.span.clone();
        let Reconciler { primaries, label, .. } = &self.reconcilers[index];
        let Some(primary) = primaries.get(&key) else {
            self.finish(run, ReconcileResult::Cancelled, None, now, effects);
            return None;
        };
        let Some(CallReconcilerReply { result, patch, fns, conditions }) = reply else {
            let text = format!("The call of {label} was lost because of an internal error. It is repeated.");
            effects.records.push(LogRecord::posted(Level::Error, &primary.object, text));
            self.finish(run, ReconcileResult::Failed(None), None, now, effects);
            return None;
        };
        let patch = patch.unwrap_or_default();
        // The patch of a primary that is gone is dropped silently (F9).
        let is_empty = patch.is_empty() && !fns && conditions.is_none();
        if is_empty || is_dropped || primary.is_gone {
            self.finish(run, result, None, now, effects);
            return None;
        }
        let (resource, object) = (Arc::clone(&primary.resource), Arc::clone(&primary.object));
        Some(CallPatch {
            uid: key,
            reconciler: index,
            resource,
            object,
            patch,
            fns,
            conditions,
            result,
            span,
        })
    }

    /// Ends a call after its writes. `latest` is the state in the response to the last one.
    pub(super) fn finish(
        &mut self,
        run: RunId,
        result: ReconcileResult,
        latest: Option<&Arc<Object>>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Some(entry) = self.runs.remove(&run) else { return };
        self.deadlines.retain(|(_, of), _| *of != run);
        effects.tasks.push(HostTask::ReconcilerEnded(run));
        effects.has_ended = true;
        let (index, key) = (entry.reconciler, entry.uid);
        self.on_response(index, &key, latest, now);
        let deadline = self.await_writes(index, &key, entry.writes_before);
        let Reconciler { primaries, queue, policy, label, measured, options, .. } =
            &mut self.reconcilers[index];
        queue.release();
        let Some(primary) = primaries.get_mut(&key) else { return };
        primary.run = None;
        // The call has read it.
        if primary.object.is_plain() {
            primary.object = kept(&primary.object);
        }
        let hot_loop = primary.on_finish(options.hot_loop);
        let conclusion = primary.schedule.finish(result, deadline, policy, now, fastrand::f64());
        measured.ended(result, conclusion, now.seconds_since(entry.started));
        let object = &primary.object;
        match conclusion {
            Conclusion::Retried(delay) if self.is_debug => {
                let text = format!("{label} is retried in {delay:.3} seconds.");
                effects.records.push(LogRecord::local(Level::Debug, object, text));
            }
            Conclusion::GaveUp if entry.call == Call::Deleting => {
                let text = format!("{label} has given up, and releases the object that is being deleted.");
                effects.records.push(LogRecord::posted(Level::Error, object, text));
            }
            Conclusion::GaveUp => {
                let text = format!("{label} has given up. The next change of the object starts it again.");
                effects.records.push(LogRecord::local(Level::Warning, object, text));
            }
            _ => {}
        }
        if let Some(changes) = hot_loop {
            self.report_hot_loop(index, &key, &changes, effects);
        }
        self.establish(index, &key, now, effects);
    }
}

impl State {
    /// The end of the wait for the writes of a call (A9); none if all are visible.
    ///
    /// The writes of calls that ran at the same time count, too: most of them are visible after some milliseconds.
    fn await_writes(&mut self, index: usize, key: &Arc<str>, before: u64) -> Option<Timestamp> {
        let writes = self.writes.as_ref()?;
        // Those of an earlier call, whose time was over, do not end the wait for these.
        self.unconfirmed.retain(|(of, earlier, _)| (*of, earlier) != (index, key));
        let last = writes.mark();
        if writes.are_visible(before, last) {
            return None;
        }
        self.unconfirmed.push((index, Arc::clone(key), (before, last)));
        Some(writes.deadline())
    }

    /// Starts the primaries whose writes are visible now, if they are due.
    pub(super) fn confirm_writes(&mut self, now: Timestamp, effects: &mut Effects) {
        let Some(writes) = self.writes.clone() else { return };
        let waiting = std::mem::take(&mut self.unconfirmed);
        for (index, key, (before, last)) in waiting {
            if !writes.are_visible(before, last) {
                self.unconfirmed.push((index, key, (before, last)));
                continue;
            }
            let is_running = |primary: &super::state::Primary| primary.run.is_some();
            if let Some(primary) = self.reconcilers[index].primaries.get_mut(&key)
                && !is_running(primary)
            {
                primary.schedule.confirm_writes();
                self.establish(index, &key, now, effects);
            }
        }
    }
}

impl Reconcilers {
    /// Takes the result of a call, in a thread of the host.
    fn on_reply(self: &Arc<Self>, run: RunId, reply: Option<CallReconcilerReply>) {
        let patch = self.with_state(|state, now, effects| state.on_reply(run, reply, now, effects));
        if let Some(patch) = patch {
            self.write(run, patch);
        }
    }

    /// The task that calls the functions of a declaration.
    pub(super) fn inspection(self: &Arc<Self>, inspect: Inspect) -> HostTask {
        let Inspect { reconciler, related, handler, key, resource, object } = inspect;
        let shared = Arc::clone(self);
        let reply = Responder::new(move |inspection| {
            shared.with_state(|state, now, effects| match related {
                None => state.on_primary_inspected(reconciler, &key, inspection, now, effects),
                Some(position) => {
                    state.on_related_inspected((reconciler, position), &key, inspection, now, effects);
                }
            });
        });
        HostTask::InspectObject(Box::new(InspectObjectTask { handler, related, resource, object, reply }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::reconciling::OwnWrites;
    use crate::reconciling::event::Listed;
    use crate::reconciling::testing::{START, UID, event, position, primary, state};

    /// Writes with the numbers of those that are not visible. The wait for them ends 10 seconds after the last one.
    #[derive(Default)]
    struct Written(Mutex<(u64, BTreeSet<u64>)>);

    impl Written {
        fn start(&self) {
            let (last, hidden) = &mut *self.0.lock().unwrap();
            *last += 1;
            hidden.insert(*last);
        }

        fn show(&self, number: u64) {
            self.0.lock().unwrap().1.remove(&number);
        }
    }

    impl OwnWrites for Written {
        fn mark(&self) -> u64 {
            self.0.lock().unwrap().0
        }

        fn are_visible(&self, after: u64, until: u64) -> bool {
            self.0.lock().unwrap().1.range(after + 1..=until).next().is_none()
        }

        fn deadline(&self) -> Timestamp {
            START.plus(10.0 * f64::from(u32::try_from(self.mark()).unwrap()))
        }
    }

    #[tokio::test]
    async fn a9_late_writes_of_an_earlier_call_do_not_end_the_wait_for_those_of_the_last_one() {
        let (mut state, mut effects) = (state(&json!({})), Effects::default());
        let (written, key, policy) =
            (Arc::new(Written::default()), Arc::from(UID), state.reconcilers[0].policy);
        state.writes = Some(Arc::<Written>::clone(&written));
        state.on_primary(0, event(1, Listed::First), START, &mut effects);
        for now in [START, START.plus(10.0)] {
            let before = written.mark();
            primary(&mut state).schedule.start(false, now).unwrap();
            written.start();
            let deadline = state.await_writes(0, &key, before);
            primary(&mut state).schedule.finish(ReconcileResult::Requeued(0.0), deadline, &policy, now, 0.0);
        }
        let due = |state: &State| position(state).unwrap().due;
        assert_eq!(due(&state), START.plus(20.0));
        written.show(1);
        state.confirm_writes(START.plus(11.0), &mut effects);
        assert_eq!(due(&state), START.plus(20.0), "the write of the last call is not visible");
        written.show(2);
        state.confirm_writes(START.plus(12.0), &mut effects);
        assert!(due(&state) < START.plus(20.0));
    }
}
