//! The declarations of handlers, as data.
//!
//! Handlers are passed from Python as dictionaries. Functions and callable filters stay in Python; here is only a flag for each
//! of them.

pub mod caching;
pub mod filters;
pub mod label;
pub mod label_selector;
pub mod lifecycle;
pub mod namespaces;
pub mod projection;
pub mod reconciling;
pub mod registry;
pub mod selection;

use crate::cause::Reason;
use crate::handler::caching::Caching;
use crate::handler::reconciling::Reconciling;
use crate::json::path::FieldPath;
use crate::json::value::Value;
use crate::resource::Selector;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// One declared handler. The core identifies it by its index in the registry, the persisted state by its `id`.
#[derive(Clone, Debug, Deserialize)]
pub struct Handler {
    /// The key of its progress and its results.
    pub id: Arc<str>,
    /// The identity of the function: per cycle, a function is called once for each id.
    #[serde(default)]
    pub key: u64,
    /// The selector of resources; none for any resource (sub-handlers).
    #[serde(default)]
    pub selector: Option<Selector>,
    /// The filters for labels.
    #[serde(default)]
    pub labels: Vec<(String, MetaFilter)>,
    /// The filters for annotations.
    #[serde(default)]
    pub annotations: Vec<(String, MetaFilter)>,
    /// Whether it has a `when=` callback.
    #[serde(default)]
    pub when: bool,
    /// The field that the handler is for.
    #[serde(default)]
    pub field: Option<FieldPath>,
    /// The filter for the value of the field.
    #[serde(default)]
    pub value: ValueFilter,
    /// Whether it is declared to need only the metadata of objects.
    #[serde(default)]
    pub metadata_only: bool,
    /// The error mode for arbitrary exceptions.
    #[serde(default)]
    pub errors: Option<ErrorsMode>,
    /// Seconds since the first selection after which the handler fails.
    #[serde(default)]
    pub timeout: Option<f64>,
    /// The maximum number of attempts.
    #[serde(default)]
    pub retries: Option<u64>,
    /// Seconds between the attempts after arbitrary exceptions.
    #[serde(default)]
    pub backoff: Option<f64>,
    /// The kind of the handler, with its specific options.
    #[serde(flatten)]
    pub kind: Kind,
}

/// The kind of a handler. The dictionary has the tag `kind` and these fields at its top level.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// `on.event`: called for every event, without persisted progress.
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
    /// `on.reconcile`.
    Reconciling(Box<Reconciling>),
    /// `kopf.cache`, which has no function.
    Caching(Box<Caching>),
    /// `on.startup`, `on.cleanup`, `on.login`, `on.probe`.
    Activity {
        /// The name of the activity.
        activity: String,
    },
}

/// The options of change handlers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Changing {
    /// The only reason that the handler is for; none for all reasons.
    pub reason: Option<Reason>,
    /// Whether it is a resume handler: only for objects that existed before the operator was started.
    pub initial: bool,
    /// Whether it is a resume handler that is also called for objects being deleted.
    pub deleted: bool,
    /// Whether Kopf's finalizer blocks the deletion of the object until the handler is finished.
    pub requires_finalizer: bool,
    /// Whether the field must differ. Without a field, it has no effect.
    pub field_needs_change: Option<bool>,
    /// The filter for the old value of the field.
    pub old: ValueFilter,
    /// The filter for the new value of the field.
    pub new: ValueFilter,
}

/// The options of daemons.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Daemon {
    /// Seconds before the first call, unless it is a callback.
    pub initial_delay: Option<f64>,
    /// Whether the initial delay is a callback, which the host calls.
    pub initial_delay_callable: bool,
    /// Seconds between the stop signal and the cancellation.
    pub cancellation_backoff: Option<f64>,
    /// Seconds between the cancellation and the abandonment.
    pub cancellation_timeout: Option<f64>,
    /// Seconds between the checks for its exit.
    pub cancellation_polling: Option<f64>,
}

/// The options of timers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Timer {
    /// Seconds before the first call, unless it is a callback.
    pub initial_delay: Option<f64>,
    /// Whether the initial delay is a callback, which the host calls.
    pub initial_delay_callable: bool,
    /// Seconds between the calls.
    pub interval: Option<f64>,
    /// Whether the interval is measured between starts, not from an end to a start.
    pub sharp: Option<bool>,
    /// Seconds without changes of the object before a call.
    pub idle: Option<f64>,
}

