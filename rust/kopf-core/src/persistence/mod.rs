//! The state that Kopf keeps about an object between cycles: annotations or status fields on the object, and memory.

pub mod annotation_keys;
pub mod base_digest;
pub(crate) mod completed_handling;
pub mod consistency;
pub mod diffbase;
pub mod essence;
pub mod finalizer;
pub mod foreign_write;
pub mod memory;
pub mod merge_requests;
pub mod observed_essences;
pub mod own_annotations;
pub(crate) mod own_changes;
pub mod patched;
pub mod pending_state;
pub mod progress;
pub mod rebasing;
pub(crate) mod recall;
mod rejected_patch;
pub mod release;
mod restart;
pub mod stored_state;
pub(crate) mod superseding;
pub mod unwritten_patch;

use serde::Deserialize;

use diffbase::DiffBaseStorage;
use essence::Storages;
use progress::ProgressStorage;

/// Settings of the state that Kopf stores on objects.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Persistence {
    /// The finalizer that blocks the deletion of an object until its deletion handlers have finished.
    pub finalizer: String,
    /// The storage of handler progress.
    pub progress_storage: ProgressStorage,
    /// The storage of the diff-base.
    pub diffbase_storage: DiffBaseStorage,
    /// Seconds to wait for the watch event caused by our own patch; zero disables the wait.
    pub consistency_timeout: f64,
}

impl Persistence {
    /// Whether a storage is implemented in Python. If one of them is, Python serves both storages.
    pub fn has_custom_storage(&self) -> bool {
        self.progress_storage == ProgressStorage::Custom || self.diffbase_storage == DiffBaseStorage::Custom
    }
}

impl<'a> From<&'a Persistence> for Storages<'a> {
    fn from(persistence: &'a Persistence) -> Self {
        Self { diffbase: &persistence.diffbase_storage, progress: &persistence.progress_storage }
    }
}

impl Default for Persistence {
    fn default() -> Self {
        Self {
            finalizer: "kopf.zalando.org/KopfFinalizerMarker".to_owned(),
            progress_storage: ProgressStorage::default(),
            diffbase_storage: DiffBaseStorage::default(),
            consistency_timeout: 5.0,
        }
    }
}

/// The persistence settings with the compatibility mode. `Settings` converts into it.
#[derive(Clone, Copy, Debug)]
pub struct PersistenceConfig<'a> {
    /// The storages, the finalizer, and the consistency timeout.
    pub persistence: &'a Persistence,
    /// Whether to behave exactly as Kopf 1.45.
    pub compat: bool,
}

/// Whether the state that is not on the object yet is kept in memory. It is not with storages in Python, whose state is
/// authoritative, nor in compatibility mode.
pub(crate) fn keeps_pending_state<'s>(settings: impl Into<PersistenceConfig<'s>>) -> bool {
    let settings = settings.into();
    !settings.compat && !settings.persistence.has_custom_storage()
}
