//! The derived selectors; and the property that they match every object that a handler matches.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::*;
use crate::handler::filters::{FilterVerdict, metadata};

fn registry(handlers: &[Value]) -> Arc<Registry> {
    let handlers = handlers
        .iter()
        .map(|extra| {
            let mut handler = json!({"id": "h", "kind": "watching", "selector": {"any_name": "pods"}});
            handler.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            serde_json::from_value(handler).unwrap()
        })
        .collect();
    Arc::new(Registry { handlers })
}

fn resource_handlers(registry: &Arc<Registry>) -> ResourceHandlers {
    let resource = json!({"group": "", "version": "v1", "plural": "pods", "kind": "Pod", "namespaced": true,
        "preferred": true});
    registry.handlers_of(&serde_json::from_value(resource).unwrap(), &|_| true)
}

fn derived(registry: &Arc<Registry>) -> Option<DerivedSelector> {
    DerivedSelector::of(&resource_handlers(registry), registry)
}

/// The selector derived from handlers of any kind with these label filters.
fn selector_of(labels: &[Value]) -> Option<String> {
    let kinds = ["watching", "changing", "indexing", "daemon", "timer"];
    let handlers: Vec<_> = labels
        .iter()
        .zip(kinds.iter().cycle())
        .map(|(labels, kind)| json!({"kind": kind, "labels": labels.as_array().unwrap()}))
        .collect();
    derived(&registry(&handlers)).map(|derived| derived.to_string())
}

fn is(key: &str, value: &str) -> Value {
    json!([key, {"equal": value}])
}

fn has(key: &str) -> Value {
    json!([key, {"present": true}])
}

fn lacks(key: &str) -> Value {
    json!([key, {"absent": true}])
}

fn callable(key: &str) -> Value {
    json!([key, {"callable": true}])
}

#[test]
fn shared_requirements_are_selected() {
    let long = "x".repeat(64);
    for (handlers, expected) in [
        (vec![json!([is("a", "b")])], Some("a=b")),
        (vec![json!([is("b", "c"), has("c"), lacks("a")])], Some("!a,b=c,c")),
        (vec![json!([is("a", "")])], Some("a=")),
        (vec![json!([has("example.com/a-b_c.d")])], Some("example.com/a-b_c.d")),
        // Several handlers.
        (vec![json!([is("a", "b")]), json!([is("a", "b")])], Some("a=b")),
        (vec![json!([is("a", "c")]), json!([is("a", "b")]), json!([is("a", "b")])], Some("a in (b,c)")),
        (vec![json!([is("a", "b"), has("x")]), json!([has("a"), has("y")])], Some("a")),
        (vec![json!([lacks("a"), is("x", "1")]), json!([is("x", "2"), lacks("a")])], Some("!a,x in (1,2)")),
        (vec![json!([is("a", "")]), json!([is("a", "b")])], Some("a")),
        (vec![json!([lacks("a")]), json!([has("a")])], None),
        (vec![json!([lacks("a")]), json!([is("a", "b")])], None),
        (vec![json!([is("a", "b")]), json!([is("x", "b")])], None),
        (vec![json!([is("a", "b")]), json!([])], None),
        (vec![json!([])], None),
        (vec![], None),
        // Callable filters may match anything.
        (vec![json!([callable("a")])], None),
        (vec![json!([callable("a"), has("b")])], Some("b")),
        (vec![json!([callable("a")]), json!([is("a", "b")])], None),
        // Requirements that no API server accepts.
        (vec![json!([is("a", "b c"), has("b")])], Some("b")),
        (vec![json!([is("a", &long), has("b")])], Some("b")),
        (vec![json!([["a", {"equal": 1}], has("b")])], Some("b")),
        (vec![json!([has("a b")])], None),
        (vec![json!([has("")])], None),
        (vec![json!([has("a/")])], None),
        (vec![json!([has("Example.com/a")])], None),
        (vec![json!([has("a/b/c")])], None),
        (vec![json!([is("a", "-b")])], None),
        (vec![json!([is("a", "notin"), has("in")])], None),
    ] {
        assert_eq!(selector_of(&handlers).as_deref(), expected, "{handlers:?}");
    }
}

