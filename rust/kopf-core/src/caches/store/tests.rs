//! Tests of the stores: references by model, random operations.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::caches::CacheChangeKind::{Added, Deleted, Modified, Present};
use crate::caches::Query;
use crate::caches::WriteResponse;

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(0).plus(seconds)
}

fn declared(options: &serde_json::Value) -> Caching {
    serde_json::from_value(options.clone()).unwrap()
}

fn pod(namespace: &str, name: &str, version: u64, node: &str) -> StoredObject {
    let json = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-of-{name}"),
                     "resourceVersion": version.to_string(), "labels": {"node": node}},
        "spec": {"nodeName": node},
    });
    stored(&json)
}

fn stored(json: &serde_json::Value) -> StoredObject {
    let object = Arc::new(Object::decode(&json.to_string()).unwrap());
    StoredObject { object, owned: Arc::new([]), is_selected: true }
}

/// A pod whose label the cache does not select.
fn unselected(name: &str, version: u64) -> StoredObject {
    StoredObject { is_selected: false, ..pod("a", name, version, "n2") }
}

fn key(state: &StoredObject) -> CacheKey {
    CacheKey::of(&state.object)
}

fn keys(states: &[StoredObject]) -> HashSet<CacheKey> {
    states.iter().map(key).collect()
}

fn by_node() -> ObjectStore {
    ObjectStore::new(&declared(&json!({"by": [["node", {"path": "spec.nodeName"}], ["f", "function"]]})))
        .unwrap()
}

fn listed(store: &mut ObjectStore, scope: Option<&str>, states: &[StoredObject]) {
    let list = store.start_list();
    for state in states {
        store.deliver_listed(state.clone(), &vec![], list, at(0.0));
    }
    store.finish_list(scope, list, &keys(states), at(0.0));
}

fn names(store: &mut ObjectStore, query: &Query) -> Vec<String> {
    let found = store.select(query, at(0.0)).unwrap();
    found.iter().filter_map(|object| object.name().map(str::to_owned)).collect()
}

fn node(node: &str) -> Query {
    Query { by: vec![("node".to_owned(), json!(node))], ..Query::default() }
}

#[test]
fn k4_results_are_ordered_by_namespace_and_name() {
    let mut store = by_node();
    listed(&mut store, None, &[pod("b", "x", 1, "n1"), pod("a", "y", 2, "n1"), pod("a", "x", 3, "n2")]);
    assert_eq!(names(&mut store, &Query::default()), ["x", "y", "x"]);
    assert_eq!(names(&mut store, &node("n1")), ["y", "x"]);
    let query = Query { namespace: Some("a".to_owned()), ..node("n1") };
    assert_eq!(names(&mut store, &query), ["y"]);
    let query = Query { labels: Some("node in (n2)".to_owned()), ..Query::default() };
    assert_eq!(names(&mut store, &query), ["x"]);
    let field = |path: &str, value| (crate::json::path::FieldPath::parse(path), value);
    let fields = vec![field("spec.nodeName", json!("n1")), field("spec.missing", json!(null))];
    assert_eq!(names(&mut store, &Query { fields, ..Query::default() }), ["y", "x"]);
    assert_eq!((store.namespaces_of("x"), store.len()), (vec!["a", "b"], 3));
}

#[test]
fn s2_4_a_list_removes_only_the_missing_objects_of_its_scope() {
    let mut store = by_node();
    listed(&mut store, Some("a"), &[pod("a", "x", 1, "n1"), pod("a", "y", 2, "n1")]);
    listed(&mut store, Some("b"), &[pod("b", "x", 3, "n1")]);
    listed(&mut store, Some("a"), &[pod("a", "y", 1, "old")]);
    assert_eq!(names(&mut store, &node("n1")), ["y", "x"]);
    assert!(store.keys("node").unwrap().len() == 1, "an older state is ignored");
    store.forget(Some("b"), at(0.0));
    assert_eq!((store.len(), store.namespaces_of("x").len()), (1, 0));
}

#[test]
fn w1_own_writes_are_readable_by_all_keys_until_the_watch_delivers_them() {
    let mut store = by_node();
    listed(&mut store, None, &[pod("a", "x", 1, "n1")]);
    let written = pod("a", "x", 5, "n2");
    store.start_write(key(&written), 7);
    store.deliver(pod("a", "x", 2, "n3"), &vec![], at(0.0));
    store.finish_write(&key(&written), WriteResponse::Written(versioned(written.clone())), 5.0, at(0.0));
    assert_eq!(names(&mut store, &node("n2")), ["x"]);
    store.deliver(pod("a", "x", 4, "n4"), &vec![], at(1.0));
    assert_eq!(store.keys("node").unwrap(), ["\"n2\""]);
    assert_eq!((store.next_expiry(), store.take_settled()), (Some(at(5.0)), vec![]));
    store.deliver(written, &vec![], at(2.0));
    assert_eq!((store.next_expiry(), store.take_settled()), (None, vec![7]));
    assert_eq!(store.keys("node").unwrap(), ["\"n2\""]);
}

