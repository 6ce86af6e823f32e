//! The current configuration: settings may change while the operator runs.
//!
//! A cycle uses the configuration of its start. Settings that are read only once (those of feeds, connections, worker
//! limits) keep the values of the operator's start.

use std::sync::{Arc, PoisonError, RwLock};

use kopf_core::cycle::OperatorConfig;
use kopf_core::settings::Settings;

/// The current handlers and settings; the settings may change while the operator runs.
#[derive(Clone, Debug)]
pub struct LiveConfig(Arc<RwLock<Arc<OperatorConfig>>>);

impl LiveConfig {
    /// The configuration of the operator's start.
    pub fn new(rules: Arc<OperatorConfig>) -> Self {
        Self(Arc::new(RwLock::new(rules)))
    }

    /// The current configuration.
    pub fn get(&self) -> Arc<OperatorConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the settings; the handlers stay.
    pub fn configure(&self, settings: Settings) {
        let mut rules = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *rules = Arc::new(OperatorConfig { settings: Arc::new(settings), ..(**rules).clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kopf_core::handler::lifecycle::Lifecycle;
    use kopf_core::handler::registry::Registry;

    #[test]
    fn changed_settings_apply_to_later_reads() {
        let registry = Arc::new(Registry::default());
        let settings = Arc::new(Settings::default());
        let first = Arc::new(OperatorConfig { registry, settings, lifecycle: Lifecycle::Asap });
        let current = LiveConfig::new(first);
        let (before, follower) = (current.get(), current.clone());
        let mut settings = Settings::default();
        settings.execution.default_backoff = 5.0;
        current.configure(settings);
        assert_eq!(before.settings.execution.default_backoff.to_string(), "60");
        assert_eq!(follower.get().settings.execution.default_backoff.to_string(), "5");
        assert!(Arc::ptr_eq(&follower.get().registry, &before.registry));
    }
}
