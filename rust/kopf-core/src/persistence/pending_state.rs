//! Pending state: progress, an unwritten patch, and the diff-base, kept in memory until the API server confirms them.
//!
//! It has independent parts, each with its rules: the stored state (`stored_state`), the essences that only some handlers were
//! called with (`observed_essences`), the patch of a failed write (`unwritten_patch`), and rejected parts of earlier patches
//! (`rejected_patch`). This module combines them with a received state of the object. The version of our last write is apart, in
//! `consistency`: it is needed even if nothing is pending.
//!
//! An idle object keeps only a digest here. Cycles work on the object with its pending state overlaid: a finished handler
//! is not called again when a write fails or another client removes Kopf's annotations. Another operator that takes over
//! the object does not have this state.

use std::sync::Arc;

use crate::handler::registry::ResourceHandlers;
use crate::json::json_patch::apply_merge;
use crate::json::merge_patch::{Patch, is_removal, reverted, subtract};
use crate::json::value::{Map, Value, equal};
use crate::object::Object;
use crate::persistence::annotation_keys::drop_empty_stanzas;
use crate::persistence::consistency::ViewAge;
use crate::persistence::diffbase::compact;
use crate::persistence::essence::{KnownComparison, essence};
use crate::persistence::rejected_patch::RejectedPatch;
use crate::persistence::{Persistence, PersistenceConfig};
use crate::time::Timestamp;

use super::observed_essences::ObservedEssences;
use super::own_annotations::{has_base, own_annotations, own_progress};
use super::own_changes::{Managers, OwnWrite};
use super::patched::overlaid;
use super::stored_state::StoredState;
use super::unwritten_patch::{UnwrittenPatch, unconfirmed};

/// The progress, the unwritten patch, and the diff-base of an object, kept until the API server confirms them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingState {
    /// The progress and the diff-base on the object.
    pub(super) stored: StoredState,
    /// The essences that only some handlers were called with.
    pub(super) observed: ObservedEssences,
    /// The patch of the last write, if that has failed.
    pub(super) unwritten: UnwrittenPatch,
    /// The parts that the API server rejects. They are sent separately.
    pub(super) rejected_patch: RejectedPatch,
    /// The handlers that may have set unwritten or rejected fields: see [`superseding`](super::superseding).
    pub(super) called: Vec<usize>,
}

/// An object with its pending state overlaid, and the patch for the parts that are missing on the object.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// The object with the missing parts applied.
    pub object: Arc<Object>,
    /// The parts that are missing on the object.
    pub missing_patch: Map<String, Value>,
    /// The final progress that belongs to the missing parts: see [`merge_requests`](super::merge_requests::merge_requests).
    pub final_progress: Map<String, Value>,
    /// A handling is completed, but neither the diff-base nor the changes of its handlers are written. Both are written
    /// before the next handling starts; otherwise the difference would be a change.
    pub unfinished: bool,
    /// Another client removed or changed the missing parts.
    pub removed: bool,
    /// The missing parts are written in this cycle, even if it writes nothing else.
    pub urgent: bool,
    /// The object reverted during the handling, so handling restarts. The value is the essences that handlers were called
    /// with until then.
    pub restarted: Option<ObservedEssences>,
    /// The rejected patch, and the time to send it again.
    pub rejected_patch: Option<(Patch, Timestamp)>,
}

impl PendingState {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn is_ongoing(&self) -> bool {
        !self.stored.progress.is_empty() || self.observed != ObservedEssences::default()
    }

    /// The essences that only some handlers were called with, rebased onto the changes that handlers made with their own
    /// clients.
    pub fn observed_essences(
        &self,
        object: &Object,
        persistence: &Persistence,
        handlers: &ResourceHandlers,
    ) -> ObservedEssences {
        let UnwrittenPatch { patch, called_with, .. } = &self.unwritten;
        let Some(before) = called_with else { return self.observed.clone() };
        let after = essence(object, persistence, &handlers.extra_fields);
        // The patch may have been applied with only the response lost.
        let managers = &Managers::of(object);
        self.observed.rebased(&OwnWrite { before, after: &after, patch, managers })
    }

    /// The progress of the current handling as a merge patch.
    pub(crate) fn progress(&self) -> &Map<String, Value> {
        &self.stored.progress.0
    }

    /// Whether the schema prunes the progress in the status.
    pub(crate) fn is_pruned(&self) -> bool {
        self.stored.is_pruned
    }

    /// Consecutive rejections of the unwritten patch by the API server.
    pub fn rejections(&self) -> u32 {
        self.unwritten.rejections
    }

    /// The rejected patch with the time to send it again.
    pub fn rejected_patch(&self) -> &RejectedPatch {
        &self.rejected_patch
    }

    /// Takes the unwritten patch: by now it is on the object or in the next patch. Its progress replaces the earlier
    /// progress.
    pub(super) fn accept(&mut self, keys: &[String], persistence: &Persistence) -> UnwrittenPatch {
        let accepted = std::mem::take(&mut self.unwritten);
        self.rejected_patch.remove(&accepted.patch);
        self.stored.progress.merge(own_progress(&accepted.patch, keys, persistence));
        accepted
    }

