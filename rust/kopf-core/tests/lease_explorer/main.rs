//! A model checker for leader election: several candidates, their fences, and an API server with one Lease.
//!
//! The model consists of the server (`server.rs`), processes that drive the core's candidate and fence (`process.rs`), and an
//! oracle that observes all of them (`oracle.rs`). Between any two steps, anything may happen: requests and responses are lost,
//! late, or sent twice; requests are rejected; watch events are late; processes stop for any time, crash, or are replaced while
//! they are stopped; replicas become unhealthy or lose the state of the cluster; they release the lease. The rates of their
//! clocks differ by up to 1.4.
//!
//! The properties:
//!
//! * Two fences are never open at the same time, and a closed fence never opens again for its term.
//! * The numbers of terms increase.
//! * A record of another process is replaced only after a read that began after its expiry.
//! * A term begins, and a lease is released, only when no call of the process is left from an earlier term.
//! * In a period without faults, one process leads within the time limit, and remains the leader.
//!
//! The explorer itself is tested: it must find each defect of `injected_defects.rs` when the model's processes have it.
//!
//! Assumptions: only candidates modify the Lease, and none deletes it. The engine passes one result for each write.
//!
//! `make explore` runs a longer search: `EXPLORE_RUNS` sets the number of random runs, and `EXPLORE_SEED` changes them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(clippy::struct_excessive_bools, reason = "facts that are observed independently of each other")]
#![allow(unreachable_pub, reason = "the modules belong to a test")]

mod injected_defects;
mod model;
mod oracle;
mod process;
mod search;
mod server;

use injected_defects::CASES;
use search::{Report, explore};
use std::fmt::Write as _;

/// The number of random runs without a defect.
const RUNS: usize = 5_000;

/// The largest number of random runs until a defect is found.
const DEFECT_RUNS: usize = 100_000;

#[test]
fn the_properties_hold_in_random_orders() {
    check(&explore(None, "", 1, RUNS), RUNS);
}

/// Checks that nothing was found, and that the search has reached what it searches for.
fn check(report: &Report, runs: usize) {
    if let Some(finding) = &report.finding {
        panic!("{finding}");
    }
    assert_eq!(report.runs, runs);
    assert!(report.acts > 100 * runs, "only {} acts", report.acts);
    assert!(report.terms > runs, "only {} terms have begun before the periods without faults", report.terms);
    assert!(report.releases > runs / 50, "only {} releases", report.releases);
    assert!(report.takeovers > runs / 10, "only {} expired records were replaced", report.takeovers);
}

#[test]
fn each_defect_is_found() {
    let mut missed = String::new();
    for (defect, rule, violation) in CASES {
        if explore(Some(*defect), violation, 2, DEFECT_RUNS).finding.is_none() {
            let _ = writeln!(missed, "{defect:?}: {rule}");
        }
    }
    assert!(missed.is_empty(), "{missed}");
}

#[test]
#[ignore = "takes minutes: make explore"]
#[expect(clippy::print_stdout, reason = "the numbers are the result")]
fn at_length() {
    let (runs, seed) = (number_from_env("EXPLORE_RUNS", 80_000), number_from_env("EXPLORE_SEED", 1));
    let report = explore(None, "", seed as u64, runs);
    println!(
        "{} runs, {} acts, {} terms, {} takeovers, {} releases",
        report.runs, report.acts, report.terms, report.takeovers, report.releases
    );
    check(&report, runs);
}

#[expect(clippy::disallowed_methods, reason = "the length of the search is configurable")]
fn number_from_env(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
