//! The marks of children.

/// The label of members: the id of their `ApplySet`.
pub const PART_OF: &str = "applyset.kubernetes.io/part-of";
/// The annotation with the uid of the owner, on members for which Kubernetes allows no owner reference.
pub const MARK: &str = "kit.kopf.zalando.org/owner";
/// The label of members in `ApplySets` with a name.
pub(super) const SET_NAME: &str = "kopf.dev/applyset";
