//! The operator of the model: a driver of the core's `ObjectWorker`, which can be interrupted between any two effects.
//!
//! It executes the actions of the real state machine of the object, one at a time, as the engine's worker does. Between any two,
//! it can crash, or another client can change the object. It reports calls of handlers to `Oracle`, which must not depend on how
//! they came about.

use crate::cluster::{Cluster, Version};
use crate::host;
use crate::injected_defects::Defect;
use crate::oracle::Oracle;
use crate::scenarios::Scenario;
use crate::writing::Writing;
use kopf_core::cause::EventType;
use kopf_core::cycle::{Cycle, Decision, Effect};
use kopf_core::daemon;
use kopf_core::json::merge_patch::Patch;
use kopf_core::object_worker::{
    DecisionResult, NextAction, ObjectWorker, OperatorState, QueuedEvent, SleepKind, WorkerContext,
};
use kopf_core::persistence::finalizer::Edit;
use kopf_core::persistence::memory::HandlingStatus;
use kopf_core::persistence::observed_essences::ObservedEssences;
use kopf_core::time::Timestamp;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The state of the driver between two effects.
#[derive(Clone, Debug)]
pub enum Stage {
    /// The object has no driver.
    Idle,
    /// A cycle is to be opened for this event.
    Started(QueuedEvent),
    /// The object is to be asked for its next action.
    Free,
    /// A cycle waits for the watch event of our last write.
    Waiting(Box<Waiting>),
    /// A cycle has ended, and its decision is being written.
    Writing(Box<Writing>),
}

#[derive(Clone, Debug)]
pub struct Waiting {
    pub running: Cycle,
    pub opened: Timestamp,
    patch: Map<String, Value>,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The API server accepts it.
    Accepted,
    /// The API server rejects it.
    Rejected,
    /// The API server accepts it, but the response is lost.
    Lost,
    /// The API server rejects the content.
    Refused,
    /// The API server accepts it, and again, since the client has sent it again: the first response was lost.
    Repeated,
    /// The API server accepts it, but the response cannot be parsed.
    Garbled,
    /// The API server responds with a conflict, which is not one with this request.
    Conflict,
    /// The resource is not served for a while: a 404 that does not name the object. The watch is interrupted, too.
    Unserved,
    /// It is not sent: the replica does not lead any more. The end of the term follows.
    Fenced,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Operator {
    pub up: bool,
    pub known: bool,
    pub worker: ObjectWorker,
    pub stage: Stage,
    pub running: Vec<usize>,
    pub ended: Vec<Arc<str>>,
    /// Whether running daemons are requested to stop.
    pub stop_requested: bool,
    /// The version that daemons observe.
    pub seen: Option<Arc<Version>>,
    /// Whether the awaited watch event may never come.
    pub in_doubt: bool,
    /// Whether the next event is ignored (`Defect::SkipsNext`).
    pub skipping: bool,
    /// Whether the operator is paused: other operators may handle the object. So is a replica that does not lead.
    pub paused: bool,
    /// Whether the replica does not lead.
    pub is_standby: bool,
    /// Whether no requests are sent any more, since the lease has expired.
    pub is_fenced: bool,
    /// Whether the watch is interrupted, so that a listing follows.
    pub is_disconnected: bool,
}

impl Operator {
    pub fn new() -> Self {
        Self {
            up: true,
            known: false,
            worker: ObjectWorker::default(),
            stage: Stage::Idle,
            running: Vec::new(),
            ended: Vec::new(),
            stop_requested: false,
            seen: None,
            in_doubt: false,
            skipping: false,
            paused: false,
            is_standby: false,
            is_fenced: false,
            is_disconnected: false,
        }
    }

    /// Forgets the object, but not the state of the operator.
    fn forget(&mut self) {
        let Self { paused, is_standby, is_fenced, is_disconnected, .. } = *self;
        *self = Self { paused, is_standby, is_fenced, is_disconnected, ..Self::new() };
    }

    /// The operator crashes and loses its memory.
    pub fn crash(&mut self, oracle: &mut Oracle) {
        oracle.crashed();
        *self = Self { up: false, ..Self::new() };
    }

