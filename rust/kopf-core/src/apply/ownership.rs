//! How children are linked to their owner, and whose an existing object is.

use serde_json::{Map, json};

use super::marks::{MARK, PART_OF};
use super::owner::{Owner, group_of};
use crate::json::value::Value;

/// The link of a child to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An owner reference: the cluster's garbage collection deletes the child.
    Reference,
    /// The owner mark: an annotation, where Kubernetes does not allow a reference. The engine deletes the child.
    Mark,
}

impl Link {
    /// The link of a child in the namespace, or of a cluster-scoped one.
    pub(super) fn of(owner: &Owner, namespace: Option<&str>) -> Self {
        let is_allowed = owner.namespace.is_none() || owner.namespace.as_deref() == namespace;
        if is_allowed { Self::Reference } else { Self::Mark }
    }

    /// Adds the link to a document.
    pub(super) fn add(self, document: &mut Value, owner: &Owner) {
        match self {
            Self::Reference => {
                let Some(metadata) = metadata_of(document) else { return };
                let references = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
                let Some(references) = references.as_array_mut() else { return };
                references
                    .retain(|reference| reference.get("uid").and_then(Value::as_str) != Some(&owner.uid));
                references.push(owner.reference());
            }
            Self::Mark => set_entry(document, "annotations", MARK, &owner.uid),
        }
    }
}

/// Whose an existing object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may be applied: it is the owner's, or no other's.
    Free,
    /// It belongs to these.
    Foreign(String),
    /// It is being deleted, or will be soon, because it belongs to a former object of the owner's name.
    Leaving,
}

/// Whose an existing object is: `id` is that of the owner's `ApplySet`.
pub fn standing(live: &Value, owner: &Owner, id: &str) -> Standing {
    if live.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
        return Standing::Leaving;
    }
    let text =
        |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let namespace = live.pointer("/metadata/namespace").and_then(Value::as_str);
    let mut others = vec![];
    for reference in
        references(live).filter(|reference| reference.get("controller") == Some(&Value::Bool(true)))
    {
        if text(reference, "uid") == owner.uid {
            continue;
        }
        // The owner of a reference is in the namespace of the object, or cluster-scoped.
        let is_namesake = (owner.namespace.is_none() || owner.namespace.as_deref() == namespace)
            && text(reference, "kind") == owner.kind
            && text(reference, "name") == owner.name
            && group_of(&text(reference, "apiVersion")) == owner.group();
        if is_namesake {
            return Standing::Leaving;
        }
        others.push(format!("{} {}", text(reference, "kind"), text(reference, "name")));
    }
    let entry = |stanza: &str, key: &str| {
        let stanza = live.get("metadata").and_then(|metadata| metadata.get(stanza));
        stanza.and_then(|stanza| stanza.get(key)).and_then(Value::as_str).map(str::to_owned)
    };
    let part_of = entry("labels", PART_OF);
    if let Some(other) = part_of.as_deref().filter(|other| *other != id) {
        others.push(format!("the ApplySet {other}"));
    }
    // A mark of the same ApplySet is that of a former object of the owner's name.
    if let Some(other) = entry("annotations", MARK).filter(|other| *other != owner.uid)
        && part_of.as_deref() != Some(id)
    {
        others.push(format!("the owner with the uid {other}"));
    }
    if others.is_empty() { Standing::Free } else { Standing::Foreign(others.join(", ")) }
}

/// The document for an object of another owner: without a link and without the label, but with those of the others. Otherwise,
/// an apply by the same field manager would remove them.
pub fn shared_document(document: &Value, live: &Value, owner: &Owner) -> Value {
    let mut shared = document.clone();
    let Some(metadata) = metadata_of(&mut shared) else { return shared };
    metadata.shift_remove("ownerReferences");
    let is_other = |reference: &&Value| reference.get("uid").and_then(Value::as_str) != Some(&owner.uid);
    let others: Vec<Value> = references(live).filter(is_other).cloned().collect();
    if !others.is_empty() {
        metadata.insert("ownerReferences".to_owned(), Value::Array(others));
    }
    for (stanza, key) in [("labels", PART_OF), ("annotations", MARK)] {
        let found = live.get("metadata").and_then(|metadata| metadata.get(stanza));
        if let Some(value) = found.and_then(|found| found.get(key)).and_then(Value::as_str) {
            set_entry(&mut shared, stanza, key, value);
            continue;
        }
        let entries = metadata_of(&mut shared).and_then(|metadata| metadata.get_mut(stanza));
        if let Some(entries) = entries.and_then(Value::as_object_mut) {
            entries.shift_remove(key);
        }
    }
    shared
}

pub(super) fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

pub(super) fn metadata_of(document: &mut Value) -> Option<&mut Map<String, Value>> {
    document.get_mut("metadata")?.as_object_mut()
}

/// Sets a label or an annotation.
pub(super) fn set_entry(document: &mut Value, stanza: &str, key: &str, value: &str) {
    let Some(metadata) = metadata_of(document) else { return };
    let entries = metadata.entry(stanza).or_insert_with(|| json!({}));
    if !entries.is_object() {
        *entries = json!({});
    }
    entries[key] = value.into();
}
