//! How daemons and timers are stopped: by the cycles of their object, step by step; or at once and for good.

use std::sync::Arc;

use kopf_core::daemon::{StopReasons, TerminationPolicy, TerminationStage, TerminationStep};
use kopf_core::handler::label;
use kopf_core::log_level::Level;
use tokio::sync::oneshot;

use super::object::commands::SchedulerCommand;
use super::object::effects::Effects;
use super::object::{ObjectDaemons, RunState};
use crate::daemons::DaemonContext;
use crate::host::{HostTask, LogRecord, Responder, RunId, Signal, SignalTask};
use crate::time::duration::seconds;

/// Seconds, at most, for which the last patches are waited for when nobody waits for the daemons themselves.
const WRITING: f64 = 5.0;

impl ObjectDaemons {
    /// Goes on with those that are asked to stop: tells them, and gives them a moment. Returns the seconds until the next
    /// look; none if nobody is waited for. With `limited`, nobody is waited for without end.
    pub(crate) async fn terminate_step(
        self: &Arc<Self>,
        shared: &Arc<DaemonContext>,
        limited: bool,
    ) -> Option<f64> {
        self.state().pressing = !limited;
        self.signal(shared).await;
        let delays = self.plan_steps(shared, limited);
        self.signal(shared).await;
        let mut state = self.state();
        state.pressing = false;
        let waited = delays.into_iter().filter(|(run, _)| state.find(*run).is_some());
        waited.filter_map(|(_, delay)| delay).min_by(f64::total_cmp)
    }

    /// Tells those what they were not told yet.
    async fn signal(self: &Arc<Self>, shared: &Arc<DaemonContext>) {
        let signals: Vec<Signal> = {
            let mut state = self.state();
            let untold = state.runs.iter_mut().filter(|run| run.told != run.stopping.reasons());
            let signals = untold.map(|run| {
                let reasons = run.stopping.reasons();
                let cancel =
                    reasons.contains(StopReasons::CANCELLED) && !run.told.contains(StopReasons::CANCELLED);
                run.told = reasons;
                Signal { run: run.id, reasons, cancel }
            });
            signals.collect()
        };
        if signals.is_empty() {
            return;
        }
        let (sender, told) = oneshot::channel();
        let this = Arc::clone(shared);
        // The way is that of the reports: what has ended in this moment is known when the answer comes.
        let reply = Responder::new(move |()| this.manager.send(SchedulerCommand::Flush(sender)));
        shared.host.submit(HostTask::Signal(SignalTask { signals, reply }));
        // It is lost only with the wheel, at the very end.
        let _ = told.await;
    }

    /// Decides how hard to press those that are still there.
    fn plan_steps(&self, shared: &Arc<DaemonContext>, limited: bool) -> Vec<(RunId, Option<f64>)> {
        let now = shared.clock.now();
        let mut state = self.state();
        let object = Arc::clone(&state.object);
        let mut delays = Vec::new();
        for run in state.runs.iter_mut().filter(|run| run.stopping.is_asked()) {
            let Some(handler) = shared.rules.registry.handlers.get(run.routine.handler()) else { continue };
            let patience = TerminationPolicy::of(handler, &shared.current.get().settings.background);
            // It has stopped already; only its patch is on the way.
            if run.place == RunState::Writing {
                delays.push((run.id, if limited { Some(WRITING) } else { patience.polling }));
                continue;
            }
            let patience = if limited { patience.limited() } else { patience };
            let pressure = run.stopping.advance(patience, now);
            delays.push((run.id, pressure.delay));
            if let Some(text) = pressure.text(&label::label(handler)) {
                shared.host.log(LogRecord::posted(level(pressure), &object, text));
            }
        }
        delays
    }
}

fn level(pressure: TerminationStep) -> Level {
    if pressure.rung == TerminationStage::Abandoned { Level::Warning } else { Level::Debug }
}

impl DaemonContext {
    /// Stops all daemons and timers of these objects, whose cycles will not do that.
    pub(crate) fn terminate_daemons(self: &Arc<Self>, objects: Vec<Arc<ObjectDaemons>>, reason: StopReasons) {
        for object_daemons in objects {
            let mut out = Effects::default();
            let is_anybody_left = {
                let mut state = object_daemons.state();
                let all: Vec<_> = (0..state.runs.len()).map(|position| (position, reason)).collect();
                state.ask_to_stop(self, &object_daemons, &all, self.clock.now(), &mut out);
                !state.runs.is_empty()
            };
            out.flush(self);
            if is_anybody_left {
                let shared = Arc::clone(self);
                self.manager.terminations.spawn(async move {
                    let waiting = shared.wait_for(&object_daemons);
                    shared.failing.guard("The stopping of daemons", waiting).await;
                });
            }
        }
    }

    async fn wait_for(self: &Arc<Self>, object_daemons: &Arc<ObjectDaemons>) {
        let mut looks = 0;
        loop {
            let exited = object_daemons.exited.notified();
            let Some(delay) = object_daemons.terminate_step(self, true).await else { return };
            // A patch that takes too long is not waited for any longer.
            let is_only_writing =
                object_daemons.state().runs.iter().all(|run| run.place == RunState::Writing);
            if is_only_writing && looks > 0 && self.manager.halted().is_some() {
                return;
            }
            looks += u32::from(is_only_writing);
            tokio::select! {
                () = self.clock.sleep(seconds(delay)) => {}
                () = exited => {}
            }
        }
    }
}
