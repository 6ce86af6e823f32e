//! The worker of one object: executes the actions of its state machine while there are any.
//!
//! The rules are in `kopf_core::object_worker`. The worker submits the commands of cycles to the host, sleeps, and writes the
//! decisions. After unexpected errors, only this object is delayed, never the operator.

use std::sync::Arc;

use kopf_core::cycle::{Decision, Effect};
use kopf_core::daemon::DesiredDaemons;
use kopf_core::log_level::Level;
use kopf_core::object_worker::{DecisionResult, NextAction, QueuedEvent, Transition};
use kopf_core::time::Timestamp;
use tokio::runtime::Handle;
use tracing::Instrument as _;

use crate::context::DispatchContext;
use crate::daemons::DaemonDiffResult;
use crate::host::{CycleId, HostTask, LogRecord, Logger};
use crate::objects::dispatcher::{CycleError, CycleSummary, Dispatcher, Work, WorkerPool, WorkerTask};
use crate::objects::open_cycle::{OpenCycle, PreparedCycle};
use crate::objects::worker_signals::WorkerSignals;
use crate::supervision::guarded;
use crate::term_work::EnteredTerm;
use crate::time::duration::seconds;

mod activating;
mod permit;
mod waits;
mod write;

use permit::WorkerPermit;

const LOGGER: Logger = Logger::Queueing;
/// Seconds until a worker continues after a panic outside of a cycle.
const PANIC_DELAY: f64 = 1.0;

/// Runs each worker as a task of the operator.
pub struct Pool;

impl WorkerPool for Pool {
    fn spawn(&self, work: Work, runtime: Option<&Handle>) {
        let Work { dispatcher, key, signals, is_listed, task, term } = work;
        let (workers, failing) =
            (dispatcher.shared.workers.clone(), Arc::clone(&dispatcher.shared.base.failing));
        let running = Worker { dispatcher, key, signals, is_listed, term }.run(task);
        // The worker recovers from panics of its cycles.
        let running = failing.guard("The worker of an object", running);
        match runtime {
            Some(runtime) => drop(workers.spawn_on(running, runtime)),
            None => drop(workers.spawn(running)),
        }
    }
}

/// The worker of one object.
pub struct Worker {
    /// The dispatcher of the object.
    pub dispatcher: Arc<Dispatcher>,
    /// The key of the object.
    pub key: Arc<str>,
    /// The signals between the object's slot and this worker.
    pub signals: Arc<WorkerSignals>,
    /// The object is from a listing: the backlog continues when it is done.
    pub is_listed: bool,
    /// The term to which its work belongs.
    pub term: EnteredTerm,
}

impl Worker {
    /// Runs until there is no work left for the object. A panic is treated as any unexpected error: the object is delayed.
    pub async fn run(self, task: Option<WorkerTask>) {
        let mut permit = WorkerPermit::new(self.dispatcher.limit.as_ref(), self.shared(), &self.signals);
        permit.acquire().await;
        // While the object was waiting for the permit, a pause may have begun.
        let task = task.filter(|task| !task.is_outdated(&self.dispatcher));
        let (mut task, mut is_listed) = (task, self.is_listed);
        // After a panic outside of a cycle, there is no event to retry; the worker continues with newer ones.
        while let Err(panicked) =
            guarded("The worker of the object", self.work(task.take(), &mut is_listed, &mut permit)).await
        {
            let text = format!("{panicked}. It goes on with the next event of the object {}.", self.key);
            self.shared().base.host.log(LogRecord::general(Level::Error, LOGGER, text));
            tokio::time::sleep(seconds(PANIC_DELAY)).await;
        }
        if is_listed {
            self.dispatcher.advance().await;
        }
        self.shared().freed.notify_waiters();
    }

