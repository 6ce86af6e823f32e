//! The whole: a server, an operator, a witness, and all that may happen next.

use crate::cluster::{Cluster, Version};
use crate::flaws::Flaw;
use crate::laws::Ghost;
use crate::operator::{Luck, Operator, Stage};
use crate::worlds::World;
use kopf_core::cause::EventType;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// The author changes the object to this.
    Edit(u8),
    /// Somebody labels it, or takes the label away.
    Label(bool),
    /// Somebody writes what is of no interest.
    Noise,
    /// Somebody removes all annotations.
    Strip,
    /// Somebody adds or removes a finalizer of theirs.
    Guard(bool),
    /// Somebody wants the object to go.
    Delete,
    /// The stream tells the next news.
    Tell,
    /// The stream breaks, and the object is listed anew.
    Relist,
    /// The operator does the next thing, with good or bad luck.
    Step(Luck),
    /// A daemon ends that was asked to.
    Exit,
    /// The operator dies.
    Crash,
    /// Another one takes its place.
    Restart,
}

/// How often the world may interfere from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub edits: u8,
    pub labels: u8,
    pub noise: u8,
    pub strips: u8,
    pub guards: u8,
    pub deletes: u8,
    pub relists: u8,
    pub refusals: u8,
    pub silences: u8,
    pub crashes: u8,
}

impl Budget {
    /// The same with other figures.
    pub fn map(self, mut figure: impl FnMut(u8) -> u8) -> Self {
        Self {
            edits: figure(self.edits),
            labels: figure(self.labels),
            noise: figure(self.noise),
            strips: figure(self.strips),
            guards: figure(self.guards),
            deletes: figure(self.deletes),
            relists: figure(self.relists),
            refusals: figure(self.refusals),
            silences: figure(self.silences),
            crashes: figure(self.crashes),
        }
    }

    fn of(&mut self, act: Act) -> Option<&mut u8> {
        Some(match act {
            Act::Edit(_) => &mut self.edits,
            Act::Label(_) => &mut self.labels,
            Act::Noise => &mut self.noise,
            Act::Strip => &mut self.strips,
            Act::Guard(true) => &mut self.guards,
            Act::Delete => &mut self.deletes,
            Act::Relist => &mut self.relists,
            Act::Step(Luck::Refused) => &mut self.refusals,
            Act::Step(Luck::Unanswered) => &mut self.silences,
            Act::Crash => &mut self.crashes,
            Act::Guard(false) | Act::Step(Luck::Good) | Act::Tell | Act::Exit | Act::Restart => return None,
        })
    }
}

#[derive(Clone, Debug)]
pub struct Model {
    pub cluster: Cluster,
    pub operator: Operator,
    pub ghost: Ghost,
    pub budget: Budget,
}

impl Model {
    pub fn new(budget: Budget, lag: f64) -> Self {
        let cluster = Cluster::new(lag);
        let mut ghost = Ghost::default();
        ghost.ledger.note(&cluster.latest);
        Self { cluster, operator: Operator::new(), ghost, budget }
    }

    /// What may happen now.
    pub fn choices(&self, world: &World) -> Vec<Act> {
        let mut acts = self.own_choices(world);
        acts.extend(self.foreign_choices(world).into_iter().filter(|act| self.affords(*act)));
        acts
    }

    fn affords(&self, act: Act) -> bool {
        let mut budget = self.budget;
        budget.of(act).is_none_or(|left| *left > 0)
    }

