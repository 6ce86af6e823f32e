//! Caches: the objects of a kind, look-ups of them by declared keys, and own writes that a watch has not delivered yet
//! (read-your-writes).
//!
//! The engine locks and feeds an [`ObjectStore`] per cache. [`CacheIndices`] has the rules K3, K4 and K7, [`CachedObject`] W1–W6,
//! [`ChangeQueue`] K8, and [`stream_selectors`] the selectors that the server evaluates.

mod change_queue;
mod indices;
mod key;
mod memory;
mod overlay;
mod own_writes;
mod query;
mod selection;
mod store;

pub use change_queue::{CacheChange, CacheChangeKind, ChangeQueue};
pub use indices::{CacheIndices, UnknownKey};
pub use key::CacheKey;
pub use overlay::{CachedObject, ListId, Version, WriteResponse};
pub use query::{Query, QueryError};
pub use selection::{Selected, stream_selectors};
pub use store::{ComputedKeys, ObjectStore, StoredObject};
