//! Types of the variables that expressions of webhooks and policies have.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::Schema;
use super::types::StaticType;

/// An object with these properties.
fn object<const N: usize>(properties: [(&str, Value); N]) -> Value {
    let properties: Map<String, Value> =
        properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    json!({"type": "object", "properties": properties})
}

fn texts<const N: usize>(names: [&str; N]) -> Value {
    object(names.map(|name| (name, json!({"type": "string"}))))
}

static REQUEST: LazyLock<Schema> = LazyLock::new(|| {
    let text = || json!({"type": "string"});
    let list = || json!({"type": "array", "items": {"type": "string"}});
    let kind = || texts(["group", "version", "kind"]);
    let resource = || texts(["group", "version", "resource"]);
    let user = object([
        ("username", text()),
        ("uid", text()),
        ("groups", list()),
        ("extra", json!({"type": "object", "additionalProperties": list()})),
    ]);
    Schema::from_json(&object([
        ("kind", kind()),
        ("resource", resource()),
        ("subResource", text()),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
        ("userInfo", user),
        ("dryRun", json!({"type": "boolean"})),
        ("options", json!({"x-kubernetes-int-or-string": true})),
    ]))
});

static NAMESPACE: LazyLock<Schema> = LazyLock::new(|| {
    let text = || json!({"type": "string"});
    let time = || json!({"type": "string", "format": "date-time"});
    let number = || json!({"type": "integer"});
    let map = || json!({"type": "object", "additionalProperties": {"type": "string"}});
    let list = |items: Value| json!({"type": "array", "items": items});
    let condition = object([
        ("status", text()),
        ("type", text()),
        ("lastTransitionTime", time()),
        ("message", text()),
        ("reason", text()),
    ]);
    let metadata = object([
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", map()),
        ("annotations", map()),
        ("UID", text()),
        ("creationTimestamp", time()),
        ("deletionGracePeriodSeconds", number()),
        ("deletionTimestamp", time()),
        ("generation", number()),
        ("resourceVersion", text()),
        ("finalizers", list(text())),
    ]);
    Schema::from_json(&object([
        ("metadata", metadata),
        ("spec", object([("finalizers", list(text()))])),
        ("status", object([("conditions", list(condition)), ("phase", text())])),
    ]))
});

/// Type of the variable `request`.
pub(crate) fn request_type() -> StaticType<'static> {
    StaticType::of_schema(&REQUEST, false).unwrap_or(StaticType::Dyn)
}

/// Type of the variable `namespaceObject`.
pub(crate) fn namespace_type() -> StaticType<'static> {
    StaticType::of_schema(&NAMESPACE, false).unwrap_or(StaticType::Dyn)
}
