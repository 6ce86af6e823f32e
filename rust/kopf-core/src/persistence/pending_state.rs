//! Pending state: progress, an unwritten patch, and the last handled essence, kept in memory until the API server confirms them.
//!
//! An idle object keeps only a digest here. Cycles work on the object with its pending state overlaid, so that no handler that
//! has finished is called again when a write fails or others remove Kopf's annotations. Another operator that takes the object
//! over does not have this state.

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
use crate::persistence::diffbase::observed::{recalled, seen};
use crate::persistence::essence::{Comparison, compare, essence};
use crate::persistence::progress::Record;
use crate::persistence::rejected_patch::RejectedPatch;
use crate::persistence::{Persistence, PersistenceConfig};
use crate::time::Timestamp;

use super::own_annotations::{annotations_of, as_annotations, has_base, own_annotations, own_progress};
use super::own_changes::{Managers, OwnWrite};

/// The progress, the unwritten patch, and the handled essence of an object, kept until the API server confirms them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingState {
    /// The progress as we know it from this handling, as a merge patch: `null` if it was removed.
    pub(super) own: Patch,
    /// The merge patch that was not accepted.
    pub(super) unwritten: Map<String, Value>,
    /// What handlers have seen of the object, though others have not.
    pub(super) seen: ObservedEssences,
    /// The essence that was handled last, as it is written; while a handling goes on, or if somebody is known to remove it.
    pub(super) kept: Option<Box<str>>,
    /// How many times in a row the server has refused what was to be written.
    pub(super) refusals: u32,
    /// What the server rejects: it is sent apart from everything else.
    pub(super) pending: RejectedPatch,
    /// The essence with which the handlers were called whose outcomes could not be written.
    pub(super) called_with: Option<Arc<Value>>,
}

/// Essences that only some handlers of the running change were called with. If the object reverts, those handlers are called
/// for the reversal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedEssences {
    /// The essence that was seen by those who have finished first; none if nobody has, or if all have at once.
    pub first: Option<Arc<Value>>,
    /// A later one that others have seen; without a first one, they were the last of the handling before.
    pub later: Option<Arc<Value>>,
}

impl ObservedEssences {
    /// Somebody has finished, or has gone a part of the way, with this essence.
    pub fn add(&mut self, essence: &Value) {
        match &self.first {
            None => *self = Self { first: Some(Arc::new(essence.clone())), later: None },
            Some(first) if equal(first, essence) => {}
            Some(_) => self.later = Some(Arc::new(essence.clone())),
        }
    }

    /// The same after a write of ours: what we have changed ourselves is no news for those handlers.
    pub(super) fn carried(&self, write: &OwnWrite<'_>) -> Self {
        let carried = |essence: &Option<Arc<Value>>| essence.as_ref().map(|seen| Arc::new(write.carry(seen)));
        Self { first: carried(&self.first), later: carried(&self.later) }
    }

    /// The same after a write that is yet to be made: as far as can be foreseen from the patch.
    pub(crate) fn foreseen(
        &self,
        object: &Object,
        patch: &Patch,
        persistence: &Persistence,
        plan: &ResourceHandlers,
    ) -> Self {
        let is_apart = |key: &String| key == "status" && plan.extra_fields.is_empty();
        if *self == Self::default() || patch.0.keys().all(is_apart) {
            return self.clone();
        }
        let before = essence(object, persistence, &plan.extra_fields);
        let Some(after) = overlaid(object, &patch.0) else { return self.clone() };
        let after = essence(&after, persistence, &plan.extra_fields);
        let managers = &Managers::default();
        self.carried(&OwnWrite { before: &before, after: &after, patch: &patch.0, managers })
    }
}

/// An object with the unconfirmed state overlaid on it, and what is missing on the object.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// With all that is missing there.
    pub object: Arc<Object>,
    /// What is missing there.
    pub missing_patch: Map<String, Value>,
    /// A handling is over, but neither that nor what its handlers have changed is written yet: both are written before
    /// another handling begins, or the difference would be a change.
    pub unfinished: bool,
    /// Others have removed or changed what is missing there.
    pub removed: bool,
    /// It is to be written now, even if nothing else is.
    pub urgent: bool,
    /// What was handled in part does not hold any more: handling begins anew, with what was seen of the object until then.
    pub restarted: Option<ObservedEssences>,
    /// What the server has rejected so far, and when it is to be sent again.
    pub pending: Option<(Patch, Timestamp)>,
}

impl PendingState {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn is_ongoing(&self) -> bool {
        !self.own.is_empty() || self.seen != ObservedEssences::default()
    }

    /// What handlers have seen, though others have not; with what their own clients have written meanwhile.
    pub fn seen(
        &self,
        object: &Object,
        persistence: &Persistence,
        plan: &ResourceHandlers,
    ) -> ObservedEssences {
        let Some(before) = &self.called_with else { return self.seen.clone() };
        let after = essence(object, persistence, &plan.extra_fields);
        // It may have been written nevertheless, with only the answer lost.
        let (patch, managers) = (&self.unwritten, &Managers::of(object));
        self.seen.carried(&OwnWrite { before, after: &after, patch, managers })
    }

