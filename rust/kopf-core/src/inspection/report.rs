//! The result of an inspection, and its JSON.

use serde::Serialize;
use serde_json::json;

use super::{State, is_done};
use crate::json::value::Value;
use crate::persistence::progress::Record;
use crate::time::Timestamp;

/// The state of an object's handling.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// The state.
    pub state: State,
    /// The reason of the current handling: `create`, `update`, `delete`, `resume`.
    pub reason: Option<String>,
    /// The number of handlers that are not called again in the current handling, without sub-handlers.
    pub done: usize,
    /// The number of handlers of the current handling, without sub-handlers.
    pub total: usize,
    /// The id of the handler that determines the state, with the number of its attempts.
    pub attempted: Option<(String, u64)>,
    /// The time of the next attempt, which may have passed.
    pub next: Option<Timestamp>,
    /// The time since when the object is in this state, as far as it is known.
    pub since: Option<Timestamp>,
    /// The last error, or the problem.
    pub message: Option<String>,
    /// The time when the deletion was requested.
    pub deleted: Option<Timestamp>,
    /// The finalizers of the operator that the object has.
    pub finalizers: Vec<String>,
    /// The handlers of the current handling, with sub-handlers.
    pub handlers: Vec<HandlerReport>,
}

/// The progress of one handler.
#[derive(Clone, Debug, PartialEq)]
pub struct HandlerReport {
    id: String,
    record: Record,
}

/// The handler that determines the state.
#[derive(Debug)]
pub(super) struct Attempted {
    pub(super) id: String,
    pub(super) record: Record,
}

impl Inspection {
    pub(super) fn of(state: State) -> Self {
        Self {
            state,
            reason: None,
            done: 0,
            total: 0,
            attempted: None,
            next: None,
            since: None,
            message: None,
            deleted: None,
            finalizers: Vec::new(),
            handlers: Vec::new(),
        }
    }

    /// The JSON for people and scripts. Times are in ISO 8601.
    pub fn to_value(&self) -> Value {
        let attempted = self.attempted.as_ref();
        json!({
            "state": name(self.state),
            "reason": self.reason,
            "done": self.done,
            "total": self.total,
            "handler": attempted.map(|(id, _)| id),
            "attempts": attempted.map(|(_, attempts)| attempts),
            "next": text(self.next),
            "since": text(self.since),
            "message": self.message,
            "deleted": text(self.deleted),
            "finalizers": self.finalizers,
            "handlers": self.handlers.iter().map(HandlerReport::to_value).collect::<Vec<_>>(),
        })
    }
}

impl HandlerReport {
    pub(super) fn of(id: &str, record: &Record) -> Self {
        Self { id: id.to_owned(), record: record.clone() }
    }

    fn to_value(&self) -> Value {
        let record = &self.record;
        let state = match record {
            Record { success: true, .. } => "succeeded",
            Record { failure: true, .. } => "failed",
            Record { retries: 0, delayed: None, .. } => "waiting",
            _ => "retrying",
        };
        json!({
            "id": self.id,
            "state": state,
            "attempts": record.retries,
            "started": text(record.started),
            "stopped": text(record.stopped),
            "next": text(record.delayed.filter(|_| !is_done(record))),
            "message": record.message,
        })
    }
}

impl Attempted {
    /// The handler that explains the state: one with attempts, and a sub-handler rather than its parent.
    pub(super) fn of(state: State, records: &[(String, Record)]) -> Option<Self> {
        let is_cause = |record: &Record| match state {
            State::Failed => record.failure,
            _ => !is_done(record) && (record.retries > 0 || record.delayed.is_some()),
        };
        let causes = records.iter().filter(|(_, record)| is_cause(record));
        let (id, record) =
            causes.min_by_key(|(_, record)| (!record.subrefs.is_empty(), record.delayed, record.started))?;
        Some(Self { id: id.clone(), record: record.clone() })
    }
}

fn name(state: impl Serialize) -> Value {
    serde_json::to_value(state).unwrap_or_default()
}

fn text(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}
