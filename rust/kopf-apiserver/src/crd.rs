//! Declared kinds: custom resource definitions appear among the served resources, change, and vanish.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::fields;
use crate::kinds::{ALL_VERBS, Registry, Resource, Subresource, api_version, store_key};
use crate::managers;
use crate::schema::{Schema, cel, formats, strings};
use crate::status::Cause;
use crate::store::Stored;

pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What a declared kind has beyond a built-in one.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// The definition's name.
    pub(crate) definition: String,
    pub(crate) schema: Arc<Schema>,
    /// The schema as it was declared, for who wants to read it.
    pub(crate) published: Value,
    /// The schema with the metadata's own.
    pub(crate) managed: Arc<Schema>,
    /// Whether the schema has rules anywhere.
    pub(crate) ruled: bool,
    pub(crate) columns: Vec<Value>,
    pub(crate) selectable: Vec<String>,
    pub(crate) scale: Option<Arc<ScalePaths>>,
}

#[derive(Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The definition's defaults: names and the conversion.
pub(crate) fn fill(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !kind.is_empty() {
            names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
            names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
        }
    }
}

/// What a new definition knows of itself before it is accepted.
pub(crate) fn fresh_status(definition: &Map<String, Value>) -> Value {
    let versions = definition.get("spec").and_then(|s| s.get("versions")).and_then(Value::as_array);
    let stored: Vec<&str> = versions
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == Value::Bool(true))
        .map(|v| text(v, "name"))
        .collect();
    json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored})
}

/// Complaints about a definition.
pub(crate) fn validate(definition: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    let names = spec.get("names").unwrap_or(&Value::Null);
    let (group, plural) = (text(spec, "group"), text(names, "plural"));
    let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let wanted = format!("{plural}.{group}");
    if name != wanted {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        out.push(Cause::invalid("metadata.name", &name.into(), detail));
    }
    if group.is_empty() {
        out.push(Cause::required("spec.group", ""));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        out.push(Cause::invalid("spec.group", &group.into(), detail));
    }
    if text(spec, "scope").is_empty() {
        out.push(Cause::required("spec.scope", ""));
    } else if !matches!(text(spec, "scope"), "Namespaced" | "Cluster") {
        let known = ["Cluster", "Namespaced"].map(str::to_owned);
        out.push(Cause::unsupported("spec.scope", &text(spec, "scope").into(), &known));
    }
    let versions = spec.get("versions").and_then(Value::as_array).cloned().unwrap_or_default();
    if versions.iter().filter(|v| v["storage"] == Value::Bool(true)).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        out.push(Cause::invalid("spec.versions", &Value::from(versions.clone()), detail));
    }
    for (i, version) in versions.iter().enumerate() {
        validate_version(version, &format!("spec.versions[{i}]"), versions.len() == 1, &mut out);
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        let value = text(names, key);
        if value.is_empty() {
            out.push(Cause::required(format!("spec.names.{key}"), ""));
        } else if !crate::meta::is_label_1035(&value.to_lowercase()) {
            let detail = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                          character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                          validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
            out.push(Cause::invalid(format!("spec.names.{key}"), &value.into(), detail));
        }
    }
    out
}

fn validate_version(version: &Value, path: &str, alone: bool, out: &mut Vec<Cause>) {
    let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
        out.push(Cause::required(format!("{path}.schema.openAPIV3Schema"), ""));
        return;
    };
    // With one version the complaint names the older place of the schema.
    let path = if alone {
        "spec.validation.openAPIV3Schema".to_owned()
    } else {
        format!("{path}.schema.openAPIV3Schema")
    };
    if text(schema, "type").is_empty() {
        out.push(Cause::required(format!("{path}.type"), "must not be empty at the root"));
    } else if text(schema, "type") != "object" {
        out.push(Cause::invalid(format!("{path}.type"), &schema["type"], "must be object at the root"));
    }
    structural(schema, &path, out);
}

