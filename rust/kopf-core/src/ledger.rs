//! What the operator knows better than the object: its own writes that are not there, or not there any more.
//!
//! Owns: what is kept of them in memory, and how the object looks with them. Must not know: who writes, and when.
//!
//! An object that nothing is going on with has a digest here, and nothing else. The object as it is seen is amended by what
//! was decided but could not be written, and by the progress that somebody else has removed; so that nobody is called again
//! for what is done already. Whoever takes the object over in between, begins without all this.

mod own_changes;
mod requests;

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::json;

use crate::conventions::drop_empty_stanzas;
use crate::cycle::{Memory, Sequel};
use crate::diffbase::seen::{recalled, seen};
use crate::essence::{Comparison, compare, essence};
use crate::jsonpatch::apply_merge;
use crate::object::Object;
use crate::patch::Patch;
use crate::path::{self, FieldPath};
use crate::pending::PendingPatch;
use crate::progress::Record;
use crate::registry::Plan;
use crate::settings::{Persistence, Settings};
use crate::time::Timestamp;
use crate::value::{Map, Value, equal};

pub use requests::{MergeRequest, merge_requests};

use own_changes::{Managers, OwnWrite};

/// What is remembered of a handling that goes on, and of writes that have failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The progress as we know it from this handling, as a merge patch: `null` if it was removed.
    own: Patch,
    /// The merge patch that was not accepted.
    unwritten: Map<String, Value>,
    /// What handlers have seen of the object, though others have not.
    seen: Seen,
    /// The essence that was handled last, as it is written; while a handling goes on, or if somebody is known to remove it.
    kept: Option<Box<str>>,
    /// How many times in a row the server has refused what was to be written.
    refusals: u32,
    /// What the server rejects: it is sent apart from everything else.
    pending: PendingPatch,
    /// The essence with which the handlers were called whose outcomes could not be written.
    called_with: Option<Arc<Value>>,
}

/// What handlers have seen of an object, though others have not: if that is taken back, they are to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The essence that was seen by those who have finished first; none if nobody has, or if all have at once.
    pub first: Option<Arc<Value>>,
    /// A later one that others have seen; without a first one, they were the last of the handling before.
    pub later: Option<Arc<Value>>,
}

impl Seen {
    /// Somebody has finished, or has gone a part of the way, with this essence.
    pub fn add(&mut self, essence: &Value) {
        match &self.first {
            None => *self = Self { first: Some(Arc::new(essence.clone())), later: None },
            Some(first) if equal(first, essence) => {}
            Some(_) => self.later = Some(Arc::new(essence.clone())),
        }
    }

    /// The same after a write of ours: what we have changed ourselves is no news for those handlers.
    fn carried(&self, write: &OwnWrite<'_>) -> Self {
        let carried = |essence: &Option<Arc<Value>>| essence.as_ref().map(|seen| Arc::new(write.carry(seen)));
        Self { first: carried(&self.first), later: carried(&self.later) }
    }

    /// The same after a write that is yet to be made: as far as can be foreseen from the patch.
    pub(crate) fn foreseen(
        &self,
        object: &Object,
        patch: &Patch,
        persistence: &Persistence,
        plan: &Plan,
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

/// What the server has accepted.
#[derive(Clone, Copy, Debug)]
pub struct Accepted<'a> {
    /// As a merge patch; empty if nothing was written.
    pub patch: &'a Map<String, Value>,
    /// The object afterwards, if the server has answered with it.
    pub latest: Option<&'a Object>,
}

/// How an object is to be looked at.
#[derive(Clone, Debug)]
pub struct Amendment {
    /// With all that is missing there.
    pub object: Arc<Object>,
    /// What is missing there.
    pub owed: Map<String, Value>,
    /// A handling is over, but neither that nor what its handlers have changed is written yet: both are written before
    /// another handling begins, or the difference would be a change.
    pub unfinished: bool,
    /// Others have removed or changed what is missing there.
    pub removed: bool,
    /// It is to be written now, even if nothing else is.
    pub urgent: bool,
    /// What was handled in part does not hold any more: handling begins anew, with what was seen of the object until then.
    pub restarted: Option<Seen>,
    /// What the server has rejected so far, and when it is to be sent again.
    pub pending: Option<(Patch, Timestamp)>,
}

impl Ledger {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn is_ongoing(&self) -> bool {
        !self.own.is_empty() || self.seen != Seen::default()
    }

