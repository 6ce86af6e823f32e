//! Desired objects, as they are given.

use std::fmt;

use super::owner::{Owner, group_of};
use crate::json::value::Value;

/// The metadata that only servers set.
const SERVER_METADATA: [&str; 7] = [
    "uid",
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "selfLink",
];

/// The identity of a child.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildKey {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace; none for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ChildKey {
    /// The identity of an owner.
    pub fn of_owner(owner: &Owner) -> Self {
        Self {
            group: owner.group().to_owned(),
            kind: owner.kind.clone(),
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
        }
    }

    /// The kind with its group, as in the annotations of `ApplySets`.
    pub fn group_kind(&self) -> String {
        group_kind(&self.group, &self.kind)
    }
}

pub(super) fn group_kind(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

impl fmt::Display for ChildKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.group_kind())?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// A desired object without the fields that only servers set.
#[derive(Clone, Debug)]
pub struct Child {
    /// The API version.
    pub api_version: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The given namespace.
    pub namespace: Option<String>,
    /// The document.
    pub document: Value,
}

impl Child {
    /// Reads a given document.
    ///
    /// # Errors
    /// A text for a `ValueError`: the document has no identity.
    pub fn read(mut document: Value) -> Result<Self, String> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let (api_version, kind) = (text(document.get("apiVersion")), text(document.get("kind")));
        let metadata = document.get("metadata");
        let (name, namespace) = (
            text(metadata.and_then(|metadata| metadata.get("name"))),
            text(metadata.and_then(|metadata| metadata.get("namespace"))),
        );
        let has_generated_name = metadata.is_some_and(|metadata| metadata.get("generateName").is_some());
        let (Some(api_version), Some(kind)) = (api_version, kind) else {
            return Err("A child has no apiVersion or no kind.".to_owned());
        };
        if has_generated_name {
            return Err(format!(
                "A child of the kind {kind} has metadata.generateName, but only named objects can be applied: set metadata.name."
            ));
        }
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Err(format!("A child of the kind {kind} has no metadata.name."));
        };
        if let Some(fields) = document.as_object_mut() {
            fields.shift_remove("status");
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                for field in SERVER_METADATA {
                    metadata.shift_remove(field);
                }
            }
        }
        let group = group_of(&api_version).to_owned();
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        Ok(Self { api_version, group, kind, name, namespace, document })
    }

    /// The name of the kind for discovery.
    pub fn kind_name(&self) -> String {
        format!("{}/{}", self.api_version, self.kind)
    }
}
