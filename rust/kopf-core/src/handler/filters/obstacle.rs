//! The filter that excludes an object from a handler, for people who ask why the handler is not called.
//!
//! Each filter has the verdict of the parent module. Filters that are functions are no obstacles here.

use serde::{Deserialize, Serialize};

use super::{FilterVerdict, OldAndNew, differs, one_of_metadata, side, value};
use crate::handler::{Changing, Handler, MetaFilter, ValueFilter};
use crate::json::path::FieldPath;
use crate::json::value::Value;
use crate::object::Object;

/// A filter of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// One of `labels=`.
    Label,
    /// One of `annotations=`.
    Annotation,
    /// `field=`: it must be present, and for some handlers it must differ.
    Field,
    /// `value=`.
    Value,
    /// `old=`.
    Old,
    /// `new=`.
    New,
    /// `when=`.
    When,
}

/// The first filter of a handler that an object does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The filter.
    pub filter: Filter,
    /// The requirement and the actual value.
    pub text: String,
}

/// The obstacle for a handler of whole objects; none if its verdict is not [`FilterVerdict::No`].
pub fn on_object(handler: &Handler, object: &Object) -> Option<Obstacle> {
    in_metadata(handler, object).or_else(|| {
        let field = handler.field.as_ref().filter(|field| !field.is_empty())?;
        let actual = object.field(field);
        fails(value(&handler.value, &[actual.as_ref()]))
            .then(|| of_value(handler, field, actual.as_ref(), None))
    })
}

/// The obstacle for a change handler; none if its full verdict is not [`FilterVerdict::No`].
pub fn on_change<'v>(
    handler: &Handler,
    changing: &Changing,
    object: &Object,
    lookup: impl FnOnce(&FieldPath) -> OldAndNew<'v>,
) -> Option<Obstacle> {
    in_metadata(handler, object).or_else(|| {
        let field = handler.field.as_ref().filter(|field| !field.is_empty())?;
        let OldAndNew { old, new } = lookup(field);
        let (old, new) = (old.as_deref(), new.as_deref());
        let required = |filter, title, expected: &ValueFilter, actual| Obstacle {
            filter,
            text: format!("{title} of {field}: {}", describe_value(expected, actual)),
        };
        if fails(value(&handler.value, &[new, old])) {
            return Some(of_value(handler, field, new, old));
        }
        if fails(differs(changing, old, new)) {
            return Some(Obstacle { filter: Filter::Field, text: format!("field {field}: is unchanged") });
        }
        if fails(side(&changing.old, old)) {
            return Some(required(Filter::Old, "old value", &changing.old, old));
        }
        fails(side(&changing.new, new)).then(|| required(Filter::New, "new value", &changing.new, new))
    })
}

fn fails(verdict: FilterVerdict) -> bool {
    verdict == FilterVerdict::No
}

fn in_metadata(handler: &Handler, object: &Object) -> Option<Obstacle> {
    let labels = handler.labels.iter().find_map(|(key, filter)| {
        let actual = object.label(key);
        let obstacle = || of_metadata(Filter::Label, key, filter, actual.as_deref());
        fails(one_of_metadata(filter, || actual.as_ref())).then(obstacle)
    });
    labels.or_else(|| {
        handler.annotations.iter().find_map(|(key, filter)| {
            let actual = object.annotation(key);
            let obstacle = || of_metadata(Filter::Annotation, key, filter, actual.as_deref());
            fails(one_of_metadata(filter, || actual.as_ref())).then(obstacle)
        })
    })
}

fn of_metadata(filter: Filter, key: &str, expected: &MetaFilter, actual: Option<&str>) -> Obstacle {
    let title = if filter == Filter::Label { "label" } else { "annotation" };
    let actual = actual.map(|text| Value::String(text.to_owned()));
    let expected = match expected {
        MetaFilter::Absent => ValueFilter::Absent,
        MetaFilter::Equal(value) => ValueFilter::Equal(value.clone()),
        MetaFilter::Present | MetaFilter::Callable => ValueFilter::Present,
    };
    Obstacle { filter, text: format!("{title} {key}: {}", describe_value(&expected, actual.as_ref())) }
}

/// The obstacle of the filters `field=` and `value=`.
fn of_value(handler: &Handler, field: &FieldPath, new: Option<&Value>, old: Option<&Value>) -> Obstacle {
    let (filter, title) = match handler.value {
        ValueFilter::Any => (Filter::Field, "field"),
        _ => (Filter::Value, "value of"),
    };
    Obstacle { filter, text: format!("{title} {field}: {}", describe_value(&handler.value, new.or(old))) }
}

