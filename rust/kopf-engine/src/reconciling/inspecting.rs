//! Primaries whose filters and functions in `changed` are evaluated by the host.

use std::sync::Arc;

use kopf_core::handler::filters::{self, FilterVerdict};
use kopf_core::predicate::Changed;
use kopf_core::time::Timestamp;

use super::effects::{Effects, Inspect};
use super::event::{Listed, PrimaryEvent};
use super::state::State;
use crate::host::reconcile::Inspection;
use crate::object_key::key_of;

/// A primary whose functions are being called by the host.
pub(super) struct Inspected {
    /// The event whose state is inspected.
    pub(super) event: PrimaryEvent,
    /// The newest event since then.
    pub(super) pending: Option<PrimaryEvent>,
}

impl Inspected {
    /// Replaces the pending event by a newer one. The trigger of the list after a pause is kept.
    fn set_pending(&mut self, newer: PrimaryEvent) {
        let is_after_pause =
            self.pending.as_ref().is_some_and(|pending| pending.listed == Listed::AfterPause);
        let listed = if is_after_pause { Listed::AfterPause } else { newer.listed };
        self.pending = Some(PrimaryEvent { listed, ..newer });
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
        let reconciler = &mut self.reconcilers[index];
        if let Some(inspected) = reconciler.inspected.get_mut(&key) {
            inspected.set_pending(event);
            return;
        }
        let Some(handler) = self.rules.registry.handlers.get(reconciler.handler) else { return };
        let verdict = filters::on_object(handler, &event.object);
        let has_functions = reconciler.changed.contains(&Changed::Function);
        if verdict == FilterVerdict::No || (verdict == FilterVerdict::Yes && !has_functions) {
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
        reconciler.inspected.insert(key, Inspected { event, pending: None });
    }

    /// Takes the results of the functions for a primary. Without results, which are logged, it does not match.
    pub(super) fn on_primary_inspected(
        &mut self,
        index: usize,
        key: &Arc<str>,
        inspection: Option<Inspection>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Some(inspected) = self.reconcilers[index].inspected.remove(key) else { return };
        let inspection = inspection.unwrap_or_default();
        self.settle_primary(index, key, &inspected.event, &inspection, now, effects);
        if let Some(pending) = inspected.pending {
            self.on_primary(index, pending, now, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use kopf_core::object::Object;
    use kopf_core::resource::Resource;
    use kopf_core::schedule::Priority;
    use serde_json::json;

    use super::super::event::FeedId;
    use super::*;
    use crate::testing::{Fixture, resource};

    const FEED: FeedId = 1;
    const START: Timestamp = Timestamp::from_micros(0);

    /// The state of a reconciler of shops with these options.
    fn state(options: &kopf_core::json::value::Value) -> State {
        let mut handler = json!({"id": "sync", "kind": "reconciling", "selector": {"any_name": "shops"}});
        for (name, value) in options.as_object().unwrap() {
            handler[name] = value.clone();
        }
        let fixture = Fixture::with_handlers(vec![handler], &json!({}), |_| (200, None));
        State::of(&fixture.shared.base, &Arc::default()).unwrap()
    }

    fn event(version: u32, listed: Listed) -> PrimaryEvent {
        let metadata =
            json!({"uid": "u1", "name": "one", "namespace": "ns", "resourceVersion": version.to_string()});
        let body = json!({"metadata": metadata, "spec": {"size": 1}});
        let object = Arc::new(Object::decode(&body.to_string()).unwrap());
        let resource: Arc<Resource> = resource("example.com", "shops", true);
        PrimaryEvent { feed: FEED, resource, object, listed, cycles: None }
    }

    fn matching() -> Inspection {
        Inspection { matches: true, ..Inspection::default() }
    }

    /// The priority of the next call; none if there is none.
    fn queued(state: &State) -> Option<Priority> {
        let reconciler = &state.reconcilers[0];
        let primary = reconciler.primaries.get("u1")?;
        Some(primary.schedule.next(reconciler.options.deletion, &reconciler.policy).position?.priority)
    }

    #[tokio::test]
    async fn an_event_that_replaces_one_of_the_list_after_a_pause_is_its_trigger() {
        let key: Arc<str> = Arc::from("u1");
        for (first, expected) in [(Listed::AfterPause, Some(Priority::Initial)), (Listed::Again, None)] {
            let (mut state, mut effects) = (state(&json!({"when": true})), Effects::default());
            state.on_primary(0, event(1, Listed::First), START, &mut effects);
            state.on_primary_inspected(0, &key, Some(matching()), START, &mut effects);
            // The call of the first list has ended.
            state.reconcilers[0].primaries.get_mut("u1").unwrap().schedule.start(false, START);
            let policy = state.reconcilers[0].policy;
            let cancelled = kopf_core::schedule::ReconcileResult::Cancelled;
            let primary = state.reconcilers[0].primaries.get_mut("u1").unwrap();
            primary.schedule.finish(cancelled, None, &policy, START, 0.0);
            for (version, listed) in [(2, Listed::No), (3, first), (4, Listed::No)] {
                state.on_primary(0, event(version, listed), START, &mut effects);
            }
            state.on_primary_inspected(0, &key, Some(matching()), START, &mut effects);
            state.on_primary_inspected(0, &key, Some(matching()), START, &mut effects);
            assert_eq!(queued(&state), expected, "{first:?}");
        }
    }
}
