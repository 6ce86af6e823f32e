//! The daemons and timers of one object: who runs, where each of them is, and what follows from what comes back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kopf_core::consistency;
use kopf_core::daemon::{Move, Reasons, Routine, Stopping};
use kopf_core::handler::Handler;
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::outcome::Outcome;
use kopf_core::resource::Resource;
use kopf_core::time::Timestamp;
use tokio::sync::Notify;

use super::outbox::{Outbox, farewells, report};
use super::wheel::{Due, Message};
use crate::dispatch::{Dispatcher, Shared};
use crate::invoke::{DelayJob, Entry, Job, RunId, RunJob};

/// An object with daemons or timers. It outlives the object's slot, if they outlive the object.
pub struct Subject {
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
    home: Weak<Dispatcher>,
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
    pub(super) routine: Routine,
    pub(super) stopping: Stopping,
    /// What the other side has been told of the stopping.
    pub(super) told: Reasons,
    pub(super) place: Place,
    /// Counts the sleeps, so that outdated entries of the wheel are recognised.
    pub(super) turn: u32,
    /// The other side keeps something of it.
    known: bool,
    /// The functions of its patch are to be kept for the next attempt.
    pub(super) carry: bool,
}

/// Where a daemon or timer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the wheel, or parked.
    Asleep,
    /// On the other side.
    Away,
    /// Its patch is being written.
    Writing,
}

