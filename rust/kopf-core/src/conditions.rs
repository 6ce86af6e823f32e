//! Conditions of objects: their changes in the latest state (1.9).

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
        /// `reason`: a word in `CamelCase`.
        reason: String,
        /// `message`.
        message: String,
    },
    /// Remove the condition of a type.
    Drop(String),
}

impl ConditionChange {
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