    /// What handlers have seen, though others have not; with what their own clients have written meanwhile.
    pub fn seen(&self, object: &Object, persistence: &Persistence, plan: &Plan) -> Seen {
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
    pub fn pending(&self) -> &PendingPatch {
        &self.pending
    }

    /// What was not accepted, or so it seemed, is on the object by now, or is in the next patch: it counts, and not what was
    /// there before it.
    fn accept(&mut self, keys: &[String], persistence: &Persistence) -> Map<String, Value> {
        let accepted = std::mem::take(&mut self.unwritten);
        self.own.merge(own_progress(&accepted, keys, persistence));
        accepted
    }

    fn amend(
        &self,
        object: &Arc<Object>,
        consistent: bool,
        settings: &Settings,
        plan: &Plan,
    ) -> Option<Amendment> {
        let persistence = &settings.persistence;
        // What was let go is of no interest to us any more.
        if object.deletion_timestamp().is_some() && !object.has_finalizer(&persistence.finalizer) {
            return None;
        }
        let mut owed = Patch(missing_progress(object, &self.own.0));
        owed.merge(self.missing_base(object, persistence));
        let mut urgent = false;
        if !self.unwritten.is_empty() {
            let unwritten = missing(object, &self.unwritten);
            urgent = !unwritten.is_empty();
            // What both are about is in the state in which it should be, if it is not missing.
            owed.0 = without(owed.0, &self.unwritten);
            owed.merge(unwritten);
        }
        let pending = self.pending.due().map(|due| (Patch(missing(object, self.pending.patch())), due));
        let pending = pending.filter(|(pending, _)| !pending.is_empty());
        // What handlers have put elsewhere is not there before the server has accepted it: it may have its reasons not to.
        let mut ours = Patch(pending.as_ref().map(|(pending, _)| status_of(&pending.0)).unwrap_or_default());
        ours.merge(own_part(object, &owed.0, persistence));
        ours.merge(status_of(&owed.0));
        let ours = ours.0;
        let unfinished =
            urgent && self.is_closing(object, persistence) && !without(owed.0.clone(), &ours).is_empty();
        let mut amended = if ours.is_empty() { Arc::clone(object) } else { overlaid(object, &ours)? };
        // Progress that is still there although it is to be removed was not changed by others.
        let removed = !urgent && !is_removal(&owed.0);
        let mut restarted = None;
        // A state from before our own write may only not know yet what it was changed to.
        if consistent && let Some((restart, seen)) = self.restart(&amended, persistence, plan) {
            amended = overlaid(&amended, &restart.0)?;
            owed.merge(restart.0);
            restarted = Some(seen);
        }
        let is_amended = !owed.is_empty() || pending.is_some();
        is_amended.then_some(Amendment {
            object: amended,
            owed: owed.0,
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
    fn adopt(&mut self, object: &Object, persistence: &Persistence, plan: &Plan) {
        let known = leftovers(object, persistence, plan);
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
    fn restart(&self, object: &Object, persistence: &Persistence, plan: &Plan) -> Option<(Patch, Seen)> {
        if self.seen == Seen::default()
            || object.deletion_timestamp().is_some()
            || compare(object, persistence, &plan.extra_fields) != Ok(Comparison::Same)
        {
            return None;
        }
        let present = essence(object, persistence, &plan.extra_fields);
        let mut known = self.seen.first.iter().chain(&self.seen.later);
        let turned = known.find(|known| !equal(known, &present))?;
        let mut patch = leftovers(object, persistence, plan);
        let storage = &persistence.progress_storage;
        if let Some(id) = plan.owned.first() {
            let record = Record { seen: Some(seen(object, &present)), ..Record::default() };
            storage.store(object, &mut patch, id, &record);
        }
        persistence.diffbase_storage.store(object, &mut patch, turned);
        Some((patch, Seen { first: None, later: Some(Arc::new(present)) }))
    }
}

impl Memory {
    /// How the object is to be looked at, if not as it is.
    pub fn amend(
        &self,
        object: &Arc<Object>,
        consistent: bool,
        settings: &Settings,
        plan: &Plan,
    ) -> Option<Amendment> {
        if settings.compat {
            return None;
        }
        self.ledger.as_ref()?.amend(object, consistent, settings, plan)
    }

    /// Takes note of what was handled before; and, if the operator has died while a handling went on, of how far that is
    /// and what was seen by those who have finished.
    pub fn notice(&mut self, object: &Object, settings: &Settings, plan: &Plan) {
        self.forget_accepted(object);
        if self.handled.is_some() || !is_kept(settings) {
            return;
        }
        let persistence = &settings.persistence;
        let keys = persistence.diffbase_storage.own_keys(object);
        // Without annotations, there is no digest that would tell: states from before our own writes are not to be believed.
        if std::mem::replace(&mut self.noticed, true) && keys.is_empty() {
            return;
        }
        self.handled = keys.iter().find_map(|key| object.annotation(key)).map(|text| digest(&text));
        if self.ledger.is_some() {
            return;
        }
        let storage = &persistence.progress_storage;
        let records: Vec<_> =
            plan.owned.iter().filter_map(|id| storage.fetch(object, id).ok().flatten()).collect();
        if !records.is_empty() && !is_over(object, settings, plan) {
            let kept = base_text(object, &keys).map(|text| Box::from(&*text));
            let seen = seen_by_some(&records, || essence(object, persistence, &plan.extra_fields));
            let mut ledger = Ledger { seen, kept, ..Ledger::default() };
            ledger.adopt(object, persistence, plan);
            self.ledger = (!ledger.is_empty()).then(|| Arc::new(ledger));
        }
    }

    /// Whether this essence is the one that was handled last.
    pub fn was_handled(&self, object: &Object, essence: &Value, settings: &Settings) -> bool {
        let storage = &settings.persistence.diffbase_storage;
        let mut patch = Patch::default();
        storage.store(object, &mut patch, essence);
        let texts = storage.own_keys(object);
        let mut texts = texts.iter().filter_map(|key| patch.get(&["metadata", "annotations", key])?.as_str());
        self.handled.is_some_and(|handled| texts.any(|text| digest(text) == handled))
    }

    /// The patch is written.
    pub fn wrote(
        &mut self,
        object: &Object,
        accepted: Accepted<'_>,
        sequel: Sequel,
        settings: &Settings,
        plan: &Plan,
    ) {
        let Accepted { patch, latest } = accepted;
        if !is_kept(settings) || (self.ledger.is_none() && patch.is_empty() && sequel == Sequel::Before) {
            return;
        }
        let persistence = &settings.persistence;
        let keys = persistence.diffbase_storage.own_keys(object);
        let mut ledger = self.ledger.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        let accepted = ledger.accept(&keys, persistence);
        let written = written_base(patch, &keys).or_else(|| written_base(&accepted, &keys));
        if let Some(text) = written {
            self.count_from(&mut ledger, Some(text));
        }
        let is_as_before = sequel == Sequel::Before;
        match sequel {
            Sequel::Ongoing(seen) => {
                if written.is_none() {
                    self.count_from(&mut ledger, base_text(object, &keys).as_deref());
                }
                ledger.own.merge(own_progress(patch, &keys, persistence));
                ledger.seen = seen;
            }
            // It is over, but the answer that would have told it was lost.
            Sequel::Before if is_removal(&ledger.own.0) => ledger.own = Patch::default(),
            Sequel::Before => ledger.own.merge(own_progress(patch, &keys, persistence)),
            // What bears that which was seen by the last, stays on the object.
            Sequel::Over(seen) => {
                ledger.own = Patch(without_nulls(own_progress(patch, &keys, persistence)));
                ledger.seen = seen;
            }
        }
        // What was accepted before, or so it seemed, is on the object that was looked at.
        let known = (!accepted.is_empty() || ledger.called_with.is_some()).then_some(object);
        if ledger.seen != Seen::default()
            && let Some(latest) = latest.or(known)
        {
            let mut whole = Patch(accepted);
            whole.merge(patch.clone());
            let present = || Arc::new(essence(object, persistence, &plan.extra_fields));
            let before = ledger.called_with.take().filter(|_| is_as_before).unwrap_or_else(present);
            let after = essence(latest, persistence, &plan.extra_fields);
            let managers = Managers::of(latest);
            let write = OwnWrite { before: &before, after: &after, patch: &whole.0, managers: &managers };
            ledger.seen = ledger.seen.carried(&write);
        }
        ledger.called_with = None;
        ledger.refusals = 0;
        ledger.kept = ledger.kept.take().filter(|_| self.stripped || ledger.is_ongoing());
        self.ledger = (!ledger.is_empty()).then(|| Arc::new(ledger));
    }

    /// A daemon or a timer has written to the object. That is no news for the handlers of the sequence that goes on either.
    pub fn wrote_aside(&mut self, accepted: Accepted<'_>, settings: &Settings, plan: &Plan) {
        let Accepted { patch, latest: Some(latest) } = accepted else { return };
        let Some(ledger) = &mut self.ledger else { return };
        if !is_kept(settings) || ledger.seen == Seen::default() {
            return;
        }
        let latest = essence(latest, &settings.persistence, &plan.extra_fields);
        let managers = &Managers::default();
        let write = OwnWrite { before: &latest, after: &latest, patch, managers };
        let ledger = Arc::make_mut(ledger);
        ledger.seen = ledger.seen.carried(&write);
    }

    /// The patch is not written, or nobody knows. Whether it was the patch that the server did not like.
    pub fn failed(
        &mut self,
        object: &Object,
        (patch, rejected): (Map<String, Value>, bool),
        sequel: Sequel,
        settings: &Settings,
        plan: &Plan,
    ) {
        if !is_kept(settings) {
            return;
        }
        let persistence = &settings.persistence;
        let keys = persistence.diffbase_storage.own_keys(object);
        let mut ledger = self.ledger.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        let accepted = ledger.accept(&keys, persistence);
        if let Some(text) = written_base(&accepted, &keys) {
            self.count_from(&mut ledger, Some(text));
        }
        let is_as_before = sequel == Sequel::Before;
        match sequel {
            Sequel::Ongoing(seen) => {
                self.count_from(&mut ledger, base_text(object, &keys).as_deref());
                ledger.seen = seen;
            }
            Sequel::Over(seen) => ledger.seen = seen,
            Sequel::Before => {}
        }
        if ledger.seen != Seen::default() && (ledger.called_with.is_none() || !is_as_before) {
            ledger.called_with = Some(Arc::new(essence(object, persistence, &plan.extra_fields)));
        }
        ledger.unwritten = patch;
        ledger.refusals = if rejected { ledger.refusals.saturating_add(1) } else { 0 };
        self.ledger = (!ledger.is_empty()).then(|| Arc::new(ledger));
    }

    /// The server has rejected these fields, or could not write them: they are sent again later, apart from the rest.
    /// Seconds until then; none if nothing is kept.
    pub fn rejected(
        &mut self,
        rejected: Map<String, Value>,
        now: Timestamp,
        settings: &Settings,
    ) -> Option<f64> {
        if settings.compat || rejected.is_empty() {
            return None;
        }
        let mut ledger = self.ledger.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        let pause = ledger.pending.reject(rejected, now);
        self.ledger = Some(Arc::new(ledger));
        Some(pause)
    }

    /// The server has accepted these fields: older values of them are not sent again.
    pub fn accepted(&mut self, written: &Map<String, Value>) {
        if self.is_anything_pending() && !written.is_empty() {
            self.edit_pending(|pending| pending.remove(written));
        }
    }

    /// What was rejected and is on the object nevertheless, is not sent again: others may change it later.
    fn forget_accepted(&mut self, object: &Object) {
        if self.is_anything_pending() {
            self.edit_pending(|pending| pending.retain(missing(object, pending.patch())));
        }
    }

    fn is_anything_pending(&self) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.pending.due().is_some())
    }

    fn edit_pending(&mut self, edit: impl FnOnce(&mut PendingPatch)) {
        let mut ledger = self.ledger.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        edit(&mut ledger.pending);
        self.ledger = (!ledger.is_empty()).then(|| Arc::new(ledger));
    }

    /// This counts as handled last: what was written so, or what the handling that goes on was begun with; nothing, if the
    /// object was new to it.
    fn count_from(&mut self, ledger: &mut Ledger, base: Option<&str>) {
        self.handled = base.map(digest);
        ledger.kept = base.map(Box::from);
    }

    /// Somebody else may have handled the object: the object is believed.
    pub fn disown(&mut self) {
        (self.ledger, self.handled, self.noticed) = (None, None, false);
    }
}

/// What those have seen who have finished, if there are any, and others are still to be called; or the last of the handling
/// before.
fn seen_by_some(records: &[Record], present: impl FnOnce() -> Value) -> Seen {
    let mut kept = records.iter().filter_map(|record| record.seen.as_deref()).peekable();
    let mut seen = Seen::default();
    if kept.peek().is_none() {
        return seen;
    }
    let present = present();
    kept.filter_map(|kept| recalled(kept, &present)).for_each(|essence| seen.add(&essence));
    let is_half_done =
        records.iter().any(|record| record.success || record.failure || !record.subrefs.is_empty());
    if is_half_done { seen } else { Seen { first: None, later: seen.first } }
}

/// What removes all progress from the object.
pub fn leftovers(object: &Object, persistence: &Persistence, plan: &Plan) -> Patch {
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
pub fn culprit(object: &Object) -> Option<String> {
    let fields = object.field(&FieldPath::from_keys(["metadata", "managedFields"]))?;
    let time = |entry: &&Value| entry.get("time").and_then(Value::as_str).unwrap_or_default().to_owned();
    let last = fields.as_array()?.iter().max_by_key(time)?;
    Some(last.get("manager")?.as_str()?.to_owned())
}

/// With storages that only Python knows, they are believed; so is the object, if all is to be as in the reference.
pub(crate) fn is_kept(settings: &Settings) -> bool {
    !settings.compat && !settings.persistence.is_foreign()
}

/// Whether the progress and the last handled state are written with different requests.
pub(crate) fn is_kept_apart(settings: &Settings, plan: &Plan) -> bool {
    let Persistence { progress_storage, diffbase_storage, .. } = &settings.persistence;
    is_kept(settings)
        && plan.resource.has_subresource("status")
        && progress_storage.writes_fields() == diffbase_storage.own_fields().is_empty()
}

/// Whether the records on the object are of a handling that is over. If they are not in one place with the last handled
/// state, they are removed after that is written, and the operator may die in between. What the first handlers have seen
/// is the last handled state then; in a handling that goes on, they have seen another one.
pub(crate) fn is_over(object: &Object, settings: &Settings, plan: &Plan) -> bool {
    if !is_kept_apart(settings, plan) {
        return false;
    }
    let Persistence { progress_storage, diffbase_storage, .. } = &settings.persistence;
    let records = plan.owned.iter().filter_map(|id| progress_storage.fetch(object, id).ok().flatten());
    let seen: Vec<String> = records.filter_map(|record| record.seen).collect();
    let Ok(Some(base)) = diffbase_storage.fetch(object) else { return false };
    seen.iter().any(|seen| recalled(seen, &base).is_some_and(|seen| equal(&seen, &base)))
}

fn digest(text: &str) -> NonZeroU64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN)
}

pub(crate) fn overlaid(object: &Object, patch: &Map<String, Value>) -> Option<Arc<Object>> {
    let mut value = object.to_value();
    apply_merge(&mut value, patch);
    Object::decode(&value.to_string()).ok().map(Arc::new)
}

/// The essence that was handled last, as it is written on the object; if it can be read.
fn base_text<'o>(object: &'o Object, keys: &[String]) -> Option<Cow<'o, str>> {
    let text = keys.iter().find_map(|key| object.annotation(key))?;
    serde_json::from_str::<IgnoredAny>(&text).is_ok().then_some(text)
}

/// The same in a patch.
fn written_base<'p>(patch: &'p Map<String, Value>, keys: &[String]) -> Option<&'p str> {
    annotations_of(patch).find(|(key, _)| keys.contains(key))?.1.as_str()
}

