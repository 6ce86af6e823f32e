//! The state of an object's handling, as people inspect it with `kopf status`.
//!
//! It is derived from one state of the object and a time: from its finalizers, the progress records, and the diff-base.

mod report;
mod stored;
mod times;

use serde::Serialize;

use crate::cause::Reason;
use crate::handler::filters::{self, FilterVerdict};
use crate::handler::registry::{Registry, ResourceHandlers};
use crate::object::Object;
use crate::persistence::PersistenceConfig;
use crate::persistence::progress::{Malformed, Record, Records};
use crate::time::Timestamp;

pub use report::{HandlerReport, Inspection};
pub use stored::Fetched;

use report::Attempted;
use stored::{Base, Stored};

/// Seconds without a write after which a deletion is stuck, if nothing is scheduled.
const STUCK_AFTER: f64 = 300.0;
/// Seconds after the time of an attempt when it is overdue.
const OVERDUE_AFTER: f64 = 60.0;

/// The state of the handling. The first one that applies is the state of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The diff-base or a progress record cannot be parsed.
    Malformed,
    /// The deletion is requested, and a finalizer of the operator blocks it, but the operator does nothing.
    Stuck,
    /// The deletion is requested.
    Deleting,
    /// A handler has failed permanently, and the handling is not completed.
    Failed,
    /// The time of the next attempt has passed.
    Overdue,
    /// A handler is to be retried.
    Retrying,
    /// Handlers are to be called.
    Handling,
    /// The essence differs from the diff-base, and the handling has not begun.
    Changed,
    /// The object was never handled, but it should be.
    New,
    /// The last handling is completed.
    Handled,
    /// There is nothing of this operator.
    Foreign,
}

/// The known facts about the operator.
#[derive(Clone, Copy, Debug)]
pub struct Operator<'o> {
    /// The storages, and the compatibility mode.
    pub settings: PersistenceConfig<'o>,
    /// All finalizers of the operator.
    pub finalizers: &'o [String],
    /// The handlers of the resource; `None` if they are unknown.
    pub handlers: Option<(&'o Registry, &'o ResourceHandlers)>,
}

/// Inspects an object. `fetched` is its state in custom storages, if the operator has them.
pub fn inspect(
    object: &Object,
    operator: Operator<'_>,
    fetched: Option<&Fetched>,
    now: Timestamp,
) -> Inspection {
    let deleted = object.deletion_timestamp().and_then(Timestamp::parse);
    let finalizers: Vec<String> = object
        .finalizers()
        .filter(|name| operator.finalizers.iter().any(|own| own == name))
        .map(str::to_owned)
        .collect();
    let stored = match stored::read(object, operator, fetched) {
        Ok(stored) => stored,
        Err(malformed) => return report_malformed(&malformed, deleted, finalizers),
    };
    let facts = Facts { object, operator, stored: &stored, deleted, is_blocked: !finalizers.is_empty(), now };
    facts.report(finalizers)
}

fn report_malformed(
    malformed: &Malformed,
    deleted: Option<Timestamp>,
    finalizers: Vec<String>,
) -> Inspection {
    Inspection {
        message: Some(malformed.to_string()),
        deleted,
        finalizers,
        ..Inspection::of(State::Malformed)
    }
}

/// Everything that the state depends on.
struct Facts<'f> {
    object: &'f Object,
    operator: Operator<'f>,
    stored: &'f Stored,
    deleted: Option<Timestamp>,
    is_blocked: bool,
    now: Timestamp,
}

