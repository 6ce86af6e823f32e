//! A model checker for one object, its API server and its operator: checks the invariants of handling in all orders of events.
//!
//! The model consists of the API server with its watch (`cluster.rs`), a driver of the core's worker of one object and of its writes
//! (`operator.rs`, `host.rs`, `writing.rs`), and an oracle that observes both and the calls of handlers (`oracle.rs`). Between any two effects, anything
//! may happen: changes by other clients (essence, labels, status, finalizers, also the operator's, removed annotations, the deletion, a
//! successor), late or merged watch events, interrupted watches, rejected writes, conflicts, responses that are lost or cannot be parsed,
//! requests that are sent twice, a resource that is not served for a while, crashes, restarts, lost leases.
//!
//! The invariants:
//!
//! * A finished handler is not called again for the same change, unless the operator crashes before the progress is on the
//!   object. Rejected writes and removed annotations lose no progress. The operator removes progress only with or after the
//!   diff-base of its handling.
//! * A handled object is never taken for a new one, unless another client has removed the diff-base, and either the operator
//!   crashed afterwards, or the object was also changed while it was idle, for the first time.
//! * No change is lost: when idle, the diff-base is the essence of the object. A diff-base is stored only after all handlers
//!   were called, and only if a handler has observed it.
//! * No handler misses a change: each call's old state is one that the handler observed before, from the creation to the last
//!   state (`observed_states.rs`).
//! * A deletion is blocked until all handlers that match the released state have finished and the daemons have exited; then it
//!   is released. Finalizers of other controllers are never modified.
//! * Our own writes are never taken for changes. The operator never waits for a watch event that cannot come. It releases no
//!   deletion twice.
//! * The operator becomes idle after a bounded number of writes, with growing delays between rejections. A relist afterwards
//!   causes no work.
//! * A handler is not called for changes made by handlers during the same handling, by patches or with other clients.
//! * Other clients are not blamed for our own changes.
//! * During a pause of the operator, running cycles end, and only deletions are handled. Rejected parts of patches are written
//!   later. No progress of sub-handlers is left on a handled object.
//! * A replica that does not lead writes nothing. Finalizers are not added to an object in deletion.
//! * A write changes no other object of the same name, undoes no change of another client, and has a bounded number of requests.
//! * After a crash, the operator continues from the essences in the progress on the object. If other progress was not written, or
//!   was removed by another client, it is unknown which handlers have observed them: a handler may be called once more, from such an
//!   essence to the present one. None misses a state, unless another client has removed the essence itself.
//!
//! Not explored:
//!
//! * Objects whose essence exceeds the limit; other operators that handle the object during a pause, or in another term.
//! * A status subresource that is removed while the status has progress. (Its removal is explored with progress in annotations.)
//! * Annotations that are removed between a pause and the first cycle after it: a cycle that runs on through the pause restores them
//!   or not, depending on what it was about to write.
//! * Restarts, pauses, and late watch events with failed writes, if handlers write with other clients. The operator recognises these
//!   writes by its memory or by the response to its own write; without both, they are changes that call update handlers, as always
//!   in Kopf 1.45.
//!
//! Assumptions: watch events arrive in order and before the consistency timeout. Patch functions that remain for a later cycle,
//! and the fact that only the release of a deletion is pending, are kept in memory: a crash may lose them.
//!
//! The explorer itself is tested: it must find each defect of `injected_defects.rs` when the model's operator has it.
//!
//! `make explore` runs longer searches, limited by `EXPLORE_STATES` and `EXPLORE_RUNS` (the number of random runs).
//! `EXPLORE_SEED` changes the random runs, and `EXPLORE_SCENARIO` selects the scenarios with this in their names.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(unreachable_pub, reason = "the modules belong to a test")]

mod cluster;
mod host;
mod injected_defects;
mod model;
mod observed_states;
mod operator;
mod oracle;
mod scenarios;
mod search;
mod writing;

use injected_defects::{CASES, Defect};
use model::Budget;
use scenarios::Scenario;
use search::{Report, explore_exhaustively, explore_randomly, finds};
use std::collections::HashSet;

/// Maximum delays of watch events, in seconds.
const LAGS: [f64; 2] = [0.0, 4.0];

