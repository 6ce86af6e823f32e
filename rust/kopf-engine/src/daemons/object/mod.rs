//! The daemons and timers of one object: who runs, where each of them is, and what follows from what comes back.

pub(crate) mod commands;
pub(crate) mod effects;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kopf_core::daemon::{Action, Schedule, StopReasons, Stopping};
use kopf_core::handler::Handler;
use kopf_core::handling::attempt::Outcome;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::persistence::consistency;
use kopf_core::resource::Resource;
use kopf_core::time::Timestamp;
use tokio::sync::Notify;

use super::object::commands::{ScheduledRun, SchedulerCommand};
use super::object::effects::{Effects, exit_messages, report};
use crate::daemons::{DaemonContext, ObjectOwner};
use crate::host::{DelayTask, HostTask, LogRecord, RunId, RunTask};

/// The daemons and timers of one object. They may outlive the object's slot.
pub struct ObjectDaemons {
    /// The key of the object.
    pub(super) key: Arc<str>,
    state: Mutex<State>,
    /// Told when somebody has ended.
    pub(super) exited: Notify,
}

/// What changes of it.
pub(super) struct State {
    /// What kind of object it is.
    pub(super) resource: Arc<Resource>,
    /// Who handles the object.
    home: Weak<dyn ObjectOwner>,
    /// The last state that was handled.
    pub(super) object: Arc<Object>,
    /// The state that the last own patch has made, if it is not handled yet.
    pub(super) patched: Option<Arc<Object>>,
    /// When the object has last changed in its essence.
    pub(super) idle_since: Timestamp,
    /// Those that run.
    pub(super) runs: Vec<Run>,
    /// A cycle waits for those that stop: it will see that they have ended.
    pub(super) pressing: bool,
    /// The ids of those that have ended by themselves, and are not started any more.
    pub(super) ended: Vec<Arc<str>>,
}

/// One daemon or timer.
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) routine: Schedule,
    pub(super) stopping: Stopping,
    /// What the other side has been told of the stopping.
    pub(super) told: StopReasons,
    pub(super) place: RunState,
    /// Counts the sleeps, so that outdated entries of the wheel are recognised.
    pub(super) turn: u32,
    /// The other side keeps something of it.
    known: bool,
    /// The functions of its patch are to be kept for the next attempt.
    pub(super) carry: bool,
}

/// The state of a daemon or timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunState {
    /// In the wheel, or parked.
    Sleeping,
    /// On the other side.
    Running,
    /// Its patch is being written.
    Writing,
}

