//! Detached cycles: cycles without workers, for activations of nothing but event handlers.
//!
//! No task waits for their completion. The thread that delivers it ends the cycle if nothing is left to do, without waking the
//! engine's thread. Otherwise, a worker continues the cycle.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use kopf_core::activation::Completion;
use kopf_core::cause::EventType;
use kopf_core::cycle;
use kopf_core::object_worker::Finished;
use tokio::runtime::Handle;

use super::events::Effect;
use super::{CycleError, Dispatcher, WorkerTask};
use crate::context::{DetachedCycles, InsideWorker};
use crate::host::{ActivationTask, HostTask, Responder};
use crate::metrics::{DispatcherSample, name_of};
use crate::objects::detached_cycle::DetachedCycle;
use crate::objects::open_cycle::OpenCycle;
use crate::objects::slots::Slots;
use crate::supervision::shielded;

/// The name of the end of a detached cycle in reports of its panics.
const ENDING: &str = "The end of a cycle";

impl DetachedCycles for Dispatcher {
    fn cancel_all(&self) {
        let cycles = self.slots().give_up();
        for (_, cycle) in cycles {
            drop(self.shared.base.cancel_cycle(cycle.id));
        }
    }

    fn end_term(self: Arc<Self>) -> BoxFuture<'static, ()> {
        let cycles = self.slots().give_up();
        let ends = cycles.into_iter().map(move |(key, cycle)| {
            let ended = self.shared.base.cancel_cycle(cycle.id);
            let dispatcher = Arc::clone(&self);
            async move {
                // The reply comes in any case.
                let _ended = ended.await;
                dispatcher.drop_detached(&key, &cycle);
            }
        });
        join_all(ends).map(drop).boxed()
    }

    fn add_inside(&self, workers: &mut Vec<InsideWorker>) {
        let slots = self.slots();
        workers.extend(slots.workers().filter_map(|(key, signals)| {
            let object = || format!("{} {key}", self.resource_handlers.resource);
            let steps = signals.inside()?;
            Some(InsideWorker { id: Arc::as_ptr(signals).addr(), steps, object: object() })
        }));
    }

    fn sample(&self) -> DispatcherSample {
        let now = self.shared.base.clock.now();
        let resource = name_of(&self.resource_handlers.resource);
        let sample = self.slots().sample(now);
        let has_election = self.shared.base.startup_config.settings.leadership.is_some();
        let is_standby = self.shared.pause.is_standby();
        let deferred = has_election.then_some(if is_standby { sample.objects } else { 0 });
        DispatcherSample { resource, deferred, ..sample }
    }
}

impl Dispatcher {
    pub(super) fn submit_detached(self: &Arc<Self>, key: &Arc<str>, mut running: Box<OpenCycle>) {
        let is_listed = running.event().kind == EventType::Listed;
        let mut slots = self.slots();
        if self.shared.base.term.is_over() {
            // The worker drops the cycle.
            let work = self.work(&mut slots, key, is_listed, Some(WorkerTask::Cycle(running)));
            drop(slots);
            return self.pool.spawn(work, None);
        }
        let Some(cycle::Effect::Run(activation)) = running.effect() else { return };
        if let Some(slot) = slots.get(key) {
            let detached_cycle = DetachedCycle {
                id: running.id,
                opened: running.opened(),
                is_listed,
                _token: self.shared.workers.token(),
                _activation: self.shared.activations.begin(self.shared.base.clock.now()),
            };
            slot.detach(Box::new(detached_cycle));
        }
        drop(slots);
        self.count_calls(&running, &activation, true, running.opened());
        let (dispatcher, runtime, whose) = (Arc::clone(self), Handle::current(), Arc::clone(key));
        let task = ActivationTask {
            cycle: running.id,
            uid: Arc::clone(key),
            resource: Arc::clone(&self.resource_handlers.resource),
            event: running.event().kind,
            object: Arc::clone(running.object()),
            span: running.activation_span(&activation),
            activation,
            reply: Responder::new(move |reply| dispatcher.on_completion(&runtime, whose, running, reply)),
        };
        self.shared.base.host.submit(HostTask::Activation(task));
    }

    /// Processes the completion of a detached cycle. Called on any thread, so it must not block on the slots.
    fn on_completion(
        self: Arc<Self>,
        runtime: &Handle,
        key: Arc<str>,
        mut running: Box<OpenCycle>,
        reply: Option<Completion>,
    ) {
        let now = self.shared.base.clock.now();
        if let Some(completion) = &reply {
            self.shared.base.metrics.handlers.on_completion(completion, running.opened());
        }
        let result = reply
            .ok_or(CycleError::Lost)
            .and_then(|reply| Ok(shielded("The cycle of the object", || running.on_completion(reply, now))?));
        self.emit_log(&mut running);
        let slots = match self.slots.try_lock() {
            Ok(slots) => slots,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            // The host's thread must not wait for the engine.
            Err(TryLockError::WouldBlock) => {
                let (dispatcher, again) = (Arc::clone(&self), runtime.clone());
                let end = async move { dispatcher.end(dispatcher.slots(), &again, &key, running, result) };
                self.shared.workers.spawn_on(self.shared.base.failing.guard(ENDING, end), runtime);
                return;
            }
        };
        if let Err(panicked) = shielded(ENDING, || self.end(slots, runtime, &key, running, result)) {
            self.shared.base.failing.raise(panicked.into());
        }
    }

    /// Ends the cycle, or starts a worker that continues it or waits after its error.
    fn end(
        self: &Arc<Self>,
        slots: MutexGuard<'_, Slots>,
        runtime: &Handle,
        key: &Arc<str>,
        mut running: Box<OpenCycle>,
        result: Result<(), CycleError>,
    ) {
        // The token is dropped at the end, when the worker has its own; the cycle, when the slots are unlocked.
        let ended = self.with_locked(slots, Some(runtime), |slots, effects| {
            // Otherwise, the cycle was cancelled meanwhile.
            let detached = slots.get(key)?.take_cycle(running.id)?;
            match result {
                Ok(()) if running.is_decided() => self.conclude(slots, key, &mut running, effects),
                Ok(()) => {
                    let task = WorkerTask::Cycle(running);
                    effects.push(Effect::Spawn(self.work(slots, key, detached.is_listed, Some(task))));
                    return Some((detached, None));
                }
                Err(error) => self.abort(slots, key, &running, &error, false, effects),
            }
            Some((detached, Some(running)))
        });
        if ended.is_some() {
            self.shared.freed.notify_waiters();
        }
    }

    /// Drops a cycle of a term that has ended.
    fn drop_detached(self: &Arc<Self>, key: &Arc<str>, cycle: &DetachedCycle) {
        self.with_slots(|slots, effects| {
            if let Some(slot) = slots.get(key) {
                slot.worker.on_term_lost();
            }
            effects.push_close((cycle.id, false), Finished::default());
            self.on_idle(slots, key, cycle.is_listed, effects);
        });
    }

    /// Starts work on the next objects of the backlog, in a task: the calling thread is the host's.
    pub(super) fn advance_soon(self: &Arc<Self>, runtime: &Handle) {
        if self.is_advancing.swap(true, Ordering::AcqRel) {
            return;
        }
        let dispatcher = Arc::clone(self);
        let advance = async move {
            dispatcher.is_advancing.store(false, Ordering::Release);
            dispatcher.schedule_backlog().await;
        };
        let advance = self.shared.base.failing.guard("The start of listed objects", advance);
        self.shared.workers.spawn_on(advance, runtime);
    }
}

#[cfg(test)]
mod tests;
