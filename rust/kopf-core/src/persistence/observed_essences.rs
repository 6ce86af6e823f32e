//! The essences that only some handlers of the running change were called with.

use std::sync::Arc;

use super::Persistence;
use super::essence::essence;
use super::own_changes::{Managers, OwnWrite};
use super::patched::overlaid;
use crate::handler::registry::ResourceHandlers;
use crate::json::merge_patch::Patch;
use crate::json::value::{Value, equal};
use crate::object::Object;

/// Essences that only some handlers of the running change were called with. If the object reverts, those handlers are called
/// for the reversal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedEssences {
    /// The essence with which the first finished handlers were called; `None` if no handler has finished, or if all
    /// have finished in the same cycle.
    pub first: Option<Arc<Value>>,
    /// A later essence that other handlers were called with. Without `first`, it is from the last handlers of the previous
    /// handling.
    pub later: Option<Arc<Value>>,
}

impl ObservedEssences {
    /// Records that a handler was called with this essence and has finished, or has some finished sub-handlers.
    pub fn add(&mut self, essence: &Arc<Value>) {
        match &self.first {
            None => *self = Self { first: Some(Arc::clone(essence)), later: None },
            Some(first) if equal(first, essence) => {}
            Some(_) => self.later = Some(Arc::clone(essence)),
        }
    }

    /// The essences rebased onto our write: our changes are not changes for those handlers.
    pub(super) fn rebased(&self, write: &OwnWrite<'_>) -> Self {
        let rebased =
            |essence: &Option<Arc<Value>>| essence.as_ref().map(|observed| Arc::new(write.rebase(observed)));
        Self { first: rebased(&self.first), later: rebased(&self.later) }
    }

    /// The essences rebased onto a write that is not made yet, as far as the patch predicts it.
    pub(crate) fn predicted(
        &self,
        object: &Object,
        patch: &Patch,
        persistence: &Persistence,
        handlers: &ResourceHandlers,
    ) -> Self {
        let is_outside_essence = |key: &String| key == "status" && handlers.extra_fields.is_empty();
        if *self == Self::default() || patch.0.keys().all(is_outside_essence) {
            return self.clone();
        }
        let before = essence(object, persistence, &handlers.extra_fields);
        let Some(after) = overlaid(object, &patch.0) else { return self.clone() };
        let after = essence(&after, persistence, &handlers.extra_fields);
        let managers = &Managers::default();
        self.rebased(&OwnWrite { before: &before, after: &after, patch: &patch.0, managers })
    }
}
