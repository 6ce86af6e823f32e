//! A model checker for the slot of one object: checks its laws in all orders of events, index gates, backlogs, hand-overs, pauses,
//! lost leases, removals and panics.
//!
//! The model consists of a cluster with one object (`model.rs`), a driver of the core's slots that behaves as the engine's
//! dispatchers (`dispatcher.rs`, `driver.rs`), and an oracle (`oracle.rs`). There are two dispatchers: the second one takes over
//! when the object's resource gets another version. Cycles are abstract: they end with a decision, a delay, an error, or a panic.
//!
//! The laws:
//!
//! * At most one cycle of the object is in progress, in both dispatchers together, and it has one holder.
//! * Nothing queued is lost: when idle, the latest state of the object is handled. A removed object has no slot.
//! * The host is notified once of the end of each object that had a slot, and never while the slot is in use.
//! * While the index gate is closed, no cycle starts; when it opens, all waiting objects are handled.
//! * During a pause, cycles start only for deletions; while the replica does not lead, none starts, and indices follow the cluster.
//! * The bytes of the backlog are those of the parked objects. The work ends after a bounded number of steps.
//!
//! The explorer itself is tested: it must find each defect of `injected_defects.rs` when the model's driver has it.
//!
//! `make explore` runs longer searches, limited by `EXPLORE_STATES` and `EXPLORE_RUNS` (the number of random runs). `EXPLORE_SEED`
//! changes the random runs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(unreachable_pub, reason = "the modules belong to a test")]

mod dispatcher;
mod driver;
mod injected_defects;
mod model;
mod oracle;
mod scenario;
mod search;

use injected_defects::CASES;
use scenario::{Budget, Scenario};
use search::{explore_exhaustively, explore_randomly};

/// Budgets small enough for an exhaustive search in seconds.
const SMALL: [Budget; 6] = [
    Budget { changes: 1, losses: 1, deletions: 1, ..Budget::NONE },
    Budget { changes: 1, hides: 1, interruptions: 1, panics: 1, ..Budget::NONE },
    Budget { changes: 1, hand_overs: 1, hides: 1, ..Budget::NONE },
    Budget { changes: 1, pauses: 1, fills: 1, ..Budget::NONE },
    Budget { changes: 1, deletions: 1, hand_overs: 1, panics: 1, ..Budget::NONE },
    Budget { changes: 2, fills: 1, ends: 1, failures: 1, ..Budget::NONE },
];

/// Budgets large enough for most races of three events.
const LARGE: [Budget; 4] = [
    Budget { changes: 2, deletions: 1, losses: 1, panics: 1, ..Budget::NONE },
    Budget { changes: 2, pauses: 1, losses: 1, fills: 1, ..Budget::NONE },
    Budget { changes: 2, deletions: 1, hand_overs: 1, failures: 1, ..Budget::NONE },
    Budget { changes: 2, hides: 1, interruptions: 1, hand_overs: 1, ends: 1, ..Budget::NONE },
];

const RICH: Budget = Budget {
    changes: 3,
    deletions: 1,
    hides: 2,
    interruptions: 2,
    pauses: 2,
    losses: 1,
    hand_overs: 1,
    fills: 2,
    panics: 2,
    failures: 2,
    ends: 1,
};

#[test]
fn exhaustive_runs_keep_the_laws() {
    let mut states = 0;
    for scenario in Scenario::all(None) {
        for budget in SMALL {
            let report = explore_exhaustively(&scenario, budget, 60_000);
            if let Some(found) = report.found {
                panic!("{scenario:?}: {found}");
            }
            assert!(report.idle_states > 2, "too few idle states with {budget:?}");
            states += report.states;
        }
    }
    assert!(states > 5_000, "too few states: {states}");
}

#[test]
fn random_runs_keep_the_laws() {
    for (seed, scenario) in Scenario::all(None).iter().enumerate() {
        let report = explore_randomly(scenario, RICH, seed as u64, 3_000, "");
        if let Some(found) = report.found {
            panic!("{scenario:?}: {found}");
        }
        assert!(report.idle_states > 1_000, "too few idle states");
    }
}

#[test]
fn each_known_defect_is_found() {
    let mut missed = Vec::new();
    for (defect, history, violation) in CASES {
        let is_found = Scenario::all(Some(*defect))
            .iter()
            .any(|scenario| explore_randomly(scenario, RICH, 0, 20_000, violation).found.is_some());
        if !is_found {
            missed.push(format!("{defect:?} ({history}) is not found as {violation:?}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert!(CASES.len() >= 12, "only {} defects are known", CASES.len());
}

#[test]
#[ignore = "takes minutes: make explore"]
#[expect(clippy::print_stdout, reason = "the numbers are the result")]
fn at_length() {
    let (states, runs) = (number_from_env("EXPLORE_STATES", 80_000), number_from_env("EXPLORE_RUNS", 80_000));
    let seed = number_from_env("EXPLORE_SEED", 1) as u64;
    for (number, scenario) in Scenario::all(None).iter().enumerate() {
        let reports = LARGE.map(|budget| explore_exhaustively(scenario, budget, states));
        for report in reports.into_iter().chain([explore_randomly(scenario, RICH, seed, runs, "")]) {
            if let Some(found) = report.found {
                panic!("{scenario:?}: {found}");
            }
            println!(
                "scenario {number}: {} states or runs, {} idle states",
                report.states, report.idle_states
            );
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the length of the search is configurable")]
fn number_from_env(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
