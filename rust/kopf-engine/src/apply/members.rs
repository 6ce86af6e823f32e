//! The members of an `ApplySet`, listed in the kinds and namespaces of the owner's annotations.

use kopf_core::apply::{ChildKey, Membership, Owner, PART_OF};
use kopf_core::json::value::Value;

use super::requests::{Requests, Target};
use crate::user_client::CallError;

/// A listed object.
pub(super) struct Member {
    /// The identity.
    pub(super) key: ChildKey,
    /// The name of the kind for discovery.
    pub(super) kind: String,
    /// The uid.
    pub(super) uid: String,
    /// The metadata.
    pub(super) object: Value,
}

impl Member {
    pub(super) fn target(&self) -> Target<'_> {
        Target::of(&self.kind, &self.key)
    }
}

/// All objects with the label of the `ApplySet`, in the additional namespaces, and in that of the owner if `with_own`. Kinds that
/// are not served any more have no objects.
pub(super) async fn list(
    requests: &Requests<'_>,
    owner: &Owner,
    id: &str,
    membership: &Membership,
    with_own: bool,
) -> Result<Vec<Member>, CallError> {
    let own = owner.namespace.as_deref().filter(|_| with_own);
    let others = membership.namespaces.iter().map(String::as_str);
    let namespaces: Vec<&str> = own.into_iter().chain(others).collect();
    let mut members = vec![];
    for group_kind in &membership.group_kinds {
        let Some(resource) = requests.resolve_served(group_kind).await? else { continue };
        let (kind, group) = group_kind.split_once('.').unwrap_or((group_kind, ""));
        let name = format!("{}/{}/{}", resource.group, resource.version, resource.plural);
        let scopes: Vec<Option<&str>> =
            if resource.namespaced { namespaces.iter().copied().map(Some).collect() } else { vec![None] };
        for scope in scopes {
            for object in requests.list(&name, scope, (PART_OF, id)).await? {
                let text = |field: &str| {
                    object.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                let key = ChildKey {
                    group: group.to_owned(),
                    kind: kind.to_owned(),
                    namespace: Some(text("/metadata/namespace")).filter(|it| !it.is_empty()),
                    name: text("/metadata/name"),
                };
                members.push(Member { key, kind: name.clone(), uid: text("/metadata/uid"), object });
            }
        }
    }
    Ok(members)
}
