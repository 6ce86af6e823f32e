//! Searches of the model: exhaustive within a budget, or random.

use crate::model::Model;
use crate::scenario::{Act, Budget, Scenario};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The result of a search.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of distinct states, or of runs.
    pub states: usize,
    /// Number of idle states.
    pub idle_states: usize,
    /// The first violation, with the acts that lead to it.
    pub found: Option<String>,
}

/// Explores all states within the budget, up to `limit` states.
pub fn explore_exhaustively(scenario: &Scenario, budget: Budget, limit: usize) -> Report {
    let (mut report, mut seen) = (Report::default(), HashSet::new());
    let mut stack: Vec<(Vec<Act>, Model)> = vec![(vec![], Model::new(scenario, budget))];
    while let Some((acts, model)) = stack.pop() {
        if report.states >= limit || !seen.insert(digest(&model)) {
            continue;
        }
        report.states += 1;
        if let Some(violation) = judge(scenario, &model, &mut report) {
            report.found = Some(format!("{violation}: {acts:?}"));
            return report;
        }
        for act in model.choices() {
            let mut next = model.clone();
            next.act(scenario, act);
            let path = acts.iter().copied().chain([act]).collect();
            stack.push((path, next));
        }
    }
    report
}

/// Explores random runs, until one violates a law with this text.
pub fn explore_randomly(scenario: &Scenario, budget: Budget, seed: u64, runs: usize, text: &str) -> Report {
    let (mut report, mut random) = (Report::default(), Random(seed));
    for _ in 0..runs {
        let (mut model, mut acts) = (Model::new(scenario, budget), Vec::new());
        for _ in 0..random.below(40) {
            let own = model.own_choices();
            let choices = if random.below(2) > 0 && !own.is_empty() { own } else { model.choices() };
            if choices.is_empty() || model.oracle.violation.is_some() {
                break;
            }
            let act = choices[random.below(choices.len())];
            acts.push(act);
            model.act(scenario, act);
        }
        report.states += 1;
        if let Some(violation) = judge(scenario, &model, &mut report).filter(|found| found.contains(text)) {
            report.found = Some(format!("{violation}: {acts:?}"));
            break;
        }
    }
    report
}

/// Returns the violation of a law, here or after the driver has become idle.
fn judge(scenario: &Scenario, model: &Model, report: &mut Report) -> Option<String> {
    report.idle_states += usize::from(model.is_idle());
    let mut last = model.clone();
    last.settle(scenario);
    last.oracle.violation
}

fn digest(model: &Model) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{model:?}").hash(&mut hasher);
    hasher.finish()
}

/// A random number generator, the same on all platforms.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}
