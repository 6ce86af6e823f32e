//! The final progress of a completed handling: its outcomes, which are written before the diff-base if they are written by
//! another request; and the essence that only the last handlers observed, which remains after it.

use super::{Cycle, Decision};
use crate::handling::progress::HandlingProgress;
use crate::json::merge_patch::Patch;
use crate::persistence::diffbase::observed;
use crate::persistence::progress::Record;
use crate::persistence::{completed_handling, pending_state};
use std::sync::Arc;

impl Cycle {
    /// Stores the latest observed essence in an otherwise empty progress record. Returns both.
    pub(super) fn store_observed(
        &mut self,
        state: &HandlingProgress,
        patch: &mut Patch,
    ) -> Option<(Arc<str>, String)> {
        let later = self.foreseen(patch).later.as_deref().map(|later| observed::seen(&self.object, later))?;
        // The other record with an observed essence may be needed until the diff-base is written.
        let finished = state.entries.iter().filter(|entry| entry.is_finished());
        let entry = finished.min_by_key(|entry| entry.record.seen.is_some())?;
        let record = Record { seen: Some(later.clone()), ..Record::default() };
        self.store_record(patch, &entry.id, &record);
        Some((Arc::clone(&entry.id), later))
    }

    /// Puts the final progress into the decision, for a request before the one with the diff-base. If the operator crashes
    /// between these requests, the next run recognizes the progress as completed by the new diff-base in it.
    pub(super) fn store_outcomes(
        &mut self,
        state: &HandlingProgress,
        later: Option<&(Arc<str>, String)>,
        decision: &mut Decision,
    ) {
        if !completed_handling::is_kept_apart(&self.config.settings, &self.plan) {
            return;
        }
        let storage = &self.config.settings.persistence.diffbase_storage;
        let handled = pending_state::overlaid(&self.object, &decision.patch.0);
        let Some(Ok(Some(base))) = handled.map(|handled| storage.fetch(&handled)) else { return };
        let entries: Vec<_> = state.entries.iter().filter(|entry| !entry.obsolete).collect();
        let is_base = |seen: &String| completed_handling::is_essence(seen, &base);
        let mut stored: Vec<Option<String>> = entries
            .iter()
            .map(|entry| match later {
                Some((id, later)) if *id == entry.id => Some(later.clone()),
                _ => entry.record.seen.clone().filter(is_base),
            })
            .collect();
        let is_marked = stored.iter().flatten().any(is_base);
        // Only progress on the object is removed.
        let is_free = |(position, _): &(usize, &mut Option<String>)| entries[*position].is_persisted();
        let mut free = stored.iter_mut().enumerate().filter(|(_, seen)| seen.is_none()).filter(is_free);
        if !is_marked && let Some((_, seen)) = free.next() {
            *seen = Some(observed::seen(&self.object, &base));
        }
        let is_in_status = self.config.settings.persistence.progress_storage.writes_fields();
        for (entry, seen) in entries.into_iter().zip(stored) {
            let is_marked = seen != entry.record.seen;
            // Outcomes in annotations would be written before the results in the status.
            if is_in_status && (is_marked || entry.is_changed()) {
                let record = Record { seen, ..entry.record.clone() };
                self.store_record(&mut decision.outcomes, &entry.id, &record);
            } else if !is_in_status && is_marked && seen.is_some() {
                let record = Record { seen, ..entry.before() };
                self.store_record(&mut decision.outcomes, &entry.id, &record);
            }
        }
    }
}
