//! Resources of a CRD.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::base::json::{member_text, strings};
use crate::base::names::api_version;
use crate::schema::{ListType, Schema, Type};
use crate::scheme::custom::{CustomVersion, ScalePaths};
use crate::scheme::resources::{ALL_VERBS, Registry, Resource, Subresource, store_key};

/// Sort key of versions: stable before beta before alpha, then newest first.
fn priority(version: &str) -> (u8, u64, u64) {
    parsed_priority(version).unwrap_or_default()
}

/// The key of a name such as `v1` or `v2beta3`; other names have none.
fn parsed_priority(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let (major, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    let (rank, number) = match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
        _ if tail.is_empty() => (3, "0"),
        (Some(number), _) => (2, number),
        (_, Some(number)) => (1, number),
        _ => return None,
    };
    Some((rank, major.parse().ok()?, number.parse().ok()?))
}

/// Sorts the groups of CRDs by their names, and the versions of each one by priority. Those with built-in resources
/// come first, in their order.
pub(crate) fn sort(registry: &mut Registry) {
    type Resources = BTreeMap<String, Arc<Resource>>;
    let is_custom = |resources: &Resources| resources.values().all(|resource| resource.custom.is_some());
    for group in registry.groups.values_mut() {
        group.versions.sort_by_cached_key(|(version, resources)| {
            is_custom(resources).then(|| (Reverse(priority(version)), version.clone()))
        });
    }
    let groups = &registry.groups;
    let is_custom_group =
        |name: &str| groups.get(name).is_some_and(|group| group.versions.iter().all(|(_, r)| is_custom(r)));
    registry.order.sort_by_cached_key(|name| is_custom_group(name).then(|| name.clone()));
}

/// Schemas by the `apiVersion` of their versions.
type Schemas = BTreeMap<String, Arc<Schema>>;

/// Values that the versions of a CRD share.
struct Shared {
    schemas: Arc<Schemas>,
    /// With the schema of the metadata.
    managed: Arc<Schemas>,
    replicas_paths: Arc<BTreeMap<String, Option<String>>>,
}

/// Resources of the served versions.
pub(crate) fn resources_of(crd: &Value) -> Vec<Resource> {
    let spec = &crd["spec"];
    let mut versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    versions.sort_by_key(|v| Reverse(priority(member_text(v, "name"))));
    let storage =
        versions.iter().find(|v| v["storage"] == Value::Bool(true)).map_or("", |v| member_text(v, "name"));
    let group = member_text(spec, "group");
    let schemas: Schemas = versions
        .iter()
        .map(|version| (api_version(group, member_text(version, "name")), Arc::new(schema_of(version))))
        .collect();
    let managed: Schemas =
        schemas.iter().map(|(version, schema)| (version.clone(), Arc::new(managed_schema(schema)))).collect();
    let replicas_paths = versions.iter().map(|version| {
        let path = version.pointer("/subresources/scale/specReplicasPath").and_then(Value::as_str);
        (api_version(group, member_text(version, "name")), path.map(str::to_owned))
    });
    let shared = Shared {
        schemas: Arc::new(schemas),
        managed: Arc::new(managed),
        replicas_paths: Arc::new(replicas_paths.collect()),
    };
    let served = versions.iter().filter(|v| v["served"] == Value::Bool(true));
    let resource =
        |version: &&Value| resource_of(crd, version, storage, deprecation(spec, version, &versions), &shared);
    served.map(resource).collect()
}

/// The warning about a deprecated version. It names the newest version that is not deprecated.
fn deprecation(spec: &Value, version: &Value, versions: &[&Value]) -> Option<String> {
    if version["deprecated"] != Value::Bool(true) {
        return None;
    }
    if let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) {
        return Some(warning.to_owned());
    }
    let (group, kind) = (member_text(spec, "group"), member_text(&spec["names"], "kind"));
    let name = |version: &Value| format!("{group}/{} {kind}", member_text(version, "name"));
    let is_usable = |v: &&&Value| v["served"] == Value::Bool(true) && v["deprecated"] != Value::Bool(true);
    let newer = versions
        .iter()
        .find(is_usable)
        .filter(|newer| priority(member_text(newer, "name")) > priority(member_text(version, "name")));
    let instead = newer.map(|newer| format!("; use {}", name(newer))).unwrap_or_default();
    Some(format!("{} is deprecated{instead}", name(version)))
}

/// The conversion webhook of a CRD.
fn conversion_webhook(spec: &Value) -> Option<Arc<Value>> {
    let conversion = spec.get("conversion").filter(|it| member_text(it, "strategy") == "Webhook")?;
    conversion.get("webhook").cloned().map(Arc::new)
}

fn scale_paths(scale: &Value) -> Arc<ScalePaths> {
    let selector = scale.get("labelSelectorPath").and_then(Value::as_str).map(str::to_owned);
    Arc::new(ScalePaths {
        spec: member_text(scale, "specReplicasPath").into(),
        status: member_text(scale, "statusReplicasPath").into(),
        selector,
    })
}

