//! The daemons and timers of one object: their runs, the states of these, and the next actions.

pub(crate) mod commands;
pub(crate) mod effects;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kopf_core::daemon::{DaemonAction, Schedule, StopReasons, Stopping};
use kopf_core::handler::Handler;
use kopf_core::handling::attempt::Outcome;
use kopf_core::handling::error_backoff::ErrorBackoff;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::persistence::consistency;
use kopf_core::resource::Resource;
use kopf_core::time::Timestamp;
use tokio::sync::Notify;

use super::object::commands::{ScheduledRun, SchedulerCommand};
use super::object::effects::{Effects, exit_messages, report};
use crate::daemons::{DaemonContext, ObjectOwner};
use crate::host::{CallDaemonTask, GetInitialDelayTask, HostTask, LogRecord, RunId};
use crate::metrics::RunCounts;
use crate::spans::daemon_span;

/// The daemons and timers of one object. They may outlive the object's slot.
pub struct ObjectDaemons {
    /// The key of the object.
    pub(super) key: Arc<str>,
    state: Mutex<State>,
    /// The object does not exist any more.
    deleted: AtomicBool,
    /// Notified when a run has ended.
    pub(super) exited: Notify,
}

/// The mutable state of [`ObjectDaemons`].
pub(super) struct State {
    /// The resource of the object.
    pub(super) resource: Arc<Resource>,
    /// The dispatcher of the object.
    owner: Weak<dyn ObjectOwner>,
    /// The last handled state.
    pub(super) object: Arc<Object>,
    /// The state after our last patch, until it is handled.
    pub(super) patched: Option<Arc<Object>>,
    /// The time of the last change of the object's essence.
    pub(super) idle_since: Timestamp,
    /// The running daemons and timers.
    pub(super) runs: Vec<Run>,
    /// A cycle is executing a termination step and will observe the exits itself.
    pub(super) is_terminating: bool,
    /// The ids of handlers that have exited on their own; they are not started again.
    pub(super) ended: Vec<Arc<str>>,
}

/// One daemon or timer.
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) routine: Schedule,
    pub(super) stopping: Stopping,
    /// The stop reasons that were signalled to Python.
    pub(super) signalled: StopReasons,
    pub(super) state: RunState,
    /// Counts the sleeps, so that outdated entries of the scheduler's heap are recognised.
    pub(super) turn: u32,
    /// Python has state of this run.
    known: bool,
    /// Whether the functions of its patch are kept for the next attempt.
    pub(super) carry: bool,
    /// The error backoff of patches that fail one after another.
    pub(super) write_errors: ErrorBackoff,
}

/// The state of a daemon or timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunState {
    /// In the scheduler's heap, or parked.
    Sleeping,
    /// Running in Python; its reply is pending.
    Running,
    /// Its patch is being written.
    Writing,
}

impl ObjectDaemons {
    pub(super) fn new(
        owner: &Arc<dyn ObjectOwner>,
        key: Arc<str>,
        object: &Arc<Object>,
        now: Timestamp,
    ) -> Self {
        let object = kept(object);
        let state = State {
            resource: Arc::clone(owner.resource()),
            owner: Arc::downgrade(owner),
            object,
            patched: None,
            idle_since: now,
            runs: Vec::new(),
            is_terminating: false,
            ended: Vec::new(),
        };
        Self { key, state: Mutex::new(state), deleted: AtomicBool::new(false), exited: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a new state of the object. If Python has runs with a live body, returns their ids and the state to pass on.
    pub(crate) fn replace(&self, object: &Arc<Object>) -> Option<(Vec<RunId>, Arc<Object>)> {
        let mut state = self.state();
        if Arc::ptr_eq(&state.object, object) {
            return None;
        }
        // If handlers have read one state, they will read the next one too.
        state.object = if state.object.is_plain() { Arc::clone(object) } else { kept(object) };
        if state.patched.as_ref().is_some_and(|patched| is_covered(patched, object)) {
            state.patched = None;
        }
        let known: Vec<RunId> = state.runs.iter().filter(|run| run.known).map(|run| run.id).collect();
        (!known.is_empty()).then(|| (known, Arc::clone(&state.object)))
    }

    /// Whether a panic has interrupted a change of the state, so that it is inconsistent.
    pub(crate) fn is_damaged(&self) -> bool {
        self.state.is_poisoned()
    }

    /// Records that the object does not exist any more.
    pub(crate) fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// Whether the deletion of the object was received.
    pub(super) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire) || self.owner().is_some_and(|owner| owner.is_deleted(&self.key))
    }

