//! The course of a cycle: its start, its effects, and their results. The index commands come first.

use super::{Cycle, CycleStart, Effect, Moment, OperatorConfig, Phase, daemons};
use crate::activation::{Activation, Command, Completion};
use crate::cause::EventType;
use crate::daemon::DesiredDaemons;
use crate::handler::registry::ResourceHandlers;
use crate::indexing::IndexPass;
use crate::json::merge_patch::Patch;
use crate::json::value::Map;
use crate::object::Object;
use crate::persistence::memory::ObjectMemory;
use crate::persistence::observed_essences::ObservedEssences;
use crate::time::Timestamp;
use std::sync::Arc;

impl Cycle {
    /// Opens a cycle. `id` is also its entropy.
    pub fn open(
        start: CycleStart,
        resource_handlers: Arc<ResourceHandlers>,
        config: Arc<OperatorConfig>,
        id: u64,
        now: Timestamp,
    ) -> Self {
        let CycleStart { event, memory, view_age, index_pass } = start;
        let mut known_comparison = None;
        let overlay = match event.kind {
            EventType::Deleted => None,
            _ => memory.overlay(
                &event.object,
                view_age,
                &config.settings,
                &resource_handlers,
                &mut known_comparison,
            ),
        };
        let restarted = overlay.as_ref().and_then(|overlay| overlay.restarted.clone());
        let is_restarted = restarted.is_some();
        let observed = restarted
            .or_else(|| observed_before(&memory, &event.object, &config, &resource_handlers))
            .unwrap_or_default();
        let unfinished = overlay.as_ref().is_some_and(|overlay| overlay.unfinished);
        let removed = overlay.as_ref().is_some_and(|overlay| overlay.removed);
        let rejected_patch =
            overlay.as_ref().and_then(|overlay| overlay.rejected_patch.clone()).map(Box::new);
        let urgent = overlay.as_ref().is_some_and(|overlay| overlay.urgent);
        let (object, missing_patch, missing_final_progress) = overlay
            .map_or((Arc::clone(&event.object), Map::new(), Map::new()), |it| {
                (it.object, it.missing_patch, it.final_progress)
            });
        let mut cycle = Self {
            id,
            closed: false,
            event,
            object,
            opened: now,
            index_pass,
            indexing: None,
            next: None,
            has_run: false,
            fns: memory.remaining_fns,
            memory,
            resource_handlers,
            config,
            moment: Moment { now, entropy: id, view_age },
            log_messages: Vec::new(),
            handling: None,
            patch: Patch::default(),
            initial_patch: None,
            finalizer: None,
            cause: None,
            candidates: Vec::new(),
            known_comparison,
            comparison: None,
            change: None,
            state: None,
            daemon_phase: daemons::DaemonPhase::default(),
            undecided: false,
            custom_storage: None,
            missing_patch,
            missing_final_progress,
            unfinished,
            removed,
            urgent,
            is_restarted,
            rejected_patch,
            observed,
            advanced: false,
            called: Vec::new(),
            phase: Phase::Finished,
        };
        cycle.next = Some(if cycle.needs_load() { cycle.load_state() } else { cycle.begin() });
        cycle
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

    /// A pause of the operator has begun, and another operator may handle the object: change handlers that were not called yet
    /// are not called by this cycle. The results of event handlers are still written.
    pub fn on_pause(&mut self) {
        let is_change = |command: &Command| {
            matches!(command, Command::CallChangeHandler { .. } | Command::SelectHandlers { .. })
        };
        let is_handling =
            matches!(&self.next, Some(Effect::Run(activation)) if activation.commands.iter().any(is_change));
        if is_handling {
            (self.state, self.cause, self.handling) = (None, None, None);
            self.next = Some(self.postpone());
        }
    }

    /// The next effect; none if the last one is still being executed.
    pub fn effect(&mut self) -> Option<Effect> {
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
            other => other,
        })
    }

    fn activate(&mut self, mut activation: Activation) -> Effect {
        self.has_run = true;
        activation.remaining_fns = self.memory.remaining_fns;
        Effect::Run(activation)
    }

    /// The index commands in progress. Their outcomes are taken out of the completion, before [`Cycle::on_completion`].
    pub fn indexing(&self) -> Option<&IndexPass> {
        self.indexing.as_ref()
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
        let phase = self.resume(now);
        self.next = Some(self.on_results(&phase, completion));
    }

    /// Continues after the wait for our own write: whether it has ended with that, or with the timeout.
    pub fn on_consistency(&mut self, is_reached: bool, now: Timestamp) {
        let next = match self.resume(now) {
            Phase::Waiting if is_reached => self.handle(),
            Phase::Waiting => self.postpone(),
            _ => self.misfit(),
        };
        self.next = Some(next);
    }

    /// Continues after starting and stopping daemons and timers: with the seconds until the next check, if some of them are still
    /// stopping, and whether they block the deletion of the object.
    pub fn on_daemons(&mut self, delay: Option<f64>, holds: bool, now: Timestamp) {
        let next = match self.resume(now) {
            Phase::Spawning => self.spawned(delay, holds),
            _ => self.misfit(),
        };
        self.next = Some(next);
    }

    /// Sets the time, and returns the phase that a result belongs to.
    fn resume(&mut self, now: Timestamp) -> Phase {
        self.moment.now = now;
        std::mem::replace(&mut self.phase, Phase::Finished)
    }

    fn misfit(&mut self) -> Effect {
        self.fail("The result does not fit the last effect of the cycle.".to_owned())
    }

    fn on_results(&mut self, phase: &Phase, mut completion: Completion) -> Effect {
        // Errors in filters and lifecycles are not handled by any handler: the object is throttled.
        if let Some(error) = completion.error {
            return self.fail(error);
        }
        if let Some(patch) = completion.patch {
            self.patch = Patch(patch);
        }
        self.fns = completion.fns;
        let next = match phase {
            Phase::Detecting { commands, asked } if *commands == completion.results.len() => {
                self.apply_filters(asked, &completion.results).then(|| self.decide())
            }
            Phase::Handling { commands } if *commands == completion.results.len() => {
                Some(self.handled(&completion.results))
            }
            Phase::Selecting => self.on_selected(&completion.results),
            Phase::Loading => self.on_loaded(&mut completion.results),
            Phase::Storing => self.on_stored(),
            _ => None,
        };
        next.unwrap_or_else(|| self.protocol_error())
    }

    fn protocol_error(&mut self) -> Effect {
        self.fail("The completion does not fit the commands of its activation.".to_owned())
    }
}

/// The essences that only some handlers were called with, in earlier cycles; none if all writes are confirmed.
fn observed_before(
    memory: &ObjectMemory,
    object: &Object,
    config: &OperatorConfig,
    resource_handlers: &ResourceHandlers,
) -> Option<ObservedEssences> {
    let pending_state = memory.pending_state.as_ref()?;
    Some(pending_state.observed_essences(object, &config.settings.persistence, resource_handlers))
}
