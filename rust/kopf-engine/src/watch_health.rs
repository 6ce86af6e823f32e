//! The health of watch streams: which of them are failing or silent, since when, and why.
//!
//! Shown as JSON and as metrics by the server of the probes. Failures are handled in `watch`; this module only records
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kopf_core::time::Timestamp;
use serde_json::{Value, json};

use crate::metrics::ResourceTable;
use crate::metrics_text::{add_family, add_sample};
use crate::time::clock::Clock;

mod activity;

pub use activity::StreamActivity;

/// The state of a stream that delivers nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFailure {
    /// The server rejects the watch, or responds with malformed data.
    Rejected,
    /// The connection cannot be made, or fails.
    Broken,
    /// No data arrives, not even a bookmark: there may be no changes, or the connection may be broken. This is no failure.
    Silent,
}

impl StreamFailure {
    /// The name in JSON and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rejected => "refused",
            Self::Broken => "broken",
            Self::Silent => "silent",
        }
    }

    /// Whether the stream is failing, and not only silent.
    fn is_failing(self) -> bool {
        self != Self::Silent
    }
}

#[derive(Debug, Default)]
struct StreamHealth {
    failure: Option<(StreamFailure, Timestamp)>,
    failures: u64,
    error: Option<String>,
    /// The number of objects that cannot be parsed.
    rejected: usize,
    selectors: BTreeMap<&'static str, String>,
    /// The plural name and the group of the resource.
    resource: String,
    /// The progress of its task.
    activity: Option<Arc<StreamActivity>>,
    /// All objects were listed once.
    is_listed: bool,
    /// The status of the last rejection.
    rejection: Option<u16>,
}

/// One expected stream, as the health monitor samples it.
#[derive(Debug)]
pub struct StreamSample {
    /// The resource and the namespace.
    pub name: String,
    /// The name of the resource in metrics; empty if there is no task.
    pub resource: String,
    /// The progress of its task; none if there is no task.
    pub activity: Option<(u64, Option<f64>)>,
    /// It waits for the end of a pause.
    pub is_held: bool,
    /// All objects were listed once.
    pub is_listed: bool,
    /// The listing was rejected at least once.
    pub is_rejected: bool,
    /// Why it is not listed, in brackets.
    pub problem: String,
    /// Its failure, and for how many seconds it lasts.
    pub failure: Option<(&'static str, f64)>,
}

impl StreamHealth {
    /// Whether it is the health of the task with this activity.
    fn is_of(&self, activity: &Arc<StreamActivity>) -> bool {
        self.activity.as_ref().is_some_and(|known| Arc::ptr_eq(known, activity))
    }

    fn is_held(&self) -> bool {
        self.activity.as_ref().is_some_and(|activity| activity.is_held())
    }

    fn failing_since(&self) -> Option<Timestamp> {
        self.failure.filter(|(failure, _)| failure.is_failing()).map(|(_, since)| since)
    }

    fn silent_since(&self) -> Option<Timestamp> {
        self.failure.filter(|(failure, _)| !failure.is_failing()).map(|(_, since)| since)
    }
}

/// The health of all watch streams of an operator.
#[derive(Debug)]
pub struct WatchHealth {
    clock: Clock,
    resources: Arc<ResourceTable>,
    streams: Mutex<BTreeMap<String, StreamHealth>>,
    expected: Mutex<Option<BTreeSet<String>>>,
}

impl WatchHealth {
    /// The health without any streams.
    pub fn new(clock: Clock) -> Self {
        Self { clock, resources: Arc::default(), streams: Mutex::default(), expected: Mutex::default() }
    }

    /// The health whose streams count in these metrics.
    #[must_use]
    pub fn counting_in(self, resources: &Arc<ResourceTable>) -> Self {
        Self { resources: Arc::clone(resources), ..self }
    }

    /// Sets the streams that must exist.
    pub fn expect(&self, streams: BTreeSet<String>) {
        *self.expected() = Some(streams);
    }

    /// The streams that must exist but do not.
    pub fn missing(&self) -> Vec<String> {
        let expected = self.expected();
        let streams = self.streams();
        expected.iter().flatten().filter(|name| !streams.contains_key(*name)).cloned().collect()
    }

