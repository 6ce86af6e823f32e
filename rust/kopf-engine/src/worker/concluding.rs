//! The end of a cycle at work: what it has decided is written, and what the server has made of it is kept for the next one.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::consistency::Written;
use kopf_core::cycle::{Conclusion, Rules, Sequel};
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::patch::Patch;
use kopf_core::throttle;
use kopf_core::value::Map;

use super::{After, Worker};
use crate::departures::Whereabouts;
use crate::invoke::{CycleId, Entry, Job};
use crate::patching::{Applied, Change, PatchFailure, Patching, PatchingError};
use crate::salvage;
use crate::slots::{Event, Slot};

/// Seconds until what has met a conflict is tried again, if the newer state may not be read and may not come as an event.
const REFUSED_PAUSE: f64 = 1.0;
/// How many times in a row the result of transformation functions may be rejected, until they are given up: change handlers
/// wait for them.
const MOST_REJECTIONS: u8 = 5;

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
            self.throttle(&event, error, Some(id));
            // Afterwards: with the cycle, its exception is forgotten, which is logged.
            close(false);
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
        let Conclusion { delay, patch, outcomes, finalizer, fns: functions, sequel, pending, .. } =
            *conclusion;
        let pending = pending.map_or_else(Map::new, |pending| pending.0);
        let change = Change { cycle: id, patch, outcomes, finalizer, parted, functions, pending };
        let rules = self.shared().current.get();
        let result = if change.is_empty() {
            Ok(Applied::default())
        } else {
            Box::pin(self.apply(&rules, &event.object, change)).await
        };
        let mut applied = match result {
            Ok(applied) => applied,
            Err(PatchFailure { mut applied, error }) => {
                let given_up = self.count_rejection(&event.object, &mut applied);
                self.note_parting(stays_parted);
                self.note_write(&event.object, &applied);
                self.note_failure(&event.object, &error, &mut applied, sequel);
                self.note_rejections(&event.object, &mut applied);
                let with_traceback = matches!(error, PatchingError::Function(_)).then_some(id);
                self.throttle(&event, &format!("{error}{given_up}"), with_traceback);
                close(applied.carry);
                return After::Rest;
            }
        };
        close(applied.carry);
        self.note_parting(parted);
        self.note_write(&event.object, &applied);
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.memory.rejected_fns = 0;
            let plan = &self.dispatcher.plan;
            slot.memory.wrote(&event.object, applied.accepted(), sequel, &self.shared().rules.settings, plan);
        }
        let pause = self.note_rejections(&event.object, &mut applied);
        self.succeed();
        let delay = if applied.refused { Some(delay.unwrap_or(REFUSED_PAUSE)) } else { delay };
        let delay = delay.into_iter().chain(pause).min_by(f64::total_cmp);
        self.what_next(event, &applied, delay)
    }

    /// Applies the change; if the server goes on to refuse it, then as much of it as it accepts.
    async fn apply(
        &self,
        rules: &Rules,
        object: &Arc<Object>,
        change: Change,
    ) -> Result<Applied, PatchFailure> {
        let patching = self.patching(rules);
        let failure = match patching.apply(object, change).await {
            Err(failure) if failure.error.is_rejection() && !failure.applied.unwritten.is_empty() => failure,
            result => return result,
        };
        let refusals = {
            let mut slots = self.dispatcher.slots();
            slots.get(&self.key).and_then(|slot| Some(slot.memory.ledger.as_ref()?.refusals())).unwrap_or(0)
        };
        if self.shared().rules.settings.compat || refusals + 1 < salvage::PATIENCE {
            return Err(failure);
        }
        patching.merge_part(object, failure, &self.shared().rules.settings.persistence).await
    }

    /// Gives up the functions whose result is rejected too often, or holds a deletion; what is to be said of that.
    fn count_rejection(&self, object: &Object, applied: &mut Applied) -> &'static str {
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key).filter(|_| applied.functions_rejected) else { return "" };
        slot.memory.rejected_fns = slot.memory.rejected_fns.saturating_add(1);
        if slot.memory.rejected_fns < MOST_REJECTIONS && object.deletion_timestamp().is_none() {
            return "";
        }
        slot.memory.rejected_fns = 0;
        applied.carry = false;
        " The functions are given up."
    }

    /// Keeps what was rejected apart from the rest, to be sent again later; seconds until then.
    fn note_rejections(&self, object: &Arc<Object>, applied: &mut Applied) -> Option<f64> {
        let rejections = std::mem::take(&mut applied.rejections);
        let shared = self.shared();
        let pause = {
            let mut slots = self.dispatcher.slots();
            let slot = slots.get(&self.key)?;
            slot.memory.accepted(&applied.merged);
            let mut rejected = Patch::default();
            for rejection in &rejections {
                rejected.merge(rejection.patch.clone());
            }
            slot.memory.rejected(rejected.0, shared.clock.now(), &shared.rules.settings)
        };
        if applied.gone {
            return None;
        }
        let resource = &self.dispatcher.plan.resource;
        for rejection in rejections {
            let level = if rejection.is_denied() { shared.denials.level(resource) } else { Level::Warning };
            if shared.invoker.enabled(level) {
                shared.invoker.log(Entry::local(level, object, rejection.text(object, resource, pause)));
            }
        }
        pause
    }

    /// Keeps what could not be written, to be written the next time.
    fn note_failure(&self, object: &Object, error: &PatchingError, applied: &mut Applied, sequel: Sequel) {
        let settings = &self.shared().rules.settings;
        let mut slots = self.dispatcher.slots();
        let Some(slot) = slots.get(&self.key) else { return };
        if applied.unwritten.is_empty() {
            slot.memory.wrote(object, applied.accepted(), sequel, settings, &self.dispatcher.plan);
        } else {
            let unwritten = std::mem::take(&mut applied.unwritten);
            let unwritten = (unwritten, error.is_rejection());
            slot.memory.failed(object, unwritten, sequel, settings, &self.dispatcher.plan);
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
        if applied.latest.is_none() && applied.is_in_doubt() {
            self.doubt(slot);
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
