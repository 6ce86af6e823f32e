//! The worker of one object: from an event to its effects, again and again while there is something to do.
//!
//! Drives the core's cycle: hands its scripts to Python, waits where it says so, and applies its conclusion. Sleeps are cut
//! short by newer events. Errors that nobody expected slow the object down, never the operator.

use std::sync::Arc;

use kopf_core::activation::{Activation, Command, Completion};
use kopf_core::cause::EventType;
use kopf_core::cycle::{Decision, Effect, EffectResult};
use kopf_core::daemon::DesiredDaemons;
use kopf_core::handling::error_backoff;
use kopf_core::indexing::IndexPass;
use kopf_core::json::merge_patch::Patch;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use tokio::sync::{Notify, oneshot};

use crate::context::OperatorContext;
use crate::daemons::Reconciled;
use crate::host::{ActivationTask, CycleId, HostTask, LogRecord, Responder};
use crate::objects::dispatcher::{Dispatcher, learn};
use crate::objects::membership::Membership;
use crate::objects::slots::{OpenCycle, QueuedEvent};
use crate::patching::WriteRequest;
use crate::supervision::{Panicked, guarded};
use crate::time::duration::seconds;

mod finish;
mod pool;

pub use pool::Pool;

const LOGGER: &str = "kopf._core.reactor.queueing";
/// Seconds until a worker that has panicked outside of a cycle goes on.
const PANIC_PAUSE: f64 = 1.0;

/// The worker of one object.
pub struct Worker {
    /// Whose object it is.
    pub dispatcher: Arc<Dispatcher>,
    /// Which object it is.
    pub key: Arc<str>,
    /// Told when something has come for it.
    pub arrived: Arc<Notify>,
    /// It is of a listing, and others wait for its turn to be over.
    pub is_listed: bool,
}

/// The next work of a worker.
enum NextWork {
    /// A cycle.
    Begun(Box<OpenCycle>),
    /// Events, but the object is held after an error.
    Held,
    /// Nothing; the object is left alone.
    Nothing,
}

/// What the worker does after a cycle.
enum CycleOutcome {
    /// Nothing: the next event, or rest.
    Rest,
    /// Look again at the same state after so many seconds, unless a newer one comes.
    Again(QueuedEvent, f64),
    /// The operator is exiting.
    Exit,
}

