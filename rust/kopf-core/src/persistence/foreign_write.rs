//! Recognition of another operator that handles the same object at the same time.
//!
//! The sign is a write of Kopf's state that this operator has not made, while it handles the object: the progress of one of its
//! handlers, or the diff-base of the state that is being handled. A missed sign is better than a wrong one, because there will be
//! others. So these are no signs:
//!
//! * states that can be older than our writes, or that can contain a write of ours whose result is unknown
//!   ([`ObjectMemory::has_unknown_writes`]);
//! * the first handling of an object that existed before this operator: the previous one may still be stopping;
//! * progress of other handlers, and everything under other keys: it belongs to different operators;
//! * removed state, and state from field managers that are not Python clients: it belongs to users and their tools.

use std::sync::Arc;

use super::essence::essence;
use super::memory::ObjectMemory;
use super::own_annotations::{annotations_of, progress_records};
use super::own_changes::Managers;
use super::patched::overlaid;
use super::{Persistence, PersistenceConfig, keeps_pending_state};
use crate::handler::registry::ResourceHandlers;
use crate::json::merge_patch::Patch;
use crate::json::path::FieldPath;
use crate::json::value::{Map, Value, equal};
use crate::object::Object;
use crate::persistence::progress::Record;
use crate::time::Timestamp;

/// A write of Kopf's state by another operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignWrite {
    /// The progress of the handler with this id.
    Progress(Arc<str>),
    /// The diff-base.
    DiffBase,
}

impl ObjectMemory {
    /// Whether a state that we have not written is from another operator.
    pub(crate) fn recognises_foreign_writes<'s>(&self, settings: impl Into<PersistenceConfig<'s>>) -> bool {
        let is_initial = self.noticed_by_listing && !self.fully_handled_once;
        keeps_pending_state(settings) && self.noticed && !self.has_unknown_writes && !is_initial
    }
}

/// The settings and handlers of the operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalOperator<'a> {
    pub(crate) persistence: &'a Persistence,
    pub(crate) handlers: &'a ResourceHandlers,
}

impl LocalOperator<'_> {
    /// The foreign write between two states: `before` is being handled and contains all our writes, `after` is newer, and we have
    /// written nothing in between.
    pub(crate) fn foreign_write_between(self, before: &Object, after: &Object) -> Option<ForeignWrite> {
        let is_foreign = |id: &&Arc<str>| {
            let is_new = |started| self.started(before, id) != Some(started);
            self.started(after, id).is_some_and(is_new) && !self.is_by_user(after, id)
        };
        let progress = self.handlers.owned.iter().find(is_foreign);
        progress
            .map(|id| ForeignWrite::Progress(Arc::clone(id)))
            .or_else(|| self.is_handled_by_another(before, after).then_some(ForeignWrite::DiffBase))
    }

    /// The foreign write in a state that contains all our writes: progress that is younger than ours. `own` is our progress as a
    /// merge patch. Older progress could be ours from an earlier handling.
    pub(crate) fn younger_progress(
        self,
        own: &Map<String, Value>,
        received: &Object,
    ) -> Option<ForeignWrite> {
        let written = overlaid(received, own)?;
        let is_younger = |id: &&Arc<str>| {
            let (ours, theirs) = (self.started(&written, id), self.started(received, id));
            ours.zip(theirs).is_some_and(|(ours, theirs)| theirs > ours) && !self.is_by_user(received, id)
        };
        self.handlers.owned.iter().find(is_younger).map(|id| ForeignWrite::Progress(Arc::clone(id)))
    }

    /// The start of the handling by the progress of a handler. It identifies the operator: two operators do not begin in the same
    /// microsecond, and it stays as it is during the handling.
    fn started(self, object: &Object, id: &str) -> Option<Timestamp> {
        let record: Record = self.persistence.progress_storage.fetch(object, id).ok()??;
        record.started
    }

    /// Whether the diff-base has become the essence that is being handled.
    fn is_handled_by_another(self, before: &Object, after: &Object) -> bool {
        let storage = &self.persistence.diffbase_storage;
        let texts = |object| storage.texts(object).into_iter().map(|(_, text)| text);
        if texts(before).eq(texts(after)) {
            return false;
        }
        let Ok(Some(new)) = storage.fetch(after) else { return false };
        let is_changed = !matches!(storage.fetch(before), Ok(Some(old)) if equal(&old, &new));
        let is_essence =
            |object| equal(&new, &essence(object, self.persistence, &self.handlers.extra_fields));
        let managers = Managers::of(after);
        let is_by_user =
            storage.own_keys(after).iter().any(|key| managers.are_others(&["metadata", "annotations", key]));
        is_changed && !is_by_user && (is_essence(before) || is_essence(after))
    }

    /// Whether the progress of the handler was written by a client that is not a Python client, such as `kubectl`.
    fn is_by_user(self, object: &Object, id: &str) -> bool {
        let managers = Managers::of(object);
        let mut present = Patch::default();
        self.persistence.progress_storage.purge(object, &mut present, id);
        let records = progress_records(&present.0, self.persistence);
        annotations_of(&present.0).any(|(key, _)| managers.are_others(&["metadata", "annotations", key]))
            || records.iter().any(|(field, _)| {
                let keys: Vec<&str> = field.keys().iter().map(AsRef::as_ref).collect();
                managers.are_others(&keys)
            })
    }
}

/// The field manager with the latest change of the object: the probable remover of Kopf's annotations.
pub fn last_manager(object: &Object) -> Option<String> {
    let fields = object.field(&FieldPath::from_keys(["metadata", "managedFields"]))?;
    let time = |entry: &&Value| entry.get("time").and_then(Value::as_str).unwrap_or_default().to_owned();
    let last = fields.as_array()?.iter().max_by_key(time)?;
    Some(last.get("manager")?.as_str()?.to_owned())
}