    /// What the operator and its stream do.
    pub fn own_choices(&self, world: &World) -> Vec<Act> {
        let (cluster, operator) = (&self.cluster, &self.operator);
        if !operator.up {
            return vec![Act::Restart];
        }
        let mut acts = Vec::new();
        if !cluster.stream.is_empty() {
            acts.push(Act::Tell);
        }
        if operator.asked && !operator.running.is_empty() {
            acts.push(Act::Exit);
        }
        let is_interrupted = matches!(operator.stage, Stage::Dozing { .. })
            && !operator.pending.is_empty()
            && world.flaw != Some(Flaw::SleepsThrough);
        // Whoever waits for a daemon would look again and again.
        let is_idle = matches!(operator.stage, Stage::Dozing { .. }) && acts.contains(&Act::Exit);
        let may_go_on = is_interrupted
            || operator.asleep(cluster.now).is_none_or(|until| !is_idle && cluster.may_pass(until));
        let waits = matches!(operator.stage, Stage::Waiting { .. })
            && operator.pending.is_empty()
            && !cluster.stream.is_empty();
        if operator.is_busy() && may_go_on && !waits {
            acts.push(Act::Step(Luck::Good));
            if matches!(operator.stage, Stage::Writing(_)) {
                acts.extend([Act::Step(Luck::Refused), Act::Step(Luck::Unanswered)]);
            }
        }
        acts.retain(|act| self.affords(*act));
        acts
    }

