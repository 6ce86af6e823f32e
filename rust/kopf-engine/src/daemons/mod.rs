//! Daemons and timers: scheduling, calls, writes, and termination. The rules are in `kopf_core::daemon`.
//!
//! A sleeping daemon or timer is an entry in the heap of one scheduler (`scheduler`): no task, no thread, nothing in Python's
//! loop. The state of the daemons of one object is in `object`. The result of a call comes back as a command to the scheduler,
//! which writes the patch and applies the next action. `termination` stops daemons.

mod channel;
mod object;
mod scheduler;
mod termination;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use kopf_core::daemon::{DesiredDaemons, StopReasons, diff};
use kopf_core::object::Object;
use kopf_core::persistence::memory::Accepted;
use kopf_core::resource::Resource;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::Client;
use crate::metrics::RunCounts;
use crate::object_key::key_of;
use crate::task_context::TaskContext;
use crate::time::duration::seconds;

pub use channel::CommandSender;
pub use object::ObjectDaemons;
pub(crate) use scheduler::WRITE_RETRIES;
pub use scheduler::run_scheduler;

use object::commands::SchedulerCommand;
use object::effects::Effects;

/// All daemons and timers of an operator.
#[derive(Default)]
pub struct DaemonManager {
    command_sender: CommandSender,
    /// The objects with daemons or timers, by their addresses in memory.
    objects: Mutex<HashMap<usize, Arc<ObjectDaemons>>>,
    paused: AtomicBool,
    closing: AtomicBool,
    /// The tasks that wait for stopping daemons.
    terminations: TaskTracker,
    /// The tasks that write patches.
    writers: TaskTracker,
    /// Cancelled at the end of the grace period: patches that are not written yet are lost.
    giving_up: CancellationToken,
}

/// The context of daemons and timers.
pub struct DaemonContext {
    /// The part that all tasks share.
    pub base: Arc<TaskContext>,
    /// All daemons and timers.
    pub manager: DaemonManager,
}

/// The dispatcher of an object with daemons or timers.
pub trait ObjectOwner: Send + Sync {
    /// The resource of its objects.
    fn resource(&self) -> &Arc<Resource>;
    /// The client for patches of its objects.
    fn client(&self) -> &Client;
    /// Starts a cycle of the object without a watch event.
    fn wake(self: Arc<Self>, key: &Arc<str>, object: Arc<Object>);
    /// Records a write of a daemon or a timer.
    fn record_write(&self, key: &Arc<str>, accepted: Accepted<'_>);
    /// Whether a deletion event means that an object does not exist, and not only that the watch does not select it any more.
    fn trusts_deletions(&self) -> bool;
    /// Whether the object is known to be deleted.
    fn is_deleted(&self, key: &Arc<str>) -> bool;
}

/// The result of reconciling the desired and the running daemons.
pub enum DaemonDiffResult {
    /// Nothing is left to wait for.
    Done {
        /// The seconds until the next check of the object, if there is one.
        delay: Option<f64>,
        /// Whether they hold the deletion of the object.
        holds: bool,
    },
    /// Some are stopping, which may take a moment: see `ObjectDaemons::terminate_step`.
    Stopping {
        /// The daemons and timers of the object.
        object_daemons: Arc<ObjectDaemons>,
        /// Whether they hold the deletion of the object.
        holds: bool,
    },
}

impl DaemonManager {
    /// A manager with this channel to its scheduler.
    pub fn reached_by(command_sender: CommandSender) -> Self {
        Self { command_sender, ..Self::default() }
    }

