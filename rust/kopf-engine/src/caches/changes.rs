//! The changes of a cache for one consumer (K8).

use std::sync::Arc;

use kopf_core::caches::CacheChange;
use tokio_util::sync::CancellationToken;

use super::Cache;

/// The number of states that a consumer takes at a time.
const BATCH: usize = 256;

/// The changes of a cache for one consumer. They begin when the cache is ready. Dropping this ends them.
pub struct CacheChanges {
    cache: Arc<Cache>,
    /// The number of the queue in the store.
    number: u64,
    is_silent: bool,
    closing: CancellationToken,
}

impl CacheChanges {
    /// The changes of the cache: with `is_silent`, without the objects that are present already. `closing` ends them.
    pub fn new(cache: &Arc<Cache>, is_silent: bool, closing: CancellationToken) -> Self {
        let number = cache.with_state(|state, _| {
            state.last_number += 1;
            let number = state.last_number;
            // Before that, the objects of the first list are still arriving.
            if state.is_open() {
                state.store.subscribe(number, is_silent);
            }
            number
        });
        Self { cache: Arc::clone(cache), number, is_silent, closing }
    }

    /// Waits until there are changes, or until the operator has ended.
    pub fn ready_owned(&self) -> impl Future<Output = ()> + Send + 'static {
        let (cache, number, is_silent) = (Arc::clone(&self.cache), self.number, self.is_silent);
        let closing = self.closing.clone();
        async move {
            loop {
                // Created first: later notifications are not lost.
                let notified = cache.changed.notified();
                // Not `with_state`: that notifies all consumers while one of them has changes.
                let has_changes = {
                    let mut state = cache.state();
                    if state.is_open() && state.store.queue(number).is_none() {
                        state.store.subscribe(number, is_silent);
                    }
                    state.store.queue(number).is_some_and(|queue| !queue.is_empty())
                };
                if has_changes {
                    return;
                }
                tokio::select! {
                    () = notified => {}
                    () = closing.cancelled() => return,
                }
            }
        }
    }

    /// Takes the changes that are ready; none if the operator has ended.
    pub fn take(&self) -> Option<Vec<CacheChange>> {
        let changes = self.cache.state().store.queue(self.number).map(|queue| queue.take(BATCH));
        let changes = changes.unwrap_or_default();
        (!changes.is_empty() || !self.closing.is_cancelled()).then_some(changes)
    }
}

impl Drop for CacheChanges {
    fn drop(&mut self) {
        self.cache.state().store.unsubscribe(self.number);
    }
}
