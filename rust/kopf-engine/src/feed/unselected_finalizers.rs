//! Objects that do not match the derived selector but have our finalizer.
//!
//! They lost their labels while no operator was running, or only an earlier version of the operator handled them. No watch
//! delivers them, and with our finalizer they could never be deleted. So, if there are handlers that hold deletions, all
//! objects are listed after each listing, by their metadata. Those with our finalizer are then handled as
//! objects that stopped matching just now.

use std::convert::Infallible;

use kopf_core::object::Object;
use kopf_core::stream::Listing;

use super::deselected_lookup::DeselectedLookup;
use crate::error::RequestError;
use crate::object_key::key_of;

impl DeselectedLookup<'_> {
    /// Lists all objects after each listing, and looks up those with our finalizer, to remove our finalizer.
    pub(super) async fn release_unselected(self) -> Result<Infallible, RequestError> {
        if let Some(index_gate) = &self.dispatcher.shared.index_gate {
            index_gate.opened().await;
        }
        loop {
            self.listed.notified().await;
            let mut failures = 0;
            while let Err(error) = self.find_unselected().await {
                if let RequestError::Login(_) = error {
                    return Err(error);
                }
                self.back_off("Cannot look for stale finalizers", &error, failures).await;
                failures += 1;
            }
        }
    }

    async fn find_unselected(&self) -> Result<(), RequestError> {
        let finalizer = &self.dispatcher.shared.base.startup_config.settings.persistence.finalizer;
        let mut listing = Listing::new(self.stream.settings.watching.chunk_size);
        loop {
            // During a pause, other operators may handle the objects; a new listing follows the pause.
            self.dispatcher.shared.pause.over().await;
            let page = match self.stream.metadata(&listing).await {
                Ok(page) => page,
                Err(error) => {
                    listing.on_failure(error)?;
                    continue;
                }
            };
            for object in page.items.iter().filter(|object| object.has_finalizer(finalizer)) {
                self.look_up_unselected(object);
            }
            if listing.on_page(page.size, page.continue_token) {
                return Ok(());
            }
        }
    }

    fn look_up_unselected(&self, object: &Object) {
        let key = key_of(object);
        let mut slots = self.dispatcher.slots();
        // Known objects are handled by their slots.
        let is_known = slots.get(&key).is_some();
        if let Some(tracker) = slots.tracker.as_mut().filter(|it| !is_known && !it.selector.matches(object)) {
            tracker.record_address(&key, object);
            tracker.enqueue_lookup(&key, None);
        }
    }
}
