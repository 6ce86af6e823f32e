//! CRDs: defaults, names, status, and their resources in the registry.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::apply::field_set;
use crate::apply::managed_fields;
use crate::base::json::{member_text, strings};
use crate::schema::formats;
use crate::scheme::from_crd::resources_of;
use crate::scheme::resources::Registry;

pub(crate) mod validation;

pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Defaults of a CRD.
pub(crate) fn fill_defaults(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !kind.is_empty() {
            names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
            names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
        }
    }
}

/// Initial status of a CRD.
pub(crate) fn initial_status(crd: &Map<String, Value>) -> Value {
    let versions = crd.get("spec").and_then(|s| s.get("versions")).and_then(Value::as_array);
    let stored: Vec<&str> = versions
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == Value::Bool(true))
        .map(|v| member_text(v, "name"))
        .collect();
    json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored})
}

/// Registry with the resources of a created or changed CRD. Returns the name conflict as well, if there is one.
pub(crate) fn registered(registry: &Registry, name: &str, crd: &Value) -> (Registry, Option<String>) {
    let mut registry = unregistered(registry, name);
    let conflict = conflicting_name(&registry, &crd["spec"]);
    if conflict.is_none() {
        for resource in resources_of(crd) {
            registry.add(resource);
        }
    }
    (registry, conflict)
}

/// Message about a name that another kind of the group has.
fn conflicting_name(registry: &Registry, spec: &Value) -> Option<String> {
    let group = member_text(spec, "group");
    let names = spec.get("names")?;
    let found = registry.groups.get(group)?;
    let all = found.versions.iter().flat_map(|(_, r)| r.values());
    for other in all {
        if other.plural == member_text(names, "plural") {
            return Some(format!("\"{}\" is already in use", other.plural));
        }
        if other.kind == member_text(names, "kind") {
            return Some(format!("\"{}\" is already in use", other.kind));
        }
    }
    None
}

/// Status of a CRD whose names are accepted or in conflict.
pub(crate) struct AcceptedStatus {
    before: Value,
    conditions: Vec<Value>,
    names: Value,
    versions: Vec<String>,
}

impl AcceptedStatus {
    /// Status of the CRD; `None` if it is up to date.
    pub(crate) fn new(crd: Value, conflict: Option<&str>) -> Option<Self> {
        let known = crd.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let expected = conditions(conflict);
        let names = crd.pointer("/spec/names").cloned().unwrap_or_default();
        let same =
            |w: &Value| known.iter().find(|k| k["type"] == w["type"] && k["status"] == w["status"]).cloned();
        let is_settled = expected.iter().all(|w| same(w).is_some());
        let stored_now = initial_status(crd.as_object().unwrap_or(&Map::new()))["storedVersions"].clone();
        let mut versions = strings(crd.pointer("/status/storedVersions"));
        let missing: Vec<String> =
            strings(Some(&stored_now)).into_iter().filter(|v| !versions.contains(v)).collect();
        if is_settled && missing.is_empty() && crd.pointer("/status/acceptedNames") == Some(&names) {
            return None;
        }
        versions.extend(missing);
        let kept = known.iter().filter(|k| expected.iter().all(|w| k["type"] != w["type"])).cloned();
        let fresh = expected.iter().map(|w| same(w).unwrap_or_else(|| w.clone()));
        let conditions: Vec<Value> = fresh.chain(kept).collect();
        let names = if conflict.is_none() { names } else { json!({"plural": "", "kind": ""}) };
        Some(Self { before: crd, conditions, names, versions })
    }

    /// Writes the status into the CRD.
    pub(crate) fn write(&self, crd: &mut Value) {
        crd["status"]["conditions"] = self.conditions.clone().into();
        crd["status"]["acceptedNames"] = self.names.clone();
        crd["status"]["storedVersions"] = self.versions.clone().into();
        track_status_fields(crd, &self.before);
    }
}

/// Conditions of a CRD.
fn conditions(conflict: Option<&str>) -> [Value; 2] {
    let condition = |kind: &str, good: bool, reason: &str, message: &str| {
        json!({"type": kind, "status": if good { "True" } else { "False" }, "lastTransitionTime": formats::now(),
            "reason": reason, "message": message})
    };
    match conflict {
        None => [
            condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
            condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        Some(message) => [
            condition("NamesAccepted", false, "NameConflict", message),
            condition("Established", false, "NotAccepted", "not all names are accepted"),
        ],
    }
}

/// Updates the managed fields: the status belongs to `kube-apiserver`.
fn track_status_fields(crd: &mut Value, before: &Value) {
    let schema = crate::scheme::builtin::schema("apiextensions.v1.CustomResourceDefinition");
    let mut changes = field_set::Comparison::default();
    field_set::compare(Some(before), Some(crd), &schema, &mut Vec::new(), &mut changes);
    for set in [&mut changes.added, &mut changes.modified, &mut changes.removed] {
        field_set::strip_unmanaged(set, "f:spec");
        // Set when the CRD was created.
        set.retain(|path| path.get(1).is_none_or(|p| **p != *"f:storedVersions"));
    }
    let entry = managed_fields::ManagedFieldsEntry {
        manager: "kube-apiserver".into(),
        apply: false,
        api_version: "apiextensions.k8s.io/v1".into(),
        time: formats::now(),
        subresource: "status".into(),
        set: field_set::Set::new(),
    };
    let entries =
        before.get("metadata").and_then(Value::as_object).map(managed_fields::read).unwrap_or_default();
    if let Some(meta) = crd.get_mut("metadata").and_then(Value::as_object_mut) {
        managed_fields::write(meta, managed_fields::update(entries, &changes, entry));
    }
}

/// Registry without the resources of a CRD.
pub(crate) fn unregistered(registry: &Registry, crd: &str) -> Registry {
    let mut out = registry.clone();
    for group in out.groups.values_mut() {
        for (_, resources) in &mut group.versions {
            resources.retain(|_, r| r.custom.as_ref().is_none_or(|c| c.crd != crd));
        }
        group.versions.retain(|(_, resources)| !resources.is_empty());
    }
    out.groups.retain(|_, group| !group.versions.is_empty());
    out.order.retain(|name| out.groups.contains_key(name));
    out
}

/// Tables of the resources of a CRD.
pub(crate) fn tables(registry: &Registry, crd: &str) -> Vec<Arc<str>> {
    registry
        .all()
        .filter(|r| r.custom.as_ref().is_some_and(|c| c.crd == crd))
        .map(|r| r.store_key.clone())
        .collect()
}
