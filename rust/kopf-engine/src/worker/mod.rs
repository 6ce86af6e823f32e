//! The worker of one object: executes the actions of its state machine while there are any.
//!
//! The rules are in `kopf_core::object_worker`. The worker submits the commands of cycles to the host, sleeps, and writes the
//! decisions. After unexpected errors, only this object is delayed, never the operator.

use std::sync::Arc;

use kopf_core::activation::{Activation, Completion};
use kopf_core::cycle::{Decision, EffectResult};
use kopf_core::daemon::DesiredDaemons;
use kopf_core::log_level::Level;
use kopf_core::object_worker::{
    Concluded, CycleEffect, DecidedWrite, Finished, Next, OperatorState, QueuedEvent, RunningCycle,
    SleepKind, Step, WorkerLog,
};
use kopf_core::time::Timestamp;
use tokio::sync::{Notify, oneshot};

use crate::context::OperatorContext;
use crate::daemons::Reconciled;
use crate::host::{ActivationTask, CycleId, HostTask, LogRecord, Responder};
use crate::objects::dispatcher::{Dispatcher, WorkerTask};
use crate::supervision::{Panicked, guarded};
use crate::time::duration::seconds;

mod finish;
mod pool;

pub use pool::Pool;

const LOGGER: &str = "kopf._core.reactor.queueing";
/// Seconds until a worker continues after a panic outside of a cycle.
const PANIC_PAUSE: f64 = 1.0;

/// The worker of one object.
pub struct Worker {
    /// The dispatcher of the object.
    pub dispatcher: Arc<Dispatcher>,
    /// The key of the object.
    pub key: Arc<str>,
    /// Notified about new events of the object.
    pub arrived: Arc<Notify>,
    /// The object is from a listing: the backlog continues when it is done.
    pub is_listed: bool,
}

impl Worker {
    /// Runs until there is no work left for the object. A panic is treated as any unexpected error: the object is delayed.
    pub async fn run(self, task: Option<WorkerTask>) {
        let _permit = match &self.dispatcher.limit {
            Some(limit) => limit.acquire().await.ok(),
            None => None,
        };
        let (mut task, mut is_listed) = (task, self.is_listed);
        // After a panic outside of a cycle, there is no event to retry; the worker continues with newer ones.
        while let Err(panicked) =
            guarded("The worker of the object", self.work(task.take(), &mut is_listed)).await
        {
            let text = format!("{panicked}. It goes on with the next event of the object {}.", self.key);
            self.shared().host.log(LogRecord::general(Level::Error, LOGGER, text));
            tokio::time::sleep(seconds(PANIC_PAUSE)).await;
        }
        if is_listed {
            self.dispatcher.advance().await;
        }
        self.shared().freed.notify_waiters();
    }

