//! The warning about another operator that handles the same objects.

use std::sync::Arc;

use kopf_core::activation::log::LogMessage;
use kopf_core::object::Object;
use kopf_core::persistence::foreign_write::ForeignWrite;

use super::Dispatcher;
use crate::host::LogRecord;

impl Dispatcher {
    /// Logs that another operator handles the object, too: once per resource.
    pub(crate) fn report_other_operator(&self, object: &Arc<Object>, write: ForeignWrite) {
        let base = &self.shared.base;
        // An object that moves to another shard is still handled by the operator of the previous one.
        let is_sharded = !base.startup_config.settings.watching.shard_selectors.is_empty();
        if is_sharded || !base.other_operators.report(&self.resource_handlers.resource) {
            return;
        }
        let message = LogMessage::AnotherOperator(write);
        base.host.log(LogRecord::local(message.level(), object, message.text(object)));
    }
}
