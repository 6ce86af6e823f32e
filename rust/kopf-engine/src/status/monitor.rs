//! The health monitor: it samples the signals of a running operator, and evaluates its checks. The rules are in
//! `kopf_core::health`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kopf_core::handler::{Handler, Kind};
use kopf_core::health::trackers::{QueueAge, Suspensions, Unchanged};
use kopf_core::health::{CheckResult, HealthLimits, LeadershipSignal, Signals, StreamSignal, evaluate};
use tokio::time::sleep;

use super::heartbeats::Threads;
use super::{Awaited, Heartbeats, HostLoad};
use crate::admission::AdmissionRouter;
use crate::client::Client;
use crate::client::usage::{Attempts, RequestPermits};
use crate::context::DispatchContext;
use crate::leadership::Replica;
use crate::metrics::{Histogram, OperatorMetrics, ResourceTable, ReviewMetrics, Samples};
use crate::watch_health::{StreamSample, WatchHealth};

/// The interval of evaluations. Suspensions are noticed by longer ones.
const INTERVAL: Duration = Duration::from_secs(1);
/// The interval until the streams are listed: a candidate waits for it.
const UNSYNCED_INTERVAL: Duration = Duration::from_millis(100);
/// So many samples of the workers are taken within the limit of the check `stuck`: they visit all objects.
const WORKER_SAMPLES: f64 = 30.0;

/// The monitored parts of an operator.
pub struct Monitored {
    /// The context of the dispatchers.
    pub dispatch: Arc<DispatchContext>,
    /// The streams.
    pub health: Arc<WatchHealth>,
    /// The parts that must be ready.
    pub awaited: Awaited,
    /// The webhooks.
    pub admission: Arc<AdmissionRouter>,
    /// The heartbeats.
    pub heartbeats: Arc<Heartbeats>,
    /// The part in a leader election, if there is one.
    pub replica: Option<Arc<Replica>>,
}

/// Samples the signals of a running operator, and evaluates its checks.
pub struct HealthMonitor {
    monitored: Monitored,
    limits: HealthLimits,
    trackers: Mutex<Trackers>,
}

/// The values that are read for the metrics only.
pub(super) struct Gauges {
    /// The seconds since the last heartbeat of the host's event loop; none before the first one.
    pub(super) loop_tick_age: Option<f64>,
    /// The tasks that the host has not taken yet.
    pub(super) waiting_tasks: u64,
    /// The age of the oldest of them in seconds, by samples.
    pub(super) oldest_task: f64,
    /// The request permits of the client.
    pub(super) permits: RequestPermits,
    /// The attempts of requests so far.
    pub(super) attempts: Vec<Attempts>,
    /// The address of the API server.
    pub(super) server: String,
    /// The threads of synchronous handlers; none before the first heartbeat.
    pub(super) threads: Option<Threads>,
    /// The values of the metrics of resources and handlers.
    pub(super) samples: Samples,
}

#[derive(Default)]
struct Trackers {
    suspensions: Suspensions,
    queue: QueueAge,
    missing: Unchanged<String, ()>,
    activity: Unchanged<String, u64>,
    /// By object: the worker and its steps.
    workers: Unchanged<String, (usize, u32)>,
    objects: Vec<String>,
    next_worker_sample: f64,
    rejected: Unchanged<(), ()>,
    overdue: Unchanged<(), ()>,
    /// All streams were listed once: later failures do not end this.
    is_synced: bool,
    /// All streams were listed or rejected once.
    is_answered: bool,
    was_logged_in: bool,
}

impl HealthMonitor {
    /// A monitor with the limits of the settings at the start.
    pub fn new(monitored: Monitored) -> Self {
        let limits = monitored.dispatch.base.startup_config.settings.health.clone();
        Self { monitored, limits, trackers: Mutex::default() }
    }

    /// Takes samples until it is cancelled.
    pub async fn run(&self) {
        loop {
            self.evaluate();
            sleep(INTERVAL).await;
        }
    }

    /// The results of all checks now, except for the probes.
    pub fn evaluate(&self) -> Vec<CheckResult> {
        let mut trackers = self.trackers();
        let now = self.monitored.heartbeats.now();
        let extension = trackers.suspensions.observe(now);
        let signals = self.sample(&mut trackers, now);
        evaluate(&signals, &self.limits, extension)
    }

