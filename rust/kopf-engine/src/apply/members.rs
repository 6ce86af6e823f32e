//! The members of an `ApplySet`, listed in the kinds and namespaces of the owner's annotations.

use kopf_core::apply::{ChildKey, Membership, Owner, PART_OF};
use kopf_core::json::value::Value;

use super::requests::{Requests, Target, has_code};
use crate::user_client::{CallError, is_unserved};

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
        let found = match list_kind(requests, group_kind, &namespaces, id).await {
            // The cache had it, and has dropped it: it is not served any more, or in another version.
            Err(CallError::Failed(failure)) if is_unserved(&failure) => {
                list_kind(requests, group_kind, &namespaces, id).await
            }
            found => found,
        };
        members.append(&mut found?);
    }
    Ok(members)
}

/// The members of one kind; none if it is not served.
async fn list_kind(
    requests: &Requests<'_>,
    group_kind: &str,
    namespaces: &[&str],
    id: &str,
) -> Result<Vec<Member>, CallError> {
    let Some(resource) = requests.resolve_served(group_kind).await? else { return Ok(vec![]) };
    let (kind, group) = group_kind.split_once('.').unwrap_or((group_kind, ""));
    let scopes: Vec<Option<&str>> =
        if resource.namespaced { namespaces.iter().copied().map(Some).collect() } else { vec![None] };
    let mut members = vec![];
    for scope in scopes {
        let listed = match requests.list(group_kind, scope, (PART_OF, id)).await {
            // The permissions are deleted with the namespace. Without it, there are no members in it.
            Err(error) if has_code(&error, 403) && is_absent(requests, scope).await => continue,
            listed => listed?,
        };
        for object in listed {
            let text =
                |field: &str| object.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let key = ChildKey {
                group: group.to_owned(),
                kind: kind.to_owned(),
                namespace: Some(text("/metadata/namespace")).filter(|it| !it.is_empty()),
                name: text("/metadata/name"),
            };
            let uid = text("/metadata/uid");
            members.push(Member { key, kind: group_kind.to_owned(), uid, object });
        }
    }
    Ok(members)
}

/// Whether it is known that the namespace does not exist.
async fn is_absent(requests: &Requests<'_>, namespace: Option<&str>) -> bool {
    let Some(namespace) = namespace else { return false };
    requests.has_namespace(namespace).await.is_ok_and(|exists| !exists)
}
