//! The spans of the work on objects, for traces.
//!
//! A span has the object; the spans of requests are inside, and those of calls of handlers. While traces are off, a span is empty,
//! and its fields are not evaluated.

use kopf_core::handling::cause_id::Handling;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use tracing::{Span, field};

use crate::host::{CycleId, RunId};

/// Starts the span of a pass of index functions, outside of any cycle of the object.
pub fn indexing_span(cycle: CycleId, resource: &Resource, object: &Object) -> Span {
    tracing::debug_span!(
        "indexing",
        cycle,
        %resource,
        namespace = object.namespace().unwrap_or_default(),
        object = object.name().unwrap_or_default(),
    )
}

/// Starts the span of a call of a daemon or a timer.
pub fn daemon_span(run: RunId, resource: &Resource, object: &Object) -> Span {
    tracing::debug_span!(
        "daemon",
        run,
        %resource,
        namespace = object.namespace().unwrap_or_default(),
        object = object.name().unwrap_or_default(),
    )
}

/// Starts the span of a call of a reconciler, with its writes.
pub fn reconciliation_span(run: RunId, handler: &str, resource: &Resource, object: &Object) -> Span {
    tracing::debug_span!(
        "reconciliation",
        run,
        handler,
        %resource,
        namespace = object.namespace().unwrap_or_default(),
        object = object.name().unwrap_or_default(),
    )
}

/// Starts the span of a write.
pub fn write_span(resource: &Resource, object: &Object, handling: Option<Handling>) -> Span {
    let span = tracing::debug_span!(
        "write",
        %resource,
        namespace = object.namespace().unwrap_or_default(),
        object = object.name().unwrap_or_default(),
        reason = field::Empty,
        cause = field::Empty,
    );
    if let Some(handling) = handling {
        record_cause(&span, handling, object);
    }
    span
}

/// Adds the reason and the id of the cause, which is the one of log lines.
pub fn record_cause(span: &Span, handling: Handling, object: &Object) {
    if !span.is_disabled() {
        span.record("reason", handling.reason.as_str());
        span.record("cause", handling.cause_id(object.uid().unwrap_or_default()));
    }
}
