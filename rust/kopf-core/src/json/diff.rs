//! Differences between two values, as handlers receive them in `diff`.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use serde::ser::{Serialize, SerializeTuple, Serializer};

use crate::json::path::{FieldPath, resolve};
use crate::json::value::{Map, Value, equal, write_repr_string};

/// The kind of change of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The field was added.
    Add,
    /// The value has changed.
    Change,
    /// The field was removed.
    Remove,
}

impl Op {
    /// The name of the operation in Python.
    pub fn as_str(self) -> &'static str {
        match self {
            Op::Add => "add",
            Op::Change => "change",
            Op::Remove => "remove",
        }
    }
}

/// One difference. `null` and absence are the same here.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffItem {
    /// The kind of change.
    pub op: Op,
    /// The changed field.
    pub path: FieldPath,
    /// The old value.
    pub old: Option<Value>,
    /// The new value.
    pub new: Option<Value>,
}

impl Serialize for DiffItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(4)?;
        tuple.serialize_element(self.op.as_str())?;
        tuple.serialize_element(&self.path)?;
        tuple.serialize_element(&self.old)?;
        tuple.serialize_element(&self.new)?;
        tuple.end()
    }
}

impl fmt::Display for DiffItem {
    /// The `repr` of a Python tuple: `('add', ('spec', 'g'), None, 2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut keys = String::new();
        for (i, key) in self.path.keys().iter().enumerate() {
            if i > 0 {
                keys.push_str(", ");
            }
            write_repr_string(&mut keys, key);
        }
        let comma = if self.path.keys().len() == 1 { "," } else { "" };
        let repr =
            |v: &Option<Value>| v.as_ref().map_or_else(|| "None".to_owned(), crate::json::value::python_repr);
        write!(f, "('{}', ({keys}{comma}), {}, {})", self.op.as_str(), repr(&self.old), repr(&self.new))
    }
}

/// The `repr` of a whole diff: a tuple of tuples.
pub fn python_repr(diff: &[DiffItem]) -> String {
    let mut out = String::from("(");
    for (i, item) in diff.iter().enumerate() {
        let _ = write!(out, "{}{item}", if i > 0 { ", " } else { "" });
    }
    out.push_str(if diff.len() == 1 { ",)" } else { ")" });
    out
}

/// The diff from `a` to `b`: at each level additions, then removals, then common keys; each of them sorted.
pub fn diff(a: Option<&Value>, b: Option<&Value>) -> Vec<DiffItem> {
    Walk { additions: true, found: Vec::new(), at: Vec::new() }.run(a, b)
}

/// The diff from `a` to `b` without the keys that only `b` has.
pub fn diff_left(a: Option<&Value>, b: Option<&Value>) -> Vec<DiffItem> {
    Walk { additions: false, found: Vec::new(), at: Vec::new() }.run(a, b)
}

/// The part of a diff that concerns a field, with paths relative to that field.
pub fn reduce(items: &[DiffItem], path: &FieldPath) -> Vec<DiffItem> {
    let field = path.keys();
    let mut reduced = Vec::new();
    for item in items {
        let keys = item.path.keys();
        if let Some(tail) = keys.strip_prefix(field) {
            reduced.push(DiffItem { path: FieldPath::from_keys(tail.iter().cloned()), ..item.clone() });
        } else if let Some(tail) = field.strip_prefix(keys) {
            let old = item.old.as_ref().and_then(|v| resolve(v, tail));
            let new = item.new.as_ref().and_then(|v| resolve(v, tail));
            reduced.extend(diff(old, new));
        }
    }
    reduced
}

struct Walk<'v> {
    additions: bool,
    found: Vec<DiffItem>,
    at: Vec<&'v str>,
}

impl<'v> Walk<'v> {
    fn run(mut self, a: Option<&'v Value>, b: Option<&'v Value>) -> Vec<DiffItem> {
        self.compare(present(a), present(b));
        self.found
    }

