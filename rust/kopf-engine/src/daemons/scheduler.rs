//! The scheduler: one task and one heap for all sleeping daemons and timers, and for the results of their calls.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use kopf_core::backoff::Backoff;
use kopf_core::daemon::DaemonAction;
use kopf_core::handler::label;
use kopf_core::handling::attempt::Outcome;
use kopf_core::json::merge_patch::Patch;
use kopf_core::log_level::Level;
use kopf_core::time::Timestamp;
use kopf_core::writes::{WriteOutcome, WriteRequest};

use super::object::commands::{ScheduledRun, SchedulerCommand};
use super::object::effects::Effects;
use super::object::{ObjectDaemons, Run, RunState, State, declared};
use crate::daemons::DaemonContext;
use crate::host::{CallDaemonReply, LogRecord, RunId};
use crate::patching::Patching;
use crate::time::duration::seconds;

/// Maximum number of commands that are processed at once.
const BATCH: usize = 1_000;
/// Number of scheduled runs above which wake-ups are coalesced: single wake-ups would cost more than the calls.
const COALESCE_ABOVE: usize = 100;
/// Seconds between coalesced wake-ups.
const COALESCE_WINDOW: f64 = 0.008;
/// Number of scheduled runs up to which outdated ones are kept until their time.
const SWEEP_ABOVE: usize = 1_000;
/// The delays before a failed patch is sent again.
pub(crate) const WRITE_RETRIES: Backoff = Backoff::limited(&[1.0, 2.0, 5.0]);

/// Runs the scheduler until the end of the operator.
pub async fn run_scheduler(shared: Arc<DaemonContext>) {
    let Some(mut receiver) = shared.manager.command_sender.take() else { return };
    let clock = shared.base.clock.clone();
    let mut scheduler = Scheduler::new(shared);
    let mut messages = Vec::new();
    loop {
        let next = scheduler.next();
        tokio::select! {
            biased;
            count = receiver.recv_many(&mut messages, BATCH) => {
                if count == 0 {
                    return;
                }
            }
            () = clock.sleep_until(next.unwrap_or(Timestamp::from_micros(0))), if next.is_some() => {}
        }
        let mut out = Effects::default();
        for message in messages.drain(..) {
            scheduler.handle(message, &mut out);
        }
        scheduler.run_due(&mut out);
        for due in out.take_sleeps() {
            scheduler.push(due);
        }
        out.flush(&scheduler.shared);
    }
}

struct Scheduler {
    shared: Arc<DaemonContext>,
    heap: BinaryHeap<Reverse<ScheduledRun>>,
    /// Above this number of entries, the outdated ones are removed from the heap: at most as many as the others stay in it.
    sweep_above: usize,
    /// The time of the last coalesced wake-up.
    coalesced_at: Option<Timestamp>,
}

impl Scheduler {
    fn new(shared: Arc<DaemonContext>) -> Self {
        Self { shared, heap: BinaryHeap::new(), sweep_above: SWEEP_ABOVE, coalesced_at: None }
    }

    /// Schedules a run.
    fn push(&mut self, due: ScheduledRun) {
        self.heap.push(Reverse(due));
        if self.heap.len() > self.sweep_above {
            self.heap.retain(|Reverse(due)| due.is_current());
            self.sweep_above = SWEEP_ABOVE.max(2 * self.heap.len());
            self.heap.shrink_to(self.sweep_above);
        }
    }

    /// The time of the next wake-up; none if nothing is scheduled.
    fn next(&self) -> Option<Timestamp> {
        let Reverse(first) = self.heap.peek()?;
        let is_coalesced = self.heap.len() > COALESCE_ABOVE;
        Some(
            self.coalesced_at
                .filter(|_| is_coalesced)
                .map_or(first.at, |last| first.at.max(last.plus(COALESCE_WINDOW))),
        )
    }

    /// Starts all runs that are due.
    fn run_due(&mut self, out: &mut Effects) {
        let now = self.shared.base.clock.now();
        if self.next().is_none_or(|next| next > now) {
            return;
        }
        while self.heap.peek().is_some_and(|Reverse(first)| first.at <= now) {
            let Some(Reverse(due)) = self.heap.pop() else { break };
            let Some(object_daemons) = due.object_daemons.upgrade() else { continue };
            let mut state = object_daemons.state();
            let Some(position) = due.position_in(&state) else { continue };
            let run = &state.runs[position];
            if let Some(metrics) = self.shared.base.metrics.handlers.get(run.routine.handler()) {
                metrics.on_due(now.seconds_since(due.at));
            }
            state.apply_action(
                &self.shared,
                &object_daemons,
                position,
                DaemonAction::Sleep(due.at),
                now,
                out,
            );
        }
        self.coalesced_at = Some(now);
    }

