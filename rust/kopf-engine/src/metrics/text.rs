//! The metrics in the text format of Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::handler::{HandlerMetrics, OUTCOMES};
use super::instruments::{Counter, Histogram, add_all, add_histograms};
use super::resource::{ENDS, PARTS, REASONS, RECORDS, RESULTS, ResourceMetrics};
use super::review::{RESULTS as REVIEW_RESULTS, ReviewMetrics};
use super::{EventMetrics, OperatorMetrics, ResourceTable};
use crate::metrics_text::{add_family, add_sample};

/// The objects of one dispatcher now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DispatcherSample {
    /// The name of the resource in metrics.
    pub resource: String,
    /// The known objects.
    pub objects: usize,
    /// The objects with an event that waits for a cycle, except for those of the first listing.
    pub changed: usize,
    /// The objects of a listing that wait for their first cycle.
    pub initial: usize,
    /// The objects whose cycles wait until the replica leads, which lists them again; none without leader election.
    pub deferred: Option<usize>,
    /// The age of the oldest of these events in seconds.
    pub oldest: f64,
    /// The objects with a cycle.
    pub active: usize,
    /// The age of the oldest cycle in seconds.
    pub longest: f64,
    /// The objects that wait for the next attempt of a handler.
    pub delayed: usize,
    /// The objects that are held after an unexpected error.
    pub throttled: usize,
}

/// The daemons or timers of one handler now, over all objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Their functions run.
    pub running: usize,
    /// They sleep, or wait for their patch.
    pub waiting: usize,
    /// They were asked to stop.
    pub stopping: usize,
}

/// The values that are sampled when the metrics are scraped.
#[derive(Debug, Default)]
pub struct Samples {
    /// The objects.
    pub dispatchers: Vec<DispatcherSample>,
    /// The daemons and timers, by the indices of their handlers.
    pub runs: BTreeMap<usize, RunCounts>,
    /// The running calls: the id of the handler and the age in seconds.
    pub calls: Vec<(String, f64)>,
    /// By resource: the longest time without any sign of a stream, in seconds.
    pub silences: BTreeMap<String, f64>,
}

type Resources = Vec<(String, Arc<ResourceMetrics>)>;

/// Appends all metrics of the resources and the handlers.
pub fn add_metrics(text: &mut String, metrics: &OperatorMetrics, samples: &Samples) {
    let all = metrics.resources.all();
    add_watching(text, &all, samples);
    let handled: Resources =
        all.into_iter().filter(|(_, one)| one.is_handled.load(Ordering::Relaxed)).collect();
    add_objects(text, &samples.dispatchers);
    add_cycles(text, &handled);
    add_patches(text, &handled);
    add_handlers(text, metrics, samples);
    add_events(text, &metrics.events);
}

/// Appends the metrics of the admission reviews.
pub fn add_reviews(text: &mut String, reviews: &ResourceTable<ReviewMetrics>) {
    let all = reviews.all();
    let name = "kopf_reviews_total";
    add_family(text, name, "counter", "Admission reviews.");
    for (resource, one) in &all {
        for (result, counter) in REVIEW_RESULTS.iter().zip(&one.results) {
            add_sample(text, name, &[("resource", resource.as_str()), ("result", result)], counter.get());
        }
    }
    let durations = all.iter().map(|(resource, one)| (vec![("resource", resource.as_str())], &one.duration));
    let help = "Seconds from the request for a review to its response.";
    add_histograms(text, "kopf_review_duration_seconds", help, durations);
}

fn add_watching(text: &mut String, all: &Resources, samples: &Samples) {
    let silence = ("kopf_watch_silence_seconds", "gauge", "The longest time without any sign of a watch.");
    add_all(text, silence, samples.silences.iter().map(|(name, age)| ([("resource", name.as_str())], age)));
    let records = ("kopf_watch_events_total", "counter", "Decoded records of watches and listings.");
    add_counts(text, records, "type", &RECORDS, all, |one| &one.watch.records);
    let ends = ("kopf_watch_ends_total", "counter", "Connections of watches that have ended.");
    add_counts(text, ends, "reason", &ENDS, all, |one| &one.watch.ends);
    let bytes =
        ("kopf_watch_received_bytes_total", "counter", "Bytes of the bodies of watches and listings.");
    add_all(text, bytes, each(all, |one| one.watch.bytes.get()));
    let lists = ("kopf_lists_total", "counter", "Complete listings.");
    add_all(text, lists, each(all, |one| one.watch.lists.get()));
    let help = "Seconds from the first request of a listing to its last object.";
    add_histograms(text, "kopf_list_duration_seconds", help, durations(all, |one| &one.watch.list_duration));
}