impl Worker {
    /// Works until there is nothing to do for the object. A panic costs the object a pause, as any unexpected error.
    pub async fn run(self, open_cycle: Option<Box<OpenCycle>>) {
        let _permit = match &self.dispatcher.limit {
            Some(limit) => limit.acquire().await.ok(),
            None => None,
        };
        let (mut next, mut is_listed) = (open_cycle, self.is_listed);
        // What panics outside of a cycle, has nothing left to try again with but newer events.
        while let Err(panicked) =
            guarded("The worker of the object", self.work(next.take(), &mut is_listed)).await
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

    async fn work(&self, open_cycle: Option<Box<OpenCycle>>, is_listed: &mut bool) {
        let killing = &self.shared().killing;
        let mut next = open_cycle;
        loop {
            let open_cycle = match next.take().map_or_else(|| self.take(), NextWork::Begun) {
                NextWork::Begun(open_cycle) => open_cycle,
                NextWork::Held if Box::pin(self.wait_backoff()).await => continue,
                NextWork::Held | NextWork::Nothing => break,
            };
            let (id, event) = (open_cycle.id, open_cycle.event.clone());
            let after = tokio::select! {
                after = guarded("The cycle of the object", self.cycle(open_cycle)) => {
                    after.unwrap_or_else(|panicked| self.recover(id, event, &panicked))
                }
                () = killing.cancelled() => {
                    self.shared().host.submit(HostTask::Cancel(id));
                    CycleOutcome::Exit
                }
            };
            if std::mem::take(is_listed) {
                self.dispatcher.advance().await;
            }
            match after {
                CycleOutcome::Rest => {}
                // What is rarely needed is boxed, or every worker would be as large as the largest of its states.
                CycleOutcome::Again(event, delay) => next = Box::pin(self.wait_until_due(event, delay)).await,
                CycleOutcome::Exit => break,
            }
        }
    }

    /// The cycle has panicked: the object is slowed down, and looked at again.
    fn recover(&self, id: CycleId, event: QueuedEvent, panicked: &Panicked) -> CycleOutcome {
        self.dispatcher.with_slots(|slots, effects| {
            let Some(slot) = slots.get(&self.key) else { return };
            // What it has learnt of its own writes may be half of it; what must survive is on the object.
            slot.memory.pending_state = None;
            slot.memory.handled = None;
            slot.consistency = None;
            if let Some(event) = self.dispatcher.hold_back(slot, event, panicked, effects)
                && let Some(active) = &mut slot.active
            {
                active.pending.push_front(event);
            }
        });
        self.shared().host.submit(HostTask::Close { cycle: id, carry: false });
        CycleOutcome::Rest
    }

    fn shared(&self) -> &Arc<OperatorContext> {
        &self.dispatcher.shared
    }

    /// Begins the next cycle; or leaves the object alone, if nothing has come for it.
    fn take(&self) -> NextWork {
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key) else { return NextWork::Nothing };
        let pending = slot.active.as_ref().is_some_and(|active| !active.pending.is_empty());
        if !pending {
            slot.active = None;
            self.dispatcher.finish(slots, &self.key);
            return NextWork::Nothing;
        }
        if slot.throttle.remaining(self.shared().clock.now()).is_some() {
            return NextWork::Held;
        }
        let Some(event) = slot.active.as_mut().and_then(|active| active.pending.pop_front()) else {
            return NextWork::Nothing;
        };
        let open_cycle = self.dispatcher.begin(slot, event);
        drop(slots);
        self.opened(open_cycle).map_or(NextWork::Held, NextWork::Begun)
    }

    /// The cycle that has begun; none if that has panicked, and the object is slowed down.
    fn opened(&self, open_cycle: Result<OpenCycle, Box<(QueuedEvent, Panicked)>>) -> Option<Box<OpenCycle>> {
        match open_cycle {
            Ok(mut open_cycle) => {
                for entry in std::mem::take(&mut open_cycle.log_messages) {
                    self.shared().host.log(entry);
                }
                Some(Box::new(open_cycle))
            }
            Err(panicked) => {
                let (event, panicked) = *panicked;
                self.dispatcher.with_slots(|slots, effects| {
                    let Some(slot) = slots.get(&self.key) else { return };
                    if let Some(event) = self.dispatcher.hold_back(slot, event, &panicked, effects)
                        && let Some(active) = &mut slot.active
                    {
                        active.pending.push_front(event);
                    }
                });
                None
            }
        }
    }

    /// Waits until something has come for the object.
    async fn arrival(&self) {
        while !self.has_pending() {
            self.arrived.notified().await;
        }
    }

    fn has_pending(&self) -> bool {
        let mut slots = self.dispatcher.slots();
        slots
            .get(&self.key)
            .and_then(|slot| slot.active.as_ref())
            .is_some_and(|active| active.leaving || !active.pending.is_empty())
    }

    /// Waits for the end of the pause after an error; true if there is more to do. Only the last state survives the pause.
    async fn wait_backoff(&self) -> bool {
        loop {
            let now = self.shared().clock.now();
            let held = self.dispatcher.slots().get(&self.key).and_then(|slot| slot.throttle.remaining(now));
            let Some(remaining) = held else { return self.has_pending() };
            let _nap = self.shared().sleeping();
            tokio::select! {
                () = self.shared().clock.sleep(seconds(remaining)) => {}
                () = self.shared().stopping.cancelled() => return false,
            }
            let mut slots = self.dispatcher.slots();
            let Some(slot) = slots.get(&self.key) else { return false };
            slot.throttle.release();
            if self.shared().pause.is_on() {
                // Others may work on the object meanwhile; the listing after the pause brings it here again.
                slot.active.iter_mut().for_each(|active| active.pending.clear());
                return true;
            }
            if let Some(active) = &mut slot.active
                && let Some(last) = active.pending.pop_back()
            {
                let text = error_backoff::OVER;
                self.shared().host.log(LogRecord::local(Level::Info, &last.object, text));
                active.pending.clear();
                active.pending.push_back(last);
            }
        }
    }

