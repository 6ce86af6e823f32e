//! The fields that a manager owns, according to `metadata.managedFields`.

use std::collections::BTreeSet;

use serde_json::Map;

use super::digest::{Digest, Digester};
use crate::json::value::{Value, equal};
use crate::object::{Found, Object};

/// The digest of the fields that the manager has applied: their paths and their values. None if it has applied none.
pub fn owned_digest(object: &Value, manager: &str) -> Option<Digest> {
    let fields = applied_entry(object, manager)?.get("fieldsV1")?.as_object()?;
    let mut digester = Digester::new();
    add(&mut digester, fields, Some(object));
    Some(digester.finish())
}

/// The digests of all managers that have applied fields, by their names.
pub fn owned_digests(object: &Object) -> Vec<(String, Digest)> {
    let managed = match object.text_at(&["metadata", "managedFields"]) {
        // Most objects are never applied: they are not parsed.
        Found::Text(text) if text.contains("\"Apply\"") => text,
        _ => return vec![],
    };
    let Ok(managed) = serde_json::from_str::<Vec<Value>>(managed) else { return vec![] };
    let names = managed.iter().filter_map(|entry| entry.get("manager")?.as_str());
    let names: BTreeSet<&str> = names.collect();
    let value = object.to_value();
    let digest = |name: &str| Some((name.to_owned(), owned_digest(&value, name)?));
    names.into_iter().filter_map(digest).collect()
}

/// When the manager's last apply that changed something was executed.
pub fn write_time<'v>(object: &'v Value, manager: &str) -> Option<&'v str> {
    applied_entry(object, manager)?.get("time")?.as_str()
}

/// Whether a manager other than this one owns the field, or a part of it. The field is named as in conflicts.
pub fn is_owned_by_others(object: &Value, manager: &str, field: &str) -> bool {
    let is_other = |entry: &&Value| !is_applied_by(entry, manager);
    entries(object).filter(is_other).any(|entry| {
        let fields = entry.get("fieldsV1").and_then(Value::as_object);
        fields.is_some_and(|fields| has_field(fields, field))
    })
}

pub(super) fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    let entries = object.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    entries.and_then(Value::as_array).into_iter().flatten()
}

pub(super) fn is_applied_by(entry: &Value, manager: &str) -> bool {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    text("manager") == manager && text("operation") == "Apply" && text("subresource").is_empty()
}

fn applied_entry<'v>(object: &'v Value, manager: &str) -> Option<&'v Value> {
    entries(object).find(|entry| is_applied_by(entry, manager))
}

fn add(digester: &mut Digester, fields: &Map<String, Value>, value: Option<&Value>) {
    let mut sorted: Vec<_> = fields.iter().filter(|(step, _)| *step != ".").collect();
    sorted.sort_by_key(|(step, _)| *step);
    digester.text(if sorted.is_empty() { "leaf" } else { "fields" });
    if sorted.is_empty() {
        digester.value(value.unwrap_or(&Value::Null));
    }
    for (step, below) in sorted {
        digester.text(step);
        let inner = value.and_then(|value| follow(value, step));
        match below.as_object() {
            Some(below) => add(digester, below, inner),
            None => digester.value(inner.unwrap_or(&Value::Null)),
        }
    }
    digester.text("end");
}

/// The value at one step: `f:name`, `k:{"name":"x"}`, `v:"x"`, or `i:0`.
fn follow<'v>(value: &'v Value, step: &str) -> Option<&'v Value> {
    let (kind, text) = step.split_once(':')?;
    let parsed = || serde_json::from_str::<Value>(text).ok();
    match kind {
        "f" => value.get(text),
        "i" => value.get(text.parse::<usize>().ok()?),
        "v" => {
            let expected = parsed()?;
            value.as_array()?.iter().find(|item| equal(item, &expected))
        }
        "k" => {
            let keys = parsed()?;
            let keys = keys.as_object()?;
            let fits = |item: &&Value| {
                keys.iter().all(|(key, expected)| item.get(key).is_some_and(|found| equal(found, expected)))
            };
            value.as_array()?.iter().find(fits)
        }
        _ => None,
    }
}

/// Whether the fields include the named one, or a part of it.
fn has_field(fields: &Map<String, Value>, field: &str) -> bool {
    fields.iter().any(|(step, below)| {
        let Some(name) = rendered(step) else { return false };
        let Some(rest) = field.strip_prefix(&name) else { return false };
        let below = below.as_object();
        rest.is_empty() || (rest.starts_with(['.', '[']) && below.is_some_and(|below| has_field(below, rest)))
    })
}

/// One step as in conflicts.
fn rendered(step: &str) -> Option<String> {
    let (kind, text) = step.split_once(':')?;
    Some(match kind {
        "f" => format!(".{text}"),
        "v" => format!("[={text}]"),
        "i" => format!("[{text}]"),
        "k" => {
            let keys: Value = serde_json::from_str(text).ok()?;
            let mut keys: Vec<_> =
                keys.as_object()?.iter().map(|(key, value)| format!("{key}={value}")).collect();
            keys.sort();
            format!("[{}]", keys.join(","))
        }
        _ => return None,
    })
}
