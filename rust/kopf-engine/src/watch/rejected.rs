//! The objects of one stream that cannot be handled: each of them is reported once, until it can be handled or is gone.

use std::collections::HashMap;
use std::sync::Arc;

use kopf_core::object::Object;

use crate::object_key::key_of;

/// The rejected objects of one stream.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    /// By their keys: the number of the last listing that had them.
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
        // Nearly always, there are none, and then nothing is computed.
        !self.known.is_empty() && self.known.remove(&key_of(object)).is_some()
    }

    /// A listing begins.
    pub(super) fn begin_listing(&mut self) {
        self.listing = self.listing.wrapping_add(1);
    }

    /// A listing is over: objects that it did not have are gone.
    pub(super) fn end_listing(&mut self) {
        let listing = self.listing;
        self.known.retain(|_, seen| *seen == listing);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}
