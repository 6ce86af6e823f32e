//! Health: the checks of the endpoints `/livez`, `/readyz` and `/startupz`, and the text of their responses.
//!
//! Liveness fails only if a restart would help; readiness, while the pod must not receive traffic. Problems of the API server never
//! fail liveness. The input of [`evaluate`] is the age of each signal in seconds. [`trackers`] compute such ages from samples.

pub mod trackers;

use std::fmt::Write as _;

use serde::Deserialize;

use crate::durations::Seconds;

/// The limits of the checks, in seconds; without a limit, the check is disabled.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct HealthLimits {
    /// The time without a heartbeat of the host's event loop.
    pub loop_limit: Option<f64>,
    /// The time in which the orchestrator's task has not run.
    pub engine_limit: Option<f64>,
    /// The time for which a task waits in the queue to the host, although the event loop sends heartbeats.
    pub border_limit: Option<f64>,
    /// The time for which an expected stream has no task.
    pub supervision_limit: Option<f64>,
    /// The time without any progress of a stream.
    pub deaf_limit: Option<f64>,
    /// The time for which a cycle is inside the engine.
    pub stall_limit: Option<f64>,
    /// The duration of a handler call, except of daemons.
    pub handler_limit: Option<f64>,
    /// The time for which all credentials are rejected.
    pub credentials_limit: Option<f64>,
    /// Whether failing streams make the operator unready also after the first listing.
    pub ready_needs_streams: bool,
    /// Which replicas are ready.
    pub ready_when: ReadyWhen,
}

/// Which replicas of a leader election are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadyWhen {
    /// Those that have received the state of the cluster.
    #[default]
    Synced,
    /// Only the leader.
    Leading,
}

impl Default for HealthLimits {
    fn default() -> Self {
        Self {
            loop_limit: Some(60.0),
            engine_limit: Some(30.0),
            border_limit: Some(120.0),
            supervision_limit: Some(60.0),
            deaf_limit: Some(300.0),
            stall_limit: Some(900.0),
            handler_limit: None,
            credentials_limit: Some(15.0),
            ready_needs_streams: false,
            ready_when: ReadyWhen::Synced,
        }
    }
}

/// An endpoint with its own selection of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/livez`: would a restart help?
    Live,
    /// `/readyz`: may this pod receive traffic?
    Ready,
    /// `/startupz`: has the startup completed?
    Start,
}

impl Endpoint {
    /// The endpoint of this path.
    pub fn of_path(path: &str) -> Option<Self> {
        match path {
            "/livez" => Some(Self::Live),
            "/readyz" | "/ready" => Some(Self::Ready),
            "/startupz" => Some(Self::Start),
            _ => None,
        }
    }
}

/// A name and for how many seconds its problem lasts.
pub type Aged = (String, f64);

/// A stream that should exist.
#[derive(Clone, Debug, Default)]
pub struct StreamSignal {
    /// The resource and the namespace.
    pub name: String,
    /// For how long it has no task.
    pub missing: Option<f64>,
    /// For how long it has made no progress: no byte, no answered connection, no failed attempt.
    pub idle: f64,
    /// The timeout of its current wait; none if there is no timeout.
    pub allowance: Option<f64>,
}

/// The ages of all signals, in seconds.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// The time since the last heartbeat of the host's event loop; none if it sends none.
    pub heartbeat: Option<f64>,
    /// The time since the orchestrator's task has run.
    pub orchestrator: f64,
    /// The age of the oldest task in the queue to the host.
    pub queue: f64,
    /// The streams that should exist.
    pub streams: Vec<StreamSignal>,
    /// The objects whose cycles are inside the engine.
    pub cycles: Vec<Aged>,
    /// The oldest running call of a handler.
    pub call: Option<f64>,
    /// The missing condition of the startup.
    pub starting: Option<String>,
    /// The streams, indices and caches that are not ready yet.
    pub unsynced: Vec<String>,
    /// The streams that were neither listed nor rejected yet.
    pub unanswered: Vec<String>,
    /// The streams that fail, with their failure.
    pub troubled: Vec<(String, &'static str, f64)>,
    /// The problem of the webhook server.
    pub webhooks: Option<String>,
    /// For how long all credentials are rejected.
    pub rejected: f64,
    /// Whether the operator is stopping.
    pub is_stopping: bool,
    /// The part of the operator in a leader election; none without it.
    pub leadership: Option<LeadershipSignal>,
}

/// The part of a replica in a leader election.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeadershipSignal {
    /// Whether it leads.
    pub is_leading: bool,
    /// For how long its fence has been closed although it was the leader.
    pub overdue: f64,
    /// The duration of the lease.
    pub lease_duration: f64,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The name of the check.
    pub name: &'static str,
    /// The endpoints that have the check.
    pub endpoints: &'static [Endpoint],
    /// Why it fails; none if it passes.
    pub failure: Option<String>,
}

const LIVE: &[Endpoint] = &[Endpoint::Live];
const READY: &[Endpoint] = &[Endpoint::Ready];
const START: &[Endpoint] = &[Endpoint::Start];
const START_AND_READY: &[Endpoint] = &[Endpoint::Start, Endpoint::Ready];