    /// Sleeps for the delayed handlers; then the same state is looked at again. A pause of the operator ends it: others
    /// may work on the object meanwhile, and the listing after the pause brings it here again.
    async fn wait_until_due(&self, event: QueuedEvent, delay: f64) -> Option<Box<OpenCycle>> {
        let object = Arc::clone(&event.object);
        let pause = &self.shared().pause;
        let pauses = pause.count();
        if pause.is_on() {
            return None;
        }
        if delay > 0.0 {
            let _nap = self.shared().sleeping();
            self.debug(&object, || format!("Sleeping for {delay} seconds for the delayed handlers."));
            let until = self.shared().clock.now().plus(delay);
            tokio::select! {
                () = self.shared().clock.sleep(seconds(delay)) => {}
                () = self.arrival() => {
                    let left = until.seconds_since(self.shared().clock.now()).max(0.0);
                    self.debug(&object, || format!("Sleeping was interrupted by new changes, {left} seconds left."));
                    return None;
                }
                () = pause.paused_since(pauses) => return None,
                () = self.shared().stopping.cancelled() => return None,
            }
        }
        if self.shared().rules.settings.compat && self.touch(&event).await {
            return None;
        }
        let mut slots = self.dispatcher.slots();
        let slot = slots.get(&self.key)?;
        if slot.place != Membership::Selected {
            // Nobody would tell if it has changed meanwhile: it is to be asked for.
            slot.place = Membership::Stale;
            return None;
        }
        if slot.active.as_ref().is_some_and(|active| active.leaving || !active.pending.is_empty()) {
            return None;
        }
        let event = QueuedEvent { kind: EventType::Modified, requeued: true, ..event };
        let open_cycle = self.dispatcher.begin(slot, event);
        drop(slots);
        self.opened(open_cycle)
    }

    /// Wakes the object up as the reference does: by a write whose echo comes as an event. True if there will be one.
    async fn touch(&self, event: &QueuedEvent) -> bool {
        let now = self.shared().clock.now().to_string();
        let rules = self.shared().current.get();
        let storage = &rules.settings.persistence.progress_storage;
        let mut patch = Patch::default();
        storage.touch(&event.object, &mut patch, Some(&now));
        let cycle = self.shared().next_cycle();
        let change = WriteRequest { patch, ..WriteRequest::of(cycle) };
        // If it fails, the cycle is begun without an echo.
        let applied = match Box::pin(self.patching(&rules).apply(&event.object, change)).await {
            Ok(applied) => applied,
            Err(failure) => *failure.applied,
        };
        self.note_write(&event.object, &applied);
        applied.gone
            || applied.latest.is_some_and(|it| it.resource_version() != event.object.resource_version())
    }

    /// One cycle, from its opening to its effects.
    async fn cycle(&self, mut open_cycle: Box<OpenCycle>) -> CycleOutcome {
        let decision = self.drive(&mut open_cycle).await;
        let OpenCycle { id, event, closed, .. } = *open_cycle;
        let Some(decision) = decision else {
            // The other side has failed to answer, and has logged why: the next event is to be handled nevertheless.
            self.shared().host.submit(HostTask::Close { cycle: id, carry: false });
            return CycleOutcome::Rest;
        };
        self.conclude((id, closed), decision, event).await
    }