    /// Whether any daemon or timer runs.
    pub(crate) fn has_runs(&self) -> bool {
        !self.state().runs.is_empty()
    }

    /// Adds its daemons and timers, by the indices of their handlers.
    pub(super) fn add_run_counts(&self, counts: &mut BTreeMap<usize, RunCounts>) {
        for run in &self.state().runs {
            let count: &mut RunCounts = counts.entry(run.routine.handler()).or_default();
            match run.state {
                _ if run.stopping.is_requested() => count.stopping += 1,
                RunState::Running => count.running += 1,
                RunState::Sleeping | RunState::Writing => count.waiting += 1,
            }
        }
    }

    /// The current dispatcher of the object.
    pub(super) fn owner(&self) -> Option<Arc<dyn ObjectOwner>> {
        self.state().owner.upgrade()
    }

    /// Wakes up the cycles of the object after an exit.
    pub(super) fn wake(&self) {
        let (owner, object) = {
            let state = self.state();
            (state.owner.upgrade(), Arc::clone(state.patched.as_ref().unwrap_or(&state.object)))
        };
        if let Some(owner) = owner {
            owner.wake(&self.key, object);
        }
    }
}

/// The object as stored while daemons and timers sleep: compressed, as most of them never read it.
fn kept(object: &Arc<Object>) -> Arc<Object> {
    object.to_compressed().map_or_else(|| Arc::clone(object), Arc::new)
}

/// Whether the state includes our patch.
fn is_covered(patched: &Object, object: &Object) -> bool {
    match (patched.resource_version(), object.resource_version()) {
        (Some(patched), Some(version)) => consistency::contains(patched, version),
        _ => true,
    }
}

impl State {
    /// Sets the current dispatcher, which may be another one than before, for another version of the resource.
    pub(super) fn move_to(&mut self, owner: &Arc<dyn ObjectOwner>) {
        if !std::ptr::addr_eq(self.owner.as_ptr(), Arc::as_ptr(owner)) {
            self.owner = Arc::downgrade(owner);
            self.resource = Arc::clone(owner.resource());
        }
    }

    /// The handlers of the running daemons and timers.
    pub(super) fn running(&self) -> Vec<usize> {
        self.runs.iter().map(|run| run.routine.handler()).collect()
    }

    pub(super) fn find(&self, run: RunId) -> Option<usize> {
        self.runs.iter().position(|one| one.id == run)
    }

    /// Whether a run is stopping and is still waited for.
    pub(super) fn has_stopping_runs(&self) -> bool {
        self.runs.iter().any(|run| run.stopping.is_requested())
    }

    /// Stores the state that the server returned for a patch.
    pub(super) fn note_patched(&mut self, latest: Arc<Object>) {
        if !is_covered(&latest, &self.object) {
            self.patched = Some(latest);
        }
    }