    fn compare(&mut self, a: Option<&'v Value>, b: Option<&'v Value>) {
        match (a, b) {
            (None, None) => {}
            (None, Some(_)) => self.record(Op::Add, a, b),
            (Some(_), None) => self.record(Op::Remove, a, b),
            (Some(x), Some(y)) if equal(x, y) => {}
            (Some(Value::Object(x)), Some(Value::Object(y))) => self.descend(x, y),
            (Some(_), Some(_)) => self.record(Op::Change, a, b),
        }
    }

    fn descend(&mut self, a: &'v Map<String, Value>, b: &'v Map<String, Value>) {
        let sorted_keys =
            |map: &'v Map<String, Value>| map.keys().map(String::as_str).collect::<BTreeSet<_>>();
        let (left, right) = (sorted_keys(a), sorted_keys(b));
        if self.additions {
            for key in right.difference(&left) {
                self.step(key, None, b.get(*key));
            }
        }
        for key in left.difference(&right) {
            self.step(key, a.get(*key), None);
        }
        for key in left.intersection(&right) {
            self.step(key, a.get(*key), b.get(*key));
        }
    }

    fn step(&mut self, key: &'v str, a: Option<&'v Value>, b: Option<&'v Value>) {
        self.at.push(key);
        self.compare(present(a), present(b));
        self.at.pop();
    }

    fn record(&mut self, op: Op, a: Option<&Value>, b: Option<&Value>) {
        let path = FieldPath::from_keys(self.at.iter().copied());
        self.found.push(DiffItem { op, path, old: a.cloned(), new: b.cloned() });
    }
}

fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|v| !v.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn listed(items: &[DiffItem]) -> Value {
        serde_json::to_value(items).unwrap()
    }

    // contract: engine 4.2, observed 13
    #[test]
    fn items_are_ordered_as_additions_removals_and_common_keys() {
        let a = json!({"z": 1, "common": {"x": 1}, "gone": 1, "n": null});
        let b = json!({"z": 1.0, "common": {"x": 2}, "new": {"deep": 1}, "also": null});
        assert_eq!(
            listed(&diff(Some(&a), Some(&b))),
            json!([
                ["add", ["new"], null, {"deep": 1}],
                ["remove", ["gone"], 1, null],
                ["change", ["common", "x"], 1, 2]
            ])
        );
    }

    #[test]
    fn creation_is_one_addition_at_the_root() {
        let b = json!({"spec": {"x": 1}});
        assert_eq!(python_repr(&diff(None, Some(&b))), "(('add', (), None, {'spec': {'x': 1}}),)");
    }

    // contract: engine 4.2
    #[test]
    fn lists_and_changes_of_type_are_single_changes() {
        let items = diff(Some(&json!({"l": [1, 2], "t": {"a": 1}})), Some(&json!({"l": [2], "t": 5})));
        assert_eq!(python_repr(&items), "(('change', ('l',), [1, 2], [2]), ('change', ('t',), {'a': 1}, 5))");
        assert_eq!(python_repr(&[]), "()");
    }

    // contract: engine 8.5
    #[test]
    fn the_left_diff_ignores_additions() {
        let items = diff_left(Some(&json!({"a": {"b": 1}})), Some(&json!({"a": {"b": 2, "c": 3}, "d": 4})));
        assert_eq!(listed(&items), json!([["change", ["a", "b"], 1, 2]]));
    }

    // contract: engine 4.3
    #[test]
    fn reduction_cuts_or_deepens_the_path() {
        let created = diff(None, Some(&json!({"spec": {"x": 1}})));
        assert_eq!(listed(&reduce(&created, &FieldPath::parse("spec.x"))), json!([["add", [], null, 1]]));
        let changed = diff(Some(&json!({"spec": {"x": {"y": 1}}})), Some(&json!({"spec": {"x": {"y": 2}}})));
        assert_eq!(listed(&reduce(&changed, &FieldPath::parse("spec.x"))), json!([["change", ["y"], 1, 2]]));
        assert!(reduce(&changed, &FieldPath::parse("spec.z")).is_empty());
    }
}
