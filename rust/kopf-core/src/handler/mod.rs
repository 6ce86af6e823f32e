//! What an author declared, as data.
//!
//! Owns the shape in which handlers cross from Python (dictionaries). Functions and callable filters stay in Python;
//! here is only the fact that there is one. Nothing in this file decides whether a handler runs.

pub mod filters;
pub mod label;
pub mod label_selector;
pub mod lifecycle;
pub mod projection;
pub mod registry;
pub mod selection;

use crate::cause::Reason;
use crate::json::path::FieldPath;
use crate::json::value::Value;
use crate::resource::Selector;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// One declared handler. Its index in the registry is its name inside the core; its `id` is its name on the objects.
#[derive(Clone, Debug, Deserialize)]
pub struct Handler {
    /// What its progress and results are stored under.
    pub id: Arc<str>,
    /// Identity of the function: one function is called once per cycle for one id.
    #[serde(default)]
    pub key: u64,
    /// Which resources it is for; none means any (sub-handlers).
    #[serde(default)]
    pub selector: Option<Selector>,
    /// What the labels must be.
    #[serde(default)]
    pub labels: Vec<(String, MetaFilter)>,
    /// What the annotations must be.
    #[serde(default)]
    pub annotations: Vec<(String, MetaFilter)>,
    /// Whether there is a `when=` callback.
    #[serde(default)]
    pub when: bool,
    /// The field that it is about.
    #[serde(default)]
    pub field: Option<FieldPath>,
    /// What the field must be.
    #[serde(default)]
    pub value: ValueFilter,
    /// Whether the metadata of objects is all it needs, as declared.
    #[serde(default)]
    pub metadata_only: bool,
    /// What arbitrary exceptions mean.
    #[serde(default)]
    pub errors: Option<ErrorsMode>,
    /// Seconds since the first selection after which it is given up.
    #[serde(default)]
    pub timeout: Option<f64>,
    /// How many attempts it gets.
    #[serde(default)]
    pub retries: Option<u64>,
    /// Seconds between the attempts after arbitrary exceptions.
    #[serde(default)]
    pub backoff: Option<f64>,
    /// What it handles, with what is specific to that.
    #[serde(flatten)]
    pub kind: Kind,
}

/// What a handler handles. In the dictionary, the tag `kind` and the fields stand beside the handler's other ones.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// `on.event`: every event, nothing remembered.
    Watching,
    /// `on.create`, `on.update`, `on.delete`, `on.resume`, `on.field`, and sub-handlers.
    Changing(Changing),
    /// `index`.
    Indexing,
    /// `daemon`.
    Daemon(Daemon),
    /// `timer`.
    Timer(Timer),
    /// `on.validate`, `on.mutate`.
    Webhook(Webhook),
    /// `on.startup`, `on.cleanup`, `on.login`, `on.probe`.
    Activity {
        /// Which one.
        activity: String,
    },
}

/// What is specific to handlers of changes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Changing {
    /// For this reason only; none means any.
    pub reason: Option<Reason>,
    /// A resume handler: only for objects that were there before the operator.
    pub initial: bool,
    /// A resume handler that is also for objects being deleted.
    pub deleted: bool,
    /// Its deletion must be held until it is done.
    pub requires_finalizer: bool,
    /// Only when the field differs. Without a field it means nothing.
    pub field_needs_change: Option<bool>,
    /// What the field must have been.
    pub old: ValueFilter,
    /// What the field must have become.
    pub new: ValueFilter,
}

/// What is specific to daemons.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Daemon {
    /// Seconds before the first run; a callable one is asked in Python.
    pub initial_delay: Option<f64>,
    /// Whether the initial delay is a callback.
    pub initial_delay_callable: bool,
    /// Seconds between asking it to stop and cancelling it.
    pub cancellation_backoff: Option<f64>,
    /// Seconds after cancelling until it is left alone.
    pub cancellation_timeout: Option<f64>,
    /// Seconds between looks at whether it has stopped.
    pub cancellation_polling: Option<f64>,
}

/// What is specific to timers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Timer {
    /// Seconds before the first run; a callable one is asked in Python.
    pub initial_delay: Option<f64>,
    /// Whether the initial delay is a callback.
    pub initial_delay_callable: bool,
    /// Seconds between the runs.
    pub interval: Option<f64>,
    /// Whether the interval counts from start to start.
    pub sharp: Option<bool>,
    /// Seconds without changes of the object before it runs.
    pub idle: Option<f64>,
}

/// What is specific to admission handlers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Webhook {
    /// `validating` or `mutating`.
    pub reason: Option<String>,
    /// For these operations.
    pub operations: Option<Vec<String>>,
    /// For this subresource; `*` is any, none is the main body.
    pub subresource: Option<String>,
    /// Kept if the server may go on without an answer.
    pub persistent: Option<bool>,
    /// Whether it has side effects.
    pub side_effects: Option<bool>,
    /// Whether its absence is no obstacle.
    pub ignore_failures: Option<bool>,
}

/// What an exception means that is neither temporary nor permanent by its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorsMode {
    /// Logged, and taken for a success.
    Ignored,
    /// Tried again after the back-off.
    Temporary,
    /// The end of this handler.
    Permanent,
}