#[test]
fn w1_own_creations_with_generated_names_and_deletions_are_readable() {
    let mut store = by_node();
    let made = pod("a", "made", 3, "n1");
    store.start_unnamed();
    store.finish_unnamed(Some(made.clone()), 1, 5.0, at(0.0));
    assert_eq!(names(&mut store, &node("n1")), ["made"]);
    store.deliver(made.clone(), &vec![], at(0.0));
    store.start_write(key(&made), 2);
    store.finish_write(&key(&made), WriteResponse::Gone("uid-of-made".into()), 5.0, at(0.0));
    assert_eq!((store.len(), store.take_settled()), (0, vec![1]));
    store.deliver_deletion(&key(&made), "uid-of-made", at(0.0));
    assert_eq!(store.take_settled(), [2]);
    // It was created and deleted before the response to the creation arrived.
    store.start_unnamed();
    store.deliver(pod("a", "brief", 8, "n1"), &vec![], at(0.0));
    store.deliver_deletion(&CacheKey::new(Some("a"), "brief"), "uid-of-brief", at(0.0));
    store.finish_unnamed(Some(pod("a", "brief", 8, "n1")), 3, 5.0, at(0.0));
    assert_eq!((store.len(), store.take_settled()), (0, vec![3]));
}

#[test]
fn own_writes_outside_of_the_selection_are_not_shown() {
    let mut store = ObjectStore::new(&declared(&json!({"label_selector": "node=n1"}))).unwrap();
    listed(&mut store, None, &[pod("a", "x", 1, "n1")]);
    let written = unselected("x", 5);
    store.start_write(key(&written), 1);
    store.finish_write(&key(&written), WriteResponse::Written(versioned(written.clone())), 5.0, at(0.0));
    assert!(store.is_empty());
    store.deliver(pod("a", "x", 4, "n1"), &vec![], at(0.0));
    assert!(store.is_empty(), "a state before the own write");
    assert_eq!(store.expire(at(6.0)), [key(&written)]);
    assert_eq!(store.len(), 1);
}

#[test]
fn w5_own_writes_that_the_server_never_selects_are_not_waited_for() {
    let mut store = ObjectStore::new(&declared(&json!({"label_selector": "node=n1"}))).unwrap();
    let (selected, other) = (pod("a", "selected", 5, "n1"), unselected("other", 6));
    for (state, ticket) in [(&selected, 1), (&other, 2)] {
        store.start_write(key(state), ticket);
        store.finish_write(&key(state), WriteResponse::Written(versioned(state.clone())), 5.0, at(0.0));
    }
    assert_eq!(
        (names(&mut store, &Query::default()), store.take_settled()),
        (vec!["selected".into()], vec![2])
    );
    store.start_unnamed();
    store.finish_unnamed(Some(unselected("unnamed", 7)), 3, 5.0, at(0.0));
    store.start_write(key(&other), 4);
    store.finish_write(&key(&other), WriteResponse::Gone("uid-of-other".into()), 5.0, at(0.0));
    assert_eq!(store.take_settled(), [3, 4]);
    // The event of an earlier state, which was selected, does not bring it back.
    store.deliver(pod("a", "other", 4, "n1"), &vec![], at(1.0));
    assert_eq!(names(&mut store, &Query::default()), ["selected"]);
    assert_eq!(store.expire(at(6.0)), [key(&selected)], "the others are not reported");
    // The server reports the loss of a label.
    store.deliver(selected, &vec![], at(7.0));
    let changed = unselected("selected", 8);
    store.start_write(key(&changed), 5);
    store.finish_write(&key(&changed), WriteResponse::Written(versioned(changed.clone())), 5.0, at(7.0));
    assert_eq!(store.take_settled(), [1]);
    store.deliver_deletion(&key(&changed), "uid-of-selected", at(8.0));
    assert_eq!(store.take_settled(), [5]);
}

#[test]
fn w2_a_list_before_an_own_creation_does_not_hide_it_although_later_own_writes_are_shown() {
    let mut store = by_node();
    let (old, made, changed) =
        (pod("a", "old", 1, "n1"), pod("a", "made", 5, "n1"), pod("a", "old", 6, "n1"));
    listed(&mut store, None, std::slice::from_ref(&old));
    let list = store.start_list();
    for (state, ticket) in [(&made, 1), (&changed, 2)] {
        store.start_write(key(state), ticket);
        store.finish_write(&key(state), WriteResponse::Written(versioned(state.clone())), 5.0, at(0.0));
    }
    store.deliver_listed(old.clone(), &vec![], list, at(0.0));
    store.finish_list(None, list, &keys(&[old]), at(0.0));
    assert_eq!(
        (names(&mut store, &Query::default()), store.take_settled()),
        (vec!["made".into(), "old".into()], vec![])
    );
}

