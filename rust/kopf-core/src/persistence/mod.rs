//! What Kopf keeps of an object between cycles: on the object itself, and in memory.

pub mod annotation_keys;
pub mod consistency;
pub mod diffbase;
pub mod essence;
pub mod finalizer;
pub mod memory;
pub mod merge_requests;
pub mod own_annotations;
mod own_changes;
pub mod pending_state;
pub mod progress;
pub mod rejected_patch;

use serde::Deserialize;

use diffbase::DiffBaseStorage;
use essence::Storages;
use progress::ProgressStorage;

/// What is kept on objects.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Persistence {
    /// The finalizer that holds deletions.
    pub finalizer: String,
    /// Where progress is kept.
    pub progress_storage: ProgressStorage,
    /// Where the last handled essence is kept.
    pub diffbase_storage: DiffBaseStorage,
    /// Seconds to wait for our own writes; zero switches it off.
    pub consistency_timeout: f64,
}

impl Persistence {
    /// Whether only Python knows what is kept: one storage of a user's is enough, since Python can do it for all.
    pub fn is_foreign(&self) -> bool {
        self.progress_storage == ProgressStorage::Foreign || self.diffbase_storage == DiffBaseStorage::Foreign
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

/// The settings that decide what the operator keeps of objects. The settings of the operator convert into it.
#[derive(Clone, Copy, Debug)]
pub struct PersistenceConfig<'a> {
    /// Where it is kept on the objects.
    pub persistence: &'a Persistence,
    /// Whether everything is done as in Kopf 1.45.
    pub compat: bool,
}
