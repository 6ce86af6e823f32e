//! The task of caches: the functions that compute keys.

use std::fmt;
use std::sync::Arc;

use kopf_core::caches::ComputedKeys;
use kopf_core::object::Object;
use kopf_core::resource::Resource;

use super::Responder;

/// A request to call the functions that compute the keys of an object in a cache.
pub struct ComputeKeysTask {
    /// The index of the cache among the handlers.
    pub cache: usize,
    /// The resource of the object.
    pub resource: Arc<Resource>,
    /// The object.
    pub object: Arc<Object>,
    /// Receives the keys; functions that have failed have none. None if the request is lost.
    pub reply: Responder<Option<ComputedKeys>>,
}

impl fmt::Debug for ComputeKeysTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ComputeKeysTask").field(&self.cache).finish()
    }
}