    /// The values for the metrics now.
    pub(super) fn gauges(&self) -> Gauges {
        // Before the lock of the trackers.
        let streams = self.monitored.health.samples().unwrap_or_default();
        let mut trackers = self.trackers();
        let Monitored { dispatch, heartbeats, .. } = &self.monitored;
        let (now, position) = (heartbeats.now(), dispatch.base.host.queue_position());
        let loop_tick_age = heartbeats.host_age(now);
        let HostLoad { calls, threads } = heartbeats.load(now);
        let mut silences = BTreeMap::new();
        let is_running = |stream: &StreamSample| stream.activity.is_some() && !stream.is_held;
        for stream in streams.into_iter().filter(is_running) {
            let age = trackers.activity.age(&stream.name, now).unwrap_or_default();
            let longest: &mut f64 = silences.entry(stream.resource).or_default();
            *longest = longest.max(age);
        }
        let (dispatchers, runs) = (dispatch.detached.samples(), dispatch.daemons.manager.run_counts());
        Gauges {
            threads: loop_tick_age.is_some().then_some(threads),
            samples: Samples { dispatchers, runs, calls, silences },
            loop_tick_age,
            waiting_tasks: position.submitted.saturating_sub(position.taken),
            oldest_task: trackers.queue.observe(position, loop_tick_age, now),
            permits: dispatch.base.client.request_permits(),
            attempts: dispatch.base.client.attempts(),
            server: dispatch.base.client.current_server(),
        }
    }

    /// The counters of the operator.
    pub(super) fn metrics(&self) -> &OperatorMetrics {
        &self.monitored.dispatch.base.metrics
    }

    /// The counters of the admission reviews.
    pub(super) fn reviews(&self) -> &ResourceTable<ReviewMetrics> {
        self.monitored.admission.reviews()
    }

    /// The client of the operator.
    pub(super) fn client(&self) -> &Client {
        &self.monitored.dispatch.base.client
    }

    /// How late the heartbeats of the host's event loop were.
    pub(super) fn lag(&self) -> &Histogram {
        self.monitored.heartbeats.lag()
    }

    /// The part in a leader election, if there is one.
    pub(super) fn replica(&self) -> Option<&Arc<Replica>> {
        self.monitored.replica.as_ref()
    }

    /// Reports to the elector whether the replica can work and has received the state of the cluster, until it is cancelled.
    pub async fn run_for_election(&self) {
        /// The checks of a replica that cannot work: it must not hold the lease.
        const NEEDED: [&str; 3] = ["loop", "border", "stuck"];
        let Some(replica) = &self.monitored.replica else { return };
        loop {
            let results = self.evaluate();
            let mut failed = results.iter().filter(|result| result.failure.is_some());
            let is_healthy = !failed.any(|result| NEEDED.contains(&result.name));
            let is_synced = self.trackers().is_synced;
            replica.report(is_healthy, is_synced);
            let clock = &self.monitored.dispatch.base.clock;
            clock.sleep(if is_synced { INTERVAL } else { UNSYNCED_INTERVAL }).await;
        }
    }

    /// The declared handlers.
    pub(super) fn handlers(&self) -> &[Handler] {
        &self.monitored.dispatch.base.startup_config.registry.handlers
    }