fn add_objects(text: &mut String, dispatchers: &[DispatcherSample]) {
    let mut sums: BTreeMap<&str, DispatcherSample> = BTreeMap::new();
    for sample in dispatchers {
        let sum = sums.entry(&sample.resource).or_default();
        sum.objects += sample.objects;
        sum.changed += sample.changed;
        sum.initial += sample.initial;
        if let Some(deferred) = sample.deferred {
            *sum.deferred.get_or_insert_default() += deferred;
        }
        sum.oldest = sum.oldest.max(sample.oldest);
        sum.active += sample.active;
        sum.longest = sum.longest.max(sample.longest);
        sum.delayed += sample.delayed;
        sum.throttled += sample.throttled;
    }
    let mut gauge = |name: &str, help: &str, value: fn(&DispatcherSample) -> f64| {
        let samples = sums.iter().map(|(resource, sum)| ([("resource", *resource)], value(sum)));
        add_all(text, (name, "gauge", help), samples);
    };
    gauge("kopf_objects", "Objects whose state is held in memory.", |sum| count(sum.objects));
    let help = "The age of the oldest event that waits for a cycle.";
    gauge("kopf_queue_oldest_seconds", help, |sum| sum.oldest);
    gauge("kopf_cycles_active", "Objects that are being handled.", |sum| count(sum.active));
    gauge("kopf_cycle_longest_seconds", "The age of the oldest running cycle.", |sum| sum.longest);
    let name = "kopf_queue_depth";
    add_family(text, name, "gauge", "Objects that wait for a cycle.");
    for (resource, sum) in &sums {
        let deferred = sum.deferred.map(|deferred| ("deferred", deferred));
        for (queue, depth) in [("changed", sum.changed), ("initial", sum.initial)].into_iter().chain(deferred)
        {
            add_sample(text, name, &[("resource", resource), ("queue", queue)], depth);
        }
    }
    let name = "kopf_objects_waiting";
    add_family(text, name, "gauge", "Objects that wait for a delay, or are held after an unexpected error.");
    for (resource, sum) in &sums {
        for (why, waiting) in [("delay", sum.delayed), ("throttle", sum.throttled)] {
            add_sample(text, name, &[("resource", resource), ("why", why)], waiting);
        }
    }
}

fn add_cycles(text: &mut String, handled: &Resources) {
    let help = "Seconds from the arrival of an event to its cycle, if that calls handlers or writes.";
    add_histograms(
        text,
        "kopf_queue_duration_seconds",
        help,
        durations(handled, |one| &one.cycles.queue_duration),
    );
    let help = "Seconds from the arrival of an event to the request for the first call of a handler.";
    add_histograms(text, "kopf_reaction_seconds", help, durations(handled, |one| &one.cycles.reaction));
    let ended = ("kopf_cycles_total", "counter", "Handling cycles that have ended.");
    add_counts(text, ended, "reason", &REASONS, handled, |one| &one.cycles.ended);
    let help = "Seconds from the start of a cycle to its last write, if it calls handlers or writes.";
    add_histograms(text, "kopf_cycle_duration_seconds", help, durations(handled, |one| &one.cycles.duration));
    let errors = ("kopf_object_errors_total", "counter", "Unexpected errors that throttle an object.");
    add_all(text, errors, each(handled, |one| one.cycles.errors.get()));
}

fn add_patches(text: &mut String, handled: &Resources) {
    let name = "kopf_patches_total";
    add_family(text, name, "counter", "Attempts to patch objects.");
    for (resource, one) in handled {
        for (part, results) in PARTS.iter().zip(&one.patches.results) {
            for (result, counter) in RESULTS.iter().zip(results) {
                let labels = [("resource", resource.as_str()), ("part", part), ("result", result)];
                add_sample(text, name, &labels, counter.get());
            }
        }
    }
    let bytes = ("kopf_patch_bytes_total", "counter", "Bytes of the bodies of patches.");
    add_all(text, bytes, each(handled, |one| one.patches.bytes.get()));
    let dropped = (
        "kopf_salvages_total",
        "counter",
        "Parts of patches that were dropped, as the server rejected them.",
    );
    add_all(text, dropped, each(handled, |one| one.patches.dropped.get()));
    let strips =
        ("kopf_strips_total", "counter", "Objects whose annotations of Kopf another client has removed.");
    add_all(text, strips, each(handled, |one| one.patches.strips.get()));
}

