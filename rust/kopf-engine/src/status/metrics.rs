//! The metrics of the operator itself: its version, its state, its checks, its handlers, its process, and its queues.

mod process;
mod requests;

use kopf_core::handler::Kind;
use kopf_core::health::CheckResult;

use super::heartbeats::Threads;
use super::monitor::{Gauges, HealthMonitor};
use crate::fence::Rejection;
use crate::leadership::{Change, Replica};
use crate::metrics;
use crate::metrics::instruments::{add_all, add_histograms};
use crate::metrics_text::{add_family, add_sample};

/// All states of an operator.
const STATES: [&str; 6] = ["starting", "syncing", "standby", "active", "paused", "stopping"];
/// All kinds of handlers that the engine calls.
const KINDS: [&str; 7] = ["event", "change", "index", "daemon", "timer", "webhook", "reconciler"];

/// The metrics in the text format of Prometheus; before the engine runs, without a monitor.
pub(super) fn to_metrics(python: &str, monitor: Option<&HealthMonitor>, results: &[CheckResult]) -> String {
    let mut text = String::new();
    add_family(&mut text, "kopf_build_info", "gauge", "The versions of Kopf and of Python.");
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("python", python), ("compat", "")];
    add_sample(&mut text, "kopf_build_info", &labels, 1);
    let current = monitor.map_or("starting", HealthMonitor::state);
    add_family(&mut text, "kopf_operator_state", "gauge", "1 for the current state of the operator.");
    for state in STATES {
        let value = u8::from(state == current);
        add_sample(&mut text, "kopf_operator_state", &[("state", state)], value);
    }
    if let Some(monitor) = monitor {
        add_family(&mut text, "kopf_handlers", "gauge", "Declared handlers.");
        for kind in KINDS {
            let count = monitor.handlers().iter().filter(|handler| name_of(&handler.kind) == Some(kind));
            add_sample(&mut text, "kopf_handlers", &[("kind", kind)], count.count());
        }
    }
    if let Some(replica) = monitor.and_then(HealthMonitor::replica) {
        add_leadership(&mut text, replica);
    }
    add_family(&mut text, "kopf_health", "gauge", "1 if the check passes, 0 if it fails.");
    let mut names: Vec<&str> = results.iter().map(|result| result.name).collect();
    names.dedup();
    for name in names {
        // One check has a result for each endpoint.
        let mut same = results.iter().filter(|result| result.name == name);
        let passes = same.all(|result| result.failure.is_none());
        add_sample(&mut text, "kopf_health", &[("check", name)], u8::from(passes));
    }
    process::add_process(&mut text);
    if let Some(monitor) = monitor {
        let gauges = monitor.gauges();
        add_gauges(&mut text, &gauges, monitor);
        requests::add_requests(&mut text, &gauges, monitor.client());
        metrics::add_metrics(&mut text, monitor.metrics(), &gauges.samples);
        metrics::add_reviews(&mut text, monitor.reviews());
    }
    text
}

/// Appends the state of the event loop, of the queue to Python, and of the request permits.
fn add_gauges(text: &mut String, gauges: &Gauges, monitor: &HealthMonitor) {
    let Gauges { loop_tick_age, waiting_tasks, oldest_task, threads, .. } = gauges;
    if let Some(age) = loop_tick_age {
        let name = "kopf_loop_tick_age_seconds";
        add_family(text, name, "gauge", "The time since the last heartbeat of Python's event loop.");
        add_sample(text, name, &[], age);
    }
    let help = "How late the heartbeats of Python's event loop are.";
    add_histograms(text, "kopf_loop_lag_seconds", help, [(vec![], monitor.lag())]);
    if let Some(Threads { active, waiting, limit }) = threads {
        let name = "kopf_threads_active";
        add_all(text, (name, "gauge", "Synchronous handlers that run."), [([], active)]);
        let name = "kopf_threads_waiting";
        add_all(text, (name, "gauge", "Synchronous handlers that wait for a thread."), [([], waiting)]);
        let limit = limit.map(|limit| ([], limit));
        add_all(text, ("kopf_threads_limit", "gauge", "All threads for synchronous handlers."), limit);
    }
    add_family(text, "kopf_border_waiting", "gauge", "Tasks that Python has not taken yet.");
    add_sample(text, "kopf_border_waiting", &[], waiting_tasks);
    let name = "kopf_border_oldest_seconds";
    add_family(text, name, "gauge", "The age of the oldest of these tasks, while the event loop runs.");
    add_sample(text, name, &[], oldest_task);
}

/// The metrics of leader election.
fn add_leadership(text: &mut String, replica: &Replica) {
    let name = [("name", replica.place())];
    add_family(text, "leader_election_master_status", "gauge", "1 while this replica is the leader.");
    add_sample(text, "leader_election_master_status", &name, u8::from(replica.is_leading()));
    let slow = "leader_election_slowpath_total";
    add_family(text, slow, "counter", "Renewals of the lease that needed a fresh read.");
    add_sample(text, slow, &name, replica.slow_renewals());
    let valid = "kopf_leadership_valid_seconds";
    add_family(text, valid, "gauge", "Seconds until the leader stops working if the lease is not renewed.");
    add_sample(text, valid, &name, replica.valid_for());
    let changes = "kopf_leadership_changes_total";
    add_family(text, changes, "counter", "Changes of the leadership of this replica.");
    for (change, what) in Change::ALL {
        add_sample(text, changes, &[name[0], ("change", what)], replica.changes(change));
    }
    let fenced = "kopf_fenced_total";
    add_family(text, fenced, "counter", "Calls and writes that were stopped since the replica did not lead.");
    for (work, what) in Rejection::ALL {
        add_sample(text, fenced, &[("what", what)], replica.rejected(work));
    }
}

/// The name of a kind of handlers; none if it is not called by the engine.
fn name_of(kind: &Kind) -> Option<&'static str> {
    match kind {
        Kind::Watching => Some("event"),
        Kind::Changing(_) => Some("change"),
        Kind::Indexing => Some("index"),
        Kind::Daemon(_) => Some("daemon"),
        Kind::Timer(_) => Some("timer"),
        Kind::Webhook(_) => Some("webhook"),
        Kind::Reconciling(_) => Some("reconciler"),
        Kind::Caching(_) | Kind::Activity { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use kopf_core::health::evaluate_startup;

    use super::*;

    #[test]
    fn before_the_engine_runs_there_are_its_state_and_its_checks() {
        let text = to_metrics("3.13.1", None, &evaluate_startup());
        assert!(text.contains("\nkopf_operator_state{state=\"starting\"} 1\n"), "{text}");
        assert_eq!(text.matches("\nkopf_operator_state{").count(), 6);
        assert!(text.contains("\nkopf_health{check=\"started\"} 0\n"), "{text}");
        assert_eq!(text.matches("\nkopf_health{").count(), 1);
        assert!(text.contains("kopf_build_info{version="), "{text}");
        assert!(text.contains(",python=\"3.13.1\",compat=\"\"} 1\n"), "{text}");
    }
}
