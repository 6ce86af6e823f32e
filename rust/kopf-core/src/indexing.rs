//! Which index functions are called for an object, and what is remembered of how they ended.
//!
//! The values themselves live where the functions do. Here are only the rules: who is called now, whose values of the object
//! are dropped without a call, who is left out after an error, and until when. Nothing of this is persisted, and nobody is
//! woken up by it: a function that is to be tried again is tried with the next event. Rules: contract/engine 10.

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
pub struct Call {
    /// Ask its callable filters first, and take a no for a mismatch.
    pub guarded: bool,
    /// Which one, and its limits.
    pub attempt: Attempt,
}

/// One pass of the index functions over one state of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexPass {
    /// These functions are called, in this order.
    pub calls: Vec<Call>,
    /// The object leaves the indices of these, unless another function of the same id is called.
    pub excluded: Vec<usize>,
}

/// What is remembered of an object between its rounds, in memory only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Indexing {
    /// Of those who have failed, by their ids.
    failures: Vec<Failure>,
    /// There may be values of the object in the indices.
    present: bool,
    /// The last round was not finished: the indices do not know the object as it is.
    broken: bool,
}

/// How far a failed function is.
#[derive(Clone, Debug, PartialEq)]
struct Failure {
    id: Arc<str>,
    started: Timestamp,
    retries: u64,
    /// When it may be tried again; none is never.
    until: Option<Timestamp>,
}

impl Indexing {
    /// What is to be done with this state of the object; nothing if the indices would not change.
    pub fn pass(
        &self,
        event: EventType,
        object: &Object,
        plan: &ResourceHandlers,
        rules: (&Registry, &Settings),
        now: Timestamp,
    ) -> Option<IndexPass> {
        if event == EventType::Deleted {
            let everywhere = IndexPass { calls: vec![], excluded: plan.indexing.clone() };
            return self.present.then_some(everywhere);
        }
        let mut round = IndexPass::default();
        let (Registry { handlers }, settings) = rules;
        for &index in &plan.indexing {
            let Some(handler) = handlers.get(index) else { continue };
            // One function is called once for one id; whether a guarded one is called is not known yet.
            let is_same = |call: &Call| {
                let called = handlers.get(call.attempt.handler);
                !call.guarded && called.is_some_and(|one| one.key == handler.key && one.id == handler.id)
            };
            if round.calls.iter().any(is_same) {
                continue;
            }
            match on_object(handler, object) {
                verdict if verdict == FilterVerdict::No || !self.is_due(handler, now) => {
                    round.excluded.push(index);
                }
                verdict => {
                    let attempt = self.attempt(index, handler, settings, now);
                    round.calls.push(Call { guarded: verdict == FilterVerdict::Ask, attempt });
                }
            }
        }
        // What is not in the indices need not leave them.
        (self.present || !round.calls.is_empty()).then_some(round)
    }

    /// Whether the last round was not finished, so that even a known state is to be indexed.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Takes what came of the calls, in their order; none for those whose filters said no.
    pub fn record_outcomes(&mut self, round: &IndexPass, outcomes: &[Option<Outcome>], registry: &Registry) {
        self.broken = false;
        self.present = false;
        for (call, outcome) in round.calls.iter().zip(outcomes) {
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
                // Maybe it was nothing that it returned; only Python knows, and it does not matter.
                self.present = true;
            }
        }
    }

    /// The round came to no end: a filter raised something. The indices are as they were.
    pub fn fail(&mut self) {
        self.broken = true;
    }

    /// Whether it may be called, if it has ever failed.
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
            backoff: handler.backoff.unwrap_or(settings.execution.default_backoff),
            started: failure.map_or(now, |failure| failure.started),
            retry: failure.map_or(0, |failure| failure.retries),
        }
    }
}

#[cfg(test)]
mod tests;