    /// `known` becomes the comparison of the resulting object, or of the given one if there is no overlay, if it is made.
    pub(super) fn overlay(
        &self,
        object: &Arc<Object>,
        view_age: ViewAge,
        settings: PersistenceConfig<'_>,
        handlers: &ResourceHandlers,
        known: &mut KnownComparison,
    ) -> Option<Overlay> {
        let persistence = settings.persistence;
        // An object in deletion without Kopf's finalizer is not handled any more.
        if object.deletion_timestamp().is_some() && !object.has_finalizer(&persistence.finalizer) {
            return None;
        }
        let mut missing_patch = self.stored.missing(object, persistence);
        let unwritten = self.unwritten.missing(object, view_age, persistence);
        let urgent = !unwritten.is_empty();
        // Fields of the unwritten patch that are not missing are up to date on the object.
        missing_patch.0 = subtract(missing_patch.0, &self.unwritten.patch);
        missing_patch.merge(unwritten);
        // Only a patch with the diff-base completes a handling; others have no final progress.
        let is_completing = has_base(object, &missing_patch.0, persistence);
        let mut final_progress = Map::new();
        if is_completing && let Some(missing) = self.unwritten.missing_final_progress(object, view_age) {
            final_progress.clone_from(missing);
            missing_patch = self.unwritten.with_final_records(missing_patch, persistence);
        }
        let rejected_patch = self.missing_rejected_patch(object, view_age);
        // Changes of handlers outside of the status are not overlaid before the API server accepts them: it may reject or
        // change them.
        let mut ours = Patch::default();
        for patch in rejected_patch.iter().map(|(patch, _)| patch).chain([&missing_patch]) {
            ours.merge(own_annotations(object, &patch.0, persistence));
            ours.merge(status_of(&patch.0));
        }
        let ours = ours.0;
        let unfinished = urgent
            && self.unwritten.is_closing(object, persistence)
            && !subtract(missing_patch.0.clone(), &ours).is_empty();
        let mut amended = if ours.is_empty() { Arc::clone(object) } else { overlaid(object, &ours)? };
        // Progress that is only not removed yet was not changed by others.
        let removed = !urgent && !is_removal(&missing_patch.0);
        let mut restarted = None;
        // A state from before our write can look like a reverted object.
        if view_age.is_consistent()
            && let Some(restart) = {
                // Without calls of handlers, all that is missing is written as it is, together with the new diff-base.
                let written = if unfinished { missing_patch.clone() } else { Patch::default() };
                self.restart((object, &amended), &written, settings, handlers, known)
            }
        {
            // It is of the object before the restart.
            *known = None;
            amended = overlaid(&amended, &restart.patch.0)?;
            missing_patch.merge(restart.patch.0);
            final_progress = restart.final_progress;
            restarted = Some(restart.observed);
        }
        let is_amended = !missing_patch.is_empty() || rejected_patch.is_some();
        is_amended.then_some(Overlay {
            object: amended,
            missing_patch: missing_patch.0,
            final_progress,
            unfinished,
            removed,
            urgent,
            restarted,
            rejected_patch,
        })
    }

    /// The missing part of the rejected patch, apart from the unwritten one, and when it is sent again.
    fn missing_rejected_patch(&self, object: &Object, view_age: ViewAge) -> Option<(Patch, Timestamp)> {
        let due = self.rejected_patch.due()?;
        let rejected = unconfirmed(object, self.rejected_patch.patch(), view_age);
        let rejected = subtract(rejected, &self.unwritten.patch);
        (!rejected.is_empty()).then_some((Patch(rejected), due))
    }
}

/// Kopf's own part of a patch whose other part was rejected: rejected fields are excluded from the diff-base.
pub fn without_rejected(
    own: Map<String, Value>,
    rejected: &Map<String, Value>,
    object: &Object,
    persistence: &Persistence,
    handlers: &ResourceHandlers,
) -> Map<String, Value> {
    let storage = &persistence.diffbase_storage;
    let is_written = has_base(object, &own, persistence);
    let handled = overlaid(object, &own).filter(|_| is_written);
    let Some(Ok(Some(stored))) = handled.map(|handled| storage.fetch(&handled)) else {
        return own;
    };
    let present = essence(object, persistence, &handlers.extra_fields);
    let mut handled_essence = compact::restored(stored, &present);
    let before = handled_essence.clone();
    apply_merge(&mut handled_essence, &reverted(rejected, Some(&present)));
    drop_empty_stanzas(&mut handled_essence);
    if equal(&before, &handled_essence) {
        return own;
    }
    let mut patch = Patch(own);
    storage.store(object, &mut patch, &handled_essence);
    patch.0
}

fn status_of(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.get("status").map(|status| ("status".to_owned(), status.clone())).into_iter().collect()
}

#[cfg(test)]
mod tests;