    /// The operator is paused: the watch ends.
    pub fn pause(&mut self, scenario: &Scenario) {
        self.paused = true;
        // The watch event of the last write will not come.
        self.in_doubt = true;
        if scenario.defect != Some(Defect::SleepsThroughPause) {
            self.worker.on_pause();
        }
    }

    /// The pause is over. A listing follows.
    pub fn resume(&mut self) {
        self.paused = false;
        self.worker.memory.invalidate();
        self.worker.drop_outdated();
    }

    /// The replica loses the lease: what runs is cancelled. The calls of handlers have ended.
    pub fn lose(&mut self, scenario: &Scenario, oracle: &mut Oracle, now: Timestamp) {
        oracle.crashed();
        (self.paused, self.is_standby, self.is_fenced, self.in_doubt) = (true, true, false, true);
        if scenario.defect == Some(Defect::ContinuesTerm) {
            return;
        }
        match self.stage {
            Stage::Idle | Stage::Started(_) => {}
            Stage::Free if self.worker.waits_for(now) != Some(SleepKind::Backoff) => self.worker.on_pause(),
            Stage::Free | Stage::Waiting(_) | Stage::Writing(_) => {
                self.worker.on_term_lost();
                self.stage = Stage::Free;
            }
        }
    }

    /// The replica leads again. A listing follows.
    pub fn lead(&mut self) {
        (self.paused, self.is_standby) = (false, false);
        self.worker.begin_term();
        self.worker.drop_outdated();
    }

    /// The watch delivers an event.
    pub fn deliver(&mut self, scenario: &Scenario, kind: EventType, version: &Arc<Version>) {
        if !self.known {
            self.known = true;
            self.worker = ObjectWorker::new(kind);
        } else if scenario.defect == Some(Defect::ResumesAgain) && kind == EventType::Listed {
            self.worker.memory.noticed_by_listing = true;
            self.worker.memory.fully_handled_once = false;
        }
        self.worker.gone &= kind == EventType::Deleted;
        if std::mem::take(&mut self.skipping) {
            return;
        }
        self.seen = Some(Arc::clone(version));
        let mut event = QueuedEvent::of(kind, Arc::clone(&version.object));
        if !scenario.every_event {
            let mut pending = self.worker.pending();
            if scenario.defect == Some(Defect::KeepsOldest) && pending.next().is_some() {
                return;
            }
            if scenario.defect == Some(Defect::MergesKinds) {
                event.kind = self.worker.pending().next().map_or(event.kind, |first| first.kind);
            }
        }
        if scenario.defect == Some(Defect::SleepsThrough) && self.worker.sleep().is_some() {
            return;
        }
        self.take(scenario, event);
    }

    /// Takes an event, as the slot of the object does.
    fn take(&mut self, scenario: &Scenario, event: QueuedEvent) {
        let is_idle = !self.is_busy();
        if is_idle && !self.worker.is_throttled() {
            self.stage = Stage::Started(event);
            return;
        }
        self.worker.enqueue(event, context(scenario));
        if is_idle {
            self.stage = Stage::Free;
        }
    }

    /// A listing does not contain the object.
    pub fn vanish(&mut self) {
        // The engine forgets a busy object when its worker ends; in the model, the difference does not matter.
        self.forget();
    }

    /// The daemons exit after a stop request.
    pub fn exit(&mut self, scenario: &Scenario) {
        self.running.clear();
        self.stop_requested = false;
        if scenario.defect != Some(Defect::EndsUnnoticed)
            && self.known
            && let Some(version) = &self.seen
            && let Some(event) = self.worker.on_wake(Arc::clone(&version.object), self.state(scenario))
        {
            self.take(scenario, event);
        }
    }

    /// The time until which the driver sleeps; none if it is idle or can continue now.
    pub fn sleeping_until(&self, now: Timestamp) -> Option<Timestamp> {
        if !matches!(self.stage, Stage::Free) {
            return None;
        }
        if let Some((_, until)) = self.worker.sleep() {
            return Some(until);
        }
        self.worker.backoff.as_ref()?.remaining(now).map(|left| now.plus(left))
    }

    /// Whether the driver sleeps for delayed handlers.
    pub fn is_sleeping(&self) -> bool {
        self.worker.sleep().is_some()
    }