    /// The state of the operator in one word.
    pub fn state(&self) -> &'static str {
        let is_synced = self.trackers().is_synced;
        let dispatch = &self.monitored.dispatch;
        match () {
            () if dispatch.base.stopping.is_cancelled() => "stopping",
            () if dispatch.pause.is_standby() => "standby",
            () if dispatch.pause.is_on() => "paused",
            () if is_synced => "active",
            () => "syncing",
        }
    }

    fn sample(&self, trackers: &mut Trackers, now: f64) -> Signals {
        let Monitored { dispatch, health, admission, heartbeats, .. } = &self.monitored;
        let (base, samples) = (&dispatch.base, health.samples());
        let heartbeat = heartbeats.host_age(now);
        let queue = trackers.queue.observe(base.host.queue_position(), heartbeat, now);
        let is_rejected = base.client.is_rejected();
        trackers.rejected.observe(is_rejected.then_some(((), ())), now);
        trackers.was_logged_in |= base.client.is_logged_in();
        let has_webhooks = self.handlers().iter().any(|handler| matches!(handler.kind, Kind::Webhook(_)));
        let webhooks =
            has_webhooks.then(|| admission.subscribe().borrow().problem(base.clock.now())).flatten();
        self.sample_workers(trackers, now);
        Signals {
            heartbeat,
            orchestrator: heartbeats.orchestrator_age(now),
            queue,
            unsynced: self.unsynced(trackers, samples.as_deref()),
            unanswered: self.unanswered(trackers, samples.as_deref()),
            troubled: samples
                .iter()
                .flatten()
                .filter_map(|it| it.failure.map(|(failure, age)| (it.name.clone(), failure, age)))
                .collect(),
            streams: streams(trackers, samples.unwrap_or_default(), now),
            cycles: trackers
                .objects
                .iter()
                .filter_map(|object| Some((object.clone(), trackers.workers.age(object, now)?)))
                .collect(),
            call: heartbeats.call_age(now),
            starting: (!trackers.was_logged_in).then(|| "the operator is not logged in".to_owned()),
            webhooks,
            rejected: trackers.rejected.age(&(), now).unwrap_or_default(),
            is_stopping: base.stopping.is_cancelled(),
            leadership: self.monitored.replica.as_ref().map(|replica| LeadershipSignal {
                is_leading: replica.is_leading(),
                overdue: overdue(trackers, replica, now),
                lease_duration: replica.lease_duration(),
            }),
        }
    }

    fn sample_workers(&self, trackers: &mut Trackers, now: f64) {
        let Some(limit) = self.limits.stall_limit.filter(|_| now >= trackers.next_worker_sample) else {
            return;
        };
        trackers.next_worker_sample = now + limit / WORKER_SAMPLES;
        let inside = self.monitored.dispatch.detached.inside();
        trackers.objects = inside.iter().map(|worker| worker.object.clone()).collect();
        trackers
            .workers
            .observe(inside.into_iter().map(|worker| (worker.object, (worker.id, worker.steps))), now);
    }

    /// The streams, indices and caches that are not ready. While the operator is paused, streams are not listed, but it is ready: readiness that depends on
    /// other operators would block rolling updates.
    fn unsynced(&self, trackers: &mut Trackers, samples: Option<&[StreamSample]>) -> Vec<String> {
        let mut unsynced = self.unlisted(samples, trackers.is_synced, |stream| stream.is_listed);
        trackers.is_synced |= unsynced.is_empty() && !self.monitored.dispatch.pause.holds_streams();
        let Awaited { reconcilers, caches, index_gate } = &self.monitored.awaited;
        let is_indexing = index_gate.as_ref().is_some_and(|gate| !gate.is_open());
        unsynced.extend(is_indexing.then(|| "indices".to_owned()));
        unsynced.extend(caches.iter().flat_map(|caches| caches.missing()));
        unsynced.extend(reconcilers.iter().flat_map(|reconcilers| reconcilers.missing()));
        unsynced
    }

    /// The streams that were neither listed nor rejected yet.
    fn unanswered(&self, trackers: &mut Trackers, samples: Option<&[StreamSample]>) -> Vec<String> {
        let is_answered = |stream: &StreamSample| stream.is_listed || stream.is_rejected;
        let unanswered = self.unlisted(samples, trackers.is_answered, is_answered);
        trackers.is_answered |= unanswered.is_empty();
        unanswered
    }

    fn unlisted(
        &self,
        samples: Option<&[StreamSample]>,
        is_known: bool,
        is_done: impl Fn(&StreamSample) -> bool,
    ) -> Vec<String> {
        if is_known || self.monitored.dispatch.pause.holds_streams() {
            return vec![];
        }
        let Some(samples) = samples else { return vec!["the cluster is not scanned yet".to_owned()] };
        let unlisted = samples.iter().filter(|stream| !is_done(stream));
        unlisted.map(|stream| format!("{} {}", stream.name, stream.problem)).collect()
    }

    fn trackers(&self) -> MutexGuard<'_, Trackers> {
        self.trackers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long the fence has been closed although the replica was the leader.
fn overdue(trackers: &mut Trackers, replica: &Replica, now: f64) -> f64 {
    trackers.overdue.observe(replica.is_overdue().then_some(((), ())), now);
    trackers.overdue.age(&(), now).unwrap_or_default()
}

fn streams(trackers: &mut Trackers, samples: Vec<StreamSample>, now: f64) -> Vec<StreamSignal> {
    let missing = samples.iter().filter(|it| it.activity.is_none());
    trackers.missing.observe(missing.map(|it| (it.name.clone(), ())), now);
    let active = samples.iter().filter_map(|it| Some((it.name.clone(), it.activity?.0)));
    trackers.activity.observe(active, now);
    let signal = |sample: StreamSample| StreamSignal {
        missing: trackers.missing.age(&sample.name, now),
        idle: trackers.activity.age(&sample.name, now).unwrap_or_default(),
        allowance: sample.activity.and_then(|(_, timeout)| timeout),
        name: sample.name,
    };
    samples.into_iter().map(signal).collect()
}

#[cfg(test)]
mod tests;