/// All kinds of interference, to find the known defects.
const RICH: Budget = Budget {
    edits: 3,
    labels: 3,
    noise: 2,
    strips: 2,
    foreign_finalizers: 1,
    deletes: 1,
    relists: 2,
    rejections: 3,
    lost_replies: 1,
    crashes: 1,
    pauses: 1,
    refusals: 2,
    replacements: 1,
    conflicts: 2,
    outages: 1,
    unblocks: 1,
    losses: 1,
};

/// The same without some kinds: the more there are, the rarer are the orders that reveal a defect of two or three events.
const SIMPLER: Budget = Budget { conflicts: 0, outages: 0, unblocks: 0, losses: 0, ..RICH };

const NONE: Budget = Budget {
    edits: 0,
    labels: 0,
    noise: 0,
    strips: 0,
    foreign_finalizers: 0,
    deletes: 0,
    relists: 0,
    rejections: 0,
    lost_replies: 0,
    crashes: 0,
    pauses: 0,
    refusals: 0,
    replacements: 0,
    conflicts: 0,
    outages: 0,
    unblocks: 0,
    losses: 0,
};

/// Budgets small enough for an exhaustive search in seconds.
const SMALL: [Budget; 11] = [
    Budget { edits: 1, crashes: 1, ..NONE },
    Budget { deletes: 1, crashes: 1, ..NONE },
    Budget { edits: 1, rejections: 1, ..NONE },
    Budget { deletes: 1, rejections: 1, ..NONE },
    Budget { edits: 1, deletes: 1, relists: 1, ..NONE },
    Budget { noise: 1, deletes: 1, ..NONE },
    Budget { edits: 1, refusals: 1, ..NONE },
    Budget { edits: 1, conflicts: 1, ..NONE },
    Budget { edits: 1, outages: 1, ..NONE },
    Budget { deletes: 1, unblocks: 1, ..NONE },
    Budget { deletes: 1, losses: 1, ..NONE },
];

/// Budgets large enough for most races of two or three events.
const LARGE: [Budget; 8] = [
    Budget { labels: 3, deletes: 1, rejections: 1, ..NONE },
    Budget { edits: 2, deletes: 1, crashes: 2, rejections: 1, ..NONE },
    Budget { edits: 2, labels: 1, deletes: 1, relists: 1, lost_replies: 1, ..NONE },
    Budget { edits: 1, noise: 1, strips: 1, foreign_finalizers: 1, deletes: 1, crashes: 1, ..NONE },
    Budget { edits: 1, labels: 1, noise: 1, rejections: 2, lost_replies: 1, crashes: 1, ..NONE },
    Budget { edits: 2, deletes: 1, rejections: 1, refusals: 2, pauses: 1, ..NONE },
    Budget { edits: 1, deletes: 1, conflicts: 1, outages: 1, unblocks: 1, ..NONE },
    Budget { edits: 2, labels: 1, deletes: 1, lost_replies: 1, losses: 1, ..NONE },
];

fn accept(report: Report) {
    if let Some(found) = report.found {
        panic!("{}", found.text);
    }
}

// contract: engine 2.6
#[test]
fn exhaustive_runs_within_small_budgets_keep_the_invariants() {
    let scenarios = Scenario::all(None);
    let states: usize = std::thread::scope(|scope| {
        let runs = scenarios.iter().map(|scenario| scope.spawn(|| explore_within_small_budgets(scenario)));
        let runs: Vec<_> = runs.collect();
        runs.into_iter().map(|run| run.join().unwrap()).sum()
    });
    assert!(states > 20_000, "too few states: {states}");
}

/// The number of states.
fn explore_within_small_budgets(scenario: &Scenario) -> usize {
    let mut states = 0;
    for budget in SMALL {
        let report = explore_exhaustively(scenario, budget, 0.0, 100_000);
        states += report.states;
        let is_enough = report.complete && report.idle_states > 2;
        accept(report);
        assert!(is_enough, "too few idle states in the scenario \"{}\" with {budget:?}", scenario.name);
    }
    states
}

// contract: engine 2.3, engine 8.4, observed 4
#[test]
fn random_runs_keep_the_invariants() {
    for lag in LAGS {
        for (seed, scenario) in Scenario::all(None).iter().enumerate() {
            let report = explore_randomly(scenario, RICH, lag, seed as u64, 150);
            let is_enough = report.idle_states > 100;
            accept(report);
            assert!(is_enough, "too few idle states in the scenario \"{}\"", scenario.name);
        }
    }
}

