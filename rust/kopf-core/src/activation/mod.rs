//! The activations of the Python host for one object, and their completions.
//!
//! An activation is one call into Python: its commands run in order, and its completion has all their results.

pub mod log;

use crate::handling::attempt::{Attempt, Outcome};
use crate::handling::cause_id::Handling;
use crate::handling::change::Change;
use crate::indexing::IndexPass;
use crate::json::path::FieldPath;
use crate::json::value::{Map, Value};
use crate::persistence::progress::Record;
use std::sync::Arc;

/// A command to the host of the handlers. Handlers are identified by their index in the registry.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Call index functions, and add the object to the indices or drop it from them.
    CallIndexers(IndexPass),
    /// Call an `on.event` handler.
    CallEventHandler {
        /// The handler's index.
        handler: usize,
        /// Whether its callable filters are evaluated first. If they do not match, the handler is skipped.
        guarded: bool,
        /// The attempt, with its limits.
        attempt: Attempt,
    },
    /// Evaluate the callable filters of these daemons and timers. All other filters match.
    FilterDaemons {
        /// The indices of the handlers.
        handlers: Vec<usize>,
    },
    /// Evaluate the callable filters of these change handlers, for the activation's change. All other filters match.
    FilterHandlers {
        /// The indices of the handlers.
        handlers: Vec<usize>,
    },
    /// Call the custom lifecycle.
    SelectHandlers {
        /// The handlers to select from, each with the number of its attempts so far.
        handlers: Vec<(usize, u64)>,
        /// The progress of all handlers of this cause, and of others with a record on the object, by their ids.
        records: Vec<(Arc<str>, Record)>,
    },
    /// Load the state of the object from the custom storages. It is the only command of its activation.
    FetchState {
        /// The ids of the handlers whose progress is loaded.
        ids: Vec<Arc<str>>,
        /// The fields that handlers add to the essence.
        extra_fields: Vec<FieldPath>,
    },
    /// Store the state of the object in the custom storages, which put it into the patch. It is the only command of its
    /// activation.
    StoreState(StoreRequest),
    /// Call a change handler.
    CallChangeHandler {
        /// The attempt, with the handler's index and its limits.
        attempt: Attempt,
    },
}

/// The state of an object that the custom storages store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreRequest {
    /// The progress records by handler id, in this order; none removes the record.
    pub records: Vec<(Arc<str>, Option<Record>)>,
    /// Whether the current essence becomes the last handled one.
    pub essence: bool,
    /// Whether the object is patched even if the storages add nothing, so that the dummy value (touch) is removed too.
    pub written: bool,
}

/// The state of an object in the custom storages.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchedState {
    /// The last handled essence.
    pub old: Option<Value>,
    /// The current essence.
    pub new: Value,
    /// The progress by handler id, as loaded.
    pub records: Vec<(String, Value)>,
}

/// A batch of commands for one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activation {
    /// The commands, in this order.
    pub commands: Vec<Command>,
    /// The change for the change handlers and their filters; none if the activation has no such commands.
    pub change: Option<Arc<Change>>,
    /// The handling that the calls of change handlers belong to; none if there are none.
    pub handling: Option<Handling>,
    /// The content of the handlers' patch before the handlers of this activation are called.
    pub initial_patch: Option<Map<String, Value>>,
    /// Whether no other activation follows in this cycle: the host may close the cycle if there is nothing to write.
    pub last: bool,
    /// Whether the transformation functions of an earlier cycle are still to be applied. Otherwise, the host drops those that it has
    /// kept: they are from a lost term, or from a deleted object with the same key.
    pub remaining_fns: bool,
}

/// The results of the callable filters of one change handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterResult {
    /// Whether all filters match except those for the old and the new value.
    pub prematch: bool,
    /// Whether all filters match.
    pub full: bool,
}

/// The result of one command.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandResult {
    /// The outcomes of the index functions, in their order; none for those whose filters do not match.
    Indexed(Vec<Option<Outcome>>),
    /// The filters of an `on.event` handler do not match.
    Skipped,
    /// The handler was called, or stopped by its limits.
    Attempted(Outcome),
    /// The state in the custom storages.
    Fetched(Box<FetchedState>),
    /// The results of the callable filters, in the order of the command's handlers.
    Filtered(Vec<FilterResult>),
    /// The selected handlers, in the order of their calls.
    Selected(Vec<usize>),
}

/// The results of an activation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// The results in the order of the commands.
    pub results: Vec<CommandResult>,
    /// The handlers' patch so far in this cycle, including their results; none if it is unchanged.
    pub patch: Option<Map<String, Value>>,
    /// Whether that patch has transformation functions.
    pub fns: bool,
    /// The error of a filter, a lifecycle or a storage. The rest of the completion is ignored.
    pub error: Option<String>,
    /// Whether the host has closed the cycle.
    pub closed: bool,
}
