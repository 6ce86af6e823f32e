//! The index functions to call for an object, and the memory of their errors.
//!
//! Python keeps the values. The rules are here: the functions to call now, the indices that drop the object without a call, and
//! the exclusion of a function after its error. Nothing of this is persisted. A retry does not wake the object up: it happens
//! with the next event.

use std::sync::Arc;

use crate::cause::EventType;
use crate::handler::Handler;
use crate::handler::filters::{FilterVerdict, on_object};
use crate::handler::label::label;
use crate::handler::registry::{Registry, ResourceHandlers};
use crate::handling::attempt::{Attempt, Outcome};
use crate::object::Object;
use crate::settings::Settings;
use crate::time::Timestamp;

/// One call of an index function.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexerCall {
    /// Whether its callable filters are evaluated first. If they do not match, the function is not called.
    pub guarded: bool,
    /// The attempt of the function, with its limits.
    pub attempt: Attempt,
}

/// One pass of the index functions over one state of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexPass {
    /// The functions to call, in this order.
    pub calls: Vec<IndexerCall>,
    /// The functions whose indices drop the object, unless another function with the same id is called.
    pub excluded: Vec<usize>,
}

/// The state of the indexing of one object, in memory only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Indexing {
    /// The failed functions, by their ids.
    failures: Vec<Failure>,
    /// Whether the indices may contain values of the object.
    present: bool,
    /// Whether the last pass was not completed: the indices do not reflect the current state of the object.
    broken: bool,
}

/// The retry state of a failed function.
#[derive(Clone, Debug, PartialEq)]
struct Failure {
    id: Arc<str>,
    started: Timestamp,
    retries: u64,
    /// The time from which it may be retried; none if it is never retried.
    until: Option<Timestamp>,
}

impl Indexing {
    /// The pass for this state of the object; none if it would not change the indices.
    pub fn pass(
        &self,
        event: EventType,
        object: &Object,
        resource_handlers: &ResourceHandlers,
        config: (&Registry, &Settings),
        now: Timestamp,
    ) -> Option<IndexPass> {
        if event == EventType::Deleted {
            let exclude_all = IndexPass { calls: vec![], excluded: resource_handlers.indexing.clone() };
            return self.present.then_some(exclude_all);
        }
        let mut pass = IndexPass::default();
        let (Registry { handlers }, settings) = config;
        for &index in &resource_handlers.indexing {
            let Some(handler) = handlers.get(index) else { continue };
            // A function is called once per id. A guarded call may turn out to be skipped, so it does not count.
            let is_same = |call: &IndexerCall| {
                let called = handlers.get(call.attempt.handler);
                !call.guarded && called.is_some_and(|one| one.key == handler.key && one.id == handler.id)
            };
            if pass.calls.iter().any(is_same) {
                continue;
            }
            match on_object(handler, object) {
                verdict if verdict == FilterVerdict::No || !self.is_due(handler, now) => {
                    pass.excluded.push(index);
                }
                verdict => {
                    let attempt = self.attempt(index, handler, settings, now);
                    pass.calls.push(IndexerCall { guarded: verdict == FilterVerdict::Ask, attempt });
                }
            }
        }
        // An object that is in no index cannot be dropped from one.
        (self.present || !pass.calls.is_empty()).then_some(pass)
    }

    /// Whether the last pass was not completed, so that even an unchanged state is indexed again.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Records the outcomes of the calls, in their order; none for the calls whose filters do not match.
    pub fn record_outcomes(&mut self, pass: &IndexPass, outcomes: &[Option<Outcome>], registry: &Registry) {
        self.broken = false;
        self.present = false;
        for (call, outcome) in pass.calls.iter().zip(outcomes) {
            let Some(handler) = registry.handlers.get(call.attempt.handler) else { continue };
            let Some(outcome) = outcome else { continue };
            self.failures.retain(|failure| failure.id != handler.id);
            if outcome.failed {
                self.failures.push(Failure {
                    id: Arc::clone(&handler.id),
                    started: call.attempt.started,
                    retries: call.attempt.retry.saturating_add(1),
                    until: (!outcome.final_).then(|| outcome.at.plus(outcome.delay.unwrap_or(0.0))),
                });
            } else {
                // The function may have returned `None`. Only Python knows, and it makes no difference here.
                self.present = true;
            }
        }
    }

    /// Records that the pass was not completed, because a filter raised an error. The indices are unchanged.
    pub fn fail(&mut self) {
        self.broken = true;
    }

    /// Whether the function may be called now, regarding its earlier errors.
    fn is_due(&self, handler: &Handler, now: Timestamp) -> bool {
        self.failure(handler).is_none_or(|failure| failure.until.is_some_and(|until| until <= now))
    }

    fn failure(&self, handler: &Handler) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.id == handler.id)
    }

    fn attempt(&self, index: usize, handler: &Handler, settings: &Settings, now: Timestamp) -> Attempt {
        let failure = self.failure(handler);
        Attempt {
            handler: index,
            label: label(handler),
            errors: handler.errors_mode(),
            timeout: handler.timeout,
            retries: handler.retries,
            backoff: handler.backoff.or(Some(settings.execution.default_backoff)),
            started: failure.map_or(now, |failure| failure.started),
            retry: failure.map_or(0, |failure| failure.retries),
        }
    }
}

#[cfg(test)]
mod tests;