    /// How many times in a row the server has refused what was to be written.
    pub fn refusals(&self) -> u32 {
        self.refusals
    }

    /// What the server rejects, and when it is to be sent again.
    pub fn pending(&self) -> &RejectedPatch {
        &self.pending
    }

    /// What was not accepted, or so it seemed, is on the object by now, or is in the next patch: it counts, and not what was
    /// there before it.
    pub(super) fn accept(&mut self, keys: &[String], persistence: &Persistence) -> Map<String, Value> {
        let accepted = std::mem::take(&mut self.unwritten);
        self.own.merge(own_progress(&accepted, keys, persistence));
        accepted
    }

    pub(super) fn overlay(
        &self,
        object: &Arc<Object>,
        consistent: bool,
        settings: PersistenceConfig<'_>,
        plan: &ResourceHandlers,
    ) -> Option<Overlay> {
        let persistence = settings.persistence;
        // What was let go is of no interest to us any more.
        if object.deletion_timestamp().is_some() && !object.has_finalizer(&persistence.finalizer) {
            return None;
        }
        let mut missing_patch = Patch(missing_progress(object, &self.own.0));
        missing_patch.merge(self.missing_base(object, persistence));
        let mut urgent = false;
        if !self.unwritten.is_empty() {
            let unwritten = missing(object, &self.unwritten);
            urgent = !unwritten.is_empty();
            // What both are about is in the state in which it should be, if it is not missing.
            missing_patch.0 = subtract(missing_patch.0, &self.unwritten);
            missing_patch.merge(unwritten);
        }
        let pending = self.pending.due().map(|due| (Patch(missing(object, self.pending.patch())), due));
        let pending = pending.filter(|(pending, _)| !pending.is_empty());
        // What handlers have put elsewhere is not there before the server has accepted it: it may have its reasons not to.
        let mut ours = Patch(pending.as_ref().map(|(pending, _)| status_of(&pending.0)).unwrap_or_default());
        ours.merge(own_annotations(object, &missing_patch.0, persistence));
        ours.merge(status_of(&missing_patch.0));
        let ours = ours.0;
        let unfinished = urgent
            && self.is_closing(object, persistence)
            && !subtract(missing_patch.0.clone(), &ours).is_empty();
        let mut amended = if ours.is_empty() { Arc::clone(object) } else { overlaid(object, &ours)? };
        // Progress that is still there although it is to be removed was not changed by others.
        let removed = !urgent && !is_removal(&missing_patch.0);
        let mut restarted = None;
        // A state from before our own write may only not know yet what it was changed to.
        if consistent && let Some((restart, seen)) = self.restart(&amended, persistence, plan) {
            amended = overlaid(&amended, &restart.0)?;
            missing_patch.merge(restart.0);
            restarted = Some(seen);
        }
        let is_amended = !missing_patch.is_empty() || pending.is_some();
        is_amended.then_some(Overlay {
            object: amended,
            missing_patch: missing_patch.0,
            unfinished,
            removed,
            urgent,
            restarted,
            pending,
        })
    }

    /// Whether the last handled state is among what could not be written.
    fn is_closing(&self, object: &Object, persistence: &Persistence) -> bool {
        has_base(object, &self.unwritten, persistence)
    }

    /// What was handled last, if that is not on the object, or cannot be read.
    fn missing_base(&self, object: &Object, persistence: &Persistence) -> Map<String, Value> {
        let storage = &persistence.diffbase_storage;
        let Some(kept) = self.kept.as_deref().filter(|_| !matches!(storage.fetch(object), Ok(Some(_))))
        else {
            return Map::new();
        };
        as_annotations(storage.own_keys(object).into_iter().map(|key| (key, json!(kept))).collect())
    }

