//! The task that looks up what has become of objects that a watch with a derived selector does not deliver any more.

use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kopf_core::log_level::Level;
use tokio::sync::Notify;

use crate::error::RequestError;
use crate::host::LogRecord;
use crate::object_key::key_of;
use crate::objects::dispatcher::Dispatcher;
use crate::objects::membership::Membership;
use crate::time::duration::seconds;
use crate::watch::{Stream, pause_after};

const LOGGER: &str = "kopf._cogs.clients.watching";
/// For how many objects the server is asked at once.
const AT_ONCE: usize = 8;

/// The task that looks up objects that were deselected.
pub(crate) struct MembershipResolver<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) dispatcher: &'a Arc<Dispatcher>,
}

impl MembershipResolver<'_> {
    pub(crate) async fn run(&self, news: &Notify) -> Result<Infallible, RequestError> {
        // Until then, nothing is handled, whatever it is.
        if let Some(index_gate) = &self.dispatcher.shared.index_gate {
            index_gate.opened().await;
        }
        let mut asking = FuturesUnordered::new();
        loop {
            while asking.len() < AT_ONCE
                && let Some(next) = self.next()
            {
                asking.push(self.seek(next));
            }
            tokio::select! {
                Some(done) = asking.next() => done?,
                () = news.notified() => {}
            }
        }
    }

    fn next(&self) -> Option<(Arc<str>, Box<str>, u64)> {
        self.dispatcher.slots().departures.as_mut()?.next()
    }

    /// Asks for one object until there is an answer, or until the stream tells of it again.
    async fn seek(&self, (key, address, ticket): (Arc<str>, Box<str>, u64)) -> Result<(), RequestError> {
        let Some((namespace, name)) = address.split_once('/') else { return Ok(()) };
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let pause = &self.dispatcher.shared.pause;
        let mut failures = 0;
        loop {
            // Others may handle the objects meanwhile.
            pause.over().await;
            if !self.begin(&key, ticket) {
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
                // The kind itself is gone.
                Err(error) if error.status() == Some(404) => {
                    self.dispatcher.on_found(&key, ticket, None);
                    return Ok(());
                }
                Err(error @ RequestError::Login(_)) => return Err(error),
                Err(error) => error,
            };
            self.back_off(&format!("Cannot see what has become of {address}"), &error, failures).await;
            failures += 1;
        }
    }

    /// Waits after so many failures, and this one.
    pub(crate) async fn back_off(&self, what: &str, error: &RequestError, failures: u32) {
        let pause = pause_after(error, failures);
        let (resource, shared) = (&self.stream.resource, &self.dispatcher.shared);
        let text = format!("{what} of {resource}: {error}. The next attempt is in {pause} seconds.");
        shared.host.log(LogRecord::general(Level::Error, LOGGER, text));
        shared.clock.sleep(seconds(pause)).await;
    }

    /// Whether it is still of interest; if so, what is asked for now is as it is now.
    fn begin(&self, key: &str, ticket: u64) -> bool {
        let mut slots = self.dispatcher.slots();
        let is_looked_up =
            slots.departures.as_ref().is_some_and(|departures| departures.is_looked_up(key, ticket));
        if let Some(slot) = slots.get(key).filter(|_| is_looked_up) {
            slot.place = Membership::Deselected;
        }
        is_looked_up
    }
}
