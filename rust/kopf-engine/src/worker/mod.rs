//! The worker of one object: executes the actions of its state machine while there are any.
//!
//! The rules are in `kopf_core::object_worker`. The worker submits the commands of cycles to the host, sleeps, and writes the
//! decisions. After unexpected errors, only this object is delayed, never the operator.

use std::sync::Arc;

use kopf_core::cycle::{Decision, EffectResult};
use kopf_core::daemon::DesiredDaemons;
use kopf_core::log_level::Level;
use kopf_core::object_worker::{
    CycleEffect, DecidedWrite, DecisionResult, NextAction, QueuedEvent, SleepKind, Transition, WorkerLog,
};
use kopf_core::time::Timestamp;
use tracing::Instrument as _;

use crate::context::DispatchContext;
use crate::daemons::DaemonDiffResult;
use crate::host::{CycleId, HostTask, LogRecord, Logger};
use crate::objects::dispatcher::{CycleError, CycleSummary, Dispatcher, WorkerTask};
use crate::objects::open_cycle::OpenCycle;
use crate::objects::worker_signals::WorkerSignals;
use crate::supervision::guarded;
use crate::term_work::EnteredTerm;
use crate::time::duration::seconds;

mod activating;
mod permit;
mod pool;
mod write;

pub use pool::Pool;

use permit::WorkerPermit;

