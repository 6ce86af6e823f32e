//! Primaries whose filters and functions in `changed` are evaluated by the host.
//!
//! While a function fails, a known primary matches or not as before, and an unknown object is none. The functions are called again for
//! the next event of the object, or after a delay.

use std::sync::Arc;

use kopf_core::handler::filters::{self, FilterVerdict};
use kopf_core::predicate::Changed;
use kopf_core::time::Timestamp;

use super::effects::{Effects, Inspect};
use super::event::{FeedId, PrimaryEvent};
use super::inspections::Inspected;
use super::state::{Reconciler, State, kept};
use crate::host::reconcile::Inspection;
use crate::object_key::key_of;

impl Reconciler {
    /// Ends the evaluation of an object that is gone from a feed, unless another feed has it.
    pub(super) fn end_inspection(&mut self, feed: FeedId, key: &Arc<str>) {
        if self.newest_inspected(key).is_some_and(|newest| newest.feed == feed) {
            self.inspected.remove(key);
            self.failed.remove(key);
        }
    }

    /// The newest event of an object for which functions are called now or later.
    pub(super) fn newest_inspected(&self, key: &str) -> Option<&PrimaryEvent> {
        let inspected = self.inspected.get(key).map(|it| it.pending.as_ref().unwrap_or(&it.event));
        inspected.or_else(|| self.failed.event(key))
    }

    /// Ends the evaluation of the objects that the list of a feed does not contain.
    pub(super) fn retain_inspections(&mut self, feed: FeedId, is_listed: impl Fn(&str) -> bool) {
        let keys = self.inspected.keys().chain(self.failed.keys());
        let gone: Vec<_> = keys.filter(|key| !is_listed(key)).cloned().collect();
        for key in gone {
            self.end_inspection(feed, &key);
        }
    }
}

impl State {
    /// Takes an event of an object that can be a primary.
    pub(super) fn on_primary(
        &mut self,
        index: usize,
        event: PrimaryEvent,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let key = key_of(&event.object);
        let Reconciler { inspected, failed, .. } = &mut self.reconcilers[index];
        if let Some(Inspected { pending, .. }) = inspected.get_mut(&key) {
            *pending = Some(event.replacing(pending.as_ref()));
            return;
        }
        let event = event.replacing(failed.take(&key).as_ref());
        self.inspect(index, (key, event, false), now, effects);
    }

    /// Calls the functions again that have failed, for the objects whose time has come.
    pub(super) fn repeat_inspections(&mut self, now: Timestamp, effects: &mut Effects) {
        for index in 0..self.reconcilers.len() {
            while let Some(event) = self.reconcilers[index].failed.take_due(now) {
                self.inspect(index, (key_of(&event.object), event, true), now, effects);
            }
        }
    }

    fn inspect(
        &mut self,
        index: usize,
        (key, event, is_repeated): (Arc<str>, PrimaryEvent, bool),
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let reconciler = &mut self.reconcilers[index];
        let Some(handler) = self.rules.registry.handlers.get(reconciler.handler) else { return };
        let verdict = filters::on_object(handler, &event.object);
        let has_functions = reconciler.changed.contains(&Changed::Function);
        if verdict == FilterVerdict::No || (verdict == FilterVerdict::Yes && !has_functions) {
            reconciler.failed.remove(&key);
            let inspection = Inspection { matches: verdict == FilterVerdict::Yes, ..Inspection::default() };
            return self.settle_primary(index, &key, &event, &inspection, now, effects);
        }
        effects.inspections.push(Inspect {
            reconciler: index,
            related: None,
            handler: reconciler.handler,
            key: Arc::clone(&key),
            resource: Arc::clone(&event.resource),
            object: Arc::clone(&event.object),
        });
        reconciler.inspected.insert(key, Inspected { event, is_repeated, pending: None });
    }