    async fn work(&self, task: Option<WorkerTask>, is_listed: &mut bool, permit: &mut WorkerPermit<'_>) {
        let mut first = task;
        loop {
            let task = match first.take() {
                Some(task) => task,
                None => match self.next_cycle(permit).await {
                    Some(running) => WorkerTask::Cycle(running),
                    None => break,
                },
            };
            let (id, event) = match &task {
                WorkerTask::Cycle(running) => (running.id, running.event().clone()),
                WorkerTask::Write { id, write, .. } => (*id, write.event.clone()),
            };
            let span = task.span().clone();
            let is_over = tokio::select! {
                biased;
                () = self.term.ending.cancelled() => Box::pin(self.cancel(id)).await,
                done = guarded("The cycle of the object", self.execute(task)).instrument(span) => {
                    if let Err(panicked) = done {
                        self.recover(id, event, &panicked.into(), true);
                    }
                    false
                }
            };
            if std::mem::take(is_listed) {
                self.dispatcher.advance().await;
            }
            if is_over {
                break;
            }
        }
    }

    /// Cancels a cycle: the lease is lost, or the operator does not wait any longer, which ends the worker. Returns whether it does.
    /// A lost term ends when the calls have ended; nothing is written, and the object is forgotten.
    async fn cancel(&self, id: CycleId) -> bool {
        let (host, giving_up) = (&self.shared().base.host, &self.shared().force_stopping);
        let ended = self.shared().base.cancel_cycle(id);
        if giving_up.is_cancelled() {
            return true;
        }
        let outside = self.signals.wait_outside();
        tokio::select! {
            // The reply comes in any case.
            _ = ended => {}
            () = giving_up.cancelled() => return true,
        }
        drop(outside);
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.worker.on_term_lost();
        }
        host.submit(HostTask::CycleClosed { cycle: id, keep_fns: false });
        false
    }

    /// Ends a cycle that has failed: the object is delayed and handled again. With `may_be_written`, a part of the cycle may have
    /// been written.
    fn recover(&self, id: CycleId, event: QueuedEvent, error: &CycleError, may_be_written: bool) {
        self.dispatcher.with_slots(|slots, effects| {
            if let Some(slot) = slots.get(&self.key) {
                self.dispatcher.on_internal_error(slot, event, error, may_be_written, effects);
            }
        });
        self.shared().base.host.submit(HostTask::CycleClosed { cycle: id, keep_fns: false });
    }

    fn shared(&self) -> &Arc<DispatchContext> {
        &self.dispatcher.shared
    }

    /// Executes the actions of the object until the next cycle, and opens it; none if the object is idle, or the operator is
    /// stopping. The permit is released during sleeps, so that a sleeping object does not block others; Kopf 1.45 holds it.
    async fn next_cycle(&self, permit: &mut WorkerPermit<'_>) -> Option<Box<OpenCycle>> {
        let mut slept_until = None;
        loop {
            permit.acquire().await;
            let pauses = self.shared().pause.count();
            let (next, prepared) = self.next_action(slept_until.take())?;
            match next {
                NextAction::Idle => return None,
                NextAction::Start(_) => {
                    // None after a panic.
                    if let Some(running) = prepared.and_then(|it| self.dispatcher.open(&self.key, it)) {
                        return Some(Box::new(running));
                    }
                }
                // Rarely used futures are boxed, to keep the future of the worker small.
                NextAction::Sleep { until, kind } => {
                    if !self.shared().base.startup_config.settings.compat {
                        permit.release();
                    }
                    if Box::pin(self.sleep(until, kind, pauses)).await? {
                        slept_until = Some(until);
                    }
                }
                NextAction::Touch(event) => {
                    let _outside = self.signals.wait_outside();
                    Box::pin(self.touch(&event)).await;
                }
            }
        }
    }

    /// The next action of the object, after a sleep until this time. With the same lock, its cycle is prepared, or its slot is retired.
    fn next_action(&self, slept_until: Option<Timestamp>) -> Option<(NextAction, Option<PreparedCycle>)> {
        let shared = self.shared();
        let clock = shared.base.clock.now();
        let now = slept_until.map_or(clock, |until| clock.max(until));
        let current = shared.base.live_config.get();
        let (Transition { next, log }, prepared) = self.dispatcher.with_slots(|slots, effects| {
            let operator = self.dispatcher.operator_state(slots);
            let context = self.dispatcher.worker_context(&current);
            let transition = slots.get(&self.key)?.next(context, operator, now);
            let prepared = match &transition.next {
                NextAction::Start(event) => self.dispatcher.prepare(slots, &self.key, event.clone(), effects),
                NextAction::Idle => {
                    self.dispatcher.retire(slots, &self.key, effects);
                    None
                }
                NextAction::Sleep { .. } | NextAction::Touch(_) => None,
            };
            Some((transition, prepared))
        })?;
        for line in log {
            self.dispatcher.log(&line, None);
        }
        Some((next, prepared))
    }

    /// Executes a task: a cycle from its effects to the write of its decision, or the write only.
    async fn execute(&self, task: WorkerTask) {
        let mut running = match task {
            WorkerTask::Cycle(running) => running,
            WorkerTask::Write { id, closed, summary, write, .. } => {
                return self.write((id, closed), summary, write).await;
            }
        };
        self.signals.set_cycle(Some(running.opened()));
        let Some(decision) = self.drive(&mut running).await else {
            return self.recover(running.id, running.event().clone(), &CycleError::Lost, false);
        };
        let (end, summary) = ((running.id, running.closed), CycleSummary::of(&running));
        match self.decide(&running, *decision) {
            None => {}
            Some(DecisionResult::Finished(finished)) => {
                self.dispatcher.count_cycle(summary, false);
                self.dispatcher.close_cycle(end, finished);
            }
            Some(DecisionResult::Write(write)) => {
                drop(running);
                self.write(end, summary, write).await;
            }
        }
    }

    fn decide(&self, running: &OpenCycle, decision: Decision) -> Option<DecisionResult> {
        let current = self.shared().base.live_config.get();
        let (context, now) = (self.dispatcher.worker_context(&current), self.shared().base.clock.now());
        let mut slots = self.dispatcher.slots();
        let worker = &mut slots.get(&self.key)?.worker;
        let foreign_write = worker.foreign_write(running, &decision, context);
        let result = worker.on_decision(running, decision, context, now);
        drop(slots);
        if let Some(write) = foreign_write {
            self.dispatcher.report_other_operator(running.object(), write);
        }
        Some(result)
    }

    /// Executes the effects of the cycle until its decision; none if the host does not complete an activation.
    async fn drive(&self, running: &mut OpenCycle) -> Option<Box<Decision>> {
        let mut has_called = running.has_run();
        loop {
            if self.dispatcher.has_paused_since(running.pauses()) {
                running.on_pause();
            }
            match running.effect()? {
                Effect::Done(decision) => return Some(decision),
                Effect::AwaitConsistency => {
                    let is_reached = self.await_consistency().await;
                    running.on_consistency(is_reached, self.shared().base.clock.now());
                }
                Effect::Spawn(desired) => {
                    let (delay, holds) = Box::pin(self.apply_daemon_diff(&desired, running)).await;
                    running.on_daemons(delay, holds, self.shared().base.clock.now());
                }
                Effect::Run(activation) => {
                    let completion = self.activate(running, activation, !has_called).await?;
                    has_called = true;
                    running.on_completion(completion, self.shared().base.clock.now());
                }
            }
            self.dispatcher.emit_log(running);
        }
    }

    /// Starts and stops daemons and timers; waits a moment for those that stop. Returns the delay until the next check, and whether
    /// they hold the deletion.
    async fn apply_daemon_diff(&self, desired: &DesiredDaemons, running: &OpenCycle) -> (Option<f64>, bool) {
        let apply = |desired: &DesiredDaemons| {
            let mut slots = self.dispatcher.slots();
            let slot = slots.get(&self.key)?;
            Some(self.dispatcher.apply_daemon_diff(slot, &running.event().object, desired))
        };
        let mut applied = apply(desired);
        if let Some(DaemonDiffResult::Stopping { object_daemons, holds }) = &applied {
            let outside = self.signals.wait_outside();
            let delay = object_daemons.terminate_step(&self.shared().daemons, false).await;
            drop(outside);
            if delay.is_some() {
                return (delay, *holds);
            }
            // Daemons that have stopped meanwhile are started again if the object matches.
            applied = apply(&DesiredDaemons { reset: false, ..desired.clone() });
        }
        match applied {
            Some(DaemonDiffResult::Done { delay, holds }) => (delay, holds),
            Some(DaemonDiffResult::Stopping { holds, .. }) => (None, holds),
            None => (None, false),
        }
    }
}
