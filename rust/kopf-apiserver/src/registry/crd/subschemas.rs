//! The parts of a schema that are schemas themselves.

use serde_json::Value;

/// Types that schemas can have.
pub(super) const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Where a schema stands in its parent.
#[derive(Clone, Copy)]
pub(super) enum Level {
    Root,
    Items,
    Field,
}

impl Level {
    /// The error of a schema without a type.
    pub(super) fn missing_type(self) -> &'static str {
        match self {
            Self::Root => "must not be empty at the root",
            Self::Items => "must not be empty for specified array items",
            Self::Field => "must not be empty for specified object fields",
        }
    }
}

/// The schemas of the properties.
pub(super) fn properties<'v>(schema: &'v Value, path: &str) -> impl Iterator<Item = (String, &'v Value)> {
    let members = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    members.map(move |(name, child)| (format!("{path}.properties[{name}]"), child))
}

/// The schemas in `allOf`, `anyOf`, `oneOf` and `not`.
pub(super) fn alternatives<'v>(schema: &'v Value, path: &str) -> Vec<(String, &'v Value)> {
    let mut out = Vec::new();
    for key in ["allOf", "anyOf", "oneOf"] {
        let list = schema.get(key).and_then(Value::as_array).into_iter().flatten();
        out.extend(list.enumerate().map(|(i, child)| (format!("{path}.{key}[{i}]"), child)));
    }
    out.extend(schema.get("not").map(|child| (format!("{path}.not"), child)));
    out
}

/// The schemas of items and of additional properties.
pub(super) fn contents<'v>(schema: &'v Value, path: &str) -> Vec<(Level, String, &'v Value)> {
    let places = [("items", Level::Items), ("additionalProperties", Level::Field)];
    let found = places.into_iter().filter_map(|(key, level)| {
        let child = schema.get(key).filter(|child| child.is_object())?;
        Some((level, format!("{path}.{key}"), child))
    });
    found.collect()
}
