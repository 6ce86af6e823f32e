//! The metrics of the operator itself: its version, its state, its checks, and its handlers.

use kopf_core::handler::Kind;
use kopf_core::health::CheckResult;

use super::monitor::HealthMonitor;
use crate::leadership::{Change, Replica};
use crate::metrics_text::{add_family, add_sample};

/// All states of an operator.
const STATES: [&str; 6] = ["starting", "syncing", "standby", "active", "paused", "stopping"];
/// All kinds of handlers that the engine calls.
const KINDS: [&str; 7] = ["event", "change", "index", "daemon", "timer", "webhook", "reconciler"];

/// The metrics in the text format of Prometheus; before the engine runs, without a monitor.
pub(super) fn to_metrics(monitor: Option<&HealthMonitor>, results: &[CheckResult]) -> String {
    let mut text = String::new();
    add_family(&mut text, "kopf_build_info", "gauge", "The version of Kopf.");
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("compat", "")];
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
    text
}

/// The metrics of leader election.
fn add_leadership(text: &mut String, replica: &Replica) {
    let name = [("name", replica.place())];
    add_family(text, "leader_election_master_status", "gauge", "1 while this replica is the leader.");
    add_sample(text, "leader_election_master_status", &name, u8::from(replica.is_leading()));
    let valid = "kopf_leadership_valid_seconds";
    add_family(text, valid, "gauge", "Seconds until the leader stops working if the lease is not renewed.");
    add_sample(text, valid, &name, replica.valid_for());
    let changes = "kopf_leadership_changes_total";
    add_family(text, changes, "counter", "Changes of the leadership of this replica.");
    for (change, what) in Change::ALL {
        add_sample(text, changes, &[name[0], ("change", what)], replica.changes(change));
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
        let text = to_metrics(None, &evaluate_startup());
        assert!(text.contains("\nkopf_operator_state{state=\"starting\"} 1\n"), "{text}");
        assert_eq!(text.matches("\nkopf_operator_state{").count(), 6);
        assert!(text.contains("\nkopf_health{check=\"started\"} 0\n"), "{text}");
        assert_eq!(text.matches("\nkopf_health{").count(), 1);
        assert!(text.contains("kopf_build_info{version="), "{text}");
    }
}
