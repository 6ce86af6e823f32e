//! Reconcilers: their schedules, calls, and writes. The rules are in `kopf_core::schedule`, `relations`, `predicate` and `readiness`.
//!
//! The events of primaries and of secondary objects come from the feeds (`consumer`), which change the state behind one lock
//! (`state`). Each change starts what is due now; one task ([`Reconcilers::run`]) starts what becomes due later. An idle primary has
//! no task and no timer. Results come back in the host's threads (`calls`); patches and edits of finalizers are written in separate
//! tasks (`writing`).
//!
//! Lock order: the state of reconcilers is locked alone. Jobs, log records and writes are collected in `Effects`, and executed
//! after the lock is released. The host gets the tasks in the order in which they were decided (`submissions`).

mod calls;
mod consumer;
mod cycles;
mod effects;
mod event;
mod inspecting;
mod inspections;
mod lists;
mod measured;
mod metrics;
mod own_writes;
mod primaries;
mod pruned_conditions;
mod readiness;
mod related;
mod relation;
mod state;
mod submissions;
#[cfg(test)]
mod testing;
mod write_triggers;
mod writing;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kopf_core::daemon::StopReasons;
use kopf_core::resource::Selector;
use kopf_core::time::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::context::DeletionHolds;
use crate::context::index_gate::IndexGate;
use crate::operator_pause::Pause;
use crate::task_context::TaskContext;
use crate::time::duration::seconds;
use crate::watch_health::WatchHealth;

pub use consumer::ReconcileConsumer;
use effects::Effects;
pub use own_writes::CallWrites;
use pruned_conditions::PrunedConditions;
pub use readiness::RequiredStream;
use state::State;

/// The reconcilers of an operator.
pub struct Reconcilers {
    base: Arc<TaskContext>,
    health: Arc<WatchHealth>,
    pause: Arc<Pause>,
    state: Mutex<State>,
    /// Notified when something becomes due earlier than the task expects.
    wake: Notify,
    /// Notified when a call has ended.
    ended: Notify,
    /// The tasks that write patches and edit finalizers.
    writers: TaskTracker,
    /// The kinds whose conditions the API server does not store.
    pruned_conditions: PrunedConditions,
    /// Cancelled at the end of the grace period: patches that are not written yet are lost.
    giving_up: CancellationToken,
    /// The runtime: results arrive in threads of the host.
    runtime: Handle,
}

impl Reconcilers {
    /// The reconcilers of the registry; none if it has none. Called in the runtime.
    pub fn of(base: &Arc<TaskContext>, health: &Arc<WatchHealth>, pause: &Arc<Pause>) -> Option<Arc<Self>> {
        let state = State::of(base, pause)?;
        Some(Arc::new(Self {
            base: Arc::clone(base),
            health: Arc::clone(health),
            pause: Arc::clone(pause),
            state: Mutex::new(state),
            wake: Notify::new(),
            ended: Notify::new(),
            writers: TaskTracker::new(),
            pruned_conditions: PrunedConditions::default(),
            giving_up: CancellationToken::new(),
            runtime: Handle::current(),
        }))
    }

    /// Starts what is due, until the end of the operator. The indices are filled when the gate is open.
    pub async fn run(self: Arc<Self>, index_gate: Option<Arc<IndexGate>>) {
        if let Some(index_gate) = index_gate {
            index_gate.opened().await;
        }
        self.state().set_handlers_ready();
        let clock = self.base.clock.clone();
        loop {
            let next = self.step();
            tokio::select! {
                () = self.wake.notified() => {}
                () = clock.sleep_until(next.unwrap_or(Timestamp::from_micros(0))), if next.is_some() => {}
            }
        }
    }

    /// Stops the calls at the start of each pause. The lists after the pause start them again.
    pub async fn follow_pauses(self: Arc<Self>) {
        loop {
            self.pause.paused_since(self.pause.count()).await;
            self.with_state(|state, now, effects| {
                state.stop_all(StopReasons::OPERATOR_PAUSING, now, effects);
            });
            self.pause.over().await;
            self.wake.notify_one();
        }
    }

    /// Stops and cancels the running calls: the lease is lost. Waits until they have ended, however long that takes.
    pub async fn end_term(self: &Arc<Self>) {
        self.with_state(|state, now, effects| {
            state.stop_all(StopReasons::OPERATOR_PAUSING, now, effects);
            state.cancel_all(effects);
        });
        self.quiet().await;
    }