    /// The streams that must exist; none before the first scan of the cluster.
    pub fn samples(&self) -> Option<Vec<StreamSample>> {
        let now = self.clock.now();
        let expected = self.expected();
        let streams = self.streams();
        let sample = |name: &String| {
            let stream = streams.get(name);
            let problem = match stream.map(|it| (it.rejection, &it.error)) {
                Some((Some(status), _)) => format!("({status})"),
                Some((None, Some(error))) => format!("({error})"),
                Some((None, None)) => "(no response yet)".to_owned(),
                None => "(no task)".to_owned(),
            };
            let failure = stream.and_then(|it| it.failure).filter(|(failure, _)| failure.is_failing());
            StreamSample {
                name: name.clone(),
                resource: stream.map(|it| it.resource.clone()).unwrap_or_default(),
                activity: stream
                    .map(|it| it.activity.as_ref().map_or((0, None), |activity| activity.sample())),
                is_held: stream.is_some_and(StreamHealth::is_held),
                is_listed: stream.is_some_and(|it| it.is_listed),
                is_rejected: stream.is_some_and(|it| it.rejection.is_some()),
                problem,
                failure: failure.map(|(failure, since)| (failure.name(), now.seconds_since(since).max(0.0))),
            }
        };
        expected.as_ref().map(|names| names.iter().map(sample).collect())
    }

    /// The last error of a stream that is failing.
    pub fn error_of(&self, stream: &str) -> Option<String> {
        self.streams().get(stream).filter(|it| it.failing_since().is_some()).and_then(|it| it.error.clone())
    }

    /// The seconds since a stream is failing; none if it is not.
    pub fn failing_for(&self, stream: &str) -> Option<f64> {
        let since = self.streams().get(stream)?.failing_since()?;
        Some(self.clock.now().seconds_since(since).max(0.0))
    }

