//! The record of one handler's attempts, and its forms in JSON.

use serde_json::json;

use crate::cause::Reason;
use crate::json::value::{Map, Value, to_python_json, truthy};
use crate::time::Timestamp;

/// Kopf's state on the object cannot be parsed, because another client edited it. Retrying does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed {place}: {problem}")]
pub struct Malformed {
    /// The annotation or field, as in error messages.
    pub place: String,
    /// The description of the problem.
    pub problem: String,
}

/// Progress of one handler in the current handling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The time when the handler was first selected.
    pub started: Option<Timestamp>,
    /// The time of the final outcome.
    pub stopped: Option<Timestamp>,
    /// The time before which the handler is not retried.
    pub delayed: Option<Timestamp>,
    /// The reason of the handling: `create`, `update`, `delete`, `resume`.
    pub purpose: Option<String>,
    /// The number of finished attempts.
    pub retries: u64,
    /// Whether the handler has succeeded.
    pub success: bool,
    /// Whether the handler has failed permanently.
    pub failure: bool,
    /// The error message of the last attempt.
    pub message: Option<String>,
    /// The ids of all its sub-handlers.
    pub subrefs: Vec<String>,
    /// The observed essence (see `diffbase::observed`): the essence with which the first finished handlers were called.
    /// Only one record of a handling has it.
    pub observed: Option<String>,
}

impl Record {
    /// Whether the record belongs to a handling of this reason.
    pub(crate) fn is_for(&self, reason: Reason) -> bool {
        self.purpose.as_deref() == Some(reason.as_str())
    }

    /// All fields in the order of their serialization; those without a value are `null`.
    pub fn to_map(&self) -> Map<String, Value> {
        let timestamp = |at: Option<Timestamp>| json!(at.map(|at| at.to_string()));
        let mut subrefs = self.subrefs.clone();
        subrefs.sort_unstable();
        let fields = [
            ("started", timestamp(self.started)),
            ("stopped", timestamp(self.stopped)),
            ("delayed", timestamp(self.delayed)),
            ("purpose", json!(self.purpose)),
            ("retries", json!(self.retries)),
            ("success", json!(self.success)),
            ("failure", json!(self.failure)),
            ("message", json!(self.message)),
            ("subrefs", if subrefs.is_empty() { Value::Null } else { json!(subrefs) }),
        ];
        // Kopf 1.45 does not have this field, and drops it when it takes over the object.
        let observed = self.observed.as_ref().map(|observed| ("seen", json!(observed)));
        fields.into_iter().chain(observed).map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The JSON for an annotation; fields without a value are included in the verbose form only.
    pub fn to_json(&self, verbose: bool) -> String {
        let mut map = self.to_map();
        map.retain(|_, value| verbose || !value.is_null());
        to_python_json(&Value::Object(map))
    }

    /// Parses a record. The error is a description of the problem.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let Value::Object(map) = value else { return Err("the record is not a mapping".to_owned()) };
        let field = |key: &str| map.get(key).filter(|value| !value.is_null());
        let flag = |key: &str| field(key).is_some_and(truthy);
        let text = |key: &str| match field(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("{key} is not a string")),
        };
        let timestamp = |key: &str| match text(key)? {
            None => Ok(None),
            Some(text) => match Timestamp::parse(&text) {
                Some(at) => Ok(Some(at)),
                None => Err(format!("{key} is not a timestamp")),
            },
        };
        let retries = match field("retries") {
            None => 0,
            Some(n) => n.as_u64().ok_or_else(|| "retries is not a count".to_owned())?,
        };
        let subrefs = match field("subrefs") {
            None => Vec::new(),
            Some(Value::Array(ids)) => ids.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect(),
            Some(_) => return Err("subrefs is not a list".to_owned()),
        };
        Ok(Self {
            started: timestamp("started")?,
            stopped: timestamp("stopped")?,
            delayed: timestamp("delayed")?,
            purpose: text("purpose")?.filter(|purpose| !purpose.is_empty()),
            retries,
            success: flag("success"),
            failure: flag("failure"),
            message: text("message")?,
            subrefs,
            observed: field("seen").and_then(Value::as_str).map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // contract: engine 7.1
    #[test]
    fn the_json_is_ordered_and_compact() {
        let record = Record {
            started: Timestamp::parse("2026-01-01T00:00:00.000001Z"),
            purpose: Some("create".into()),
            retries: 1,
            message: Some("böö".into()),
            subrefs: vec!["b".into(), "a".into()],
            ..Record::default()
        };
        assert_eq!(
            record.to_json(false),
            r#"{"started":"2026-01-01T00:00:00.000001+00:00","purpose":"create","retries":1,"success":false,"failure":false,"message":"b\u00f6\u00f6","subrefs":["a","b"]}"#
        );
        assert_eq!(
            Record::default().to_json(true),
            r#"{"started":null,"stopped":null,"delayed":null,"purpose":null,"retries":0,"success":false,"failure":false,"message":null,"subrefs":null}"#
        );
    }

    // contract: engine 7.1
    #[test]
    fn missing_fields_are_accepted_and_malformed_fields_are_errors() {
        assert_eq!(Record::from_value(&json!({"purpose": "", "unknown": 1})), Ok(Record::default()));
        for (value, problem) in [
            (json!([]), "the record is not a mapping"),
            (json!({"started": "soon"}), "started is not a timestamp"),
            (json!({"retries": -1}), "retries is not a count"),
            (json!({"message": {}}), "message is not a string"),
            (json!({"subrefs": "x"}), "subrefs is not a list"),
        ] {
            assert_eq!(Record::from_value(&value), Err(problem.to_owned()));
        }
    }
}
