//! Searches of the model: exhaustive within a budget, or random; and the description of findings.

use crate::model::{Act, Budget, Model};
use crate::scenarios::Scenario;
use std::collections::HashSet;
use std::fmt::Write as _;

/// The result of a search.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of distinct states.
    pub states: usize,
    /// Number of executed acts.
    pub acts: usize,
    /// Number of idle states.
    pub idle_states: usize,
    /// Whether the search covered the whole budget.
    pub complete: bool,
    /// The first violation.
    pub found: Option<Finding>,
}

/// A violation, and the acts that lead to it.
#[derive(Debug)]
pub struct Finding {
    pub violation: String,
    pub acts: Vec<Act>,
    pub text: String,
}

/// Explores all states within the budget, up to `limit` states.
pub fn explore_exhaustively(scenario: &Scenario, budget: Budget, lag: f64, limit: usize) -> Report {
    let budget = scenario.within(budget, lag);
    let mut report = Report { complete: true, ..Report::default() };
    let mut seen = HashSet::new();
    let mut history: Vec<(usize, Option<Act>)> = vec![(0, None)];
    let mut stack = vec![(0, Model::new(scenario, budget, lag))];
    while let Some((position, model)) = stack.pop() {
        if !seen.insert(model.digest()) {
            continue;
        }
        report.states += 1;
        if report.states > limit {
            report.complete = false;
            break;
        }
        if let Some(violation) = judge(scenario, &model, &mut report) {
            let acts = path(&history, position);
            report.found = Some(minimize(scenario, budget, lag, &violation, acts));
            break;
        }
        for act in model.choices(scenario) {
            let mut next = model.clone();
            next.act(scenario, act);
            report.acts += 1;
            history.push((position, Some(act)));
            stack.push((history.len() - 1, next));
        }
    }
    report
}

/// Explores the given number of random runs, each within a random part of the budget.
pub fn explore_randomly(scenario: &Scenario, rich: Budget, lag: f64, seed: u64, runs: usize) -> Report {
    let mut report = Report::default();
    let mut random = Random(seed);
    for _ in 0..runs {
        let RandomRun { budget, acts, violation } = random_run(scenario, rich, lag, &mut random, &mut report);
        if let Some(violation) = violation {
            report.found = Some(minimize(scenario, budget, lag, &violation, acts));
            break;
        }
    }
    report
}

/// Whether one of the random runs violates an invariant with this text; other violations are ignored.
pub fn finds(scenario: &Scenario, rich: Budget, lag: f64, violation: &str, runs: usize) -> bool {
    let (mut report, mut random) = (Report::default(), Random(0));
    (0..runs).any(|_| {
        let run = random_run(scenario, rich, lag, &mut random, &mut report);
        run.violation.is_some_and(|found| found.contains(violation))
    })
}

/// One random run, and its violation, if any.
struct RandomRun {
    budget: Budget,
    acts: Vec<Act>,
    violation: Option<String>,
}

fn random_run(
    scenario: &Scenario,
    rich: Budget,
    lag: f64,
    random: &mut Random,
    report: &mut Report,
) -> RandomRun {
    let budget = scenario.within(rich.map(|most| random.up_to(most)), lag);
    let mut model = Model::new(scenario, budget, lag);
    let mut acts = Vec::new();
    for _ in 0..80 {
        // Mostly the operator continues; interference at each step would leave no progress.
        let own = model.own_choices(scenario);
        let choices = if random.below(4) > 0 && !own.is_empty() { own } else { model.choices(scenario) };
        if choices.is_empty() || model.oracle.violation.is_some() {
            break;
        }
        let act = choices[random.below(choices.len())];
        acts.push(act);
        model.act(scenario, act);
        report.acts += 1;
    }
    report.states += 1;
    let violation = judge(scenario, &model, report);
    RandomRun { budget, acts, violation }
}

/// Returns the violation of an invariant, here or after the operator has become idle.
fn judge(scenario: &Scenario, model: &Model, report: &mut Report) -> Option<String> {
    let mut last = model.clone();
    if last.oracle.violation.is_none() && last.is_idle() {
        report.idle_states += 1;
        last.check_idle(scenario);
    }
    if last.oracle.violation.is_none() {
        last.run_until_idle(scenario);
    }
    last.oracle.violation
}

fn path(history: &[(usize, Option<Act>)], position: usize) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut at = position;
    while let (before, Some(act)) = history[at] {
        acts.push(act);
        at = before;
    }
    acts.reverse();
    acts
}

/// Reduces a finding to as few acts as possible, and describes it act by act.
fn minimize(scenario: &Scenario, budget: Budget, lag: f64, violation: &str, mut acts: Vec<Act>) -> Finding {
    let mut violation = violation.to_owned();
    while let Some((same, fewer)) = shortened(&acts, |fewer| replay(scenario, budget, lag, fewer)) {
        (violation, acts) = (same, fewer);
    }
    let mut text = format!("In the scenario \"{}\": {violation}\n", scenario.name);
    let mut model = Model::new(scenario, budget, lag);
    for act in &acts {
        let before = model.cluster.latest.number;
        model.act(scenario, *act);
        let latest = &model.cluster.latest;
        let body = if latest.number == before { String::new() } else { format!(" -> {}", latest.body) };
        let _ = writeln!(text, "  {act:?}{body}");
    }
    let _ = writeln!(text, "then, until idle:");
    let _ = writeln!(text, "{}", model.end(scenario).join("\n"));
    Finding { violation, acts, text }
}

/// The acts without one or two of them, with the result of the replay, if it has one. Some acts are possible only together, such
/// as a crash and a restart.
fn shortened(acts: &[Act], replay: impl Fn(&[Act]) -> Option<String>) -> Option<(String, Vec<Act>)> {
    let positions = 0..acts.len();
    let pairs = positions.clone().flat_map(|one| (one + 1..acts.len()).map(move |other| (one, other)));
    positions.map(|one| (one, one)).chain(pairs).find_map(|(one, other)| {
        let kept = acts.iter().enumerate().filter(|(position, _)| ![one, other].contains(position));
        let fewer: Vec<Act> = kept.map(|(_, act)| *act).collect();
        Some((replay(&fewer)?, fewer))
    })
}

/// Executes the acts. Returns the violation, if any; none if an act is impossible.
fn replay(scenario: &Scenario, budget: Budget, lag: f64, acts: &[Act]) -> Option<String> {
    let mut model = Model::new(scenario, budget, lag);
    for act in acts {
        if !model.choices(scenario).contains(act) {
            return None;
        }
        model.act(scenario, *act);
    }
    judge(scenario, &model, &mut Report::default())
}

/// A random number generator, the same on all platforms.
struct Random(u64);

impl Random {
    fn up_to(&mut self, most: u8) -> u8 {
        u8::try_from(self.below(usize::from(most) + 1)).unwrap()
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}
