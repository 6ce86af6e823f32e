//! The task that looks up objects that a watch with a derived selector does not deliver any more.

use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kopf_core::log_level::Level;
use kopf_core::object_worker::SelectorMatch;
use kopf_core::stream::delay_after;
use tokio::sync::Notify;

use crate::error::RequestError;
use crate::host::{LogRecord, Logger};
use crate::object_key::key_of;
use crate::objects::dispatcher::Dispatcher;
use crate::time::duration::seconds;
use crate::watch::Stream;

const LOGGER: Logger = Logger::Watching;
/// Maximum number of concurrent lookups.
const MAX_CONCURRENT_LOOKUPS: usize = 8;

/// The task that looks up objects that were deselected.
#[derive(Clone)]
pub(super) struct DeselectedLookup<'a> {
    pub(super) stream: &'a Stream,
    pub(super) dispatcher: Arc<Dispatcher>,
    lookup_requested: Arc<Notify>,
    pub(super) listed: Arc<Notify>,
}

impl<'a> DeselectedLookup<'a> {
    /// The task for this stream; none if its selector is not derived.
    pub(super) fn new(stream: &'a Stream, dispatcher: &Arc<Dispatcher>) -> Option<Self> {
        let slots = dispatcher.slots();
        let tracker = slots.tracker.as_ref()?;
        let (lookup_requested, listed) = (Arc::clone(&tracker.lookup_requested), Arc::clone(&tracker.listed));
        Some(Self { stream, dispatcher: Arc::clone(dispatcher), lookup_requested, listed })
    }

    pub(super) async fn run(self) -> Result<Infallible, RequestError> {
        // Until the gate opens, no object is handled.
        if let Some(index_gate) = &self.dispatcher.shared.index_gate {
            index_gate.opened().await;
        }
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < MAX_CONCURRENT_LOOKUPS
                && let Some(next) = self.next()
            {
                running.push(self.look_up(next));
            }
            tokio::select! {
                Some(done) = running.next() => done?,
                () = self.lookup_requested.notified() => {}
            }
        }
    }

    fn next(&self) -> Option<(Arc<str>, Box<str>, u64)> {
        self.dispatcher.slots().tracker.as_mut()?.next()
    }

    /// Looks up one object, with retries, until the server answers or the watch delivers the object again.
    async fn look_up(&self, (key, address, ticket): (Arc<str>, Box<str>, u64)) -> Result<(), RequestError> {
        let Some((namespace, name)) = address.split_once('/') else { return Ok(()) };
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let pause = &self.dispatcher.shared.pause;
        let mut failures = 0;
        loop {
            // During a pause, other operators may handle the objects.
            pause.over().await;
            if !self.begin_lookup(&key, ticket) {
                return Ok(());
            }
            let pauses = pause.count();
            let found = tokio::select! {
                biased;
                () = pause.paused_since(pauses) => continue,
                found = self.stream.find(namespace, name) => found,
            };
            let error = match found {
                Ok(found) => {
                    let found = found.into_iter().find(|object| key_of(object) == key);
                    self.dispatcher.on_found(&key, ticket, found);
                    return Ok(());
                }
                // The resource itself is not served any more.
                Err(error) if error.status() == Some(404) => {
                    self.dispatcher.on_found(&key, ticket, None);
                    return Ok(());
                }
                Err(error @ RequestError::Login(_)) => return Err(error),
                Err(error) => error,
            };
            self.back_off(&format!("Cannot look up {address}"), &error, failures).await;
            failures += 1;
        }
    }

    /// Logs the failure and waits for the retry delay; `failures` is the number of earlier failures in a row.
    pub(super) async fn back_off(&self, what: &str, error: &RequestError, failures: u32) {
        let delay = delay_after(error, failures);
        let (resource, shared) = (&self.stream.resource, &self.dispatcher.shared);
        let text = format!("{what} of {resource}: {error}. The next attempt is in {delay} seconds.");
        shared.base.host.log(LogRecord::general(Level::Error, LOGGER, text));
        shared.base.clock.sleep(seconds(delay)).await;
    }

    /// Whether the lookup is still needed. If so, the response will show the current state: the object is not stale any more.
    fn begin_lookup(&self, key: &str, ticket: u64) -> bool {
        let mut slots = self.dispatcher.slots();
        let is_looked_up = slots.tracker.as_ref().is_some_and(|tracker| tracker.is_looked_up(key, ticket));
        if let Some(slot) = slots.get(key).filter(|_| is_looked_up) {
            slot.worker.selector_match = SelectorMatch::Deselected;
        }
        is_looked_up
    }
}
