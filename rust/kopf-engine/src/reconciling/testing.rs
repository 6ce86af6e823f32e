//! A reconciler of shops with one object, for unit tests.

use std::sync::Arc;

use kopf_core::json::value::Value;
use kopf_core::object::Object;
use kopf_core::schedule::{Position, ReconcileResult};
use kopf_core::time::Timestamp;
use serde_json::json;

use super::event::{FeedId, Listed, PrimaryEvent};
use super::state::{Primary, State};
use crate::testing::{Fixture, resource};

/// The feed of the object.
pub(super) const FEED: FeedId = 1;
/// The uid of the object.
pub(super) const UID: &str = "u1";
pub(super) const START: Timestamp = Timestamp::from_micros(0);

/// The state of a reconciler with these options.
pub(super) fn state(options: &Value) -> State {
    let mut handler = json!({"id": "sync", "kind": "reconciling", "selector": {"any_name": "shops"}});
    for (name, value) in options.as_object().unwrap() {
        handler[name] = value.clone();
    }
    let fixture = Fixture::with_handlers(vec![handler], &json!({}), |_| (200, None));
    State::of(&fixture.shared.base, &Arc::default()).unwrap()
}

/// An event of the object in this resource version.
pub(super) fn event(version: u32, listed: Listed) -> PrimaryEvent {
    PrimaryEvent { listed, ..with_finalizers(version, &[]) }
}

/// An event of the first list.
pub(super) fn with_finalizers(version: u32, finalizers: &[&str]) -> PrimaryEvent {
    let metadata = json!({"uid": UID, "name": "one", "namespace": "ns", "resourceVersion": version.to_string(),
                          "finalizers": finalizers});
    let body = json!({"metadata": metadata, "spec": {"size": 1}});
    let object = Arc::new(Object::decode(&body.to_string()).unwrap());
    let resource = resource("example.com", "shops", true);
    PrimaryEvent { feed: FEED, resource, object, listed: Listed::First, cycles: None }
}

/// The position of the object in the work queue; none if nothing is queued.
pub(super) fn position(state: &State) -> Option<Position> {
    let reconciler = &state.reconcilers[0];
    let primary = reconciler.primaries.get(UID)?;
    primary.schedule.next(reconciler.options.deletion, &reconciler.policy).position
}

/// The call of the first list has started and ended.
pub(super) fn end_call(state: &mut State) {
    let policy = state.reconcilers[0].policy;
    let schedule = &mut primary(state).schedule;
    schedule.start(false, START).unwrap();
    schedule.finish(ReconcileResult::Cancelled, None, &policy, START, 0.0);
}

pub(super) fn primary(state: &mut State) -> &mut Primary {
    state.reconcilers[0].primaries.get_mut(UID).unwrap()
}
