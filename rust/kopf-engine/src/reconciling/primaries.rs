//! Events of primaries, and what follows from them: the position in the work queue, and the finalizer.

use std::sync::Arc;

use kopf_core::daemon::StopReasons;
use kopf_core::handler::filters::{self, FilterVerdict};
use kopf_core::handler::reconciling::{InitialTriggers, Reconciling};
use kopf_core::object::Object;
use kopf_core::persistence::consistency::contains;
use kopf_core::persistence::finalizer::Edit;
use kopf_core::predicate::Digests;
use kopf_core::relations::{ObjectName, TriggerDecision};
use kopf_core::resource::Resource;
use kopf_core::schedule::{PrimaryState, Priority};
use kopf_core::time::Timestamp;

use super::PrimaryName;
use super::effects::{Effects, FinalizerEdit};
use super::event::{FeedId, Listed, PrimaryEvent, Trigger, described, name_of};
use super::state::{Primary, Reconciler, State, kept};
use crate::host::reconcile::Inspection;

impl State {
    /// Takes an event of which it is known whether the object matches.
    pub(super) fn settle_primary(
        &mut self,
        index: usize,
        key: &Arc<str>,
        event: &PrimaryEvent,
        inspection: &Inspection,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let number = self.next_number();
        let reconciler = &mut self.reconcilers[index];
        let storages = &self.rules.settings.persistence;
        let digests = Digests::of(&reconciler.changed, &event.object, storages, &inspection.functions);
        let Reconciler { options, policy, finalizer, .. } = &*reconciler;
        let state = state_of(&event.object, inspection.matches, finalizer);
        let (options, policy) = (Arc::clone(options), *policy);
        let is_paused =
            event.object.annotation(&options.pause_annotation).is_some_and(|value| value == "true");
        let trigger;
        if let Some(primary) = reconciler.primaries.get_mut(key) {
            if is_older(&event.object, &primary.object) {
                if event.listed == Listed::AfterPause {
                    self.trigger(index, key, Trigger::of_list(), now, effects);
                }
                return;
            }
            let differs = digests.differ_from(&primary.digests);
            let is_new = std::mem::take(&mut primary.is_gone);
            trigger = match event.listed {
                Listed::AfterPause => Some(Priority::Initial),
                _ if differs || is_new => Some(Priority::Changed),
                _ => None,
            };
            primary.digests = digests;
            primary.object = kept(&event.object);
            (primary.feed, primary.resource) = (event.feed, Arc::clone(&event.resource));
            primary.cycles.clone_from(&event.cycles);
            primary.is_editing &= primary.cycles.is_none();
        } else {
            // The finalizer of an object that does not match is removed: the operator's one by handling cycles, if there are any.
            let is_own_edit = event.cycles.is_none() || !reconciler.shares_finalizer();
            let is_left = options.deletion && state.has_finalizer && is_own_edit;
            if !inspection.matches && !is_left {
                return;
            }
            trigger = first_trigger(&options, event);
            reconciler.numbers.insert(number, Arc::clone(key));
            reconciler.primaries.insert(Arc::clone(key), Primary::new(number, event, digests));
        }
        reconciler.names.insert((name_of(&event.object), Arc::clone(key)));
        for relation in &mut reconciler.relations {
            relation.observe_primary(key, inspection.matches.then_some(&event.object));
        }
        let Some(primary) = reconciler.primaries.get_mut(key) else { return };
        let decision = match trigger {
            Some(priority) => primary.decide_about_event((key, event), priority, &policy.delays, number),
            None => TriggerDecision::Ignore,
        };
        let trigger = trigger.filter(|_| decision == TriggerDecision::Trigger);
        match trigger {
            Some(Priority::Initial) => reconciler.measured.triggered("list"),
            Some(_) => reconciler.measured.triggered("primary"),
            None => {}
        }
        if trigger.is_some() && self.is_debug {
            primary.cause = Some(described(&primary.resource, &event.object));
        }
        primary.await_finalizer(&event.object);
        primary.schedule.set_paused(is_paused, options.deletion, &policy, now);
        primary.schedule.observe(state, trigger, options.deletion, &policy, now);
        if let TriggerDecision::Delay(delay) = decision {
            reconciler.measured.triggered("primary");
            primary.schedule.trigger_after(delay, options.deletion, now);
        }
        self.establish(index, key, now, effects);
    }

    /// Records that an object is gone, if it is a primary of this feed.
    pub(super) fn remove_primary(
        &mut self,
        index: usize,
        feed: FeedId,
        key: &Arc<str>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let reconciler = &mut self.reconcilers[index];
        reconciler.end_inspection(feed, key);
        let Some(primary) = reconciler.primaries.get_mut(key).filter(|primary| primary.feed == feed) else {
            return;
        };
        primary.schedule.remove();
        primary.is_gone = true;
        reconciler.names.remove(&(name_of(&primary.object), Arc::clone(key)));
        for relation in &mut reconciler.relations {
            relation.observe_primary(key, None);
        }
        self.establish(index, key, now, effects);
    }

