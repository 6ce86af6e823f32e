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
