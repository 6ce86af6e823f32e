//! Conditions of objects: the JSON patch that sets them in the latest state (1.9).

use serde_json::json;

use crate::json::value::{Map, Value};
use crate::time::Timestamp;

/// The longest message in bytes; longer ones are truncated.
const LONGEST_MESSAGE: usize = 32 * 1024;

/// A change of one condition, made in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionChange {
    /// Set the condition of a type.
    Set {
        /// `type`.
        type_: String,
        /// `status`: true, false, or unknown.
        status: Option<bool>,
        /// `reason`: a word in `CamelCase`; see [`is_reason`].
        reason: String,
        /// `message`.
        message: String,
    },
    /// Remove the condition of a type.
    Drop(String),
}

/// The result of a call, for the condition that `condition=` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome<'a> {
    /// The function has returned.
    Succeeded,
    /// The function has requested another call, for this reason.
    Requeued(&'a str),
    /// The function has raised an exception: its class, and its masked text.
    Failed(&'a str, &'a str),
}

impl ConditionChange {
    /// The change of the condition that `condition=` names.
    pub fn of_outcome(type_: &str, outcome: CallOutcome<'_>) -> Self {
        let (status, reason, message) = match outcome {
            CallOutcome::Succeeded => (true, "Succeeded".to_owned(), ""),
            CallOutcome::Requeued(reason) => (false, "Waiting".to_owned(), reason),
            CallOutcome::Failed(class, text) => {
                // A class may be called `_error`, which is no reason.
                let word: String = class.chars().filter(char::is_ascii_alphanumeric).collect();
                let reason = if is_reason(&word) { word } else { "Error".to_owned() };
                (false, reason, text)
            }
        };
        Self::Set { type_: type_.to_owned(), status: Some(status), reason, message: message.to_owned() }
    }

    fn type_(&self) -> &str {
        match self {
            Self::Set { type_, .. } | Self::Drop(type_) => type_,
        }
    }
}

/// The changes of conditions made in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionChanges {
    /// The changes.
    pub changes: Vec<ConditionChange>,
    /// The generation of the body that the call received.
    pub generation: Option<i64>,
}

impl ConditionChanges {
    /// Makes the changes in the latest state of an object.
    pub fn apply(&self, object: &mut Value, now: Timestamp) {
        let Some(object) = object.as_object_mut() else { return };
        let status = object.entry("status").or_insert_with(|| json!({}));
        let Some(status) = status.as_object_mut() else { return };
        let present = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let conditions = changed_conditions(present, &self.changes, self.generation, now);
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }
}

/// Whether the text is valid as a reason: a word in `CamelCase`.
pub fn is_reason(text: &str) -> bool {
    text.len() <= 1024
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// The JSON patch that makes the changes in the latest state of an object. It fails with a conflict if another client has
/// changed the object since. Entries of other controllers, their order, and unknown fields are kept.
///
/// `generation` is that of the body that the call received. None if nothing but times would differ.
pub fn conditions_patch(
    latest: &Value,
    changes: &[ConditionChange],
    generation: Option<i64>,
    now: Timestamp,
) -> Option<Vec<Value>> {
    let status = latest.get("status").filter(|status| !status.is_null());
    let present = status.and_then(|status| status.get("conditions")).and_then(Value::as_array);
    let conditions = changed_conditions(present.cloned().unwrap_or_default(), changes, generation, now);
    if present.map_or(conditions.is_empty(), |present| *present == conditions) {
        return None;
    }
    let mut patch = Vec::new();
    if let Some(version) = latest.get("metadata").and_then(|metadata| metadata.get("resourceVersion")) {
        patch.push(json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
    }
    match (status, present) {
        (None, _) => {
            patch.push(json!({"op": "add", "path": "/status", "value": {"conditions": conditions}}));
        }
        (Some(_), None) => {
            patch.push(json!({"op": "add", "path": "/status/conditions", "value": conditions}));
        }
        (Some(_), Some(present)) => edit_list(&mut patch, present, &conditions),
    }
    Some(patch)
}

/// The conditions with the changes: the other entries, their order, and unknown fields are kept.
pub fn changed_conditions(
    mut conditions: Vec<Value>,
    changes: &[ConditionChange],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Value> {
    for change in changes {
        change_in(&mut conditions, change, generation, now);
    }
    conditions
}

fn change_in(conditions: &mut Vec<Value>, change: &ConditionChange, generation: Option<i64>, now: Timestamp) {
    let is_of_type = |entry: &Value| entry.get("type").is_some_and(|type_| type_ == change.type_());
    let ConditionChange::Set { type_, status, reason, message } = change else {
        conditions.retain(|entry| !is_of_type(entry));
        return;
    };
    let status = match status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let message = truncated(message);
    let present = conditions.iter_mut().find(|entry| is_of_type(entry));
    let is_kept = present.as_ref().is_some_and(|entry| {
        entry.get("status").is_some_and(|present| present == status)
            && entry.get("lastTransitionTime").is_some_and(Value::is_string)
    });
    let mut fields = Map::new();
    fields.insert("type".to_owned(), json!(type_));
    fields.insert("status".to_owned(), json!(status));
    fields.insert("reason".to_owned(), json!(reason));
    fields.insert("message".to_owned(), json!(message));
    if !is_kept {
        fields.insert("lastTransitionTime".to_owned(), json!(time_text(now)));
    }
    if let Some(generation) = generation {
        fields.insert("observedGeneration".to_owned(), json!(generation));
    }
    match present {
        Some(Value::Object(entry)) => entry.extend(fields),
        _ => conditions.push(Value::Object(fields)),
    }
}

/// Edits entries in place, then removes and appends: removals from the end, so that indices stay valid.
fn edit_list(patch: &mut Vec<Value>, before: &[Value], after: &[Value]) {
    let type_of = |entry: &Value| entry.get("type").cloned();
    let mut kept = after.iter().peekable();
    let mut removed = Vec::new();
    let mut index = 0_usize;
    for (position, entry) in before.iter().enumerate() {
        match kept.next_if(|next| type_of(next) == type_of(entry)) {
            Some(next) => {
                if next != entry {
                    patch.push(json!({
                        "op": "replace", "path": format!("/status/conditions/{position}"), "value": next,
                    }));
                }
                index += 1;
            }
            None => removed.push(position),
        }
    }
    for position in removed.into_iter().rev() {
        patch.push(json!({"op": "remove", "path": format!("/status/conditions/{position}")}));
    }
    for entry in after.iter().skip(index) {
        patch.push(json!({"op": "add", "path": "/status/conditions/-", "value": entry}));
    }
}

/// The time as in metadata: in seconds, with `Z`.
fn time_text(now: Timestamp) -> String {
    let text = now.to_string();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

fn truncated(message: &str) -> &str {
    let end = (0..=LONGEST_MESSAGE.min(message.len())).rev().find(|end| message.is_char_boundary(*end));
    message.get(..end.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