fn describe_value(expected: &ValueFilter, actual: Option<&Value>) -> String {
    let expected = match expected {
        ValueFilter::Any | ValueFilter::Present | ValueFilter::Callable => "present".to_owned(),
        ValueFilter::Absent => "absent".to_owned(),
        ValueFilter::Equal(value) => value.to_string(),
    };
    let actual = actual.map_or_else(|| "absent".to_owned(), Value::to_string);
    format!("must be {expected}, is {actual}")
}

#[cfg(test)]
mod tests {
    use super::super::{on_change as verdict_on_change, on_object as verdict_on_object};
    use super::*;
    use crate::json::path::resolve;
    use serde_json::json;
    use std::borrow::Cow;

    fn handler(mut declared: serde_json::Value, kind: &str) -> Handler {
        declared["id"] = json!("h");
        declared["kind"] = json!(kind);
        serde_json::from_value(declared).unwrap()
    }

    #[test]
    fn each_filter_on_an_object_has_its_obstacle() {
        let object = crate::testing::object("x")
            .labelled("tier", "silver")
            .annotated("note", "1")
            .spec(json!({"size": 2}))
            .build();
        let field = json!(["spec", "size"]);
        let table = [
            (json!({"labels": [["tier", {"equal": "silver"}]]}), None),
            (
                json!({"labels": [["tier", {"equal": "gold"}]]}),
                Some("label tier: must be \"gold\", is \"silver\""),
            ),
            (json!({"labels": [["x", {"present": true}]]}), Some("label x: must be present, is absent")),
            (
                json!({"labels": [["x", {"callable": true}]], "annotations": [["note", {"absent": true}]]}),
                Some("annotation note: must be absent, is \"1\""),
            ),
            (json!({"field": ["spec", "x"]}), Some("field spec.x: must be present, is absent")),
            (json!({"field": field, "value": {"equal": 3}}), Some("value of spec.size: must be 3, is 2")),
            (
                json!({"field": field, "value": {"absent": true}}),
                Some("value of spec.size: must be absent, is 2"),
            ),
            (json!({"when": true}), None),
        ];
        for (declared, expected) in table {
            let handler = handler(declared.clone(), "watching");
            let found = on_object(&handler, &object);
            assert_eq!(found.as_ref().map(|found| &*found.text), expected, "{declared}");
            assert_eq!(found.is_some(), verdict_on_object(&handler, &object) == FilterVerdict::No);
        }
    }

    #[test]
    fn each_filter_on_a_change_has_its_obstacle() {
        let object = crate::testing::object("x").build();
        let (one, two) = (json!({"spec": {"f": 1}}), json!({"spec": {"f": 2}}));
        let table = [
            (json!({"field_needs_change": true}), &one, &two, None),
            (
                json!({"field_needs_change": true}),
                &one,
                &one,
                Some((Filter::Field, "field spec.f: is unchanged")),
            ),
            (
                json!({"value": {"equal": 3}}),
                &one,
                &two,
                Some((Filter::Value, "value of spec.f: must be 3, is 2")),
            ),
            (
                json!({"old": {"equal": 2}}),
                &one,
                &two,
                Some((Filter::Old, "old value of spec.f: must be 2, is 1")),
            ),
            (
                json!({"new": {"absent": true}}),
                &one,
                &two,
                Some((Filter::New, "new value of spec.f: must be absent, is 2")),
            ),
            (json!({"new": {"callable": true}}), &one, &two, None),
        ];
        for (mut declared, old, new, expected) in table {
            declared["field"] = json!(["spec", "f"]);
            let handler = handler(declared.clone(), "changing");
            let lookup = |field: &FieldPath| {
                let resolved = |value| resolve(value, field.keys()).map(Cow::Borrowed);
                OldAndNew { old: resolved(old), new: resolved(new) }
            };
            let changing = handler.changing().unwrap();
            let found = on_change(&handler, changing, &object, lookup);
            let parts = found.as_ref().map(|found| (found.filter, &*found.text));
            assert_eq!(parts, expected, "{declared}");
            let verdict = verdict_on_change(&handler, changing, &object, lookup);
            assert_eq!(found.is_some(), verdict.full == FilterVerdict::No, "{declared}");
        }
    }
}