    fn handle(&mut self, message: SchedulerCommand, out: &mut Effects) {
        match message {
            SchedulerCommand::Sleep(due) => self.push(due),
            SchedulerCommand::Delayed { object_daemons, run, delay } => {
                self.delayed(&object_daemons, run, delay, out);
            }
            SchedulerCommand::Returned { object_daemons, run, reply } => {
                self.returned(object_daemons, run, reply, out);
            }
            SchedulerCommand::Written { object_daemons, run, outcome, written } => {
                self.written(&object_daemons, run, &outcome, *written, out);
            }
            SchedulerCommand::Flush(reply) => {
                // The receiver may be dropped.
                let _ = reply.send(());
            }
            SchedulerCommand::Wake(objects) => SchedulerCommand::wake_all(&objects),
            SchedulerCommand::Many(messages) => {
                for message in messages {
                    self.handle(message, out);
                }
            }
        }
    }

    fn delayed(
        &self,
        object_daemons: &Arc<ObjectDaemons>,
        run: RunId,
        delay: Option<f64>,
        out: &mut Effects,
    ) {
        let mut state = object_daemons.state();
        let Some(position) = state.find(run) else { return };
        let now = self.shared.base.clock.now();
        let run = &state.runs[position];
        match delay {
            Some(delay) if !run.stopping.is_requested() => {
                let next = run.routine.delayed(delay, now);
                state.apply_action(&self.shared, object_daemons, position, next, now, out);
            }
            _ => state.exit(&self.shared, object_daemons, position, out),
        }
    }

    fn returned(
        &self,
        object_daemons: Arc<ObjectDaemons>,
        run: RunId,
        reply: Option<CallDaemonReply>,
        out: &mut Effects,
    ) {
        let mut state = object_daemons.state();
        let Some(position) = state.find(run) else { return };
        let Some(reply) = reply else { return self.repeat_lost(&mut state, &object_daemons, position, out) };
        let (handler, began) = (state.runs[position].routine.handler(), state.runs[position].routine.began());
        if let Some(metrics) = self.shared.base.metrics.handlers.get(handler) {
            match &reply.outcome {
                Some(outcome) => metrics.on_background_outcome(outcome, began),
                None => metrics.on_cancelled(),
            }
        }
        let Some(outcome) = reply.outcome else {
            return state.exit(&self.shared, &object_daemons, position, out);
        };
        let patch = Patch(reply.patch.unwrap_or_default());
        if patch.is_empty() && !reply.fns {
            return state.advance(&self.shared, &object_daemons, position, &outcome, out);
        }
        let run_state = &mut state.runs[position];
        run_state.state = RunState::Writing;
        // While the error backoff of earlier failures lasts, a patch is sent once.
        let may_retry = !self.shared.base.startup_config.settings.compat
            && !is_throttled(run_state, self.shared.base.clock.now());
        let object = Arc::clone(state.patched.as_ref().unwrap_or(&state.object));
        let resource = Arc::clone(&state.resource);
        drop(state);
        let shared = Arc::clone(&self.shared);
        let writing = async move {
            let is_deleted = || object_daemons.is_deleted();
            let owner = object_daemons.owner();
            let patching = Patching {
                client: owner.as_ref().map_or(&shared.base.client, |owner| owner.client()),
                host: &shared.base.host,
                resource: &resource,
                finalizer: &shared.base.live_config.get().settings.persistence.finalizer,
                compat: shared.base.startup_config.settings.compat,
                is_versioned: shared.base.startup_config.settings.has_preconditions(),
                is_deleted: &is_deleted,
                release_cleanup: None,
                handling: None,
                partial: None,
                conditions: None,
            };
            let ending = shared.base.term.ending();
            let mut retries = if may_retry { WRITE_RETRIES } else { Backoff::NEVER }.retries();
            let (mut patch, functions) = (patch, reply.fns);
            let written = loop {
                let change = WriteRequest { patch, functions, ..WriteRequest::default() };
                let written = patching.apply(&object, run, change).await.failing_with_rejections();
                let Some((left, delay)) = written.left().zip(retries.next(None, 0.0)) else { break written };
                tokio::select! {
                    () = shared.base.clock.sleep(seconds(delay.seconds)) => {}
                    () = shared.base.stopping.cancelled() => {}
                    () = ending.cancelled() => {}
                }
                patch = left;
            };
            let written = Box::new(written);
            shared.manager.send(SchedulerCommand::Written { object_daemons, run, outcome, written });
        };
        let giving_up = self.shared.manager.giving_up.clone();
        let writing = Box::pin(writing);
        let writing = async move { giving_up.run_until_cancelled(writing).await.unwrap_or_default() };
        let guarded = self.shared.base.failing.guard("The patching after a daemon or timer", writing);
        self.shared.manager.writers.spawn(guarded);
    }

