//! `ApplySets`: the marks of an owner and of its members, as in the Kubernetes specification, and which members are pruned.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::CHILDREN_FINALIZER;
use super::child::ChildKey;
use super::marks::{MARK, PART_OF};
use super::owner::Owner;
use super::ownership::references;
use crate::json::value::Value;

/// The label of owners, with the id of their `ApplySet`.
pub const APPLY_SET_ID: &str = "applyset.kubernetes.io/id";
const TOOLING: &str = "applyset.kubernetes.io/tooling";
const GROUP_KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
const NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";
const KEEP: &str = "kit.kopf.zalando.org/keep";
const TOOL: &str = "kopf/";

/// The id of the owner's `ApplySet`.
pub fn apply_set_id(owner: &Owner) -> String {
    let namespace = owner.namespace.as_deref().unwrap_or_default();
    let text = format!("{}.{namespace}.{}.{}", owner.name, owner.kind, owner.group());
    format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(Sha256::digest(text)))
}

/// Another tool that manages the `ApplySet` of the owner.
pub fn foreign_tool(owner: &Owner) -> Option<&str> {
    owner.annotations.get(TOOLING).map(String::as_str).filter(|tool| !tool.starts_with(TOOL))
}

/// The kinds and namespaces where members of an `ApplySet` may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The kinds with their groups: `Deployment.apps`.
    pub group_kinds: BTreeSet<String>,
    /// The namespaces besides that of the owner.
    pub namespaces: BTreeSet<String>,
}

impl Membership {
    /// That of the owner's annotations.
    pub fn of(owner: &Owner) -> Self {
        let set = |key: &str| {
            let text = owner.annotations.get(key).map(String::as_str).unwrap_or_default();
            text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
        };
        Self { group_kinds: set(GROUP_KINDS), namespaces: set(NAMESPACES) }
    }

    /// Adds an object.
    pub fn add(&mut self, key: &ChildKey, owner: &Owner) {
        self.group_kinds.insert(key.group_kind());
        if let Some(namespace) = &key.namespace
            && owner.namespace.as_ref() != Some(namespace)
        {
            self.namespaces.insert(namespace.clone());
        }
    }

    /// Adds what the other one has.
    pub fn widen(&mut self, other: &Self) {
        self.group_kinds.extend(other.group_kinds.iter().cloned());
        self.namespaces.extend(other.namespaces.iter().cloned());
    }

    /// Whether the other one has nothing else.
    pub fn covers(&self, other: &Self) -> bool {
        other.group_kinds.is_subset(&self.group_kinds) && other.namespaces.is_subset(&self.namespaces)
    }

    fn annotations(&self) -> [(&'static str, String); 2] {
        let text = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(",");
        [(GROUP_KINDS, text(&self.group_kinds)), (NAMESPACES, text(&self.namespaces))]
    }
}

/// The merge patch that gives the owner the marks of its `ApplySet`; none if it has them. `version` is that of this program,
/// `finalizer` is whether the owner needs [`CHILDREN_FINALIZER`]. The patch is valid for the known state of the owner only, so that
/// marks of another process are not overwritten.
pub fn owner_patch(owner: &Owner, membership: &Membership, version: &str, finalizer: bool) -> Option<Value> {
    let id = apply_set_id(owner);
    let mut metadata = BTreeMap::new();
    if owner.labels.get(APPLY_SET_ID) != Some(&id) {
        metadata.insert("labels", json!({APPLY_SET_ID: id}));
    }
    let is_different = |(key, text): &(&str, String)| owner.annotations.get(*key) != Some(text);
    let mut annotations: BTreeMap<&str, String> =
        membership.annotations().into_iter().filter(is_different).collect();
    if !annotations.is_empty() || !metadata.is_empty() || !owner.annotations.contains_key(TOOLING) {
        annotations.insert(TOOLING, format!("{TOOL}{version}"));
        metadata.insert("annotations", json!(annotations));
    }
    if finalizer && !owner.finalizers.iter().any(|one| one == CHILDREN_FINALIZER) {
        let all = owner.finalizers.iter().map(String::as_str).chain([CHILDREN_FINALIZER]);
        metadata.insert("finalizers", json!(all.collect::<Vec<_>>()));
    }
    if metadata.is_empty() {
        return None;
    }
    metadata.insert("uid", json!(owner.uid));
    metadata.insert("resourceVersion", json!(owner.resource_version));
    Some(json!({"metadata": metadata}))
}

/// What happens to a listed object that is not desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is no member: nothing.
    Unrelated,
    /// It leaves the `ApplySet`, and stays.
    Kept,
    /// It is being deleted.
    Leaving,
    /// It is deleted.
    Deleted,
}

/// What happens to a listed object that is not desired. Only objects with the label and the link to the owner are members.
pub fn fate(object: &Value, owner_uid: &str, id: &str) -> Fate {
    let entry = |stanza: &str, key: &str| {
        let stanza = object.get("metadata").and_then(|metadata| metadata.get(stanza));
        stanza.and_then(|stanza| stanza.get(key)).and_then(Value::as_str)
    };
    let is_linked = references(object).any(|one| one.get("uid").and_then(Value::as_str) == Some(owner_uid))
        || entry("annotations", MARK) == Some(owner_uid);
    if entry("labels", PART_OF) != Some(id) || !is_linked {
        Fate::Unrelated
    } else if object.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
        Fate::Leaving
    } else if entry("annotations", KEEP) == Some("true") {
        Fate::Kept
    } else {
        Fate::Deleted
    }
}

/// Whether the engine deletes the object before its owner, because the cluster's garbage collection does not.
pub fn is_marked_elsewhere(object: &Value, owner_uid: &str) -> bool {
    let mark = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let has_mark = mark.and_then(|it| it.get(MARK)).and_then(Value::as_str) == Some(owner_uid);
    has_mark && !references(object).any(|one| one.get("uid").and_then(Value::as_str) == Some(owner_uid))
}
