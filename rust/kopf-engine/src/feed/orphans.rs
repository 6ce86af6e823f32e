//! Leftovers: objects that a derived selector does not let through, but that have our finalizer.
//!
//! They have lost their labels while no operator was there to see it, or only other versions of the handlers have wanted them.
//! No stream tells of them, and without us they could never be deleted. So they are looked for after each listing, by their
//! metadata, if there are handlers that hold deletions; and are treated as if they had left just now.

use std::convert::Infallible;

use kopf_core::object::Object;
use tokio::sync::Notify;

use super::membership_resolver::MembershipResolver;
use crate::error::RequestError;
use crate::object_key::key_of;

impl MembershipResolver<'_> {
    /// Has the finalizers taken off that nobody else would take off.
    pub(crate) async fn clear(&self, listed: &Notify) -> Result<Infallible, RequestError> {
        if let Some(index_gate) = &self.dispatcher.shared.index_gate {
            index_gate.opened().await;
        }
        loop {
            listed.notified().await;
            let mut failures = 0;
            while let Err(error) = self.look_through().await {
                if let RequestError::Login(_) = error {
                    return Err(error);
                }
                self.back_off("Cannot look for finalizers that are left", &error, failures).await;
                failures += 1;
            }
        }
    }

    async fn look_through(&self) -> Result<(), RequestError> {
        let finalizer = &self.dispatcher.shared.rules.settings.persistence.finalizer;
        let mut token = None;
        loop {
            // The objects are others' meanwhile, and there will be a new listing.
            self.dispatcher.shared.pause.over().await;
            let page = self.stream.metadata(token).await?;
            for object in page.items.iter().filter(|object| object.has_finalizer(finalizer)) {
                self.note_leftover(object);
            }
            token = page.continue_token;
            if token.is_none() {
                return Ok(());
            }
        }
    }

    fn note_leftover(&self, object: &Object) {
        let key = key_of(object);
        let mut slots = self.dispatcher.slots();
        // What is known is looked after.
        let is_known = slots.get(&key).is_some();
        if let Some(departures) =
            slots.departures.as_mut().filter(|it| !is_known && !it.selector.matches(object))
        {
            departures.note(&key, object);
            departures.enqueue_lookup(&key, None);
        }
    }
}
