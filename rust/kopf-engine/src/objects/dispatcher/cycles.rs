//! The ends of cycles without workers, and the ends of objects without work.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::cycle::{self, Cycle};
use kopf_core::log_level::Level;
use kopf_core::object_worker::{DecisionResult, Finished, QueuedEvent, WorkerLog, WorkerMessage};
use kopf_core::slot::Ending;

use super::events::{Effect, Effects, record_of};
use super::{CycleSummary, Dispatcher, WorkerTask};
use crate::host::{CycleId, HostTask};
use crate::objects::open_cycle::OpenCycle;
use crate::objects::slots::{Slot, Slots};
use crate::supervision::{Panicked, shielded};

#[cfg(test)]
thread_local! {
    /// Whether the next decision of a cycle without a worker panics.
    pub(super) static INJECTED_PANIC: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
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

impl Dispatcher {
    /// Ends a decided cycle that has no worker. Starts a worker if there is something to write, or another action follows.
    pub(super) fn conclude(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: &Arc<str>,
        running: &mut OpenCycle,
        effects: &mut Effects,
    ) {
        let is_listed = running.event().kind == EventType::Listed;
        let Some(cycle::Effect::Done(decision)) = running.effect() else { return };
        let Some(slot) = slots.get(key) else { return };
        let current = self.shared.base.live_config.get();
        let now = self.shared.base.clock.now();
        let decided = shielded("The end of the cycle", || {
            #[cfg(test)]
            assert!(!INJECTED_PANIC.take(), "an injected panic");
            slot.worker.on_decision(running, *decision, self.worker_context(&current), now)
        });
        match decided {
            Err(panicked) => self.abort(slots, key, running, &panicked.into(), true, effects),
            Ok(DecisionResult::Write(write)) => {
                let task = WorkerTask::write(running, write);
                effects.push(Effect::Spawn(self.work(slots, key, is_listed, Some(task))));
            }
            Ok(DecisionResult::Finished(finished)) => {
                self.count_cycle(CycleSummary::of(running), false);
                effects.push_close((running.id, running.closed), finished);
                self.on_idle(slots, key, is_listed, effects);
            }
        }
    }

    /// Ends a cycle that has failed and has no worker: a worker handles the event after the error back-off. With `was_decided`,
    /// its decision may be recorded in part.
    pub(super) fn abort(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: &Arc<str>,
        running: &Cycle,
        error: &CycleError,
        was_decided: bool,
        effects: &mut Effects,
    ) {
        let Some(slot) = slots.get(key) else { return };
        self.on_internal_error(slot, running.event().clone(), error, was_decided, effects);
        effects.push_close((running.id, running.closed), Finished::default());
        self.on_idle(slots, key, running.event().kind == EventType::Listed, effects);
    }

    /// No cycle of the object is in progress, and it has no worker: it becomes idle, or a worker starts for its next action.
    pub(super) fn on_idle(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: &Arc<str>,
        is_listed: bool,
        effects: &mut Effects,
    ) {
        if slots.get(key).is_some_and(|slot| slot.on_cycle_end() == Ending::Drive) {
            effects.push(Effect::Spawn(self.work(slots, key, false, None)));
        } else {
            self.retire(slots, key, effects);
        }
        if is_listed {
            slots.backlog.ended();
            if !slots.backlog.is_empty() {
                effects.push(Effect::Advance);
            }
        }
    }

    /// The object is idle: its slot is kept, or handed over, or removed.
    pub(crate) fn retire(&self, slots: &mut Slots, key: &Arc<str>, effects: &mut Effects) {
        if self.successor.get().is_some() {
            if let Some(slot) = slots.take(key) {
                effects.push(Effect::HandOver(Arc::clone(key), Box::new(slot)));
            }
        } else if slots.retire(key) {
            effects.push(Effect::Forget(Arc::clone(key)));
        }
    }

    /// Reports the end of a cycle, which the host may have closed already: logs its message, and closes it. In this order: closing
    /// drops the exception that is logged.
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
}
