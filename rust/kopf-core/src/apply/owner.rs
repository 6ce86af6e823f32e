//! The owner of children.

use std::collections::BTreeMap;

use serde_json::json;

use crate::json::value::Value;

/// The owner of children: the newest known state of its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The API version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace; none for cluster-scoped owners.
    pub namespace: Option<String>,
    /// The uid.
    pub uid: String,
    /// The resource version; may be empty.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
    /// The finalizers.
    pub finalizers: Vec<String>,
}

impl Owner {
    /// Reads an object.
    ///
    /// # Errors
    /// A text for a `ValueError`: the object is not from the cluster.
    pub fn read(body: &Value) -> Result<Self, String> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let metadata = body.get("metadata");
        let field = |name: &str| metadata.and_then(|metadata| metadata.get(name));
        let texts = |name: &str| {
            let entries = field(name).and_then(Value::as_object).into_iter().flatten();
            entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        let owner = Self {
            api_version: text(body.get("apiVersion")),
            kind: text(body.get("kind")),
            name: text(field("name")),
            namespace: Some(text(field("namespace"))).filter(|namespace| !namespace.is_empty()),
            uid: text(field("uid")),
            resource_version: text(field("resourceVersion")),
            is_deleting: field("deletionTimestamp").is_some_and(Value::is_string),
            labels: texts("labels"),
            annotations: texts("annotations"),
            finalizers: field("finalizers")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|item| Some(item.as_str()?.to_owned()))
                .collect(),
        };
        let required = [
            ("apiVersion", &owner.api_version),
            ("kind", &owner.kind),
            ("metadata.name", &owner.name),
            ("metadata.uid", &owner.uid),
        ];
        match required.iter().find(|(_, value)| value.is_empty()) {
            Some((name, _)) => {
                Err(format!("The owner has no {name}: pass the body of an object of the cluster."))
            }
            None => Ok(owner),
        }
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        group_of(&self.api_version)
    }

    /// The name of the kind for discovery.
    pub fn kind_name(&self) -> String {
        format!("{}/{}", self.api_version, self.kind)
    }

    /// The owner reference of its children.
    pub(super) fn reference(&self) -> Value {
        json!({
            "apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid,
            "controller": true, "blockOwnerDeletion": true,
        })
    }

    /// The state after the other one, if that is newer.
    #[must_use]
    pub fn newest(self, other: Option<Self>) -> Self {
        let version = |owner: &Self| owner.resource_version.parse::<u64>().ok();
        match other {
            Some(other) if other.uid == self.uid && version(&other) > version(&self) => other,
            _ => self,
        }
    }
}

/// The group of an API version.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map(|(group, _)| group).unwrap_or_default()
}
