//! What the operator knows better than the object: its own writes that are not there, or not there any more.
//!
//! Owns: what is kept of them in memory, and how the object looks with them. Must not know: who writes, and when.
//!
//! An object that nothing is going on with has a digest here, and nothing else. The object as it is seen is amended by what
//! was decided but could not be written, and by the progress that somebody else has removed; so that nobody is called again
//! for what is done already. Whoever takes the object over in between, begins without all this.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::json;

use crate::cycle::{Memory, Sequel};
use crate::diffbase::seen::{recalled, seen};
use crate::essence::{Comparison, compare, essence};
use crate::jsonpatch::apply_merge;
use crate::object::Object;
use crate::patch::Patch;
use crate::path::FieldPath;
use crate::progress::Record;
use crate::registry::Plan;
use crate::settings::{Persistence, Settings};
use crate::value::{Map, Value, equal};

/// What is remembered of a handling that goes on, and of writes that have failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The progress as we know it from this handling, by its annotations; `null` if they were removed.
    own: Map<String, Value>,
    /// The merge patch that was not accepted.
    unwritten: Map<String, Value>,
    /// What handlers have seen of the object, though others have not.
    seen: Seen,
    /// The essence that was handled last, as it is written; while a handling goes on, or if somebody is known to remove it.
    kept: Option<Box<str>>,
    /// How many times in a row the server has refused what was to be written.
    refusals: u32,
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
}

/// How an object is to be looked at.
#[derive(Clone, Debug)]
pub struct Amendment {
    /// With all that is missing there.
    pub object: Arc<Object>,
    /// What is missing there.
    pub owed: Map<String, Value>,
    /// It is to be written now, even if nothing else is.
    pub urgent: bool,
    /// What was handled in part does not hold any more: handling begins anew, with what was seen of the object until then.
    pub restarted: Option<Seen>,
}

impl Ledger {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn is_ongoing(&self) -> bool {
        !self.own.is_empty() || self.seen != Seen::default()
    }

    /// What handlers have seen, though others have not.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// How many times in a row the server has refused what was to be written.
    pub fn refusals(&self) -> u32 {
        self.refusals
    }

    /// What was not accepted, or so it seemed, is on the object by now, or is in the next patch: it counts, and not what was
    /// there before it.
    fn accept(&mut self, keys: &[String], persistence: &Persistence) -> Map<String, Value> {
        let accepted = std::mem::take(&mut self.unwritten);
        self.own.extend(own_progress(&accepted, keys, persistence));
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
        let mut owed = Patch(missing_annotations(object, &self.own));
        owed.merge(self.missing_base(object, persistence));
        let mut urgent = false;
        if !self.unwritten.is_empty() {
            let unwritten = missing(object, &self.unwritten);
            urgent = !unwritten.is_empty();
            // What both are about is in the state in which it should be, if it is not missing.
            owed.0 = without(owed.0, &self.unwritten);
            owed.merge(unwritten);
        }
        // What handlers have put elsewhere is not there before the server has accepted it: it may have its reasons not to.
        let mut ours = own_part(object, &owed.0, persistence);
        ours.extend(owed.0.get("status").map(|status| ("status".to_owned(), status.clone())));
        let mut amended = if ours.is_empty() { Arc::clone(object) } else { overlaid(object, &ours)? };
        let mut restarted = None;
        // A state from before our own write may only not know yet what it was changed to.
        if consistent && let Some((restart, seen)) = self.restart(&amended, persistence, plan) {
            amended = overlaid(&amended, &restart.0)?;
            owed.merge(restart.0);
            restarted = Some(seen);
        }
        (!owed.is_empty()).then_some(Amendment { object: amended, owed: owed.0, urgent, restarted })
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
        let texts = annotations_of(&known.0).filter_map(|(key, _)| Some((key, object.annotation(key)?)));
        self.own.extend(texts.map(|(key, text)| (key.clone(), json!(text))));
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
        if !is_kept(settings) {
            return None;
        }
        self.ledger.as_ref()?.amend(object, consistent, settings, plan)
    }

