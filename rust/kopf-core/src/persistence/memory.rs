//! The in-memory state of an object between cycles.

use std::sync::Arc;

use super::base_digest::BaseDigest;
use super::completed_handling::CompletedHandling;
use super::consistency::ViewAge;
use super::essence::{KnownComparison, LazyEssence, essence};
use super::keeps_pending_state;
use super::observed_essences::ObservedEssences;
use super::own_annotations::{base_text, is_pruned, own_progress, written_base};
use super::own_changes::{Managers, OwnWrite};
use super::patched::missing;
use super::pending_state::{Overlay, PendingState};
use super::recall::{observed_by_some, recall_unwritten};
use super::rejected_patch::RejectedPatch;
use super::unwritten_patch::{Unwritten, UnwrittenPatch};
use super::{Persistence, PersistenceConfig};
use crate::cause::Reason;
use crate::handler::registry::ResourceHandlers;
use crate::json::merge_patch::{Patch, is_removal, subtract, without_nulls};
use crate::json::value::{Map, Value};
use crate::object::Object;
use crate::time::Timestamp;

/// The in-memory state of an object between cycles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct ObjectMemory {
    /// The first event of the object came from the initial listing: it existed before the operator started.
    pub noticed_by_listing: bool,
    /// The object was completely handled once, so resume handlers are finished.
    pub fully_handled_once: bool,
    /// Transformation functions of the patch remain from earlier cycles.
    pub remaining_fns: bool,
    /// Consecutive rejections of the operations that these functions made.
    pub rejected_fns: u8,
    /// Deletion handlers have finished; only Kopf's finalizer is left to remove.
    pub deletion_handled: bool,
    /// Another client removes Kopf's annotations from the object, and a warning was logged.
    pub annotations_removed: bool,
    /// The diff-base and progress were loaded from the object.
    pub noticed: bool,
    /// The digest of the serialized diff-base, as last read or written.
    pub handled: Option<BaseDigest>,
    /// Some of our writes are unknown, or were not awaited: a state that looks foreign can be ours.
    pub has_unknown_writes: bool,
    /// The state that the API server has not confirmed yet.
    pub pending_state: Option<Arc<PendingState>>,
}

/// The state of the current handling after a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HandlingStatus {
    /// Unchanged by the cycle.
    #[default]
    Before,
    /// The handling continues; with the essences that only some handlers were called with.
    Ongoing(ObservedEssences),
    /// The handling is completed; with the essence of the last handlers, if that is newer than the diff-base.
    Over(ObservedEssences),
}

/// A patch that the API server has accepted.
#[derive(Clone, Copy, Debug)]
pub struct Accepted<'a> {
    /// The merge patch; empty if nothing was written.
    pub patch: &'a Map<String, Value>,
    /// The object in the response, if there is one.
    pub latest: Option<&'a Object>,
}

