//! The comparison of the object's essence with the diff-base, as late and as small as possible.

use super::OperatorConfig;
use crate::activation::log::LogMessage;
use crate::cause::{EssenceChange, Reason};
use crate::handler::filters::OldAndNew;
use crate::handler::registry::ResourceHandlers;
use crate::handling::change::Change;
use crate::json::diff::DiffItem;
use crate::json::path::FieldPath;
use crate::json::value::{Value, equal};
use crate::object::Object;
use crate::persistence::Persistence;
use crate::persistence::diffbase::{DiffBaseStorage, compact};
use crate::persistence::essence::{
    Comparison, Difference, KnownComparison, LazyEssence, compare, essence, serialize_raw,
};
use crate::persistence::memory::ObjectMemory;
use crate::persistence::progress::ProgressStorage;
use std::borrow::Cow;
use std::sync::Arc;

/// The comparison of the essence with the last handled one.
#[derive(Clone, Debug)]
pub(super) struct EssenceComparison {
    known: bool,
    differs: bool,
    diff: Option<Arc<[DiffItem]>>,
    /// The diff-base, if it differs from the new essence.
    old: Option<Arc<LazyEssence>>,
    /// The current essence, built when needed.
    new: Option<Arc<LazyEssence>>,
    /// The diff-base is only in memory, and must be written to the object again.
    lost: bool,
}

impl EssenceComparison {
    /// Reads both from the object, unless the comparison is known. An unreadable diff-base counts as absent.
    pub(super) fn read(
        known: &mut KnownComparison,
        object: &Arc<Object>,
        resource_handlers: &Arc<ResourceHandlers>,
        config: &Arc<OperatorConfig>,
        memory: &ObjectMemory,
        log_messages: &mut Vec<LogMessage>,
    ) -> Self {
        let compared = known.take().unwrap_or_else(|| {
            compare(object, &config.settings.persistence, &resource_handlers.extra_fields)
        });
        match compared {
            Ok(Comparison::Same) => Self::same(None),
            Ok(Comparison::Different(difference)) => Self::different(difference),
            Ok(Comparison::Absent) => Self::from_memory(object, resource_handlers, config, memory),
            Err(malformed) => {
                log_messages.push(LogMessage::Malformed(malformed));
                Self::from_memory(object, resource_handlers, config, memory)
            }
        }
    }

    /// The comparison if the diff-base is absent on the object or unreadable: it may still be known in memory.
    fn from_memory(
        object: &Arc<Object>,
        resource_handlers: &Arc<ResourceHandlers>,
        config: &Arc<OperatorConfig>,
        memory: &ObjectMemory,
    ) -> Self {
        if memory.handled.is_none() {
            return Self::unknown();
        }
        let new = lazy_essence(object, resource_handlers, config);
        if !memory.was_handled(object, &new, &config.settings) {
            return Self { new: Some(new), ..Self::unknown() };
        }
        let (diff, old) = (Some(Arc::default()), Some(Arc::clone(&new)));
        Self { known: true, differs: true, diff, old, new: Some(new), lost: true }
    }

    /// The comparison of the essences that Python has loaded from custom storages.
    pub(super) fn from_stored(old: Option<Value>, new: Value) -> Self {
        // Subclasses of the storage of annotations also read those that the built-in one has condensed.
        match old.map(|old| compact::restored(old, &new)) {
            None => Self { new: Some(LazyEssence::of(new)), ..Self::unknown() },
            Some(old) if equal(&old, &new) => Self::same(Some(LazyEssence::of(new))),
            Some(old) => Self::different(Difference::of_values(old, new)),
        }
    }

    fn same(new: Option<Arc<LazyEssence>>) -> Self {
        Self { known: true, differs: false, diff: Some(Arc::default()), old: None, new, lost: false }
    }

    fn different(difference: Difference) -> Self {
        let Difference { old, new, diff } = difference;
        let (diff, old, new) = (Some(diff.into()), Some(old), Some(new));
        Self { known: true, differs: true, diff, old, new, lost: false }
    }

    fn unknown() -> Self {
        Self { known: false, differs: true, diff: None, old: None, new: None, lost: false }
    }

    /// Whether the essences differ. Unequal essences can have an empty diff: nulls count as absent.
    pub(super) fn essence_change(&self) -> EssenceChange {
        match &self.diff {
            None => EssenceChange::Unknown,
            Some(diff) if diff.is_empty() => EssenceChange::Same,
            Some(_) => EssenceChange::Different,
        }
    }

