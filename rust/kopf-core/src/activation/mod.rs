//! What Python is asked to do for one object, and what it answers.
//!
//! A script is one crossing of the border: its steps are done in their order, and answered together.

pub mod log;

use crate::handling::attempt::{Attempt, Outcome};
use crate::handling::change::Change;
use crate::indexing::IndexPass;
use crate::json::path::FieldPath;
use crate::json::value::{Map, Value};
use crate::persistence::progress::Record;
use std::sync::Arc;

/// A command to the host of the handlers. Handlers are named by their index in the registry.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Call index functions, and put the object to the indices or drop it from them.
    Index(IndexPass),
    /// Call an `on.event` handler.
    Watch {
        /// Which one.
        handler: usize,
        /// Ask its callable filters first, and skip it if they say no.
        guarded: bool,
        /// Its limits.
        attempt: Attempt,
    },
    /// Ask the callable filters of these daemons and timers. Everything else already matches.
    Spawn {
        /// Which ones.
        handlers: Vec<usize>,
    },
    /// Ask the callable filters of these change handlers, for the activation's change. Everything else already matches.
    Match {
        /// Which ones.
        handlers: Vec<usize>,
    },
    /// Let the user's lifecycle choose.
    Pick {
        /// From these, each with the number of its attempts so far.
        handlers: Vec<(usize, u64)>,
    },
    /// Load the state of the object from the user's storages. It is the only command of its activation.
    Load {
        /// The ids of the handlers whose progress is loaded.
        ids: Vec<Arc<str>>,
        /// The fields that handlers have asked to be a part of the essence.
        extra_fields: Vec<FieldPath>,
    },
    /// Store the state of the object in the user's storages, which put it into the patch. It is the only command of its
    /// activation.
    Store(StoreRequest),
    /// Call a change handler.
    Handle {
        /// Which one, and its limits.
        attempt: Attempt,
    },
}

/// The state of an object that the user's storages store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreRequest {
    /// The progress by handler id, in this order; no record removes it.
    pub records: Vec<(Arc<str>, Option<Record>)>,
    /// Whether the loaded essence becomes the last handled one.
    pub essence: bool,
    /// Whether something will be written even if the patch is empty, so that the touch is to be removed along.
    pub written: bool,
}

/// The state of an object in the user's storages.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedState {
    /// The last handled essence.
    pub old: Option<Value>,
    /// The essence of now.
    pub new: Value,
    /// The progress by the ids of handlers, as it was read.
    pub records: Vec<(String, Value)>,
}

/// A batch of commands for one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activation {
    /// The commands, in this order.
    pub steps: Vec<Command>,
    /// The cause for the change handlers and their filters; none if there are only `on.event` handlers.
    pub change: Option<Arc<Change>>,
    /// The patch before the handlers of this activation are called: they see it in theirs.
    pub initial_patch: Option<Map<String, Value>>,
    /// No other activation follows in this cycle: the host may close it if there is nothing left to write.
    pub last: bool,
}

/// The verdicts of the callable filters of one change handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterResult {
    /// All of them except those for the old and the new value.
    pub prematch: bool,
    /// All of them.
    pub full: bool,
}

/// The result of one command.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandResult {
    /// The outcomes of the index functions, in their order; none for those whose filters do not match.
    Indexed(Vec<Option<Outcome>>),
    /// The filters of an `on.event` handler do not match.
    Skipped,
    /// A handler was called, or stopped by its limits.
    Attempted(Outcome),
    /// The state in the user's storages.
    Loaded(Box<LoadedState>),
    /// In the order of the question.
    Matched(Vec<FilterResult>),
    /// The chosen handlers, in the order in which they are to be called.
    Picked(Vec<usize>),
}

/// The results of an activation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// In the order of the script.
    pub steps: Vec<CommandResult>,
    /// The handlers' patch so far in this cycle, results included; none if it is as it was.
    pub patch: Option<Map<String, Value>>,
    /// Whether that patch has transformation functions.
    pub fns: bool,
    /// A filter, a lifecycle or the like raised this: nothing else counts.
    pub error: Option<String>,
    /// The other side is done with the cycle.
    pub closed: bool,
}