const LOGGER: Logger = Logger::Queueing;
/// Seconds until a worker continues after a panic outside of a cycle.
const PANIC_DELAY: f64 = 1.0;

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
        let task = task.filter(|task| !(task.is_dropped_in_pause() && self.is_paused()));
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

    fn is_paused(&self) -> bool {
        self.dispatcher.is_paused(&self.dispatcher.slots())
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
            match self.next_action(slept_until.take())? {
                NextAction::Idle => return None,
                NextAction::Start(event) => {
                    if let Some(running) = self.open(event) {
                        return Some(running);
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

    /// The next action of the object, after a sleep until this time. If it is idle, its slot is retired at once.
    fn next_action(&self, slept_until: Option<Timestamp>) -> Option<NextAction> {
        let shared = self.shared();
        let clock = shared.base.clock.now();
        let now = slept_until.map_or(clock, |until| clock.max(until));
        let current = shared.base.live_config.get();
        let mut slots = self.dispatcher.slots();
        let operator = self.dispatcher.operator_state(&slots);
        let slot = slots.get(&self.key)?;
        let Transition { next, log } = slot.next(self.dispatcher.worker_context(&current), operator, now);
        if matches!(next, NextAction::Idle) {
            self.dispatcher.finish(slots, &self.key);
        } else {
            drop(slots);
        }
        self.log(log);
        Some(next)
    }

    fn log(&self, lines: Vec<WorkerLog>) {
        for line in lines {
            self.dispatcher.log(&line, None);
        }
    }

    /// Opens the cycle of the event; none if that has panicked.
    fn open(&self, event: QueuedEvent) -> Option<Box<OpenCycle>> {
        let start = self.dispatcher.with_slots(|slots, effects| {
            let slot = slots.get(&self.key)?;
            self.dispatcher.prepare(slot, event, effects)
        })?;
        self.dispatcher.open(&self.key, start).map(Box::new)
    }

    /// Sleeps until this time; true if the sleep was not interrupted. None if the worker ends: the operator is stopping, and the
    /// object is held after an error.
    async fn sleep(&self, until: Timestamp, kind: SleepKind, pauses: u64) -> Option<bool> {
        let shared = self.shared();
        let _nap = (shared.sleeping(), self.signals.wait_outside());
        let sleep = shared.base.clock.sleep(seconds(until.seconds_since(shared.base.clock.now())));
        if kind == SleepKind::Backoff {
            return tokio::select! {
                () = sleep => Some(true),
                () = self.early_end_of_backoff() => Some(false),
                () = shared.base.stopping.cancelled() => None,
                () = self.term.ending.cancelled() => {
                    if let Some(slot) = self.dispatcher.slots().get(&self.key) {
                        slot.worker.on_term_lost();
                    }
                    Some(false)
                }
            };
        }
        tokio::select! {
            () = sleep => return Some(true),
            () = self.arrival() => {}
            () = shared.pause.paused_since(pauses) => {
                if let Some(slot) = self.dispatcher.slots().get(&self.key) {
                    slot.worker.on_pause();
                }
            }
            () = shared.base.stopping.cancelled() => {}
        }
        Some(false)
    }

    /// Waits until nothing is to be awaited any more: the object does not exist, or another worker continues with it.
    async fn early_end_of_backoff(&self) {
        let is_held = || {
            let now = self.shared().base.clock.now();
            self.dispatcher.slots().get(&self.key).is_some_and(|slot| slot.worker.is_held(now))
        };
        while is_held() {
            self.signals.arrived.notified().await;
        }
    }

    /// Waits for the next event of the object.
    async fn arrival(&self) {
        while !self.has_events() {
            self.signals.arrived.notified().await;
        }
    }

    fn has_events(&self) -> bool {
        self.dispatcher.slots().get(&self.key).is_some_and(|slot| slot.worker.has_events())
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

    async fn write(&self, end: (CycleId, bool), summary: CycleSummary, write: Box<DecidedWrite>) {
        self.signals.set_cycle(Some(summary.opened));
        // Requests have their own timeouts, and problems of the API server are none of the engine.
        let outside = self.signals.wait_outside();
        let finished = Box::pin(self.write_decision(end.0, *write)).await;
        drop(outside);
        self.dispatcher.count_cycle(summary, true);
        self.dispatcher.close_cycle(end, finished);
    }

    /// Executes the effects of the cycle until its decision; none if the host does not complete an activation.
    async fn drive(&self, running: &mut OpenCycle) -> Option<Box<Decision>> {
        let mut has_called = running.has_run();
        loop {
            if self.is_paused() {
                running.on_pause();
            }
            match running.effect()? {
                CycleEffect::Decide(decision) => return Some(decision),
                CycleEffect::AwaitConsistency => {
                    let is_reached = self.await_consistency().await;
                    running.on_consistency(is_reached, self.shared().base.clock.now());
                }
                CycleEffect::Spawn(desired) => {
                    let (delay, holds) = Box::pin(self.apply_daemon_diff(&desired, running)).await;
                    running.on_daemons(delay, holds, self.shared().base.clock.now());
                }
                CycleEffect::Run(activation) => {
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
            Some(DaemonDiffResult::Done(EffectResult::Spawned { delay, holds })) => (delay, holds),
            Some(DaemonDiffResult::Stopping { holds, .. }) => (None, holds),
            None | Some(DaemonDiffResult::Done(_)) => (None, false),
        }
    }

    /// Waits for the watch event caused by our write until its timeout; false if another event or a pause came before.
    async fn await_consistency(&self) -> bool {
        let shared = self.shared();
        let _outside = self.signals.wait_outside();
        let mut now = shared.base.clock.now();
        loop {
            let pauses = shared.pause.count();
            let deadline = match self.consistency(now) {
                Some(Err(deadline)) => deadline,
                Some(Ok(is_reached)) => return is_reached,
                None => return true,
            };
            tokio::select! {
                () = shared.base.clock.sleep(seconds(deadline.seconds_since(now))) => {
                    now = shared.base.clock.now().max(deadline);
                }
                () = self.arrival() => return false,
                () = shared.pause.paused_since(pauses), if !shared.base.startup_config.settings.compat => {}
                () = shared.base.stopping.cancelled() => return false,
            }
        }
    }

    /// Whether the cycle may continue, or the end of its wait; none if there is no slot.
    fn consistency(&self, now: Timestamp) -> Option<Result<bool, Timestamp>> {
        let current = self.shared().base.live_config.get();
        let mut slots = self.dispatcher.slots();
        let operator = self.dispatcher.operator_state(&slots);
        let worker = &mut slots.get(&self.key)?.worker;
        Some(worker.await_consistency(self.dispatcher.worker_context(&current), operator, now))
    }
}
