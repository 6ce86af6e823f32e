//! The result of an explanation, and its JSON.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cause::Reason;
use crate::cycle::ChangeObstacle;
use crate::handler::filters::obstacle::{Filter, Obstacle};
use crate::handling::attempt::Limit;
use crate::json::diff::DiffItem;
use crate::json::path::FieldPath;
use crate::json::value::Value;
use crate::object::Object;
use crate::persistence::own_changes::has_field;
use crate::persistence::progress::Record;
use crate::time::Timestamp;

/// Whether a handler is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is called now. A daemon or a timer runs; a reconciler reconciles the object.
    #[default]
    Yes,
    /// It is not called.
    No,
    /// It is called later, without another change of the object.
    Later,
    /// It has finished in this handling.
    Done,
    /// It depends on functions that were not called.
    Ask,
}

/// Why a handler is not called: the first of these that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Code {
    /// It is for other resources.
    Selector,
    /// It is for another reason.
    Reason,
    /// The object is being deleted, or is gone.
    Deleted,
    /// It is a resume handler, and the operator has not just started.
    Initial,
    /// A label does not match.
    Label,
    /// An annotation does not match.
    Annotation,
    /// The field is absent, or has not changed.
    Field,
    /// The value of the field does not match.
    Value,
    /// The old value of the field does not match.
    Old,
    /// The new value of the field does not match.
    New,
    /// `when=` does not match, or a filter has raised an error.
    When,
    /// The lifecycle has selected other handlers for this cycle.
    Lifecycle,
    /// The same function with the same id is called for another declaration.
    Duplicate,
    /// It waits for its next attempt.
    Delay,
    /// It has succeeded; or, with the verdict `later`, the progress of the previous handling is removed first.
    Done,
    /// It has failed permanently.
    Failed,
    /// Its limit of time or attempts is exceeded.
    Limit,
    /// The finalizer is added or removed first; or it does not block the deletion.
    Finalizer,
}

/// The verdict about one handler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HandlerReport {
    /// The id of the handler.
    pub id: String,
    /// Its index in the registry.
    pub handler: usize,
    /// Whether it is called.
    pub verdict: Verdict,
    /// Why it is not called; none if it is.
    pub code: Option<Code>,
    /// The requirement and the actual value, for filters and limits.
    pub text: Option<String>,
    /// Its progress in this handling, if its verdict depends on it.
    pub record: Option<Box<Record>>,
}

/// A changed field, with the last client that has written it.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// The difference.
    pub item: DiffItem,
    /// The field manager, if one owns the field, with the time of its last write.
    pub manager: Option<(String, Option<Timestamp>)>,
}

/// The finalizer of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalizerReport {
    /// `added`, `kept`, `removed`, `absent`.
    pub verdict: &'static str,
    /// The ids of the handlers that block the deletion of the object.
    pub handlers: Vec<String>,
}

/// The decision about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The reason to act; none if no change handler can match the object.
    pub reason: Option<Reason>,
    /// The changed fields of an update.
    pub changed: Vec<Changed>,
    /// The handlers of the resource, in the order of their declaration.
    pub handlers: Vec<HandlerReport>,
    /// The finalizer of the operator.
    pub finalizer: FinalizerReport,
    /// The error of a function. The operator would handle the object later, and call nothing until then.
    pub error: Option<String>,
}

impl HandlerReport {
    pub(super) fn of(verdict: Verdict, code: Code) -> Self {
        Self { verdict, code: Some(code), ..Self::default() }
    }

    fn to_value(&self) -> Value {
        let record = self.record.as_deref();
        json!({
            "id": self.id,
            "handler": self.handler,
            "verdict": self.verdict,
            "code": self.code,
            "text": self.text,
            "attempts": record.map(|record| record.retries),
            "next": time(record.and_then(|record| record.delayed)),
            "stopped": time(record.and_then(|record| record.stopped)),
            "message": record.and_then(|record| record.message.clone()),
        })
    }
}

impl Changed {
    fn to_value(&self) -> Value {
        let DiffItem { op, path, old, new } = &self.item;
        let (manager, written) = self.manager.clone().unzip();
        json!({
            "operation": op.as_str(),
            "field": path.keys(),
            "old": old,
            "new": new,
            "manager": manager,
            "time": time(written.flatten()),
        })
    }
}

impl Explanation {
    /// The JSON for the command. Times are in ISO 8601.
    pub fn to_value(&self) -> Value {
        json!({
            "reason": self.reason.map(Reason::as_str),
            "changed": self.changed.iter().map(Changed::to_value).collect::<Vec<_>>(),
            "handlers": self.handlers.iter().map(HandlerReport::to_value).collect::<Vec<_>>(),
            "finalizer": {"verdict": self.finalizer.verdict, "handlers": self.finalizer.handlers},
            "error": self.error,
        })
    }
}

pub(super) fn of_filter(obstacle: Obstacle) -> HandlerReport {
    let code = match obstacle.filter {
        Filter::Label => Code::Label,
        Filter::Annotation => Code::Annotation,
        Filter::Field => Code::Field,
        Filter::Value => Code::Value,
        Filter::Old => Code::Old,
        Filter::New => Code::New,
        Filter::When => Code::When,
    };
    HandlerReport { text: Some(obstacle.text), ..HandlerReport::of(Verdict::No, code) }
}

pub(super) fn of_obstacle(obstacle: ChangeObstacle) -> HandlerReport {
    let with =
        |verdict, code, record| HandlerReport { record: Some(record), ..HandlerReport::of(verdict, code) };
    match obstacle {
        ChangeObstacle::Reason => HandlerReport::of(Verdict::No, Code::Reason),
        ChangeObstacle::Deleted => HandlerReport::of(Verdict::No, Code::Deleted),
        ChangeObstacle::Initial => HandlerReport::of(Verdict::No, Code::Initial),
        ChangeObstacle::Filter(obstacle) => of_filter(obstacle),
        ChangeObstacle::Done(record) => with(Verdict::Done, Code::Done, record),
        ChangeObstacle::Failed(record) => with(Verdict::Done, Code::Failed, record),
        ChangeObstacle::Delay(record) => with(Verdict::Later, Code::Delay, record),
        ChangeObstacle::FinalizerFirst => HandlerReport::of(Verdict::Later, Code::Finalizer),
        ChangeObstacle::Unblocked => HandlerReport::of(Verdict::No, Code::Finalizer),
        ChangeObstacle::Limit(limit, record) => {
            let text = match limit {
                Limit::Timeout => "its timeout has passed",
                Limit::Retries => "its retries are exhausted",
            };
            let report = with(Verdict::No, Code::Limit, record);
            HandlerReport { text: Some(text.to_owned()), ..report }
        }
    }
}

/// The changed fields, each with the field manager that has written it last.
pub(super) fn changed(diff: &[DiffItem], object: &Object) -> Vec<Changed> {
    let entries = object.field(&FieldPath::from_keys(["metadata", "managedFields"]));
    let entries = entries.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let written = |entry: &Value| entry.get("time").and_then(Value::as_str).and_then(Timestamp::parse);
    let manager = |path: &FieldPath| {
        let keys: Vec<&str> = path.keys().iter().map(|key| &**key).collect();
        let owners = entries.iter().filter(|entry| {
            entry.get("fieldsV1").is_some_and(|fields| !keys.is_empty() && has_field(fields, &keys))
        });
        let last = owners.max_by_key(|entry| written(entry))?;
        Some((last.get("manager")?.as_str()?.to_owned(), written(last)))
    };
    diff.iter().map(|item| Changed { item: item.clone(), manager: manager(&item.path) }).collect()
}

fn time(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}