    /// Whether there is work now or later, without further watch events.
    pub fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Whether a cycle has begun and not ended.
    pub fn is_in_cycle(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_) | Stage::Writing(_))
    }

    /// Whether a pause can begin. An event that has started a cycle opens it at once.
    pub fn may_pause(&self) -> bool {
        !self.paused && !matches!(self.stage, Stage::Started(_))
    }

    /// The state of the operator, as its worker is informed.
    fn state(&self, scenario: &Scenario) -> OperatorState {
        let paused = self.paused && scenario.defect != Some(Defect::SleepsThroughPause);
        OperatorState { paused, stopping: false }
    }

    /// Executes the next effect.
    pub fn step(&mut self, scenario: &Scenario, cluster: &mut Cluster, oracle: &mut Oracle, reply: Reply) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => {}
            Stage::Started(event) => self.begin(scenario, cluster, oracle, event),
            Stage::Free => self.proceed(scenario, cluster, oracle),
            Stage::Waiting(waiting) => self.wait(scenario, cluster, oracle, waiting),
            Stage::Writing(writing) => self.write(scenario, cluster, oracle, *writing, reply),
        }
    }

    /// Executes the actions between two cycles, and starts the next cycle.
    fn proceed(&mut self, scenario: &Scenario, cluster: &mut Cluster, oracle: &mut Oracle) {
        loop {
            match self.worker.next(context(scenario), self.state(scenario), cluster.now).next {
                NextAction::Start(_) if self.is_standby => self.worker.on_term_lost(),
                NextAction::Start(event) => {
                    oracle.started_waiting(event.kind, self.paused);
                    return self.begin(scenario, cluster, oracle, event);
                }
                NextAction::Sleep { until, .. } => cluster.now = cluster.now.max(until),
                NextAction::Touch(_) => panic!("only in compat mode"),
                NextAction::Idle => return self.on_idle(),
            }
        }
    }

    /// A cycle has ended: the driver continues, if there is more to do.
    pub fn on_idle(&mut self) {
        self.stage = Stage::Idle;
        if self.worker.needs_driver() {
            self.stage = Stage::Free;
        } else if self.worker.gone {
            self.forget();
        }
    }

    /// A cycle waits for the watch event of our last write.
    fn wait(
        &mut self,
        scenario: &Scenario,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        mut waiting: Box<Waiting>,
    ) {
        let is_reached =
            match self.worker.await_consistency(context(scenario), self.state(scenario), cluster.now) {
                Ok(is_reached) => is_reached,
                Err(_) if !cluster.stream.is_empty() && !self.paused => {
                    self.stage = Stage::Waiting(waiting);
                    return;
                }
                Err(deadline) => {
                    if !self.in_doubt && !self.paused {
                        oracle.report_violation("the operator waits for a watch event that cannot come");
                    }
                    cluster.now = cluster.now.max(deadline);
                    oracle.handled(self.paused);
                    self.worker
                        .await_consistency(context(scenario), self.state(scenario), cluster.now)
                        .unwrap()
                }
            };
        waiting.running.on_consistency(is_reached, cluster.now);
        self.run_cycle(scenario, cluster, oracle, *waiting);
    }

    fn begin(&mut self, scenario: &Scenario, cluster: &mut Cluster, oracle: &mut Oracle, event: QueuedEvent) {
        oracle.cycle_started(scenario, &cluster.version_of(&event.object));
        self.spoil_inputs(scenario, &event);
        let was_awaiting = self.worker.consistency.is_some();
        let start = self.worker.prepare(event, context(scenario), cluster.now);
        self.in_doubt &= !was_awaiting || self.worker.consistency.is_some();
        let (resource_handlers, config) =
            (Arc::clone(&scenario.resource_handlers), Arc::clone(&scenario.config));
        let running = Cycle::open(start, resource_handlers, config, 0, cluster.now);
        self.run_cycle(
            scenario,
            cluster,
            oracle,
            Waiting { running, opened: cluster.now, patch: Map::new() },
        );
    }

    /// Injects the defects in the inputs of a cycle.
    fn spoil_inputs(&mut self, scenario: &Scenario, event: &QueuedEvent) {
        match scenario.defect {
            Some(Defect::NoWaiting) => self.worker.consistency = None,
            Some(Defect::ExactVersion | Defect::AwaitsNoop) => {
                if let Some(consistency) = &mut self.worker.consistency {
                    let version = event.object.resource_version().map(|number| format!("v{number}"));
                    consistency.observe(version.as_deref());
                }
            }
            Some(Defect::ForgetsStripped) if !event.object.raw().contains(crate::cluster::BASE) => {
                self.worker.memory.invalidate();
                self.worker.drop_outdated();
            }
            _ => {}
        }
    }

    /// Executes the effects of a cycle until it has to wait, or is decided.
    fn run_cycle(
        &mut self,
        scenario: &Scenario,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        mut waiting: Waiting,
    ) {
        let version = cluster.version_of(&waiting.running.event().object);
        loop {
            for message in waiting.running.drain_log() {
                oracle.logged(scenario, &message, &version);
            }
            let running = &mut waiting.running;
            match running.effect().unwrap() {
                Effect::Run(activation) => {
                    let remaining_fns = self.worker.memory.remaining_fns;
                    let object = Arc::clone(running.object());
                    let version = &version;
                    let mut call = host::Call { scenario, cluster, oracle, version, object, remaining_fns };
                    let completion = call.complete(&activation, &mut waiting.patch);
                    running.on_completion(completion, cluster.now);
                }
                Effect::Spawn(desired) => {
                    let (delay, holds) = self.sync_daemons(scenario, &desired);
                    running.on_daemons(delay, holds, cluster.now);
                }
                Effect::AwaitConsistency => {
                    self.stage = Stage::Waiting(Box::new(waiting));
                    return;
                }
                Effect::Done(decision) => {
                    return self.conclude(scenario, cluster, oracle, (&waiting.running, &version), *decision);
                }
            }
        }
    }

    fn sync_daemons(&mut self, scenario: &Scenario, desired: &daemon::DesiredDaemons) -> (Option<f64>, bool) {
        let assessed = daemon::diff(desired, &self.running, &self.ended, &scenario.config.registry, None);
        self.running.extend(assessed.start);
        self.stop_requested |= !assessed.stop.is_empty();
        let is_watched = !assessed.stop.is_empty() && scenario.defect != Some(Defect::EndsUnnoticed);
        (is_watched.then_some(60.0), assessed.holds)
    }

    fn conclude(
        &mut self,
        scenario: &Scenario,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        (running, version): (&Cycle, &Version),
        mut decision: Decision,
    ) {
        assert_eq!(decision.error, None);
        if scenario.defect == Some(Defect::ReleasesEarly) && version.is_deleting() && version.is_blocked() {
            decision.finalizer = Some(Edit::Allow);
        }
        if scenario.defect == Some(Defect::KeepsNoProgress) && decision.delay.is_some() {
            decision.patch = Patch::default();
        }
        if scenario.defect == Some(Defect::BlocksOnce) && version.base.is_some() {
            decision.finalizer = decision.finalizer.filter(|edit| *edit == Edit::Allow);
        }
        if scenario.defect == Some(Defect::BlocksDeletions) && version.is_deleting() && !version.is_blocked()
        {
            decision.finalizer = Some(Edit::Block);
        }
        if scenario.defect == Some(Defect::ForgetsSeen) {
            decision.handling_status = HandlingStatus::Over(ObservedEssences::default());
        }
        if running.event().kind == EventType::Deleted {
            // The daemons have no object any more.
            (self.running, self.ended, self.stop_requested) = (Vec::new(), Vec::new(), false);
            self.in_doubt = false;
        }
        if scenario.defect.is_none()
            && self.worker.foreign_write(running, &decision, context(scenario)).is_some()
        {
            oracle.report_violation("our own write is taken for that of another operator");
        }
        match self.worker.on_decision(running, decision, context(scenario), cluster.now) {
            DecisionResult::Finished(_) => {
                oracle.succeeded();
                self.on_idle();
            }
            DecisionResult::Write(write) => self.begin_write(scenario, cluster, oracle, *write),
        }
    }
}

/// The configuration of the object's state machine.
pub fn context(scenario: &Scenario) -> WorkerContext<'_> {
    WorkerContext {
        resource_handlers: &scenario.resource_handlers,
        startup_config: &scenario.config,
        live_config: &scenario.config,
    }
}
