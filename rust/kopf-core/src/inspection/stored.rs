//! The state of the handling as it is stored on an object, or was fetched from custom storages.

use super::Operator;
use crate::handler::registry::ResourceHandlers;
use crate::json::diff::diff;
use crate::json::path::FieldPath;
use crate::json::value::Value;
use crate::object::Object;
use crate::persistence::Persistence;
use crate::persistence::annotation_keys::make_safe;
use crate::persistence::completed_handling::CompletedHandling;
use crate::persistence::diffbase::{SYSTEM_STANZAS, compact};
use crate::persistence::essence::{Comparison, compare};
use crate::persistence::progress::{Malformed, Record, Records};

/// The state of an object in custom storages, which Python has fetched.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    /// The diff-base.
    pub old: Option<Value>,
    /// The current essence.
    pub new: Value,
    /// The records by handler ids.
    pub records: Vec<(String, Value)>,
}

/// The comparison of the essence with the diff-base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Absent,
    Same,
    Different,
}

/// The stored state.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) records: Records,
    pub(super) base: Base,
}

/// Reads the state. If the handlers are unknown, all records count.
pub(super) fn read(
    object: &Object,
    operator: Operator<'_>,
    fetched: Option<&Fetched>,
) -> Result<Stored, Malformed> {
    let persistence = operator.settings.persistence;
    let handlers = operator.handlers.map(|(_, handlers)| handlers);
    let (base, mut records) = match (fetched, handlers) {
        (Some(fetched), _) => read_fetched(fetched)?,
        (None, Some(handlers)) => {
            let base = compare(object, persistence, &handlers.extra_fields)?;
            (base_of(base), known_records(object, persistence, handlers)?)
        }
        (None, None) => {
            let base = compare_unknown(object, persistence)?;
            let others = persistence.diffbase_storage.own_keys(object);
            (base, persistence.progress_storage.discover(object, &others)?)
        }
    };
    // The others have only an observed essence.
    records.retain(|(_, record)| {
        record.started.is_some() || record.purpose.is_some() || record.success || record.failure
    });
    if let Some(handlers) = handlers.filter(|_| fetched.is_none()) {
        let completed = CompletedHandling::find(object, operator.settings, handlers);
        records.retain(|(_, record)| completed.as_ref().is_none_or(|completed| !completed.contains(record)));
    } else if base == Base::Same && records.iter().all(|(_, record)| record.success) {
        // The operator was stopped between the requests that store the diff-base and that remove the progress.
        records.clear();
    }
    Ok(Stored { records, base })
}

/// Whether an id is one of these. Ids from keys of annotations have no `/`.
pub(super) fn is_listed(id: &str, ids: &[&String]) -> bool {
    ids.iter().any(|known| *known == id || make_safe(known) == id)
}

fn known_records(
    object: &Object,
    persistence: &Persistence,
    handlers: &ResourceHandlers,
) -> Result<Records, Malformed> {
    let mut ids: Vec<String> = handlers.owned.iter().map(ToString::to_string).collect();
    let mut records = Records::new();
    while let Some(id) = ids.pop() {
        if records.iter().any(|(known, _)| *known == id) {
            continue;
        }
        if let Some(record) = persistence.progress_storage.fetch(object, &id)? {
            ids.extend(record.subrefs.iter().cloned());
            records.push((id, record));
        }
    }
    records.sort_by_cached_key(|(id, _)| id.clone());
    Ok(records)
}

fn read_fetched(fetched: &Fetched) -> Result<(Base, Records), Malformed> {
    let base = match &fetched.old {
        None => Base::Absent,
        Some(old) if diff(Some(old), Some(&fetched.new)).is_empty() => Base::Same,
        Some(_) => Base::Different,
    };
    let record = |(id, value): &(String, Value)| {
        let malformed = |problem| Malformed { place: format!("record of {id}"), problem };
        Ok((id.clone(), Record::from_value(value).map_err(malformed)?))
    };
    Ok((base, fetched.records.iter().map(record).collect::<Result<_, _>>()?))
}

fn base_of(comparison: Comparison) -> Base {
    match comparison {
        Comparison::Absent => Base::Absent,
        Comparison::Same => Base::Same,
        // Nulls count as absent, so that the essences may differ in nothing that handlers see.
        Comparison::Different(difference) if difference.diff.is_empty() => Base::Same,
        Comparison::Different(_) => Base::Different,
    }
}

/// Compares the essence if the handlers are unknown, and so are the fields that they have added to it: those of the
/// diff-base are compared.
fn compare_unknown(object: &Object, persistence: &Persistence) -> Result<Base, Malformed> {
    let base = base_of(compare(object, persistence, &[])?);
    if base != Base::Different {
        return Ok(base);
    }
    let Some(stored) = persistence.diffbase_storage.fetch(object)? else { return Ok(Base::Absent) };
    let stored = compact::restored(stored, &object.to_value());
    let extra = extra_fields(&stored);
    if extra.is_empty() { Ok(base) } else { Ok(base_of(compare(object, persistence, &extra)?)) }
}

/// The fields of an essence that are in no essence unless a handler is for them.
fn extra_fields(essence: &Value) -> Vec<FieldPath> {
    let mut fields = Vec::new();
    for stanza in SYSTEM_STANZAS {
        let Some(value) = essence.get(stanza) else { continue };
        let path = FieldPath::from_keys([stanza]);
        match value {
            Value::Object(metadata) if stanza == "metadata" => {
                let others = metadata.iter().filter(|(key, _)| !matches!(&***key, "labels" | "annotations"));
                others.for_each(|(key, value)| add_leaves(&mut fields, path.child(key), value));
            }
            value => add_leaves(&mut fields, path, value),
        }
    }
    fields
}

fn add_leaves(fields: &mut Vec<FieldPath>, path: FieldPath, value: &Value) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| add_leaves(fields, path.child(key), value));
        }
        _ => fields.push(path),
    }
}
