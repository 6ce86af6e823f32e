//! The operator's side of the model: the worker of one object, stopped between any two effects.
//!
//! It does what the engine's worker and dispatcher do around the core's cycle, with the core's own consistency, throttle and
//! roster, and one step at a time: it can be stopped, outrun or killed between any two of them. The calls of handlers are
//! told to `Ghost`, which must know nothing of how they came about.

use crate::cluster::{Cluster, Version};
use crate::flaws::Flaw;
use crate::laws::Ghost;
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

/// Where the operator stands between two steps.
#[derive(Clone, Debug)]
pub enum Stage {
    Idle,
    /// A cycle waits for the own write; its inputs, since it can be lived again from them.
    Waiting {
        event: Event,
        opened: Opened,
    },
    /// A cycle is over, and these are its writes.
    Writing(Box<Writing>),
    /// Delayed handlers are waited for.
    Dozing {
        event: Event,
        until: Timestamp,
    },
}

/// What a cycle is opened with, and what it was answered since.
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
    /// The merge patches that are left, once they are known.
    pub requests: Option<VecDeque<Value>>,
    /// The merge patches are done with.
    pub merged: bool,
    /// What was changed of the freshest state.
    pub transformed: serde_json::Map<String, Value>,
    /// What the server has answered last.
    pub latest: Option<Arc<Version>>,
    /// The object as the cycle has looked at it.
    pub object: Arc<Object>,
    /// Somebody was faster, and it was computed anew.
    pub recomposed: bool,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Luck {
    /// As it should.
    Good,
    /// The server refuses it.
    Refused,
    /// It is done, but the answer does not come.
    Unanswered,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
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
    /// Those that run are asked to stop.
    pub asked: bool,
    /// What daemons see.
    pub seen: Option<Arc<Version>>,
    /// What is awaited may never come.
    pub in_doubt: bool,
    /// The flaw of taking the next event for the own echo is about to strike.
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
            asked: false,
            seen: None,
            in_doubt: false,
            skipping: false,
        }
    }

    /// It dies, and all that it remembered with it.
    pub fn crash(&mut self, ghost: &mut Ghost) {
        ghost.crashed();
        *self = Self { up: false, ..Self::new() };
    }

    /// The stream tells something.
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

    /// A listing does not have the object.
    pub fn vanish(&mut self) {
        // Busy ones are forgotten when their worker is done; here, that makes no difference.
        *self = Self::new();
    }

    /// A daemon has ended, as it was asked to.
    pub fn exit(&mut self, world: &World) {
        self.running.clear();
        self.asked = false;
        if world.flaw != Some(Flaw::EndsUnnoticed)
            && self.known
            && self.pending.is_empty()
            && let Some(version) = &self.seen
        {
            let event = Event { kind: EventType::Modified, version: Arc::clone(version), requeued: true };
            self.pending.push_back(event);
        }
    }

    /// The moment before which nothing can be done; none if something can be done now, or if there is nothing.
    pub fn asleep(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.stage {
            Stage::Idle if self.pending.is_empty() => None,
            Stage::Idle => self.throttle.remaining(now).map(|left| now.plus(left)),
            Stage::Dozing { until, .. } => Some(*until),
            Stage::Waiting { .. } | Stage::Writing(_) => None,
        }
    }

    /// Whether there is anything to do, now or later, without news.
    pub fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Idle) || !self.pending.is_empty()
    }

    /// Does the next thing. False if that is to wait for news.
    pub fn step(&mut self, world: &World, cluster: &mut Cluster, ghost: &mut Ghost, luck: Luck) -> bool {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => {
                if let Some(until) = self.asleep(cluster.now) {
                    cluster.now = until;
                    self.throttle.release();
                    let last = self.pending.pop_back();
                    self.pending = last.into_iter().collect();
                }
                let Some(event) = self.pending.pop_front() else { return false };
                self.begin(world, cluster, ghost, event);
            }
            Stage::Waiting { event, mut opened } => {
                let arrived = !self.pending.is_empty();
                if !arrived {
                    if !cluster.stream.is_empty() {
                        self.stage = Stage::Waiting { event, opened };
                        return false;
                    }
                    if !self.in_doubt {
                        ghost.accuse("an own write is awaited that will never be told");
                    }
                    cluster.now = self.consistency.take().and_then(|it| it.deadline()).unwrap_or(cluster.now);
                }
                opened.answers.push((EffectResult::Consistent(!arrived), cluster.now));
                self.live(world, cluster, ghost, event, opened);
            }
            Stage::Dozing { event, until } => {
                let is_interrupted = !self.pending.is_empty() && world.flaw != Some(Flaw::SleepsThrough);
                if is_interrupted {
                    return true;
                }
                cluster.now = cluster.now.max(until);
                self.pending.clear();
                let event = Event { kind: EventType::Modified, requeued: true, ..event };
                self.begin(world, cluster, ghost, event);
            }
            Stage::Writing(writing) => self.write(world, cluster, ghost, *writing, luck),
        }
        true
    }

    fn begin(&mut self, world: &World, cluster: &mut Cluster, ghost: &mut Ghost, event: Event) {
        let consistent = self.is_consistent(world, &event.version, cluster.now);
        let consistent = consistent || world.flaw == Some(Flaw::NoWaiting);
        let moment = CycleInput { now: cluster.now, entropy: 0, consistent };
        ghost.looked(world, &event.version);
        if world.flaw == Some(Flaw::ForgetsStripped) && event.version.base.is_none() {
            self.memory.invalidate();
        }
        if world.flaw != Some(Flaw::ForgetsSeen) {
            self.memory.observe(&event.version.object, &world.rules.settings, &world.plan);
        }
        let opened = Opened { memory: self.memory.clone(), moment, answers: Vec::new() };
        self.live(world, cluster, ghost, event, opened);
    }

    fn is_consistent(&mut self, world: &World, version: &Version, now: Timestamp) -> bool {
        let told = version.object.resource_version().map(|number| versioned(world, number));
        let Some(consistency) = &mut self.consistency else { return true };
        consistency.seen(told.as_deref());
        let reached = consistency.is_reached(now);
        if reached {
            self.consistency = None;
            self.in_doubt = false;
        }
        reached
    }

    /// Lives a cycle from its beginning: what was answered before is answered again, and nobody is called twice for that.
    fn live(
        &mut self,
        world: &World,
        cluster: &mut Cluster,
        ghost: &mut Ghost,
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
            for note in cycle.drain_log() {
                ghost.heard(&note, &event.version);
            }
            let answer = match next {
                Effect::Run(script) => {
                    EffectResult::Completion(self.answer(world, cluster, ghost, &event, &script, &mut patch))
                }
                Effect::Spawn(wanted) => self.staff(world, &wanted),
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
        ghost: &mut Ghost,
        event: &Event,
        script: &Activation,
        patch: &mut serde_json::Map<String, Value>,
    ) -> Completion {
        patch.extend(script.initial_patch.clone().unwrap_or_default());
        let mut fns = self.memory.remaining_fns;
        let mut steps = Vec::new();
        for step in &script.steps {
            let (Command::Watch { attempt, .. } | Command::Handle { attempt }) = step else {
                panic!("the worlds have no such handlers: {step:?}");
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
                ghost.called(world, cluster, &event.version, id, change, outcome.final_);
                if outcome.final_ {
                    fns |= ghost.leaves_function(world, &event.version, id);
                }
            }
            steps.push(CommandResult::Attempted(outcome));
        }
        Completion { steps, patch: (!patch.is_empty()).then(|| patch.clone()), fns, ..Completion::default() }
    }

    fn staff(&mut self, world: &World, wanted: &daemon::DesiredDaemons) -> EffectResult {
        let assessed = daemon::diff(wanted, &self.running, &self.ended, &world.rules.registry, None);
        self.running.extend(assessed.start);
        self.asked |= !assessed.stop.is_empty();
        let is_watched = !assessed.stop.is_empty() && world.flaw != Some(Flaw::EndsUnnoticed);
        EffectResult::Spawned { delay: is_watched.then_some(60.0), holds: assessed.holds }
    }

    fn conclude(&mut self, world: &World, event: Event, object: Arc<Object>, mut decision: Decision) {
        assert_eq!(decision.error, None);
        self.memory.fully_handled_once |= decision.fully_handled_once;
        self.memory.annotations_removed |= decision.annotations_removed;
        if event.kind == EventType::Deleted {
            // Nothing is remembered, unless something has come that is not told to be gone.
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

/// What has no order is compared for equality.
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
