//! The final progress of a completed handling: the records with the last outcomes of its handlers. If another request writes
//! the diff-base, the final progress is written before it. Another record stays after the diff-base is written: the one with
//! the essence that only the last handlers observed.

use super::{Cycle, Decision};
use crate::handling::progress::HandlingProgress;
use crate::json::merge_patch::{Patch, subtract};
use crate::persistence::diffbase::observed;
use crate::persistence::progress::Record;
use crate::persistence::{completed_handling, own_annotations, patched};
use std::sync::Arc;

impl Cycle {
    /// Stores the latest observed essence in an otherwise empty progress record. Returns both.
    pub(super) fn store_observed(
        &mut self,
        state: &HandlingProgress,
        patch: &mut Patch,
    ) -> Option<(Arc<str>, String)> {
        let later =
            self.predicted(patch).later.as_deref().map(|later| observed::encode(&self.object, later))?;
        // The other record with an observed essence may be needed until the diff-base is written.
        let finished = state.entries.iter().filter(|entry| entry.is_finished());
        let entry = finished.min_by_key(|entry| entry.record.observed.is_some())?;
        let record = Record { observed: Some(later.clone()), ..Record::default() };
        self.store_record(patch, &entry.id, &record);
        Some((Arc::clone(&entry.id), later))
    }

    /// Puts the final progress into the decision, for a request before the one with the diff-base. If the operator crashes
    /// between these requests, the next run recognizes the progress as completed by the new diff-base in it.
    pub(super) fn store_final_progress(
        &mut self,
        state: &HandlingProgress,
        later: Option<&(Arc<str>, String)>,
        decision: &mut Decision,
    ) {
        if !completed_handling::is_kept_apart(&self.config.settings, &self.resource_handlers) {
            return;
        }
        let storage = &self.config.settings.persistence.diffbase_storage;
        let handled = patched::overlaid(&self.object, &decision.patch.0);
        let Some(Ok(Some(base))) = handled.map(|handled| storage.fetch(&handled)) else { return };
        let entries: Vec<_> = state.entries.iter().filter(|entry| !entry.obsolete).collect();
        let is_base = |observed: &String| completed_handling::is_essence(observed, &base);
        let mut stored: Vec<Option<String>> = entries
            .iter()
            .map(|entry| match later {
                Some((id, later)) if *id == entry.id => Some(later.clone()),
                _ => entry.record.observed.clone().filter(is_base),
            })
            .collect();
        // A record with only an observed essence does not identify this handling.
        let is_of_handling = |position: usize| entries[position].record.purpose.is_some();
        let is_mark = |(position, observed): (usize, &Option<String>)| {
            is_of_handling(position) && observed.as_ref().is_some_and(is_base)
        };
        let is_marked = stored.iter().enumerate().any(is_mark);
        let is_free = |position: &usize| is_of_handling(*position) && stored[*position].is_none();
        // Preferably in a record that is removed anyway.
        let mut free: Vec<_> = (0..entries.len()).filter(is_free).collect();
        free.sort_by_key(|position| !entries[*position].is_persisted());
        let free = free.first().filter(|first| later.is_some() || entries[**first].is_persisted());
        let added = free.filter(|_| !is_marked).map(|position| {
            stored[*position] = Some(observed::encode(&self.object, &base));
            Arc::clone(&entries[*position].id)
        });
        let storage = &self.config.settings.persistence.progress_storage;
        let (mut final_progress, mut has_new_mark) = (Patch::default(), false);
        for (entry, observed) in entries.into_iter().zip(stored) {
            let present = storage.fetch(&self.event.object, &entry.id).ok().flatten();
            let is_new = observed.is_some()
                && present.as_ref().and_then(|it| it.observed.as_ref()) != observed.as_ref();
            has_new_mark |= is_new;
            let record = Record { observed, ..entry.record.clone() };
            if storage.writes_fields() {
                if present.as_ref() != Some(&record) {
                    storage.store(&self.object, &mut final_progress, &entry.id, &record);
                }
            } else if is_new {
                // Outcomes in annotations would be written before the results in the status.
                let Record { started, purpose, observed, .. } = record;
                let record = Record { started, purpose, observed, ..present.unwrap_or_default() };
                storage.store(&self.object, &mut final_progress, &entry.id, &record);
            }
        }
        // Outcomes without results are written with the next request.
        if has_new_mark || self.has_results(&decision.patch) {
            decision.final_progress = final_progress;
        }
        // The record is removed in spite of not being on the object yet.
        if let Some(id) = added.filter(|_| !decision.final_progress.is_empty())
            && let Some(written) = patched::overlaid(&self.object, &decision.final_progress.0)
        {
            self.config.settings.persistence.progress_storage.purge(&written, &mut decision.patch, &id);
        }
    }
    /// Whether handlers have results in the status.
    fn has_results(&self, patch: &Patch) -> bool {
        let mut whole = Patch(self.missing_patch.clone());
        whole.merge(patch.0.clone());
        let own = own_annotations::own_annotations(&self.object, &whole.0, &self.config.settings.persistence);
        subtract(whole.0, &own).contains_key("status")
    }
}
