//! Object metadata: validation, system fields and order.

use serde_json::{Map, Value};

pub(crate) use crate::base::name_rules::{
    is_dns_1035_label, label_1035_errors, label_errors, label_value_error, qualified_name_error,
    qualified_name_errors, subdomain_errors,
};
use crate::error::status::Cause;
use crate::scheme::resources::Resource;

/// Maximum size of all annotations, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Error message for an object name.
pub(crate) fn name_error(resource: &Resource, name: &str) -> Option<String> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("rbac.authorization.k8s.io", _) => path_segment_error(name),
        ("", "namespaces" | "services") => label_errors(name).pop(),
        _ => subdomain_errors(name).pop(),
    }
}

fn path_segment_error(name: &str) -> Option<String> {
    match name {
        "." | ".." => Some(format!("may not be '{name}'")),
        _ if name.contains('/') => Some("may not contain '/'".into()),
        _ if name.contains('%') => Some("may not contain '%'".into()),
        _ => None,
    }
}

fn object<'v>(meta: &'v Value, key: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    meta.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// Field errors of the metadata of any object.
pub(crate) fn validate(resource: &Resource, meta: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("name").is_empty() {
        out.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(error) = name_error(resource, text("name")) {
        out.push(Cause::invalid("metadata.name", &text("name").into(), &error));
    }
    for (key, value) in object(meta, "labels") {
        check_label("metadata.labels", key, value, &mut out);
    }
    let mut size = 0;
    for (key, value) in object(meta, "annotations") {
        if let Some(error) = qualified_name_error(&key.to_lowercase()) {
            out.push(Cause::invalid("metadata.annotations", &key.as_str().into(), &error));
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_LIMIT {
        out.push(Cause::too_long("metadata.annotations", ANNOTATIONS_LIMIT as u64));
    }
    validate_owners(meta, &mut out);
    let core = resource.custom.is_none() && resource.group != "apiextensions.k8s.io";
    for (i, finalizer) in meta.get("finalizers").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        for error in qualified_name_errors(name) {
            out.push(Cause::invalid("metadata.finalizers", finalizer, &error));
        }
        if core && !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion" | "kubernetes") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            out.push(Cause::invalid(format!("metadata.finalizers[{i}]"), finalizer, detail));
        }
    }
    out
}

/// Checks a label of an object, a template or a selector.
pub(crate) fn check_label(path: &str, key: &str, value: &Value, out: &mut Vec<Cause>) {
    for error in qualified_name_errors(key) {
        out.push(Cause::invalid(path, &key.into(), &error));
    }
    if let Some(error) = value.as_str().and_then(label_value_error) {
        out.push(Cause::invalid(path, value, &error));
    }
}

fn validate_owners(meta: &Value, out: &mut Vec<Cause>) {
    let owners = meta.get("ownerReferences").and_then(Value::as_array);
    let mut controllers = 0;
    for owner in owners.into_iter().flatten() {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("apiVersion").is_empty() {
            out.push(Cause::invalid(
                "metadata.ownerReferences.apiVersion",
                &"".into(),
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if text(key).is_empty() {
                let field = format!("metadata.ownerReferences.{key}");
                out.push(Cause::invalid(field, &"".into(), "must not be empty"));
            }
        }
        controllers += usize::from(owner.get("controller") == Some(&Value::Bool(true)));
    }
    if controllers > 1 {
        let detail = "Only one reference can have Controller set to true";
        out.push(Cause::invalid(
            "metadata.ownerReferences",
            &Value::Array(owners.cloned().unwrap_or_default()),
            detail,
        ));
    }
}

/// Fields that only the server sets. Updates keep the stored values.
const SYSTEM_FIELDS: [&str; 6] =
    ["uid", "creationTimestamp", "selfLink", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Copies the system fields of the stored object. Returns field errors for immutable fields.
pub(crate) fn preserve_system_fields(new: &mut Map<String, Value>, old: &Map<String, Value>) -> Vec<Cause> {
    let mut out = Vec::new();
    if let (Some(given), Some(stored)) = (new.get("uid"), old.get("uid"))
        && given != stored
        && given.as_str().is_some_and(|u| !u.is_empty())
    {
        // kube-apiserver validates this twice and reports it twice.
        out.extend(vec![Cause::invalid("metadata.uid", given, "field is immutable"); 2]);
    }
    for key in SYSTEM_FIELDS {
        match old.get(key) {
            Some(value) if new.get(key) == Some(value) => None,
            Some(value) => new.insert(key.to_owned(), value.clone()),
            None => new.shift_remove(key),
        };
    }
    if old.contains_key("deletionTimestamp") {
        let stored_finalizers = crate::base::json::strings(old.get("finalizers"));
        let added: Vec<String> = crate::base::json::strings(new.get("finalizers"))
            .into_iter()
            .filter(|f| !stored_finalizers.contains(f))
            .collect();
        if !added.is_empty() {
            let listed: Vec<String> = added.iter().map(|f| format!("\"{f}\"")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                listed.join(", ")
            );
            out.extend(vec![Cause::forbidden("metadata.finalizers", &detail); 2]);
        }
    }
    out
}

/// Order of metadata members in kube-apiserver's JSON.
const MEMBER_ORDER: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Sorts the members, and reserves `resourceVersion`.
pub(crate) fn sort_members(meta: &mut Map<String, Value>) {
    meta.entry("resourceVersion").or_insert_with(|| "".into());
    let position = |key: &str| MEMBER_ORDER.iter().position(|k| *k == key);
    let sorted =
        |key: &str| meta.get(key).and_then(Value::as_object).is_none_or(|map| map.keys().is_sorted());
    if meta.keys().is_sorted_by_key(|key| position(key)) && sorted("labels") && sorted("annotations") {
        return;
    }
    let mut all: Vec<(String, Value)> = std::mem::take(meta).into_iter().collect();
    all.sort_by_key(|(key, _)| position(key));
    for (_, labels) in all.iter_mut().filter(|(key, _)| key == "labels" || key == "annotations") {
        if let Some(labels) = labels.as_object_mut() {
            labels.sort_keys();
        }
    }
    meta.extend(all);
}
