//! The worker of one object: from an event to its effects, again and again while there is something to do.
//!
//! Drives the core's cycle: hands its scripts to Python, waits where it says so, and applies its conclusion. Sleeps are cut
//! short by newer events. Errors that nobody expected slow the object down, never the operator.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::cycle::{Answer, Conclusion, Next};
use kopf_core::daemon::Wanted;
use kopf_core::indexing::Round;
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::patch::Patch;
use kopf_core::script::{Reply, Script, Step};
use kopf_core::throttle;
use tokio::sync::{Notify, oneshot};

use crate::api::seconds;
use crate::daemons::Staffed;
use crate::departures::Whereabouts;
use crate::dispatch::{Begun, Dispatcher, Shared};
use crate::indexing;
use crate::invoke::{CycleId, Entry, Job, Reporter, ScriptJob};
use crate::patching::Change;
use crate::slots::Event;
use crate::supervision::{Panicked, guarded};

mod concluding;

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

/// What there is to do.
enum Taken {
    /// A cycle.
    Begun(Box<Begun>),
    /// Events, but the object is held after an error.
    Held,
    /// Nothing; the object is left alone.
    Nothing,
}

/// What is left after a cycle.
enum After {
    /// Nothing: the next event, or rest.
    Rest,
    /// Look again at the same state after so many seconds, unless a newer one comes.
    Again(Event, f64),
    /// The operator is exiting.
    Exit,
}

impl Worker {
    /// Works until there is nothing to do for the object. A panic costs the object a pause, as any unexpected error.
    pub async fn run(self, begun: Option<Box<Begun>>) {
        let _permit = match &self.dispatcher.limit {
            Some(limit) => limit.acquire().await.ok(),
            None => None,
        };
        let (mut next, mut is_listed) = (begun, self.is_listed);
        // What panics outside of a cycle, has nothing left to try again with but newer events.
        while let Err(panicked) =
            guarded("The worker of the object", self.work(next.take(), &mut is_listed)).await
        {
            let text = format!("{panicked}. It goes on with the next event of the object {}.", self.key);
            self.shared().invoker.log(Entry::general(Level::Error, LOGGER, text));
            tokio::time::sleep(seconds(PANIC_PAUSE)).await;
        }
        if is_listed {
            self.dispatcher.advance().await;
        }
        self.shared().freed.notify_waiters();
    }

    async fn work(&self, begun: Option<Box<Begun>>, is_listed: &mut bool) {
        let killing = &self.shared().killing;
        let mut next = begun;
        loop {
            let begun = match next.take().map_or_else(|| self.take(), Taken::Begun) {
                Taken::Begun(begun) => begun,
                Taken::Held if Box::pin(self.hold()).await => continue,
                Taken::Held | Taken::Nothing => break,
            };
            let (id, event) = (begun.id, begun.event.clone());
            let after = tokio::select! {
                after = guarded("The cycle of the object", self.cycle(begun)) => {
                    after.unwrap_or_else(|panicked| self.recover(id, event, &panicked))
                }
                () = killing.cancelled() => {
                    self.shared().invoker.submit(Job::Cancel(id));
                    After::Exit
                }
            };
            if std::mem::take(is_listed) {
                self.dispatcher.advance().await;
            }
            match after {
                After::Rest => {}
                // What is rarely needed is boxed, or every worker would be as large as the largest of its states.
                After::Again(event, delay) => next = Box::pin(self.doze(event, delay)).await,
                After::Exit => break,
            }
        }
    }

    /// The cycle has panicked: the object is slowed down, and looked at again.
    fn recover(&self, id: CycleId, event: Event, panicked: &Panicked) -> After {
        self.dispatcher.with_slots(|slots, effects| {
            let Some(slot) = slots.get(&self.key) else { return };
            // What it has learnt of its own writes may be half of it; what must survive is on the object.
            slot.memory.ledger = None;
            slot.memory.handled = None;
            slot.consistency = None;
            if let Some(event) = self.dispatcher.hold_back(slot, event, panicked, effects)
                && let Some(active) = &mut slot.active
            {
                active.pending.push_front(event);
            }
        });
        self.shared().invoker.submit(Job::Close { cycle: id, carry: false });
        After::Rest
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.dispatcher.shared
    }

