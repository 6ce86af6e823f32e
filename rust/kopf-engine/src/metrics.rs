//! How the streams are: which of them are in trouble, since when, and why; for whoever asks beside the probes.
//!
//! Owns: the conditions, and how they are told. Must not know: what is tried against the trouble.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kopf_core::time::Timestamp;
use serde_json::{Value, json};

use crate::time::clock::Clock;

/// The kind of failure of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFailure {
    /// The server refuses it, or answers nonsense.
    Refused,
    /// The connection cannot be made, or breaks.
    Broken,
    /// Nothing comes, not even a bookmark: there may be no news, or nobody at the other end.
    Silent,
}

impl StreamFailure {
    /// Its name for people and machines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Broken => "broken",
            Self::Silent => "silent",
        }
    }
}

#[derive(Debug, Default)]
struct StreamHealth {
    trouble: Option<(StreamFailure, Timestamp)>,
    failures: u64,
    error: Option<String>,
    /// How many objects cannot be read.
    rejected: usize,
    selectors: BTreeMap<&'static str, String>,
}

/// The conditions of all streams of an operator.
#[derive(Debug)]
pub struct Health {
    clock: Clock,
    streams: Mutex<BTreeMap<String, StreamHealth>>,
    expected: Mutex<BTreeSet<String>>,
}

impl Health {
    /// Of no streams yet.
    pub fn new(clock: Clock) -> Self {
        Self { clock, streams: Mutex::default(), expected: Mutex::default() }
    }

    /// Which streams there must be.
    pub fn expect(&self, streams: BTreeSet<String>) {
        *self.expected() = streams;
    }

    /// Those that must be there and are not.
    pub fn missing(&self) -> Vec<String> {
        let expected = self.expected();
        let streams = self.streams();
        expected.iter().filter(|name| !streams.contains_key(*name)).cloned().collect()
    }

    /// The last error of a stream that is in trouble.
    pub fn error_of(&self, stream: &str) -> Option<String> {
        self.streams().get(stream).filter(|it| it.trouble.is_some()).and_then(|it| it.error.clone())
    }

