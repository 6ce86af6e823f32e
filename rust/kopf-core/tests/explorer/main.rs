//! Explores what can happen to one object, its server and its operator: the laws of the whole, in all orders of events.
//!
//! The model is the server with its stream (`cluster.rs`), the worker of one object around the real cycle (`operator.rs`),
//! and a witness that sees both and the calls of handlers (`laws.rs`). Between any two effects, anything may happen:
//! changes by others (essence, labels, noise, finalizers, stripped annotations, the deletion), news that are late or merged,
//! broken streams, refused writes, lost answers, crashes, restarts.
//!
//! The laws:
//!
//! * Nothing finished is called again for the same change, unless the operator dies before the object tells of it. Refused
//!   writes and stripped annotations lose nothing of what the operator knows.
//! * What was handled is never taken for new again; unless somebody has removed what tells so, and then the operator dies, or
//!   the object was changed as well, while nothing was going on with it, for the first time.
//! * No change is lost: at rest, what is kept as handled is the state of the object; nothing is kept as handled before all
//!   handlers were called for it, and not unless one of them has seen it.
//! * No handler misses a change: what it was shown, from the old state to the new one, joins what it was shown before, from
//!   the creation to the last state (`ledger.rs`).
//! * A deletion is held until all are done that want so in the very state that is let go, and daemons have stopped, and then
//!   let go; finalizers of others are left alone.
//! * Own writes are never taken for changes; none is awaited that will never be told; no deletion is let go twice.
//! * All comes to rest, after a bounded number of writes, with growing pauses between refusals; another look makes no work.
//!
//! * No handler is called for what handlers have written, in a sequence that goes on, by their patches or with clients of their own.
//! * Others are not blamed for what we have done.
//!
//! What is not explored: pauses of the operator, after which the object is believed; salvage of patches that are refused for
//! ever; storages of users; objects whose essence does not fit; sub-handlers.
//!
//! What is taken for granted: news come in their order and before the consistency timeout. Functions that were left for
//! later, and the knowledge that only the release of a deletion is left to do, live in memory: a crash may lose them.
//!
//! The explorer is explored too: each defect of `flaws.rs` is put into the model's operator, and must be found.
//!
//! `make explore` runs it at length: `EXPLORE_STATES` and `EXPLORE_LIVES` say how long.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(unreachable_pub, reason = "its modules are a test's")]

mod cluster;
mod flaws;
mod laws;
mod ledger;
mod model;
mod operator;
mod search;
mod worlds;
mod writing;

use flaws::{CASES, Flaw};
use model::Budget;
use search::{Report, breaks, exhaust, wander};
use std::collections::HashSet;
use worlds::World;

/// News come at once, or up to so many seconds later.
const LAGS: [f64; 2] = [0.0, 4.0];

/// All kinds of interferences.
const RICH: Budget = Budget {
    edits: 3,
    labels: 3,
    noise: 2,
    strips: 2,
    guards: 1,
    deletes: 1,
    relists: 2,
    refusals: 3,
    silences: 1,
    crashes: 1,
};

const NONE: Budget = Budget {
    edits: 0,
    labels: 0,
    noise: 0,
    strips: 0,
    guards: 0,
    deletes: 0,
    relists: 0,
    refusals: 0,
    silences: 0,
    crashes: 0,
};

/// Small enough to try everything in seconds.
const SMALL: [Budget; 6] = [
    Budget { edits: 1, crashes: 1, ..NONE },
    Budget { deletes: 1, crashes: 1, ..NONE },
    Budget { edits: 1, refusals: 1, ..NONE },
    Budget { deletes: 1, refusals: 1, ..NONE },
    Budget { edits: 1, deletes: 1, relists: 1, ..NONE },
    Budget { noise: 1, deletes: 1, ..NONE },
];

/// Large enough for most races of two or three.
const LARGE: [Budget; 5] = [
    Budget { labels: 3, deletes: 1, refusals: 1, ..NONE },
    Budget { edits: 2, deletes: 1, crashes: 2, refusals: 1, ..NONE },
    Budget { edits: 2, labels: 1, deletes: 1, relists: 1, silences: 1, ..NONE },
    Budget { edits: 1, noise: 1, strips: 1, guards: 1, deletes: 1, crashes: 1, ..NONE },
    Budget { edits: 1, labels: 1, noise: 1, refusals: 2, silences: 1, crashes: 1, ..NONE },
];

