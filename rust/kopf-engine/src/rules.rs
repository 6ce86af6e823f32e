//! The rules as they are now: settings may be changed while the operator runs.
//!
//! A cycle lives by the rules of its beginning; what is read only once (streams, connections, limits of workers) stays as it was
//! at the start.

use std::sync::{Arc, PoisonError, RwLock};

use kopf_core::cycle::Rules;
use kopf_core::settings::Settings;

/// The rules of one operator, for everybody who must follow their changes.
#[derive(Clone, Debug)]
pub struct CurrentRules(Arc<RwLock<Arc<Rules>>>);

impl CurrentRules {
    /// The rules of the start.
    pub fn new(rules: Arc<Rules>) -> Self {
        Self(Arc::new(RwLock::new(rules)))
    }

    /// The rules of now.
    pub fn get(&self) -> Arc<Rules> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Other settings from now on, for the same handlers.
    pub fn configure(&self, settings: Settings) {
        let mut rules = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *rules = Arc::new(Rules { settings: Arc::new(settings), ..(**rules).clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kopf_core::lifecycle::Lifecycle;
    use kopf_core::registry::Registry;

    #[test]
    fn a_change_is_seen_by_those_who_come_later() {
        let registry = Arc::new(Registry::default());
        let settings = Arc::new(Settings::default());
        let first = Arc::new(Rules { registry, settings, lifecycle: Lifecycle::Asap });
        let current = CurrentRules::new(first);
        let (before, follower) = (current.get(), current.clone());
        let mut settings = Settings::default();
        settings.execution.default_backoff = 5.0;
        current.configure(settings);
        assert_eq!(before.settings.execution.default_backoff.to_string(), "60");
        assert_eq!(follower.get().settings.execution.default_backoff.to_string(), "5");
        assert!(Arc::ptr_eq(&follower.get().registry, &before.registry));
    }
}