    /// The progress that is on the object is known from now on, whoever has written it.
    pub(super) fn load_progress(
        &mut self,
        object: &Object,
        persistence: &Persistence,
        plan: &ResourceHandlers,
    ) {
        let known = stale_progress(object, persistence, plan);
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

    /// The object is again as it was before the handling that goes on, but some handlers have seen it otherwise: what they
    /// have seen becomes the last handled state, and the way back is a change of its own. The others have seen what is there
    /// now: it is kept, in case that it changes once more.
    fn restart(
        &self,
        object: &Object,
        persistence: &Persistence,
        plan: &ResourceHandlers,
    ) -> Option<(Patch, ObservedEssences)> {
        if self.seen == ObservedEssences::default()
            || object.deletion_timestamp().is_some()
            || compare(object, persistence, &plan.extra_fields) != Ok(Comparison::Same)
        {
            return None;
        }
        let present = essence(object, persistence, &plan.extra_fields);
        let mut known = self.seen.first.iter().chain(&self.seen.later);
        let turned = known.find(|known| !equal(known, &present))?;
        let mut patch = stale_progress(object, persistence, plan);
        let storage = &persistence.progress_storage;
        if let Some(id) = plan.owned.first() {
            let record = Record { seen: Some(seen(object, &present)), ..Record::default() };
            storage.store(object, &mut patch, id, &record);
        }
        persistence.diffbase_storage.store(object, &mut patch, turned);
        Some((patch, ObservedEssences { first: None, later: Some(Arc::new(present)) }))
    }
}

/// What removes all progress from the object.
pub fn stale_progress(object: &Object, persistence: &Persistence, plan: &ResourceHandlers) -> Patch {
    let (mut patch, storage) = (Patch::default(), &persistence.progress_storage);
    for id in &plan.owned {
        let record = storage.fetch(object, id).ok().flatten();
        storage.purge(object, &mut patch, id);
        for subref in record.iter().flat_map(|record| &record.subrefs) {
            storage.purge(object, &mut patch, subref);
        }
    }
    patch
}

/// Who removed our annotations, as far as the server tells: whoever has changed the object last.
pub fn last_manager(object: &Object) -> Option<String> {
    let fields = object.field(&FieldPath::from_keys(["metadata", "managedFields"]))?;
    let time = |entry: &&Value| entry.get("time").and_then(Value::as_str).unwrap_or_default().to_owned();
    let last = fields.as_array()?.iter().max_by_key(time)?;
    Some(last.get("manager")?.as_str()?.to_owned())
}

/// With storages that only Python knows, they are believed; so is the object, if all is to be as in the reference.
pub(crate) fn is_kept<'s>(settings: impl Into<PersistenceConfig<'s>>) -> bool {
    let settings = settings.into();
    !settings.compat && !settings.persistence.is_foreign()
}

/// Whether the progress and the last handled state are written with different requests.
pub(crate) fn is_kept_apart<'s>(settings: impl Into<PersistenceConfig<'s>>, plan: &ResourceHandlers) -> bool {
    let settings = settings.into();
    let Persistence { progress_storage, diffbase_storage, .. } = settings.persistence;
    is_kept(settings)
        && plan.resource.has_subresource("status")
        && progress_storage.writes_fields() == diffbase_storage.own_fields().is_empty()
}

/// Whether the records on the object are of a handling that is over. If they are not in one place with the last handled
/// state, they are removed after that is written, and the operator may die in between. What the first handlers have seen
/// is the last handled state then; in a handling that goes on, they have seen another one.
pub(crate) fn is_over<'s>(
    object: &Object,
    settings: impl Into<PersistenceConfig<'s>>,
    plan: &ResourceHandlers,
) -> bool {
    let settings = settings.into();
    if !is_kept_apart(settings, plan) {
        return false;
    }
    let Persistence { progress_storage, diffbase_storage, .. } = settings.persistence;
    let records = plan.owned.iter().filter_map(|id| progress_storage.fetch(object, id).ok().flatten());
    let seen: Vec<String> = records.filter_map(|record| record.seen).collect();
    let Ok(Some(base)) = diffbase_storage.fetch(object) else { return false };
    seen.iter().any(|seen| recalled(seen, &base).is_some_and(|seen| equal(&seen, &base)))
}

pub(crate) fn overlaid(object: &Object, patch: &Map<String, Value>) -> Option<Arc<Object>> {
    let mut value = object.to_value();
    apply_merge(&mut value, patch);
    Object::decode(&value.to_string()).ok().map(Arc::new)
}

/// Our own part of a patch of which the rest was rejected: what the server does not accept is not in the last handled state.
pub fn without_rejected(
    own: Map<String, Value>,
    rejected: &Map<String, Value>,
    object: &Object,
    persistence: &Persistence,
    plan: &ResourceHandlers,
) -> Map<String, Value> {
    let storage = &persistence.diffbase_storage;
    let is_written = has_base(object, &own, persistence);
    let handled = overlaid(object, &own).filter(|_| is_written);
    let Some(Ok(Some(mut handled_essence))) = handled.map(|handled| storage.fetch(&handled)) else {
        return own;
    };
    let before = handled_essence.clone();
    let present = essence(object, persistence, &plan.extra_fields);
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

/// The part of the known progress that is not on the object as it is known.
fn missing_progress(object: &Object, own: &Map<String, Value>) -> Map<String, Value> {
    let is_missing = |(key, value): &(&String, &Value)| match value {
        Value::String(text) => object.annotation(key).as_deref() != Some(text),
        _ => object.raw_annotation(key).is_some(),
    };
    let annotations = annotations_of(own).filter(is_missing);
    let mut missing = as_annotations(annotations.map(|(key, value)| (key.clone(), value.clone())).collect());
    for (key, wanted) in own.iter().filter(|(key, _)| key.as_str() != "metadata") {
        let present = object.field(&FieldPath::from_keys([key.as_str()]));
        let part = missing_part(&Map::from_iter([(key.clone(), wanted.clone())]), |_| present.as_ref());
        missing.extend(part);
    }
    missing
}

/// The part of a merge patch that does not hold on the object.
pub(super) fn missing(object: &Object, patch: &Map<String, Value>) -> Map<String, Value> {
    let object = object.to_value();
    missing_part(patch, |key| object.get(key))
}

#[cfg(test)]
mod tests;
