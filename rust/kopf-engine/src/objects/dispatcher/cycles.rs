//! The cycles of objects: their start, and their end, if that needs no worker.

use std::sync::{Arc, MutexGuard};

use kopf_core::activation::log::LogMessage;
use kopf_core::cause::EventType;
use kopf_core::cycle::EffectResult;
use kopf_core::log_level::Level;
use kopf_core::object_worker::{
    CycleEffect, CycleStart, DecisionResult, Finished, QueuedEvent, RunningCycle, WorkerLog, WorkerMessage,
};
use kopf_core::slot::Ending;
use tokio::runtime::Handle;

use super::effects::{Effect, Effects};
use super::{CycleSummary, Dispatcher, Work, WorkerTask};
use crate::daemons::DaemonDiffResult;
use crate::host::{CycleId, HostTask, LogRecord};
use crate::objects::open_cycle::OpenCycle;
use crate::objects::slots::{Slot, Slots};
use crate::supervision::{Panicked, shielded};

#[cfg(test)]
thread_local! {
    /// Whether the next decision of a cycle without a worker panics.
    pub(super) static INJECTED_PANIC: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// Whether the next start of a cycle panics.
    pub(super) static INJECTED_START_PANIC: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The reason why a cycle has ended without a decision: an internal error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CycleError {
    /// The cycle has panicked.
    #[error(transparent)]
    Panicked(#[from] Panicked),
    /// The host has dropped an activation, and has logged why.
    #[error("the outcome of the handlers is lost because of an internal error")]
    Lost,
}

/// What remains of an object without work.
pub(super) enum RemovedSlot {
    /// Its slot stays, or there is none.
    Nothing,
    /// Its slot is removed: the host drops its state.
    Forgotten,
    /// Its slot is handed over to the successor.
    HandedOver(Box<Slot>),
}

impl Dispatcher {
    /// Takes the inputs of a cycle for the event. If that panics, the memory is unchanged, and the event is handled after the
    /// error back-off, if there is one.
    pub(crate) fn prepare(
        &self,
        slot: &mut Slot,
        event: QueuedEvent,
        effects: &mut Effects,
    ) -> Option<CycleStart> {
        let (memory, kept) = (slot.worker.memory.clone(), event.clone());
        let current = self.shared.base.live_config.get();
        let prepared = shielded("The cycle of the object", || {
            #[cfg(test)]
            assert!(!INJECTED_START_PANIC.take(), "an injected panic");
            self.refresh(slot, &event.object);
            slot.worker.prepare(event, self.worker_context(&current), self.shared.base.clock.now())
        });
        match prepared {
            Ok(start) => Some(start),
            Err(panicked) => {
                slot.worker.memory = memory;
                self.on_internal_error(slot, kept, &panicked.into(), false, effects);
                None
            }
        }
    }

    /// Opens a cycle, without a lock on the slots. None if that has panicked: see [`Dispatcher::prepare`].
    pub(crate) fn open(self: &Arc<Self>, key: &Arc<str>, start: CycleStart) -> Option<OpenCycle> {
        let kept = start.event().clone();
        let opened = shielded("The cycle of the object", || {
            let (config, now) = (self.shared.base.live_config.get(), self.shared.base.clock.now());
            let id = self.shared.base.next_id();
            let mut running = RunningCycle::open(start, Arc::clone(&self.resource_handlers), config, id, now);
            let applied = running.desired_daemons().and_then(|desired| {
                let mut slots = self.slots();
                Some(self.apply_daemon_diff(slots.get(key)?, &running.event().object, desired))
            });
            if let Some(DaemonDiffResult::Done(EffectResult::Spawned { delay, holds })) = applied {
                running.on_daemons(delay, holds, now);
            }
            running
        });
        match opened {
            Ok(running) => {
                let mut running = OpenCycle::new(running, &self.resource_handlers.resource);
                self.emit_log(&mut running);
                Some(running)
            }
            Err(panicked) => {
                self.with_slots(|slots, effects| {
                    if let Some(slot) = slots.get(key) {
                        self.on_internal_error(slot, kept, &panicked.into(), false, effects);
                    }
                });
                None
            }
        }
    }

    /// Runs a cycle without a worker, as far as that is possible; then starts a worker if it is needed.
    pub(super) fn run(self: &Arc<Self>, key: &Arc<str>, start: CycleStart) {
        let is_listed = start.event().kind == EventType::Listed;
        let Some(mut running) = self.open(key, start) else {
            return self.on_idle(self.slots(), key, is_listed, None, || {});
        };
        if running.only_watches() && self.limit.is_none() && !self.shared.force_stopping.is_cancelled() {
            return self.submit_detached(key, Box::new(running));
        }
        if running.is_decided() {
            // The host does not know this cycle.
            running.closed = true;
            return self.conclude(self.slots(), key, running, is_listed, None);
        }
        let task = WorkerTask::Cycle(Box::new(running));
        let work = self.work(&mut self.slots(), key, is_listed, Some(task));
        work.spawn(None);
    }

    /// Ends a decided cycle that has no worker. Starts a worker if there is something to write, or another action follows.
    pub(super) fn conclude(
        self: &Arc<Self>,
        mut slots: MutexGuard<'_, Slots>,
        key: &Arc<str>,
        mut running: OpenCycle,
        is_listed: bool,
        runtime: Option<&Handle>,
    ) {
        let Some(CycleEffect::Decide(decision)) = running.effect() else { return };
        let Some(slot) = slots.get(key) else { return };
        let current = self.shared.base.live_config.get();
        let now = self.shared.base.clock.now();
        let decided = shielded("The end of the cycle", || {
            #[cfg(test)]
            assert!(!INJECTED_PANIC.take(), "an injected panic");
            slot.worker.on_decision(&running, *decision, self.worker_context(&current), now)
        });
        match decided {
            Err(panicked) => self.abort(slots, key, &running, &panicked.into(), runtime, true),
            Ok(DecisionResult::Write(write)) => {
                let (id, closed, summary) = (running.id, running.closed, CycleSummary::of(&running));
                let span = running.span().clone();
                let task = WorkerTask::Write { id, closed, summary, write, span };
                let work = self.work(&mut slots, key, is_listed, Some(task));
                drop(slots);
                work.spawn(runtime);
            }
            Ok(DecisionResult::Finished(finished)) => {
                self.count_cycle(CycleSummary::of(&running), false);
                self.on_idle(slots, key, is_listed, runtime, || self.close(&running, finished));
            }
        }
    }

    /// Ends a cycle that has failed and has no worker: a worker handles the event after the error back-off. With `was_decided`,
    /// its decision may be recorded in part.
    pub(super) fn abort(
        self: &Arc<Self>,
        mut slots: MutexGuard<'_, Slots>,
        key: &Arc<str>,
        running: &RunningCycle,
        error: &CycleError,
        runtime: Option<&Handle>,
        was_decided: bool,
    ) {
        let Some(slot) = slots.get(key) else { return };
        let mut effects = Effects::default();
        self.on_internal_error(slot, running.event().clone(), error, was_decided, &mut effects);
        let is_listed = running.event().kind == EventType::Listed;
        self.on_idle(slots, key, is_listed, runtime, || {
            effects.take_place(self);
            self.close(running, Finished::default());
        });
    }

    /// No cycle of the object is in progress, and it has no worker: it becomes idle, or a worker starts for its next action.
    /// `report` is called after the lock is released.
    pub(super) fn on_idle(
        self: &Arc<Self>,
        mut slots: MutexGuard<'_, Slots>,
        key: &Arc<str>,
        is_listed: bool,
        runtime: Option<&Handle>,
        report: impl FnOnce(),
    ) {
        let is_busy = slots.get(key).is_some_and(|slot| slot.on_cycle_end() == Ending::Drive);
        let work = is_busy.then(|| self.work(&mut slots, key, false, None));
        let removed = if is_busy { RemovedSlot::Nothing } else { self.retire(&mut slots, key) };
        if is_listed {
            slots.backlog.ended();
            if let Some(runtime) = runtime {
                self.advance_soon(&slots, runtime);
            }
        }
        drop(slots);
        report();
        self.dispose(key, removed, runtime);
        if let Some(work) = work {
            work.spawn(runtime);
        }
    }

    /// Reports the end of a cycle: logs its message, and closes the cycle. In this order: closing drops the exception that is
    /// logged.
    pub(crate) fn close(&self, running: &RunningCycle, finished: Finished) {
        self.close_cycle((running.id, running.closed), finished);
    }

    /// As [`Dispatcher::close`], for the cycle with this id, which the host may have closed already.
    pub(crate) fn close_cycle(&self, (id, closed): (CycleId, bool), finished: Finished) {
        if let Some(line) = finished.log {
            if matches!(line.message, WorkerMessage::Failed { .. }) {
                self.metrics.cycles.errors.increment();
            }
            self.log(&line, Some(id));
        }
        if !closed {
            self.shared.base.host.submit(HostTask::CycleClosed { cycle: id, keep_fns: finished.carry });
        }
    }

    /// Logs a message about an object; `cycle` is the one whose exception may belong to it.
    pub(crate) fn log(&self, line: &WorkerLog, cycle: Option<CycleId>) {
        let host = &self.shared.base.host;
        let level = line.level();
        if level == Level::Debug && !host.enabled(level) {
            return;
        }
        host.log(record_of(line, cycle));
    }

    /// Applies the error back-off after an internal error of the event's cycle.
    pub(crate) fn on_internal_error(
        &self,
        slot: &mut Slot,
        event: QueuedEvent,
        error: &CycleError,
        may_be_written: bool,
        effects: &mut Effects,
    ) {
        self.metrics.cycles.errors.increment();
        let current = self.shared.base.live_config.get();
        let (context, now) = (self.worker_context(&current), self.shared.base.clock.now());
        let line = slot.worker.on_internal_error(event, error.to_string(), may_be_written, context, now);
        effects.push(Effect::Log(record_of(&line, None)));
        if let CycleError::Panicked(panicked) = error
            && slot.object_daemons.as_ref().is_some_and(|object_daemons| object_daemons.is_damaged())
        {
            self.shared.base.failing.raise(panicked.clone().into());
        }
    }

    /// Work for a worker of the object.
    pub(super) fn work(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: &Arc<str>,
        is_listed: bool,
        task: Option<WorkerTask>,
    ) -> Work {
        let signals = slots.get(key).map(|slot| slot.enter_worker(Arc::default)).unwrap_or_default();
        let term = self.shared.base.term.enter();
        Work { dispatcher: Arc::clone(self), key: Arc::clone(key), signals, is_listed, task, term }
    }

    /// The object is idle: its slot is kept, or handed over, or removed.
    pub(super) fn retire(&self, slots: &mut Slots, key: &Arc<str>) -> RemovedSlot {
        if self.successor.get().is_some() {
            return slots
                .take(key)
                .map_or(RemovedSlot::Nothing, |slot| RemovedSlot::HandedOver(Box::new(slot)));
        }
        if slots.retire(key) { RemovedSlot::Forgotten } else { RemovedSlot::Nothing }
    }

    /// Completes [`Dispatcher::retire`] after the lock is released. With a runtime, the calling thread may be the host's.
    pub(super) fn dispose(&self, key: &Arc<str>, removed: RemovedSlot, runtime: Option<&Handle>) {
        match removed {
            RemovedSlot::Nothing => {}
            RemovedSlot::Forgotten => self.shared.base.host.submit(HostTask::ObjectDeleted(Arc::clone(key))),
            RemovedSlot::HandedOver(slot) => {
                let Some(successor) = self.successor.get() else { return };
                match runtime {
                    Some(runtime) => successor.adopt_soon(key, slot, runtime),
                    None => successor.adopt(key, *slot),
                }
            }
        }
    }

    /// The worker of the object has no action left: the object is idle.
    pub(crate) fn finish(&self, mut slots: MutexGuard<'_, Slots>, key: &Arc<str>) {
        let removed = self.retire(&mut slots, key);
        drop(slots);
        self.dispose(key, removed, None);
    }

    /// Emits the log records of the cycle so far.
    pub(crate) fn emit_log(&self, running: &mut RunningCycle) {
        let host = &self.shared.base.host;
        for message in running.drain_log() {
            if matches!(message, LogMessage::Stripped(_)) {
                self.metrics.patches.strips.increment();
            }
            if let LogMessage::AnotherOperator(write) = message {
                self.report_other_operator(running.object(), write);
            } else if host.enabled(message.level()) {
                let object = running.object();
                let record = LogRecord::posted(message.level(), object, message.text(object));
                host.log(record.of(running.handling()));
            }
        }
    }
}

/// The log record of a message about an object.
pub(super) fn record_of(line: &WorkerLog, cycle: Option<CycleId>) -> LogRecord {
    let record = LogRecord::local(line.level(), &line.object, line.text());
    match (&line.message, cycle) {
        (WorkerMessage::Failed { with_exception: true, .. }, Some(cycle)) => record.with_exception_of(cycle),
        _ => record,
    }
}
