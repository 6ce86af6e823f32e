//! The progress of a completed handling that is still on the object.
//!
//! If the progress and the diff-base are written by different requests, the progress is removed after the diff-base is
//! written, and the operator can crash in between. Such progress is recognized by its observed essence: after a completed
//! handling, it equals the diff-base; during a handling, it does not. All records of a handling have the same purpose.

use crate::handler::registry::ResourceHandlers;
use crate::json::merge_patch::Patch;
use crate::json::value::{Value, equal};
use crate::object::Object;
use crate::persistence::diffbase::observed::recalled;
use crate::persistence::pending_state::is_kept;
use crate::persistence::progress::Record;
use crate::persistence::{Persistence, PersistenceConfig};

/// The progress of a completed handling that is still on the object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompletedHandling {
    /// The purpose of all its records.
    purpose: Option<String>,
    /// The handler ids and their records.
    records: Vec<(String, Record)>,
    /// The essence that only the last handlers observed, as stored; with the handler id of its record.
    later: Option<(String, String)>,
}

impl CompletedHandling {
    /// Finds such progress on the object.
    pub(crate) fn find<'s>(
        object: &Object,
        settings: impl Into<PersistenceConfig<'s>>,
        handlers: &ResourceHandlers,
    ) -> Option<Self> {
        let settings = settings.into();
        if !is_kept_apart(settings, handlers) {
            return None;
        }
        let Persistence { progress_storage, diffbase_storage, .. } = settings.persistence;
        let fetch = |id: &str| Some((id.to_owned(), progress_storage.fetch(object, id).ok().flatten()?));
        let mut records: Vec<_> = handlers.owned.iter().filter_map(|id| fetch(id)).collect();
        if records.iter().all(|(_, record)| record.seen.is_none()) {
            return None;
        }
        let base = diffbase_storage.fetch(object).ok().flatten()?;
        let is_base = |seen: &String| is_essence(seen, &base);
        let marked = records.iter().find(|(_, record)| record.seen.as_ref().is_some_and(is_base))?;
        let purpose = marked.1.purpose.clone();
        records.retain(|(_, record)| record.purpose == purpose);
        let mut others = records.iter().filter_map(|(id, record)| Some((id, record.seen.as_ref()?)));
        let later = others.find(|(_, seen)| !is_base(seen)).map(|(id, seen)| (id.clone(), seen.clone()));
        Some(Self { purpose, records, later })
    }

    /// Whether a record belongs to the completed handling. The next one may have written records by now.
    pub(crate) fn contains(&self, record: &Record) -> bool {
        record.purpose == self.purpose
    }

    /// The essence that only the last handlers observed.
    pub(crate) fn later(&self, present: impl FnOnce() -> Value) -> Option<Value> {
        let (_, seen) = self.later.as_ref()?;
        recalled(seen, &present())
    }

    /// The patch that removes the progress, except for the essence that only the last handlers observed.
    pub(crate) fn removal(&self, object: &Object, persistence: &Persistence) -> Patch {
        let (mut patch, storage) = (Patch::default(), &persistence.progress_storage);
        for (id, record) in &self.records {
            storage.purge(object, &mut patch, id);
            for subref in &record.subrefs {
                storage.purge(object, &mut patch, subref);
            }
        }
        if let Some((id, seen)) = &self.later {
            let record = Record { seen: Some(seen.clone()), ..Record::default() };
            storage.store(object, &mut patch, id, &record);
        }
        patch
    }
}

/// Whether an observed essence in its stored form is this essence.
pub(crate) fn is_essence(seen: &str, essence: &Value) -> bool {
    recalled(seen, essence).is_some_and(|seen| equal(&seen, essence))
}

/// Whether the progress and the diff-base are written by different requests: one in the status, the other in annotations.
pub(crate) fn is_kept_apart<'s>(
    settings: impl Into<PersistenceConfig<'s>>,
    handlers: &ResourceHandlers,
) -> bool {
    let settings = settings.into();
    let Persistence { progress_storage, diffbase_storage, .. } = settings.persistence;
    is_kept(settings)
        && handlers.resource.has_subresource("status")
        && progress_storage.writes_fields() == diffbase_storage.own_fields().is_empty()
}