/// A schema must say of every part what it is.
fn structural(schema: &Value, path: &str, out: &mut Vec<Cause>) {
    let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
    if let Some(error) =
        schema.get("pattern").and_then(Value::as_str).and_then(|p| regex::Regex::new(p).err())
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        out.push(Cause::invalid(format!("{path}.pattern"), &schema["pattern"], &detail));
    }
    for (i, rule) in
        schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        if let Some((rule, error)) = cel::Rule::from_json(rule).compile_error() {
            let detail = format!("compilation failed: {error}");
            out.push(Cause::invalid(
                format!("{path}.x-kubernetes-validations[{i}].rule"),
                &rule.into(),
                &detail,
            ));
        }
    }
    for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let below = format!("{path}.properties[{name}]");
        typed(child, &below, out);
        structural(child, &below, out);
    }
    if let Some(items) = schema.get("items") {
        typed(items, &format!("{path}.items"), out);
        structural(items, &format!("{path}.items"), out);
    } else if text(schema, "type") == "array" && !flag("x-kubernetes-preserve-unknown-fields") {
        out.push(Cause::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(additional @ Value::Object(_)) = schema.get("additionalProperties") {
        typed(additional, &format!("{path}.additionalProperties"), out);
        structural(additional, &format!("{path}.additionalProperties"), out);
    }
}

fn typed(schema: &Value, path: &str, out: &mut Vec<Cause>) {
    let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
    if text(schema, "type").is_empty()
        && !flag("x-kubernetes-int-or-string")
        && !flag("x-kubernetes-preserve-unknown-fields")
    {
        out.push(Cause::required(format!("{path}.type"), "must not be empty for specified object fields"));
    }
}

/// Brings the served resources in line with a definition that appeared or changed.
pub(crate) fn changed(cluster: &Cluster, resource: &Resource, stored: &Stored) {
    let value = stored.value();
    let mut registry = without(&cluster.registry(), &stored.name);
    let clash = taken(&registry, &value["spec"]);
    if clash.is_none() {
        for resource in resources_of(&value) {
            registry.add(resource);
        }
    }
    cluster.set_registry(registry);
    accept(cluster, resource, stored, clash.as_deref());
}

/// Names that another kind of the same group has already.
fn taken(registry: &Registry, spec: &Value) -> Option<String> {
    let group = text(spec, "group");
    let names = spec.get("names")?;
    let found = registry.groups.get(group)?;
    let all = found.versions.iter().flat_map(|(_, r)| r.values());
    for other in all {
        if other.plural == text(names, "plural") {
            return Some(format!("\"{}\" is already in use", other.plural));
        }
        if other.kind == text(names, "kind") {
            return Some(format!("\"{}\" is already in use", other.kind));
        }
    }
    None
}

/// Sets the conditions by which clients know that the kind is served.
fn accept(cluster: &Cluster, resource: &Resource, stored: &Stored, clash: Option<&str>) {
    let value = stored.value();
    let condition = |kind: &str, good: bool, reason: &str, message: &str| {
        json!({"type": kind, "status": if good { "True" } else { "False" }, "lastTransitionTime": formats::now(),
            "reason": reason, "message": message})
    };
    let wanted = match clash {
        None => [
            condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
            condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        Some(message) => [
            condition("NamesAccepted", false, "NameConflict", message),
            condition("Established", false, "NotAccepted", "not all names are accepted"),
        ],
    };
    let names = value.pointer("/spec/names").cloned().unwrap_or_default();
    let known = value.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let settled =
        wanted.iter().all(|w| known.iter().any(|k| k["type"] == w["type"] && k["status"] == w["status"]));
    let stored_now = fresh_status(value.as_object().unwrap_or(&Map::new()))["storedVersions"].clone();
    let mut versions = strings(value.pointer("/status/storedVersions"));
    let missing: Vec<String> =
        strings(Some(&stored_now)).into_iter().filter(|v| !versions.contains(v)).collect();
    if settled && missing.is_empty() && value.pointer("/status/acceptedNames") == Some(&names) {
        return;
    }
    versions.extend(missing);
    cluster.edit(resource, "", &stored.name, |definition| {
        let kept = known.iter().filter(|k| wanted.iter().all(|w| k["type"] != w["type"])).cloned();
        let same =
            |w: &Value| known.iter().find(|k| k["type"] == w["type"] && k["status"] == w["status"]).cloned();
        let fresh = wanted.iter().map(|w| same(w).unwrap_or_else(|| w.clone()));
        let conditions: Vec<Value> = fresh.chain(kept).collect();
        definition["status"]["conditions"] = conditions.into();
        definition["status"]["acceptedNames"] =
            if clash.is_none() { names.clone() } else { json!({"plural": "", "kind": ""}) };
        definition["status"]["storedVersions"] = versions.clone().into();
        book_status(definition, &value);
        true
    });
}

/// The status is the server's own field.
fn book_status(definition: &mut Value, before: &Value) {
    let schema = crate::builtin::schema("apiextensions.v1.CustomResourceDefinition");
    let mut changes = fields::Comparison::default();
    fields::compare(Some(before), Some(definition), &schema, &mut Vec::new(), &mut changes);
    for set in [&mut changes.added, &mut changes.modified, &mut changes.removed] {
        fields::strip(set, "f:spec");
        // Already there when the definition was made.
        set.retain(|path| path.get(1).is_none_or(|p| **p != *"f:storedVersions"));
    }
    let who = managers::Entry {
        manager: "kube-apiserver".into(),
        apply: false,
        api_version: "apiextensions.k8s.io/v1".into(),
        time: formats::now(),
        subresource: "status".into(),
        set: fields::Set::new(),
    };
    let entries = before.get("metadata").and_then(Value::as_object).map(managers::read).unwrap_or_default();
    if let Some(meta) = definition.get_mut("metadata").and_then(Value::as_object_mut) {
        managers::write(meta, managers::book(entries, &changes, who));
    }
}

/// The registry without what a definition brought.
fn without(registry: &Registry, definition: &str) -> Registry {
    let mut out = registry.clone();
    for group in out.groups.values_mut() {
        for (_, resources) in &mut group.versions {
            resources.retain(|_, r| r.custom.as_ref().is_none_or(|c| c.definition != definition));
        }
        group.versions.retain(|(_, resources)| !resources.is_empty());
    }
    out.groups.retain(|_, group| !group.versions.is_empty());
    out.order.retain(|name| out.groups.contains_key(name));
    out
}

/// Takes a definition's kind out of service.
pub(crate) fn withdraw(cluster: &Cluster, definition: &str) {
    let registry = cluster.registry();
    let tables: Vec<Arc<str>> = registry
        .all()
        .filter(|r| r.custom.as_ref().is_some_and(|c| c.definition == definition))
        .map(|r| r.store_key.clone())
        .collect();
    cluster.set_registry(without(&registry, definition));
    for table in tables {
        cluster.store.drop_table(&table);
    }
}

/// Newest first, stable before beta before alpha, as discovery prefers them.
fn priority(version: &str) -> (u8, u64, u64) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest.get(..digits).and_then(|d| d.parse().ok()).unwrap_or(0);
    let tail = rest.get(digits..).unwrap_or_default();
    let (rank, number) = if tail.is_empty() {
        (3, "0")
    } else if let Some(number) = tail.strip_prefix("beta") {
        (2, number)
    } else if let Some(number) = tail.strip_prefix("alpha") {
        (1, number)
    } else {
        (0, "0")
    };
    (rank, major, number.parse().unwrap_or(0))
}

fn resources_of(definition: &Value) -> Vec<Resource> {
    let spec = &definition["spec"];
    let mut versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    versions.sort_by_key(|v| std::cmp::Reverse(priority(text(v, "name"))));
    let storage = versions.iter().find(|v| v["storage"] == Value::Bool(true)).map_or("", |v| text(v, "name"));
    let served = versions.iter().filter(|v| v["served"] == Value::Bool(true));
    served.map(|version| resource_of(definition, spec, version, storage)).collect()
}

fn resource_of(definition: &Value, spec: &Value, version: &Value, storage: &str) -> Resource {
    let names = &spec["names"];
    let owned = |key: &str| text(names, key).to_owned();
    let (group, plural) = (text(spec, "group").to_owned(), owned("plural"));
    let verbs = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let mut subresources = Vec::new();
    let declared = version.get("subresources").unwrap_or(&Value::Null);
    if declared.get("status").is_some() {
        subresources.push(Subresource {
            name: "status".into(),
            verbs: verbs(&["get", "patch", "update"]),
            kind: None,
        });
    }
    if declared.get("scale").is_some() {
        let kind = Some(("autoscaling".into(), "v1".into(), "Scale".into()));
        subresources.push(Subresource {
            name: "scale".into(),
            verbs: verbs(&["get", "patch", "update"]),
            kind,
        });
    }
    let scale = declared.get("scale").map(|s| {
        let selector = s.get("labelSelectorPath").and_then(Value::as_str).map(str::to_owned);
        Arc::new(ScalePaths {
            spec: text(s, "specReplicasPath").into(),
            status: text(s, "statusReplicasPath").into(),
            selector,
        })
    });
    let schema = version.pointer("/schema/openAPIV3Schema").map_or_else(Schema::anything, Schema::from_json);
    let mut managed = schema.clone();
    managed.properties.insert("metadata".into(), crate::builtin::schema("meta.v1.ObjectMeta"));
    let selectable = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    Resource {
        store_key: store_key(&group, &plural).into(),
        storage_api_version: api_version(&group, storage),
        version: text(version, "name").to_owned(),
        singular: owned("singular"),
        kind: owned("kind"),
        list_kind: owned("listKind"),
        short_names: strings(names.get("shortNames")),
        categories: strings(names.get("categories")),
        namespaced: text(spec, "scope") == "Namespaced",
        verbs: verbs(&ALL_VERBS),
        subresources,
        type_name: String::new(),
        custom: Some(Arc::new(CustomVersion {
            definition: definition
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            published: version
                .pointer("/schema/openAPIV3Schema")
                .cloned()
                .unwrap_or_else(|| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
            managed: Arc::new(managed),
            ruled: crate::schema::cel::has_rules(&schema),
            schema: Arc::new(schema),
            columns: version
                .get("additionalPrinterColumns")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            selectable: selectable.map(|f| text(f, "jsonPath").trim_start_matches('.').to_owned()).collect(),
            scale,
        })),
        group,
        plural,
    }
}