impl ObjectMemory {
    /// The object with its pending state overlaid; `None` if nothing is pending. `known` becomes the comparison of the resulting
    /// object, or of the given one if nothing is pending, if it is made.
    pub fn overlay<'s>(
        &self,
        object: &Arc<Object>,
        view_age: ViewAge,
        settings: impl Into<PersistenceConfig<'s>>,
        handlers: &ResourceHandlers,
        known: &mut KnownComparison,
    ) -> Option<Overlay> {
        let settings = settings.into();
        if settings.compat {
            return None;
        }
        self.pending_state.as_ref()?.overlay(object, view_age, settings, handlers, known)
    }

    /// Loads the diff-base's digest from the object. If a previous operator stopped during a handling, also loads the
    /// progress and the observed essence. Writes of a cycle since the memory was dropped are kept.
    pub fn observe<'s>(
        &mut self,
        object: &Object,
        settings: impl Into<PersistenceConfig<'s>>,
        handlers: &ResourceHandlers,
    ) {
        let settings = settings.into();
        self.forget_accepted(object, settings.persistence);
        if (self.noticed && self.handled.is_some()) || !keeps_pending_state(settings) {
            return;
        }
        let persistence = settings.persistence;
        let keys = persistence.diffbase_storage.own_keys(object);
        let is_first = !std::mem::replace(&mut self.noticed, true);
        // Without a diff-base in annotations, there is no digest to recognize states from before our writes: trust only
        // the first one.
        if !is_first && keys.is_empty() {
            return;
        }
        let digest = keys.iter().find_map(|key| BaseDigest::of_annotation(object, key));
        self.handled = digest.or(self.handled);
        // The progress on the object is of a handling that the unwritten patch completes.
        let is_completed =
            |pending_state: &Arc<PendingState>| pending_state.unwritten.is_closing(object, persistence);
        if let Some(pending_state) = self.pending_state.as_mut().filter(|it| !is_first || is_completed(it)) {
            if is_first {
                recall_unwritten(Arc::make_mut(pending_state), object, persistence, handlers);
            }
            return;
        }
        let storage = &persistence.progress_storage;
        let mut records: Vec<_> =
            handlers.owned.iter().filter_map(|id| storage.fetch(object, id).ok().flatten()).collect();
        let completed = CompletedHandling::find(object, settings, handlers);
        let later = completed
            .as_ref()
            .and_then(|completed| completed.later(|| essence(object, persistence, &handlers.extra_fields)));
        records.retain(|record| completed.as_ref().is_none_or(|completed| !completed.contains(record)));
        if records.is_empty() && later.is_none() {
            return;
        }
        let base = base_text(object, &keys).map(|text| Box::from(&*text));
        // Without a diff-base, the object is handled as a new one, and earlier changes are superseded; with one, the creation is.
        let is_new = !matches!(persistence.diffbase_storage.fetch(object), Ok(Some(_)));
        records.retain(|record| record.is_for(Reason::Create) == is_new);
        let mut observed =
            observed_by_some(&records, || essence(object, persistence, &handlers.extra_fields));
        observed.later = observed.later.or_else(|| later.map(Arc::new));
        let mut pending_state = self.take_pending_state();
        let stored = &mut pending_state.stored;
        let written = std::mem::take(&mut stored.progress);
        stored.load_progress(object, persistence, handlers);
        stored.progress.merge(written.0);
        stored.diffbase = stored.diffbase.take().or(base);
        if pending_state.observed == ObservedEssences::default() {
            pending_state.observed = observed;
        }
        self.keep_pending_state(pending_state);
    }

    /// Whether this essence equals the diff-base, by its digest.
    pub fn was_handled<'s>(
        &self,
        object: &Object,
        essence: &LazyEssence,
        settings: impl Into<PersistenceConfig<'s>>,
    ) -> bool {
        let settings = settings.into();
        let storage = &settings.persistence.diffbase_storage;
        let mut patch = Patch::default();
        if !essence.text().is_some_and(|text| storage.store_text(object, &mut patch, text)) {
            storage.store(object, &mut patch, essence.get());
        }
        let texts = storage.own_keys(object);
        let mut texts = texts.iter().filter_map(|key| patch.get(&["metadata", "annotations", key])?.as_str());
        self.handled.is_some_and(|handled| texts.any(|text| handled.is_of(text)))
    }

    /// Records an accepted patch.
    pub fn record_write<'s>(
        &mut self,
        object: &Object,
        accepted: Accepted<'_>,
        handling_status: HandlingStatus,
        settings: impl Into<PersistenceConfig<'s>>,
        handlers: &ResourceHandlers,
    ) {
        let settings = settings.into();
        let Accepted { patch, latest } = accepted;
        if !keeps_pending_state(settings)
            || (self.pending_state.is_none() && patch.is_empty() && handling_status == HandlingStatus::Before)
        {
            return;
        }
        let persistence = settings.persistence;
        let keys = persistence.diffbase_storage.own_keys(object);
        let mut pending_state = self.take_pending_state();
        let UnwrittenPatch { patch: accepted, called_with, .. } = pending_state.accept(&keys, persistence);
        let written = written_base(patch, &keys).or_else(|| written_base(&accepted, &keys));
        if let Some(text) = written {
            self.set_handled_base(&mut pending_state, Some(text));
        }
        let is_as_before = handling_status == HandlingStatus::Before;
        match handling_status {
            HandlingStatus::Ongoing(observed) => {
                if written.is_none() {
                    self.set_handled_base(&mut pending_state, base_text(object, &keys).as_deref());
                }
                // The memory was dropped by a pause during the cycle, and others may remove the progress that the cycle knew.
                if !self.noticed {
                    pending_state.stored.load_progress(object, persistence, handlers);
                }
                pending_state.stored.progress.merge(own_progress(patch, &keys, persistence));
                pending_state.observed = observed;
            }
            // The handling was completed by a patch whose response was lost.
            HandlingStatus::Before if is_removal(&pending_state.stored.progress.0) => {
                pending_state.stored.progress = Patch::default();
            }
            HandlingStatus::Before => {
                pending_state.stored.progress.merge(own_progress(patch, &keys, persistence));
            }
            // The record with the essence of the last handlers stays on the object.
            HandlingStatus::Over(observed) => {
                let progress = without_nulls(own_progress(patch, &keys, persistence));
                pending_state.stored.progress = Patch(progress);
                pending_state.observed = observed;
            }
        }
        // Patches that were applied earlier are already in the object of this cycle.
        let known = (!accepted.is_empty() || called_with.is_some()).then_some(object);
        if pending_state.observed != ObservedEssences::default()
            && let Some(latest) = latest.or(known)
        {
            let mut whole = Patch(accepted);
            whole.merge(patch.clone());
            let called_with = called_with.filter(|_| is_as_before);
            pending_state.rebase((object, latest), called_with, &whole.0, persistence, handlers);
        }
        let is_ongoing = pending_state.is_ongoing();
        let is_pruned = latest.and_then(|latest| is_pruned(patch, latest, persistence));
        let stored = &mut pending_state.stored;
        stored.is_pruned = is_pruned.unwrap_or(stored.is_pruned) && is_ongoing;
        stored.diffbase = stored.diffbase.take().filter(|_| self.annotations_removed || is_ongoing);
        self.keep_pending_state(pending_state);
    }

    /// Records a patch of a daemon or timer. It is no change for the handlers of the running handling.
    pub fn record_daemon_write<'s>(
        &mut self,
        accepted: Accepted<'_>,
        settings: impl Into<PersistenceConfig<'s>>,
        handlers: &ResourceHandlers,
    ) {
        let settings = settings.into();
        let Accepted { patch, latest: Some(latest) } = accepted else { return };
        let Some(pending_state) = &mut self.pending_state else { return };
        if !keeps_pending_state(settings) || pending_state.observed == ObservedEssences::default() {
            return;
        }
        let latest = essence(latest, settings.persistence, &handlers.extra_fields);
        let managers = &Managers::default();
        let write = OwnWrite { before: &latest, after: &latest, patch, managers };
        let pending_state = Arc::make_mut(pending_state);
        pending_state.observed = pending_state.observed.rebased(&write);
    }

    /// Records a patch that was not written, or whose result is unknown.
    pub fn failed<'s>(
        &mut self,
        object: &Object,
        unwritten: Unwritten,
        handling_status: HandlingStatus,
        settings: impl Into<PersistenceConfig<'s>>,
        handlers: &ResourceHandlers,
    ) {
        let settings = settings.into();
        if !keeps_pending_state(settings) {
            return;
        }
        let persistence = settings.persistence;
        let keys = persistence.diffbase_storage.own_keys(object);
        let mut pending_state = self.take_pending_state();
        // The new patch has only what is missing on the object. The rest of the earlier one is on the object by now.
        pending_state.observed = pending_state.observed_essences(object, persistence, handlers);
        let accepted = pending_state.accept(&keys, persistence);
        if let Some(text) = written_base(&accepted.patch, &keys) {
            self.set_handled_base(&mut pending_state, Some(text));
        }
        match handling_status {
            HandlingStatus::Ongoing(observed) => {
                self.set_handled_base(&mut pending_state, base_text(object, &keys).as_deref());
                pending_state.observed = observed;
            }
            HandlingStatus::Over(observed) => pending_state.observed = observed,
            HandlingStatus::Before => {}
        }
        let present = || Arc::new(essence(object, persistence, &handlers.extra_fields));
        let called_with = (pending_state.observed != ObservedEssences::default()).then(present);
        pending_state.unwritten = accepted.followed_by(unwritten, called_with);
        self.keep_pending_state(pending_state);
    }

    /// Records the part of a patch that the API server has accepted before the rest could not be written: see [`Self::failed`].
    /// It is ours, and its progress replaces the earlier progress.
    pub fn record_part<'s>(
        &mut self,
        object: &Object,
        accepted: Accepted<'_>,
        settings: impl Into<PersistenceConfig<'s>>,
        handlers: &ResourceHandlers,
    ) {
        let settings = settings.into();
        let Accepted { patch, latest } = accepted;
        if patch.is_empty() || !keeps_pending_state(settings) {
            return;
        }
        let persistence = settings.persistence;
        let keys = persistence.diffbase_storage.own_keys(object);
        let mut pending_state = self.take_pending_state();
        pending_state.stored.progress.merge(own_progress(patch, &keys, persistence));
        if let Some(text) = written_base(patch, &keys) {
            self.set_handled_base(&mut pending_state, Some(text));
        }
        if let Some(latest) = latest {
            pending_state.rebase_part(latest, patch, persistence, handlers);
        }
        self.keep_pending_state(pending_state);
    }

    /// Records fields that the API server has rejected or could not write. They are sent again later, separately; so they are no part
    /// of the unwritten patch any more.
    ///
    /// Returns the seconds until then; `None` if they are not kept.
    pub fn rejected<'s>(
        &mut self,
        rejected: Map<String, Value>,
        now: Timestamp,
        settings: impl Into<PersistenceConfig<'s>>,
    ) -> Option<f64> {
        let settings = settings.into();
        if settings.compat || rejected.is_empty() {
            return None;
        }
        let mut pending_state = self.take_pending_state();
        let unwritten = std::mem::take(&mut pending_state.unwritten.patch);
        pending_state.unwritten.patch = subtract(unwritten, &rejected);
        let delay = pending_state.rejected_patch.reject(rejected, now);
        self.keep_pending_state(pending_state);
        Some(delay)
    }

    /// Records fields that the API server has accepted: their older values are not sent again.
    pub fn accepted(&mut self, written: &Map<String, Value>) {
        if self.has_rejected_patch() && !written.is_empty() {
            self.edit_rejected_patch(|rejected| rejected.remove(written));
        }
    }

    /// Drops rejected fields that the object has by now, so that later changes by others are kept. Progress among them is stored: the
    /// response to its write was lost.
    fn forget_accepted(&mut self, object: &Object, persistence: &Persistence) {
        if !self.has_rejected_patch() {
            return;
        }
        let keys = persistence.diffbase_storage.own_keys(object);
        let mut pending_state = self.take_pending_state();
        let rejected = pending_state.rejected_patch.patch().clone();
        let missing = missing(object, &rejected);
        let stored = own_progress(&subtract(rejected, &missing), &keys, persistence);
        pending_state.stored.progress.merge(stored);
        pending_state.rejected_patch.retain(missing);
        pending_state.forget_called();
        self.keep_pending_state(pending_state);
    }

    fn has_rejected_patch(&self) -> bool {
        self.pending_state.as_ref().is_some_and(|pending_state| pending_state.rejected_patch.due().is_some())
    }

    fn edit_rejected_patch(&mut self, edit: impl FnOnce(&mut RejectedPatch)) {
        let mut pending_state = self.take_pending_state();
        edit(&mut pending_state.rejected_patch);
        pending_state.forget_called();
        self.keep_pending_state(pending_state);
    }

    fn take_pending_state(&mut self) -> PendingState {
        self.pending_state.take().map(Arc::unwrap_or_clone).unwrap_or_default()
    }

    fn keep_pending_state(&mut self, pending_state: PendingState) {
        self.pending_state = (!pending_state.is_empty()).then(|| Arc::new(pending_state));
    }

    /// Sets the diff-base: the written one, or the one with which the running handling started; `None` if the object was
    /// new then.
    fn set_handled_base(&mut self, pending_state: &mut PendingState, base: Option<&str>) {
        self.handled = base.map(BaseDigest::of);
        pending_state.stored.diffbase = base.map(Box::from);
    }

    /// Drops the state because another operator may have handled the object: the object is authoritative. Transformation functions
    /// are dropped with an unwritten patch: without it, their handlers are called again.
    pub fn invalidate(&mut self) {
        self.remaining_fns &=
            self.pending_state.as_ref().is_none_or(|pending| pending.unwritten.patch.is_empty());
        (self.pending_state, self.handled, self.noticed) = (None, None, false);
    }
}
