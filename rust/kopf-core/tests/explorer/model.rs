//! The model: the API server, an operator, an oracle, and all possible next steps.

use crate::cluster::{Cluster, Version};
use crate::injected_defects::Defect;
use crate::operator::{Operator, Reply, Stage};
use crate::oracle::Oracle;
use crate::scenarios::Scenario;
use kopf_core::cause::EventType;
use kopf_core::object_worker::QueuedEvent;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// One step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// The author sets `spec.x` to this value.
    Edit(u8),
    /// Another client adds or removes the label.
    Label(bool),
    /// Another client changes the status.
    Noise,
    /// Another client removes all annotations.
    Strip,
    /// Another controller adds or removes its finalizer.
    ForeignFinalizer(bool),
    /// Another client removes the operator's finalizer.
    Unblock,
    /// Another client deletes the object.
    Delete,
    /// Another client creates an object with the name of the deleted one.
    Replace,
    /// The watch delivers the next event.
    Deliver,
    /// The watch is interrupted, and the object relisted.
    Relist,
    /// The object is relisted after an interruption.
    Reconnect,
    /// The operator executes its next effect; a request of it ends with this reply.
    Step(Reply),
    /// The daemons exit after a stop request.
    Exit,
    /// The operator is paused, or continues.
    Pause(bool),
    /// The replica loses the lease; true if it has noticed before that the lease has expired.
    Lose(bool),
    /// The replica leads again.
    Lead,
    /// The operator crashes.
    Crash,
    /// The operator restarts.
    Restart,
}

/// Number of further steps of each kind of interference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub edits: u8,
    pub labels: u8,
    pub noise: u8,
    pub strips: u8,
    pub foreign_finalizers: u8,
    pub deletes: u8,
    pub relists: u8,
    pub rejections: u8,
    pub lost_replies: u8,
    pub crashes: u8,
    pub pauses: u8,
    pub refusals: u8,
    pub replacements: u8,
    pub conflicts: u8,
    pub outages: u8,
    pub unblocks: u8,
    pub losses: u8,
}

impl Budget {
    /// Applies a function to each number.
    pub fn map(self, mut figure: impl FnMut(u8) -> u8) -> Self {
        Self {
            edits: figure(self.edits),
            labels: figure(self.labels),
            noise: figure(self.noise),
            strips: figure(self.strips),
            foreign_finalizers: figure(self.foreign_finalizers),
            deletes: figure(self.deletes),
            relists: figure(self.relists),
            rejections: figure(self.rejections),
            lost_replies: figure(self.lost_replies),
            crashes: figure(self.crashes),
            pauses: figure(self.pauses),
            refusals: figure(self.refusals),
            replacements: figure(self.replacements),
            conflicts: figure(self.conflicts),
            outages: figure(self.outages),
            unblocks: figure(self.unblocks),
            losses: figure(self.losses),
        }
    }

    fn of(&mut self, act: Act) -> Option<&mut u8> {
        Some(match act {
            Act::Edit(_) => &mut self.edits,
            Act::Label(_) => &mut self.labels,
            Act::Noise => &mut self.noise,
            Act::Strip => &mut self.strips,
            Act::ForeignFinalizer(true) => &mut self.foreign_finalizers,
            Act::Delete => &mut self.deletes,
            Act::Replace => &mut self.replacements,
            Act::Relist => &mut self.relists,
            Act::Step(Reply::Rejected) => &mut self.rejections,
            Act::Step(Reply::Lost | Reply::Repeated | Reply::Garbled) => &mut self.lost_replies,
            Act::Step(Reply::Conflict) => &mut self.conflicts,
            Act::Step(Reply::Unserved) => &mut self.outages,
            Act::Step(Reply::Fenced) | Act::Lose(false) => &mut self.losses,
            Act::Unblock => &mut self.unblocks,
            Act::Step(Reply::Refused) => &mut self.refusals,
            Act::Crash => &mut self.crashes,
            Act::Pause(true) => &mut self.pauses,
            Act::ForeignFinalizer(false)
            | Act::Step(Reply::Accepted)
            | Act::Deliver
            | Act::Reconnect
            | Act::Exit
            | Act::Lose(true)
            | Act::Lead
            | Act::Pause(false)
            | Act::Restart => return None,
        })
    }
}