fn annotations_of(patch: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let annotations = patch.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.and_then(Value::as_object).into_iter().flatten()
}

/// The part of a patch that is about the progress; the keys are those of the last handled state.
fn own_progress(
    patch: &Map<String, Value>,
    keys: &[String],
    persistence: &Persistence,
) -> Map<String, Value> {
    let storage = &persistence.progress_storage;
    let is_ours = |key: &String| storage.clears_annotation(key) && !keys.contains(key);
    let own = annotations_of(patch).filter(|(key, _)| is_ours(key));
    let own = as_annotations(own.map(|(key, value)| (key.clone(), value.clone())).collect());
    with_fields(own, patch, &storage.fields())
}

/// The same with these fields of the other patch.
fn with_fields(
    own: Map<String, Value>,
    patch: &Map<String, Value>,
    fields: &[&FieldPath],
) -> Map<String, Value> {
    let mut own = Patch(own);
    for field in fields {
        if let Some((first, rest)) = field.keys().split_first()
            && let Some(value) = patch.get(&**first).and_then(|value| path::resolve(value, rest))
        {
            own.set(field.keys(), value.clone());
        }
    }
    own.0
}

/// The part of a patch that is about what we keep on the object.
pub fn own_part(
    object: &Object,
    patch: &Map<String, Value>,
    persistence: &Persistence,
) -> Map<String, Value> {
    let keys = persistence.diffbase_storage.own_keys(object);
    let mut own = Patch(own_progress(patch, &keys, persistence));
    let base = annotations_of(patch).filter(|(key, _)| keys.contains(key));
    own.merge(as_annotations(base.map(|(key, value)| (key.clone(), value.clone())).collect()));
    let mut fields = persistence.progress_storage.touch_fields();
    fields.extend(persistence.diffbase_storage.own_fields());
    with_fields(own.0, patch, &fields)
}

