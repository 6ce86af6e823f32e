//! Completions as plain values, for assertions in Python.

use kopf_core::activation::{CommandResult, Completion};
use kopf_core::handling::attempt::Outcome;
use kopf_core::json::value::Value;
use serde_json::json;

/// The completion as a dict with its fields; each result is a dict with one key, the lowercase name of the result.
pub(super) fn to_value(completion: &Completion) -> Value {
    let Completion { results, patch, fns, error, closed } = completion;
    let results: Vec<Value> = results.iter().map(result_to_value).collect();
    json!({"results": results, "patch": patch, "fns": fns, "error": error, "closed": closed})
}

fn result_to_value(result: &CommandResult) -> Value {
    match result {
        CommandResult::Indexed(outcomes) => {
            let outcomes = outcomes.iter().map(|outcome| outcome.as_ref().map(outcome_to_value));
            json!({"indexed": outcomes.collect::<Vec<_>>()})
        }
        CommandResult::Skipped => json!({"skipped": null}),
        CommandResult::Attempted(outcome) => json!({"attempted": outcome_to_value(outcome)}),
        CommandResult::Fetched(state) => json!({"fetched": {"old": state.old, "new": state.new}}),
        CommandResult::Filtered(results) => {
            let results = results.iter().map(|result| [result.prematch, result.full]);
            json!({"filtered": results.collect::<Vec<_>>()})
        }
        CommandResult::Selected(handlers) => json!({"selected": handlers}),
    }
}

fn outcome_to_value(outcome: &Outcome) -> Value {
    let Outcome { handler, at: _, final_, failed, delay, message, subrefs, is_exception: _ } = outcome;
    json!({"handler": handler, "final": final_, "failed": failed, "delay": delay, "message": message, "subrefs": subrefs})
}
