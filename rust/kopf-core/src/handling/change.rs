//! The change that change handlers are called for.

use std::sync::{Arc, OnceLock};

use crate::cause::Reason;
use crate::json::diff::{DiffItem, diff};
use crate::json::value::Value;
use crate::persistence::essence::LazyEssence;

/// A change, as handlers and their filters get it.
#[derive(Debug)]
pub struct Change {
    /// The reason of the change.
    pub reason: Reason,
    /// Whether resume handlers are called too.
    pub initial: bool,
    old: Option<Arc<LazyEssence>>,
    new: Option<Arc<LazyEssence>>,
    diff: OnceLock<Arc<[DiffItem]>>,
}

impl Change {
    /// A change between two essences. The diff is computed on first use, unless it is given.
    pub fn new(
        (reason, initial): (Reason, bool),
        old: Option<Arc<LazyEssence>>,
        new: Option<Arc<LazyEssence>>,
        diff: Option<Arc<[DiffItem]>>,
    ) -> Self {
        let diff = diff.map(OnceLock::from).unwrap_or_default();
        Self { reason, initial, old, new, diff }
    }

    /// The essence at the last completed handling.
    pub fn old(&self) -> Option<&Value> {
        self.old.as_deref().map(LazyEssence::get)
    }

    /// The current essence.
    pub fn new_(&self) -> Option<&Value> {
        self.new.as_deref().map(LazyEssence::get)
    }

    /// The current essence, to be kept without a copy.
    pub fn shared_new(&self) -> Option<&Arc<Value>> {
        self.new.as_deref().map(LazyEssence::shared)
    }

    /// Whether the current essence equals a value; `None` if there is no essence.
    pub fn new_equals(&self, value: &Value) -> Option<bool> {
        self.new.as_deref().map(|new| new.equals(value))
    }

    /// The serialized essence at the last completed handling, if it can be had without its value.
    pub fn old_text(&self) -> Option<&str> {
        self.old.as_deref().and_then(LazyEssence::text)
    }

    /// The serialized current essence, if it can be had without its value.
    pub fn new_text(&self) -> Option<&str> {
        self.new.as_deref().and_then(LazyEssence::text)
    }

    /// Whether there is an essence of a completed handling.
    pub fn has_old(&self) -> bool {
        self.old.is_some()
    }

    /// The differences between the two essences.
    pub fn diff(&self) -> &[DiffItem] {
        self.diff.get_or_init(|| diff(self.old(), self.new_()).into())
    }
}

impl PartialEq for Change {
    fn eq(&self, other: &Self) -> bool {
        let parts = |it: &Self| (it.reason, it.initial);
        parts(self) == parts(other) && self.old() == other.old() && self.new_() == other.new_()
    }
}
