//! The objects of one watch that cannot be handled: each is reported once, until it can be handled or is gone.

use std::collections::HashMap;
use std::sync::Arc;

use kopf_core::object::Object;

use crate::object_key::key_of;

/// The rejected objects of one stream.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    /// The number of the last listing that had the object, by its key.
    known: HashMap<Arc<str>, u32>,
    listing: u32,
}

impl Rejections {
    /// Adds an object; true if it was not there before.
    pub(super) fn add(&mut self, identity: &Object) -> bool {
        self.known.insert(key_of(identity), self.listing).is_none()
    }

    /// Removes an object that can be handled now, or is gone; true if it was there.
    pub(super) fn remove(&mut self, object: &Object) -> bool {
        // Usually there are none; the key is not computed then.
        !self.known.is_empty() && self.known.remove(&key_of(object)).is_some()
    }

    /// A listing has begun.
    pub(super) fn begin_listing(&mut self) {
        self.listing = self.listing.wrapping_add(1);
    }

    /// A listing is complete: objects that it did not have are gone.
    pub(super) fn end_listing(&mut self) {
        let listing = self.listing;
        self.known.retain(|_, seen| *seen == listing);
    }

    /// Number of rejected objects.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}