    /// Records the selectors of a stream, by the names of the request parameters.
    pub fn selected(&self, stream: &str, selectors: &[(&'static str, String)]) {
        self.streams().entry(stream.to_owned()).or_default().selectors = selectors.iter().cloned().collect();
    }

    /// Registers the task of a stream, of a resource with this name. It replaces an earlier stream of the same name, whose state
    /// does not count for it.
    pub fn follow(&self, stream: &str, resource: String, activity: &Arc<StreamActivity>) {
        activity.count_in(self.resources.named(&resource));
        let mut streams = self.streams();
        let condition = streams.entry(stream.to_owned()).or_default();
        if condition.activity.is_some() && !condition.is_of(activity) {
            *condition = StreamHealth::default();
        }
        (condition.resource, condition.activity) = (resource, Some(Arc::clone(activity)));
    }

    /// Records that all objects of a stream are listed.
    pub fn listed(&self, stream: &str) {
        let mut streams = self.streams();
        let condition = streams.entry(stream.to_owned()).or_default();
        (condition.is_listed, condition.rejection) = (true, None);
    }

    /// Records the status with which the server has rejected a stream.
    pub fn on_rejection(&self, stream: &str, status: u16) {
        self.streams().entry(stream.to_owned()).or_default().rejection = Some(status);
    }

    /// Records that a stream has received data.
    pub fn on_data(&self, stream: &str) {
        self.streams().entry(stream.to_owned()).or_default().failure = None;
    }

    /// Records that the server has accepted a stream. It may still deliver no data.
    pub fn accepted(&self, stream: &str) {
        let mut streams = self.streams();
        let condition = streams.entry(stream.to_owned()).or_default();
        condition.failure = condition.failure.filter(|(failure, _)| !failure.is_failing());
    }

    /// Records a failure or the silence of a stream. An uninterrupted series of failures counts from the first one, and so
    /// does silence.
    pub fn record_failure(&self, stream: &str, failure: StreamFailure, error: Option<String>) {
        let mut streams = self.streams();
        let condition = streams.entry(stream.to_owned()).or_default();
        let since = if failure.is_failing() { condition.failing_since() } else { condition.silent_since() };
        condition.failure = Some((failure, since.unwrap_or_else(|| self.clock.now())));
        if failure.is_failing() {
            condition.failures += 1;
        }
        condition.error = error.or(condition.error.take());
    }

    /// Records the number of objects of a stream that cannot be parsed now.
    pub fn rejected(&self, stream: &str, count: usize) {
        self.streams().entry(stream.to_owned()).or_default().rejected = count;
    }

    /// Removes a stream that has ended, unless another one has taken over its name.
    pub fn forget(&self, stream: &str, activity: &Arc<StreamActivity>) {
        let mut streams = self.streams();
        if streams.get(stream).is_some_and(|it| it.activity.is_none() || it.is_of(activity)) {
            streams.remove(stream);
        }
    }

    /// All health data as JSON, with the last errors.
    pub fn to_json(&self) -> Value {
        let now = self.clock.now();
        let streams = self.streams();
        let all = streams.iter().map(|(name, condition)| {
            let failure = condition.failure.map(|(failure, _)| failure.name());
            let since = condition.failure.map(|(_, since)| since.to_string());
            let seconds = condition.failure.map(|(_, since)| now.seconds_since(since));
            json!({
                "stream": name, "trouble": failure, "since": since, "seconds": seconds,
                "failures": condition.failures, "last_error": condition.error,
                "rejected_objects": condition.rejected, "selectors": condition.selectors,
            })
        });
        let all: Vec<_> = all.collect();
        drop(streams);
        let expected = self.expected().iter().flatten().count();
        let missing = self.missing();
        json!({ "streams": all, "expected": expected, "missing": missing })
    }

    /// The metrics in the Prometheus text format.
    pub fn to_metrics(&self) -> String {
        let expected = self.expected().iter().flatten().count();
        let missing = self.missing().len();
        let mut text = String::new();
        for (name, help, value) in [
            ("kopf_streams_expected", "How many streams must exist.", expected),
            ("kopf_streams_missing", "How many streams are missing.", missing),
        ] {
            add_family(&mut text, name, "gauge", help);
            add_sample(&mut text, name, &[], value);
        }
        let streams = self.streams();
        add_streams_by_resource(&mut text, &streams);
        text
    }

    fn expected(&self) -> MutexGuard<'_, Option<BTreeSet<String>>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<String, StreamHealth>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends the numbers of streams by resource and by failure. Streams without a task have no resource.
fn add_streams_by_resource(text: &mut String, streams: &BTreeMap<String, StreamHealth>) {
    const FAILURES: [StreamFailure; 3] =
        [StreamFailure::Rejected, StreamFailure::Broken, StreamFailure::Silent];
    let mut resources: BTreeMap<&str, (usize, [usize; 3], usize)> = BTreeMap::new();
    let mut synced: BTreeMap<&str, bool> = BTreeMap::new();
    for condition in streams.values().filter(|condition| !condition.resource.is_empty()) {
        let (all, troubled, rejected) = resources.entry(&condition.resource).or_default();
        *rejected += condition.rejected;
        *all += 1;
        for (count, failure) in troubled.iter_mut().zip(FAILURES) {
            *count += usize::from(condition.failure.is_some_and(|(known, _)| known == failure));
        }
        // A stream that waits for the end of a pause is not late.
        if !condition.is_held() {
            *synced.entry(&condition.resource).or_insert(true) &= condition.is_listed;
        }
    }
    let help = "1 once all streams of the resource are listed; none while the operator is paused.";
    add_family(text, "kopf_synced", "gauge", help);
    for (resource, is_synced) in synced {
        add_sample(text, "kopf_synced", &[("resource", resource)], u8::from(is_synced));
    }
    add_family(text, "kopf_watch_streams", "gauge", "Watch streams that exist.");
    for (resource, (all, ..)) in &resources {
        add_sample(text, "kopf_watch_streams", &[("resource", resource)], all);
    }
    let name = "kopf_watch_streams_troubled";
    add_family(text, name, "gauge", "Watch streams that the server rejects, that break, or that are silent.");
    for (resource, (_, troubled, _)) in &resources {
        for (failure, count) in FAILURES.iter().zip(troubled) {
            add_sample(text, name, &[("resource", resource), ("trouble", failure.name())], count);
        }
    }
    let name = "kopf_watch_rejected_objects";
    add_family(text, name, "gauge", "Objects that cannot be read and are not handled.");
    for (resource, (_, _, rejected)) in &resources {
        add_sample(text, name, &[("resource", resource)], rejected);
    }
}

#[cfg(test)]
mod tests;
