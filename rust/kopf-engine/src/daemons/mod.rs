//! Daemons and timers: everything of them that waits or talks.
//!
//! What sleeps is an entry in one wheel (`wheel`), whether it waits for its interval, its initial delay, or its next
//! attempt: no task, no thread, nothing in Python's loop. What is known of the daemons of one object is its subject
//! (`subject`). What is called comes back as a report to the wheel's task, which writes the patch and takes the next
//! step. How they are stopped, is in `stopping`. The rules are in `kopf_core::daemon`.

mod outbox;
mod reports;
mod stopping;
mod subject;
#[cfg(test)]
mod tests;
mod wheel;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kopf_core::cycle::Answer;
use kopf_core::daemon::{Reasons, Wanted, assess};
use kopf_core::object::Object;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::api::seconds;
use crate::dispatch::{Dispatcher, Shared};
use crate::invoke::Job;
use crate::slots::{Slot, key_of};

pub use reports::Reports;
pub use subject::Subject;
pub use wheel::turn;

use outbox::Outbox;
use wheel::Message;

/// What an operator has of daemons and timers.
#[derive(Default)]
pub struct Background {
    reports: Reports,
    /// The objects that have any, by their addresses.
    subjects: Mutex<HashMap<usize, Arc<Subject>>>,
    paused: AtomicBool,
    closing: AtomicBool,
    /// Those who see off those who stop.
    farewells: TaskTracker,
    /// Those who write patches.
    writers: TaskTracker,
}

/// What came of comparing who is wanted with who is running.
pub enum Staffed {
    /// All is done.
    Done(Answer),
    /// Some are to stop, and that may take a moment: see `Subject::press`.
    Stopping {
        /// Whose they are.
        subject: Arc<Subject>,
        /// The deletion is to be held.
        holds: bool,
    },
}

impl Background {
    /// With this way to its wheel.
    pub fn reached_by(reports: Reports) -> Self {
        Self { reports, ..Self::default() }
    }

    /// Why nobody may run now, if so.
    pub(crate) fn halted(&self) -> Option<Reasons> {
        if self.closing.load(Ordering::Acquire) {
            return Some(Reasons::OPERATOR_EXITING);
        }
        self.paused.load(Ordering::Acquire).then_some(Reasons::OPERATOR_PAUSING)
    }

    fn subjects(&self) -> MutexGuard<'_, HashMap<usize, Arc<Subject>>> {
        self.subjects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enlist(&self, subject: &Arc<Subject>) {
        self.subjects().insert(Arc::as_ptr(subject).addr(), Arc::clone(subject));
    }

    fn strike_off(&self, subject: &Arc<Subject>) {
        self.subjects().remove(&Arc::as_ptr(subject).addr());
    }

    fn tell(&self, message: Message) {
        self.reports.tell(message);
    }
}

impl Dispatcher {
    /// A new state of the object is about to be handled: daemons and timers see it at once.
    pub(crate) fn refresh(&self, slot: &Slot, object: &Arc<Object>) {
        let Some(subject) = &slot.subject else { return };
        if let Some((runs, object)) = subject.replace(object) {
            self.shared.invoker.submit(Job::Refresh { runs, object });
        }
    }

    /// Starts and stops daemons and timers, as far as that can be done at once.
    pub(crate) fn staff(self: &Arc<Self>, slot: &mut Slot, object: &Arc<Object>, wanted: &Wanted) -> Staffed {
        let nothing = |holds| Staffed::Done(Answer::Spawned { delay: None, holds });
        let shared = &self.shared;
        if wanted.gone || slot.gone {
            // There will be no other cycle for them.
            if let Some(subject) = slot.subject.take() {
                shared.see_off(vec![subject], Reasons::RESOURCE_DELETED);
            }
            return nothing(false);
        }
        let now = shared.clock.now();
        let subject = match &slot.subject {
            Some(subject) => Arc::clone(subject),
            None if wanted.handlers.is_empty() => return nothing(false),
            None => {
                let subject = Arc::new(Subject::new(self, key_of(object), object, now));
                Arc::clone(slot.subject.insert(subject))
            }
        };
        let mut out = Outbox::default();
        let (holds, stopping) = {
            let mut state = subject.state();
            state.move_to(self);
            if wanted.reset {
                state.reset(shared, &subject, now, &mut out);
            }
            let halted = shared.background.halted();
            let running = state.running();
            let assessed = assess(wanted, &running, &state.ended, &shared.rules.registry, halted);
            state.ask_to_stop(shared, &subject, &assessed.stop, now, &mut out);
            for handler in assessed.start {
                state.start(shared, &subject, handler, now, &mut out);
            }
            (assessed.holds, state.is_anybody_stopping())
        };
        out.flush(shared);
        // Somebody has told it to halt just now, and has not seen those that were started.
        if let Some(reason) = shared.background.halted()
            && !stopping
        {
            shared.see_off(vec![Arc::clone(&subject)], reason);
        }
        if stopping { Staffed::Stopping { subject, holds } } else { nothing(holds) }
    }
}

impl Shared {
    /// Stops all daemons and timers, and starts no others: another operator has taken over.
    pub fn pause_daemons(self: &Arc<Self>) {
        if !self.background.paused.swap(true, Ordering::AcqRel) {
            let all = self.background.subjects().values().cloned().collect();
            self.see_off(all, Reasons::OPERATOR_PAUSING);
        }
    }

    /// Lets daemons and timers be started again: with the next events of their objects, such as of a listing.
    pub fn resume_daemons(&self) {
        self.background.paused.store(false, Ordering::Release);
    }

    /// Stops all daemons and timers for good, and waits for them as long as they were promised.
    pub async fn close_daemons(self: &Arc<Self>) {
        self.background.closing.store(true, Ordering::Release);
        let all: Vec<_> = self.background.subjects().values().cloned().collect();
        self.see_off(all, Reasons::OPERATOR_EXITING);
        self.background.farewells.close();
        self.background.farewells.wait().await;
        self.background.writers.close();
        let grace = seconds(self.current.get().settings.queueing.exit_timeout);
        // What cannot be written in time is lost, as with workers.
        let _ = timeout(grace, self.background.writers.wait()).await;
    }
}
