//! The order of applying: what others need comes first.

/// The last rank of kinds that others need; all other kinds come after them.
const WORKLOADS: u8 = 8;

/// The rank of a kind. Lower ranks are applied first, and pruned last.
pub(super) fn rank(group: &str, kind: &str) -> u8 {
    match (group, kind) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        ("", "ServiceAccount") => 2,
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => 3,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => 4,
        ("", "ConfigMap" | "Secret" | "LimitRange" | "ResourceQuota")
        | ("scheduling.k8s.io", "PriorityClass")
        | ("node.k8s.io", "RuntimeClass")
        | ("networking.k8s.io", "NetworkPolicy" | "IngressClass") => 5,
        ("", "PersistentVolume" | "PersistentVolumeClaim") | ("storage.k8s.io", _) => 6,
        ("", "Service" | "Endpoints") | ("discovery.k8s.io", "EndpointSlice") => 7,
        ("admissionregistration.k8s.io", _) | ("apiregistration.k8s.io", "APIService") => 9,
        _ => WORKLOADS,
    }
}