    /// Repeats a call that was lost, e.g. because the task that submitted it has panicked. It does not count as an attempt.
    fn repeat_lost(
        &self,
        state: &mut State,
        object_daemons: &Arc<ObjectDaemons>,
        position: usize,
        out: &mut Effects,
    ) {
        let run = &state.runs[position];
        if run.stopping.is_requested() {
            return state.exit(&self.shared, object_daemons, position, out);
        }
        let now = self.shared.base.clock.now();
        let delay = self.shared.base.live_config.get().settings.execution.default_backoff;
        if let Some(handler) = declared(&self.shared, run) {
            let label = label::label(handler);
            let text = format!(
                "The call of {label} was lost because of an internal error. It is repeated in {delay} seconds."
            );
            out.entries.push(LogRecord::posted(Level::Error, &state.object, text));
        }
        state.apply_action(
            &self.shared,
            object_daemons,
            position,
            DaemonAction::Sleep(now.plus(delay)),
            now,
            out,
        );
    }

    /// The log level of a patch that has failed. Repeated failures of a run are errors only at the growing intervals of
    /// the error backoff, since a timer may call its handler every second.
    fn level_of_failure(&self, run: &mut Run, is_over: bool) -> Level {
        let now = self.shared.base.clock.now();
        if !is_over && is_throttled(run, now) {
            return Level::Debug;
        }
        run.write_errors.fail(&self.shared.base.live_config.get().settings.queueing.error_delays, now);
        Level::Error
    }

    fn written(
        &self,
        object_daemons: &Arc<ObjectDaemons>,
        run: RunId,
        outcome: &Outcome,
        written: WriteOutcome,
        out: &mut Effects,
    ) {
        if written.failure.is_none()
            && let Some(owner) = object_daemons.owner()
        {
            owner.record_write(&object_daemons.key, written.accepted());
        }
        let mut state = object_daemons.state();
        let Some(position) = state.find(run) else { return };
        match written.failure {
            None => {
                state.runs[position].carry = written.carry;
                state.runs[position].write_errors.succeed();
                if let Some(latest) = written.latest {
                    state.note_patched(latest);
                }
                state.advance(&self.shared, object_daemons, position, outcome, out);
            }
            Some(failure) => {
                // After a rejected patch, the daemon or timer continues.
                let is_over = self.shared.base.startup_config.settings.compat || failure.is_exception();
                let level = if failure.is_fenced() {
                    // The loss of the lease is logged.
                    Level::Debug
                } else {
                    self.level_of_failure(&mut state.runs[position], is_over)
                };
                let handler = state.runs[position].routine.handler();
                if let Some(handler) = self.shared.base.startup_config.registry.handlers.get(handler) {
                    let label = label::label(handler);
                    let what = if is_over { " and ends" } else { "" };
                    let text = format!("{label} has failed to patch the object{what}: {failure}");
                    let entry = LogRecord::posted(level, &state.object, text);
                    let has_traceback = failure.is_exception();
                    self.shared.base.host.log(if has_traceback {
                        entry.with_exception_of(run)
                    } else {
                        entry
                    });
                }
                if is_over {
                    state.exit(&self.shared, object_daemons, position, out);
                } else {
                    state.advance(&self.shared, object_daemons, position, outcome, out);
                }
            }
        }
    }
}

/// Whether the error backoff of a run's patches lasts.
fn is_throttled(run: &Run, now: Timestamp) -> bool {
    run.write_errors.remaining(now).is_some_and(|left| left > 0.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use serde_json::json;

    use super::*;
    use crate::testing::Fixture;

    #[tokio::test(start_paused = true)]
    async fn runs_that_have_ended_do_not_fill_the_heap() {
        let fixture = Fixture::new(&json!({}), |_| (200, None));
        let mut scheduler = Scheduler::new(Arc::clone(&fixture.shared.daemons));
        for run in 0..100_000 {
            let at = Timestamp::from_micros(0).plus(86_400.0);
            scheduler.push(ScheduledRun { at, object_daemons: Weak::new(), run, turn: 0 });
        }
        assert!(scheduler.heap.len() <= SWEEP_ABOVE && scheduler.heap.capacity() <= 2 * SWEEP_ABOVE);
    }
}