    /// What a stream asks for, by the names of the parameters.
    pub fn selected(&self, stream: &str, selectors: &[(&'static str, String)]) {
        self.streams().entry(stream.to_owned()).or_default().selectors = selectors.iter().cloned().collect();
    }

    /// A stream has heard something from the server.
    pub fn on_data(&self, stream: &str) {
        self.streams().entry(stream.to_owned()).or_default().trouble = None;
    }

    /// The server has let a stream begin: whether anything will come, is not known yet.
    pub fn accepted(&self, stream: &str) {
        let mut streams = self.streams();
        let condition = streams.entry(stream.to_owned()).or_default();
        condition.trouble = condition.trouble.filter(|(trouble, _)| *trouble == StreamFailure::Silent);
    }

    /// A stream is in trouble; it may have been so before.
    pub fn troubled(&self, stream: &str, trouble: StreamFailure, error: Option<String>) {
        let mut streams = self.streams();
        let condition = streams.entry(stream.to_owned()).or_default();
        let since = condition.trouble.map_or_else(|| self.clock.now(), |(_, since)| since);
        condition.trouble = Some((trouble, since));
        if trouble != StreamFailure::Silent {
            condition.failures += 1;
        }
        condition.error = error.or(condition.error.take());
    }

    /// How many objects of a stream cannot be read now.
    pub fn rejected(&self, stream: &str, count: usize) {
        self.streams().entry(stream.to_owned()).or_default().rejected = count;
    }

    /// A stream is over.
    pub fn forget(&self, stream: &str) {
        self.streams().remove(stream);
    }

    /// All of it as JSON, with the last errors.
    pub fn to_json(&self) -> Value {
        let now = self.clock.now();
        let streams = self.streams();
        let all = streams.iter().map(|(name, condition)| {
            let trouble = condition.trouble.map(|(trouble, _)| trouble.name());
            let since = condition.trouble.map(|(_, since)| since.to_string());
            let seconds = condition.trouble.map(|(_, since)| now.seconds_since(since));
            json!({
                "stream": name, "trouble": trouble, "since": since, "seconds": seconds,
                "failures": condition.failures, "last_error": condition.error,
                "rejected_objects": condition.rejected, "selectors": condition.selectors,
            })
        });
        let all: Vec<_> = all.collect();
        drop(streams);
        let expected = self.expected().len();
        let missing = self.missing();
        json!({ "streams": all, "expected": expected, "missing": missing })
    }

    /// The figures as Prometheus reads them.
    pub fn to_metrics(&self) -> String {
        let now = self.clock.now();
        let expected = self.expected().len();
        let missing = self.missing().len();
        let mut text = String::new();
        for (name, help, value) in [
            ("kopf_streams_expected", "How many streams there must be.", expected),
            ("kopf_streams_missing", "How many streams that must be there are not.", missing),
        ] {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
        let streams = self.streams();
        let mut figure = |name: &str, kind: &str, help: &str, value: &dyn Fn(&StreamHealth) -> f64| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (stream, condition) in streams.iter() {
                // The names of resources and namespaces have nothing in them that is to be escaped.
                let _ = writeln!(text, "{name}{{stream=\"{stream}\"}} {}", value(condition));
            }
        };
        figure(
            "kopf_stream_trouble_seconds",
            "gauge",
            "For how long a stream is in trouble.",
            &|condition| condition.trouble.map_or(0.0, |(_, since)| now.seconds_since(since).max(0.0)),
        );
        figure(
            "kopf_stream_failures_total",
            "counter",
            "How often a stream was refused or broken.",
            &|condition| {
                // Exact as long as anybody counts.
                f64::from(u32::try_from(condition.failures).unwrap_or(u32::MAX))
            },
        );
        figure(
            "kopf_stream_rejected_objects",
            "gauge",
            "How many objects of a stream cannot be read and are not handled.",
            &|condition| f64::from(u32::try_from(condition.rejected).unwrap_or(u32::MAX)),
        );
        text
    }

    fn expected(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<String, StreamHealth>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn told(health: &Health) -> (Value, Value) {
        let all = health.to_json();
        (all["streams"][0]["trouble"].clone(), all["streams"][0]["seconds"].clone())
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_lasts_from_its_beginning_until_something_is_heard() {
        let health = Health::new(Clock::start());
        health.troubled("s", StreamFailure::Broken, Some("no route".to_owned()));
        tokio::time::advance(Duration::from_mins(1)).await;
        health.troubled("s", StreamFailure::Refused, Some("403".to_owned()));
        assert_eq!(told(&health), (json!("refused"), json!(60.0)));
        assert!(health.to_metrics().contains("\nkopf_stream_trouble_seconds{stream=\"s\"} 60\n"));
        assert!(health.to_metrics().contains("\nkopf_stream_failures_total{stream=\"s\"} 2\n"));
        health.on_data("s");
        assert_eq!(told(&health), (Value::Null, Value::Null));
        assert_eq!(health.to_json()["streams"][0]["last_error"], json!("403"));
        health.forget("s");
        assert_eq!(health.to_json(), json!({"streams": [], "expected": 0, "missing": []}));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_must_be_there_and_is_not_is_missing() {
        let health = Health::new(Clock::start());
        health.selected("here", &[]);
        health.expect(BTreeSet::from(["here".to_owned(), "there".to_owned()]));
        assert_eq!(health.missing(), ["there"]);
        assert_eq!(health.to_json()["missing"], json!(["there"]));
        assert!(health.to_metrics().contains("\nkopf_streams_expected 2\n"));
        assert!(health.to_metrics().contains("\nkopf_streams_missing 1\n"));
        health.forget("here");
        assert_eq!(health.missing().len(), 2);
        health.expect(BTreeSet::new());
        assert!(health.missing().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_over_when_something_is_heard_and_no_failure() {
        let health = Health::new(Clock::start());
        health.troubled("s", StreamFailure::Silent, None);
        health.accepted("s");
        assert_eq!(told(&health).0, json!("silent"));
        assert_eq!(health.to_json()["streams"][0]["failures"], json!(0));
        health.selected("s", &[("labelSelector", "a=b".to_owned())]);
        assert_eq!(health.to_json()["streams"][0]["selectors"], json!({"labelSelector": "a=b"}));
        health.on_data("s");
        assert_eq!(told(&health).0, Value::Null);
        health.troubled("s", StreamFailure::Broken, None);
        health.accepted("s");
        assert_eq!(told(&health).0, Value::Null);
    }
}
