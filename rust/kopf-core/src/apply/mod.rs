//! Applying children of an owner: the documents to be sent, the meaning of rejections, and the objects to be pruned. Section 6 of the specification
//! of reconcilers; the engine sends the requests (`kopf-engine/src/apply`).
//!
//! A desired object is never compared with a live one, because servers normalise objects: digests of desired objects are compared
//! with each other, and so are digests of owned fields.

mod apply_set;
mod child;
mod digest;
mod field_path;
mod marks;
mod owned_fields;
mod owner;
mod ownership;
mod plan;
mod rank;
mod rejection;
mod takeover;

pub use apply_set::{
    APPLY_SET_ID, Fate, Membership, apply_set_id, fate, foreign_tool, is_marked_elsewhere, owner_patch,
};
pub use child::{Child, ChildKey};
pub use digest::Digest;
pub use field_path::{is_under, remove_field};
pub use marks::{MARK, PART_OF};
pub use owned_fields::{is_owned_by_others, owned_digest, owned_digests, write_time};
pub use owner::Owner;
pub use ownership::{Link, Standing, shared_document, standing};
pub use plan::{PlanOptions, PlannedChild, declared_kinds, plan};
pub use rejection::{Rejection, classify};
pub use takeover::takeover_patch;

/// The finalizer of owners that have children which the cluster's garbage collection does not delete.
pub const CHILDREN_FINALIZER: &str = "kopf.dev/children";

/// What to do if other managers own some of the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// Fail.
    Fail,
    /// Take the fields over.
    Force,
    /// Leave the fields out: all, or only those under these paths.
    Yield(Option<Vec<String>>),
}

impl ConflictPolicy {
    /// The fields to be left out; none if the conflict is a failure. `fields` are those in conflict.
    pub fn yielded(&self, fields: &[String]) -> Option<Vec<String>> {
        match self {
            Self::Yield(None) => Some(fields.to_vec()),
            Self::Yield(Some(paths)) => {
                let is_covered = |field: &String| paths.iter().any(|path| is_under(field, path));
                fields.iter().all(is_covered).then(|| fields.to_vec())
            }
            Self::Fail | Self::Force => None,
        }
    }
}

/// Whether objects of the kind are never deleted and created again: their contents would be lost.
pub fn is_irreplaceable(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "PersistentVolumeClaim" | "PersistentVolume" | "Namespace")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// The field manager for the children of owners of a kind.
pub fn default_manager(group: &str, plural: &str) -> String {
    let full = if group.is_empty() { format!("kopf-{plural}") } else { format!("kopf-{plural}.{group}") };
    full.chars().take(128).collect()
}

#[cfg(test)]
mod tests;