    /// Begins the next cycle; or leaves the object alone, if nothing has come for it.
    fn take(&self) -> Taken {
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key) else { return Taken::Nothing };
        let pending = slot.active.as_ref().is_some_and(|active| !active.pending.is_empty());
        if !pending {
            slot.active = None;
            self.dispatcher.finish(slots, &self.key);
            return Taken::Nothing;
        }
        if slot.throttle.remaining(self.shared().clock.now()).is_some() {
            return Taken::Held;
        }
        let Some(event) = slot.active.as_mut().and_then(|active| active.pending.pop_front()) else {
            return Taken::Nothing;
        };
        let begun = self.dispatcher.begin(slot, event);
        drop(slots);
        self.begun(begun).map_or(Taken::Held, Taken::Begun)
    }

    /// The cycle that has begun; none if that has panicked, and the object is slowed down.
    fn begun(&self, begun: Result<Begun, Box<(Event, Panicked)>>) -> Option<Box<Begun>> {
        match begun {
            Ok(mut begun) => {
                for entry in std::mem::take(&mut begun.notes) {
                    self.shared().invoker.log(entry);
                }
                Some(Box::new(begun))
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
    async fn hold(&self) -> bool {
        loop {
            let now = self.shared().clock.now();
            let held = self.dispatcher.slots().get(&self.key).and_then(|slot| slot.throttle.remaining(now));
            let Some(remaining) = held else { return self.has_pending() };
            let _nap = self.shared().nap();
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
                let text = throttle::OVER;
                self.shared().invoker.log(Entry::local(Level::Info, &last.object, text));
                active.pending.clear();
                active.pending.push_back(last);
            }
        }
    }

    /// Sleeps for the delayed handlers; then the same state is looked at again. A pause of the operator ends it: others
    /// may work on the object meanwhile, and the listing after the pause brings it here again.
    async fn doze(&self, event: Event, delay: f64) -> Option<Box<Begun>> {
        let object = Arc::clone(&event.object);
        let pause = &self.shared().pause;
        let pauses = pause.count();
        if pause.is_on() {
            return None;
        }
        if delay > 0.0 {
            let _nap = self.shared().nap();
            self.debug(&object, || format!("Sleeping for {delay} seconds for the delayed handlers."));
            let until = self.shared().clock.now().plus(delay);
            tokio::select! {
                () = self.shared().clock.sleep(seconds(delay)) => {}
                () = self.arrival() => {
                    let left = until.seconds_since(self.shared().clock.now()).max(0.0);
                    self.debug(&object, || format!("Sleeping was interrupted by new changes, {left} seconds left."));
                    return None;
                }
                () = pause.begun_since(pauses) => return None,
                () = self.shared().stopping.cancelled() => return None,
            }
        }
        if self.shared().rules.settings.compat && self.touch(&event).await {
            return None;
        }
        let mut slots = self.dispatcher.slots();
        let slot = slots.get(&self.key)?;
        if slot.place != Whereabouts::Inside {
            // Nobody would tell if it has changed meanwhile: it is to be asked for.
            slot.place = Whereabouts::Stirred;
            return None;
        }
        if slot.active.as_ref().is_some_and(|active| active.leaving || !active.pending.is_empty()) {
            return None;
        }
        let event = Event { kind: EventType::Modified, woken: true, ..event };
        let begun = self.dispatcher.begin(slot, event);
        drop(slots);
        self.begun(begun)
    }

    /// Wakes the object up as the reference does: by a write whose echo comes as an event. True if there will be one.
    async fn touch(&self, event: &Event) -> bool {
        let now = self.shared().clock.now().to_string();
        let rules = self.shared().current.get();
        let storage = &rules.settings.persistence.progress_storage;
        let mut patch = Patch::default();
        storage.touch(&event.object, &mut patch, Some(&now));
        let cycle = self.shared().next_cycle();
        let change = Change { patch, ..Change::of(cycle) };
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
    async fn cycle(&self, mut begun: Box<Begun>) -> After {
        let conclusion = self.drive(&mut begun).await;
        let Begun { id, event, closed, .. } = *begun;
        let Some(conclusion) = conclusion else {
            // The other side has failed to answer, and has logged why: the next event is to be handled nevertheless.
            self.shared().invoker.submit(Job::Close { cycle: id, carry: false });
            return After::Rest;
        };
        self.conclude((id, closed), conclusion, event).await
    }

    /// Does what the core asks for, until it comes to a conclusion; none if there is no answer.
    async fn drive(&self, begun: &mut Begun) -> Option<Box<Conclusion>> {
        let Begun { id, cycle, next, event, round, closed, notes: _ } = begun;
        let mut answer = None;
        // The indices come first: if there is nothing else to ask, then alone.
        if !matches!(next, Some(Next::Run(_))) && round.is_some() {
            let reply = self.ask(*id, event, round.take(), Script::default()).await?;
            answer = reply.error.is_some().then_some(Answer::Reply(reply));
        }
        loop {
            if let Some(answer) = answer {
                *next = Some(cycle.resume(answer, self.shared().clock.now()));
                self.dispatcher.say(cycle, &event.object);
            }
            answer = Some(match next.take()? {
                Next::Done(conclusion) => return Some(conclusion),
                Next::AwaitConsistency => Answer::Consistent(self.await_consistency().await),
                Next::Spawn(wanted) => Box::pin(self.staff(&wanted, event)).await,
                Next::Run(script) => {
                    let reply = self.ask(*id, event, round.take(), script).await?;
                    *closed = reply.closed;
                    Answer::Reply(reply)
                }
            });
        }
    }

    /// Has a script run, after what the indices need; none if there is no answer.
    async fn ask(
        &self,
        id: CycleId,
        event: &Event,
        round: Option<Round>,
        mut script: Script,
    ) -> Option<Reply> {
        if let Some(round) = &round {
            script.steps.insert(0, Step::Index(round.clone()));
        }
        let (reply, answer) = oneshot::channel();
        self.shared().invoker.submit(Job::Script(ScriptJob {
            cycle: id,
            uid: Arc::clone(&self.key),
            resource: Arc::clone(&self.dispatcher.plan.resource),
            event: event.kind,
            object: Arc::clone(&event.object),
            script,
            reply: Reporter::through(reply),
        }));
        let mut reply = answer.await.ok()?;
        if let Some(round) = &round
            && let Some(slot) = self.dispatcher.slots().get(&self.key)
        {
            indexing::learn(&self.dispatcher, slot, round, &mut reply);
        }
        Some(reply)
    }

    /// Starts and stops daemons and timers; gives those that stop a moment to do so.
    async fn staff(&self, wanted: &Wanted, event: &Event) -> Answer {
        let staffed = {
            let mut slots = self.dispatcher.slots();
            slots
                .get(&self.key)
                .map(|slot| self.dispatcher.staff(slot, event.told.as_ref().unwrap_or(&event.object), wanted))
        };
        match staffed {
            None => Answer::Spawned { delay: None, holds: false },
            Some(Staffed::Done(answer)) => answer,
            Some(Staffed::Stopping { subject, holds }) => {
                let delay = subject.press(self.shared(), false).await;
                Answer::Spawned { delay, holds }
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
        if self.shared().invoker.enabled(Level::Debug) {
            self.shared().invoker.log(Entry::local(Level::Debug, object, text()));
        }
    }
}