    /// Takes note of what was handled before; and, if the operator has died while a handling went on, of how far that is
    /// and what was seen by those who have finished.
    pub fn notice(&mut self, object: &Object, settings: &Settings, plan: &Plan) {
        if self.handled.is_some() || !is_kept(settings) {
            return;
        }
        let persistence = &settings.persistence;
        let keys = persistence.diffbase_storage.own_keys(object);
        self.handled = keys.iter().find_map(|key| object.annotation(key)).map(|text| digest(&text));
        if self.ledger.is_some() {
            return;
        }
        let storage = &persistence.progress_storage;
        let records: Vec<_> =
            plan.owned.iter().filter_map(|id| storage.fetch(object, id).ok().flatten()).collect();
        if !records.is_empty() {
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
        patch: &Map<String, Value>,
        sequel: Sequel,
        settings: &Settings,
    ) {
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
        match sequel {
            Sequel::Ongoing(seen) => {
                if written.is_none() {
                    self.count_from(&mut ledger, base_text(object, &keys).as_deref());
                }
                ledger.own.extend(own_progress(patch, &keys, persistence));
                ledger.seen = seen;
            }
            // It is over, but the answer that would have told it was lost.
            Sequel::Before if ledger.own.values().all(Value::is_null) => ledger.own.clear(),
            Sequel::Before => ledger.own.extend(own_progress(patch, &keys, persistence)),
            // What bears that which was seen by the last, stays on the object.
            Sequel::Over(seen) => {
                ledger.own = own_progress(patch, &keys, persistence);
                ledger.own.retain(|_, record| !record.is_null());
                ledger.seen = seen;
            }
        }
        ledger.refusals = 0;
        ledger.kept = ledger.kept.take().filter(|_| self.stripped || ledger.is_ongoing());
        self.ledger = (!ledger.is_empty()).then(|| Arc::new(ledger));
    }

    /// The patch is not written, or nobody knows. Whether it was the patch that the server did not like.
    pub fn failed(
        &mut self,
        object: &Object,
        (patch, rejected): (Map<String, Value>, bool),
        sequel: Sequel,
        settings: &Settings,
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
        match sequel {
            Sequel::Ongoing(seen) => {
                self.count_from(&mut ledger, base_text(object, &keys).as_deref());
                ledger.seen = seen;
            }
            Sequel::Over(seen) => ledger.seen = seen,
            Sequel::Before => {}
        }
        ledger.unwritten = patch;
        ledger.refusals = if rejected { ledger.refusals.saturating_add(1) } else { 0 };
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
        (self.ledger, self.handled) = (None, None);
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

fn digest(text: &str) -> NonZeroU64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN)
}

fn overlaid(object: &Object, patch: &Map<String, Value>) -> Option<Arc<Object>> {
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

/// The part of a patch that is about the progress, by its annotations; the keys are those of the last handled state.
fn own_progress(
    patch: &Map<String, Value>,
    keys: &[String],
    persistence: &Persistence,
) -> Map<String, Value> {
    let is_ours = |key: &String| persistence.progress_storage.clears_annotation(key) && !keys.contains(key);
    let own = annotations_of(patch).filter(|(key, _)| is_ours(key));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The part of a patch that is about what we keep on the object.
pub fn own_part(
    object: &Object,
    patch: &Map<String, Value>,
    persistence: &Persistence,
) -> Map<String, Value> {
    let keys = persistence.diffbase_storage.own_keys(object);
    let mut own = own_progress(patch, &keys, persistence);
    let base = annotations_of(patch).filter(|(key, _)| keys.contains(key));
    own.extend(base.map(|(key, value)| (key.clone(), value.clone())));
    as_annotations(own)
}

fn as_annotations(annotations: Map<String, Value>) -> Map<String, Value> {
    let mut patch = Patch::default();
    if !annotations.is_empty() {
        patch.set(&["metadata", "annotations"], Value::Object(annotations));
    }
    patch.0
}

fn missing_annotations(object: &Object, own: &Map<String, Value>) -> Map<String, Value> {
    let is_missing = |(key, value): &(&String, &Value)| match value {
        Value::String(text) => object.annotation(key).as_deref() != Some(text),
        _ => object.raw_annotation(key).is_some(),
    };
    as_annotations(own.iter().filter(is_missing).map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// The part of a merge patch that does not hold on the object.
fn missing(object: &Object, patch: &Map<String, Value>) -> Map<String, Value> {
    fn of(patch: &Map<String, Value>, present: Option<&Value>) -> Map<String, Value> {
        let part = patch.iter().filter_map(|(key, wanted)| {
            let present = present.and_then(|present| present.get(key));
            let part = match (wanted, present) {
                (Value::Object(wanted), _) => {
                    Some(Value::Object(of(wanted, present))).filter(|it| it != &json!({}))
                }
                (Value::Null, None | Some(Value::Null)) => None,
                (wanted, Some(present)) if equal(wanted, present) => None,
                (wanted, _) => Some(wanted.clone()),
            };
            Some((key.clone(), part?))
        });
        part.collect()
    }
    of(patch, Some(&object.to_value()))
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
