//! Field paths that lead into lists: `spec.containers[*].image`.

use crate::json::path::FieldPath;
use crate::json::value::Value;
use crate::object::Object;

/// A path of keys, in which `[*]` stands for all items of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPath {
    head: FieldPath,
    /// The paths within the items of each list.
    items: Vec<FieldPath>,
}

impl ListPath {
    /// Splits at dots and at `[*]`. None if there are other brackets.
    pub fn parse(dotted: &str) -> Option<Self> {
        let mut parts = dotted.split("[*]");
        let head = FieldPath::parse(parts.next()?);
        let items = parts.map(|part| FieldPath::parse(part.strip_prefix('.').unwrap_or(part))).collect();
        let is_plain = |path: &FieldPath| !path.keys().iter().any(|key| key.contains(['[', ']', '*']));
        let path = Self { head, items };
        (is_plain(&path.head) && path.items.iter().all(is_plain)).then_some(path)
    }

    /// A path that leads into no list, with keys that may have dots.
    pub fn from_field(head: FieldPath) -> Self {
        Self { head, items: Vec::new() }
    }

    /// The values at the path; a missing or null field has none.
    pub fn values(&self, object: &Object) -> Vec<Value> {
        let mut level: Vec<Value> = object.field(&self.head).into_iter().collect();
        for path in &self.items {
            let items = level.into_iter().filter_map(|value| match value {
                Value::Array(items) => Some(items),
                _ => None,
            });
            level = items.flatten().filter_map(|item| taken(item, path)).collect();
        }
        level.retain(|value| !value.is_null());
        level
    }

    /// The strings among the values: names.
    pub fn names(&self, object: &Object) -> Vec<Box<str>> {
        let name = |value| match value {
            Value::String(name) if !name.is_empty() => Some(name.into_boxed_str()),
            _ => None,
        };
        self.values(object).into_iter().filter_map(name).collect()
    }
}

fn taken(item: Value, path: &FieldPath) -> Option<Value> {
    path.keys().iter().try_fold(item, |level, key| match level {
        Value::Object(mut map) => map.shift_remove(&**key),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_into_lists() {
        let spec = json!({"name": "a", "none": null, "rows": [[{"x": 1}], [{"x": 2}, {"y": 3}], 4],
            "volumes": [{"configMap": {"name": "b"}}, {"secret": {}}, {"configMap": {"name": "c"}}, "odd"]});
        let object = Object::decode(&json!({"spec": spec}).to_string()).unwrap();
        for (path, expected) in [
            ("spec.name", json!(["a"])),
            ("spec.none", json!([])),
            ("spec.missing", json!([])),
            ("spec.name[*].x", json!([])),
            ("spec.volumes[*].configMap.name", json!(["b", "c"])),
            ("spec.rows[*][*].x", json!([1, 2])),
        ] {
            assert_eq!(Value::Array(ListPath::parse(path).unwrap().values(&object)), expected, "{path}");
        }
        assert_eq!(ListPath::parse("spec.rows[*][*].x").unwrap().names(&object), []);
        let label = FieldPath::from_keys(["metadata", "labels", "a.b/c"]);
        assert_eq!(ListPath::from_field(label).values(&object), [json!(null); 0]);
    }

    #[test]
    fn other_brackets_are_rejected() {
        for path in ["spec.x[0]", "spec.x[*", "spec.*"] {
            assert_eq!(ListPath::parse(path), None, "{path}");
        }
    }
}