/// The options of admission handlers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Webhook {
    /// `validating` or `mutating`.
    pub reason: Option<String>,
    /// The operations that the handler is for; none for all.
    pub operations: Option<Vec<String>>,
    /// The subresource that the handler is for; `*` for any, none for the object itself.
    pub subresource: Option<String>,
    /// Whether the webhook stays configured after the operator exits.
    pub persistent: Option<bool>,
    /// Whether the handler has side effects.
    pub side_effects: Option<bool>,
    /// Whether the API server ignores failures to call the webhook.
    pub ignore_failures: Option<bool>,
}

/// The meaning of an exception that is neither `TemporaryError` nor `PermanentError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorsMode {
    /// The exception is logged, and the handler succeeds.
    Ignored,
    /// The handler is retried after the back-off.
    Temporary,
    /// The handler fails.
    Permanent,
}

/// The filter for a label or an annotation.
#[derive(Clone, Debug, PartialEq)]
pub enum MetaFilter {
    /// The key must be present, with any value.
    Present,
    /// The key must be absent.
    Absent,
    /// A callback in Python decides.
    Callable,
    /// The value must be equal to this.
    Equal(Value),
}

/// The filter for the value of a field.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ValueFilter {
    /// No value is required.
    #[default]
    Any,
    /// The field must be present, with any value.
    Present,
    /// The field must be absent.
    Absent,
    /// A callback in Python decides.
    Callable,
    /// The value must be equal to this.
    Equal(Value),
}

impl Handler {
    /// The options of a change handler; none for other handlers.
    pub fn changing(&self) -> Option<&Changing> {
        match &self.kind {
            Kind::Changing(changing) => Some(changing),
            _ => None,
        }
    }

    /// The options of a reconciler; none for other handlers.
    pub fn reconciling(&self) -> Option<&Reconciling> {
        match &self.kind {
            Kind::Reconciling(reconciling) => Some(reconciling),
            _ => None,
        }
    }

    /// The options of a cache; none for handlers.
    pub fn caching(&self) -> Option<&Caching> {
        match &self.kind {
            Kind::Caching(caching) => Some(caching),
            _ => None,
        }
    }

    /// The selectors of the resources whose events the handler needs: its own, and those of secondary objects.
    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        let related = self.reconciling().into_iter().flat_map(Reconciling::related);
        self.selector.iter().chain(related.map(|related| &related.selector))
    }

    /// The kind as it appears in logs.
    pub fn title(&self) -> &'static str {
        match self.kind {
            Kind::Watching | Kind::Changing(_) => "Handler",
            Kind::Indexing => "Indexer",
            Kind::Daemon(_) => "Daemon",
            Kind::Timer(_) => "Timer",
            Kind::Webhook(_) => "Webhook",
            Kind::Reconciling(_) => "Reconciler",
            Kind::Caching(_) => "Cache",
            Kind::Activity { .. } => "Activity",
        }
    }

    /// The error mode for arbitrary exceptions: the declared one, or the default of the kind.
    pub fn errors_mode(&self) -> ErrorsMode {
        if let Some(declared) = self.errors {
            return declared;
        }
        match self.kind {
            Kind::Watching | Kind::Indexing | Kind::Caching(_) => ErrorsMode::Ignored,
            Kind::Webhook(_) => ErrorsMode::Permanent,
            Kind::Changing(_)
            | Kind::Daemon(_)
            | Kind::Timer(_)
            | Kind::Reconciling(_)
            | Kind::Activity { .. } => ErrorsMode::Temporary,
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

fn parse_filter<E: serde::de::Error>(written: Value) -> Result<FilterRepr, E> {
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
        Ok(match parse_filter::<D::Error>(Value::deserialize(deserializer)?)? {
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
        Ok(match parse_filter::<D::Error>(written)? {
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
    fn a_handler_is_one_flat_dictionary() {
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

    // contract: api 2.2
    #[test]
    fn default_error_modes_depend_on_the_kind() {
        let of =
            |kind: &str| -> Handler { serde_json::from_value(json!({"id": "h", "kind": kind})).unwrap() };
        assert_eq!(of("watching").errors_mode(), ErrorsMode::Ignored);
        assert_eq!(of("indexing").errors_mode(), ErrorsMode::Ignored);
        assert_eq!(of("webhook").errors_mode(), ErrorsMode::Permanent);
        assert_eq!(of("changing").errors_mode(), ErrorsMode::Temporary);
        assert_eq!(of("timer").title(), "Timer");
    }

    #[test]
    fn unknown_filters_are_rejected() {
        assert!(serde_json::from_value::<ValueFilter>(json!({"presnt": true})).is_err());
        assert!(serde_json::from_value::<MetaFilter>(json!("x")).is_err());
    }
}
