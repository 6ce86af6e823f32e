//! Cycles without workers: those that need nothing but handlers of events.
//!
//! Most of what handlers are called for is only to be seen. Nobody waits for them here, in no task: whoever brings the reply
//! ends the cycle right there, if nothing is left to be done, and the engine's thread is not even woken up. Otherwise, a worker
//! goes on with it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use kopf_core::cause::EventType;
use kopf_core::cycle::{Answer, Next};
use kopf_core::script::{Reply, Script, Step};
use tokio::runtime::Handle;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{Begun, Dispatcher, Effects, activate, is_trivial};
use crate::invoke::{CycleId, Job, Reporter, ScriptJob};
use crate::slots::Slots;
use crate::supervision::shielded;
use crate::worker::Worker;

/// A cycle that waits for its reply without a worker.
#[derive(Debug)]
pub struct Unattended {
    begun: Box<Begun>,
    /// It counts as a worker for those who wait until all are done.
    _token: TaskTrackerToken,
}

/// All dispatchers that may have such cycles.
#[derive(Default)]
pub struct Absentees(Mutex<Vec<Weak<Dispatcher>>>);

impl Absentees {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Dispatcher>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A dispatcher is there; others may have gone.
    pub(super) fn admit(&self, dispatcher: &Arc<Dispatcher>) {
        let mut known = self.lock();
        known.retain(|one| one.strong_count() > 0);
        known.push(Arc::downgrade(dispatcher));
    }

    /// There is no more time: what still runs is cancelled, and nobody waits for it any longer.
    pub fn give_up(&self) {
        let dispatchers: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for dispatcher in dispatchers {
            for id in dispatcher.slots().give_up() {
                dispatcher.shared.invoker.submit(Job::Cancel(id));
            }
        }
    }
}

impl Unattended {
    /// The number of the cycle.
    pub fn id(&self) -> CycleId {
        self.begun.id
    }
}

impl Dispatcher {
    pub(super) fn needs_no_worker(&self, begun: &Begun) -> bool {
        let is_watching = |script: &Script| {
            script.last && script.steps.iter().all(|step| matches!(step, Step::Watch { .. }))
        };
        self.limit.is_none()
            && begun.round.is_none()
            && matches!(&begun.next, Some(Next::Run(script)) if is_watching(script))
            && !self.shared.killing.is_cancelled()
    }

    pub(super) fn send_off(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: Arc<str>,
        mut begun: Begun,
        effects: &mut Effects,
    ) {
        let Some(Next::Run(script)) = begun.next.take() else {
            return self.spawn(slots, key, begun, effects);
        };
        activate(slots, &key);
        if begun.event.kind == EventType::Listed {
            slots.backlog.began();
        }
        let (dispatcher, home, id) = (Arc::clone(self), Handle::current(), begun.id);
        let whose = Arc::clone(&key);
        let job = ScriptJob {
            cycle: id,
            uid: Arc::clone(&key),
            resource: Arc::clone(&self.plan.resource),
            event: begun.event.kind,
            object: Arc::clone(&begun.event.object),
            script,
            reply: Reporter::new(move |reply| dispatcher.take_back(&home, whose, id, reply)),
        };
        if let Some(active) = slots.get(&key).and_then(|slot| slot.active.as_mut()) {
            let unattended = Unattended { begun: Box::new(begun), _token: self.shared.workers.token() };
            active.unattended = Some(unattended);
        }
        effects.submit(Job::Script(job));
    }

    /// From any thread.
    fn take_back(self: Arc<Self>, home: &Handle, key: Arc<str>, id: CycleId, reply: Option<Reply>) {
        match self.slots.try_lock() {
            Ok(slots) => self.end(slots, home, key, id, reply),
            Err(TryLockError::Poisoned(error)) => self.end(error.into_inner(), home, key, id, reply),
            // The other side is not to wait for us.
            Err(TryLockError::WouldBlock) => {
                let (dispatcher, again) = (Arc::clone(&self), home.clone());
                let end = async move { dispatcher.end(dispatcher.slots(), &again, key, id, reply) };
                self.shared.workers.spawn_on(end, home);
            }
        }
    }

    /// Ends the cycle, or lets a worker go on with it.
    fn end(
        self: &Arc<Self>,
        mut slots: MutexGuard<'_, Slots>,
        home: &Handle,
        key: Arc<str>,
        id: CycleId,
        reply: Option<Reply>,
    ) {
        let Some(active) = slots.get(&key).and_then(|slot| slot.active.as_mut()) else { return };
        // Otherwise, it was given up meanwhile.
        let Some(unattended) = active.unattended.take_if(|one| one.id() == id) else { return };
        let (arrived, is_alone) = (Arc::clone(&active.arrived), active.pending.is_empty());
        let Unattended { mut begun, _token } = unattended;
        let is_listed = begun.event.kind == EventType::Listed;
        let kept = begun.event.clone();
        let next = reply.map(|reply| {
            begun.closed = reply.closed;
            let now = self.shared.clock.now();
            shielded("The cycle of the object", || begun.cycle.resume(Answer::Reply(reply), now))
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
            effects.log_all(self.notes_of(&mut begun.cycle, &begun.event.object));
        }
        match next {
            Some(Next::Done(conclusion)) if is_alone && is_trivial(&conclusion) => {
                if let Some(slot) = slots.get(&key) {
                    slot.active = None;
                }
                if !begun.closed {
                    effects.submit(Job::Close { cycle: begun.id, carry: false });
                }
                self.settle(&mut slots, &key, &begun.event, &conclusion, &mut effects);
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
                begun.next = next;
                if is_lost {
                    // The other side has failed to answer, and has logged why: what comes next is to be handled.
                    self.close(&begun);
                }
                let worker = Worker { dispatcher: Arc::clone(self), key, arrived, is_listed };
                self.shared.workers.spawn_on(worker.run((!is_lost).then_some(begun)), home);
            }
        }
    }

    fn close(&self, begun: &Begun) {
        if !begun.closed {
            self.shared.invoker.submit(Job::Close { cycle: begun.id, carry: false });
        }
    }

    /// The next ones of the backlog have their turn; not in the thread of whoever has brought a reply.
    fn advance_soon(self: &Arc<Self>, slots: &Slots, home: &Handle) {
        if slots.backlog.is_empty() || self.is_advancing.swap(true, Ordering::AcqRel) {
            return;
        }
        let dispatcher = Arc::clone(self);
        let advance = async move {
            dispatcher.is_advancing.store(false, Ordering::Release);
            dispatcher.go_on_with_backlog().await;
        };
        self.shared.workers.spawn_on(advance, home);
    }
}

#[cfg(test)]
mod tests;
