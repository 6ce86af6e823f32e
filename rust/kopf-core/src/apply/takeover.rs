//! Taking over the fields of other managers, such as those of client-side apply, before the first apply.

use serde_json::{Map, json};

use super::owned_fields::{entries, is_applied_by};
use crate::json::value::Value;

/// The JSON patch that transfers the entries of the managers to `manager`; none if they own nothing.
pub fn takeover_patch(object: &Value, manager: &str, from: &[String]) -> Option<Value> {
    let text =
        |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_source = |entry: &Value| {
        from.contains(&text(entry, "manager"))
            && text(entry, "subresource").is_empty()
            && !is_applied_by(entry, manager)
    };
    let sources: Vec<_> = entries(object).filter(|entry| is_source(entry)).collect();
    let first = *sources.first()?;
    let own = entries(object).find(|entry| is_applied_by(entry, manager));
    let mut fields = Map::new();
    for entry in own.into_iter().chain(sources.iter().copied()) {
        if let Some(added) = entry.get("fieldsV1").and_then(Value::as_object) {
            merge(&mut fields, added);
        }
    }
    let mut transferred = own.unwrap_or(first).clone();
    transferred["manager"] = manager.into();
    transferred["operation"] = "Apply".into();
    transferred["fieldsV1"] = Value::Object(fields);
    let is_other = |entry: &&Value| !is_source(entry) && !is_applied_by(entry, manager);
    let mut kept: Vec<Value> = entries(object).filter(is_other).cloned().collect();
    kept.push(transferred);
    let version = object.get("metadata").and_then(|metadata| metadata.get("resourceVersion"));
    Some(json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "replace", "path": "/metadata/managedFields", "value": kept},
    ]))
}

fn merge(fields: &mut Map<String, Value>, added: &Map<String, Value>) {
    for (step, below) in added {
        match (fields.get_mut(step), below) {
            (Some(Value::Object(present)), Value::Object(below)) => merge(present, below),
            (Some(_), _) => {}
            (None, below) => {
                fields.insert(step.clone(), below.clone());
            }
        }
    }
}