#[test]
fn long_selectors_are_shortened() {
    let handlers: Vec<_> = (0..=MOST_VALUES).map(|value| json!([is("a", &value.to_string())])).collect();
    assert_eq!(selector_of(&handlers).as_deref(), Some("a"));
    let labels: Vec<_> = (0..=MOST_KEYS).map(|key| has(&format!("a{key:02}"))).collect();
    let derived = selector_of(&[json!(labels)]).unwrap();
    assert_eq!((derived.split(',').count(), derived.contains("a16")), (MOST_KEYS, false));
}

#[test]
fn handlers_that_are_not_called_with_the_objects_do_not_matter() {
    let ours = json!({"labels": [is("a", "b")]});
    for other in [
        json!({"selector": {"any_name": "services"}}),
        json!({"kind": "webhook", "reason": "validating"}),
        json!({"kind": "activity", "activity": "startup", "selector": null}),
    ] {
        let derived = derived(&registry(&[ours.clone(), other])).unwrap();
        assert_eq!(derived.to_string(), "a=b");
    }
}

#[test]
fn the_finalizer_is_used_for_daemons_timers_and_deletion_handlers() {
    for (handler, expected) in [
        (json!({"kind": "daemon"}), true),
        (json!({"kind": "timer", "interval": 1.0}), true),
        (json!({"kind": "changing", "reason": "delete", "requires_finalizer": true}), true),
        (json!({"kind": "changing", "reason": "create"}), false),
        (json!({"kind": "indexing"}), false),
        (json!({"kind": "daemon", "selector": {"any_name": "services"}}), false),
    ] {
        let registry = registry(&[handler]);
        assert_eq!(uses_finalizer(&resource_handlers(&registry), &registry), expected, "{registry:?}");
    }
}

fn any_filter() -> impl Strategy<Value = Value> {
    let values = ["", "x", "y", "z", "not a value", "in"].map(|value| json!({"equal": value}));
    let others =
        [json!({"present": true}), json!({"absent": true}), json!({"callable": true}), json!({"equal": 1})];
    select(values.into_iter().chain(others).collect::<Vec<_>>())
}

/// At most one filter, or one value, for each of a few keys.
fn any_labels<V: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = V> + Clone,
) -> impl Strategy<Value = Vec<(&'static str, V)>> {
    let keys = ["a", "b", "c.d/e", "not a key"];
    vec(proptest::option::of(value), keys.len()).prop_map(move |values| {
        keys.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?))).collect()
    })
}

proptest! {
    #[test]
    fn every_object_that_a_handler_matches_is_selected(
        filters in vec(any_labels(any_filter().boxed()), 1..5),
        labels in any_labels(select(vec!["", "x", "y", "z", "in"])),
    ) {
        let handlers: Vec<_> = filters.iter().map(|labels| json!({"labels": labels})).collect();
        let registry = registry(&handlers);
        let object = labels
            .iter()
            .fold(crate::testing::object("o"), |object, (key, value)| object.labelled(key, value))
            .build();
        let is_matched = registry.handlers.iter().any(|handler| metadata(handler, &object) != FilterVerdict::No);
        if let Some(derived) = derived(&registry) {
            prop_assert!(!is_matched || derived.matches(&object), "{derived}");
        }
    }

    #[test]
    fn one_handler_with_plain_filters_selects_nothing_else(
        filters in any_labels(select(vec![json!({"equal": "x"}), json!({"equal": ""}), json!({"present": true}), json!({"absent": true})])),
        labels in any_labels(select(vec!["", "x", "y"])),
    ) {
        let filters: Vec<_> = filters.into_iter().filter(|(key, _)| *key != "not a key").collect();
        let registry = registry(&[json!({"labels": filters})]);
        let object = labels
            .iter()
            .fold(crate::testing::object("o"), |object, (key, value)| object.labelled(key, value))
            .build();
        let is_matched = metadata(&registry.handlers[0], &object) == FilterVerdict::Yes;
        let is_let_through = derived(&registry).is_none_or(|derived| derived.matches(&object));
        prop_assert_eq!(is_matched, is_let_through);
    }
}