    /// Takes the results of the functions for a primary. Without results, a filter has failed, which is logged.
    pub(super) fn on_primary_inspected(
        &mut self,
        index: usize,
        key: &Arc<str>,
        inspection: Option<Inspection>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let reconciler = &mut self.reconcilers[index];
        let Some(Inspected { event, is_repeated, pending }) = reconciler.inspected.remove(key) else {
            return;
        };
        let newest = pending.as_ref().unwrap_or(&event).clone();
        if let Some(inspection) = inspection {
            reconciler.failed.remove(key);
            self.settle_primary(index, key, &event, &inspection, now, effects);
        } else {
            let known = reconciler.primaries.get(key).and_then(|primary| primary.schedule.matches());
            if let Some(matches) = known.filter(|_| !is_repeated) {
                let inspection = Inspection { matches, ..Inspection::default() };
                self.settle_primary(index, key, &event, &inspection, now, effects);
            }
            if pending.is_none() {
                let event = PrimaryEvent { object: kept(&event.object), ..event };
                self.reconcilers[index].failed.add(key, event, now);
            }
        }
        if let Some(pending) = pending {
            self.on_primary(index, pending, now, effects);
        }
        self.release_unmatched(index, key, newest, effects);
    }

    /// Lets the handling cycles of an object that is no primary decide again about the operator's finalizer, which was held while the
    /// functions were being called.
    fn release_unmatched(
        &mut self,
        index: usize,
        key: &Arc<str>,
        PrimaryEvent { object, cycles, .. }: PrimaryEvent,
        effects: &mut Effects,
    ) {
        let reconciler = &self.reconcilers[index];
        let was_held = reconciler.holds_inspected(&object)
            && !reconciler.primaries.contains_key(key)
            && !self.holds(key);
        if let Some(cycles) = cycles.filter(|_| was_held) {
            effects.wakes.push((Arc::clone(&cycles.owner), Arc::clone(key), object));
        }
    }
}

#[cfg(test)]
mod tests {
    use kopf_core::schedule::Priority;
    use serde_json::json;

    use super::*;
    use crate::reconciling::event::Listed;
    use crate::reconciling::testing::{FEED, START, end_call, event, position, state, with_finalizers};

    /// The priority of the next call; none if there is none.
    fn queued(state: &State) -> Option<Priority> {
        Some(position(state)?.priority)
    }

    fn matching() -> Inspection {
        Inspection { matches: true, ..Inspection::default() }
    }

    #[tokio::test]
    async fn an_event_that_replaces_one_of_the_list_after_a_pause_is_its_trigger() {
        let key: Arc<str> = Arc::from("u1");
        for (first, expected) in [(Listed::AfterPause, Some(Priority::Initial)), (Listed::Again, None)] {
            let (mut state, mut effects) = (state(&json!({"when": true})), Effects::default());
            state.on_primary(0, event(1, Listed::First), START, &mut effects);
            state.on_primary_inspected(0, &key, Some(matching()), START, &mut effects);
            end_call(&mut state);
            for (version, listed) in [(2, Listed::No), (3, first), (4, Listed::No)] {
                state.on_primary(0, event(version, listed), START, &mut effects);
            }
            state.on_primary_inspected(0, &key, Some(matching()), START, &mut effects);
            state.on_primary_inspected(0, &key, Some(matching()), START, &mut effects);
            assert_eq!(queued(&state), expected, "{first:?}");
        }
    }

    #[tokio::test]
    async fn the_list_after_a_pause_is_a_trigger_even_if_it_is_older_than_an_own_write() {
        let key: Arc<str> = Arc::from("u1");
        for (listed, expected) in [(Listed::AfterPause, Some(Priority::Initial)), (Listed::Again, None)] {
            let (mut state, mut effects) = (state(&json!({})), Effects::default());
            state.on_primary(0, event(1, Listed::First), START, &mut effects);
            end_call(&mut state);
            let response = event(6, Listed::No).object;
            state.on_response(0, &key, Some(&response), START);
            state.on_primary(0, event(5, listed), START, &mut effects);
            assert_eq!(queued(&state), expected, "{listed:?}");
            let version = state.reconcilers[0].primaries["u1"].object.resource_version();
            assert_eq!(version, Some("6"), "{listed:?}");
        }
    }

