//! Owned objects: their primaries, by owner references.

use crate::json::path::FieldPath;
use crate::json::value::Value;
use crate::object::Object;

/// The kind of the primaries. Their version does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerKind<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// Only the reference of the controller counts.
    pub is_controller: bool,
}

/// Whether the object names any owner.
pub fn is_owned(object: &Object) -> bool {
    object.owner_kinds().next().is_some()
}

/// The uids of the owners of an object with this kind. Namespaces do not matter: owners may be cluster-scoped.
pub fn owners(object: &Object, of: OwnerKind<'_>) -> Vec<Box<str>> {
    // Nearly all objects have no such owner: then nothing is parsed.
    if !object.owner_kinds().any(|kind| kind == of.kind) {
        return Vec::new();
    }
    let Some(Value::Array(references)) = object.field(&FieldPath::from_keys(["metadata", "ownerReferences"]))
    else {
        return Vec::new();
    };
    let uid = |reference: &Value| {
        let text = |key: &str| reference.get(key).and_then(Value::as_str);
        let api_version = text("apiVersion")?;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let is_controller = reference.get("controller").and_then(Value::as_bool).unwrap_or_default();
        let counts = text("kind")? == of.kind && group == of.group && (is_controller || !of.is_controller);
        text("uid").filter(|_| counts).map(Box::from)
    };
    references.iter().filter_map(uid).collect()
}

/// Whether an owner of the object has this uid.
pub fn has_owner(object: &Object, uid: &str) -> bool {
    if object.owner_kinds().next().is_none() {
        return false;
    }
    let references = object.field(&FieldPath::from_keys(["metadata", "ownerReferences"]));
    let references = references.as_ref().and_then(Value::as_array);
    references.into_iter().flatten().any(|owner| owner.get("uid").and_then(Value::as_str) == Some(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn s1_14_10_group_and_kind_count_but_no_version() {
        let reference = |api: &str, kind: &str, uid: &str, controller: bool| json!({"apiVersion": api, "kind": kind, "uid": uid, "name": "n", "controller": controller});
        let references = json!([
            reference("kopf.dev/v1", "Shop", "a", false),
            reference("kopf.dev/v2beta1", "Shop", "b", true),
            reference("other.dev/v1", "Shop", "c", true),
            reference("kopf.dev/v1", "Bank", "d", true),
            reference("v1", "Shop", "e", true),
            {"kind": "Shop"},
        ]);
        let object = json!({"metadata": {"namespace": "x", "ownerReferences": references}}).to_string();
        let object = Object::decode(&object).unwrap();
        let of = |group, is_controller| owners(&object, OwnerKind { group, kind: "Shop", is_controller });
        assert_eq!(of("kopf.dev", false), ["a".into(), "b".into()]);
        assert_eq!(of("kopf.dev", true), ["b".into()]);
        assert_eq!(of("", false), ["e".into()]);
        assert!(["a", "e"].iter().all(|uid| has_owner(&object, uid)));
        assert!(!has_owner(&object, "n"));
        assert_eq!(owners(&object, OwnerKind { group: "kopf.dev", kind: "None", is_controller: false }), []);
    }
}