impl Subject {
    pub(super) fn new(home: &Arc<Dispatcher>, key: Arc<str>, object: &Arc<Object>, now: Timestamp) -> Self {
        let object = kept(object);
        let state = State {
            resource: Arc::clone(&home.plan.resource),
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
    pub(super) fn replace(&self, object: &Arc<Object>) -> Option<(Vec<RunId>, Arc<Object>)> {
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
    pub(super) fn home(&self) -> Option<Arc<Dispatcher>> {
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
    pub(super) fn move_to(&mut self, home: &Arc<Dispatcher>) {
        if !std::ptr::eq(self.home.as_ptr(), Arc::as_ptr(home)) {
            self.home = Arc::downgrade(home);
            self.resource = Arc::clone(&home.plan.resource);
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
        shared: &Arc<Shared>,
        subject: &Arc<Subject>,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        self.idle_since = now;
        for position in (0..self.runs.len()).rev() {
            if let Some(next) = self.runs[position].routine.changed(now) {
                self.proceed(shared, subject, position, next, now, out);
            }
        }
    }

    /// Starts a daemon or a timer.
    pub(super) fn start(
        &mut self,
        shared: &Arc<Shared>,
        subject: &Arc<Subject>,
        handler: usize,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        let declared = shared.rules.registry.handlers.get(handler);
        let Some((routine, first)) = declared.and_then(|declared| Routine::begin(handler, declared, now))
        else {
            return;
        };
        if self.runs.is_empty() {
            shared.background.enlist(subject);
        }
        // Most objects have one, and there can be many objects.
        self.runs.reserve_exact(1);
        self.runs.push(Run {
            id: shared.next_cycle(),
            routine,
            stopping: Stopping::default(),
            told: Reasons::default(),
            place: Place::Asleep,
            turn: 0,
            known: false,
            carry: false,
        });
        self.proceed(shared, subject, self.runs.len() - 1, first, now, out);
    }

    /// Asks some to stop, by their positions. Those that sleep have stopped with that.
    pub(super) fn ask_to_stop(
        &mut self,
        shared: &Arc<Shared>,
        subject: &Arc<Subject>,
        which: &[(usize, Reasons)],
        now: Timestamp,
        out: &mut Outbox,
    ) {
        for &(position, reason) in which.iter().rev() {
            let Some(run) = self.runs.get_mut(position) else { continue };
            run.stopping.ask(reason, now);
            if run.place == Place::Asleep {
                self.exit(shared, subject, position, out);
            }
        }
    }

    /// Takes the next step of one of them.
    pub(super) fn proceed(
        &mut self,
        shared: &Arc<Shared>,
        subject: &Arc<Subject>,
        position: usize,
        next: Move,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        let mut next = next;
        let idle_since = self.idle_since;
        let Some(run) = self.runs.get_mut(position) else { return };
        if let Move::Sleep(until) = next
            && until <= now
            && let Some(handler) = declared(shared, run)
        {
            let backoff = shared.current.get().settings.execution.default_backoff;
            next = run.routine.wake(handler, backoff, now, idle_since);
        }
        match next {
            Move::Sleep(until) => {
                run.place = Place::Asleep;
                run.turn = run.turn.wrapping_add(1);
                out.sleeps.push(Due {
                    at: until,
                    subject: Arc::downgrade(subject),
                    run: run.id,
                    turn: run.turn,
                });
            }
            Move::Park => {
                run.place = Place::Asleep;
                run.turn = run.turn.wrapping_add(1);
            }
            Move::Ask => {
                run.place = Place::Away;
                run.known = true;
                out.jobs.push(Job::Delay(DelayJob {
                    run: run.id,
                    handler: run.routine.handler(),
                    uid: Arc::clone(&subject.key),
                    resource: Arc::clone(&self.resource),
                    object: Arc::clone(&self.object),
                    reply: report(shared, subject, run.id, |subject, run, delay| Message::Delayed {
                        subject,
                        run,
                        delay,
                    }),
                }));
            }
            Move::Attempt(attempt) => {
                run.place = Place::Away;
                run.known = true;
                out.jobs.push(Job::Run(RunJob {
                    run: run.id,
                    uid: Arc::clone(&subject.key),
                    resource: Arc::clone(&self.resource),
                    object: Arc::clone(&self.object),
                    attempt,
                    carry: std::mem::take(&mut run.carry),
                    reply: report(shared, subject, run.id, |subject, run, reply| Message::Returned {
                        subject,
                        run,
                        reply,
                    }),
                }));
            }
            Move::Exit => self.exit(shared, subject, position, out),
        }
    }

    /// What one of them has left behind is written: what is next?
    pub(super) fn advance(
        &mut self,
        shared: &Arc<Shared>,
        subject: &Arc<Subject>,
        position: usize,
        outcome: &Outcome,
        out: &mut Outbox,
    ) {
        let now = shared.clock.now();
        let idle_since = self.idle_since;
        let Some(run) = self.runs.get_mut(position) else { return };
        if run.stopping.is_asked() {
            return self.exit(shared, subject, position, out);
        }
        let next = run.routine.attempted(outcome, now, idle_since);
        self.proceed(shared, subject, position, next, now, out);
    }

    /// One of them has ended. If nobody has asked for that, it is not started again.
    pub(super) fn exit(
        &mut self,
        shared: &Arc<Shared>,
        subject: &Arc<Subject>,
        position: usize,
        out: &mut Outbox,
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
            if run.known && shared.invoker.enabled(Level::Debug) {
                let texts = farewells(handler, reasons);
                out.entries.extend(texts.map(|text| Entry::posted(Level::Debug, &self.object, text)));
            }
        }
        if run.known {
            out.jobs.push(Job::Dismiss { run: run.id, reasons: reasons | Reasons::DONE });
        }
        if self.runs.is_empty() {
            shared.background.strike_off(subject);
        }
        subject.exited.notify_waiters();
        // Whoever waits for the last one of those that stop, can go on now; so can whoever is not held any more.
        let is_last = !self.runs.iter().any(|run| run.stopping.is_asked());
        let is_unseen = run.place != Place::Asleep && !self.pressing;
        // Kopf 1.45 takes the finalizer away with the next event of the object.
        let is_awaited = !shared.rules.settings.compat || !reasons.is_empty();
        if is_last && is_unseen && is_awaited && shared.background.halted().is_none() {
            out.wakes.push(Arc::clone(subject));
        }
    }
}

fn declared<'s>(shared: &'s Shared, run: &Run) -> Option<&'s Handler> {
    shared.rules.registry.handlers.get(run.routine.handler())
}