/// What a label or an annotation must be.
#[derive(Clone, Debug, PartialEq)]
pub enum MetaFilter {
    /// There, whatever it says.
    Present,
    /// Not there.
    Absent,
    /// As a callback in Python says.
    Callable,
    /// Equal to this.
    Equal(Value),
}

/// What a field must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ValueFilter {
    /// Nothing was demanded.
    #[default]
    Any,
    /// There, whatever it says.
    Present,
    /// Not there.
    Absent,
    /// As a callback in Python says.
    Callable,
    /// Equal to this.
    Equal(Value),
}

impl Handler {
    /// What is specific to handlers of changes, if it is one.
    pub fn changing(&self) -> Option<&Changing> {
        match &self.kind {
            Kind::Changing(changing) => Some(changing),
            _ => None,
        }
    }

    /// How its kind is called in logs.
    pub fn title(&self) -> &'static str {
        match self.kind {
            Kind::Watching | Kind::Changing(_) => "Handler",
            Kind::Indexing => "Indexer",
            Kind::Daemon(_) => "Daemon",
            Kind::Timer(_) => "Timer",
            Kind::Webhook(_) => "Webhook",
            Kind::Activity { .. } => "Activity",
        }
    }

    /// What arbitrary exceptions mean for it: as declared, else as is usual for its kind.
    pub fn errors_mode(&self) -> ErrorsMode {
        if let Some(declared) = self.errors {
            return declared;
        }
        match self.kind {
            Kind::Watching | Kind::Indexing => ErrorsMode::Ignored,
            Kind::Webhook(_) => ErrorsMode::Permanent,
            Kind::Changing(_) | Kind::Daemon(_) | Kind::Timer(_) | Kind::Activity { .. } => {
                ErrorsMode::Temporary
            }
        }
    }
}

/// The JSON form of one filter: `{"present": true}`, `{"absent": true}`, `{"callable": true}`, `{"equal": v}`.
enum FilterRepr {
    Present,
    Absent,
    Callable,
    Equal(Value),
}

fn demand<E: serde::de::Error>(written: Value) -> Result<FilterRepr, E> {
    let Value::Object(mut map) = written else {
        return Err(E::custom("a filter must be a dictionary"));
    };
    if let Some(value) = map.remove("equal") {
        return Ok(FilterRepr::Equal(value));
    }
    if map.contains_key("present") {
        return Ok(FilterRepr::Present);
    }
    if map.contains_key("absent") {
        return Ok(FilterRepr::Absent);
    }
    if map.contains_key("callable") {
        return Ok(FilterRepr::Callable);
    }
    Err(E::custom("a filter must be one of: present, absent, callable, equal"))
}

impl<'de> Deserialize<'de> for MetaFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match demand::<D::Error>(Value::deserialize(deserializer)?)? {
            FilterRepr::Present => Self::Present,
            FilterRepr::Absent => Self::Absent,
            FilterRepr::Callable => Self::Callable,
            FilterRepr::Equal(Value::Null) => return Err(D::Error::custom("a label cannot be null")),
            FilterRepr::Equal(value) => Self::Equal(value),
        })
    }
}

impl<'de> Deserialize<'de> for ValueFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Value::deserialize(deserializer)?;
        if written.is_null() {
            return Ok(Self::Any);
        }
        Ok(match demand::<D::Error>(written)? {
            FilterRepr::Present => Self::Present,
            FilterRepr::Absent => Self::Absent,
            FilterRepr::Callable => Self::Callable,
            FilterRepr::Equal(value) => Self::Equal(value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_handler_comes_as_one_flat_dictionary() {
        let handler: Handler = serde_json::from_value(json!({
            "id": "f/spec.x", "key": 7, "kind": "changing", "reason": "update", "field": ["spec", "x"],
            "labels": [["a", {"present": true}], ["b", {"equal": "c"}]], "field_needs_change": true,
            "value": null, "old": {"equal": null}, "errors": "permanent", "timeout": 5, "retries": 3,
        }))
        .unwrap();
        let changing = handler.changing().unwrap();
        assert_eq!(changing.reason, Some(Reason::Update));
        assert_eq!(changing.old, ValueFilter::Equal(Value::Null));
        assert_eq!(handler.value, ValueFilter::Any);
        assert_eq!(handler.labels[0].1, MetaFilter::Present);
        assert_eq!(handler.timeout, Some(5.0));
        assert_eq!(handler.errors_mode(), ErrorsMode::Permanent);
    }

    #[test]
    fn usual_errors_modes_depend_on_the_kind() {
        let of =
            |kind: &str| -> Handler { serde_json::from_value(json!({"id": "h", "kind": kind})).unwrap() };
        assert_eq!(of("watching").errors_mode(), ErrorsMode::Ignored);
        assert_eq!(of("indexing").errors_mode(), ErrorsMode::Ignored);
        assert_eq!(of("webhook").errors_mode(), ErrorsMode::Permanent);
        assert_eq!(of("changing").errors_mode(), ErrorsMode::Temporary);
        assert_eq!(of("timer").title(), "Timer");
    }

    #[test]
    fn unknown_filters_are_refused() {
        assert!(serde_json::from_value::<ValueFilter>(json!({"presnt": true})).is_err());
        assert!(serde_json::from_value::<MetaFilter>(json!("x")).is_err());
    }
}
