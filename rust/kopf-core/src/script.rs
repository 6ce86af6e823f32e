//! What Python is asked to do for one object, and what it answers.
//!
//! A script is one crossing of the border: its steps are done in their order, and answered together.

use crate::cause::Change;
use crate::indexing::Round;
use crate::outcome::{Attempt, Outcome};
use crate::path::FieldPath;
use crate::progress::Record;
use crate::value::{Map, Value};
use std::sync::Arc;

/// One step of a script. Handlers are named by their index in the registry.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Call index functions, and put the object to the indices or drop it from them.
    Index(Round),
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
    /// Ask the callable filters of these change handlers, for the script's change. Everything else already matches.
    Match {
        /// Which ones.
        handlers: Vec<usize>,
    },
    /// Let the user's lifecycle choose.
    Pick {
        /// From these, each with the number of its attempts so far.
        handlers: Vec<(usize, u64)>,
    },
    /// Ask the user's storages what is kept of the object. It is the only step of its script.
    Recall {
        /// The handlers whose progress is wanted, by their ids.
        ids: Vec<Arc<str>>,
        /// The fields that handlers have asked to be a part of the essence.
        extra_fields: Vec<FieldPath>,
    },
    /// Tell the user's storages what is to be kept; they put it into the patch. It is the only step of its script.
    Keep(Keep),
    /// Call a change handler.
    Handle {
        /// Which one, and its limits.
        attempt: Attempt,
    },
}

/// What the user's storages are to keep of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Keep {
    /// The progress by the ids of handlers, in this order; no record is for its removal.
    pub records: Vec<(Arc<str>, Option<Record>)>,
    /// Whether the essence that was recalled is the last handled one from now on.
    pub essence: bool,
    /// Whether something will be written even if the patch is empty, so that the touch is to be removed along.
    pub written: bool,
}

/// What the user's storages keep of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Recalled {
    /// The last handled essence.
    pub old: Option<Value>,
    /// The essence of now.
    pub new: Value,
    /// The progress by the ids of handlers, as it was read.
    pub records: Vec<(String, Value)>,
}

/// One crossing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// What is to be done, in this order.
    pub steps: Vec<Step>,
    /// What is to be done after that, if nobody has touched the patch, all filters have said yes, and it took no time that
    /// matters: calls of change handlers. If it is not done, it will be asked for when it is due.
    pub then: Vec<Step>,
    /// The cause for the change handlers and their filters; none if there are only `on.event` handlers.
    pub change: Option<Arc<Change>>,
    /// What the rules have put into the patch before any handler of this script: handlers see it in theirs.
    pub preset: Option<Map<String, Value>>,
    /// Nothing more will be asked in this cycle: whoever answers may be done with it, if there is nothing left to be written.
    pub last: bool,
}

/// What callable filters said of one change handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// All of them except those for the old and the new value.
    pub prematch: bool,
    /// All of them.
    pub full: bool,
}

/// What came of one step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepReply {
    /// What came of the index functions, in their order; none for those whose filters said no.
    Indexed(Vec<Option<Outcome>>),
    /// The filters of an `on.event` handler said no.
    Skipped,
    /// A handler was called, or stopped by its limits.
    Attempted(Outcome),
    /// What the user's storages keep.
    Recalled(Box<Recalled>),
    /// In the order of the question.
    Matched(Vec<Matched>),
    /// The chosen handlers, in the order in which they are to be called.
    Picked(Vec<usize>),
}

/// What came of a script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// In the order of the script.
    pub steps: Vec<StepReply>,
    /// What came of the foreseen steps, if they were done.
    pub then: Option<Vec<StepReply>>,
    /// The handlers' patch so far in this cycle, results included; none if it is as it was.
    pub patch: Option<Map<String, Value>>,
    /// Whether that patch has transformation functions.
    pub fns: bool,
    /// A filter, a lifecycle or the like raised this: nothing else counts.
    pub error: Option<String>,
    /// The other side is done with the cycle.
    pub closed: bool,
}
