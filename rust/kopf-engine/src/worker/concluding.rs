//! The end of a cycle at work: what it has decided is written, and what the server has made of it is kept for the next one.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::consistency::Written;
use kopf_core::cycle::{Conclusion, Rules, Sequel};
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::throttle;

use super::{After, Worker};
use crate::departures::Whereabouts;
use crate::invoke::{CycleId, Entry, Job};
use crate::patching::{Applied, Change, Patching, PatchingError};
use crate::salvage;
use crate::slots::{Event, Slot};

/// Seconds until what the server has refused without a conflict is tried again.
const REFUSED_PAUSE: f64 = 1.0;

impl Worker {
    /// Applies what the cycle has decided, and keeps what it has taught.
    pub(super) async fn conclude(
        &self,
        of: (CycleId, bool),
        conclusion: Box<Conclusion>,
        event: Event,
    ) -> After {
        let (id, closed) = of;
        let close = |carry: bool| {
            if !closed {
                self.shared().invoker.submit(Job::Close { cycle: id, carry });
            }
        };
        if let Some(error) = &conclusion.error {
            close(false);
            self.throttle(&event, error, Some(id));
            return After::Rest;
        }
        self.remember(&conclusion);
        if event.kind == EventType::Deleted {
            if let Some(slot) = self.dispatcher.slots().get(&self.key) {
                slot.gone = true;
                slot.throttle.succeed();
            }
            close(false);
            return After::Rest;
        }
        let parted = conclusion.parted;
        let stays_parted = conclusion.stays_parted(&self.shared().rules.settings);
        let Conclusion { delay, patch, finalizer, fns: functions, sequel, .. } = *conclusion;
        let change = Change { cycle: id, patch, finalizer, parted, functions };
        let mut applied = Applied::default();
        let rules = self.shared().current.get();
        if !change.is_empty()
            && let Err(error) = Box::pin(self.apply(&rules, &event.object, change, &mut applied)).await
        {
            self.note_parting(stays_parted);
            self.note_write(&event.object, &applied);
            self.note_failure(&event.object, &error, &mut applied, sequel);
            let with_traceback = matches!(error, PatchingError::Function(_)).then_some(id);
            self.throttle(&event, &error.to_string(), with_traceback);
            close(applied.carry);
            return After::Rest;
        }
        close(applied.carry);
        self.note_parting(parted);
        self.note_write(&event.object, &applied);
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.memory.wrote(&event.object, &applied.merged, sequel, &self.shared().rules.settings);
        }
        self.succeed();
        let delay = if applied.refused { Some(delay.unwrap_or(REFUSED_PAUSE)) } else { delay };
        self.what_next(event, &applied, delay)
    }

    /// Applies the change; if the server goes on to refuse it, then as much of it as it accepts.
    async fn apply(
        &self,
        rules: &Rules,
        object: &Arc<Object>,
        change: Change,
        applied: &mut Applied,
    ) -> Result<(), PatchingError> {
        let patching = self.patching(rules);
        let error = match patching.apply(object, change, applied).await {
            Err(error) if error.is_rejection() && !applied.unwritten.is_empty() => error,
            result => return result,
        };
        let refusals = {
            let mut slots = self.dispatcher.slots();
            slots.get(&self.key).and_then(|slot| Some(slot.memory.ledger.as_ref()?.refusals())).unwrap_or(0)
        };
        if self.shared().rules.settings.compat || refusals + 1 < salvage::PATIENCE {
            return Err(error);
        }
        let patch = std::mem::take(&mut applied.unwritten);
        let persistence = &self.shared().rules.settings.persistence;
        let salvaged = patching.salvage(object, &patch, &error, persistence, applied).await;
        if salvaged.is_err() {
            applied.unwritten = patch;
            return Err(error);
        }
        Ok(())
    }

    /// Keeps what could not be written, to be written the next time.
    fn note_failure(&self, object: &Object, error: &PatchingError, applied: &mut Applied, sequel: Sequel) {
        let settings = &self.shared().rules.settings;
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key) else { return };
        if applied.unwritten.is_empty() {
            slot.memory.wrote(object, &applied.merged, sequel, settings);
        } else {
            let unwritten = std::mem::take(&mut applied.unwritten);
            let unwritten = (unwritten, error.is_rejection());
            slot.memory.failed(object, unwritten, sequel, settings);
        }
        if error.is_of_unknown_fate() {
            self.doubt(slot);
        }
    }

    /// Whether to rest, or to look again later.
    fn what_next(&self, event: Event, applied: &Applied, delay: Option<f64>) -> After {
        let changed = applied
            .latest
            .as_ref()
            .filter(|latest| latest.resource_version() != event.object.resource_version());
        if applied.gone || changed.is_some() {
            self.forget_wakes();
        }
        if applied.gone {
            return After::Rest;
        }
        match (changed, delay) {
            // The write comes back as an event, and that goes on.
            (Some(_), Some(delay)) if delay > 0.0 => {
                self.debug(&event.object, || {
                    format!("Sleeping was skipped because of the patch, {delay} seconds left.")
                });
                After::Rest
            }
            (None, Some(delay)) => After::Again(event, delay),
            (Some(_) | None, _) => After::Rest,
        }
    }

    /// Whoever has woken the object up meanwhile, has done that for a state that is no more; the newer one will come.
    fn forget_wakes(&self) {
        let mut slots = self.dispatcher.slots();
        if let Some(active) = slots.get(&self.key).and_then(|slot| slot.active.as_mut()) {
            active.pending.retain(|event| !event.woken);
        }
    }

    pub(super) fn patching<'a>(&'a self, rules: &'a Rules) -> Patching<'a> {
        let shared = self.shared();
        Patching {
            api: &shared.api,
            invoker: &shared.invoker,
            resource: &self.dispatcher.plan.resource,
            finalizer: &rules.settings.persistence.finalizer,
            compat: shared.rules.settings.compat,
            parting: (!shared.rules.settings.compat && !rules.settings.persistence.is_foreign())
                .then_some((&*self.dispatcher.plan, &rules.settings.persistence)),
        }
    }

    fn remember(&self, conclusion: &Conclusion) {
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.memory.fully_handled_once |= conclusion.fully_handled_once;
            slot.memory.stripped |= conclusion.stripped;
        }
    }

    /// Notes whether all is done for the object's deletion, except for letting it go.
    fn note_parting(&self, parted: bool) {
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.memory.parted = parted;
        }
    }

    /// A cycle went well, down to its writes: the next error is the first one again.
    fn succeed(&self) {
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.throttle.succeed();
        }
    }

    /// Notes what the server made of our write, so that its echo is recognised.
    pub(super) fn note_write(&self, object: &Object, applied: &Applied) {
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key) else { return };
        slot.memory.remaining_fns = applied.carry;
        if slot.place == Whereabouts::Outside {
            slot.place = Whereabouts::Stirred;
        }
        if applied.gone {
            // Only its deletion is still to come; until then, nothing that is told of it is true any more.
            self.doubt(slot);
            return;
        }
        let Some(latest) = &applied.latest else { return };
        let Some(version) = latest.resource_version() else { return };
        let vanishing = latest.deletion_timestamp().is_some() && latest.finalizers().next().is_none();
        let timeout = self.shared().current.get().settings.persistence.consistency_timeout;
        let consistency = slot.consistency.get_or_insert_default();
        consistency.wrote(
            Written { version, vanishing },
            object.resource_version(),
            timeout,
            self.shared().clock.now(),
        );
    }

    /// Nothing that is told of the object in the next time is to be trusted.
    fn doubt(&self, slot: &mut Slot) {
        let timeout = self.shared().current.get().settings.persistence.consistency_timeout;
        slot.consistency.get_or_insert_default().doubt(timeout, self.shared().clock.now());
    }

    /// Slows the object down after an error that nobody expected; its state is looked at again afterwards.
    pub(super) fn throttle(&self, event: &Event, error: &str, cycle: Option<CycleId>) {
        let now = self.shared().clock.now();
        let rules = self.shared().current.get();
        let delays = &rules.settings.queueing.error_delays;
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key) else { return };
        let delay = slot.throttle.fail(delays, now);
        // The reference forgets the event; an object must not wait for its next change to be handled.
        if event.kind != EventType::Deleted
            && !self.shared().rules.settings.compat
            && let Some(active) = &mut slot.active
            && active.pending.is_empty()
        {
            active.pending.push_back(Event { woken: true, ..event.clone() });
        }
        drop(slots);
        let entry = Entry::local(Level::Error, &event.object, throttle::text(delay, error));
        self.shared().invoker.log(match cycle {
            Some(cycle) => entry.with_exception_of(cycle),
            None => entry,
        });
    }
}
