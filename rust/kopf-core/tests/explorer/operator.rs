//! The operator of the model: the worker of one object, which can be interrupted between any two effects.
//!
//! It does what the engine's worker and dispatcher do around the core's cycle, with the core's own consistency, error back-off
//! and daemon rules, one effect at a time. Between any two effects, it can crash, or another client can change the object. It
//! reports calls of handlers to `Oracle`, which must not depend on how they came about.

use crate::cluster::{Cluster, Version};
use crate::flaws::Flaw;
use crate::laws::Oracle;
use crate::worlds::World;
use kopf_core::activation::{Activation, Command, CommandResult, Completion};
use kopf_core::cause::EventType;
use kopf_core::cycle::{Cycle, CycleEvent, CycleInput, Decision, Effect, EffectResult};
use kopf_core::daemon;
use kopf_core::handling::attempt::{Attempt, Outcome};
use kopf_core::handling::error_backoff::ErrorBackoff;
use kopf_core::object::Object;
use kopf_core::persistence::consistency::Consistency;
use kopf_core::persistence::finalizer::Edit;
use kopf_core::persistence::memory::ObjectMemory;
use kopf_core::time::Timestamp;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Event {
    pub kind: EventType,
    pub version: Arc<Version>,
    pub requeued: bool,
}

/// The state of the worker between two effects.
#[derive(Clone, Debug)]
pub enum Stage {
    Idle,
    /// A cycle waits for the watch event of our last write. Holds its inputs, so that the cycle can be replayed.
    Waiting {
        event: Event,
        opened: Opened,
    },
    /// A cycle has ended, and its decision is being written.
    Writing(Box<Writing>),
    /// The worker sleeps until delayed handlers are due.
    Sleeping {
        event: Event,
        until: Timestamp,
    },
}

/// The inputs of a cycle and the results of its effects so far.
#[derive(Clone, Debug)]
pub struct Opened {
    memory: ObjectMemory,
    moment: CycleInput,
    answers: Vec<(EffectResult, Timestamp)>,
}

#[derive(Clone, Debug)]
pub struct Writing {
    pub event: Event,
    pub decision: Decision,
    /// Remaining merge patches, once computed.
    pub requests: Option<VecDeque<Value>>,
    /// Whether all merge patches are sent.
    pub merged: bool,
    /// Changes by the JSON patch to the latest version.
    pub transformed: serde_json::Map<String, Value>,
    /// The version in the last response.
    pub latest: Option<Arc<Version>>,
    /// The object that the cycle decided about.
    pub object: Arc<Object>,
    /// Whether the JSON patch was rejected with a conflict and computed again.
    pub recomposed: bool,
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
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Operator {
    pub up: bool,
    pub known: bool,
    pub memory: ObjectMemory,
    pub consistency: Option<Consistency>,
    pub throttle: ErrorBackoff,
    pub pending: VecDeque<Event>,
    pub stage: Stage,
    pub running: Vec<usize>,
    pub ended: Vec<Arc<str>>,
    /// Whether running daemons are requested to stop.
    pub stop_requested: bool,
    /// The version that daemons observe.
    pub seen: Option<Arc<Version>>,
    /// Whether the awaited watch event may never come.
    pub in_doubt: bool,
    /// Whether the next event is ignored (`Flaw::SkipsNext`).
    pub skipping: bool,
}

impl Operator {
    pub fn new() -> Self {
        Self {
            up: true,
            known: false,
            memory: ObjectMemory::default(),
            consistency: None,
            throttle: ErrorBackoff::default(),
            pending: VecDeque::new(),
            stage: Stage::Idle,
            running: Vec::new(),
            ended: Vec::new(),
            stop_requested: false,
            seen: None,
            in_doubt: false,
            skipping: false,
        }
    }

    /// The operator crashes and loses its memory.
    pub fn crash(&mut self, oracle: &mut Oracle) {
        oracle.crashed();
        *self = Self { up: false, ..Self::new() };
    }

    /// The watch delivers an event.
    pub fn deliver(&mut self, world: &World, kind: EventType, version: Arc<Version>) {
        if !self.known {
            self.known = true;
            self.memory =
                ObjectMemory { noticed_by_listing: kind == EventType::Listed, ..ObjectMemory::default() };
        } else if world.flaw == Some(Flaw::ResumesAgain) && kind == EventType::Listed {
            self.memory =
                ObjectMemory { noticed_by_listing: true, fully_handled_once: false, ..self.memory.clone() };
        }
        if std::mem::take(&mut self.skipping) {
            return;
        }
        self.seen = Some(Arc::clone(&version));
        let mut event = Event { kind, version, requeued: false };
        if !world.every_event {
            if world.flaw == Some(Flaw::KeepsOldest) && !self.pending.is_empty() {
                return;
            }
            if world.flaw == Some(Flaw::MergesKinds) {
                event.kind = self.pending.front().map_or(event.kind, |first| first.kind);
            }
            self.pending.clear();
        }
        self.pending.push_back(event);
    }

