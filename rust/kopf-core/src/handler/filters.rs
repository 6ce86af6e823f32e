//! The filters of handlers.
//!
//! Everything that needs no Python is decided here. If the result depends on a callable filter, the verdict is `Ask`.

pub mod obstacle;

use crate::handler::reconciling::Related;
use crate::handler::{Changing, Handler, MetaFilter, ValueFilter};
use crate::json::path::FieldPath;
use crate::json::value::{Value, equal};
use crate::object::Object;
use std::borrow::Cow;

/// The verdict of filters that needs no Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterVerdict {
    /// The handler does not match, regardless of its callable filters.
    No,
    /// The handler matches if its callable filters do.
    Ask,
    /// The handler matches.
    Yes,
}

impl FilterVerdict {
    /// Both filters must match; the second one is evaluated only if needed.
    #[must_use]
    pub fn and(self, other: impl FnOnce() -> Self) -> Self {
        if self == Self::No { self } else { self.min(other()) }
    }

    fn of(certain: bool) -> Self {
        if certain { Self::Yes } else { Self::No }
    }
}

/// The filters for labels and annotations.
pub fn metadata(handler: &Handler, object: &Object) -> FilterVerdict {
    labels_and_annotations(&handler.labels, &handler.annotations, object)
}

/// The filters of secondary objects.
pub fn on_related(related: &Related, object: &Object) -> FilterVerdict {
    labels_and_annotations(&related.labels, &related.annotations, object)
        .and(|| if related.when { FilterVerdict::Ask } else { FilterVerdict::Yes })
}

// contract: engine 5.3
fn labels_and_annotations(
    labels: &[(String, MetaFilter)],
    annotations: &[(String, MetaFilter)],
    object: &Object,
) -> FilterVerdict {
    let labels = labels.iter().map(|(key, filter)| one_of_metadata(filter, || object.label(key)));
    let annotations =
        || annotations.iter().map(|(key, filter)| one_of_metadata(filter, || object.annotation(key)));
    all(labels).and(|| all(annotations()))
}

fn all(mut verdicts: impl Iterator<Item = FilterVerdict>) -> FilterVerdict {
    let all =
        verdicts.try_fold(FilterVerdict::Yes, |all, one| (one != FilterVerdict::No).then(|| all.min(one)));
    all.unwrap_or(FilterVerdict::No)
}

fn one_of_metadata<S: AsRef<str>>(filter: &MetaFilter, value: impl FnOnce() -> Option<S>) -> FilterVerdict {
    match filter {
        MetaFilter::Callable => FilterVerdict::Ask,
        MetaFilter::Present => FilterVerdict::of(value().is_some()),
        MetaFilter::Absent => FilterVerdict::of(value().is_none()),
        MetaFilter::Equal(expected) => {
            FilterVerdict::of(value().is_some_and(|value| expected.as_str() == Some(value.as_ref())))
        }
    }
}

/// The verdict of a value filter on several candidates, of which one must match. An absent candidate is `None`.
pub fn value(filter: &ValueFilter, candidates: &[Option<&Value>]) -> FilterVerdict {
    match filter {
        ValueFilter::Callable => FilterVerdict::Ask,
        // A field without a value filter must be present. A null counts as present.
        ValueFilter::Any | ValueFilter::Present => FilterVerdict::of(candidates.iter().any(Option::is_some)),
        ValueFilter::Absent => FilterVerdict::of(candidates.iter().any(Option::is_none)),
        ValueFilter::Equal(expected) => {
            FilterVerdict::of(candidates.iter().flatten().any(|candidate| equal(candidate, expected)))
        }
    }
}

/// The filters of a handler of whole objects (events, indices, daemons, timers).
pub fn on_object(handler: &Handler, object: &Object) -> FilterVerdict {
    metadata(handler, object)
        .and(|| match handler.field.as_ref().filter(|field| !field.is_empty()) {
            None => FilterVerdict::Yes,
            Some(_) if handler.value == ValueFilter::Callable => FilterVerdict::Ask,
            Some(field) => value(&handler.value, &[object.field(field).as_ref()]),
        })
        .and(|| when(handler))
}

