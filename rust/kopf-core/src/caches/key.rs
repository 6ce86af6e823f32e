//! The identity of an object in a cache.

use crate::object::Object;

/// The identity of an object in a cache, ordered by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    /// Empty for cluster-scoped objects.
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl CacheKey {
    /// The key of the object of this name.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.unwrap_or_default().into(), name: name.into() }
    }

    /// The key of an object.
    pub fn of(object: &Object) -> Self {
        Self::new(object.namespace(), object.name().unwrap_or_default())
    }

    /// The namespace; none for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        Some(&*self.namespace).filter(|namespace| !namespace.is_empty())
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}
