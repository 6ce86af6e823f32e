//! The current configuration: settings may change while the operator runs.
//!
//! A cycle uses the configuration of its start. Settings that are read only once (those of feeds, connections, worker
//! limits) keep the values of the operator's start.

use std::sync::Arc;

use arc_swap::ArcSwap;
use kopf_core::cycle::OperatorConfig;
use kopf_core::settings::Settings;

/// The current handlers and settings; the settings may change while the operator runs.
#[derive(Clone, Debug)]
pub struct LiveConfig(Arc<ArcSwap<OperatorConfig>>);

impl LiveConfig {
    /// The configuration of the operator's start.
    pub fn new(config: Arc<OperatorConfig>) -> Self {
        Self(Arc::new(ArcSwap::new(config)))
    }

    /// The current configuration. Readers never wait.
    pub fn get(&self) -> Arc<OperatorConfig> {
        self.0.load_full()
    }

    /// Replaces the settings; the handlers stay.
    pub fn configure(&self, settings: Settings) {
        let settings = Arc::new(settings);
        self.0.rcu(|config| OperatorConfig { settings: Arc::clone(&settings), ..(**config).clone() });
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