#[derive(Clone, Debug)]
pub struct Model {
    pub cluster: Cluster,
    pub operator: Operator,
    pub oracle: Oracle,
    pub budget: Budget,
}

impl Model {
    pub fn new(scenario: &Scenario, budget: Budget, lag: f64) -> Self {
        // A change can be made again after its reversal: the records of both calls must differ. Otherwise, there are fewer states
        // if calls take no time.
        let call_time = if budget.edits > 1 { 0.001 } else { 0.0 };
        let cluster = Cluster::new(lag, call_time, scenario.is_built_in());
        let mut oracle = Oracle::default();
        oracle.observed.record(&cluster.latest);
        Self { cluster, operator: Operator::new(), oracle, budget }
    }

    /// All possible next steps.
    pub fn choices(&self, scenario: &Scenario) -> Vec<Act> {
        let mut acts = self.own_choices(scenario);
        acts.extend(self.foreign_choices(scenario).into_iter().filter(|act| self.affords(*act)));
        acts
    }

    fn affords(&self, act: Act) -> bool {
        let mut budget = self.budget;
        budget.of(act).is_none_or(|left| *left > 0)
    }

    /// Possible next steps of the operator and its watch.
    pub fn own_choices(&self, scenario: &Scenario) -> Vec<Act> {
        let (cluster, operator) = (&self.cluster, &self.operator);
        if !operator.up {
            return vec![Act::Restart];
        }
        if operator.is_fenced {
            let is_writing = matches!(operator.stage, Stage::Writing(_));
            return std::iter::once(Act::Lose(true))
                .chain(is_writing.then_some(Act::Step(Reply::Accepted)))
                .collect();
        }
        let mut acts = Vec::new();
        if operator.is_disconnected && !operator.paused {
            acts.push(Act::Reconnect);
        } else if !cluster.stream.is_empty() && !operator.paused {
            acts.push(Act::Deliver);
        }
        if operator.stop_requested && !operator.running.is_empty() {
            acts.push(Act::Exit);
        }
        let is_sleeping = operator.is_sleeping();
        let is_interrupted = is_sleeping && operator.worker.has_events();
        // Cycles that wait for a daemon would repeat without end.
        let waits_for_exit = is_sleeping && acts.contains(&Act::Exit);
        let may_go_on = is_interrupted
            || operator
                .sleeping_until(cluster.now)
                .is_none_or(|until| !waits_for_exit && cluster.may_pass(until));
        let waits = matches!(operator.stage, Stage::Waiting(_))
            && !operator.worker.has_events()
            && !cluster.stream.is_empty()
            && !operator.paused;
        if operator.is_busy() && may_go_on && !waits {
            acts.push(Act::Step(Reply::Accepted));
            if matches!(operator.stage, Stage::Writing(_)) {
                let faults = [
                    Reply::Rejected,
                    Reply::Lost,
                    Reply::Repeated,
                    Reply::Garbled,
                    Reply::Conflict,
                    Reply::Unserved,
                ];
                acts.extend(faults.map(Act::Step));
                if scenario.partial {
                    acts.push(Act::Step(Reply::Refused));
                }
                if scenario.versioned && !operator.paused {
                    acts.push(Act::Step(Reply::Fenced));
                }
            }
        }
        if operator.is_standby {
            acts.push(Act::Lead);
        } else if operator.paused {
            acts.push(Act::Pause(false));
        }
        acts.retain(|act| self.affords(*act));
        acts
    }

