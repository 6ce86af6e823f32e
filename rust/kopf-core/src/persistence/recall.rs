//! The observed essences of an earlier run, recalled from the progress.

use super::Persistence;
use super::diffbase::observed;
use super::essence::essence;
use super::observed_essences::ObservedEssences;
use super::patched::overlaid;
use super::pending_state::PendingState;
use super::progress::Record;
use crate::handler::registry::ResourceHandlers;
use crate::json::value::Value;
use crate::object::Object;
use std::sync::Arc;

/// Recalls the observed essences from the progress in the unwritten patch: the memory was dropped while its cycle ran.
pub(super) fn recall_unwritten(
    pending_state: &mut PendingState,
    object: &Object,
    persistence: &Persistence,
    handlers: &ResourceHandlers,
) {
    if pending_state.observed == ObservedEssences::default()
        && let Some(written) = overlaid(object, &pending_state.unwritten.patch)
    {
        let fetch = |id: &Arc<str>| persistence.progress_storage.fetch(&written, id).ok().flatten();
        let records: Vec<_> = handlers.owned.iter().filter_map(fetch).collect();
        pending_state.observed =
            observed_by_some(&records, || essence(object, persistence, &handlers.extra_fields));
    }
}

/// The essence of the finished handlers, if others are still to be called; or of the last handlers of the previous
/// handling.
pub(crate) fn observed_by_some(records: &[Record], present: impl FnOnce() -> Value) -> ObservedEssences {
    let mut encoded = records.iter().filter_map(|record| record.observed.as_deref()).peekable();
    let mut observed = ObservedEssences::default();
    if encoded.peek().is_none() {
        return observed;
    }
    let present = present();
    let essences = encoded.filter_map(|text| observed::decode(text, &present));
    essences.for_each(|essence| observed.add(&Arc::new(essence)));
    let is_partly_done =
        records.iter().any(|record| record.success || record.failure || !record.subrefs.is_empty());
    if is_partly_done { observed } else { ObservedEssences { first: None, later: observed.first } }
}
