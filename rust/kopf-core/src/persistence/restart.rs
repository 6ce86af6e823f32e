//! The restart of a handling whose change was reverted.
//!
//! Some handlers were called with an essence, and then the object reverted to the diff-base. The observed essence becomes the
//! diff-base, so that the reversal is a separate change. The present essence, which the other handlers observed last, is stored
//! in a record, in case the object changes again.

use super::completed_handling::is_kept_apart;
use super::diffbase::observed;
use super::essence::{Comparison, KnownComparison, compare, essence};
use super::observed_essences::ObservedEssences;
use super::patched::overlaid;
use super::pending_state::PendingState;
use super::progress::Record;
use super::stored_state::stale_progress;
use super::{Persistence, PersistenceConfig};
use crate::handler::registry::ResourceHandlers;
use crate::json::merge_patch::Patch;
use crate::json::value::{Map, Value, equal};
use crate::object::Object;
use std::sync::Arc;

/// The restart of a handling.
#[derive(Clone, Debug)]
pub(super) struct Restart {
    /// The new diff-base, and the removal of the progress, except for the present essence.
    pub(super) patch: Patch,
    /// The final progress of the ended handling: see [`merge_requests`](super::merge_requests::merge_requests). After the
    /// diff-base is written, its records are recognised as completed, and contain the present essence.
    pub(super) final_progress: Map<String, Value>,
    /// The essences that handlers were called with until then.
    pub(super) observed: ObservedEssences,
}

impl PendingState {
    /// The restart of the handling; `None` if the object has not reverted, or no handler was called with another essence.
    /// The second object is the first one with the pending state overlaid. The stored essences are those after `written`.
    /// `known` becomes the comparison of the second object, if it is made.
    pub(super) fn restart(
        &self,
        (object, amended): (&Object, &Object),
        written: &Patch,
        settings: PersistenceConfig<'_>,
        handlers: &ResourceHandlers,
        known: &mut KnownComparison,
    ) -> Option<Restart> {
        let persistence = settings.persistence;
        if self.observed == ObservedEssences::default() || amended.deletion_timestamp().is_some() {
            return None;
        }
        if *known.insert(compare(amended, persistence, &handlers.extra_fields)) != Ok(Comparison::Same) {
            return None;
        }
        let present = essence(amended, persistence, &handlers.extra_fields);
        let mut observed = self.observed.first.iter().chain(&self.observed.later);
        let reverted_from = observed.find(|essence| !equal(essence, &present))?;
        let stored = ObservedEssences {
            first: Some(Arc::clone(reverted_from)),
            later: Some(Arc::new(present.clone())),
        };
        // Our changes in the same request are no changes for the handlers.
        let stored = stored.predicted(object, written, persistence, handlers);
        let (base, stored_present) = (stored.first?, stored.later?);
        let records = self.marked_records(object, (&base, &stored_present), persistence, handlers);
        let mut patch = stale_progress(amended, persistence, handlers);
        let text = observed::encode(amended, &stored_present);
        let marked = records.iter().find(|(_, record)| record.observed.as_ref() == Some(&text));
        if let Some(id) = marked.map(|(id, _)| id).or(handlers.owned.first()) {
            let record = Record { observed: Some(text), ..Record::default() };
            persistence.progress_storage.store(amended, &mut patch, id, &record);
        }
        persistence.diffbase_storage.store(amended, &mut patch, &base);
        let mut final_progress = Patch::default();
        for (id, record) in records.iter().filter(|_| is_kept_apart(settings, handlers)) {
            if persistence.progress_storage.fetch(object, id).ok().flatten().as_ref() != Some(record) {
                persistence.progress_storage.store(object, &mut final_progress, id, record);
            }
        }
        let observed = ObservedEssences { first: None, later: Some(Arc::new(present)) };
        Some(Restart { patch, final_progress: final_progress.0, observed })
    }

    /// The records of the ended handling, with these essences as the only observed ones. The first of them is preferably in a
    /// record that identifies the handling, the other one in a record that does not.
    fn marked_records(
        &self,
        object: &Object,
        (reverted_from, present): (&Value, &Value),
        persistence: &Persistence,
        handlers: &ResourceHandlers,
    ) -> Vec<(Arc<str>, Record)> {
        let known = overlaid(object, &self.unwritten.final_progress);
        let known = known.as_deref().unwrap_or(object);
        let record = |id: &Arc<str>| {
            let record = persistence.progress_storage.fetch(known, id).ok().flatten();
            (Arc::clone(id), record)
        };
        let mut records: Vec<_> = handlers.owned.iter().map(record).collect();
        let texts = [reverted_from, present].map(|essence| observed::encode(object, essence));
        let is_of_handling =
            |record: &Option<Record>| record.as_ref().is_some_and(|record| record.purpose.is_some());
        let has = |record: &Option<Record>, text: &String| {
            record.as_ref().is_some_and(|record| record.observed.as_ref() == Some(text))
        };
        let [from_text, present_text] = texts;
        let positions = 0..records.len();
        let from =
            positions.clone().filter(|position| records[*position].1.is_some()).max_by_key(|position| {
                let record = &records[*position].1;
                (is_of_handling(record), has(record, &from_text))
            });
        let to = positions.filter(|position| Some(*position) != from).max_by_key(|position| {
            let record = &records[*position].1;
            (!is_of_handling(record), has(record, &present_text), record.is_some())
        });
        for (_, record) in &mut records {
            if let Some(record) = record {
                record.observed = None;
            }
        }
        for (position, text) in [(from, from_text), (to, present_text)] {
            if let Some((_, record)) = position.and_then(|position| records.get_mut(position)) {
                record.get_or_insert_default().observed = Some(text);
            }
        }
        records.into_iter().filter_map(|(id, record)| Some((id, record?))).collect()
    }
}
