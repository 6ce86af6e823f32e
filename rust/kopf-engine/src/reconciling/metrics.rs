//! The metrics of reconcilers, in the Prometheus text format (1.13).

use std::collections::BTreeMap;

use kopf_core::schedule::Priority;
use kopf_core::time::Timestamp;

use super::Reconcilers;
use super::measured::{BUCKETS, Measured};
use super::state::{Reconciler, State};
use crate::metrics_text::{add_family, add_sample};

/// The priorities by their names in the metrics.
const PRIORITIES: [(&str, Priority); 3] =
    [("changed", Priority::Changed), ("scheduled", Priority::Scheduled), ("initial", Priority::Initial)];

impl Reconcilers {
    /// The metrics of all reconcilers.
    pub fn to_metrics(&self) -> String {
        let now = self.base.clock.now();
        let state = self.state();
        let mut text = String::new();
        let longest = longest_runs(&state, now);
        let mut family =
            |name: &str, kind: &str, help: &str, add: &dyn Fn(&mut String, &Reconciler, &str)| {
                add_family(&mut text, name, kind, help);
                for reconciler in &state.reconcilers {
                    let handler = state.rules.registry.handlers.get(reconciler.handler);
                    add(&mut text, reconciler, handler.map(|handler| &*handler.id).unwrap_or_default());
                }
            };
        let name = "kopf_reconcile_total";
        family(name, "counter", "How many reconciliations have ended.", &|text, it, id| {
            add_counts(text, name, id, "outcome", &it.measured.outcomes);
        });
        let name = "kopf_reconcile_triggers_total";
        family(name, "counter", "How many triggers have arrived.", &|text, it, id| {
            add_counts(text, name, id, "source", &it.measured.triggers);
        });
        let name = "kopf_reconcile_duration_seconds";
        let help = "How long reconciliations take, with their writes.";
        family(name, "histogram", help, &|text, it, id| add_histogram(text, name, id, &it.measured));
        let name = "kopf_reconcile_queue";
        family(name, "gauge", "How many objects are queued.", &|text, it, id| {
            for (shown, priority) in PRIORITIES {
                add_sample(text, name, &[("handler", id), ("priority", shown)], it.queue.len(priority));
            }
        });
        let name = "kopf_reconcile_running";
        family(name, "gauge", "How many reconciliations are running.", &|text, it, id| {
            add_sample(text, name, &[("handler", id)], it.queue.running());
        });
        let name = "kopf_reconcile_longest_seconds";
        family(name, "gauge", "The age of the oldest of these reconciliations.", &|text, it, id| {
            let seconds = longest.get(&it.handler).copied().unwrap_or_default();
            add_sample(text, name, &[("handler", id)], seconds);
        });
        let name = "kopf_reconcile_oldest_seconds";
        let help = "For how many seconds the first object of the queue has been due.";
        family(name, "gauge", help, &|text, it, id| {
            add_sample(text, name, &[("handler", id)], oldest(it, now));
        });
        let name = "kopf_reconcile_loops_total";
        let help = "How often reconciliations have triggered themselves.";
        family(name, "counter", help, &|text, it, id| {
            add_sample(text, name, &[("handler", id)], it.measured.loops);
        });
        let name = "kopf_reconcile_failing";
        family(name, "gauge", "How many objects have failed last.", &|text, it, id| {
            let failing = it.primaries.values().filter(|primary| primary.schedule.entry().is_failing());
            add_sample(text, name, &[("handler", id)], failing.count());
        });
        text
    }
}

fn add_counts(text: &mut String, name: &str, id: &str, key: &str, counts: &BTreeMap<&'static str, u64>) {
    for (value, count) in counts {
        add_sample(text, name, &[("handler", id), (key, value)], count);
    }
}

fn add_histogram(text: &mut String, name: &str, id: &str, measured: &Measured) {
    let mut total = 0;
    let bounds = BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(measured.durations) {
        total += count;
        add_sample(text, &format!("{name}_bucket"), &[("handler", id), ("le", &bound)], total);
    }
    add_sample(text, &format!("{name}_sum"), &[("handler", id)], measured.seconds);
    add_sample(text, &format!("{name}_count"), &[("handler", id)], total);
}

/// The age of the oldest running reconciliation in seconds, by the position of the handler.
fn longest_runs(state: &State, now: Timestamp) -> BTreeMap<usize, f64> {
    let mut longest = BTreeMap::new();
    for run in state.runs.values() {
        let Some(reconciler) = state.reconcilers.get(run.reconciler) else { continue };
        let seconds: &mut f64 = longest.entry(reconciler.handler).or_default();
        *seconds = seconds.max(now.seconds_since(run.started));
    }
    longest
}

fn oldest(reconciler: &Reconciler, now: Timestamp) -> f64 {
    let due = PRIORITIES.iter().filter_map(|(_, priority)| reconciler.queue.first_due(*priority));
    due.map(|due| now.seconds_since(due)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use kopf_core::schedule::{Conclusion, ReconcileResult};

    use super::*;

    #[test]
    fn the_buckets_of_a_histogram_are_cumulative() {
        let mut measured = Measured::default();
        let success = Conclusion::Succeeded { is_final: true };
        for seconds in [0.001, 0.3, 100.0] {
            measured.ended(ReconcileResult::Succeeded, success, seconds);
        }
        measured.ended(ReconcileResult::Failed(None), Conclusion::Retried(1.0), 0.3);
        let mut text = String::new();
        add_histogram(&mut text, "h", "a", &measured);
        assert!(text.starts_with("h_bucket{handler=\"a\",le=\"0.005\"} 1\n"), "{text}");
        assert!(text.contains("le=\"0.25\"} 1\n") && text.contains("le=\"0.5\"} 3\n"), "{text}");
        assert!(text.contains("le=\"60\"} 3\n") && text.contains("le=\"+Inf\"} 4\n"), "{text}");
        assert!(text.ends_with("h_count{handler=\"a\"} 4\n"), "{text}");
        let mut text = String::new();
        add_counts(&mut text, "c", "a", "outcome", &measured.outcomes);
        let counts: Vec<_> =
            text.lines().filter_map(|line| line.strip_prefix("c{handler=\"a\",outcome=")).collect();
        let expected =
            ["\"cancelled\"} 0", "\"failed\"} 1", "\"gave_up\"} 0", "\"requeued\"} 0", "\"succeeded\"} 3"];
        assert_eq!(counts, expected, "outcomes that have not occurred are there, too");
    }
}