    /// Possible next steps of other clients, and failures.
    fn foreign_choices(&self, scenario: &Scenario) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.cluster.exists {
            let latest = &self.cluster.latest;
            let is = |value: u8| latest.body.pointer("/spec/x") == Some(&json!(value));
            acts.extend((0..3).filter(|value| !is(*value)).map(Act::Edit));
            if scenario.filtered {
                acts.push(Act::Label(latest.object.label("on").is_none()));
            }
            acts.push(Act::Noise);
            // A cycle that runs on through a pause may or may not restore them.
            if !self.operator.paused && !self.oracle.is_resuming() {
                acts.push(Act::Strip);
            }
            // No finalizers are added to an object in deletion.
            if latest.has_theirs() || !latest.is_deleting() {
                acts.push(Act::ForeignFinalizer(!latest.has_theirs()));
            }
            if latest.is_blocked() {
                acts.push(Act::Unblock);
            }
            if !latest.is_deleting() {
                acts.push(Act::Delete);
            }
        } else if !self.cluster.is_replaced {
            acts.push(Act::Replace);
        }
        if self.operator.up {
            if !self.operator.paused {
                acts.push(Act::Relist);
            }
            // After a restart or a pause, the operator cannot recognise changes made by clients in handlers.
            if !scenario.is_writing() {
                acts.push(Act::Crash);
                if self.operator.may_pause() {
                    acts.push(Act::Pause(true));
                    if scenario.versioned && !self.operator.is_fenced {
                        acts.push(Act::Lose(false));
                    }
                }
            }
        }
        acts
    }

    pub fn act(&mut self, scenario: &Scenario, act: Act) {
        if let Some(left) = self.budget.of(act) {
            *left -= 1;
        }
        let Self { cluster, operator, oracle, .. } = self;
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
                oracle.stripped(scenario, &cluster.latest);
            }
            Act::ForeignFinalizer(on) => cluster.set_foreign_finalizer(on),
            Act::Unblock => {
                cluster.unblock();
                oracle.unblocked();
            }
            Act::Delete => cluster.delete(),
            Act::Replace => cluster.replace(),
            Act::Deliver => {
                if let Some(event) = cluster.stream.pop_front() {
                    operator.deliver(scenario, event.kind, &event.version);
                }
            }
            Act::Relist | Act::Reconnect => self.relist(scenario),
            Act::Step(reply) => {
                operator.step(scenario, cluster, oracle, reply);
            }
            Act::Exit => operator.exit(scenario),
            Act::Pause(true) => {
                cluster.stream.clear();
                operator.pause(scenario);
            }
            Act::Pause(false) => {
                operator.resume();
                oracle.resumed(operator.is_in_cycle());
                if scenario.defect == Some(Defect::ContinuesWithoutListing) {
                    cluster.stream.clear();
                } else {
                    self.relist(scenario);
                }
            }
            Act::Lose(_) => {
                cluster.stream.clear();
                operator.lose(scenario, oracle, cluster.now);
            }
            Act::Lead => {
                operator.lead();
                self.relist(scenario);
            }
            Act::Crash => operator.crash(oracle),
            Act::Restart => {
                operator.up = true;
                self.relist(scenario);
            }
        }
        self.oracle.observed.record(&self.cluster.latest);
    }

    /// Discards undelivered watch events, and lists the object.
    fn relist(&mut self, scenario: &Scenario) {
        self.cluster.stream.clear();
        self.operator.is_disconnected = false;
        if self.cluster.exists {
            let latest = Arc::clone(&self.cluster.latest);
            self.operator.deliver(scenario, EventType::Listed, &latest);
        } else {
            self.operator.vanish();
        }
    }

    /// Whether nothing remains to be done without interference.
    pub fn is_idle(&self) -> bool {
        self.operator.up
            && !self.operator.paused
            && !self.operator.is_disconnected
            && self.cluster.stream.is_empty()
            && !self.operator.is_busy()
    }

    /// Checks the invariants of an idle state.
    pub fn check_idle(&mut self, scenario: &Scenario) {
        self.oracle.became_idle(scenario, &self.cluster, self.operator.known);
    }

    /// Runs without interference until idle, within bounds; then relists, which must cause no work.
    pub fn run_until_idle(&mut self, scenario: &Scenario) {
        self.budget = Budget::default();
        let before = self.cluster.writes;
        if !self.run(scenario, 300) {
            return self.oracle.report_violation("the operator does not become idle");
        }
        if self.cluster.writes > before + 40 {
            self.oracle.report_violation("the number of writes grows without bound");
        }
        self.check_idle(scenario);
        if self.oracle.violation.is_some() {
            return;
        }
        if scenario.is_repetitive() {
            // A rejected patch of an event handler is written again only with the next event.
            self.relist(scenario);
            self.run(scenario, 50);
        }
        let before = self.cluster.latest.number;
        self.relist(scenario);
        let is_idle = self.run(scenario, 50);
        if !is_idle || self.cluster.latest.number != before {
            self.oracle.report_violation("a relist of a handled object causes work");
        }
    }

    /// Runs without interference and returns the steps as text.
    pub fn end(&mut self, scenario: &Scenario) -> Vec<String> {
        let mut lines = Vec::new();
        while !self.is_idle() && self.oracle.violation.is_none() && lines.len() < 40 {
            let Some(act) = self.own_choices(scenario).first().copied() else { break };
            let before = self.cluster.latest.number;
            self.act(scenario, act);
            let body = if self.cluster.latest.number == before {
                String::new()
            } else {
                self.cluster.latest.body.to_string()
            };
            lines.push(format!("  {act:?} -> {body}"));
        }
        lines
    }

    fn run(&mut self, scenario: &Scenario, limit: usize) -> bool {
        for _ in 0..limit {
            if self.is_idle() || self.oracle.violation.is_some() {
                return true;
            }
            // The operator does not wait for the finalizer of another controller.
            let Some(act) = self.own_choices(scenario).first().copied() else { return false };
            self.act(scenario, act);
        }
        false
    }

    /// A hash of the state, in which version numbers matter only by their order.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Self { cluster, operator, oracle, budget } = self;
        let worker = &operator.worker;
        let newest = cluster.latest.number;
        let add = |version: &Version, hasher: &mut DefaultHasher| {
            (version.digest, newest - version.number).hash(hasher);
        };
        let add_event = |event: &QueuedEvent, hasher: &mut DefaultHasher| {
            (event.kind, event.requeued).hash(hasher);
            add(&cluster.version_of(&event.object), hasher);
        };
        ((cluster.exists, cluster.is_replaced, cluster.ours), budget, oracle, cluster.now).hash(&mut hasher);
        oracle.awaited().map(|number| newest - number).hash(&mut hasher);
        add(&cluster.latest, &mut hasher);
        for event in &cluster.stream {
            (event.kind, event.by).hash(&mut hasher);
            add(&event.version, &mut hasher);
        }
        let flags =
            (operator.up, operator.known, operator.stop_requested, operator.skipping, operator.in_doubt);
        (operator.paused, operator.is_standby, operator.is_fenced, operator.is_disconnected)
            .hash(&mut hasher);
        (flags, &operator.running).hash(&mut hasher);
        format!("{:?}{:?}{:?}", worker.memory, worker.consistency, worker.backoff).hash(&mut hasher);
        (worker.gone, worker.selector_match).hash(&mut hasher);
        worker.pending().for_each(|event| add_event(event, &mut hasher));
        if let Some((event, until)) = worker.sleep() {
            add_event(event, &mut hasher);
            until.hash(&mut hasher);
        }
        match &operator.stage {
            Stage::Idle => 0.hash(&mut hasher),
            Stage::Free => 1.hash(&mut hasher),
            Stage::Started(event) => {
                2.hash(&mut hasher);
                add_event(event, &mut hasher);
            }
            Stage::Waiting(waiting) => {
                (3, waiting.opened).hash(&mut hasher);
                add_event(waiting.running.event(), &mut hasher);
            }
            Stage::Writing(writing) => {
                4.hash(&mut hasher);
                writing.hash_state(newest, &mut hasher);
                add_event(&writing.write.event, &mut hasher);
                add(&cluster.version_of(&writing.write.object), &mut hasher);
            }
        }
        hasher.finish()
    }
}
