//! A model checker for the rules of reconcilers: schedule entries, the work queue, finalizers, relations, and own writes.
//!
//! The model consists of an API server with two primaries and a secondary object (`cluster.rs`), a driver of the core's rules
//! (`operator.rs`), and an oracle that observes both (`oracle.rs`). Between any two steps, anything may happen: changes by other
//! clients, deletions, finalizers of other controllers, late events, relists, conflicts, lost responses, failures, crashes.
//!
//! The properties:
//!
//! * No two reconciliations of one primary overlap.
//! * No change is lost: when idle, the last started reconciliation of each primary has received its latest state, and that of
//!   its secondary object. Both ends of a relation count. The watch events of own writes are suppressed here.
//! * The operator becomes idle; after giving up, no time wakes it up (A8). The back-off counts elapsed delays (A7).
//! * A reconciliation starts with caches that are not older than the writes of the previous one (W1, W2, W5).
//! * An ordinary reconciliation starts only after the finalizer is present (F1), and never after a deleting one (F2). An object
//!   is released only by a deleting call without `Requeue` (F3), by giving up (F4), or because it does not match (F7). Other
//!   finalizers are never modified (F6). Each deletion ends, also after a crash at any step.
//!
//! The explorer itself is tested: it must find each defect of `injected_defects.rs` when the model's operator has it.
//!
//! Assumptions: watch events arrive in order. At most one write of the secondary object is on its way. A request to edit a
//! finalizer survives a crash of the operator; other requests are executed at once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(clippy::struct_excessive_bools, reason = "facts that are observed independently of each other")]
#![allow(unreachable_pub, reason = "the modules belong to a test")]

mod cluster;
mod injected_defects;
mod model;
mod operator;
mod oracle;
mod search;

use injected_defects::CASES;
use search::explore;
use std::fmt::Write as _;

/// The number of random runs without a defect.
const RUNS: usize = 20_000;

/// The largest number of random runs until a defect is found.
const DEFECT_RUNS: usize = 120_000;

#[test]
fn the_properties_hold_in_random_orders() {
    let report = explore(None, "", 1, RUNS);
    if let Some(finding) = report.finding {
        panic!("{finding}");
    }
    assert_eq!(report.runs, RUNS);
    assert!(report.starts > 5 * RUNS, "only {} reconciliations have started", report.starts);
    assert!(report.deletions > RUNS / 10, "only {} deleting calls have run", report.deletions);
}

#[test]
fn each_defect_is_found() {
    let mut missed = String::new();
    for (defect, history, violation) in CASES {
        if explore(Some(*defect), violation, 2, DEFECT_RUNS).finding.is_none() {
            let _ = writeln!(missed, "{defect:?}: {history}");
        }
    }
    assert!(missed.is_empty(), "{missed}");
}
