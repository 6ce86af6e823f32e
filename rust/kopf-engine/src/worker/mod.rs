//! The worker of one object: executes the effects of its cycles while there are any.
//!
//! It drives the core's cycle: submits its commands to the host, waits for its delays, and applies its decision. Newer events
//! cut delays short. After unexpected errors, only this object is delayed, never the operator.

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
use crate::objects::dispatcher::{Dispatcher, record_indexing};
use crate::objects::membership::Membership;
use crate::objects::slots::{OpenCycle, QueuedEvent};
use crate::patching::WriteRequest;
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

/// The next work of a worker.
enum NextWork {
    /// A cycle to run.
    Begun(Box<OpenCycle>),
    /// Events, but the object is held after an error.
    Held,
    /// Nothing: the worker ends.
    Nothing,
}

/// The next step of the worker after a cycle.
enum CycleOutcome {
    /// Takes the next event, or ends.
    Rest,
    /// Handles the same state again after so many seconds, unless a newer one comes.
    Again(QueuedEvent, f64),
    /// The operator is exiting.
    Exit,
}

impl Worker {
    /// Runs until there is no work left for the object. A panic is treated as any unexpected error: the object is delayed.
    pub async fn run(self, open_cycle: Option<Box<OpenCycle>>) {
        let _permit = match &self.dispatcher.limit {
            Some(limit) => limit.acquire().await.ok(),
            None => None,
        };
        let (mut next, mut is_listed) = (open_cycle, self.is_listed);
        // After a panic outside of a cycle, there is no event to retry; the worker continues with newer ones.
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
                // Rarely used futures are boxed, to keep the future of the worker small.
                CycleOutcome::Again(event, delay) => next = Box::pin(self.wait_until_due(event, delay)).await,
                CycleOutcome::Exit => break,
            }
        }
    }

    /// Handles a panic of the cycle: the object is delayed and handled again.
    fn recover(&self, id: CycleId, event: QueuedEvent, panicked: &Panicked) -> CycleOutcome {
        self.dispatcher.with_slots(|slots, effects| {
            let Some(slot) = slots.get(&self.key) else { return };
            // The record of our writes may be incomplete; the persisted progress is on the object.
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

    /// Starts the next cycle, or ends the work if there is no event.
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

    /// The opened cycle; none if opening it has panicked, and the object is delayed.
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

    /// Waits for the next event of the object.
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

    /// Waits for the end of the error back-off; true if there is more to do. Only the last state is kept.
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
                // During a pause, other operators may handle the object; the listing after the pause delivers it again.
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

    /// Sleeps for the delayed handlers; then the same state is handled again. A pause of the operator ends the sleep: other
    /// operators may handle the object meanwhile, and the listing after the pause delivers it again.
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
        if slot.membership != Membership::Selected {
            // The watch does not report changes of this object: it has to be looked up.
            slot.membership = Membership::Stale;
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

    /// Patches the object with Kopf's touch annotation, as Kopf 1.45 does. True if a watch event of this write will come.
    async fn touch(&self, event: &QueuedEvent) -> bool {
        let now = self.shared().clock.now().to_string();
        let rules = self.shared().current.get();
        let storage = &rules.settings.persistence.progress_storage;
        let mut patch = Patch::default();
        storage.touch(&event.object, &mut patch, Some(&now));
        let cycle = self.shared().next_cycle();
        let change = WriteRequest { patch, ..WriteRequest::of(cycle) };
        // If the write fails, the cycle starts without its watch event.
        let applied = match Box::pin(self.patching(&rules).apply(&event.object, change)).await {
            Ok(applied) => applied,
            Err(failure) => *failure.applied,
        };
        self.note_write(&event.object, &applied);
        applied.gone
            || applied.latest.is_some_and(|it| it.resource_version() != event.object.resource_version())
    }

    /// Runs one cycle, from its opening to its effects.
    async fn cycle(&self, mut open_cycle: Box<OpenCycle>) -> CycleOutcome {
        let decision = self.drive(&mut open_cycle).await;
        let OpenCycle { id, event, closed, .. } = *open_cycle;
        let Some(decision) = decision else {
            // The host has failed to complete the activation, and has logged why: the next event is handled nevertheless.
            self.shared().host.submit(HostTask::Close { cycle: id, carry: false });
            return CycleOutcome::Rest;
        };
        self.conclude((id, closed), decision, event).await
    }

    /// Executes the effects of the core until its decision; none if the host does not complete an activation.
    async fn drive(&self, open_cycle: &mut OpenCycle) -> Option<Box<Decision>> {
        let OpenCycle { id, cycle, next, event, index_pass, closed, log_messages: _ } = open_cycle;
        let mut answer = None;
        // The index commands come first; without other commands, they are submitted alone.
        if !matches!(next, Some(Effect::Run(_))) && index_pass.is_some() {
            let reply = self.activate(*id, event, index_pass.take(), Activation::default()).await?;
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
                Effect::Spawn(desired) => Box::pin(self.reconcile_daemons(&desired, event)).await,
                Effect::Run(activation) => {
                    let reply = self.activate(*id, event, index_pass.take(), activation).await?;
                    *closed = reply.closed;
                    EffectResult::Completion(reply)
                }
            });
        }
    }

    /// Submits an activation, with the index commands first, and waits for its completion; none if the host drops it.
    async fn activate(
        &self,
        id: CycleId,
        event: &QueuedEvent,
        index_pass: Option<IndexPass>,
        mut activation: Activation,
    ) -> Option<Completion> {
        if let Some(index_pass) = &index_pass {
            activation.steps.insert(0, Command::Index(index_pass.clone()));
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
        if let Some(index_pass) = &index_pass
            && let Some(slot) = self.dispatcher.slots().get(&self.key)
        {
            record_indexing(&self.dispatcher, slot, index_pass, &mut reply);
        }
        Some(reply)
    }

    /// Starts and stops daemons and timers; waits a moment for those that stop.
    async fn reconcile_daemons(&self, desired: &DesiredDaemons, event: &QueuedEvent) -> EffectResult {
        let staffed = {
            let mut slots = self.dispatcher.slots();
            slots.get(&self.key).map(|slot| {
                self.dispatcher.reconcile_daemons(
                    slot,
                    event.received.as_ref().unwrap_or(&event.object),
                    desired,
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

    /// Waits for the watch event caused by our write until its timeout; false if another event came before.
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
