//! A cycle in progress: its effects, and the index commands that come first.

use super::{CycleStart, ObjectWorker, QueuedEvent};
use crate::activation::log::LogMessage;
use crate::activation::{Activation, Command, CommandResult, Completion};
use crate::cause::Reason;
use crate::cycle::{Cycle, CycleInput, Decision, Effect, EffectResult, OperatorConfig};
use crate::daemon::DesiredDaemons;
use crate::handler::registry::{Registry, ResourceHandlers};
use crate::handling::cause_id::Handling;
use crate::indexing::IndexPass;
use crate::object::Object;
use crate::persistence::superseding::CalledHandler;
use crate::time::Timestamp;
use std::sync::Arc;

/// The next effect of a cycle in progress.
#[derive(Debug)]
pub enum CycleEffect {
    /// Run these commands in Python, then call [`RunningCycle::on_completion`].
    Run(Activation),
    /// Wait until [`ObjectWorker::await_consistency`] has a result, then call [`RunningCycle::on_consistency`].
    AwaitConsistency,
    /// Start and stop daemons and timers, then call [`RunningCycle::on_daemons`].
    Spawn(DesiredDaemons),
    /// Call [`ObjectWorker::on_decision`]: the cycle is over.
    Decide(Box<Decision>),
}

/// A cycle in progress.
#[derive(Clone, Debug)]
pub struct RunningCycle {
    /// The id of the cycle.
    pub id: u64,
    cycle: Cycle,
    event: QueuedEvent,
    opened: Timestamp,
    index_pass: Option<IndexPass>,
    /// The index commands that were submitted.
    indexing: Option<IndexPass>,
    /// The next effect; none while the driver executes it.
    next: Option<Effect>,
    has_run: bool,
    /// Python has already closed the cycle.
    pub closed: bool,
}

impl RunningCycle {
    /// Opens a cycle. `id` is also its entropy.
    pub fn open(
        start: CycleStart,
        resource_handlers: Arc<ResourceHandlers>,
        config: Arc<OperatorConfig>,
        id: u64,
        now: Timestamp,
    ) -> Self {
        let CycleStart { event, memory, view_age, index_pass } = start;
        let moment = CycleInput { now, entropy: id, view_age };
        let (cycle, next) = Cycle::open(&event, memory, resource_handlers, config, moment);
        Self {
            id,
            cycle,
            event,
            opened: now,
            index_pass,
            indexing: None,
            next: Some(next),
            has_run: false,
            closed: false,
        }
    }

    /// The event of the cycle, with the object as received.
    pub fn event(&self) -> &QueuedEvent {
        &self.event
    }

    /// When the cycle was opened.
    pub fn opened(&self) -> Timestamp {
        self.opened
    }

    /// The reason to act, if a change handler matches and it is known already.
    pub fn reason(&self) -> Option<Reason> {
        self.cycle.reason()
    }

    /// The handling that the cycle begins or continues; none if it calls no change handlers, or while that is not known.
    pub fn handling(&self) -> Option<Handling> {
        self.cycle.handling()
    }

    /// The event handlers and change handlers that were called so far.
    pub fn called(&self) -> &[CalledHandler] {
        self.cycle.called()
    }

    /// The object that the cycle works on: as received, with our unconfirmed writes applied.
    pub fn object(&self) -> &Arc<Object> {
        self.cycle.object()
    }

    /// The log messages since the last call.
    pub fn drain_log(&mut self) -> Vec<LogMessage> {
        self.cycle.drain_log()
    }

    /// The daemons to reconcile, if that is the next effect. Daemons and timers may read the indices: they start after the object
    /// is indexed.
    pub fn desired_daemons(&self) -> Option<&DesiredDaemons> {
        match &self.next {
            Some(Effect::Spawn(desired)) if self.index_pass.is_none() => Some(desired),
            _ => None,
        }
    }

    /// Whether the next effect is the decision, so that no effect is left to execute.
    pub fn is_decided(&self) -> bool {
        self.index_pass.is_none() && matches!(self.next, Some(Effect::Done(_)))
    }

    /// Whether anything was called in Python.
    pub fn has_run(&self) -> bool {
        self.has_run
    }

