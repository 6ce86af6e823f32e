//! CRDs: defaults, names, status, and their resources in the registry.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::apply::field_set;
use crate::apply::managed_fields;
use crate::base::json::{member_text, strings};
use crate::schema::formats;
use crate::scheme::from_crd::{self, resources_of};
use crate::scheme::resources::Registry;

mod conversion;
mod go_schema;
pub(crate) mod keywords;
mod rules;
mod schema_defaults;
mod structural;
mod subschemas;
pub(crate) mod validation;
mod versions;

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
    let service = spec.get_mut("conversion").and_then(|it| it.pointer_mut("/webhook/clientConfig/service"));
    if let Some(service) = service.and_then(Value::as_object_mut) {
        service.entry("port").or_insert_with(|| 443.into());
    }
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            drop_empty_keywords(schema);
        }
    }
}

/// Drops the empty values that Go does not encode.
fn drop_empty_keywords(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    map.retain(|key, value| match (key.as_str(), value) {
        (_, Value::Null) => false,
        // The last four are not valid if they are empty.
        (
            "default"
            | "example"
            | "x-kubernetes-preserve-unknown-fields"
            | "additionalProperties"
            | "$ref"
            | "x-kubernetes-list-type"
            | "x-kubernetes-map-type"
            | "dependencies",
            _,
        ) => true,
        (_, Value::Bool(is_set)) => *is_set,
        (_, Value::String(text)) => !text.is_empty(),
        (_, Value::Array(list)) => !list.is_empty(),
        ("properties" | "patternProperties" | "definitions", Value::Object(members)) => !members.is_empty(),
        _ => true,
    });
    for (key, value) in map.iter_mut() {
        match (key.as_str(), value) {
            ("properties", Value::Object(members)) => members.values_mut().for_each(drop_empty_keywords),
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => {
                list.iter_mut().for_each(drop_empty_keywords);
            }
            ("not" | "items" | "additionalProperties", child) => drop_empty_keywords(child),
            _ => {}
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
        .take(1)
        .collect();
    json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored})
}

/// Registry with the resources of a created or changed CRD. Returns the name conflict as well, if there is one.
pub(crate) fn registered(registry: &Registry, name: &str, crd: &Value) -> (Registry, Option<NameConflict>) {
    let mut registry = unregistered(registry, name);
    let conflict = conflicting_names(&registry, &crd["spec"]);
    if conflict.is_none() {
        for resource in resources_of(crd) {
            registry.add(resource);
        }
        from_crd::sort(&mut registry);
    }
    (registry, conflict)
}

/// Names of a CRD that other kinds of its group have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameConflict {
    /// Reason and message of the condition: those of the last conflict.
    reason: &'static str,
    message: String,
    /// Members of `spec.names` that are in conflict.
    members: Vec<&'static str>,
}

