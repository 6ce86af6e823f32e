//! The present states of children, as far as watches have delivered them.

use std::sync::Arc;

use kopf_core::apply::Digest;
use kopf_core::object::Object;
use kopf_core::resource::Resource;

/// A source of the present states of children: the caches of an operator. Called by tasks; it does not wait.
pub trait ChildCache: Send + Sync {
    /// The state of an object; none if its kind is not cached, or its cache is not ready. `manager` is the field manager whose
    /// owned fields count.
    fn cached(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        manager: &str,
    ) -> Option<CachedChild>;

    /// The number of the operator's pauses and terms so far; none while it is paused. Another operator may have written during a pause
    /// or before a term: states that were remembered at another number can be outdated.
    fn pauses(&self) -> Option<u64> {
        Some(0)
    }

    /// Whether the versions of children of this kind are known, although they are not cached.
    fn knows_versions(&self, _resource: &Resource) -> bool {
        false
    }

    /// Whether a child that is not cached is still in this state, by its version.
    fn is_newest(&self, _child: &Object) -> bool {
        false
    }
}

/// The state of an object in a cache.
#[derive(Clone, Debug)]
pub enum CachedChild {
    /// There is no such object.
    Absent,
    /// The object. `managedFields` may be missing.
    Present {
        /// The object.
        object: Arc<Object>,
        /// The digest of the manager's owned fields; none if only the metadata is cached.
        owned: Option<Digest>,
    },
}

/// Nothing is cached: every child is applied by each call.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCache;

impl ChildCache for NoCache {
    fn cached(&self, _: &Resource, _: Option<&str>, _: &str, _: &str) -> Option<CachedChild> {
        None
    }
}
