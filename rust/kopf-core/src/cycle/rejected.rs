//! The patch that the API server rejected before. It is sent in a separate request: when its delay is over, or when something
//! else is written.

use super::decision::earliest;
use super::{Cycle, Decision};
use crate::json::merge_patch::{Patch, subtract};
use crate::persistence::own_annotations::own_annotations;

impl Cycle {
    pub(super) fn send_rejected(&mut self, decision: &mut Decision) {
        let Some((mut patch, due)) = self.rejected_patch.take().map(|rejected| *rejected) else { return };
        if self.memory.pending_state.as_deref().is_some_and(|pending| pending.is_superseded(&self.called)) {
            patch.0 = own_annotations(&self.object, &patch.0, &self.config.settings.persistence);
        }
        let left = due.seconds_since(self.moment.now);
        if left > 0.0 && !decision.is_written() {
            decision.delay = earliest(decision.delay, Some(left).filter(|_| !patch.is_empty()));
        } else {
            let patch = Patch(subtract(patch.0, &decision.patch.0));
            decision.rejected_patch = (!patch.is_empty()).then(|| Box::new(patch));
        }
    }
}