/// The names that another kind of the group has.
fn conflicting_names(registry: &Registry, spec: &Value) -> Option<NameConflict> {
    let names = spec.get("names")?;
    let found = registry.groups.get(member_text(spec, "group"))?;
    let others: Vec<_> = found.versions.iter().flat_map(|(_, r)| r.values()).collect();
    let is_resource = |name: &str| {
        let is_name = |r: &&std::sync::Arc<crate::scheme::resources::Resource>| {
            r.plural == name || r.singular == name || r.short_names.iter().any(|s| s == name)
        };
        others.iter().any(is_name)
    };
    let is_kind = |name: &str| others.iter().any(|r| r.kind == name || r.list_kind == name);
    let mut out = NameConflict::default();
    let mut report = |member: &'static str, reason: &'static str, message: String| {
        out.members.push(member);
        (out.reason, out.message) = (reason, message);
    };
    let in_use = |name: &str| format!("\"{name}\" is already in use");
    let text = |member: &str| member_text(names, member);
    for (member, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        if !text(member).is_empty() && is_resource(text(member)) {
            report(member, reason, in_use(text(member)));
        }
    }
    let short = strings(names.get("shortNames"));
    let taken: Vec<String> = short.iter().filter(|s| is_resource(s)).map(|s| in_use(s)).collect();
    match taken.as_slice() {
        [] => {}
        [one] => report("shortNames", "ShortNamesConflict", one.clone()),
        many => report("shortNames", "ShortNamesConflict", format!("[{}]", many.join(", "))),
    }
    for (member, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        if !text(member).is_empty() && is_kind(text(member)) {
            report(member, reason, in_use(text(member)));
        }
    }
    (!out.members.is_empty()).then_some(out)
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
    pub(crate) fn new(crd: Value, conflict: Option<&NameConflict>) -> Option<Self> {
        let known = crd.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let expected = conditions(&crd, conflict);
        let mut names = crd.pointer("/spec/names").cloned().unwrap_or_default();
        for member in conflict.map(|c| c.members.as_slice()).unwrap_or_default() {
            if matches!(*member, "plural" | "kind") {
                names[*member] = "".into();
            } else if let Some(map) = names.as_object_mut() {
                map.shift_remove(*member);
            }
        }
        let same = |w: &Value| {
            known
                .iter()
                .find(|k| ["type", "status", "reason", "message"].iter().all(|m| k[*m] == w[*m]))
                .cloned()
        };
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
fn conditions(crd: &Value, conflict: Option<&NameConflict>) -> Vec<Value> {
    let condition = |kind: &str, good: bool, reason: &str, message: &str| {
        json!({"type": kind, "status": if good { "True" } else { "False" }, "lastTransitionTime": formats::now(),
            "reason": reason, "message": message})
    };
    let approved = validation::approval(crd).map(|(good, reason, message)| {
        condition("KubernetesAPIApprovalPolicyConformant", good, reason, &message)
    });
    let names = match conflict {
        None => [
            condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
            condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        Some(names) => [
            condition("NamesAccepted", false, names.reason, &names.message),
            condition("Established", false, "NotAccepted", "not all names are accepted"),
        ],
    };
    approved.into_iter().chain(names).collect()
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
    let api_version = "apiextensions.k8s.io/v1".to_owned();
    let changes = [(api_version.clone(), changes)].into();
    let entry = managed_fields::ManagedFieldsEntry {
        manager: "kube-apiserver".into(),
        apply: false,
        api_version,
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
pub(crate) fn tables(registry: &Registry, crd: &str) -> BTreeSet<Arc<str>> {
    registry
        .all()
        .filter(|r| r.custom.as_ref().is_some_and(|c| c.crd == crd))
        .map(|r| r.store_key.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(property: &Value) -> Value {
        json!({"spec": {"names": {"kind": "Thing"},
            "versions": [{"schema": {"openAPIV3Schema": {"type": "object", "properties": {"p": property}}}}]}})
    }

    #[test]
    fn keywords_that_go_does_not_encode_are_dropped() {
        let mut value = crd(
            &json!({"type": "array", "nullable": false, "title": "", "enum": [], "properties": {},
            "items": {"required": [], "type": "object", "default": {}}, "x-kubernetes-preserve-unknown-fields": false}),
        );
        fill_defaults(&mut value);
        let kept = &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["p"];
        assert_eq!(
            *kept,
            json!({"type": "array", "items": {"type": "object", "default": {}}, "x-kubernetes-preserve-unknown-fields": false})
        );
    }

    #[test]
    fn additional_properties_are_a_schema_or_a_boolean() {
        for (allowed, is_valid) in
            [(json!({"type": "string"}), true), (json!(false), true), (json!("1"), false), (json!(1), false)]
        {
            let property = json!({"type": "object", "additionalProperties": allowed});
            let expected = if is_valid { Ok(()) } else { Err("boolean or JSON schema expected".to_owned()) };
            assert_eq!(keywords::decode(&mut crd(&property), &mut Vec::new()), expected, "{property}");
        }
    }

    #[test]
    fn keywords_are_decoded_by_their_types() {
        let path = "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties";
        for (property, expected) in [
            (json!({"type": 5}), format!("number into Go struct field {path}.type of type string")),
            (
                json!({"items": {"maxLength": "5"}}),
                format!("string into Go struct field {path}.items.maxLength of type int64"),
            ),
            (
                json!({"properties": {"a": "x"}}),
                format!("string into Go struct field {path}.properties of type v1.JSONSchemaProps"),
            ),
        ] {
            let error = keywords::decode(&mut crd(&property), &mut Vec::new());
            assert_eq!(error, Err(format!("json: cannot unmarshal {expected}")), "{property}");
        }
        let mut value = crd(&json!({"type": "integer", "maximum": 9_223_372_036_854_774_807_i64}));
        assert_eq!(keywords::decode(&mut value, &mut Vec::new()), Ok(()));
        let kept = &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["p"]["maximum"];
        assert_eq!(*kept, 9_223_372_036_854_775_000_i64);
        let mut value = crd(&json!({"type": "string", "items": "1", "unknown": 1, "required": [null],
            "x-kubernetes-validations": [{"rule": "true", "message": "", "reason": null}]}));
        let mut unknown = Vec::new();
        assert_eq!(keywords::decode(&mut value, &mut unknown), Ok(()));
        let kept = &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["p"];
        let expected =
            json!({"type": "string", "required": [""], "x-kubernetes-validations": [{"rule": "true"}]});
        assert_eq!(*kept, expected);
        assert_eq!(unknown, ["spec.versions[0].schema.openAPIV3Schema.properties.p.unknown"]);
        // The decoders of these keywords do not report them.
        for below in [json!({"items": {"unknown": 1}}), json!({"additionalProperties": {"unknown": 1}})] {
            let mut unknown = Vec::new();
            assert_eq!(keywords::decode(&mut crd(&below), &mut unknown), Ok(()));
            assert_eq!(unknown, Vec::<String>::new(), "{below}");
        }
    }
}