/// The results of all checks, except for the probes. `extension` is added to all limits, in seconds: the process was suspended.
pub fn evaluate(signals: &Signals, limits: &HealthLimits, extension: f64) -> Vec<CheckResult> {
    let exceeds = |age: f64, limit: Option<f64>| limit.is_some_and(|limit| age > limit + extension);
    let check = |name, endpoints, failure| CheckResult { name, endpoints, failure };
    let heartbeat = signals.heartbeat.filter(|age| exceeds(*age, limits.loop_limit));
    let mut results = vec![
        check("loop", LIVE, heartbeat.map(|age| format!("no heartbeat for {}", shown(age)))),
        check("engine", LIVE, {
            let is_late = exceeds(signals.orchestrator, limits.engine_limit);
            is_late.then(|| format!("the orchestrator has not run for {}", shown(signals.orchestrator)))
        }),
        check("border", LIVE, {
            let is_late = exceeds(signals.queue, limits.border_limit);
            is_late.then(|| format!("a task has waited for Python for {}", shown(signals.queue)))
        }),
        check("streams", LIVE, {
            let missing = |stream: &StreamSignal| {
                let age = stream.missing.filter(|age| exceeds(*age, limits.supervision_limit))?;
                Some(format!("{} has had no task for {}", stream.name, shown(age)))
            };
            joined(signals.streams.iter().filter_map(missing))
        }),
        check("deaf", LIVE, {
            let deaf = |stream: &StreamSignal| {
                let limit = limits.deaf_limit?.max(stream.allowance?);
                let is_deaf = stream.missing.is_none() && exceeds(stream.idle, Some(limit));
                is_deaf.then(|| format!("{} silent for {}", stream.name, shown(stream.idle)))
            };
            joined(signals.streams.iter().filter_map(deaf))
        }),
        check("stuck", LIVE, {
            let late = signals.cycles.iter().filter(|(_, age)| exceeds(*age, limits.stall_limit));
            joined(late.map(|(key, age)| format!("the cycle of {key} is in the engine for {}", shown(*age))))
        }),
        check("handlers", LIVE, {
            let late = signals.call.filter(|age| exceeds(*age, limits.handler_limit));
            late.map(|age| format!("a handler has been running for {}", shown(age)))
        }),
    ];
    results.extend(readiness(signals, limits, extension));
    if let Some(leadership) = &signals.leadership {
        let is_overdue = leadership.overdue > leadership.lease_duration + extension;
        results.push(check("leader", LIVE, {
            is_overdue.then(|| format!("the lease was lost {} ago", shown(leadership.overdue)))
        }));
        if limits.ready_when == ReadyWhen::Leading {
            let failure = (!leadership.is_leading).then(|| "another replica is the leader".to_owned());
            results.push(check("leading", READY, failure));
        }
    }
    results
}

fn readiness(signals: &Signals, limits: &HealthLimits, extension: f64) -> [CheckResult; 6] {
    let check = |name, endpoints, failure| CheckResult { name, endpoints, failure };
    let troubled = signals.troubled.iter().filter(|_| limits.ready_needs_streams);
    let troubled = troubled.map(|(name, failure, age)| format!("{name} {failure} for {}", shown(*age)));
    let is_rejected = limits.credentials_limit.is_some_and(|limit| signals.rejected > limit + extension);
    [
        check("started", START_AND_READY, signals.starting.clone()),
        check("synced", READY, joined(signals.unsynced.iter().cloned().chain(troubled))),
        check("synced", START, joined(signals.unanswered.iter().cloned())),
        check("webhooks", READY, signals.webhooks.clone()),
        check(
            "credentials",
            READY,
            is_rejected.then(|| format!("all credentials are rejected for {}", shown(signals.rejected))),
        ),
        check("stopping", READY, signals.is_stopping.then(|| "the operator is stopping".to_owned())),
    ]
}

/// The only check before the engine runs: the startup is in progress.
pub fn evaluate_startup() -> Vec<CheckResult> {
    let failure = Some("the startup handlers have not finished".to_owned());
    vec![CheckResult { name: "started", endpoints: START_AND_READY, failure }]
}

/// The result of the probes: `None` if they have passed or if there are none.
pub fn probes_result(failure: Option<String>) -> CheckResult {
    CheckResult { name: "probes", endpoints: LIVE, failure }
}

/// Whether all checks of the endpoint pass, except for those to exclude.
pub fn is_passing(results: &[CheckResult], endpoint: Endpoint, excluded: &[&str]) -> bool {
    selected(results, endpoint, excluded).all(|result| result.failure.is_none())
}

/// The body of the response of an endpoint: `ok`, or one line per failed check. With `is_verbose`, one line per check.
pub fn report(results: &[CheckResult], endpoint: Endpoint, excluded: &[&str], is_verbose: bool) -> String {
    let mut text = String::new();
    for result in selected(results, endpoint, excluded) {
        let _ = match &result.failure {
            Some(failure) => writeln!(text, "[-]{} failed: {failure}", result.name),
            None if is_verbose => writeln!(text, "[+]{} ok", result.name),
            None => Ok(()),
        };
    }
    if text.is_empty() { "ok".to_owned() } else { text }
}

fn selected<'a>(
    results: &'a [CheckResult],
    endpoint: Endpoint,
    excluded: &'a [&str],
) -> impl Iterator<Item = &'a CheckResult> {
    results
        .iter()
        .filter(move |result| result.endpoints.contains(&endpoint) && !excluded.contains(&result.name))
}

/// The failures in one line; none if there are none. Many are abbreviated.
fn joined(failures: impl Iterator<Item = String>) -> Option<String> {
    const SHOWN: usize = 10;
    let all: Vec<String> = failures.collect();
    let more = all.len().saturating_sub(SHOWN);
    let text = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ").replace('\n', " ");
    match (all.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(text),
        (false, more) => Some(format!("{text}; and {more} more")),
    }
}

fn shown(seconds: f64) -> String {
    format!("{} s", Seconds(seconds.round()))
}

#[cfg(test)]
mod tests;