    /// Whether a primary is gone.
    pub(super) fn is_gone(&self, index: usize, key: &str) -> bool {
        self.reconcilers[index].primaries.get(key).is_some_and(|primary| primary.is_gone)
    }

    /// Removes the primaries of a feed that its list does not contain.
    pub(super) fn retain_primaries(
        &mut self,
        index: usize,
        feed: FeedId,
        is_listed: impl Fn(&str) -> bool,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let reconciler = &mut self.reconcilers[index];
        reconciler.retain_inspections(feed, &is_listed);
        let primaries = reconciler.primaries.iter();
        let gone = primaries.filter(|(key, primary)| primary.feed == feed && !is_listed(key));
        let gone: Vec<_> = gone.map(|(key, _)| Arc::clone(key)).collect();
        for key in gone {
            self.remove_primary(index, feed, &key, now, effects);
        }
    }

    /// Triggers a primary.
    pub(super) fn trigger(
        &mut self,
        index: usize,
        key: &Arc<str>,
        trigger: Trigger<'_>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let number = self.next_number();
        let Reconciler { primaries, options, policy, measured, .. } = &mut self.reconcilers[index];
        let Some(primary) = primaries.get_mut(key) else { return };
        match primary.decide(trigger, &policy.delays, number) {
            TriggerDecision::Trigger => {
                primary.schedule.trigger(trigger.priority, options.deletion, policy, now);
            }
            TriggerDecision::Delay(delay) => primary.schedule.trigger_after(delay, options.deletion, now),
            TriggerDecision::Keep | TriggerDecision::Ignore => return,
        }
        measured.triggered(trigger.source);
        if let Some(cause) = trigger.cause {
            primary.cause = Some(cause.to_owned());
        }
        self.establish(index, key, now, effects);
    }

    /// Triggers all primaries of a reconciler.
    pub(super) fn trigger_all(
        &mut self,
        index: usize,
        trigger: Trigger<'_>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let keys: Vec<_> = self.reconcilers[index].primaries.keys().cloned().collect();
        for key in keys {
            self.trigger(index, &key, trigger, now, effects);
        }
    }