fn when(handler: &Handler) -> FilterVerdict {
    if handler.when { FilterVerdict::Ask } else { FilterVerdict::Yes }
}

/// The verdicts of the filters of a change handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeVerdict {
    /// The verdict of all filters except those on the change of the field.
    pub prematch: FilterVerdict,
    /// The verdict of all filters.
    pub full: FilterVerdict,
}

/// The filters of a change handler. Its field in the two essences is looked up only if it has a field.
pub fn on_change<'v>(
    handler: &Handler,
    changing: &Changing,
    object: &Object,
    lookup: impl FnOnce(&FieldPath) -> OldAndNew<'v>,
) -> ChangeVerdict {
    let metadata = metadata(handler, object);
    if metadata == FilterVerdict::No {
        return ChangeVerdict { prematch: FilterVerdict::No, full: FilterVerdict::No };
    }
    let Some(field) = handler.field.as_ref().filter(|field| !field.is_empty()) else {
        let verdict = metadata.and(|| when(handler));
        return ChangeVerdict { prematch: verdict, full: verdict };
    };
    let OldAndNew { old, new } = lookup(field);
    let (old, new) = (old.as_deref(), new.as_deref());
    let prematch = metadata.and(|| value(&handler.value, &[new, old])).and(|| when(handler));
    let full = prematch.and(|| changed(changing, old, new));
    ChangeVerdict { prematch, full }
}

/// A field's values in the two essences.
#[derive(Clone, Debug, Default)]
pub struct OldAndNew<'v> {
    /// The value at the last completed handling.
    pub old: Option<Cow<'v, Value>>,
    /// The current value.
    pub new: Option<Cow<'v, Value>>,
}

/// The filters on the change of the field.
fn changed(changing: &Changing, old: Option<&Value>, new: Option<&Value>) -> FilterVerdict {
    differs(changing, old, new).and(|| side(&changing.old, old)).and(|| side(&changing.new, new))
}

/// Whether the field differs, if it must.
fn differs(changing: &Changing, old: Option<&Value>, new: Option<&Value>) -> FilterVerdict {
    let differs = || match (old, new) {
        (None, None) => false,
        (Some(old), Some(new)) => !equal(old, new),
        _ => true,
    };
    FilterVerdict::of(changing.field_needs_change != Some(true) || differs())
}

