//! What the object's essence says, read as late and as little as possible.

use super::OperatorConfig;
use crate::activation::log::LogMessage;
use crate::cause::{EssenceChange, Reason};
use crate::handler::filters::OldAndNew;
use crate::handler::registry::ResourceHandlers;
use crate::handling::change::Change;
use crate::json::diff::{DiffItem, diff};
use crate::json::path::{FieldPath, resolve};
use crate::json::value::{Value, equal};
use crate::object::Object;
use crate::persistence::Persistence;
use crate::persistence::diffbase::DiffBaseStorage;
use crate::persistence::essence::{Comparison, LazyEssence, compare, essence};
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
    /// Only if it differs from the new one.
    old: Option<Arc<LazyEssence>>,
    /// Built when needed.
    new: Option<Arc<LazyEssence>>,
    /// What was handled last is only in memory: it is to be written again.
    lost: bool,
}

impl EssenceComparison {
    /// Reads them. A last handled essence that cannot be read is none.
    pub(super) fn read(
        object: &Object,
        plan: &ResourceHandlers,
        rules: &OperatorConfig,
        memory: &ObjectMemory,
        log_messages: &mut Vec<LogMessage>,
    ) -> Self {
        match compare(object, &rules.settings.persistence, &plan.extra_fields) {
            Ok(Comparison::Same) => Self::same(None),
            Ok(Comparison::Different { old, new }) => Self::different(old, new),
            Ok(Comparison::Absent) => Self::recalled(object, plan, rules, memory),
            Err(malformed) => {
                log_messages.push(LogMessage::Malformed(malformed));
                Self::recalled(object, plan, rules, memory)
            }
        }
    }

    /// What was handled last is not on the object, or cannot be read; but it may be known nevertheless.
    fn recalled(
        object: &Object,
        plan: &ResourceHandlers,
        rules: &OperatorConfig,
        memory: &ObjectMemory,
    ) -> Self {
        if memory.handled.is_none() {
            return Self::unknown();
        }
        let new = essence(object, &rules.settings.persistence, &plan.extra_fields);
        if !memory.was_handled(object, &new, &rules.settings) {
            return Self::unknown();
        }
        Self { lost: true, ..Self::different(new.clone(), new) }
    }

    /// Takes them as Python has read them.
    pub(super) fn from_stored(old: Option<Value>, new: Value) -> Self {
        match old {
            None => Self { new: Some(LazyEssence::of(new)), ..Self::unknown() },
            Some(old) if equal(&old, &new) => Self::same(Some(LazyEssence::of(new))),
            Some(old) => Self::different(old, new),
        }
    }

    fn same(new: Option<Arc<LazyEssence>>) -> Self {
        Self { known: true, differs: false, diff: Some(Arc::default()), old: None, new, lost: false }
    }

    fn different(old: Value, new: Value) -> Self {
        let diff = Some(diff(Some(&old), Some(&new)).into());
        let (old, new) = (Some(LazyEssence::of(old)), Some(LazyEssence::of(new)));
        Self { known: true, differs: true, diff, old, new, lost: false }
    }

    fn unknown() -> Self {
        Self { known: false, differs: true, diff: None, old: None, new: None, lost: false }
    }

    /// Unequal essences may have no difference that counts: nulls are as good as absent.
    pub(super) fn likeness(&self) -> EssenceChange {
        match &self.diff {
            None => EssenceChange::Unknown,
            Some(diff) if diff.is_empty() => EssenceChange::Same,
            Some(_) => EssenceChange::Different,
        }
    }

    /// Whether what was handled last is to be written again.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether the essence is to be remembered anew.
    pub(super) fn differs(&self) -> bool {
        self.differs
    }

    /// The old one and the new one.
    fn essences(
        &mut self,
        object: &Arc<Object>,
        plan: &Arc<ResourceHandlers>,
        rules: &Arc<OperatorConfig>,
    ) -> (Option<&Arc<LazyEssence>>, &Arc<LazyEssence>) {
        let new = &*self.new.get_or_insert_with(|| {
            let (object, plan, rules) = (Arc::clone(object), Arc::clone(plan), Arc::clone(rules));
            LazyEssence::new(move || essence(&object, &rules.settings.persistence, &plan.extra_fields))
        });
        let old = if self.known && !self.differs { Some(new) } else { self.old.as_ref() };
        (old, new)
    }

    /// The values of one field. If nothing differs, most fields can be read from the object, which spares the essence.
    pub(super) fn field(
        &mut self,
        object: &Arc<Object>,
        plan: &Arc<ResourceHandlers>,
        rules: &Arc<OperatorConfig>,
        path: &FieldPath,
    ) -> OldAndNew<'_> {
        let persistence = &rules.settings.persistence;
        let is_unbuilt = self.new.as_ref().is_none_or(|new| !new.is_built());
        if !self.differs && is_unbuilt && is_kept_as_is(path, persistence) {
            let value = object.field(path).map(Cow::Owned);
            return OldAndNew { old: value.clone(), new: value };
        }
        let (old, new) = self.essences(object, plan, rules);
        let (old, new) = (old.map(|old| old.get()), Some(new.get()));
        let resolved = |value| resolve(value, path.keys()).map(Cow::Borrowed);
        OldAndNew { old: old.and_then(resolved), new: new.and_then(resolved) }
    }

    /// The same as a cause for handlers.
    pub(super) fn change(
        &mut self,
        object: &Arc<Object>,
        plan: &Arc<ResourceHandlers>,
        rules: &Arc<OperatorConfig>,
        reason: Reason,
        initial: bool,
    ) -> Change {
        let (old, new) = self.essences(object, plan, rules);
        let (old, new) = (old.cloned(), Some(Arc::clone(new)));
        // An object that was never handled is created, not resumed.
        let initial = initial && reason != Reason::Create;
        Change::new((reason, initial), old, new, self.diff.clone())
    }
}

/// Whether a field is in the essence exactly as in the object: not in a stanza that is cleaned, and nothing is ignored.
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
        DiffBaseStorage::Foreign => false,
        DiffBaseStorage::Multi { storages } => {
            storages.iter().all(|one| keeps_diffbase_off(one, is_elsewhere))
        }
    }
}

fn keeps_progress_off(storage: &ProgressStorage, is_elsewhere: &dyn Fn(&FieldPath) -> bool) -> bool {
    match storage {
        ProgressStorage::Annotations { .. } => true,
        ProgressStorage::Status { field, .. } => is_elsewhere(field),
        ProgressStorage::Foreign => false,
        ProgressStorage::Multi { storages } => {
            storages.iter().all(|one| keeps_progress_off(one, is_elsewhere))
        }
    }
}
