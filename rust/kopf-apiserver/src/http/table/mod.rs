//! Tables of `meta.k8s.io` for `kubectl get`: columns and rows of built-in and custom resources.

mod cells;
mod columns;

use serde_json::{Map, Value, json};

use crate::http::accept::MetaVersion;
use crate::http::partial::partial;
use crate::scheme::resources::Resource;

/// `includeObject`: the part of the object in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    Nothing,
    Metadata,
    Object,
}

/// A column definition with the source of its cells.
struct Column {
    name: String,
    kind: String,
    format: String,
    priority: i64,
    source: String,
    /// Description in the CRD; else empty.
    description: String,
}

fn columns(resource: &Resource) -> Vec<Column> {
    let mut out = vec![column("Name", "string", 0, ".metadata.name")];
    if let Some(custom) = &resource.custom {
        for printed in &custom.columns {
            let text = |key: &str| printed.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let priority = printed.get("priority").and_then(Value::as_i64).unwrap_or_default();
            out.push(Column {
                name: text("name"),
                kind: text("type"),
                format: text("format"),
                priority,
                source: text("jsonPath"),
                description: text("description"),
            });
        }
        if custom.columns.is_empty() {
            let age = column("Age", "date", 0, ".metadata.creationTimestamp");
            out.push(Column { description: CREATION_TIMESTAMP.into(), ..age });
        }
        return out;
    }
    for (name, kind, priority, source) in columns::of(&resource.group, &resource.plural) {
        out.push(column(name, kind, *priority, source));
    }
    out
}

fn column(name: &str, kind: &str, priority: i64, source: &str) -> Column {
    let format = if name == "Name" { "name" } else { "" };
    Column {
        name: name.into(),
        kind: kind.into(),
        format: format.into(),
        priority,
        source: source.into(),
        description: String::new(),
    }
}

/// Table without rows.
pub(crate) fn header(
    resource: &Resource,
    version: &Value,
    with_columns: bool,
    meta: MetaVersion,
) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("kind".into(), "Table".into());
    out.insert("apiVersion".into(), meta.api_version().into());
    out.insert(
        "metadata".into(),
        if version.is_null() { json!({}) } else { json!({"resourceVersion": version}) },
    );
    let mut defined = Vec::new();
    if with_columns {
        for c in columns(resource) {
            let description = describe(&c, resource);
            defined.push(json!({
                "name": c.name, "type": c.kind, "format": c.format, "description": description, "priority": c.priority,
            }));
        }
    }
    out.insert("columnDefinitions".into(), defined.into());
    out
}

/// Description of the name in the schema of the metadata.
const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a \
                    client to request the generation of an appropriate name automatically. Name is primarily intended for creation \
                    idempotence and configuration definition. Cannot be updated. More info: \
                    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// Description of the creation timestamp there.
const CREATION_TIMESTAMP: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
                                  guaranteed to be set in happens-before order across separate operations. Clients may not set this \
                                  value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. \
                                  Null for lists. More info: \
                                  https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

fn describe(column: &Column, resource: &Resource) -> String {
    if !column.description.is_empty() {
        return column.description.clone();
    }
    if column.format == "name" {
        return NAME.to_owned();
    }
    if resource.custom.is_some() {
        return format!("Custom resource definition column (in JSONPath format): {}", column.source);
    }
    format!("{} of the {}.", column.name, resource.kind)
}

/// Row of one object.
pub(crate) fn row(resource: &Resource, object: &Value, include: IncludeObject, meta: MetaVersion) -> Value {
    let cells: Vec<Value> =
        columns(resource).iter().map(|c| cells::cell(&c.source, &c.kind, object)).collect();
    let included = match include {
        IncludeObject::Nothing => Value::Null,
        IncludeObject::Metadata => partial(object, meta),
        IncludeObject::Object => object.clone(),
    };
    let mut out = Map::new();
    out.insert("cells".into(), cells.into());
    out.insert("object".into(), included);
    Value::Object(out)
}
