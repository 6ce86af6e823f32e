//! Effects of events, collected while the slots are locked and executed after the lock is released.

use std::sync::Arc;

use kopf_core::object_worker::CycleStart;

use super::{Dispatcher, Work};
use crate::host::LogRecord;
use crate::objects::slots::RemovedObject;

/// The effects, executed in the order of the calls.
#[derive(Default)]
pub(crate) struct Effects {
    /// The first cycle, if nothing comes before it: most events start one and have no other effect.
    first: Option<(Arc<str>, CycleStart)>,
    rest: Vec<DispatchEffect>,
}

enum DispatchEffect {
    Log(LogRecord),
    Start(Box<(Arc<str>, CycleStart)>),
    Spawn(Work),
    Remove(RemovedObject),
    Index(Arc<str>),
}

impl Effects {
    /// Logs a line.
    pub(crate) fn log(&mut self, entry: LogRecord) {
        self.rest.push(DispatchEffect::Log(entry));
    }

    /// Opens a cycle.
    pub(super) fn start(&mut self, key: Arc<str>, start: CycleStart) {
        if self.first.is_none() && self.rest.is_empty() {
            self.first = Some((key, start));
        } else {
            self.rest.push(DispatchEffect::Start(Box::new((key, start))));
        }
    }

    /// Starts a worker.
    pub(super) fn spawn(&mut self, work: Work) {
        self.rest.push(DispatchEffect::Spawn(work));
    }

    /// Stops the daemons of a removed object, and drops the host's state of it.
    pub(super) fn remove(&mut self, removed: RemovedObject) {
        self.rest.push(DispatchEffect::Remove(removed));
    }

    /// Starts the indexing of an object by a standby.
    pub(super) fn index(&mut self, key: Arc<str>) {
        self.rest.push(DispatchEffect::Index(key));
    }

    /// Executes all effects.
    pub(super) fn take_place(self, dispatcher: &Arc<Dispatcher>) {
        if let Some((key, start)) = self.first {
            dispatcher.run(&key, start);
        }
        for effect in self.rest {
            match effect {
                DispatchEffect::Log(entry) => dispatcher.shared.base.host.log(entry),
                DispatchEffect::Start(start) => {
                    let (key, start) = *start;
                    dispatcher.run(&key, start);
                }
                DispatchEffect::Spawn(work) => work.spawn(None),
                DispatchEffect::Remove(removed) => dispatcher.terminate_daemons(vec![removed]),
                DispatchEffect::Index(key) => dispatcher.start_standby_indexing(key),
            }
        }
    }
}
