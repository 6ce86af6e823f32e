//! The missing permissions that were already logged.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use kopf_core::log_level::Level;
use kopf_core::resource::Resource;

/// The resources for which a missing permission was already logged.
#[derive(Default)]
pub struct Denials(Mutex<HashSet<String>>);

impl Denials {
    /// The level of the log line about a missing permission: a warning once per resource, then debug.
    pub fn level(&self, resource: &Resource) -> Level {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = known.insert(format!("{}.{}", resource.plural, resource.group));
        if is_new { Level::Warning } else { Level::Debug }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_is_a_warning_once_for_each_resource() {
        let (things, others) =
            ["things", "others"].map(|plural| crate::testing::resource("example.com", plural, true)).into();
        let denials = Denials::default();
        let levels = [&things, &things, &others, &things].map(|resource| denials.level(resource));
        assert_eq!(levels, [Level::Warning, Level::Debug, Level::Warning, Level::Debug]);
    }
}
