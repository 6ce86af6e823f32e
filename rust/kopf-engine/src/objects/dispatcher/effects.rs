//! Effects of events, collected while the slots are locked and executed after the lock is released.

use std::sync::Arc;

use kopf_core::object_worker::CycleStart;

use super::{Dispatcher, Work};
use crate::host::LogRecord;
use crate::objects::slots::RemovedObject;

/// The effects, executed in the order of the calls.
#[derive(Default)]
pub(crate) struct Effects {
    /// Most events have one effect: it needs no allocation.
    first: Option<Effect>,
    rest: Vec<Effect>,
}

/// An effect of an event.
pub(crate) enum Effect {
    /// Log a line.
    Log(LogRecord),
    /// Open a cycle.
    Open(Arc<str>, CycleStart),
    /// End a cycle that could not be opened.
    End(Arc<str>),
    /// Start a worker.
    Spawn(Work),
    /// Stop the daemons of a removed object, and drop the host's state of it.
    Remove(RemovedObject),
    /// Start the indexing of an object by a standby.
    Index(Arc<str>),
}

impl Effects {
    /// Adds an effect.
    pub(crate) fn push(&mut self, effect: Effect) {
        if self.first.is_none() {
            self.first = Some(effect);
        } else {
            self.rest.push(effect);
        }
    }

    /// Executes all effects.
    pub(super) fn take_place(self, dispatcher: &Arc<Dispatcher>) {
        for effect in self.first.into_iter().chain(self.rest) {
            match effect {
                Effect::Log(record) => dispatcher.shared.base.host.log(record),
                Effect::Open(key, start) => dispatcher.run(&key, start),
                Effect::End(key) => dispatcher.on_idle(dispatcher.slots(), &key, false, None, || {}),
                Effect::Spawn(work) => work.spawn(None),
                Effect::Remove(removed) => dispatcher.terminate_daemons(vec![removed]),
                Effect::Index(key) => dispatcher.start_standby_indexing(key),
            }
        }
    }
}
