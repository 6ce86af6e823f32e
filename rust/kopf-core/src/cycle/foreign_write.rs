//! The warnings about Kopf's state that is missing or replaced on the object: once per object, or once per kind if it is another
//! operator. Another client has changed it, or the API server does not store it.

use super::Cycle;
use crate::activation::log::LogMessage;
use crate::persistence::foreign_write::{ForeignWrite, LocalOperator, last_manager};
use crate::persistence::own_annotations::absent_progress;

impl Cycle {
    pub(super) fn warn_annotations_removed(&mut self) {
        if let Some(write) = self.foreign_write() {
            self.memory.annotations_removed = true;
            self.log_messages.push(LogMessage::AnotherOperator(write));
        } else if !std::mem::replace(&mut self.memory.annotations_removed, true) {
            let persistence = &self.config.settings.persistence;
            let is_pruned = self.memory.pending_state.as_ref().is_some_and(|pending| pending.is_pruned());
            let pruned = absent_progress(&self.event.object, persistence).filter(|_| is_pruned);
            let stripped = || LogMessage::Stripped(last_manager(&self.object));
            self.log_messages.push(pruned.map_or_else(stripped, LogMessage::Pruned));
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
        local.younger_progress(pending_state.progress(), &self.event.object)
    }
}