fn is_terminating(crd: &Value) -> bool {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Terminating" && it["status"] == "True")
}

fn schema_of(version: &Value) -> Schema {
    version.pointer("/schema/openAPIV3Schema").map_or_else(Schema::any, Schema::from_json)
}

/// A schema with that of the metadata.
fn managed_schema(schema: &Schema) -> Schema {
    let mut managed = with_embedded_metadata(schema);
    managed.properties.insert("metadata".into(), crate::scheme::builtin::schema("meta.v1.ObjectMeta"));
    managed
}

fn resource_of(
    crd: &Value,
    version: &Value,
    storage: &str,
    deprecation: Option<String>,
    shared: &Shared,
) -> Resource {
    let spec = &crd["spec"];
    let names = &spec["names"];
    let owned = |key: &str| member_text(names, key).to_owned();
    let (group, plural) = (member_text(spec, "group").to_owned(), owned("plural"));
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
    let own_version = api_version(&group, member_text(version, "name"));
    let schema = shared.schemas.get(&own_version).cloned().unwrap_or_default();
    let managed = shared.managed.get(&own_version);
    let selectable = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    Resource {
        store_key: store_key(&group, &plural).into(),
        storage_api_version: api_version(&group, storage),
        version: member_text(version, "name").to_owned(),
        singular: owned("singular"),
        kind: owned("kind"),
        list_kind: owned("listKind"),
        short_names: strings(names.get("shortNames")),
        categories: strings(names.get("categories")),
        namespaced: member_text(spec, "scope") == "Namespaced",
        verbs: verbs(&ALL_VERBS),
        subresources,
        type_name: String::new(),
        custom: Some(Arc::new(CustomVersion {
            is_terminating: is_terminating(crd),
            conversion: conversion_webhook(spec),
            crd: crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            published: version
                .pointer("/schema/openAPIV3Schema")
                .cloned()
                .unwrap_or_else(|| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
            managed: managed.cloned().unwrap_or_else(|| Arc::new(managed_schema(&schema))),
            managed_versions: shared.managed.clone(),
            has_rules: crate::schema::cel::has_rules(&schema),
            has_sets_of_objects: has_sets_of_objects(&schema),
            schema,
            schemas: shared.schemas.clone(),
            columns: version
                .get("additionalPrinterColumns")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            selectable: selectable
                .map(|f| member_text(f, "jsonPath").trim_start_matches('.').to_owned())
                .collect(),
            scale: declared.get("scale").map(scale_paths),
            replicas_paths: shared.replicas_paths.clone(),
            deprecation,
        })),
        group,
        plural,
    }
}

fn has_sets_of_objects(schema: &Schema) -> bool {
    let is_object = |items: &Schema| matches!(items.kind, Type::Object | Type::Array | Type::Any);
    let is_one = schema.list == ListType::Set && schema.items.as_deref().is_some_and(is_object);
    is_one
        || schema.properties.values().any(|child| has_sets_of_objects(child))
        || schema.items.as_deref().is_some_and(has_sets_of_objects)
        || schema.additional.as_deref().is_some_and(has_sets_of_objects)
}

/// The schema with the metadata of embedded objects, which CRDs omit or restrict.
fn with_embedded_metadata(schema: &Schema) -> Schema {
    let mut out = schema.clone();
    let below = |s: &Arc<Schema>| Arc::new(with_embedded_metadata(s));
    out.items = schema.items.as_ref().map(below);
    out.additional = schema.additional.as_ref().map(below);
    out.properties = schema.properties.iter().map(|(name, s)| (name.clone(), below(s))).collect();
    if schema.embedded {
        out.properties.insert("metadata".into(), crate::scheme::builtin::schema("meta.v1.ObjectMeta"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deprecated_versions_have_a_warning() {
        let version = |name: &str, more: Value| {
            let mut out = json!({"name": name, "served": true, "storage": name == "v2"});
            crate::patch::merge(&mut out, &more);
            out
        };
        let versions = [
            version("v2", json!({})),
            version("v1", json!({"deprecated": true})),
            version("v1beta1", json!({"deprecated": true, "deprecationWarning": "old"})),
            version("v3", json!({"deprecated": true})),
        ];
        let crd = json!({"metadata": {"name": "xs.a.dev"}, "spec": {"group": "a.dev", "versions": versions,
            "names": {"plural": "xs", "kind": "X"}}});
        let found: Vec<(String, Option<String>)> = resources_of(&crd)
            .into_iter()
            .map(|r| (r.version.clone(), r.custom.and_then(|c| c.deprecation.clone())))
            .collect();
        let expected = [
            ("v3", Some("a.dev/v3 X is deprecated")),
            ("v2", None),
            ("v1", Some("a.dev/v1 X is deprecated; use a.dev/v2 X")),
            ("v1beta1", Some("old")),
        ];
        assert_eq!(found, expected.map(|(name, text)| (name.to_owned(), text.map(str::to_owned))));
    }
}
