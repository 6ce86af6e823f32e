//! The warnings about clients that remove or replace Kopf's annotations: once per object, or once per kind if it is another operator.

use super::Cycle;
use crate::activation::log::LogMessage;
use crate::persistence::foreign_write::{ForeignWrite, LocalOperator};
use crate::persistence::pending_state;

impl Cycle {
    pub(super) fn warn_annotations_removed(&mut self) {
        if let Some(write) = self.foreign_write() {
            self.memory.annotations_removed = true;
            self.log_messages.push(LogMessage::AnotherOperator(write));
        } else if !std::mem::replace(&mut self.memory.annotations_removed, true) {
            self.log_messages.push(LogMessage::Stripped(pending_state::last_manager(&self.object)));
        }
    }

    /// The write of another operator that has replaced our progress.
    fn foreign_write(&self) -> Option<ForeignWrite> {
        let (settings, memory) = (&*self.config.settings, &self.memory);
        let pending_state = memory.pending_state.as_ref()?;
        if !memory.recognises_foreign_writes(settings) {
            return None;
        }
        let local = LocalOperator { persistence: &settings.persistence, handlers: &self.resource_handlers };
        local.younger_progress(pending_state.progress(), &self.received)
    }
}