    /// An external trigger. Returns whether there was such a primary.
    pub(super) fn trigger_by_name(
        &mut self,
        handler: Option<usize>,
        primary: Option<&PrimaryName>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> bool {
        let mut is_known = false;
        for index in 0..self.reconcilers.len() {
            let reconciler = &self.reconcilers[index];
            if handler.is_some_and(|handler| handler != reconciler.handler) {
                continue;
            }
            let cause = self.is_debug.then_some("an external trigger");
            let trigger = Trigger { priority: Priority::Changed, source: "external", cause, event: None };
            let Some(requested) = primary else {
                is_known = true;
                self.trigger_all(index, trigger, now, effects);
                continue;
            };
            let name: ObjectName =
                (requested.namespace.as_deref().map(Box::from), requested.name.as_str().into());
            let keys = match &requested.uid {
                Some(uid) => vec![Arc::from(uid.as_str())],
                None => reconciler.named(&name),
            };
            let is_requested = |key: &Arc<str>| {
                reconciler.primaries.get(key).is_some_and(|primary| {
                    requested.kind.as_ref().is_none_or(|kind| kind.check(&primary.resource))
                })
            };
            let keys: Vec<_> = keys.into_iter().filter(is_requested).collect();
            for key in keys {
                is_known = true;
                self.trigger(index, &key, trigger, now, effects);
            }
        }
        is_known
    }

    /// Establishes what the rules require after a change of a primary.
    pub(super) fn establish(&mut self, index: usize, key: &Arc<str>, now: Timestamp, effects: &mut Effects) {
        let reconciler = &mut self.reconcilers[index];
        let Some(primary) = reconciler.primaries.get(key) else { return };
        let next = primary.schedule.next(reconciler.options.deletion, &reconciler.policy);
        let (run, number) = (primary.run, primary.number);
        reconciler.queue.set(number, next.position);
        if next.is_over {
            effects.forgotten.extend(primary.cycles.is_none().then(|| Arc::clone(key)));
            reconciler.primaries.remove(key);
            reconciler.numbers.remove(&number);
            return;
        }
        if let Some(run) = run.filter(|_| next.stop) {
            self.stop(run, StopReasons::RESOURCE_DELETED, now, effects);
        }
        if let Some(edit) = next.edit {
            self.require_edit(index, key, edit, effects);
        }
    }

    /// Edits the finalizer, unless it is being edited. A shared one stays while another reconciler needs it. A standby edits none:
    /// the lists of the next term require that again.
    fn require_edit(&mut self, index: usize, key: &Arc<str>, edit: Edit, effects: &mut Effects) {
        let is_shared = self.reconcilers[index].shares_finalizer();
        if is_shared && edit == Edit::Allow && self.holds(key) {
            return;
        }
        let reconciler = &mut self.reconcilers[index];
        let finalizer = reconciler.finalizer.clone();
        let Some(primary) = reconciler.primaries.get_mut(key).filter(|primary| !primary.is_editing) else {
            return;
        };
        let cycles = primary.cycles.as_ref().filter(|_| is_shared);
        if cycles.is_none() && self.pause.is_standby() {
            return;
        }
        primary.is_editing = true;
        let object = Arc::clone(&primary.object);
        match cycles {
            Some(cycles) => effects.wakes.push((Arc::clone(&cycles.owner), Arc::clone(key), object)),
            None => effects.edits.push(FinalizerEdit {
                uid: Arc::clone(key),
                resource: Arc::clone(&primary.resource),
                object,
                finalizer,
                edit,
            }),
        }
    }

    /// The resource and the newest known state of the object of an edit; none if no reconciler requires the edit any more.
    pub(super) fn editable(&self, edit: &FinalizerEdit) -> Option<(Arc<Resource>, Arc<Object>)> {
        self.reconcilers.iter().filter(|reconciler| reconciler.finalizer == edit.finalizer).find_map(
            |reconciler| {
                let primary = reconciler.primaries.get(&edit.uid)?;
                let next = primary.schedule.next(reconciler.options.deletion, &reconciler.policy);
                let is_held =
                    reconciler.shares_finalizer() && edit.edit == Edit::Allow && self.holds(&edit.uid);
                let is_required = next.edit == Some(edit.edit) && !is_held;
                is_required.then(|| (Arc::clone(&primary.resource), Arc::clone(&primary.object)))
            },
        )
    }

    /// Whether a reconciler needs the operator's finalizer of the object, or may need it: its filters are being evaluated.
    pub(super) fn holds(&self, key: &str) -> bool {
        self.reconcilers.iter().filter(|reconciler| reconciler.shares_finalizer()).any(|reconciler| {
            match reconciler.primaries.get(key) {
                Some(primary) => primary.schedule.needs_finalizer(reconciler.options.deletion),
                None => reconciler
                    .newest_inspected(key)
                    .is_some_and(|inspected| reconciler.holds_inspected(&inspected.object)),
            }
        })
    }

    /// Records the end of an edit of a finalizer, with the state in the response.
    pub(super) fn on_edited(
        &mut self,
        key: &Arc<str>,
        finalizer: &str,
        latest: Option<&Arc<Object>>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        for index in 0..self.reconcilers.len() {
            if self.reconcilers[index].finalizer != finalizer {
                continue;
            }
            if let Some(primary) = self.reconcilers[index].primaries.get_mut(key) {
                primary.is_editing = false;
            }
            self.on_response(index, key, latest, now);
            self.establish(index, key, now, effects);
        }
    }

    /// Records the state in a response to an own write: calls get it, but it is no event.
    pub(super) fn on_response(
        &mut self,
        index: usize,
        key: &Arc<str>,
        latest: Option<&Arc<Object>>,
        now: Timestamp,
    ) {
        let reconciler = &mut self.reconcilers[index];
        let Some(handler) = self.rules.registry.handlers.get(reconciler.handler) else { return };
        let Reconciler { primaries, options, policy, finalizer, .. } = reconciler;
        let (Some(primary), Some(latest)) = (primaries.get_mut(key), latest) else { return };
        if primary.is_gone || is_older(latest, &primary.object) {
            return;
        }
        let matches = match filters::on_object(handler, latest) {
            FilterVerdict::Yes => true,
            FilterVerdict::No => false,
            // The functions of filters are called for the next event. Until then, it matches as at the last one.
            FilterVerdict::Ask => primary.schedule.matches() == Some(true),
        };
        primary.object = kept(latest);
        primary.await_finalizer(latest);
        let state = state_of(latest, matches, finalizer);
        primary.schedule.observe(state, None, options.deletion, policy, now);
    }
}

fn state_of(object: &Object, matches: bool, finalizer: &str) -> PrimaryState {
    let is_deleting = object.deletion_timestamp().is_some();
    PrimaryState { matches, is_deleting, has_finalizer: object.has_finalizer(finalizer) }
}

/// The trigger of an object that was not known before.
fn first_trigger(options: &Reconciling, event: &PrimaryEvent) -> Option<Priority> {
    let is_included = match options.initial {
        InitialTriggers::All => true,
        InitialTriggers::Unobserved => is_unobserved(&event.object),
        InitialTriggers::None => false,
    };
    match event.listed {
        Listed::No | Listed::Again => Some(Priority::Changed),
        Listed::AfterPause => Some(Priority::Initial),
        Listed::First => is_included.then_some(Priority::Initial),
    }
}

fn is_unobserved(object: &Object) -> bool {
    let number = |keys: [&str; 2]| {
        let value = object.field(&kopf_core::json::path::FieldPath::from_keys(keys));
        value.and_then(|value| value.as_i64())
    };
    let observed = number(["status", "observedGeneration"]);
    observed.is_none() || observed != number(["metadata", "generation"])
}

/// Whether the state is older than the known one.
fn is_older(object: &Object, known: &Object) -> bool {
    match (object.resource_version(), known.resource_version()) {
        (Some(version), Some(known)) => version != known && contains(version, known),
        _ => false,
    }
}
