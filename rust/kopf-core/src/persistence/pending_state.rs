//! Pending state: progress, an unwritten patch, and the diff-base, kept in memory until the API server confirms them.
//!
//! An idle object keeps only a digest here. Cycles work on the object with its pending state overlaid: a finished handler
//! is not called again when a write fails or another client removes Kopf's annotations. Another operator that takes over
//! the object does not have this state.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::json;

use crate::handler::registry::ResourceHandlers;
use crate::json::json_patch::apply_merge;
use crate::json::merge_patch::{Patch, is_removal, missing_part, reverted, subtract};
use crate::json::path::FieldPath;
use crate::json::value::{Map, Value, equal};
use crate::object::Object;
use crate::persistence::annotation_keys::drop_empty_stanzas;
use crate::persistence::consistency::ViewAge;
use crate::persistence::diffbase::compact;
use crate::persistence::essence::{KnownComparison, essence};
use crate::persistence::rejected_patch::RejectedPatch;
use crate::persistence::{Persistence, PersistenceConfig};
use crate::time::Timestamp;

use super::own_annotations::{
    annotations_of, as_annotations, has_base, own_annotations, own_progress, progress_records,
};
use super::own_changes::{Managers, OwnWrite};

/// The progress, the unwritten patch, and the diff-base of an object, kept until the API server confirms them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingState {
    /// The progress of the current handling as a merge patch: `null` for removed records.
    pub(super) own: Patch,
    /// The merge patch that could not be written.
    pub(super) unwritten: Map<String, Value>,
    /// The final progress that belongs to it: see [`merge_requests`](super::merge_requests::merge_requests).
    pub(super) final_progress: Map<String, Value>,
    /// The essences that only some handlers were called with.
    pub(super) observed: ObservedEssences,
    /// The serialized diff-base: kept during a handling, or if another client is known to remove it.
    pub(super) diffbase: Option<Box<str>>,
    /// Consecutive rejections of the unwritten patch by the API server.
    pub(super) rejections: u32,
    /// The parts that the API server rejects. They are sent separately.
    pub(super) rejected_patch: RejectedPatch,
    /// The essence with which handlers were called whose outcomes could not be written.
    pub(super) called_with: Option<Arc<Value>>,
    /// The API server does not store the progress in the status: the schema prunes it.
    pub(super) is_pruned: bool,
    /// The handlers that may have set unwritten or rejected fields: see [`superseding`](super::superseding).
    pub(super) called: Vec<usize>,
}

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
        !self.own.is_empty() || self.observed != ObservedEssences::default()
    }

    /// The essences that only some handlers were called with, rebased onto the changes that handlers made with their own
    /// clients.
    pub fn observed_essences(
        &self,
        object: &Object,
        persistence: &Persistence,
        handlers: &ResourceHandlers,
    ) -> ObservedEssences {
        let Some(before) = &self.called_with else { return self.observed.clone() };
        let after = essence(object, persistence, &handlers.extra_fields);
        // The patch may have been applied with only the response lost.
        let (patch, managers) = (&self.unwritten, &Managers::of(object));
        self.observed.rebased(&OwnWrite { before, after: &after, patch, managers })
    }

    /// The progress of the current handling as a merge patch.
    pub(crate) fn progress(&self) -> &Map<String, Value> {
        &self.own.0
    }

    /// Whether the schema prunes the progress in the status.
    pub(crate) fn is_pruned(&self) -> bool {
        self.is_pruned
    }

    /// Consecutive rejections of the unwritten patch by the API server.
    pub fn rejections(&self) -> u32 {
        self.rejections
    }

    /// The rejected patch with the time to send it again.
    pub fn rejected_patch(&self) -> &RejectedPatch {
        &self.rejected_patch
    }

    /// Takes the unwritten patch: by now it is on the object or in the next patch. Its progress replaces the earlier
    /// progress.
    pub(super) fn accept(&mut self, keys: &[String], persistence: &Persistence) -> Map<String, Value> {
        let accepted = std::mem::take(&mut self.unwritten);
        self.final_progress = Map::new();
        self.rejected_patch.remove(&accepted);
        self.own.merge(own_progress(&accepted, keys, persistence));
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
        // Fields that an outdated state has can be from before our last write.
        let is_outdated = view_age == ViewAge::Outdated;
        let unconfirmed = |patch: &Map<String, Value>| {
            if is_outdated { patch.clone() } else { missing(object, patch) }
        };
        let missing_progress = missing_progress(object, &self.own.0);
        let mut missing_patch = Patch(with_whole_records(missing_progress, &self.own.0, persistence));
        missing_patch.merge(self.missing_base(object, persistence));
        let mut urgent = false;
        if !self.unwritten.is_empty() {
            let unwritten = with_whole_records(unconfirmed(&self.unwritten), &self.unwritten, persistence);
            urgent = !unwritten.is_empty();
            // Fields of the unwritten patch that are not missing are up to date on the object.
            missing_patch.0 = subtract(missing_patch.0, &self.unwritten);
            missing_patch.merge(unwritten);
        }
        // Only a patch with the diff-base completes a handling; others have no final progress.
        let is_completing = has_base(object, &missing_patch.0, persistence);
        let mut final_progress = Map::new();
        if is_completing && !unconfirmed(&self.final_progress).is_empty() {
            final_progress.clone_from(&self.final_progress);
            missing_patch = self.with_final_records(missing_patch, persistence);
        }
        let rejected_patch = self.missing_rejected_patch(unconfirmed);
        // Changes of handlers outside of the status are not overlaid before the API server accepts them: it may reject or
        // change them.
        let mut ours = Patch::default();
        for patch in rejected_patch.iter().map(|(patch, _)| patch).chain([&missing_patch]) {
            ours.merge(own_annotations(object, &patch.0, persistence));
            ours.merge(status_of(&patch.0));
        }
        let ours = ours.0;
        let unfinished = urgent
            && self.is_closing(object, persistence)
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
    fn missing_rejected_patch(
        &self,
        unconfirmed: impl Fn(&Map<String, Value>) -> Map<String, Value>,
    ) -> Option<(Patch, Timestamp)> {
        let due = self.rejected_patch.due()?;
        let rejected = subtract(unconfirmed(self.rejected_patch.patch()), &self.unwritten);
        (!rejected.is_empty()).then_some((Patch(rejected), due))
    }

    /// Adds what follows the final progress: the removal of its records, although they are not on the object yet.
    fn with_final_records(&self, mut missing_patch: Patch, persistence: &Persistence) -> Patch {
        let unwritten = Patch(self.unwritten.clone());
        for key in annotations_of(&self.final_progress).map(|(key, _)| key) {
            let keys = ["metadata", "annotations", key];
            if let Some(value) = unwritten.get(&keys).filter(|_| missing_patch.get(&keys).is_none()) {
                missing_patch.set(&keys, value.clone());
            }
        }
        for (field, _) in progress_records(&self.final_progress, persistence) {
            let keys = field.keys();
            if let Some(value) = unwritten.get(keys).filter(|_| missing_patch.get(keys).is_none()) {
                missing_patch.set(keys, value.clone());
            }
        }
        missing_patch
    }

    /// Whether the unwritten patch contains the diff-base, so that it completes a handling.
    pub(super) fn is_closing(&self, object: &Object, persistence: &Persistence) -> bool {
        has_base(object, &self.unwritten, persistence)
    }

    /// The annotations of the diff-base, if the object has none or it cannot be parsed.
    fn missing_base(&self, object: &Object, persistence: &Persistence) -> Map<String, Value> {
        let storage = &persistence.diffbase_storage;
        let Some(base) = self.diffbase.as_deref() else { return Map::new() };
        let keys = storage.own_keys(object);
        // Usually, the object has just this text.
        if keys.first().is_some_and(|key| object.has_annotation(key, base)) || storage.is_readable(object) {
            return Map::new();
        }
        as_annotations(keys.into_iter().map(|key| (key, json!(base))).collect())
    }

    /// Loads the progress from the object, regardless of the operator that wrote it.
    pub(super) fn load_progress(
        &mut self,
        object: &Object,
        persistence: &Persistence,
        handlers: &ResourceHandlers,
    ) {
        let known = stale_progress(object, persistence, handlers);
        for (key, _) in annotations_of(&known.0) {
            self.own.set_annotation(key, object.annotation(key).map(Cow::into_owned));
        }
        for field in persistence.progress_storage.fields() {
            for (id, _) in known.get(field.keys()).and_then(Value::as_object).into_iter().flatten() {
                let field = field.child(id);
                self.own.set(field.keys(), object.field(&field).unwrap_or_default());
            }
        }
    }
}