// contract: engine 2.5, engine 7.7, observed 2
#[test]
fn each_known_defect_is_found() {
    let (mut known, mut missed) = (HashSet::new(), Vec::new());
    for case in CASES {
        assert!(known.insert(case.defect), "{:?} has two rows", case.defect);
        for (name, violation) in case.found {
            if !is_found(case.defect, name, violation) {
                let (defect, history) = (case.defect, case.history);
                missed.push(format!("{defect:?} ({history}) is not found in \"{name}\" as {violation:?}"));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert!(known.len() >= 47, "only {} defects are known", known.len());
}

/// Whether random runs with the defect violate the expected invariant; a defect may violate several.
fn is_found(defect: Defect, name: &str, violation: &str) -> bool {
    let lag = if matches!(defect, Defect::TrustsFailure | Defect::ForgetsHalf) { 4.0 } else { 0.0 };
    let scenario = Scenario::all(Some(defect)).into_iter().find(|scenario| scenario.name == name).unwrap();
    finds(&scenario, RICH, lag, violation, 20_000) || finds(&scenario, SIMPLER, lag, violation, 60_000)
}

fn limit_from_env(name: &str, default: usize) -> usize {
    text_from_env(name).parse().unwrap_or(default)
}

#[expect(clippy::disallowed_methods, reason = "the length and the part of the search are configurable")]
fn text_from_env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

#[test]
#[ignore = "takes minutes: make explore"]
#[expect(clippy::print_stdout, reason = "the numbers are the result")]
fn at_length() {
    let (states, runs) = (limit_from_env("EXPLORE_STATES", 80_000), limit_from_env("EXPLORE_RUNS", 80_000));
    let (seed, only) = (limit_from_env("EXPLORE_SEED", 1) as u64, text_from_env("EXPLORE_SCENARIO"));
    let (mut total, mut found) = (Report::default(), String::new());
    for lag in LAGS {
        for scenario in Scenario::all(None).into_iter().filter(|scenario| scenario.name.contains(&only)) {
            let reports = LARGE.map(|budget| explore_exhaustively(&scenario, budget, lag, states));
            let reports = reports.into_iter().chain([explore_randomly(&scenario, RICH, lag, seed, runs)]);
            let mut sum = Report { complete: true, ..Report::default() };
            for report in reports {
                sum.states += report.states;
                sum.acts += report.acts;
                sum.idle_states += report.idle_states;
                sum.complete &= report.complete || report.states == runs;
                report.found.iter().for_each(|finding| found.push_str(&finding.text));
            }
            println!(
                "{:>12}, watch events within {lag} s: {} states and runs, {} acts, {} idle states, complete: {}",
                scenario.name, sum.states, sum.acts, sum.idle_states, sum.complete,
            );
            total.states += sum.states;
            total.acts += sum.acts;
            total.idle_states += sum.idle_states;
        }
    }
    assert!(total.states > 0, "no scenario is called \"{only}\"");
    println!(
        "total: {} states and runs, {} acts, {} idle states",
        total.states, total.acts, total.idle_states
    );
    assert!(found.is_empty(), "{found}");
}

#[test]
#[ignore = "a tool for work on the defects"]
#[expect(clippy::print_stdout, reason = "the numbers are the result")]
fn worlds_that_find_each_defect() {
    let (only, selected) = (text_from_env("EXPLORE_SCENARIO"), text_from_env("EXPLORE_DEFECT"));
    for case in CASES.iter().filter(|case| format!("{:?}", case.defect).contains(&selected)) {
        println!("{:?}: {}", case.defect, case.history);
        for (lag, name) in
            LAGS.iter().flat_map(|lag| Scenario::all(None).into_iter().map(move |it| (*lag, it.name)))
        {
            if !name.contains(&only) {
                continue;
            }
            let scenario =
                Scenario::all(Some(case.defect)).into_iter().find(|scenario| scenario.name == name).unwrap();
            let report = explore_randomly(&scenario, RICH, lag, 7, 20_000);
            if let Some(found) = report.found {
                println!(
                    "  {lag} {name}: {} ({} runs, {} acts)",
                    found.violation,
                    report.states,
                    found.acts.len()
                );
            }
        }
    }
}
