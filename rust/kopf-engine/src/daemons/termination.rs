//! Termination of daemons and timers: step by step in the cycles of their object, or at once and for good.

use std::sync::Arc;

use kopf_core::daemon::{StopReasons, TerminationPolicy, TerminationStage, TerminationStep};
use kopf_core::handler::label;
use kopf_core::log_level::Level;
use tokio::sync::oneshot;

use super::object::commands::SchedulerCommand;
use super::object::effects::Effects;
use super::object::{ObjectDaemons, RunState};
use crate::daemons::DaemonContext;
use crate::host::{HostTask, LogRecord, Responder, RunId, StopDaemonsTask, StopSignal};
use crate::time::duration::seconds;

/// Maximum number of seconds to wait for the last patches when no cycle waits for the daemons.
const WRITING: f64 = 5.0;

impl ObjectDaemons {
    /// Executes the next step of the termination of stopping daemons: sends signals and waits until Python has delivered them.
    /// Returns the seconds until the next step; none if there is nothing to wait for. With `limited`, each wait for a
    /// daemon has a limit.
    pub(crate) async fn terminate_step(
        self: &Arc<Self>,
        shared: &Arc<DaemonContext>,
        limited: bool,
    ) -> Option<f64> {
        self.state().is_terminating = !limited;
        self.signal(shared).await;
        let delays = self.plan_steps(shared, limited);
        self.signal(shared).await;
        let mut state = self.state();
        state.is_terminating = false;
        let waited = delays.into_iter().filter(|(run, _)| state.find(*run).is_some());
        waited.filter_map(|(_, delay)| delay).min_by(f64::total_cmp)
    }

    /// Signals all runs to exit, cancels those that do not exit at once, and waits for their ends.
    pub(super) async fn cancel(self: &Arc<Self>, shared: &Arc<DaemonContext>) {
        for reason in [StopReasons::OPERATOR_PAUSING, StopReasons::CANCELLED] {
            let mut out = Effects::default();
            {
                let mut state = self.state();
                let all: Vec<_> = (0..state.runs.len()).map(|position| (position, reason)).collect();
                state.ask_to_stop(shared, self, &all, shared.base.clock.now(), &mut out);
            }
            out.flush(shared);
            self.signal(shared).await;
        }
        loop {
            let exited = self.exited.notified();
            if !self.has_runs() {
                return;
            }
            exited.await;
        }
    }

    /// Sends the stop reasons that were not signalled yet, and waits until they are delivered.
    async fn signal(self: &Arc<Self>, shared: &Arc<DaemonContext>) {
        let signals: Vec<StopSignal> = {
            let mut state = self.state();
            let pending = state.runs.iter_mut().filter(|run| run.signalled != run.stopping.reasons());
            let signals = pending.map(|run| {
                let reasons = run.stopping.reasons();
                let cancel = reasons.contains(StopReasons::CANCELLED)
                    && !run.signalled.contains(StopReasons::CANCELLED);
                run.signalled = reasons;
                StopSignal { run: run.id, reasons, cancel }
            });
            signals.collect()
        };
        if signals.is_empty() {
            return;
        }
        let (sender, signalled) = oneshot::channel();
        let this = Arc::clone(shared);
        // The reply uses the scheduler's channel: when it arrives, all earlier exits are processed.
        let reply = Responder::new(move |()| this.manager.send(SchedulerCommand::Flush(sender)));
        shared.base.host.submit(HostTask::StopDaemons(StopDaemonsTask { signals, reply }));
        // It fails only if the scheduler has ended, at the end of the operator.
        let _ = signalled.await;
    }

    /// Decides the next step for each stopping daemon; returns the seconds until the following one.
    fn plan_steps(&self, shared: &Arc<DaemonContext>, limited: bool) -> Vec<(RunId, Option<f64>)> {
        let now = shared.base.clock.now();
        let mut state = self.state();
        let object = Arc::clone(&state.object);
        let mut delays = Vec::new();
        for run in state.runs.iter_mut().filter(|run| run.stopping.is_requested()) {
            let Some(handler) = shared.base.startup_config.registry.handlers.get(run.routine.handler())
            else {
                continue;
            };
            let policy = TerminationPolicy::of(handler, &shared.base.live_config.get().settings.background);
            // The call has ended; only its patch is being written.
            if run.state == RunState::Writing {
                delays.push((run.id, if limited { Some(WRITING) } else { policy.polling }));
                continue;
            }
            let policy = if limited { policy.limited() } else { policy };
            let step = run.stopping.advance(policy, now);
            delays.push((run.id, step.delay));
            if let Some(text) = step.text(&label::label(handler)) {
                shared.base.host.log(LogRecord::posted(level(step), &object, text));
            }
        }
        delays
    }
}

fn level(step: TerminationStep) -> Level {
    if step.stage == TerminationStage::Abandoned { Level::Warning } else { Level::Debug }
}

impl DaemonContext {
    /// Stops all daemons and timers of objects whose cycles will not do that.
    pub(crate) fn terminate_daemons(self: &Arc<Self>, objects: Vec<Arc<ObjectDaemons>>, reason: StopReasons) {
        for object_daemons in objects {
            let mut out = Effects::default();
            let has_runs = {
                let mut state = object_daemons.state();
                let all: Vec<_> = (0..state.runs.len()).map(|position| (position, reason)).collect();
                state.ask_to_stop(self, &object_daemons, &all, self.base.clock.now(), &mut out);
                !state.runs.is_empty()
            };
            out.flush(self);
            if has_runs {
                let shared = Arc::clone(self);
                let waiting = async move { shared.wait_for(&object_daemons).await };
                self.manager.terminations.spawn(self.base.failing.guard("The stopping of daemons", waiting));
            }
        }
    }

    async fn wait_for(self: &Arc<Self>, object_daemons: &Arc<ObjectDaemons>) {
        let mut rounds = 0;
        loop {
            let exited = object_daemons.exited.notified();
            let Some(delay) = object_daemons.terminate_step(self, true).await else { return };
            // A patch that takes too long is not waited for.
            let is_only_writing =
                object_daemons.state().runs.iter().all(|run| run.state == RunState::Writing);
            if is_only_writing && rounds > 0 && self.manager.halted().is_some() {
                return;
            }
            rounds += u32::from(is_only_writing);
            tokio::select! {
                () = self.base.clock.sleep(seconds(delay)) => {}
                () = exited => {}
            }
        }
    }
}
