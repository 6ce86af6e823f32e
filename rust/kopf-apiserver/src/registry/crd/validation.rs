//! Validation of CRDs.

use serde_json::Value;

use super::{conversion, versions};
use crate::base::json::{member_text, strings};
use crate::error::status::Cause;
use crate::registry::meta::{self, is_dns_1035_label};

const APPROVAL: &str = "api-approved.kubernetes.io";

/// Field errors of a CRD. `old` is the stored CRD of an update.
pub(crate) fn validate(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut out = Vec::new();
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    let names = spec.get("names").unwrap_or(&Value::Null);
    validate_identity(crd, spec, old.is_none(), &mut out);
    match member_text(spec, "scope") {
        "" => out.push(Cause::required("spec.scope", "")),
        "Namespaced" | "Cluster" => {}
        other => {
            let known = ["Cluster", "Namespaced"].map(str::to_owned);
            out.push(Cause::unsupported("spec.scope", &other.into(), &known));
        }
    }
    conversion::validate(spec, &mut out);
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        out.push(Cause::invalid("spec.preserveUnknownFields", &true.into(), detail));
        if versions::have_defaults(spec) {
            let detail = "must be false in order to use defaults in the schema";
            out.push(Cause::invalid("spec.preserveUnknownFields", &true.into(), detail));
        }
    }
    versions::validate(spec, &mut out);
    versions::validate_stored(crd, &mut out);
    validate_names(names, &mut out);
    if let Some(old) = old {
        validate_update(crd, old, &mut out);
    }
    out
}

/// Validates the name and the group.
fn validate_identity(crd: &Value, spec: &Value, is_new: bool, out: &mut Vec<Cause>) {
    let (group, plural) = (member_text(spec, "group"), member_text(&spec["names"], "plural"));
    let metadata = crd.get("metadata").unwrap_or(&Value::Null);
    let name = member_text(metadata, "name");
    // The name of an existing CRD cannot change.
    if is_new && name != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        out.push(Cause::invalid("metadata.name", &name.into(), detail));
    }
    if group.is_empty() {
        out.push(Cause::required("spec.group", ""));
    } else if let Some(detail) = meta::subdomain_errors(group).first() {
        out.push(Cause::invalid("spec.group", &group.into(), detail));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        out.push(Cause::invalid("spec.group", &group.into(), detail));
    }
    if is_new && is_protected(group) {
        let approval =
            metadata.get("annotations").map_or("", |annotations| member_text(annotations, APPROVAL));
        let field = format!("metadata.annotations[{APPROVAL}]");
        if approval.is_empty() {
            let detail = format!(
                "protected groups must have approval annotation \"{APPROVAL}\", see \
                 https://github.com/kubernetes/enhancements/pull/1111"
            );
            out.push(Cause::required(field, &detail));
        } else if !is_approval(approval) {
            let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason \
                          starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111";
            out.push(Cause::invalid(field, &approval.into(), detail));
        }
    }
}

/// Whether a group belongs to the Kubernetes community.
pub(super) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group.strip_suffix(own).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

fn is_approval(text: &str) -> bool {
    text.starts_with("unapproved")
        || text.parse::<http::Uri>().is_ok_and(|url| url.scheme().is_some() && url.host().is_some())
}

/// The approval of a CRD in a protected group: the status, reason and message of its condition.
pub(super) fn approval(crd: &Value) -> Option<(bool, &'static str, String)> {
    let group = crd.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let annotations = crd.pointer("/metadata/annotations").unwrap_or(&Value::Null);
    let text = member_text(annotations, APPROVAL);
    if !is_protected(group) {
        None
    } else if text.is_empty() {
        let message = format!(
            "protected groups must have approval annotation \"{APPROVAL}\", see \
             https://github.com/kubernetes/enhancements/pull/1111"
        );
        Some((false, "MissingAnnotation", message))
    } else if text.starts_with("unapproved") {
        Some((false, "UnapprovedAnnotation", format!("not approved: \"{text}\"")))
    } else {
        Some((true, "ApprovedAnnotation", format!("approved in {text}")))
    }
}