    /// Resets the idle time: the object's essence has changed.
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
        let declared = shared.base.startup_config.registry.handlers.get(handler);
        let Some((routine, first)) = declared.and_then(|declared| Schedule::begin(handler, declared, now))
        else {
            return;
        };
        if self.runs.is_empty() {
            shared.manager.register(object_daemons);
        }
        // Most objects have a single run, and there can be many objects.
        self.runs.reserve_exact(1);
        self.runs.push(Run {
            id: shared.base.next_id(),
            routine,
            stopping: Stopping::default(),
            signalled: StopReasons::default(),
            state: RunState::Sleeping,
            turn: 0,
            known: false,
            carry: false,
            write_errors: ErrorBackoff::default(),
        });
        self.apply_action(shared, object_daemons, self.runs.len() - 1, first, now, out);
    }

    /// Requests the stop of the runs at these positions. Sleeping ones exit at once.
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
            run.stopping.request(reason, now);
            if run.state == RunState::Sleeping {
                self.exit(shared, object_daemons, position, out);
            }
        }
    }

    /// Executes the next action of a run.
    pub(super) fn apply_action(
        &mut self,
        shared: &Arc<DaemonContext>,
        object_daemons: &Arc<ObjectDaemons>,
        position: usize,
        next: DaemonAction,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let mut next = next;
        let idle_since = self.idle_since;
        let Some(run) = self.runs.get_mut(position) else { return };
        if let DaemonAction::Sleep(until) = next
            && until <= now
            && let Some(handler) = declared(shared, run)
        {
            let backoff = shared.base.live_config.get().settings.execution.default_backoff;
            next = run.routine.wake(handler, backoff, now, idle_since);
        }
        match next {
            DaemonAction::Sleep(until) => {
                run.state = RunState::Sleeping;
                run.turn = run.turn.wrapping_add(1);
                out.sleeps.push(ScheduledRun {
                    at: until,
                    object_daemons: Arc::downgrade(object_daemons),
                    run: run.id,
                    turn: run.turn,
                });
            }
            DaemonAction::Park => {
                run.state = RunState::Sleeping;
                run.turn = run.turn.wrapping_add(1);
            }
            DaemonAction::Ask => {
                run.state = RunState::Running;
                run.known = true;
                out.tasks.push(HostTask::GetInitialDelay(GetInitialDelayTask {
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
            DaemonAction::Attempt(attempt) => {
                run.state = RunState::Running;
                run.known = true;
                out.tasks.push(HostTask::CallDaemon(CallDaemonTask {
                    run: run.id,
                    uid: Arc::clone(&object_daemons.key),
                    resource: Arc::clone(&self.resource),
                    object: Arc::clone(&self.object),
                    attempt,
                    span: daemon_span(run.id, &self.resource, &self.object),
                    keep_fns: std::mem::take(&mut run.carry),
                    reply: report(shared, object_daemons, run.id, |object_daemons, run, reply| {
                        SchedulerCommand::Returned { object_daemons, run, reply }
                    }),
                }));
            }
            DaemonAction::Exit => self.exit(shared, object_daemons, position, out),
        }
    }

    /// The patch of a call is written: executes the next action.
    pub(super) fn advance(
        &mut self,
        shared: &Arc<DaemonContext>,
        object_daemons: &Arc<ObjectDaemons>,
        position: usize,
        outcome: &Outcome,
        out: &mut Effects,
    ) {
        let now = shared.base.clock.now();
        let idle_since = self.idle_since;
        let Some(run) = self.runs.get_mut(position) else { return };
        if run.stopping.is_requested() {
            return self.exit(shared, object_daemons, position, out);
        }
        let next = run.routine.attempted(outcome, now, idle_since);
        self.apply_action(shared, object_daemons, position, next, now, out);
    }

    /// Removes an ended run. If no stop was requested, the handler is not started again.
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
            if run.known && shared.base.host.enabled(Level::Debug) {
                let texts = exit_messages(handler, reasons);
                out.entries.extend(texts.map(|text| LogRecord::posted(Level::Debug, &self.object, text)));
            }
        }
        if run.known {
            out.tasks.push(HostTask::DaemonEnded { run: run.id, reasons: reasons | StopReasons::DONE });
        }
        if self.runs.is_empty() {
            shared.manager.unregister(object_daemons);
        }
        object_daemons.exited.notify_waiters();
        // A cycle may be waiting for the last stopping run, or for the release of the deletion.
        let is_last = !self.runs.iter().any(|run| run.stopping.is_requested());
        let is_unseen = run.state != RunState::Sleeping && !self.is_terminating;
        // Kopf 1.45 takes the finalizer away with the next event of the object.
        let is_awaited = !shared.base.startup_config.settings.compat || !reasons.is_empty();
        if is_last && is_unseen && is_awaited && shared.manager.halted().is_none() {
            out.wakes.push(Arc::clone(object_daemons));
        }
    }
}

pub(super) fn declared<'s>(shared: &'s DaemonContext, run: &Run) -> Option<&'s Handler> {
    shared.base.startup_config.registry.handlers.get(run.routine.handler())
}