    /// A listing does not contain the object.
    pub fn vanish(&mut self) {
        // The engine forgets a busy object when its worker ends; in the model, the difference does not matter.
        *self = Self::new();
    }

    /// The daemons exit after a stop request.
    pub fn exit(&mut self, world: &World) {
        self.running.clear();
        self.stop_requested = false;
        if world.flaw != Some(Flaw::EndsUnnoticed)
            && self.known
            && self.pending.is_empty()
            && let Some(version) = &self.seen
        {
            let event = Event { kind: EventType::Modified, version: Arc::clone(version), requeued: true };
            self.pending.push_back(event);
        }
    }

    /// The time until which the worker sleeps; none if it is idle or can continue now.
    pub fn sleeping_until(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.stage {
            Stage::Idle if self.pending.is_empty() => None,
            Stage::Idle => self.throttle.remaining(now).map(|left| now.plus(left)),
            Stage::Sleeping { until, .. } => Some(*until),
            Stage::Waiting { .. } | Stage::Writing(_) => None,
        }
    }

    /// Whether the worker has work now or later, without further watch events.
    pub fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Idle) || !self.pending.is_empty()
    }

    /// Executes the next effect. Returns false if the worker must wait for a watch event.
    pub fn step(&mut self, world: &World, cluster: &mut Cluster, oracle: &mut Oracle, reply: Reply) -> bool {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => {
                if let Some(until) = self.sleeping_until(cluster.now) {
                    cluster.now = until;
                    self.throttle.release();
                    let last = self.pending.pop_back();
                    self.pending = last.into_iter().collect();
                }
                let Some(event) = self.pending.pop_front() else { return false };
                self.begin(world, cluster, oracle, event);
            }
            Stage::Waiting { event, mut opened } => {
                let arrived = !self.pending.is_empty();
                if !arrived {
                    if !cluster.stream.is_empty() {
                        self.stage = Stage::Waiting { event, opened };
                        return false;
                    }
                    if !self.in_doubt {
                        oracle.report_violation("the operator waits for a watch event that cannot come");
                    }
                    cluster.now = self.consistency.take().and_then(|it| it.deadline()).unwrap_or(cluster.now);
                }
                opened.answers.push((EffectResult::Consistent(!arrived), cluster.now));
                self.run_cycle(world, cluster, oracle, event, opened);
            }
            Stage::Sleeping { event, until } => {
                let is_interrupted = !self.pending.is_empty() && world.flaw != Some(Flaw::SleepsThrough);
                if is_interrupted {
                    return true;
                }
                cluster.now = cluster.now.max(until);
                self.pending.clear();
                let event = Event { kind: EventType::Modified, requeued: true, ..event };
                self.begin(world, cluster, oracle, event);
            }
            Stage::Writing(writing) => self.write(world, cluster, oracle, *writing, reply),
        }
        true
    }

    fn begin(&mut self, world: &World, cluster: &mut Cluster, oracle: &mut Oracle, event: Event) {
        let consistent = self.is_consistent(world, &event.version, cluster.now);
        let consistent = consistent || world.flaw == Some(Flaw::NoWaiting);
        let moment = CycleInput { now: cluster.now, entropy: 0, consistent };
        oracle.cycle_started(world, &event.version);
        if world.flaw == Some(Flaw::ForgetsStripped) && event.version.base.is_none() {
            self.memory.invalidate();
        }
        if world.flaw != Some(Flaw::ForgetsSeen) {
            self.memory.observe(&event.version.object, &world.rules.settings, &world.plan);
        }
        let opened = Opened { memory: self.memory.clone(), moment, answers: Vec::new() };
        self.run_cycle(world, cluster, oracle, event, opened);
    }

    fn is_consistent(&mut self, world: &World, version: &Version, now: Timestamp) -> bool {
        let observed = version.object.resource_version().map(|number| versioned(world, number));
        let Some(consistency) = &mut self.consistency else { return true };
        consistency.seen(observed.as_deref());
        let reached = consistency.is_reached(now);
        if reached {
            self.consistency = None;
            self.in_doubt = false;
        }
        reached
    }

    /// Runs a cycle from its start. Replays the results of earlier effects, without calling handlers again.
    fn run_cycle(
        &mut self,
        world: &World,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        event: Event,
        opened: Opened,
    ) {
        let object = Arc::clone(&event.version.object);
        let observation = CycleEvent { event: event.kind, object, requeued: event.requeued };
        let Opened { memory, moment, mut answers } = opened;
        let (plan, rules) = (Arc::clone(&world.plan), Arc::clone(&world.rules));
        let (mut cycle, mut next) = Cycle::open(observation, &memory, plan, rules, moment);
        for (answer, now) in answers.clone() {
            cycle.drain_log();
            next = cycle.resume(answer, now);
        }
        let mut patch = serde_json::Map::new();
        loop {
            for message in cycle.drain_log() {
                oracle.logged(&message, &event.version);
            }
            let answer = match next {
                Effect::Run(script) => {
                    EffectResult::Completion(self.answer(world, cluster, oracle, &event, &script, &mut patch))
                }
                Effect::Spawn(desired) => self.sync_daemons(world, &desired),
                Effect::AwaitConsistency => {
                    self.stage = Stage::Waiting { event, opened: Opened { memory, moment, answers } };
                    return;
                }
                Effect::Done(decision) => {
                    self.conclude(world, event, Arc::clone(cycle.object()), *decision);
                    return;
                }
            };
            answers.push((answer.clone(), cluster.now));
            next = cycle.resume(answer, cluster.now);
        }
    }

    fn answer(
        &self,
        world: &World,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        event: &Event,
        script: &Activation,
        patch: &mut serde_json::Map<String, Value>,
    ) -> Completion {
        patch.extend(script.initial_patch.clone().unwrap_or_default());
        let mut fns = self.memory.remaining_fns;
        let mut steps = Vec::new();
        for step in &script.steps {
            let (Command::Watch { attempt, .. } | Command::Handle { attempt }) = step else {
                panic!("unexpected command: {step:?}");
            };
            let id = &world.rules.registry.handlers[attempt.handler].id;
            let outcome = settle(world, attempt, cluster.now);
            if let Some(more) = world.patches(id) {
                patch.insert("status".to_owned(), more);
            }
            if let Some(more) = world.stamps(id, &event.version) {
                patch.insert("spec".to_owned(), more);
            }
            if let Some(more) = world.writes(id, &event.version)
                && cluster.exists
            {
                cluster.edit(&more);
            }
            if let (Command::Handle { .. }, Some(change)) = (step, &script.change) {
                oracle.called(world, cluster, &event.version, id, change, outcome.final_);
                if outcome.final_ {
                    fns |= oracle.leaves_function(world, &event.version, id);
                }
            }
            steps.push(CommandResult::Attempted(outcome));
        }
        Completion { steps, patch: (!patch.is_empty()).then(|| patch.clone()), fns, ..Completion::default() }
    }

    fn sync_daemons(&mut self, world: &World, desired: &daemon::DesiredDaemons) -> EffectResult {
        let assessed = daemon::diff(desired, &self.running, &self.ended, &world.rules.registry, None);
        self.running.extend(assessed.start);
        self.stop_requested |= !assessed.stop.is_empty();
        let is_watched = !assessed.stop.is_empty() && world.flaw != Some(Flaw::EndsUnnoticed);
        EffectResult::Spawned { delay: is_watched.then_some(60.0), holds: assessed.holds }
    }

    fn conclude(&mut self, world: &World, event: Event, object: Arc<Object>, mut decision: Decision) {
        assert_eq!(decision.error, None);
        self.memory.fully_handled_once |= decision.fully_handled_once;
        self.memory.annotations_removed |= decision.annotations_removed;
        if event.kind == EventType::Deleted {
            // The memory is dropped, except for events that arrived after the deletion.
            let pending = std::mem::take(&mut self.pending);
            *self = Self { known: !pending.is_empty(), pending, ..Self::new() };
            return;
        }
        if world.flaw == Some(Flaw::ReleasesEarly)
            && event.version.is_deleting()
            && event.version.is_blocked()
        {
            decision.finalizer = Some(Edit::Allow);
        }
        if world.flaw == Some(Flaw::KeepsNoProgress) && decision.delay.is_some() {
            decision.patch = kopf_core::json::merge_patch::Patch::default();
        }
        let (requests, merged, latest, recomposed) = (None, false, None, false);
        let transformed = serde_json::Map::new();
        let writing = Writing { event, decision, requests, merged, transformed, latest, object, recomposed };
        self.stage = Stage::Writing(Box::new(writing));
    }
}

/// Resource versions that are not numbers are compared for equality only.
pub fn versioned(world: &World, number: &str) -> String {
    if matches!(world.flaw, Some(Flaw::ExactVersion | Flaw::AwaitsNoop)) {
        format!("v{number}")
    } else {
        number.to_owned()
    }
}

fn settle(world: &World, attempt: &Attempt, now: Timestamp) -> Outcome {
    let raised = world.raises(attempt);
    attempt.precheck(now).unwrap_or_else(|| attempt.evaluate(&raised, now)).outcome
}
