//! Whether a handler matches an object.
//!
//! Everything that can be said without Python is said here; where a callback has the last word, the verdict is `Ask`.

use crate::handler::{Changing, Handler, MetaFilter, ValueFilter};
use crate::object::Object;
use crate::path::FieldPath;
use crate::value::{Value, equal};
use std::borrow::Cow;

/// What can be said without Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It does not match, whatever the callbacks would say.
    No,
    /// It matches if its callbacks say so.
    Ask,
    /// It matches.
    Yes,
}

impl Verdict {
    /// Both must hold; the second one is looked at only if needed.
    #[must_use]
    pub fn and(self, other: impl FnOnce() -> Self) -> Self {
        if self == Self::No { self } else { self.min(other()) }
    }

    fn of(certain: bool) -> Self {
        if certain { Self::Yes } else { Self::No }
    }
}

/// Labels and annotations.
pub fn metadata(handler: &Handler, object: &Object) -> Verdict {
    let labels = || handler.labels.iter().map(|(key, filter)| one_of_metadata(filter, || object.label(key)));
    let annotations =
        || handler.annotations.iter().map(|(key, filter)| one_of_metadata(filter, || object.annotation(key)));
    all(labels()).and(|| all(annotations()))
}

fn all(mut verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let all = verdicts.try_fold(Verdict::Yes, |all, one| (one != Verdict::No).then(|| all.min(one)));
    all.unwrap_or(Verdict::No)
}

fn one_of_metadata<S: AsRef<str>>(filter: &MetaFilter, value: impl FnOnce() -> Option<S>) -> Verdict {
    match filter {
        MetaFilter::Callable => Verdict::Ask,
        MetaFilter::Present => Verdict::of(value().is_some()),
        MetaFilter::Absent => Verdict::of(value().is_none()),
        MetaFilter::Equal(wanted) => {
            Verdict::of(value().is_some_and(|value| wanted.as_str() == Some(value.as_ref())))
        }
    }
}

/// A value filter on candidates; an absent candidate is `None`. It is enough that one of them passes.
pub fn value(filter: &ValueFilter, candidates: &[Option<&Value>]) -> Verdict {
    match filter {
        ValueFilter::Callable => Verdict::Ask,
        // A field without a filter must be there, as if that were demanded. A null is there.
        ValueFilter::Any | ValueFilter::Present => Verdict::of(candidates.iter().any(Option::is_some)),
        ValueFilter::Absent => Verdict::of(candidates.iter().any(Option::is_none)),
        ValueFilter::Equal(wanted) => {
            Verdict::of(candidates.iter().flatten().any(|candidate| equal(candidate, wanted)))
        }
    }
}

/// A handler of whole objects (events, indices, daemons, timers) against the body.
pub fn on_object(handler: &Handler, object: &Object) -> Verdict {
    metadata(handler, object)
        .and(|| match handler.field.as_ref().filter(|field| !field.is_empty()) {
            None => Verdict::Yes,
            Some(_) if handler.value == ValueFilter::Callable => Verdict::Ask,
            Some(field) => value(&handler.value, &[object.field(field).as_ref()]),
        })
        .and(|| when(handler))
}

fn when(handler: &Handler) -> Verdict {
    if handler.when { Verdict::Ask } else { Verdict::Yes }
}

/// What the filters say of a change handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeVerdict {
    /// All filters except those on how the field has changed.
    pub prematch: Verdict,
    /// All filters.
    pub full: Verdict,
}

/// A change handler against the body and its field in the two essences, which is only looked up if it has one.
pub fn on_change<'v>(
    handler: &Handler,
    changing: &Changing,
    object: &Object,
    lookup: impl FnOnce(&FieldPath) -> OldAndNew<'v>,
) -> ChangeVerdict {
    let metadata = metadata(handler, object);
    if metadata == Verdict::No {
        return ChangeVerdict { prematch: Verdict::No, full: Verdict::No };
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
    /// At the last completed handling.
    pub old: Option<Cow<'v, Value>>,
    /// Now.
    pub new: Option<Cow<'v, Value>>,
}

/// How the field has changed.
fn changed(changing: &Changing, old: Option<&Value>, new: Option<&Value>) -> Verdict {
    let differs = || match (old, new) {
        (None, None) => false,
        (Some(old), Some(new)) => !equal(old, new),
        _ => true,
    };
    let side = |filter: &ValueFilter, value: Option<&Value>| match filter {
        ValueFilter::Any => Verdict::Yes,
        filter => self::value(filter, &[value]),
    };
    Verdict::of(changing.field_needs_change != Some(true) || differs())
        .and(|| side(&changing.old, old))
        .and(|| side(&changing.new, new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::resolve;
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
            (json!({}), Verdict::Yes),
            (json!({"labels": [["a", {"equal": "1"}]]}), Verdict::Yes),
            (json!({"labels": [["a", {"equal": "2"}]]}), Verdict::No),
            (json!({"labels": [["a", {"equal": 1}]]}), Verdict::No),
            (json!({"labels": [["empty", {"present": true}]]}), Verdict::Yes),
            (json!({"labels": [["b", {"present": true}]]}), Verdict::No),
            (json!({"labels": [["b", {"absent": true}]]}), Verdict::Yes),
            (json!({"labels": [["a", {"absent": true}]]}), Verdict::No),
            (json!({"labels": [["b", {"callable": true}]]}), Verdict::Ask),
            (json!({"labels": [["b", {"callable": true}], ["a", {"absent": true}]]}), Verdict::No),
            (json!({"annotations": [["n", {"equal": "2"}]]}), Verdict::Yes),
            (
                json!({"labels": [["b", {"callable": true}]], "annotations": [["n", {"absent": true}]]}),
                Verdict::No,
            ),
            (json!({"when": true}), Verdict::Ask),
        ];
        for (declared, expected) in table {
            assert_eq!(on_object(&handler(declared.clone()), &object), expected, "{declared}");
        }
    }

    #[test]
    fn fields_of_bodies() {
        let object = crate::testing::object("x").spec(json!({"a": 1, "nothing": null})).build();
        let table = [
            ("spec.a", json!(null), Verdict::Yes),
            ("spec.b", json!(null), Verdict::No),
            ("spec.nothing", json!(null), Verdict::Yes),
            ("spec.a", json!({"equal": 1.0}), Verdict::Yes),
            ("spec.a", json!({"equal": 2}), Verdict::No),
            ("spec.b", json!({"absent": true}), Verdict::Yes),
            ("spec.a", json!({"absent": true}), Verdict::No),
            ("spec.b", json!({"callable": true}), Verdict::Ask),
            ("metadata.name", json!({"equal": "x"}), Verdict::Yes),
        ];
        for (field, value, expected) in table {
            let field: Vec<_> = field.split('.').collect();
            let declared = json!({"field": field, "value": value});
            assert_eq!(on_object(&handler(declared.clone()), &object), expected, "{declared}");
        }
    }

    #[test]
    fn fields_of_changes() {
        use Verdict::{Ask, No, Yes};
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

    #[test]
    fn essences_are_not_looked_at_for_handlers_without_fields() {
        let object = crate::testing::object("x").build();
        let handler = handler(json!({"kind": "changing"}));
        let verdict = on_change(&handler, handler.changing().unwrap(), &object, |_| panic!("not needed"));
        assert_eq!(verdict.full, Verdict::Yes);
    }
}