#[test]
fn k7_computed_keys_belong_to_the_delivered_state() {
    let mut store = by_node();
    let computed = vec![("f".to_owned(), vec![json!(1), json!("a")])];
    store.deliver(pod("a", "x", 1, "n1"), &computed, at(0.0));
    assert_eq!(store.keys("f").unwrap(), ["\"a\"", "1"]);
    store.deliver(pod("a", "x", 2, "n1"), &vec![("f".to_owned(), vec![])], at(0.0));
    assert!(store.keys("f").unwrap().is_empty() && store.keys("g").is_err());
}

#[test]
fn k8_consumers_see_every_shown_state() {
    let mut store = by_node();
    listed(&mut store, None, &[pod("a", "x", 1, "n1")]);
    store.subscribe(1, false);
    store.deliver(pod("a", "x", 2, "n1"), &vec![], at(0.0));
    listed(&mut store, None, &[pod("a", "y", 3, "n1")]);
    assert!(store.has_changes());
    let kinds: Vec<_> = store.queue(1).unwrap().take(10).into_iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [Present, Modified, Added, Deleted]);
    store.unsubscribe(1);
    assert!(!store.has_changes() && store.queue(1).is_none());
}

#[test]
fn s2_6_unread_objects_are_compressed() {
    let mut store = by_node();
    let items: Vec<_> = (0..100).map(|index| json!({"name": format!("part-{index}")})).collect();
    let large = json!({"metadata": {"name": "x", "uid": "u"}, "spec": {"nodeName": "n1", "items": items}});
    store.deliver(stored(&large), &vec![], at(0.0));
    let size = store.memory_size();
    assert!(store.resting(60.0, 10, at(59.0)).is_empty());
    for object in store.resting(60.0, 10, at(60.0)) {
        store.put_to_rest(&object, object.to_compressed().map(Arc::new));
    }
    assert!(store.memory_size() < size / 2 && store.resting(60.0, 10, at(999.0)).is_empty());
    assert_eq!(store.get(None, "x", at(100.0)).unwrap().to_value(), large);
    assert_eq!(store.resting(60.0, 10, at(160.0)).len(), 1);
    assert_eq!(store.largest_stanzas(10)[0].0, "spec");
}

#[derive(Clone, Debug)]
enum Step {
    Deliver(u8, u8),
    Delete(u8),
    List(Vec<(u8, u8)>),
    Write(u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..6_u8, 0..4_u8).prop_map(|(name, node)| Step::Deliver(name, node)),
        (0..6_u8).prop_map(Step::Delete),
        vec((0..6_u8, 0..4_u8), 0..5).prop_map(Step::List),
        (0..6_u8, 0..4_u8).prop_map(|(name, node)| Step::Write(name, node)),
    ];
    vec(step, 0..40)
}

proptest! {
    /// The keys always lead to the shown objects, and to no others; the counts are right.
    #[test]
    fn look_ups_are_consistent_with_the_shown_objects(steps in steps()) {
        let mut store = by_node();
        for (version, step) in (1_u64..).zip(steps) {
            let state = |name: u8, node: u8| pod("a", &name.to_string(), version, &format!("n{node}"));
            match step {
                Step::Deliver(name, node) => store.deliver(state(name, node), &vec![], at(0.0)),
                Step::Delete(name) => {
                    let gone = state(name, 0);
                    store.deliver_deletion(&key(&gone), gone.object.uid().unwrap(), at(0.0));
                }
                Step::List(items) => {
                    let states: Vec<_> = items.into_iter().map(|(name, node)| state(name, node)).collect();
                    listed(&mut store, None, &states);
                }
                Step::Write(name, node) => {
                    let written = state(name, node);
                    store.start_write(key(&written), version);
                    store.finish_write(&key(&written), WriteResponse::Written(versioned(written.clone())), 5.0, at(0.0));
                    prop_assert_eq!(store.shown(&key(&written)), Some(&*written.object));
                }
            }
            let shown: Vec<(String, String)> = store
                .all(None)
                .map(|(key, object)| (key.name().to_owned(), object.label("node").unwrap().into_owned()))
                .collect();
            prop_assert_eq!(store.len(), shown.len());
            for number in 0..4 {
                let node_name = format!("n{number}");
                let expected: Vec<_> = shown.iter().filter(|(_, of)| *of == node_name).map(|(name, _)| name.clone()).collect();
                prop_assert_eq!(names(&mut store, &node(&node_name)), expected);
            }
        }
    }
}
