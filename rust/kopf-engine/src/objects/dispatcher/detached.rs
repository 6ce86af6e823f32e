//! Detached cycles: cycles without workers, for activations of nothing but event handlers.
//!
//! No task waits for their completion. The thread that delivers it ends the cycle if nothing is left to do, without waking the
//! engine's thread. Otherwise, a worker continues the cycle.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};

use kopf_core::activation::Completion;
use kopf_core::cause::EventType;
use kopf_core::object_worker::{CycleEffect, Finished, RunningCycle};
use tokio::runtime::Handle;

use super::effects::Effects;
use super::{Dispatcher, WorkerTask};
use crate::context::DetachedCycles;
use crate::host::{ActivationTask, HostTask, Responder};
use crate::objects::slots::{DetachedCycle, Slots};
use crate::supervision::{Panicked, shielded};

/// The state of a detached cycle after its completion.
enum Resumed {
    /// The cycle continues, or is decided.
    Continues,
    /// The host has failed to complete the activation, and has logged why: the next events are handled.
    Lost,
    /// The cycle has panicked.
    Panicked(Panicked),
}

impl DetachedCycles for Dispatcher {
    fn cancel_all(&self) {
        let ids = self.slots().give_up();
        for id in ids {
            self.shared.host.submit(HostTask::Cancel(id));
        }
    }
}

impl Dispatcher {
    pub(super) fn submit_detached(self: &Arc<Self>, key: &Arc<str>, mut running: Box<RunningCycle>) {
        let Some(CycleEffect::Run(activation)) = running.effect() else { return };
        if let Some(slot) = self.slots().get(key) {
            let detached_cycle = DetachedCycle { id: running.id, _token: self.shared.workers.token() };
            slot.driver.get_or_insert_default().detached_cycle = Some(detached_cycle);
        }
        let (dispatcher, home, whose) = (Arc::clone(self), Handle::current(), Arc::clone(key));
        let job = ActivationTask {
            cycle: running.id,
            uid: Arc::clone(key),
            resource: Arc::clone(&self.plan.resource),
            event: running.event().kind,
            object: Arc::clone(running.object()),
            activation,
            reply: Responder::new(move |reply| dispatcher.on_completion(&home, whose, running, reply)),
        };
        self.shared.host.submit(HostTask::Activation(job));
    }

    /// Processes the completion of a detached cycle. Called on any thread, so it must not block on the slots.
    fn on_completion(
        self: Arc<Self>,
        home: &Handle,
        key: Arc<str>,
        mut running: Box<RunningCycle>,
        reply: Option<Completion>,
    ) {
        let now = self.shared.clock.now();
        let resumed = match reply {
            None => Resumed::Lost,
            Some(reply) => match shielded("The cycle of the object", || running.on_completion(reply, now)) {
                Ok(()) => Resumed::Continues,
                Err(panicked) => Resumed::Panicked(panicked),
            },
        };
        self.emit_log(&mut running);
        match self.slots.try_lock() {
            Ok(slots) => self.end(slots, home, &key, running, resumed),
            Err(TryLockError::Poisoned(error)) => self.end(error.into_inner(), home, &key, running, resumed),
            // The host's thread must not wait for the engine.
            Err(TryLockError::WouldBlock) => {
                let (dispatcher, again) = (Arc::clone(&self), home.clone());
                let end = async move { dispatcher.end(dispatcher.slots(), &again, &key, running, resumed) };
                self.shared.workers.spawn_on(end, home);
            }
        }
    }

    /// Ends the cycle, or starts a worker that continues it.
    fn end(
        self: &Arc<Self>,
        mut slots: MutexGuard<'_, Slots>,
        home: &Handle,
        key: &Arc<str>,
        running: Box<RunningCycle>,
        resumed: Resumed,
    ) {
        let Some(slot) = slots.get(key) else { return };
        let Some(driver) = &mut slot.driver else { return };
        // Otherwise, the cycle was cancelled meanwhile. The token is dropped at the end, when the worker has its own.
        let Some(_detached) = driver.detached_cycle.take_if(|one| one.id == running.id) else { return };
        let is_listed = running.event().kind == EventType::Listed;
        match resumed {
            Resumed::Continues => {
                if running.is_decided() {
                    self.conclude(slots, key, *running, is_listed, Some(home));
                } else {
                    let work = self.work(&mut slots, key, is_listed, Some(WorkerTask::Cycle(running)));
                    drop(slots);
                    work.spawn(Some(home));
                }
            }
            Resumed::Lost => {
                let report = || self.close(&running, Finished::default());
                self.rest(slots, key, is_listed, Some(home), report);
            }
            Resumed::Panicked(panicked) => {
                let mut effects = Effects::default();
                self.on_panic(slot, running.event().clone(), &panicked, false, &mut effects);
                let report = || {
                    effects.take_place(self);
                    self.close(&running, Finished::default());
                };
                self.rest(slots, key, is_listed, Some(home), report);
            }
        }
        self.shared.freed.notify_waiters();
    }

    /// Starts work on the next objects of the backlog, in a task: the calling thread is the host's.
    pub(super) fn advance_soon(self: &Arc<Self>, slots: &Slots, home: &Handle) {
        if slots.backlog.is_empty() || self.is_advancing.swap(true, Ordering::AcqRel) {
            return;
        }
        let dispatcher = Arc::clone(self);
        let advance = async move {
            dispatcher.is_advancing.store(false, Ordering::Release);
            dispatcher.schedule_backlog().await;
        };
        self.shared.workers.spawn_on(advance, home);
    }
}

#[cfg(test)]
mod tests;
