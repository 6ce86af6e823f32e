//! The handling cycles of primaries: they decide about the operator's finalizer.

use std::sync::Arc;

use kopf_core::handler::filters::{self, FilterVerdict};
use kopf_core::handler::registry::ResourceHandlers;
use kopf_core::handler::{Handler, Kind};
use kopf_core::object::Object;

use crate::daemons::ObjectOwner;
use crate::live_config::LiveConfig;

/// The handling cycles of the objects of one feed.
pub(super) struct Cycles {
    /// Decides about the operator's finalizer.
    pub(super) owner: Arc<dyn ObjectOwner>,
    config: LiveConfig,
    /// The change handlers that require the finalizer: those of deletions, unless they are optional.
    finalizing: Vec<usize>,
}

impl Cycles {
    /// The cycles of the objects of the resource.
    pub(super) fn new(owner: Arc<dyn ObjectOwner>, plan: &ResourceHandlers, config: &LiveConfig) -> Self {
        let handlers = &config.get().registry.handlers;
        let requires = |index: &usize| handlers.get(*index).is_some_and(requires_finalizer);
        let finalizing = plan.changing.iter().copied().filter(requires).collect();
        Self { owner, config: config.clone(), finalizing }
    }

    /// Whether the next cycle of the object adds the operator's finalizer for a deletion handler.
    ///
    /// Handlers whose filters are functions do not count: only their cycle evaluates these.
    pub(super) fn adds_finalizer(&self, object: &Object) -> bool {
        if self.finalizing.is_empty() {
            return false;
        }
        let config = self.config.get();
        let matches = |index: &usize| {
            let handler = config.registry.handlers.get(*index);
            handler.is_some_and(|handler| filters::on_object(handler, object) == FilterVerdict::Yes)
        };
        !object.has_finalizer(&config.settings.persistence.finalizer)
            && object.deletion_timestamp().is_none()
            && self.finalizing.iter().any(matches)
    }
}

fn requires_finalizer(handler: &Handler) -> bool {
    matches!(&handler.kind, Kind::Changing(changing) if changing.requires_finalizer)
}
