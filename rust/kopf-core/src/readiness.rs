//! Readiness at the start: the streams that reconcilers and handlers wait for, and the reports about the missing ones (1.11, 2.4).

use std::collections::BTreeMap;

use crate::durations::Seconds;
use crate::time::Timestamp;

/// The state of one required stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// No response has arrived yet.
    Unanswered,
    /// The resource does not exist.
    NoSuchKind,
    /// The last request was rejected or has failed, with this error.
    Failed(String),
    /// The first complete list has arrived. Later failures do not end this: the last known states are shown (2.4).
    Listed,
}

/// Whether a required stream is awaited while its kind does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The primary kind of a reconciler, and its owned and watched kinds (1.11.1).
    Kind,
    /// A cache: kinds that do not exist are not awaited (2.4).
    Cache,
}

/// The barrier before the first call of one reconciler, or of all handlers of an operator.
///
/// Once it is open, it stays open.
#[derive(Clone, Debug)]
pub struct ReadinessBarrier {
    streams: BTreeMap<String, (Requirement, StreamState)>,
    are_handlers_ready: bool,
    since: Timestamp,
    next_warning: Timestamp,
    is_open: bool,
}

impl ReadinessBarrier {
    /// A barrier that waits for these streams, named by their resources, and for the startup handlers and indices.
    pub fn new(
        streams: impl IntoIterator<Item = (String, Requirement)>,
        warn_after: f64,
        now: Timestamp,
    ) -> Self {
        let mut all: BTreeMap<String, (Requirement, StreamState)> = BTreeMap::new();
        for (name, requirement) in streams {
            let stream = all.entry(name).or_insert((requirement, StreamState::Unanswered));
            if requirement == Requirement::Kind {
                stream.0 = Requirement::Kind;
            }
        }
        let next_warning = now.plus(warn_after);
        Self { streams: all, are_handlers_ready: false, since: now, next_warning, is_open: false }
    }

    /// Records that the startup handlers are done and the indices are filled.
    pub fn set_handlers_ready(&mut self) {
        self.are_handlers_ready = true;
        self.open_if_ready();
    }

    /// Records the state of a stream. Streams that are not required are ignored, and so is a failure after the first list.
    pub fn set_stream(&mut self, name: &str, state: StreamState) {
        if let Some((_, known)) = self.streams.get_mut(name)
            && *known != StreamState::Listed
        {
            *known = state;
        }
        self.open_if_ready();
    }

    /// The names of the required streams.
    pub fn names(&self) -> Vec<String> {
        self.streams.keys().cloned().collect()
    }

    /// Whether calls may start.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The missing streams with the reasons, for warnings, `/streams` and the readiness endpoint.
    pub fn missing(&self) -> Vec<String> {
        let missing = |(name, (requirement, state)): (&String, &(Requirement, StreamState))| {
            Some(match (state, requirement) {
                (StreamState::Listed, _) | (StreamState::NoSuchKind, Requirement::Cache) => return None,
                (StreamState::Unanswered, _) => format!("list {name}: no response yet"),
                (StreamState::NoSuchKind, Requirement::Kind) => format!("list {name}: no such kind"),
                (StreamState::Failed(error), _) => format!("list {name}: {error}"),
            })
        };
        let handlers = (!self.are_handlers_ready).then(|| "startup handlers and indices".to_owned());
        handlers.into_iter().chain(self.streams.iter().filter_map(missing)).collect()
    }

    /// The time of the next warning; none if the barrier is open.
    pub fn next_warning(&self) -> Option<Timestamp> {
        (!self.is_open).then_some(self.next_warning)
    }

    /// The warning that is due now, if any. It is repeated after each `warn_after` seconds; there is no timeout, because
    /// permissions may be granted late.
    pub fn warning(&mut self, subject: &str, warn_after: f64, now: Timestamp) -> Option<String> {
        if self.is_open || now < self.next_warning {
            return None;
        }
        self.next_warning = now.plus(warn_after);
        let seconds = Seconds(now.seconds_since(self.since).round());
        Some(format!("{subject} has been waiting for {seconds} s. Missing: {}", self.missing().join("; ")))
    }

    fn open_if_ready(&mut self) {
        let is_missing = |stream: &(Requirement, StreamState)| {
            !matches!(stream, (_, StreamState::Listed) | (Requirement::Cache, StreamState::NoSuchKind))
        };
        // There may be thousands of streams: nothing is formatted, and the first missing one is sufficient.
        self.is_open = self.is_open || (self.are_handlers_ready && !self.streams.values().any(is_missing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    fn barrier(streams: &[(&str, Requirement)]) -> ReadinessBarrier {
        let streams = streams.iter().map(|(name, requirement)| ((*name).to_owned(), *requirement));
        ReadinessBarrier::new(streams, 30.0, at(0.0))
    }

    #[test]
    fn s1_11_1_all_required_streams_are_listed_first() {
        let mut barrier = barrier(&[("shops", Requirement::Kind), ("pods", Requirement::Cache)]);
        barrier.set_stream("shops", StreamState::Listed);
        barrier.set_stream("other", StreamState::Failed("403".to_owned()));
        barrier.set_handlers_ready();
        assert!(!barrier.is_open());
        barrier.set_stream("pods", StreamState::Listed);
        assert!(barrier.is_open());
        barrier.set_stream("pods", StreamState::Failed("500".to_owned()));
        assert!(barrier.is_open() && barrier.next_warning().is_none());
    }

    #[test]
    fn s2_4_only_caches_of_kinds_that_do_not_exist_are_not_awaited() {
        for (requirement, expected) in [(Requirement::Cache, true), (Requirement::Kind, false)] {
            let mut barrier = barrier(&[("pods", requirement)]);
            barrier.set_handlers_ready();
            barrier.set_stream("pods", StreamState::NoSuchKind);
            assert_eq!(barrier.is_open(), expected, "{requirement:?}");
        }
        let mut both = barrier(&[("pods", Requirement::Kind), ("pods", Requirement::Cache)]);
        both.set_handlers_ready();
        both.set_stream("pods", StreamState::NoSuchKind);
        assert!(!both.is_open());
    }

    #[test]
    fn s1_14_20_three_warnings_in_90_seconds_name_the_causes() {
        let mut barrier = barrier(&[("deployments.apps", Requirement::Kind), ("widgets", Requirement::Kind)]);
        barrier.set_handlers_ready();
        barrier.set_stream("deployments.apps", StreamState::Failed("403 Forbidden".to_owned()));
        barrier.set_stream("widgets", StreamState::NoSuchKind);
        let warnings: Vec<_> = (0..=95)
            .filter_map(|now| barrier.warning("Reconciler 'sync'", 30.0, at(f64::from(now))))
            .collect();
        assert_eq!(warnings.len(), 3);
        assert_eq!(
            warnings[0],
            "Reconciler 'sync' has been waiting for 30 s. Missing: list deployments.apps: 403 Forbidden; \
             list widgets: no such kind"
        );
        barrier.set_stream("deployments.apps", StreamState::Listed);
        assert_eq!(barrier.missing(), ["list widgets: no such kind"]);
        barrier.set_stream("widgets", StreamState::Listed);
        assert!(barrier.is_open() && barrier.warning("x", 30.0, at(900.0)).is_none());
    }

    #[test]
    fn startup_handlers_and_indices_are_awaited() {
        let mut barrier = barrier(&[]);
        assert_eq!((barrier.is_open(), barrier.missing().len()), (false, 1));
        barrier.set_handlers_ready();
        assert!(barrier.is_open());
    }
}