/// The patch that removes all progress from the object.
pub fn stale_progress(object: &Object, persistence: &Persistence, handlers: &ResourceHandlers) -> Patch {
    let (mut patch, storage) = (Patch::default(), &persistence.progress_storage);
    for id in &handlers.owned {
        let record = storage.fetch(object, id).ok().flatten();
        storage.purge(object, &mut patch, id);
        for subref in record.iter().flat_map(|record| &record.subrefs) {
            storage.purge(object, &mut patch, subref);
        }
    }
    patch
}

pub(crate) fn overlaid(object: &Object, patch: &Map<String, Value>) -> Option<Arc<Object>> {
    let mut value = object.to_value();
    apply_merge(&mut value, patch);
    Object::decode(&value.to_string()).ok().map(Arc::new)
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

/// The part of the known progress that the object does not have.
fn missing_progress(object: &Object, own: &Map<String, Value>) -> Map<String, Value> {
    let is_missing = |(key, value): &(&String, &Value)| match value {
        Value::String(text) => object.annotation(key).as_deref() != Some(text),
        _ => object.raw_annotation(key).is_some(),
    };
    let annotations = annotations_of(own).filter(is_missing);
    let mut missing = as_annotations(annotations.map(|(key, value)| (key.clone(), value.clone())).collect());
    for (key, expected) in own.iter().filter(|(key, _)| key.as_str() != "metadata") {
        let present = object.field(&FieldPath::from_keys([key.as_str()]));
        let part = missing_part(&Map::from_iter([(key.clone(), expected.clone())]), |_| present.as_ref());
        missing.extend(part);
    }
    missing
}

/// Replaces incomplete progress records by the whole ones. The object may be older than our last write: a field that it has
/// can have been written since.
fn with_whole_records(
    missing: Map<String, Value>,
    whole: &Map<String, Value>,
    persistence: &Persistence,
) -> Map<String, Value> {
    let incomplete = progress_records(&missing, persistence);
    let (mut patch, whole) = (Patch(missing), Patch(whole.clone()));
    for (field, _) in incomplete.iter().filter(|(_, record)| record.is_object()) {
        if let Some(record) = whole.get(field.keys()) {
            patch.set(field.keys(), record.clone());
        }
    }
    patch.0
}

/// The part of a merge patch that the object does not have.
pub(super) fn missing(object: &Object, patch: &Map<String, Value>) -> Map<String, Value> {
    let object = object.to_value();
    missing_part(patch, |key| object.get(key))
}

#[cfg(test)]
mod tests;