fn accept(report: Report) {
    if let Some(found) = report.found {
        panic!("{}", found.told);
    }
}

#[test]
fn everything_that_may_happen_within_a_small_budget_is_lawful() {
    let mut states = 0;
    for world in World::all(None) {
        for budget in SMALL {
            let report = exhaust(&world, budget, 0.0, 100_000);
            states += report.states;
            let is_enough = report.complete && report.rests > 5;
            accept(report);
            assert!(
                is_enough,
                "hardly anything has come to rest in the world \"{}\" with {budget:?}",
                world.name
            );
        }
    }
    assert!(states > 20_000, "hardly anything was seen: {states} states");
}

#[test]
fn random_lives_are_lawful() {
    for lag in LAGS {
        for (seed, world) in World::all(None).iter().enumerate() {
            let report = wander(world, RICH, lag, seed as u64, 150);
            let is_enough = report.rests > 100;
            accept(report);
            assert!(is_enough, "hardly anything has come to rest in the world \"{}\"", world.name);
        }
    }
}

#[test]
fn each_known_defect_is_found() {
    let mut known = HashSet::new();
    for case in CASES {
        assert!(known.insert(case.flaw), "{:?} is there twice", case.flaw);
        for (name, wrong) in case.found {
            let (flaw, history) = (case.flaw, case.history);
            assert!(
                is_found(flaw, name, wrong),
                "{flaw:?} ({history}) is not found in \"{name}\" as {wrong:?}"
            );
        }
    }
    assert!(known.len() >= 28, "defects are lost: only {} are known", known.len());
}

/// Whether lives in that world end so, if its operator has the flaw; a flaw may show in many ways.
fn is_found(flaw: Flaw, name: &str, wrong: &str) -> bool {
    let lag = if matches!(flaw, Flaw::TrustsFailure | Flaw::ForgetsHalf) { 4.0 } else { 0.0 };
    let world = World::all(Some(flaw)).into_iter().find(|world| world.name == name).unwrap();
    breaks(&world, RICH, lag, wrong, 20_000)
}

#[expect(clippy::disallowed_methods, reason = "how long it runs is an option of the test, not of the core")]
fn wish(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
#[ignore = "takes minutes: make explore"]
#[expect(clippy::print_stdout, reason = "its figures are its result")]
fn at_length() {
    let (states, lives) = (wish("EXPLORE_STATES", 80_000), wish("EXPLORE_LIVES", 80_000));
    let (mut total, mut found) = (Report::default(), String::new());
    for lag in LAGS {
        for world in World::all(None) {
            let reports = LARGE.map(|budget| exhaust(&world, budget, lag, states));
            let reports = reports.into_iter().chain([wander(&world, RICH, lag, 1, lives)]);
            let mut sum = Report { complete: true, ..Report::default() };
            for report in reports {
                sum.states += report.states;
                sum.acts += report.acts;
                sum.rests += report.rests;
                sum.complete &= report.complete || report.states == lives;
                report.found.iter().for_each(|finding| found.push_str(&finding.told));
            }
            println!(
                "{:>12}, news within {lag} s: {} states and lives, {} acts, {} rests, all within the budgets: {}",
                world.name, sum.states, sum.acts, sum.rests, sum.complete,
            );
            total.states += sum.states;
            total.acts += sum.acts;
            total.rests += sum.rests;
        }
    }
    println!("in all: {} states and lives, {} acts, {} rests", total.states, total.acts, total.rests);
    assert!(found.is_empty(), "{found}");
}

#[test]
#[ignore = "it is for whoever works on the flaws"]
#[expect(clippy::print_stdout, reason = "its figures are its result")]
fn where_flaws_show() {
    for case in CASES {
        println!("{:?}: {}", case.flaw, case.history);
        for (lag, name) in
            LAGS.iter().flat_map(|lag| World::all(None).into_iter().map(move |it| (*lag, it.name)))
        {
            let world = World::all(Some(case.flaw)).into_iter().find(|world| world.name == name).unwrap();
            let report = wander(&world, RICH, lag, 7, 20_000);
            if let Some(found) = report.found {
                println!(
                    "  {lag} {name}: {} ({} lives, {} acts)",
                    found.wrong,
                    report.states,
                    found.acts.len()
                );
            }
        }
    }
}
