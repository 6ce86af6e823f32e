//! The progress of a completed handling that is still on the object.
//!
//! If the progress and the diff-base are written by different requests, the progress is removed after the diff-base is
//! written, and the operator can crash in between. Such progress is recognized by its observed essence: after a completed
//! handling, it equals the diff-base; during a handling, it does not. All records of a handling have the same purpose.

use crate::handler::registry::ResourceHandlers;
use crate::json::merge_patch::Patch;
use crate::json::value::{Value, equal};
use crate::object::Object;
use crate::persistence::diffbase::observed;
use crate::persistence::progress::Record;
use crate::persistence::{Persistence, PersistenceConfig, keeps_pending_state};

/// The progress of a completed handling that is still on the object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompletedHandling {
    /// The purpose of its records.
    purpose: Option<String>,
    /// The handler ids and their records; also those with only an observed essence that is the diff-base.
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
        if records.iter().all(|(_, record)| record.observed.is_none()) {
            return None;
        }
        let base = diffbase_storage.fetch(object).ok().flatten()?;
        let is_base = |observed: &String| is_essence(observed, &base);
        // A record with only an observed essence does not identify the handling, unless it is the only one.
        let marked = records.iter().filter(|(_, record)| record.observed.as_ref().is_some_and(is_base));
        let marked = marked.max_by_key(|(_, record)| record.purpose.is_some())?;
        let purpose = marked.1.purpose.clone();
        // An essence observed before this handling is obsolete if it is the diff-base.
        let is_over =
            |record: &Record| record.purpose.is_none() && record.observed.as_ref().is_some_and(is_base);
        records.retain(|(_, record)| record.purpose == purpose || is_over(record));
        let mut others = records.iter().filter_map(|(id, record)| Some((id, record.observed.as_ref()?)));
        let later = others
            .find(|(_, observed)| !is_base(observed))
            .map(|(id, observed)| (id.clone(), observed.clone()));
        Some(Self { purpose, records, later })
    }

    /// Whether a record belongs to the completed handling. The next one may have written records by now.
    pub(crate) fn contains(&self, record: &Record) -> bool {
        record.purpose == self.purpose || self.records.iter().any(|(_, known)| known == record)
    }

    /// The essence that only the last handlers observed.
    pub(crate) fn later(&self, present: impl FnOnce() -> Value) -> Option<Value> {
        let (_, observed) = self.later.as_ref()?;
        observed::decode(observed, &present())
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
        if let Some((id, observed)) = &self.later {
            let record = Record { observed: Some(observed.clone()), ..Record::default() };
            storage.store(object, &mut patch, id, &record);
        }
        patch
    }
}

/// Whether an observed essence in its stored form is this essence.
pub(crate) fn is_essence(observed: &str, essence: &Value) -> bool {
    observed::decode(observed, essence).is_some_and(|observed| equal(&observed, essence))
}

/// Whether the progress and the diff-base are written by different requests: one in the status, the other in annotations.
pub(crate) fn is_kept_apart<'s>(
    settings: impl Into<PersistenceConfig<'s>>,
    handlers: &ResourceHandlers,
) -> bool {
    let settings = settings.into();
    let Persistence { progress_storage, diffbase_storage, .. } = settings.persistence;
    keeps_pending_state(settings)
        && handlers.resource.has_subresource("status")
        && progress_storage.writes_fields() == diffbase_storage.own_fields().is_empty()
}
