//! The memory of caches: compression of objects that are not read, and warnings about large caches (2.6).

use std::sync::Arc;

use kopf_core::log_level::Level;

use super::{Cache, Caches, LOGGER};
use crate::host::LogRecord;

/// The number of objects that are compressed before other tasks continue.
const BATCH: usize = 256;
/// The number of objects whose stanzas are measured for a warning.
const SAMPLE: usize = 200;
/// The number of caches, and of stanzas of each, that a warning names.
const NAMED: usize = 3;

/// The sizes about which there were warnings.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    /// The size from which on there is the next warning; zero before the first one.
    next: u64,
}

impl Cache {
    /// Compresses the objects that were not read for a while.
    pub(super) async fn compress_resting(&self) {
        loop {
            let now = self.base.clock.now();
            let resting = self.state().store.resting(self.declared.rest, BATCH, now);
            let is_last = resting.len() < BATCH;
            for object in resting {
                let compressed = object.to_compressed().map(Arc::new);
                self.state().store.put_to_rest(&object, compressed);
            }
            if is_last {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Caches {
    /// Logs a warning when the caches exceed the limit, and at each doubling.
    pub(super) fn warn_about_memory(&self, warnings: &mut Warnings) {
        let mut sizes: Vec<(usize, &Arc<Cache>)> =
            self.by_index.values().map(|cache| (cache.memory_size(), cache)).collect();
        let total = sizes.iter().map(|(size, _)| *size as u64).sum::<u64>();
        let limit = self.by_index.values().map(|cache| cache.declared.warn_above).min().unwrap_or(u64::MAX);
        if limit == 0 || total < limit.max(warnings.next) {
            return;
        }
        warnings.next = limit;
        while warnings.next <= total {
            warnings.next = warnings.next.saturating_mul(2);
        }
        sizes.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        let largest: Vec<String> =
            sizes.iter().take(NAMED).map(|(size, cache)| cache.described(*size)).collect();
        let text = format!(
            "The caches take {} of memory: {}. Drop stanzas with drop=..., or cache only the metadata with \
             metadata_only=True.",
            in_units(total),
            largest.join("; ")
        );
        self.base.host.log(LogRecord::general(Level::Warning, LOGGER, text));
    }
}

impl Cache {
    fn described(&self, size: usize) -> String {
        let stanzas = self.state().store.largest_stanzas(SAMPLE);
        let stanzas: Vec<_> = stanzas.into_iter().take(NAMED).map(|(stanza, _)| stanza).collect();
        format!("{:?} has {}, mostly in {}", self.id(), in_units(size as u64), stanzas.join(", "))
    }
}

/// The size in binary units.
fn in_units(size: u64) -> String {
    let (kib, mib) = (1 << 10, 1 << 20);
    if size >= mib { format!("{} MiB", size / mib) } else { format!("{} KiB", size / kib) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_binary_units() {
        assert_eq!([in_units(2048), in_units(268_435_456)], ["2 KiB", "256 MiB"]);
    }
}