    /// Waits until no call runs.
    async fn quiet(&self) {
        loop {
            let ended = self.ended.notified();
            if self.state().runs.is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// Notifies the running calls through `stopped`, and waits for them within `exit_timeout`. Nothing starts any more.
    pub async fn close(self: &Arc<Self>) {
        let grace = self.with_state(|state, now, effects| {
            state.is_closing = true;
            state.stop_all(StopReasons::OPERATOR_EXITING, now, effects);
            state.exit_timeout()
        });
        // The calls end within the grace period, which virtual time does not prolong: they are cancelled then.
        if tokio::time::timeout(seconds(grace), self.quiet()).await.is_err() {
            self.with_state(|state, _, effects| state.cancel_all(effects));
        }
        self.writers.close();
        let grace = seconds(self.base.live_config.get().settings.queueing.exit_timeout);
        if tokio::time::timeout(grace, self.writers.wait()).await.is_err() {
            self.giving_up.cancel();
            self.writers.wait().await;
        }
    }

    /// Triggers the primary of this name or uid, or all primaries, of one reconciler or of all. Returns whether there was any.
    pub fn trigger(self: &Arc<Self>, handler: Option<usize>, primary: Option<&PrimaryName>) -> bool {
        self.with_state(|state, now, effects| state.trigger_by_name(handler, primary, now, effects))
    }

    /// Starts what is due. Returns the time of the next action.
    fn step(self: &Arc<Self>) -> Option<Timestamp> {
        let mut effects = Effects::default();
        let now = self.base.clock.now();
        let (next, tasks) = {
            let mut state = self.state();
            state.expire(now, &mut effects);
            state.repeat_inspections(now, &mut effects);
            state.warn(&self.health, self.pauses(), now, &mut effects);
            state.next_step = self.start_due(&mut state, now, &mut effects);
            (state.next_step, state.submissions.put(effects.take_tasks(self)))
        };
        effects.execute(self, tasks);
        next
    }

    /// Calls the function with the locked state, starts what is due, and executes the effects.
    fn with_state<T>(self: &Arc<Self>, change: impl FnOnce(&mut State, Timestamp, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let now = self.base.clock.now();
        let (result, is_earlier, tasks) = {
            let mut state = self.state();
            let result = change(&mut state, now, &mut effects);
            let next = self.start_due(&mut state, now, &mut effects);
            let is_earlier = next.is_some_and(|next| state.next_step.is_none_or(|expected| next < expected));
            if is_earlier {
                state.next_step = next;
            }
            (result, is_earlier, state.submissions.put(effects.take_tasks(self)))
        };
        effects.execute(self, tasks);
        if is_earlier {
            self.wake.notify_one();
        }
        result
    }

    /// Starts what is due, unless the operator is paused. Returns the time of the next action.
    fn start_due(
        self: &Arc<Self>,
        state: &mut State,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Option<Timestamp> {
        // With the locked state: a pause stops the calls that are started before it.
        let pauses = self.pauses();
        if let Some(pauses) = pauses {
            state.start_due(self, pauses, now, effects);
        }
        state.next_time(pauses)
    }

    /// The number of pauses and terms so far; none during a pause.
    fn pauses(&self) -> Option<u64> {
        (!self.pause.is_on()).then(|| self.pause.count())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The own writes that caches do not show as delivered yet (A9).
pub trait OwnWrites: Send + Sync {
    /// The number of the last write that was started.
    fn mark(&self) -> u64;
    /// Whether the writes after the first number up to the second one are visible.
    fn are_visible(&self, after: u64, until: u64) -> bool;
    /// The time at which the wait for them ends.
    fn deadline(&self) -> Timestamp;
}

impl Reconcilers {
    /// Lets the next reconciliation of a primary wait for the writes of the previous one.
    pub fn wait_for_writes(&self, writes: Arc<dyn OwnWrites>) {
        self.state().writes = Some(writes);
    }

    /// Called when own writes have become visible.
    pub fn on_visible_writes(self: &Arc<Self>) {
        if !self.state().unconfirmed.is_empty() {
            self.with_state(State::confirm_writes);
        }
    }
}

impl DeletionHolds for Reconcilers {
    fn holds(&self, key: &str) -> bool {
        self.state().holds(key)
    }

    fn await_ordinary_calls<'a>(&'a self, key: &'a str) -> BoxFuture<'a, ()> {
        async move {
            loop {
                let ended = self.ended.notified();
                if !self.state().has_ordinary_call(key) {
                    return;
                }
                ended.await;
            }
        }
        .boxed()
    }
}

/// The identity of a primary in external triggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryName {
    /// The uid, if it is known.
    pub uid: Option<String>,
    /// The names of the kind that resources are selected by; none for any kind.
    pub kind: Option<Selector>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}
