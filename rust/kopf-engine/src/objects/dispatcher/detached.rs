//! Detached cycles: cycles without workers, for activations of nothing but event handlers.
//!
//! No task waits for their completion. The thread that delivers it ends the cycle if nothing is left to do, without waking the
//! engine's thread. Otherwise, a worker continues the cycle.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};

use kopf_core::activation::{Activation, Command, Completion};
use kopf_core::cause::EventType;
use kopf_core::cycle::{Effect, EffectResult};
use tokio::runtime::Handle;

use super::{Dispatcher, Effects, Work, activate, is_trivial};
use crate::context::DetachedCycles;
use crate::host::{ActivationTask, CycleId, HostTask, Responder};
use crate::objects::slots::{DetachedCycle, OpenCycle, Slots};
use crate::supervision::shielded;

impl DetachedCycles for Dispatcher {
    fn cancel_all(&self) {
        for id in self.slots().give_up() {
            self.shared.host.submit(HostTask::Cancel(id));
        }
    }
}

impl Dispatcher {
    pub(super) fn needs_no_worker(&self, open_cycle: &OpenCycle) -> bool {
        let is_watching = |activation: &Activation| {
            activation.last && activation.steps.iter().all(|step| matches!(step, Command::Watch { .. }))
        };
        self.limit.is_none()
            && open_cycle.index_pass.is_none()
            && matches!(&open_cycle.next, Some(Effect::Run(activation)) if is_watching(activation))
            && !self.shared.killing.is_cancelled()
    }

    pub(super) fn submit_detached(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: Arc<str>,
        mut open_cycle: OpenCycle,
        effects: &mut Effects,
    ) {
        let Some(Effect::Run(activation)) = open_cycle.next.take() else {
            return self.spawn(slots, key, open_cycle, effects);
        };
        activate(slots, &key);
        if open_cycle.event.kind == EventType::Listed {
            slots.backlog.began();
        }
        let (dispatcher, home, id) = (Arc::clone(self), Handle::current(), open_cycle.id);
        let whose = Arc::clone(&key);
        let job = ActivationTask {
            cycle: id,
            uid: Arc::clone(&key),
            resource: Arc::clone(&self.plan.resource),
            event: open_cycle.event.kind,
            object: Arc::clone(&open_cycle.event.object),
            activation,
            reply: Responder::new(move |reply| dispatcher.on_completion(&home, whose, id, reply)),
        };
        if let Some(active) = slots.get(&key).and_then(|slot| slot.active.as_mut()) {
            let detached_cycle =
                DetachedCycle { open_cycle: Box::new(open_cycle), _token: self.shared.workers.token() };
            active.detached_cycle = Some(detached_cycle);
        }
        effects.submit(HostTask::Activation(job));
    }

    /// Processes the completion of a detached cycle. Called on any thread, so it must not block on the slots.
    fn on_completion(self: Arc<Self>, home: &Handle, key: Arc<str>, id: CycleId, reply: Option<Completion>) {
        match self.slots.try_lock() {
            Ok(slots) => self.end(slots, home, key, id, reply),
            Err(TryLockError::Poisoned(error)) => self.end(error.into_inner(), home, key, id, reply),
            // The host's thread must not wait for the engine.
            Err(TryLockError::WouldBlock) => {
                let (dispatcher, again) = (Arc::clone(&self), home.clone());
                let end = async move { dispatcher.end(dispatcher.slots(), &again, key, id, reply) };
                self.shared.workers.spawn_on(end, home);
            }
        }
    }

    /// Ends the cycle, or starts a worker that continues it.
    fn end(
        self: &Arc<Self>,
        mut slots: MutexGuard<'_, Slots>,
        home: &Handle,
        key: Arc<str>,
        id: CycleId,
        reply: Option<Completion>,
    ) {
        let Some(active) = slots.get(&key).and_then(|slot| slot.active.as_mut()) else { return };
        // Otherwise, the cycle was cancelled meanwhile.
        let Some(detached_cycle) = active.detached_cycle.take_if(|one| one.id() == id) else { return };
        let (arrived, is_alone) = (Arc::clone(&active.arrived), active.pending.is_empty());
        let DetachedCycle { mut open_cycle, _token } = detached_cycle;
        let is_listed = open_cycle.event.kind == EventType::Listed;
        let kept = open_cycle.event.clone();
        let next = reply.map(|reply| {
            open_cycle.closed = reply.closed;
            let now = self.shared.clock.now();
            shielded("The cycle of the object", || {
                open_cycle.cycle.resume(EffectResult::Completion(reply), now)
            })
        });
        let mut effects = Effects::default();
        let next = match next.transpose() {
            Ok(next) => next,
            Err(panicked) => {
                if let Some(slot) = slots.get(&key)
                    && let Some(event) = self.hold_back(slot, kept, &panicked, &mut effects)
                    && let Some(active) = &mut slot.active
                {
                    active.pending.push_front(event);
                }
                None
            }
        };
        if next.is_some() {
            effects.log_all(self.log_records_of(&mut open_cycle.cycle, &open_cycle.event.object));
        }
        match next {
            Some(Effect::Done(decision)) if is_alone && is_trivial(&decision) => {
                if let Some(slot) = slots.get(&key) {
                    slot.active = None;
                }
                if !open_cycle.closed {
                    effects.submit(HostTask::Close { cycle: open_cycle.id, carry: false });
                }
                self.apply_trivial(&mut slots, &key, &open_cycle.event, &decision, &mut effects);
                if is_listed {
                    slots.backlog.ended();
                    self.advance_soon(&slots, home);
                }
                if self.successor.get().is_some() {
                    self.finish(slots, &key);
                } else {
                    drop(slots);
                }
                effects.take_place(&self.shared);
                self.shared.freed.notify_waiters();
            }
            next => {
                drop(slots);
                effects.take_place(&self.shared);
                let is_lost = next.is_none();
                open_cycle.next = next;
                if is_lost {
                    // The host has failed to complete the activation, and has logged why: the next events are handled.
                    self.close(&open_cycle);
                }
                let open_cycle = (!is_lost).then_some(open_cycle);
                let work = Work { dispatcher: Arc::clone(self), key, arrived, is_listed, open_cycle };
                work.spawn(Some(home));
            }
        }
    }

    fn close(&self, open_cycle: &OpenCycle) {
        if !open_cycle.closed {
            self.shared.host.submit(HostTask::Close { cycle: open_cycle.id, carry: false });
        }
    }

    /// Starts work on the next objects of the backlog, in a task: the calling thread is the host's.
    fn advance_soon(self: &Arc<Self>, slots: &Slots, home: &Handle) {
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