    /// Does what the core asks for, until it comes to a conclusion; none if there is no answer.
    async fn drive(&self, open_cycle: &mut OpenCycle) -> Option<Box<Decision>> {
        let OpenCycle { id, cycle, next, event, round, closed, log_messages: _ } = open_cycle;
        let mut answer = None;
        // The indices come first: if there is nothing else to ask, then alone.
        if !matches!(next, Some(Effect::Run(_))) && round.is_some() {
            let reply = self.activate(*id, event, round.take(), Activation::default()).await?;
            answer = reply.error.is_some().then_some(EffectResult::Completion(reply));
        }
        loop {
            if let Some(answer) = answer {
                *next = Some(cycle.resume(answer, self.shared().clock.now()));
                self.dispatcher.emit_log(cycle, &event.object);
            }
            answer = Some(match next.take()? {
                Effect::Done(decision) => return Some(decision),
                Effect::AwaitConsistency => EffectResult::Consistent(self.await_consistency().await),
                Effect::Spawn(wanted) => Box::pin(self.reconcile_daemons(&wanted, event)).await,
                Effect::Run(activation) => {
                    let reply = self.activate(*id, event, round.take(), activation).await?;
                    *closed = reply.closed;
                    EffectResult::Completion(reply)
                }
            });
        }
    }

    /// Has a script run, after what the indices need; none if there is no answer.
    async fn activate(
        &self,
        id: CycleId,
        event: &QueuedEvent,
        round: Option<IndexPass>,
        mut activation: Activation,
    ) -> Option<Completion> {
        if let Some(round) = &round {
            activation.steps.insert(0, Command::Index(round.clone()));
        }
        let (reply, answer) = oneshot::channel();
        self.shared().host.submit(HostTask::Activation(ActivationTask {
            cycle: id,
            uid: Arc::clone(&self.key),
            resource: Arc::clone(&self.dispatcher.plan.resource),
            event: event.kind,
            object: Arc::clone(&event.object),
            activation,
            reply: Responder::through(reply),
        }));
        let mut reply = answer.await.ok()?;
        if let Some(round) = &round
            && let Some(slot) = self.dispatcher.slots().get(&self.key)
        {
            learn(&self.dispatcher, slot, round, &mut reply);
        }
        Some(reply)
    }

    /// Starts and stops daemons and timers; gives those that stop a moment to do so.
    async fn reconcile_daemons(&self, wanted: &DesiredDaemons, event: &QueuedEvent) -> EffectResult {
        let staffed = {
            let mut slots = self.dispatcher.slots();
            slots.get(&self.key).map(|slot| {
                self.dispatcher.reconcile_daemons(
                    slot,
                    event.received.as_ref().unwrap_or(&event.object),
                    wanted,
                )
            })
        };
        match staffed {
            None => EffectResult::Spawned { delay: None, holds: false },
            Some(Reconciled::Done(answer)) => answer,
            Some(Reconciled::Stopping { object_daemons, holds }) => {
                let delay = object_daemons.terminate_step(&self.shared().daemons, false).await;
                EffectResult::Spawned { delay, holds }
            }
        }
    }

    /// Waits for the time after which we do not wait for our own write any longer; false if something came before.
    async fn await_consistency(&self) -> bool {
        if self.has_pending() {
            return false;
        }
        let deadline = {
            let mut slots = self.dispatcher.slots();
            slots.get(&self.key).and_then(|slot| slot.consistency.as_ref()?.deadline())
        };
        let Some(deadline) = deadline else { return true };
        let left = deadline.seconds_since(self.shared().clock.now());
        tokio::select! {
            () = self.shared().clock.sleep(seconds(left)) => {
                if let Some(slot) = self.dispatcher.slots().get(&self.key) {
                    slot.consistency = None;
                }
                true
            }
            () = self.arrival() => false,
            () = self.shared().stopping.cancelled() => false,
        }
    }

    fn debug(&self, object: &Arc<Object>, text: impl FnOnce() -> String) {
        if self.shared().host.enabled(Level::Debug) {
            self.shared().host.log(LogRecord::local(Level::Debug, object, text()));
        }
    }
}
