//! What follows from events: collected while the slots are locked, done when they are not locked any more.

use super::{Begun, Shared};
use crate::invoke::{Entry, Job};
use crate::worker::Worker;

/// What is to be done, in this order.
#[derive(Default)]
pub(crate) struct Effects(Vec<Effect>);

enum Effect {
    Log(Entry),
    Submit(Job),
    Spawn(Worker, Option<Box<Begun>>),
}

impl Effects {
    /// Logs a line.
    pub(crate) fn log(&mut self, entry: Entry) {
        self.0.push(Effect::Log(entry));
    }

    /// Logs these lines.
    pub(super) fn log_all(&mut self, entries: Vec<Entry>) {
        self.0.extend(entries.into_iter().map(Effect::Log));
    }

    /// Hands over a piece of work.
    pub(super) fn submit(&mut self, job: Job) {
        self.0.push(Effect::Submit(job));
    }

    /// Starts a worker.
    pub(super) fn spawn(&mut self, worker: Worker, begun: Option<Box<Begun>>) {
        self.0.push(Effect::Spawn(worker, begun));
    }

    /// Does all of it.
    pub(super) fn take_place(self, shared: &Shared) {
        for effect in self.0 {
            match effect {
                Effect::Log(entry) => shared.invoker.log(entry),
                Effect::Submit(job) => shared.invoker.submit(job),
                Effect::Spawn(worker, begun) => drop(shared.workers.spawn(worker.run(begun))),
            }
        }
    }
}