    /// The reason why no daemon may run now, if there is one: the operator is stopping or paused.
    pub(crate) fn halted(&self) -> Option<StopReasons> {
        if self.closing.load(Ordering::Acquire) {
            return Some(StopReasons::OPERATOR_EXITING);
        }
        self.paused.load(Ordering::Acquire).then_some(StopReasons::OPERATOR_PAUSING)
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<usize, Arc<ObjectDaemons>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The daemons and timers now, by the indices of their handlers.
    pub fn run_counts(&self) -> BTreeMap<usize, RunCounts> {
        let objects: Vec<_> = self.objects().values().cloned().collect();
        let mut counts = BTreeMap::new();
        for object_daemons in objects {
            object_daemons.add_run_counts(&mut counts);
        }
        counts
    }

    fn register(&self, object_daemons: &Arc<ObjectDaemons>) {
        self.objects().insert(Arc::as_ptr(object_daemons).addr(), Arc::clone(object_daemons));
    }

    fn unregister(&self, object_daemons: &Arc<ObjectDaemons>) {
        self.objects().remove(&Arc::as_ptr(object_daemons).addr());
    }

    fn send(&self, message: SchedulerCommand) {
        self.command_sender.send(message);
    }
}

impl DaemonContext {
    /// Starts and stops daemons and timers, as far as possible without waiting.
    pub(crate) fn apply_daemon_diff(
        self: &Arc<Self>,
        owner: &Arc<dyn ObjectOwner>,
        (known, is_gone): (&mut Option<Arc<ObjectDaemons>>, bool),
        object: &Arc<Object>,
        desired: &DesiredDaemons,
    ) -> DaemonDiffResult {
        let nothing = |holds| DaemonDiffResult::Done { delay: None, holds };
        let shared = self;
        if desired.gone || is_gone {
            // No further cycle of the object will stop them.
            if let Some(object_daemons) = known.take() {
                if desired.gone && owner.trusts_deletions() {
                    object_daemons.mark_deleted();
                }
                shared.terminate_daemons(vec![object_daemons], StopReasons::RESOURCE_DELETED);
            }
            return nothing(false);
        }
        let now = shared.base.clock.now();
        let object_daemons = match &*known {
            Some(object_daemons) => Arc::clone(object_daemons),
            None if desired.handlers.is_empty() => return nothing(false),
            None => {
                let object_daemons = Arc::new(ObjectDaemons::new(owner, key_of(object), object, now));
                Arc::clone(known.insert(object_daemons))
            }
        };
        let mut out = Effects::default();
        let (holds, stopping) = {
            let mut state = object_daemons.state();
            state.move_to(owner);
            if desired.reset {
                state.reset(shared, &object_daemons, now, &mut out);
            }
            let halted = shared.manager.halted();
            let running = state.running();
            let assessed =
                diff(desired, &running, &state.ended, &shared.base.startup_config.registry, halted);
            state.ask_to_stop(shared, &object_daemons, &assessed.stop, now, &mut out);
            for handler in assessed.start {
                state.start(shared, &object_daemons, handler, now, &mut out);
            }
            (assessed.holds, state.has_stopping_runs())
        };
        out.flush(shared);
        // The operator has just been halted, and the daemons started here were not among those stopped.
        if let Some(reason) = shared.manager.halted()
            && !stopping
        {
            shared.terminate_daemons(vec![Arc::clone(&object_daemons)], reason);
        }
        if stopping { DaemonDiffResult::Stopping { object_daemons, holds } } else { nothing(holds) }
    }

    /// Stops all daemons and timers and starts no others: another operator has taken over.
    pub fn pause_daemons(self: &Arc<Self>) {
        if !self.manager.paused.swap(true, Ordering::AcqRel) {
            let all = self.manager.objects().values().cloned().collect();
            self.terminate_daemons(all, StopReasons::OPERATOR_PAUSING);
        }
    }

    /// Starts no daemons and timers any more: the lease is lost.
    pub fn halt(&self) {
        self.manager.paused.store(true, Ordering::Release);
    }

    /// Stops and cancels all daemons and timers, which are halted. Waits until they have ended, however long
    /// that takes.
    pub async fn end_term(self: &Arc<Self>) {
        loop {
            let all: Vec<_> = self.manager.objects().values().cloned().collect();
            if all.is_empty() {
                return;
            }
            join_all(all.iter().map(|object_daemons| object_daemons.cancel(self))).await;
        }
    }

    /// Allows starting daemons and timers again, with the next events of their objects, such as those of a listing.
    pub fn resume_daemons(&self) {
        self.manager.paused.store(false, Ordering::Release);
    }

    /// Stops all daemons and timers for good, and waits for them within their grace periods.
    pub async fn close_daemons(self: &Arc<Self>) {
        self.manager.closing.store(true, Ordering::Release);
        let all: Vec<_> = self.manager.objects().values().cloned().collect();
        self.terminate_daemons(all, StopReasons::OPERATOR_EXITING);
        self.manager.terminations.close();
        self.manager.terminations.wait().await;
        self.manager.writers.close();
        let grace = seconds(self.base.live_config.get().settings.queueing.exit_timeout);
        // Patches that are not written in time are lost, as those of workers.
        if timeout(grace, self.manager.writers.wait()).await.is_err() {
            self.manager.giving_up.cancel();
            self.manager.writers.wait().await;
        }
    }
}