    /// Whether the diff-base must be restored on the object.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether the current essence must be stored as the diff-base.
    pub(super) fn differs(&self) -> bool {
        self.differs
    }

    /// The old essence and the current one.
    fn essences(
        &mut self,
        object: &Arc<Object>,
        resource_handlers: &Arc<ResourceHandlers>,
        config: &Arc<OperatorConfig>,
    ) -> (Option<&Arc<LazyEssence>>, &Arc<LazyEssence>) {
        let new = &*self.new.get_or_insert_with(|| lazy_essence(object, resource_handlers, config));
        let old = if self.known && !self.differs { Some(new) } else { self.old.as_ref() };
        (old, new)
    }

    /// The old and new values of one field. If nothing differs, most fields are read from the object, and no essence is built.
    pub(super) fn field(
        &mut self,
        object: &Arc<Object>,
        resource_handlers: &Arc<ResourceHandlers>,
        config: &Arc<OperatorConfig>,
        path: &FieldPath,
    ) -> OldAndNew<'_> {
        let persistence = &config.settings.persistence;
        let is_unbuilt = self.new.as_ref().is_none_or(|new| !new.is_built());
        if !self.differs && is_unbuilt && is_kept_as_is(path, persistence) {
            let value = object.field(path).map(Cow::Owned);
            return OldAndNew { old: value.clone(), new: value };
        }
        let (old, new) = self.essences(object, resource_handlers, config);
        OldAndNew { old: old.and_then(|old| old.field(path)), new: new.field(path) }
    }

    /// The change that handlers and filters get.
    pub(super) fn change(
        &mut self,
        object: &Arc<Object>,
        resource_handlers: &Arc<ResourceHandlers>,
        config: &Arc<OperatorConfig>,
        reason: Reason,
        initial: bool,
    ) -> Change {
        let (old, new) = self.essences(object, resource_handlers, config);
        let (old, new) = (old.cloned(), Some(Arc::clone(new)));
        // An object that was never handled is created, not resumed.
        let initial = initial && reason != Reason::Create;
        Change::new((reason, initial), old, new, self.diff.clone())
    }
}

fn lazy_essence(
    object: &Arc<Object>,
    resource_handlers: &Arc<ResourceHandlers>,
    config: &Arc<OperatorConfig>,
) -> Arc<LazyEssence> {
    let parts = (Arc::clone(object), Arc::clone(resource_handlers), Arc::clone(config));
    let (object, resource_handlers, config) = parts.clone();
    let build = move || essence(&object, &config.settings.persistence, &resource_handlers.extra_fields);
    let (object, resource_handlers, config) = parts;
    let serialize =
        move || serialize_raw(&object, &config.settings.persistence, &resource_handlers.extra_fields);
    LazyEssence::new(build, serialize)
}

/// Whether a field has the same value in the essence as in the object: its stanza is neither cleaned nor has ignored fields.
fn is_kept_as_is(path: &FieldPath, persistence: &Persistence) -> bool {
    let Some(stanza) = path.keys().first() else {
        return false;
    };
    let is_cleaned = matches!(&**stanza, "metadata" | "status" | "apiVersion" | "kind");
    let is_elsewhere = |field: &FieldPath| field.keys().first() != Some(stanza);
    !is_cleaned
        && keeps_diffbase_off(&persistence.diffbase_storage, &is_elsewhere)
        && keeps_progress_off(&persistence.progress_storage, &is_elsewhere)
}

fn keeps_diffbase_off(storage: &DiffBaseStorage, is_elsewhere: &dyn Fn(&FieldPath) -> bool) -> bool {
    match storage {
        DiffBaseStorage::Annotations { ignored_fields, .. } => ignored_fields.iter().all(is_elsewhere),
        DiffBaseStorage::Status { field, ignored_fields } => {
            is_elsewhere(field) && ignored_fields.iter().all(is_elsewhere)
        }
        DiffBaseStorage::Custom => false,
        DiffBaseStorage::Multi { storages } => {
            storages.iter().all(|one| keeps_diffbase_off(one, is_elsewhere))
        }
    }
}

fn keeps_progress_off(storage: &ProgressStorage, is_elsewhere: &dyn Fn(&FieldPath) -> bool) -> bool {
    match storage {
        ProgressStorage::Annotations { .. } => true,
        ProgressStorage::Status { field, .. } => is_elsewhere(field),
        ProgressStorage::Custom => false,
        ProgressStorage::Multi { storages } => {
            storages.iter().all(|one| keeps_progress_off(one, is_elsewhere))
        }
    }
}
