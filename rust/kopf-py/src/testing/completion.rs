//! Completions as plain values, for assertions in Python.

use kopf_core::activation::{CommandResult, Completion};
use kopf_core::handling::attempt::Outcome;
use kopf_core::json::value::Value;
use serde_json::json;

/// The completion as a dict with its fields; each step is a dict with one key, the lowercase name of the result.
pub(super) fn to_value(completion: &Completion) -> Value {
    let Completion { steps, patch, fns, error, closed } = completion;
    let steps: Vec<Value> = steps.iter().map(step_to_value).collect();
    json!({"steps": steps, "patch": patch, "fns": fns, "error": error, "closed": closed})
}

fn step_to_value(step: &CommandResult) -> Value {
    match step {
        CommandResult::Indexed(outcomes) => {
            let outcomes = outcomes.iter().map(|outcome| outcome.as_ref().map(outcome_to_value));
            json!({"indexed": outcomes.collect::<Vec<_>>()})
        }
        CommandResult::Skipped => json!({"skipped": null}),
        CommandResult::Attempted(outcome) => json!({"attempted": outcome_to_value(outcome)}),
        CommandResult::Loaded(state) => json!({"loaded": {"old": state.old, "new": state.new}}),
        CommandResult::Matched(results) => {
            let results = results.iter().map(|result| [result.prematch, result.full]);
            json!({"matched": results.collect::<Vec<_>>()})
        }
        CommandResult::Picked(handlers) => json!({"picked": handlers}),
    }
}

fn outcome_to_value(outcome: &Outcome) -> Value {
    let Outcome { handler, at: _, final_, failed, delay, message, subrefs } = outcome;
    json!({"handler": handler, "final": final_, "failed": failed, "delay": delay, "message": message, "subrefs": subrefs})
}