    async fn work(&self, task: Option<WorkerTask>, is_listed: &mut bool) {
        let killing = &self.shared().killing;
        let mut first = task;
        loop {
            let task = match first.take() {
                Some(task) => task,
                None => match self.next_cycle().await {
                    Some(running) => WorkerTask::Cycle(running),
                    None => break,
                },
            };
            let (id, event) = match &task {
                WorkerTask::Cycle(running) => (running.id, running.event().clone()),
                WorkerTask::Write { id, write, .. } => (*id, write.event.clone()),
            };
            let is_over = tokio::select! {
                done = guarded("The cycle of the object", self.execute(task)) => {
                    if let Err(panicked) = done {
                        self.recover(id, event, &panicked);
                    }
                    false
                }
                () = killing.cancelled() => {
                    self.shared().host.submit(HostTask::Cancel(id));
                    true
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

    /// Handles a panic of the cycle: the object is delayed and handled again.
    fn recover(&self, id: CycleId, event: QueuedEvent, panicked: &Panicked) {
        self.dispatcher.with_slots(|slots, effects| {
            if let Some(slot) = slots.get(&self.key) {
                self.dispatcher.on_panic(slot, event, panicked, true, effects);
            }
        });
        self.shared().host.submit(HostTask::Close { cycle: id, carry: false });
    }

    fn shared(&self) -> &Arc<OperatorContext> {
        &self.dispatcher.shared
    }

    /// Executes the actions of the object until the next cycle, and opens it; none if the object is idle, or the operator is
    /// stopping.
    async fn next_cycle(&self) -> Option<Box<RunningCycle>> {
        let mut slept_until = None;
        loop {
            let pauses = self.shared().pause.count();
            match self.next_action(slept_until.take())? {
                Next::Idle => return None,
                Next::Start(event) => {
                    if let Some(running) = self.open(event) {
                        return Some(running);
                    }
                }
                // Rarely used futures are boxed, to keep the future of the worker small.
                Next::Sleep { until, kind } => {
                    if Box::pin(self.sleep(until, kind, pauses)).await? {
                        slept_until = Some(until);
                    }
                }
                Next::Touch(event) => Box::pin(self.touch(&event)).await,
            }
        }
    }

    /// The next action of the object, after a sleep until this time. If it is idle, its slot is retired at once.
    fn next_action(&self, slept_until: Option<Timestamp>) -> Option<Next> {
        let shared = self.shared();
        let operator =
            OperatorState { paused: shared.pause.is_on(), stopping: shared.stopping.is_cancelled() };
        let clock = shared.clock.now();
        let now = slept_until.map_or(clock, |until| clock.max(until));
        let current = shared.current.get();
        let mut slots = self.dispatcher.slots();
        let worker = &mut slots.get(&self.key)?.worker;
        let Step { next, log } = worker.next(self.dispatcher.worker_context(&current), operator, now);
        if matches!(next, Next::Idle) {
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
    fn open(&self, event: QueuedEvent) -> Option<Box<RunningCycle>> {
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
        let _nap = shared.sleeping();
        let sleep = shared.clock.sleep(seconds(until.seconds_since(shared.clock.now())));
        if kind == SleepKind::Backoff {
            return tokio::select! {
                () = sleep => Some(true),
                () = shared.stopping.cancelled() => None,
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
            () = shared.stopping.cancelled() => {}
        }
        Some(false)
    }

    /// Waits for the next event of the object.
    async fn arrival(&self) {
        while !self.has_news() {
            self.arrived.notified().await;
        }
    }

    fn has_news(&self) -> bool {
        self.dispatcher.slots().get(&self.key).is_some_and(|slot| slot.worker.has_news())
    }

    /// Executes a task: a cycle from its effects to the write of its decision, or the write only.
    async fn execute(&self, task: WorkerTask) {
        let mut running = match task {
            WorkerTask::Cycle(running) => running,
            WorkerTask::Write { id, closed, write } => return self.write((id, closed), write).await,
        };
        let Some(decision) = self.drive(&mut running).await else {
            // The host has failed to complete the activation, and has logged why: the next event is handled nevertheless.
            return self.dispatcher.close(&running, Finished::default());
        };
        let end = (running.id, running.closed);
        match self.decide(&running, *decision) {
            None => {}
            Some(Concluded::Finished(finished)) => self.dispatcher.close_cycle(end, finished),
            Some(Concluded::Write(write)) => {
                drop(running);
                self.write(end, write).await;
            }
        }
    }

    fn decide(&self, running: &RunningCycle, decision: Decision) -> Option<Concluded> {
        let current = self.shared().current.get();
        let (context, now) = (self.dispatcher.worker_context(&current), self.shared().clock.now());
        let mut slots = self.dispatcher.slots();
        Some(slots.get(&self.key)?.worker.on_decision(running, decision, context, now))
    }

    async fn write(&self, end: (CycleId, bool), write: Box<DecidedWrite>) {
        let finished = Box::pin(self.write_decision(end.0, *write)).await;
        self.dispatcher.close_cycle(end, finished);
    }

    /// Executes the effects of the cycle until its decision; none if the host does not complete an activation.
    async fn drive(&self, running: &mut RunningCycle) -> Option<Box<Decision>> {
        loop {
            match running.effect()? {
                CycleEffect::Decide(decision) => return Some(decision),
                CycleEffect::AwaitConsistency => {
                    let is_reached = self.await_consistency().await;
                    running.on_consistency(is_reached, self.shared().clock.now());
                }
                CycleEffect::Spawn(desired) => {
                    let (delay, holds) = Box::pin(self.reconcile_daemons(&desired, running)).await;
                    running.on_daemons(delay, holds, self.shared().clock.now());
                }
                CycleEffect::Run(activation) => {
                    let completion = self.activate(running, activation).await?;
                    running.on_completion(completion, self.shared().clock.now());
                }
            }
            self.dispatcher.emit_log(running);
        }
    }

    /// Submits an activation and waits for its completion; none if the host drops it.
    async fn activate(&self, running: &mut RunningCycle, activation: Activation) -> Option<Completion> {
        let (reply, answer) = oneshot::channel();
        self.shared().host.submit(HostTask::Activation(ActivationTask {
            cycle: running.id,
            uid: Arc::clone(&self.key),
            resource: Arc::clone(&self.dispatcher.plan.resource),
            event: running.event().kind,
            object: Arc::clone(running.object()),
            activation,
            reply: Responder::through(reply),
        }));
        let mut completion = answer.await.ok()?;
        if running.is_indexing()
            && let Some(slot) = self.dispatcher.slots().get(&self.key)
        {
            running.record_indexing(&mut slot.worker, &mut completion, &self.shared().rules.registry);
        }
        Some(completion)
    }

    /// Starts and stops daemons and timers; waits a moment for those that stop. Returns the delay until the next check, and whether
    /// they hold the deletion.
    async fn reconcile_daemons(
        &self,
        desired: &DesiredDaemons,
        running: &RunningCycle,
    ) -> (Option<f64>, bool) {
        let reconciled = {
            let mut slots = self.dispatcher.slots();
            slots
                .get(&self.key)
                .map(|slot| self.dispatcher.reconcile_daemons(slot, &running.event().object, desired))
        };
        match reconciled {
            Some(Reconciled::Done(EffectResult::Spawned { delay, holds })) => (delay, holds),
            Some(Reconciled::Stopping { object_daemons, holds }) => {
                (object_daemons.terminate_step(&self.shared().daemons, false).await, holds)
            }
            None | Some(Reconciled::Done(_)) => (None, false),
        }
    }

    /// Waits for the watch event caused by our write until its timeout; false if another event came before.
    async fn await_consistency(&self) -> bool {
        let shared = self.shared();
        let mut now = shared.clock.now();
        loop {
            let wait = self.dispatcher.slots().get(&self.key).map(|slot| slot.worker.await_consistency(now));
            let deadline = match wait {
                Some(Err(deadline)) => deadline,
                Some(Ok(is_reached)) => return is_reached,
                None => return true,
            };
            tokio::select! {
                () = shared.clock.sleep(seconds(deadline.seconds_since(now))) => {
                    now = shared.clock.now().max(deadline);
                }
                () = self.arrival() => return false,
                () = shared.stopping.cancelled() => return false,
            }
        }
    }
}
