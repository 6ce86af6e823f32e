//! Object metadata: validation, system fields and order.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use crate::error::status::Cause;
use crate::scheme::resources::Resource;

/// Maximum size of all annotations, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
    start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
    end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
    character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
    '[a-z]([-a-z0-9]*[a-z0-9])?')";
#[expect(clippy::unwrap_used, reason = "the patterns are literals, and a test uses each")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

static NAME_PART_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| pattern("^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"));
static SUBDOMAIN_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"));
static LABEL_PATTERN: LazyLock<Regex> = LazyLock::new(|| pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
static LABEL_1035_PATTERN: LazyLock<Regex> = LazyLock::new(|| pattern("^[a-z]([-a-z0-9]*[a-z0-9])?$"));

/// Error message for a label value.
pub(crate) fn label_value_error(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    (!value.is_empty() && !NAME_PART_PATTERN.is_match(value)).then(|| LABEL_VALUE.to_owned())
}

/// Error messages for a qualified name. The empty name has two.
pub(crate) fn qualified_name_errors(name: &str) -> Vec<String> {
    let mut out: Vec<String> = qualified_name_error(name).into_iter().collect();
    if out.iter().any(|e| e == "name part must be non-empty") {
        out.push(NAME_PART.to_owned());
    }
    out
}

/// Error messages for a DNS-1123 label.
pub(crate) fn label_errors(text: &str) -> Vec<String> {
    label_error(text, LABEL, &LABEL_PATTERN).into_iter().collect()
}

/// Error messages for a DNS-1035 label.
pub(crate) fn label_1035_errors(text: &str) -> Vec<String> {
    label_error(text, LABEL_1035, &LABEL_1035_PATTERN).into_iter().collect()
}

/// Error messages for a DNS-1123 subdomain.
pub(crate) fn subdomain_errors(text: &str) -> Vec<String> {
    if text.len() > 253 {
        return vec!["must be no more than 253 characters".into()];
    }
    if SUBDOMAIN_PATTERN.is_match(text) { Vec::new() } else { vec![SUBDOMAIN.to_owned()] }
}

/// Error message for the key of a label or an annotation, or for a finalizer.
pub(crate) fn qualified_name_error(key: &str) -> Option<String> {
    let (prefix, name) = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => (None, (*name).to_owned()),
        [prefix, name] => (Some((*prefix).to_owned()), (*name).to_owned()),
        _ => {
            return Some(
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                 alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
                    .into(),
            );
        }
    };
    match prefix {
        Some(prefix) if prefix.is_empty() => return Some("prefix part must be non-empty".into()),
        Some(prefix) if !SUBDOMAIN_PATTERN.is_match(&prefix) => {
            return Some(format!("prefix part {SUBDOMAIN}"));
        }
        _ => {}
    }
    match name.len() {
        0 => Some("name part must be non-empty".into()),
        64.. => Some("name part must be no more than 63 bytes".into()),
        _ => (!NAME_PART_PATTERN.is_match(&name)).then(|| NAME_PART.to_owned()),
    }
}

/// Error message for an object name.
pub(crate) fn name_error(resource: &Resource, name: &str) -> Option<String> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("rbac.authorization.k8s.io", _) => path_segment_error(name),
        ("", "namespaces" | "services") => label_error(name, LABEL, &LABEL_PATTERN),
        _ if name.len() > 253 => Some("must be no more than 253 characters".into()),
        _ => (!SUBDOMAIN_PATTERN.is_match(name)).then(|| SUBDOMAIN.to_owned()),
    }
}

fn label_error(name: &str, words: &str, pattern: &Regex) -> Option<String> {
    if name.len() > 63 {
        return Some("must be no more than 63 characters".into());
    }
    (!pattern.is_match(name)).then(|| words.to_owned())
}

fn path_segment_error(name: &str) -> Option<String> {
    match name {
        "." | ".." => Some(format!("may not be '{name}'")),
        _ if name.contains('/') => Some("may not contain '/'".into()),
        _ if name.contains('%') => Some("may not contain '%'".into()),
        _ => None,
    }
}

/// Whether a string is a DNS-1035 label.
pub(crate) fn is_dns_1035_label(text: &str) -> bool {
    text.len() <= 63 && LABEL_1035_PATTERN.is_match(text)
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

/// Drops empty members, as Go's `omitempty`.
pub(crate) fn drop_empty(meta: &mut Map<String, Value>) {
    meta.retain(|_, value| match value {
        Value::Null => false,
        Value::String(s) => !s.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated() {
        for (key, good) in
            [("a", true), ("a.b/c", true), ("a/b/c", false), ("/c", false), ("A b", false), ("x.Y/z", false)]
        {
            assert_eq!(qualified_name_error(key).is_none(), good, "{key}");
        }
        assert!(label_value_error("ok-1").is_none() && label_value_error("-bad").is_some());
        assert!(label_errors("c").is_empty() && !label_errors("C").is_empty());
        assert!(is_dns_1035_label("abc") && !is_dns_1035_label("1abc"));
        assert!(SUBDOMAIN_PATTERN.is_match("a.b") && !SUBDOMAIN_PATTERN.is_match("a..b"));
    }
}