fn add_handlers(text: &mut String, metrics: &OperatorMetrics, samples: &Samples) {
    let all = &metrics.handlers.all;
    let name = "kopf_handler_calls_total";
    add_family(text, name, "counter", "Calls of handlers.");
    for one in all {
        for (outcome, counter) in OUTCOMES.iter().zip(&one.outcomes) {
            add_sample(text, name, &[("handler", one.id.as_str()), ("outcome", outcome)], counter.get());
        }
    }
    let by_handler = |value: fn(&HandlerMetrics) -> u64| {
        all.iter().map(move |one| ([("handler", one.id.as_str())], value(one)))
    };
    let retries = ("kopf_handler_retries_total", "counter", "Calls of handlers after the first one.");
    add_all(text, retries, by_handler(|one| one.retries.get()));
    let help = "Seconds from the request for a call of a handler to its outcome.";
    add_histograms(
        text,
        "kopf_handler_duration_seconds",
        help,
        all.iter().map(|one| (vec![("handler", one.id.as_str())], &one.duration)),
    );
    let mut running: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for (id, age) in &samples.calls {
        let (count, oldest) = running.entry(id).or_default();
        *count += 1;
        *oldest = oldest.max(*age);
    }
    let calls = |one: &HandlerMetrics| running.get(one.id.as_str()).copied().unwrap_or_default();
    let active = ("kopf_handler_active", "gauge", "Running calls of handlers, except for daemons.");
    add_all(text, active, all.iter().map(|one| ([("handler", one.id.as_str())], calls(one).0)));
    let longest = ("kopf_handler_longest_seconds", "gauge", "The age of the oldest of these calls.");
    add_all(text, longest, all.iter().map(|one| ([("handler", one.id.as_str())], calls(one).1)));
    add_background(text, metrics, samples);
    let late =
        all.iter().filter_map(|one| Some((vec![("handler", one.id.as_str())], one.lateness.as_ref()?)));
    add_histograms(
        text,
        "kopf_timer_lateness_seconds",
        "Seconds from the due time of a timer to its call.",
        late,
    );
}

fn add_background(text: &mut String, metrics: &OperatorMetrics, samples: &Samples) {
    let name = "kopf_background";
    add_family(text, name, "gauge", "Daemons and timers of objects.");
    let mut sums: BTreeMap<usize, RunCounts> = BTreeMap::new();
    for (handler, counts) in &samples.runs {
        let Some(row) = metrics.handlers.row_of(*handler) else { continue };
        let sum = sums.entry(row).or_default();
        sum.running += counts.running;
        sum.waiting += counts.waiting;
        sum.stopping += counts.stopping;
    }
    for (row, one) in metrics.handlers.all.iter().enumerate().filter(|(_, one)| one.is_background) {
        let RunCounts { running, waiting, stopping } = sums.get(&row).copied().unwrap_or_default();
        for (state, count) in [("running", running), ("waiting", waiting), ("stopping", stopping)] {
            add_sample(text, name, &[("handler", one.id.as_str()), ("state", state)], count);
        }
    }
}

fn add_events(text: &mut String, events: &EventMetrics) {
    let name = ("kopf_posted_events_total", "counter", "Kubernetes events.");
    let counters = [("posted", &events.posted), ("failed", &events.failed), ("dropped", &events.dropped)];
    add_all(text, name, counters.map(|(result, counter)| ([("result", result)], counter.get())));
    let waiting = events.waiting.get().map_or(0, |waiting| waiting.load(Ordering::Relaxed));
    add_family(text, "kopf_posting_queue", "gauge", "Kubernetes events that wait to be posted.");
    add_sample(text, "kopf_posting_queue", &[], waiting);
}

/// Appends a family of counters with the label `resource` and another one.
fn add_counts<const N: usize>(
    text: &mut String,
    (name, kind, help): (&str, &str, &str),
    label: &str,
    values: &[&str; N],
    all: &Resources,
    counters: fn(&ResourceMetrics) -> &[Counter; N],
) {
    add_family(text, name, kind, help);
    for (resource, one) in all {
        for (value, counter) in values.iter().zip(counters(one)) {
            add_sample(text, name, &[("resource", resource.as_str()), (label, value)], counter.get());
        }
    }
}

fn each(
    all: &Resources,
    value: fn(&ResourceMetrics) -> u64,
) -> impl Iterator<Item = ([(&str, &str); 1], u64)> {
    all.iter().map(move |(resource, one)| ([("resource", resource.as_str())], value(one)))
}

fn durations(
    all: &Resources,
    histogram: fn(&ResourceMetrics) -> &Histogram,
) -> impl Iterator<Item = (Vec<(&str, &str)>, &Histogram)> {
    all.iter().map(move |(resource, one)| (vec![("resource", resource.as_str())], histogram(one)))
}

#[expect(clippy::cast_precision_loss, reason = "numbers of objects are exact in a float")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