/// The names under which objects are stored cannot change.
fn validate_update(crd: &Value, old: &Value, out: &mut Vec<Cause>) {
    let conditions = old.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let is_established =
        conditions.into_iter().any(|it| it["type"] == "Established" && it["status"] == "True");
    for (path, always) in [("group", true), ("names/plural", true), ("scope", false), ("names/kind", false)] {
        let pointer = format!("/spec/{path}");
        let (now, before) = (crd.pointer(&pointer), old.pointer(&pointer));
        if now != before && (always || is_established) {
            let field = format!("spec.{}", path.replace('/', "."));
            out.push(Cause::invalid(field, now.unwrap_or(&Value::Null), "field is immutable"));
        }
    }
}

const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                        character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                        validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

fn validate_names(names: &Value, out: &mut Vec<Cause>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        let value = member_text(names, key);
        if value.is_empty() {
            out.push(Cause::required(format!("spec.names.{key}"), ""));
        } else if !is_dns_1035_label(&value.to_lowercase()) {
            let is_mixed = matches!(key, "kind" | "listKind");
            let prefix = if is_mixed { "may have mixed case, but should otherwise match: " } else { "" };
            out.push(Cause::invalid(
                format!("spec.names.{key}"),
                &value.into(),
                &format!("{prefix}{DNS_1035}"),
            ));
        }
    }
    let (kind, list_kind) = (member_text(names, "kind"), member_text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        out.push(Cause::invalid("spec.names.listKind", &list_kind.into(), detail));
    }
    for key in ["shortNames", "categories"] {
        for (i, name) in strings(names.get(key)).iter().enumerate() {
            let field = format!("spec.names.{key}[{i}]");
            if name.len() > 63 {
                out.push(Cause::invalid(field, &name.as_str().into(), "must be no more than 63 characters"));
            } else if !is_dns_1035_label(name) {
                out.push(Cause::invalid(field, &name.as_str().into(), DNS_1035));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(group: &str, annotation: &str) -> Value {
        json!({"metadata": {"name": format!("things.{group}"), "annotations": {APPROVAL: annotation}},
            "spec": {"group": group, "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
            "status": {"storedVersions": ["v1"], "conditions": [{"type": "Established", "status": "True"}]}})
    }

    fn fields(causes: &[Cause]) -> Vec<&str> {
        causes.iter().map(|cause| cause.field.as_str()).collect()
    }

    #[test]
    fn protected_groups_need_an_approval() {
        let field = "metadata.annotations[api-approved.kubernetes.io]";
        for (group, annotation, expected) in [
            ("x.example.com", "", vec![]),
            ("x.k8s.io", "", vec![field]),
            ("x.kubernetes.io", "no", vec![field]),
            ("x.k8s.io", "https://example.com/1", vec![]),
            ("x.k8s.io", "unapproved, experimental", vec![]),
        ] {
            assert_eq!(fields(&validate(&crd(group, annotation), None)), expected, "{group} {annotation}");
        }
        assert_eq!(approval(&crd("a.example.com", "")), None);
        let approved = approval(&crd("a.k8s.io", "https://example.com/1"));
        assert_eq!(approved, Some((true, "ApprovedAnnotation", "approved in https://example.com/1".into())));
    }

    #[test]
    fn the_names_of_stored_objects_are_immutable() {
        let old = crd("x.example.com", "");
        for (pointer, value, expected) in [
            ("/spec/group", "y.example.com", vec!["spec.group"]),
            ("/spec/names/plural", "others", vec!["spec.names.plural"]),
            ("/spec/scope", "Cluster", vec!["spec.scope"]),
            ("/spec/names/kind", "Other", vec!["spec.names.kind"]),
            ("/spec/names/singular", "one", vec![]),
        ] {
            let mut new = old.clone();
            if let Some(member) = new.pointer_mut(pointer) {
                *member = value.into();
            }
            assert_eq!(fields(&validate(&new, Some(&old))), expected, "{pointer}");
        }
    }
}
