//! The metrics of caches, in the Prometheus text format (2.6).

use super::{Cache, Caches};
use crate::metrics_text::{add_family, add_sample};

impl Caches {
    /// The metrics of all caches.
    pub fn to_metrics(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, help: &str, value: &dyn Fn(&Cache) -> String| {
            add_family(&mut text, name, "gauge", help);
            for cache in self.by_index.values() {
                add_sample(&mut text, name, &[("id", cache.id())], value(cache));
            }
        };
        family("kopf_cache_objects", "How many objects a cache has.", &|cache| {
            cache.state().store.len().to_string()
        });
        family("kopf_cache_bytes", "The memory of the objects of a cache.", &|cache| {
            cache.memory_size().to_string()
        });
        let help = "For how many seconds the watch of a cache has been failing.";
        family("kopf_cache_stale_seconds", help, &|cache| cache.stale_for().to_string());
        text
    }

    /// Reports of the caches that are not filled, without optional ones.
    pub fn missing(&self) -> Vec<String> {
        self.by_index
            .values()
            .filter(|cache| !cache.is_optional())
            .filter_map(|cache| cache.missing())
            .collect()
    }
}