impl ObjectDaemons {
    pub(super) fn new(
        home: &Arc<dyn ObjectOwner>,
        key: Arc<str>,
        object: &Arc<Object>,
        now: Timestamp,
    ) -> Self {
        let object = kept(object);
        let state = State {
            resource: Arc::clone(home.resource()),
            home: Arc::downgrade(home),
            object,
            patched: None,
            idle_since: now,
            runs: Vec::new(),
            pressing: false,
            ended: Vec::new(),
        };
        Self { key, state: Mutex::new(state), exited: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a new state of the object, and gives it back as it is kept if the other side must learn of it: with those that
    /// it knows of.
    pub(crate) fn replace(&self, object: &Arc<Object>) -> Option<(Vec<RunId>, Arc<Object>)> {
        let mut state = self.state();
        if Arc::ptr_eq(&state.object, object) {
            return None;
        }
        // Whoever has looked at one state will look at the next one.
        state.object = if state.object.is_plain() { Arc::clone(object) } else { kept(object) };
        if state.patched.as_ref().is_some_and(|patched| is_covered(patched, object)) {
            state.patched = None;
        }
        let known: Vec<RunId> = state.runs.iter().filter(|run| run.known).map(|run| run.id).collect();
        (!known.is_empty()).then(|| (known, Arc::clone(&state.object)))
    }

    /// Whether a step of them has panicked halfway: it is not known who runs.
    pub(crate) fn is_damaged(&self) -> bool {
        self.state.is_poisoned()
    }

    /// Whether anybody runs.
    pub(crate) fn is_staffed(&self) -> bool {
        !self.state().runs.is_empty()
    }

    /// Who handles the object now.
    pub(super) fn home(&self) -> Option<Arc<dyn ObjectOwner>> {
        self.state().home.upgrade()
    }

    /// Lets the object's cycles know that somebody has ended.
    pub(super) fn wake(&self) {
        let (home, object) = {
            let state = self.state();
            (state.home.upgrade(), Arc::clone(state.patched.as_ref().unwrap_or(&state.object)))
        };
        if let Some(home) = home {
            home.wake(&self.key, object);
        }
    }
}

/// The object as it is kept while daemons and timers wait: most of them never look at it.
fn kept(object: &Arc<Object>) -> Arc<Object> {
    object.packed().map_or_else(|| Arc::clone(object), Arc::new)
}

/// Whether the state contains what was patched.
fn is_covered(patched: &Object, object: &Object) -> bool {
    match (patched.resource_version(), object.resource_version()) {
        (Some(patched), Some(version)) => consistency::contains(patched, version),
        _ => true,
    }
}

impl State {
    /// The object is handled by this one now: maybe by another one than before, in another version of its kind.
    pub(super) fn move_to(&mut self, home: &Arc<dyn ObjectOwner>) {
        if !std::ptr::addr_eq(self.home.as_ptr(), Arc::as_ptr(home)) {
            self.home = Arc::downgrade(home);
            self.resource = Arc::clone(home.resource());
        }
    }

    /// The handlers of those that run.
    pub(super) fn running(&self) -> Vec<usize> {
        self.runs.iter().map(|run| run.routine.handler()).collect()
    }

    pub(super) fn find(&self, run: RunId) -> Option<usize> {
        self.runs.iter().position(|one| one.id == run)
    }

    /// Whether somebody is asked to stop and is still waited for.
    pub(super) fn is_anybody_stopping(&self) -> bool {
        self.runs.iter().any(|run| run.stopping.is_asked())
    }

    /// The server has answered to a patch with this state.
    pub(super) fn note_patched(&mut self, latest: Arc<Object>) {
        if !is_covered(&latest, &self.object) {
            self.patched = Some(latest);
        }
    }

    /// The object has changed in its essence.
    pub(super) fn reset(
        &mut self,
        shared: &Arc<DaemonContext>,
        object_daemons: &Arc<ObjectDaemons>,
        now: Timestamp,
        out: &mut Effects,
    ) {
        self.idle_since = now;
        for position in (0..self.runs.len()).rev() {
            if let Some(next) = self.runs[position].routine.changed(now) {
                self.apply_action(shared, object_daemons, position, next, now, out);
            }
        }
    }

    /// Starts a daemon or a timer.
    pub(super) fn start(
        &mut self,
        shared: &Arc<DaemonContext>,
        object_daemons: &Arc<ObjectDaemons>,
        handler: usize,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let declared = shared.rules.registry.handlers.get(handler);
        let Some((routine, first)) = declared.and_then(|declared| Schedule::begin(handler, declared, now))
        else {
            return;
        };
        if self.runs.is_empty() {
            shared.manager.register(object_daemons);
        }
        // Most objects have one, and there can be many objects.
        self.runs.reserve_exact(1);
        self.runs.push(Run {
            id: shared.next_run(),
            routine,
            stopping: Stopping::default(),
            told: StopReasons::default(),
            place: RunState::Sleeping,
            turn: 0,
            known: false,
            carry: false,
        });
        self.apply_action(shared, object_daemons, self.runs.len() - 1, first, now, out);
    }

    /// Asks some to stop, by their positions. Those that sleep have stopped with that.
    pub(super) fn ask_to_stop(
        &mut self,
        shared: &Arc<DaemonContext>,
        object_daemons: &Arc<ObjectDaemons>,
        which: &[(usize, StopReasons)],
        now: Timestamp,
        out: &mut Effects,
    ) {
        for &(position, reason) in which.iter().rev() {
            let Some(run) = self.runs.get_mut(position) else { continue };
            run.stopping.ask(reason, now);
            if run.place == RunState::Sleeping {
                self.exit(shared, object_daemons, position, out);
            }
        }
    }

    /// Takes the next step of one of them.
    pub(super) fn apply_action(
        &mut self,
        shared: &Arc<DaemonContext>,
        object_daemons: &Arc<ObjectDaemons>,
        position: usize,
        next: Action,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let mut next = next;
        let idle_since = self.idle_since;
        let Some(run) = self.runs.get_mut(position) else { return };
        if let Action::Sleep(until) = next
            && until <= now
            && let Some(handler) = declared(shared, run)
        {
            let backoff = shared.current.get().settings.execution.default_backoff;
            next = run.routine.wake(handler, backoff, now, idle_since);
        }
        match next {
            Action::Sleep(until) => {
                run.place = RunState::Sleeping;
                run.turn = run.turn.wrapping_add(1);
                out.sleeps.push(ScheduledRun {
                    at: until,
                    object_daemons: Arc::downgrade(object_daemons),
                    run: run.id,
                    turn: run.turn,
                });
            }
            Action::Park => {
                run.place = RunState::Sleeping;
                run.turn = run.turn.wrapping_add(1);
            }
            Action::Ask => {
                run.place = RunState::Running;
                run.known = true;
                out.jobs.push(HostTask::Delay(DelayTask {
                    run: run.id,
                    handler: run.routine.handler(),
                    uid: Arc::clone(&object_daemons.key),
                    resource: Arc::clone(&self.resource),
                    object: Arc::clone(&self.object),
                    reply: report(shared, object_daemons, run.id, |object_daemons, run, delay| {
                        SchedulerCommand::Delayed { object_daemons, run, delay }
                    }),
                }));
            }
            Action::Attempt(attempt) => {
                run.place = RunState::Running;
                run.known = true;
                out.jobs.push(HostTask::Run(RunTask {
                    run: run.id,
                    uid: Arc::clone(&object_daemons.key),
                    resource: Arc::clone(&self.resource),
                    object: Arc::clone(&self.object),
                    attempt,
                    carry: std::mem::take(&mut run.carry),
                    reply: report(shared, object_daemons, run.id, |object_daemons, run, reply| {
                        SchedulerCommand::Returned { object_daemons, run, reply }
                    }),
                }));
            }
            Action::Exit => self.exit(shared, object_daemons, position, out),
        }
    }

    /// What one of them has left behind is written: what is next?
    pub(super) fn advance(
        &mut self,
        shared: &Arc<DaemonContext>,
        object_daemons: &Arc<ObjectDaemons>,
        position: usize,
        outcome: &Outcome,
        out: &mut Effects,
    ) {
        let now = shared.clock.now();
        let idle_since = self.idle_since;
        let Some(run) = self.runs.get_mut(position) else { return };
        if run.stopping.is_asked() {
            return self.exit(shared, object_daemons, position, out);
        }
        let next = run.routine.attempted(outcome, now, idle_since);
        self.apply_action(shared, object_daemons, position, next, now, out);
    }

    /// One of them has ended. If nobody has asked for that, it is not started again.
    pub(super) fn exit(
        &mut self,
        shared: &Arc<DaemonContext>,
        object_daemons: &Arc<ObjectDaemons>,
        position: usize,
        out: &mut Effects,
    ) {
        if position >= self.runs.len() {
            return;
        }
        let run = self.runs.swap_remove(position);
        let reasons = run.stopping.reasons();
        if let Some(handler) = declared(shared, &run) {
            if reasons.is_empty() {
                self.ended.push(Arc::clone(&handler.id));
            }
            if run.known && shared.host.enabled(Level::Debug) {
                let texts = exit_messages(handler, reasons);
                out.entries.extend(texts.map(|text| LogRecord::posted(Level::Debug, &self.object, text)));
            }
        }
        if run.known {
            out.jobs.push(HostTask::Dismiss { run: run.id, reasons: reasons | StopReasons::DONE });
        }
        if self.runs.is_empty() {
            shared.manager.unregister(object_daemons);
        }
        object_daemons.exited.notify_waiters();
        // Whoever waits for the last one of those that stop, can go on now; so can whoever is not held any more.
        let is_last = !self.runs.iter().any(|run| run.stopping.is_asked());
        let is_unseen = run.place != RunState::Sleeping && !self.pressing;
        // Kopf 1.45 takes the finalizer away with the next event of the object.
        let is_awaited = !shared.rules.settings.compat || !reasons.is_empty();
        if is_last && is_unseen && is_awaited && shared.manager.halted().is_none() {
            out.wakes.push(Arc::clone(object_daemons));
        }
    }
}

fn declared<'s>(shared: &'s DaemonContext, run: &Run) -> Option<&'s Handler> {
    shared.rules.registry.handlers.get(run.routine.handler())
}