impl Facts<'_> {
    fn report(&self, finalizers: Vec<String>) -> Inspection {
        let (reason, records) = self.current();
        let state = self.state(&records);
        let subrefs: Vec<_> = records.iter().flat_map(|(_, record)| &record.subrefs).collect();
        let top: Vec<_> = records.iter().filter(|(id, _)| !stored::is_listed(id, &subrefs)).collect();
        let done = top.iter().filter(|(_, record)| is_done(record)).count();
        let attempted = Attempted::of(state, &records);
        let next =
            records.iter().filter(|(_, record)| !is_done(record)).filter_map(|(_, record)| record.delayed);
        Inspection {
            reason,
            done,
            total: top.len(),
            since: self.since(state, &records),
            message: self.message(state, attempted.as_ref()),
            attempted: attempted.map(|attempted| (attempted.id, attempted.record.retries)),
            next: next.min(),
            deleted: self.deleted,
            finalizers,
            handlers: records.iter().map(|(id, record)| HandlerReport::of(id, record)).collect(),
            ..Inspection::of(state)
        }
    }

    /// The records of the current handling, with its reason. Those of a superseded one stay until the current one is completed.
    fn current(&self) -> (Option<String>, Records) {
        let records = &self.stored.records;
        let reason = if self.deleted.is_some() {
            Some(Reason::Delete.as_str().to_owned())
        } else {
            records
                .iter()
                .max_by_key(|(_, record)| record.started)
                .and_then(|(_, record)| record.purpose.clone())
        };
        let current = records.iter().filter(|(_, record)| record.purpose == reason).cloned().collect();
        (reason, current)
    }

    /// The first state that applies.
    fn state(&self, records: &[(String, Record)]) -> State {
        let any = |is_such: &dyn Fn(&Record) -> bool| records.iter().any(|(_, record)| is_such(record));
        if let Some(deleted) = self.deleted {
            return if self.is_stuck(deleted) { State::Stuck } else { State::Deleting };
        }
        if any(&|record| record.failure) {
            return State::Failed;
        }
        if any(&|record| self.is_overdue(record)) {
            return State::Overdue;
        }
        if any(&|record| !is_done(record) && (record.retries > 0 || record.delayed.is_some())) {
            return State::Retrying;
        }
        if !records.is_empty() {
            return State::Handling;
        }
        match self.stored.base {
            Base::Different => State::Changed,
            Base::Same => State::Handled,
            Base::Absent if self.is_expected() => State::New,
            // Without change handlers, Kopf stores no diff-base.
            Base::Absent if self.is_blocked => State::Handled,
            Base::Absent => State::Foreign,
        }
    }

    /// Whether the operator has stopped to work on the deletion.
    fn is_stuck(&self, deleted: Timestamp) -> bool {
        let is_scheduled =
            |record: &Record| !is_done(record) && record.delayed.is_some_and(|at| at > self.now);
        self.is_blocked
            && self.idle_seconds(deleted) >= STUCK_AFTER
            && !self.stored.records.iter().any(|(_, record)| is_scheduled(record))
    }

    /// Seconds since the last write to the records, or since the request to delete the object.
    fn idle_seconds(&self, deleted: Timestamp) -> f64 {
        let records = self.stored.records.iter();
        let last = records.filter_map(|(_, record)| times::last_write(record, self.now)).max();
        self.now.seconds_since(last.map_or(deleted, |last| last.max(deleted)))
    }

    fn is_overdue(&self, record: &Record) -> bool {
        let passed = record.delayed.map(|at| self.now.seconds_since(at));
        !is_done(record) && passed.is_some_and(|seconds| seconds > OVERDUE_AFTER)
    }

    /// Whether an object without a diff-base is one for the change handlers; callable filters count as matching.
    fn is_expected(&self) -> bool {
        let Some((registry, handlers)) = self.operator.handlers else { return self.is_blocked };
        let mut changing = handlers.changing.iter().filter_map(|index| registry.handlers.get(*index));
        changing.any(|handler| filters::metadata(handler, self.object) != FilterVerdict::No)
    }

    /// The time since when the object is in its state.
    fn since(&self, state: State, records: &[(String, Record)]) -> Option<Timestamp> {
        let own = || times::own_fields(self.object, self.operator.settings.persistence);
        match state {
            State::Malformed => None,
            State::Stuck | State::Deleting => self.deleted,
            State::Failed => {
                let failed = records.iter().filter(|(_, record)| record.failure);
                failed.filter_map(|(_, record)| record.stopped.or(record.started)).min()
            }
            State::Overdue | State::Retrying | State::Handling => {
                records.iter().filter_map(|(_, record)| record.started).min()
            }
            State::Changed => times::written_by_others(self.object, &own()),
            State::Handled => times::written(self.object, &own()),
            State::New | State::Foreign => self.object.creation_timestamp().and_then(Timestamp::parse),
        }
    }

    fn message(&self, state: State, attempted: Option<&Attempted>) -> Option<String> {
        match self.deleted {
            Some(deleted) if state == State::Stuck => {
                let minutes = (self.idle_seconds(deleted) / 60.0).floor();
                Some(format!("finalizer present; no writes for {minutes} min"))
            }
            _ => attempted.and_then(|attempted| attempted.record.message.clone()),
        }
    }
}

/// Whether the handler is not called again in this handling.
fn is_done(record: &Record) -> bool {
    record.success || record.failure
}

#[cfg(test)]
mod tests;