    #[tokio::test]
    async fn objects_whose_filters_fail_match_as_before_and_are_inspected_again() {
        let key: Arc<str> = Arc::from("u1");
        let (mut state, mut effects) = (state(&json!({"when": true, "deletion": true})), Effects::default());
        let later = START.plus(2.0);
        state.on_primary(0, event(1, Listed::First), START, &mut effects);
        state.on_primary_inspected(0, &key, None, START, &mut effects);
        assert!(state.reconcilers[0].primaries.is_empty());
        assert!(state.next_time(None).is_some_and(|next| next > START && next < later));
        state.repeat_inspections(START, &mut effects);
        assert_eq!(effects.inspections.len(), 1, "it is not the time yet");
        state.repeat_inspections(later, &mut effects);
        assert_eq!(effects.inspections.len(), 2);
        state.on_primary_inspected(0, &key, Some(matching()), later, &mut effects);
        assert_eq!((effects.edits.len(), state.next_time(None)), (1, None), "the finalizer is added");

        state.on_primary(0, event(2, Listed::No), later, &mut effects);
        state.on_primary_inspected(0, &key, None, later, &mut effects);
        let matches = |state: &State| state.reconcilers[0].primaries["u1"].schedule.matches();
        assert_eq!(matches(&state), Some(true));
        assert!(state.next_time(None).is_some());
        // The next event comes earlier.
        state.on_primary(0, event(3, Listed::No), later, &mut effects);
        assert_eq!((effects.inspections.len(), state.next_time(None)), (4, None));
        state.on_primary_inspected(0, &key, Some(Inspection::default()), later, &mut effects);
        assert_eq!(matches(&state), Some(false));
    }

    #[tokio::test]
    async fn a_response_to_an_edit_does_not_make_an_object_match() {
        let (key, finalizer): (Arc<str>, _) = (Arc::from("u1"), "example.com/own");
        let options = json!({"when": true, "deletion": true, "finalizer": finalizer});
        let (mut state, mut effects) = (state(&options), Effects::default());
        state.on_primary(0, with_finalizers(1, &[finalizer]), START, &mut effects);
        state.on_primary_inspected(0, &key, Some(Inspection::default()), START, &mut effects);
        assert_eq!(effects.edits.len(), 1, "the finalizer is removed");
        let response = with_finalizers(2, &[]).object;
        state.on_edited(&key, finalizer, Some(&response), START, &mut effects);
        assert_eq!((effects.edits.len(), queued(&state)), (1, None));
    }

    #[tokio::test]
    async fn the_operators_finalizer_is_held_while_filters_are_evaluated_or_fail() {
        let key: Arc<str> = Arc::from("u1");
        for is_held in [true, false] {
            let (mut state, mut effects) =
                (state(&json!({"when": true, "deletion": true})), Effects::default());
            let finalizer = if is_held { &*state.reconcilers[0].finalizer } else { "example.com/other" };
            let event = with_finalizers(1, &[finalizer]);
            state.on_primary(0, event, START, &mut effects);
            assert_eq!(state.holds("u1"), is_held, "the filter is being evaluated");
            state.on_primary_inspected(0, &key, None, START, &mut effects);
            assert_eq!(state.holds("u1"), is_held, "the filter has failed");
            state.repeat_inspections(START.plus(2.0), &mut effects);
            assert_eq!(state.holds("u1"), is_held, "the filter is evaluated again");
            state.on_primary_inspected(0, &key, Some(Inspection::default()), START, &mut effects);
            assert!(!state.holds("u1"), "it does not match");
        }
    }

    #[tokio::test]
    async fn objects_of_feeds_that_have_ended_are_not_inspected_again() {
        let key: Arc<str> = Arc::from("u1");
        let (mut state, mut effects) = (state(&json!({"when": true})), Effects::default());
        state.on_primary(0, event(1, Listed::First), START, &mut effects);
        state.on_primary_inspected(0, &key, None, START, &mut effects);
        state.retain_primaries(0, FEED + 1, |_| false, START, &mut effects);
        assert!(state.next_time(None).is_some());
        state.retain_primaries(0, FEED, |_| false, START, &mut effects);
        assert_eq!(state.next_time(None), None);
    }
}