/// The fields of the records that a patch removes.
pub(crate) fn removed_records(patch: &Map<String, Value>, persistence: &Persistence) -> Vec<FieldPath> {
    let mut removed = Vec::new();
    for field in persistence.progress_storage.fields() {
        let own = Patch(with_fields(Map::new(), patch, &[field]));
        let records = own.get(field.keys()).and_then(Value::as_object).into_iter().flatten();
        removed.extend(records.filter(|(_, it)| it.is_null()).map(|(id, _)| field.child(id)));
    }
    removed
}

/// Our own part of a patch of which the rest was rejected: what the server does not accept is not in the last handled state.
pub fn without_rejected(
    own: Map<String, Value>,
    rejected: &Map<String, Value>,
    object: &Object,
    persistence: &Persistence,
    plan: &Plan,
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

/// Whether the last handled state is in the patch.
fn has_base(object: &Object, patch: &Map<String, Value>, persistence: &Persistence) -> bool {
    let storage = &persistence.diffbase_storage;
    !with_fields(Map::new(), patch, &storage.own_fields()).is_empty()
        || written_base(patch, &storage.own_keys(object)).is_some()
}

/// The merge patch that gives the fields of another one their present values.
fn reverted(patch: &Map<String, Value>, present: Option<&Value>) -> Map<String, Value> {
    let field = |(key, value): (&String, &Value)| {
        let present = present.and_then(|present| present.get(key));
        let reverted = match (value, present) {
            (Value::Object(deeper), Some(Value::Object(_))) => Value::Object(reverted(deeper, present)),
            (_, present) => present.cloned().unwrap_or_default(),
        };
        (key.clone(), reverted)
    };
    patch.iter().map(field).collect()
}

/// Whether there is nothing but `null` in it.
fn is_removal(patch: &Map<String, Value>) -> bool {
    patch.values().all(|value| match value {
        Value::Object(deeper) => is_removal(deeper),
        value => value.is_null(),
    })
}

fn without_nulls(patch: Map<String, Value>) -> Map<String, Value> {
    let part = patch.into_iter().filter_map(|(key, value)| match value {
        Value::Null => None,
        Value::Object(deeper) => {
            let deeper = without_nulls(deeper);
            (!deeper.is_empty()).then_some((key, Value::Object(deeper)))
        }
        value => Some((key, value)),
    });
    part.collect()
}

fn status_of(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.get("status").map(|status| ("status".to_owned(), status.clone())).into_iter().collect()
}

fn as_annotations(annotations: Map<String, Value>) -> Map<String, Value> {
    let mut patch = Patch::default();
    if !annotations.is_empty() {
        patch.set(&["metadata", "annotations"], Value::Object(annotations));
    }
    patch.0
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
fn missing(object: &Object, patch: &Map<String, Value>) -> Map<String, Value> {
    let object = object.to_value();
    missing_part(patch, |key| object.get(key))
}

fn missing_part<'p>(
    patch: &Map<String, Value>,
    present: impl Fn(&str) -> Option<&'p Value>,
) -> Map<String, Value> {
    let part = patch.iter().filter_map(|(key, wanted)| {
        let part = match (wanted, present(key)) {
            (Value::Object(wanted), present) => {
                let deeper = missing_in(wanted, present);
                (!deeper.is_empty()).then_some(Value::Object(deeper))
            }
            (Value::Null, None | Some(Value::Null)) => None,
            (wanted, Some(present)) if equal(wanted, present) => None,
            (wanted, _) => Some(wanted.clone()),
        };
        Some((key.clone(), part?))
    });
    part.collect()
}

fn missing_in(wanted: &Map<String, Value>, present: Option<&Value>) -> Map<String, Value> {
    missing_part(wanted, |key| present?.get(key))
}

/// What one patch says of fields that the other one says nothing of.
pub fn without(patch: Map<String, Value>, other: &Map<String, Value>) -> Map<String, Value> {
    let rest = patch.into_iter().filter_map(|(key, value)| match (value, other.get(&key)) {
        (value, None) => Some((key, value)),
        (Value::Object(mine), Some(Value::Object(theirs))) => {
            let rest = without(mine, theirs);
            (!rest.is_empty()).then_some((key, Value::Object(rest)))
        }
        (_, Some(_)) => None,
    });
    rest.collect()
}

#[cfg(test)]
mod tests;