/// The filter for the old or the new value.
fn side(filter: &ValueFilter, value: Option<&Value>) -> FilterVerdict {
    match filter {
        ValueFilter::Any => FilterVerdict::Yes,
        filter => self::value(filter, &[value]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::path::resolve;
    use serde_json::json;

    fn handler(declared: serde_json::Value) -> Handler {
        let mut declared = declared;
        let map = declared.as_object_mut().unwrap();
        map.insert("id".to_owned(), json!("h"));
        map.entry("kind").or_insert(json!("watching"));
        serde_json::from_value(declared).unwrap()
    }

    #[test]
    fn labels_and_annotations() {
        let object =
            crate::testing::object("x").labelled("a", "1").labelled("empty", "").annotated("n", "2").build();
        let table = [
            (json!({}), FilterVerdict::Yes),
            (json!({"labels": [["a", {"equal": "1"}]]}), FilterVerdict::Yes),
            (json!({"labels": [["a", {"equal": "2"}]]}), FilterVerdict::No),
            (json!({"labels": [["a", {"equal": 1}]]}), FilterVerdict::No),
            (json!({"labels": [["empty", {"present": true}]]}), FilterVerdict::Yes),
            (json!({"labels": [["b", {"present": true}]]}), FilterVerdict::No),
            (json!({"labels": [["b", {"absent": true}]]}), FilterVerdict::Yes),
            (json!({"labels": [["a", {"absent": true}]]}), FilterVerdict::No),
            (json!({"labels": [["b", {"callable": true}]]}), FilterVerdict::Ask),
            (json!({"labels": [["b", {"callable": true}], ["a", {"absent": true}]]}), FilterVerdict::No),
            (json!({"annotations": [["n", {"equal": "2"}]]}), FilterVerdict::Yes),
            (
                json!({"labels": [["b", {"callable": true}]], "annotations": [["n", {"absent": true}]]}),
                FilterVerdict::No,
            ),
            (json!({"when": true}), FilterVerdict::Ask),
        ];
        for (declared, expected) in table {
            assert_eq!(on_object(&handler(declared.clone()), &object), expected, "{declared}");
        }
    }

    // contract: engine 5.4
    #[test]
    fn fields_of_bodies() {
        let object = crate::testing::object("x").spec(json!({"a": 1, "nothing": null})).build();
        let table = [
            ("spec.a", json!(null), FilterVerdict::Yes),
            ("spec.b", json!(null), FilterVerdict::No),
            ("spec.nothing", json!(null), FilterVerdict::Yes),
            ("spec.a", json!({"equal": 1.0}), FilterVerdict::Yes),
            ("spec.a", json!({"equal": 2}), FilterVerdict::No),
            ("spec.b", json!({"absent": true}), FilterVerdict::Yes),
            ("spec.a", json!({"absent": true}), FilterVerdict::No),
            ("spec.b", json!({"callable": true}), FilterVerdict::Ask),
            ("metadata.name", json!({"equal": "x"}), FilterVerdict::Yes),
        ];
        for (field, value, expected) in table {
            let field: Vec<_> = field.split('.').collect();
            let declared = json!({"field": field, "value": value});
            assert_eq!(on_object(&handler(declared.clone()), &object), expected, "{declared}");
        }
    }

    // contract: engine 5.5
    #[test]
    fn fields_of_changes() {
        use FilterVerdict::{Ask, No, Yes};
        let object = crate::testing::object("x").build();
        let (one, two) = (json!({"spec": {"f": 1}}), json!({"spec": {"f": 2}}));
        let none = json!({"spec": {}});
        let table = [
            (json!({"field_needs_change": true}), Some(&one), &two, Yes, Yes),
            (json!({"field_needs_change": true}), Some(&one), &one, Yes, No),
            (json!({"field_needs_change": true}), None, &one, Yes, Yes),
            (json!({"field_needs_change": true}), Some(&one), &none, Yes, Yes),
            (json!({"field_needs_change": true}), Some(&none), &none, No, No),
            (json!({"field_needs_change": false}), Some(&one), &one, Yes, Yes),
            (json!({"value": {"equal": 1}}), Some(&one), &two, Yes, Yes),
            (json!({"value": {"equal": 3}}), Some(&one), &two, No, No),
            (json!({"value": {"absent": true}}), None, &two, Yes, Yes),
            (json!({"old": {"equal": 1}, "new": {"equal": 2}}), Some(&one), &two, Yes, Yes),
            (json!({"old": {"equal": 2}}), Some(&one), &two, Yes, No),
            (json!({"old": {"absent": true}}), None, &two, Yes, Yes),
            (json!({"new": {"callable": true}}), Some(&one), &two, Yes, Ask),
            (json!({"value": {"callable": true}, "old": {"equal": 9}}), Some(&one), &two, Ask, No),
        ];
        for (declared, old, new, prematch, full) in table {
            let mut whole = declared.clone();
            whole["kind"] = json!("changing");
            whole["field"] = json!(["spec", "f"]);
            let handler = handler(whole);
            let lookup = |field: &FieldPath| {
                let resolved = |value| resolve(value, field.keys()).map(Cow::Borrowed);
                OldAndNew { old: old.and_then(resolved), new: resolved(new) }
            };
            let verdict = on_change(&handler, handler.changing().unwrap(), &object, lookup);
            assert_eq!(verdict, ChangeVerdict { prematch, full }, "{declared} {old:?} {new:?}");
        }
    }

    // contract: engine 5.2
    #[test]
    fn essences_are_not_compared_for_handlers_without_fields() {
        let object = crate::testing::object("x").build();
        let handler = handler(json!({"kind": "changing"}));
        let verdict = on_change(&handler, handler.changing().unwrap(), &object, |_| panic!("not needed"));
        assert_eq!(verdict.full, FilterVerdict::Yes);
    }
}