    /// A pause of the operator has begun, and another operator may handle the object: change handlers that were not called yet
    /// are not called by this cycle. The results of event handlers are still written.
    pub fn on_pause(&mut self) {
        let is_change = |command: &Command| {
            matches!(command, Command::CallChangeHandler { .. } | Command::SelectHandlers { .. })
        };
        let is_handling =
            matches!(&self.next, Some(Effect::Run(activation)) if activation.commands.iter().any(is_change));
        if is_handling {
            self.next = Some(self.cycle.on_pause());
        }
    }

    /// Whether the next effect calls event handlers and nothing else, and nothing follows but the decision.
    pub fn only_watches(&self) -> bool {
        let is_watching = |activation: &Activation| {
            activation.last
                && activation
                    .commands
                    .iter()
                    .all(|command| matches!(command, Command::CallEventHandler { .. }))
        };
        self.index_pass.is_none()
            && matches!(&self.next, Some(Effect::Run(activation)) if is_watching(activation))
    }

    /// The next effect; none if the last one is still being executed.
    pub fn effect(&mut self) -> Option<CycleEffect> {
        // The index commands come first; without other commands, they are submitted alone.
        if let Some(pass) = self.index_pass.take() {
            let mut activation = match self.next.take() {
                Some(Effect::Run(activation)) => activation,
                next => {
                    self.next = next;
                    Activation::default()
                }
            };
            activation.commands.insert(0, Command::CallIndexers(pass.clone()));
            self.indexing = Some(pass);
            return Some(self.activate(activation));
        }
        Some(match self.next.take()? {
            Effect::Run(activation) => self.activate(activation),
            Effect::AwaitConsistency => CycleEffect::AwaitConsistency,
            Effect::Spawn(desired) => CycleEffect::Spawn(desired),
            Effect::Done(decision) => CycleEffect::Decide(decision),
        })
    }

    fn activate(&mut self, mut activation: Activation) -> CycleEffect {
        self.has_run = true;
        activation.remaining_fns = self.cycle.has_remaining_fns();
        CycleEffect::Run(activation)
    }

    /// Takes the index outcomes out of a completion, for the worker. To be called before [`RunningCycle::on_completion`].
    pub fn record_indexing(
        &mut self,
        worker: &mut ObjectWorker,
        completion: &mut Completion,
        registry: &Registry,
    ) {
        if let Some(pass) = &self.indexing {
            worker.record_indexing(pass, completion, registry);
        }
    }

    /// Whether index commands are in progress.
    pub fn is_indexing(&self) -> bool {
        self.indexing.is_some()
    }

    /// Continues with the results of an activation.
    pub fn on_completion(&mut self, completion: Completion, now: Timestamp) {
        let was_alone = self.indexing.take().is_some() && self.next.is_some();
        // The index commands were submitted alone: the next effect is known, unless they have failed.
        if was_alone && completion.error.is_none() {
            return;
        }
        if !was_alone {
            self.closed = completion.closed;
        }
        self.resume(EffectResult::Completion(completion), now);
    }

    /// Continues with the result of [`ObjectWorker::await_consistency`].
    pub fn on_consistency(&mut self, is_reached: bool, now: Timestamp) {
        self.resume(EffectResult::Consistent(is_reached), now);
    }

    /// Continues with the result of starting and stopping daemons and timers: see [`EffectResult::Spawned`].
    pub fn on_daemons(&mut self, delay: Option<f64>, holds: bool, now: Timestamp) {
        self.resume(EffectResult::Spawned { delay, holds }, now);
    }

    fn resume(&mut self, result: EffectResult, now: Timestamp) {
        self.next = Some(self.cycle.resume(result, now));
    }
}

impl ObjectWorker {
    /// Takes the index outcomes out of a completion; false if indexing is incomplete.
    pub fn record_indexing(
        &mut self,
        pass: &IndexPass,
        completion: &mut Completion,
        registry: &Registry,
    ) -> bool {
        let indexing = self.indexing();
        if !matches!(completion.results.first(), Some(CommandResult::Indexed(_))) {
            indexing.fail();
            return false;
        }
        if let CommandResult::Indexed(outcomes) = completion.results.remove(0) {
            indexing.record_outcomes(pass, &outcomes, registry);
        }
        true
    }
}