    /// What anybody else may do.
    fn foreign_choices(&self, world: &World) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.cluster.exists {
            let latest = &self.cluster.latest;
            let is = |value: u8| latest.body.pointer("/spec/x") == Some(&json!(value));
            acts.extend((0..3).filter(|value| !is(*value)).map(Act::Edit));
            if world.filtered {
                acts.push(Act::Label(latest.object.label("on").is_none()));
            }
            acts.extend([Act::Noise, Act::Strip]);
            acts.push(Act::Guard(!latest.has_theirs()));
            if !latest.is_deleting() {
                acts.push(Act::Delete);
            }
        }
        if self.operator.up {
            acts.push(Act::Relist);
            // Of what clients of handlers have written, a new operator does not know whose it was.
            if !world.is_writing() {
                acts.push(Act::Crash);
            }
        }
        acts
    }

    pub fn act(&mut self, world: &World, act: Act) {
        if let Some(left) = self.budget.of(act) {
            *left -= 1;
        }
        let Self { cluster, operator, ghost, .. } = self;
        match act {
            Act::Edit(value) => cluster.edit(&json!({"spec": {"x": value}})),
            Act::Label(on) => {
                let value = if on { json!("") } else { Value::Null };
                cluster.edit(&json!({"metadata": {"labels": {"on": value}}}));
            }
            Act::Noise => {
                let seen = cluster.latest.number;
                cluster.edit(&json!({"status": {"seen": seen}}));
            }
            Act::Strip => {
                cluster.strip();
                ghost.annotations_removed = true;
            }
            Act::Guard(on) => cluster.guard(on),
            Act::Delete => cluster.delete(),
            Act::Tell => {
                if let Some(told) = cluster.stream.pop_front() {
                    operator.deliver(world, told.kind, told.version);
                }
            }
            Act::Relist => self.relist(world),
            Act::Step(luck) => {
                operator.step(world, cluster, ghost, luck);
            }
            Act::Exit => operator.exit(world),
            Act::Crash => operator.crash(ghost),
            Act::Restart => {
                operator.up = true;
                self.relist(world);
            }
        }
        self.ghost.ledger.note(&self.cluster.latest);
    }

    /// What was under way is not told any more: the object is listed as it is.
    fn relist(&mut self, world: &World) {
        self.cluster.stream.clear();
        if self.cluster.exists {
            self.operator.deliver(world, EventType::Listed, Arc::clone(&self.cluster.latest));
        } else {
            self.operator.vanish();
        }
    }

    /// Nothing happens any more, unless somebody interferes.
    pub fn is_at_rest(&self) -> bool {
        self.operator.up && self.cluster.stream.is_empty() && !self.operator.is_busy()
    }

    /// Judges a state of rest.
    pub fn judge_rest(&mut self, world: &World) {
        self.ghost.rested(world, &self.cluster, self.operator.known);
    }

    /// Goes on without any interference until it is at rest, within reasonable bounds; then looks once more.
    pub fn come_to_rest(&mut self, world: &World) {
        self.budget = Budget::default();
        let before = self.cluster.writes;
        if !self.run(world, 300) {
            return self.ghost.accuse("it does not come to rest");
        }
        if self.cluster.writes > before + 40 {
            self.ghost.accuse("it writes more and more");
        }
        self.judge_rest(world);
        if self.ghost.wrong.is_some() {
            return;
        }
        if world.is_repetitive() {
            // What a refused write has lost of an event handler, is written at the next event only.
            self.relist(world);
            self.run(world, 50);
        }
        let before = self.cluster.latest.number;
        self.relist(world);
        let is_at_rest = self.run(world, 50);
        if !is_at_rest || self.cluster.latest.number != before {
            self.ghost.accuse("another look at what is done makes work");
        }
    }

    /// What comes of it without any interference, in words.
    pub fn end(&mut self, world: &World) -> Vec<String> {
        let mut told = Vec::new();
        while !self.is_at_rest() && self.ghost.wrong.is_none() && told.len() < 40 {
            let Some(act) = self.own_choices(world).first().copied() else { break };
            let before = self.cluster.latest.number;
            self.act(world, act);
            let body = if self.cluster.latest.number == before {
                String::new()
            } else {
                self.cluster.latest.body.to_string()
            };
            told.push(format!("  {act:?} -> {body}"));
        }
        told
    }

    fn run(&mut self, world: &World, limit: usize) -> bool {
        for _ in 0..limit {
            if self.is_at_rest() || self.ghost.wrong.is_some() {
                return true;
            }
            // The foreign finalizer is not ours to wait for.
            let Some(act) = self.own_choices(world).first().copied() else { return false };
            self.act(world, act);
        }
        false
    }

    /// What makes two states the same: versions count by their order only.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Self { cluster, operator, ghost, budget } = self;
        let awaited = operator.consistency.as_ref().map(|it| format!("{it:?}"));
        ((cluster.exists, cluster.ours), budget, ghost, cluster.now, awaited).hash(&mut hasher);
        let newest = cluster.latest.number;
        let note = |version: &Version, hasher: &mut DefaultHasher| {
            (version.digest, newest - version.number).hash(hasher);
        };
        note(&cluster.latest, &mut hasher);
        for told in &cluster.stream {
            (told.kind, told.by).hash(&mut hasher);
            note(&told.version, &mut hasher);
        }
        let memory = operator.memory.clone();
        (
            operator.up,
            operator.known,
            operator.asked,
            (operator.skipping, operator.in_doubt),
            &operator.running,
        )
            .hash(&mut hasher);
        (memory.noticed_by_listing, memory.fully_handled_once, memory.remaining_fns).hash(&mut hasher);
        (memory.annotations_removed, memory.handled, format!("{:?}", memory.pending_state)).hash(&mut hasher);
        format!("{:?}", operator.throttle).hash(&mut hasher);
        for event in &operator.pending {
            (event.kind, event.requeued).hash(&mut hasher);
            note(&event.version, &mut hasher);
        }
        match &operator.stage {
            Stage::Idle => 0.hash(&mut hasher),
            Stage::Waiting { event, opened } => {
                note(&event.version, &mut hasher);
                (1, event.kind, event.requeued, format!("{opened:?}").len()).hash(&mut hasher);
            }
            Stage::Writing(writing) => {
                note(&writing.event.version, &mut hasher);
                let what = format!("{:?}", writing.decision);
                (2, writing.event.kind, writing.merged, writing.recomposed, what).hash(&mut hasher);
                writing.requests.as_ref().map(VecDeque::len).hash(&mut hasher);
                if let Some(latest) = &writing.latest {
                    note(latest, &mut hasher);
                }
            }
            Stage::Dozing { event, until } => {
                note(&event.version, &mut hasher);
                (3, until).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}
