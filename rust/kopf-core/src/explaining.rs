//! Why the handlers of a resource are called or not called for an object now, as people ask for it with `kopf explain`.
//!
//! It runs the cycle of the operator until that would call change handlers, with the state that an operator would read from the
//! object. A host evaluates the filters that are functions. Nothing is called or written.

mod report;
mod run;
#[cfg(test)]
mod tests;
mod verdicts;

use std::sync::Arc;

use crate::activation::FetchedState;
use crate::cause::EventType;
use crate::cycle::OperatorConfig;
use crate::handler::filters::obstacle::Obstacle;
use crate::handler::registry::ResourceHandlers;
use crate::handling::change::Change;
use crate::json::path::FieldPath;
use crate::object::Object;
use crate::persistence::progress::Record;
use crate::time::Timestamp;

pub use report::{Changed, Code, Explanation, FinalizerReport, HandlerReport, Verdict};

/// The kind of the handlers whose filters are evaluated: it determines the arguments of the functions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Question<'q> {
    /// Event handlers.
    Event,
    /// Index functions.
    Index,
    /// Daemons and timers.
    Daemon,
    /// Reconcilers.
    Reconciler,
    /// Change handlers.
    Change(&'q Arc<Change>),
}

/// The result of the filters of one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All filters match.
    Matches,
    /// A filter does not match.
    Mismatch {
        /// The filter with its result.
        obstacle: Obstacle,
        /// Whether all filters match except those for the old and the new value.
        prematch: bool,
    },
    /// The function was not called. The handler is treated as a matching one.
    Unasked,
    /// The function has raised this error.
    Raised(String),
}

/// The host of the handlers: it calls their functions.
pub trait Host {
    /// Evaluates the filters of these handlers.
    fn filter(&mut self, object: &Arc<Object>, question: Question<'_>, handlers: &[usize]) -> Vec<Answer>;

    /// Calls the custom lifecycle for these handlers, each with the number of its attempts, and with the records of progress. An
    /// error is its text.
    ///
    /// # Errors
    /// If the lifecycle raises one.
    fn select(
        &mut self,
        object: &Arc<Object>,
        change: Option<&Arc<Change>>,
        handlers: &[(usize, u64)],
        records: &[(Arc<str>, Record)],
    ) -> Result<Vec<usize>, String>;

    /// The state of the object in custom storages: its essences, with these fields, and the progress of these handlers. An error
    /// is its text.
    ///
    /// # Errors
    /// If a storage raises one.
    fn fetch(
        &mut self,
        object: &Arc<Object>,
        ids: &[Arc<str>],
        extra_fields: &[FieldPath],
    ) -> Result<FetchedState, String>;
}

/// The object, and the event that the operator would receive.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The object.
    pub object: Arc<Object>,
    /// The type of the event. `Listed`: the operator has just started.
    pub event: EventType,
    /// The current time.
    pub now: Timestamp,
}

/// Explains the decision about an object.
pub fn explain(
    subject: &Subject,
    handlers: &Arc<ResourceHandlers>,
    config: &Arc<OperatorConfig>,
    host: &mut dyn Host,
) -> Explanation {
    let mut run = run::Run::new(subject, handlers, config, host);
    run.execute();
    run.into_explanation()
}
