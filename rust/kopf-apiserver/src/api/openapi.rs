//! `OpenAPI` v3 documents by group and version, and v2 in the extent that kubectl requires.
//!
//! Documents contain the types with their merge keys and the paths by which clients detect supported operations.
//! Schemas of CRDs are published unchanged. Descriptions of the main built-in kinds and fields are in
//! `builtin/descriptions.txt`.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::http::accept::Accept;
use crate::http::response::Response;
use crate::schema::{ListType, Schema, Type};
use crate::scheme::builtin;
use crate::scheme::resources::{Registry, Resource};

/// Prefix of references in v2 documents.
const V2_PREFIX: &str = "#/definitions/";

const PREFIXES: [(&str, &str); 3] = [
    ("meta.", "io.k8s.apimachinery.pkg.apis."),
    ("apiextensions.", "io.k8s.apiextensions-apiserver.pkg.apis."),
    ("apiregistration.", "io.k8s.kube-aggregator.pkg.apis."),
];

fn public_name(type_name: &str) -> String {
    let prefix =
        PREFIXES.iter().find(|(p, _)| type_name.starts_with(p)).map_or("io.k8s.api.", |(_, full)| full);
    format!("{prefix}{type_name}")
}

/// Name of a custom resource's type: the reversed group, version and kind.
fn custom_name(resource: &Resource) -> String {
    let mut parts: Vec<&str> = resource.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), resource.version, resource.kind)
}

fn type_name(resource: &Resource) -> String {
    if resource.custom.is_some() { custom_name(resource) } else { public_name(&resource.type_name) }
}

fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3` and the documents below it.
pub(crate) fn v3(cluster: &Arc<Cluster>, path: &str) -> Response {
    let registry = cluster.registry();
    let rest = path.trim_start_matches("/openapi/v3").trim_matches('/');
    let version = cluster.store.version();
    if rest.is_empty() {
        let mut paths = Map::new();
        for (name, group) in &registry.groups {
            for (v, _) in &group.versions {
                let group_version_path = group_version_path(name, v);
                let url = format!("/openapi/v3/{group_version_path}?hash={version:X}");
                paths.insert(group_version_path, json!({"serverRelativeURL": url}));
            }
        }
        return Response::json(200, &json!({"paths": paths}));
    }
    for (name, group) in &registry.groups {
        for (v, resources) in &group.versions {
            if group_version_path(name, v) == rest {
                let all: Vec<&Arc<Resource>> = resources.values().collect();
                return Response::json(200, &document(&registry, &all, "#/components/schemas/", true));
            }
        }
    }
    Response::page_not_found()
}

/// A v2 document without types, in protobuf: `swagger`, and title and version of `info`.
const EMPTY_V2_PROTOBUF: &[u8] = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.3";
/// Clients request it with an `@`, which media types cannot contain; kube-apiserver answers with a dot.
const V2_PROTOBUF_SUBTYPE: &str = "com.github.proto-openapi.spec.v2@v1.0+protobuf";
const V2_PROTOBUF_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v2`: all types in one document. In protobuf it is empty: kubectl requests it only for kinds that v3 lacks.
pub(crate) fn v2(cluster: &Arc<Cluster>, accept: &str) -> Response {
    let accept = Accept::parse(accept);
    if accept.names("application", V2_PROTOBUF_SUBTYPE) && !accept.accepts_json() {
        let mut out = Response::bytes(200, EMPTY_V2_PROTOBUF);
        out.content_type = V2_PROTOBUF_MEDIA_TYPE;
        return out;
    }
    let registry = cluster.registry();
    let all: Vec<&Arc<Resource>> = registry.all().collect();
    Response::json(200, &document(&registry, &all, V2_PREFIX, false))
}

fn document(registry: &Registry, resources: &[&Arc<Resource>], prefix: &str, v3: bool) -> Value {
    let mut schemas = Map::new();
    let mut pending: BTreeSet<String> = BTreeSet::new();
    let mut paths = Map::new();
    for resource in resources {
        let name = type_name(resource);
        let mut schema = match &resource.custom {
            Some(custom) if v3 => custom.published.clone(),
            _ => Collector { prefix, pending: &mut pending }.write(&resource.schema(), true),
        };
        if resource.custom.is_some() {
            add_type_meta(&mut schema, prefix);
            pending.insert("meta.v1.ObjectMeta".into());
        }
        schema["x-kubernetes-group-version-kind"] = gvk(resource, &resource.kind);
        schemas.insert(name.clone(), schema);
        let list = json!({"type": "object", "required": ["items"], "x-kubernetes-group-version-kind": gvk(resource, &resource.list_kind),
            "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"},
                "metadata": {"$ref": format!("{prefix}{}", public_name("meta.v1.ListMeta"))},
                "items": {"type": "array", "items": {"$ref": format!("{prefix}{name}")}}}});
        if resource.has_verb("list") {
            pending.insert("meta.v1.ListMeta".into());
            schemas.insert(format!("{name}List"), list);
        }
        add_paths(&mut paths, resource, &format!("{prefix}{name}"), v3);
    }
    let mut done: BTreeSet<String> = BTreeSet::new();
    pending.insert("meta.v1.DeleteOptions".into());
    while let Some(next) = pending.pop_first() {
        if done.insert(next.clone()) {
            let schema = builtin::schema(&next);
            let mut written = Collector { prefix, pending: &mut pending }.write(&schema, true);
            let public = public_name(&next);
            if next == "meta.v1.DeleteOptions" {
                written["x-kubernetes-group-version-kind"] = delete_options(registry);
            }
            schemas.entry(public).or_insert(written);
        }
    }
    schemas.insert(
        "io.k8s.apimachinery.pkg.apis.meta.v1.Patch".into(),
        json!({"type": "object", "description": "A patch."}),
    );
    let info = json!({"title": "Kubernetes", "version": "v1.36.3"});
    if v3 {
        json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
    } else {
        json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": schemas})
    }
}

/// Group-version-kinds of `DeleteOptions`, by which clients detect that deletions take options.
fn delete_options(registry: &Registry) -> Value {
    let mut seen = BTreeSet::new();
    let all = registry.all().filter(|r| seen.insert((r.group.clone(), r.version.clone())));
    all.map(|r| json!({"group": r.group, "version": r.version, "kind": "DeleteOptions"})).collect()
}

fn gvk(resource: &Resource, kind: &str) -> Value {
    json!([{"group": resource.group, "version": resource.version, "kind": kind}])
}

fn add_type_meta(schema: &mut Value, prefix: &str) {
    if !schema.is_object() {
        *schema = json!({"type": "object"});
    }
    if schema.get("properties").is_none() {
        schema["properties"] = json!({});
    }
    let description = |field: &str| builtin::describe_field("", field).unwrap_or_default();
    for field in ["apiVersion", "kind"] {
        schema["properties"][field] = json!({"type": "string", "description": description(field)});
    }
    let meta = json!({"$ref": format!("{prefix}{}", public_name("meta.v1.ObjectMeta"))});
    schema["properties"]["metadata"] = if prefix == V2_PREFIX {
        meta
    } else {
        json!({"description": description("metadata"), "allOf": [meta]})
    };
}

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource, reference: &str, v3: bool) {
    let base = format!("/{}", group_version_path(&resource.group, &resource.version));
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{base}{scope}/{}", resource.plural);
    let operation = |verb: &str, action: &str, kind: &str| {
        let schema = json!({"$ref": reference});
        let ok = if v3 {
            json!({"description": "OK", "content": {"application/json": {"schema": schema}}})
        } else {
            json!({"description": "OK", "schema": schema})
        };
        let mut out = json!({
            "operationId": format!("{verb}{}{}", resource.version.to_uppercase(), resource.kind),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": resource.group, "version": resource.version, "kind": kind},
            "responses": {"200": ok},
        });
        if matches!(action, "post" | "put" | "patch") {
            let parameters = ["dryRun", "fieldManager", "fieldValidation"];
            out["parameters"] = parameters
                .iter()
                .map(|name| {
                    if v3 {
                        json!({"name": name, "in": "query", "schema": {"type": "string"}})
                    } else {
                        json!({"name": name, "in": "query", "type": "string"})
                    }
                })
                .collect();
        }
        out
    };
    let kind = resource.kind.as_str();
    let mut collection_operations = Map::new();
    let mut object_operations = Map::new();
    for (verb, method, action, named) in [
        ("list", "get", "list", false),
        ("create", "post", "post", false),
        ("deletecollection", "delete", "deletecollection", false),
        ("get", "get", "get", true),
        ("update", "put", "put", true),
        ("patch", "patch", "patch", true),
        ("delete", "delete", "delete", true),
    ] {
        if resource.has_verb(verb) {
            let target = if named { &mut object_operations } else { &mut collection_operations };
            target.insert(method.into(), operation(verb, action, kind));
        }
    }
    paths.insert(collection.clone(), Value::Object(collection_operations));
    if !object_operations.is_empty() {
        paths.insert(format!("{collection}/{{name}}"), Value::Object(object_operations));
    }
}

struct Collector<'a> {
    prefix: &'a str,
    pending: &'a mut BTreeSet<String>,
}

impl Collector<'_> {
    /// Writes a schema. Named types become references, except for the top level.
    fn write(&mut self, schema: &Schema, top: bool) -> Value {
        if !top && !schema.type_name.is_empty() {
            self.pending.insert(schema.type_name.clone());
            let reference = json!({"$ref": format!("{}{}", self.prefix, public_name(&schema.type_name))});
            // Keywords next to a reference are ignored in v2.
            return reference;
        }
        let mut out = json!({});
        if let Some(description) = builtin::describe(&schema.type_name) {
            out["description"] = description.into();
        }
        let (kind, format) = match schema.kind {
            Type::Any => ("", ""),
            Type::Object => ("object", ""),
            Type::Array => ("array", ""),
            Type::String | Type::Quantity => ("string", ""),
            Type::Bytes => ("string", "byte"),
            Type::Integer => ("integer", if schema.is_int32 { "int32" } else { "int64" }),
            Type::Number => ("number", "double"),
            Type::Boolean => ("boolean", ""),
            Type::Time | Type::MicroTime => ("string", "date-time"),
            Type::IntOrString => ("string", "int-or-string"),
        };
        if !kind.is_empty() {
            out["type"] = kind.into();
        }
        if !format.is_empty() {
            out["format"] = format.into();
        }
        if !schema.properties.is_empty() {
            let all: Map<String, Value> =
                schema.properties.iter().map(|(k, v)| (k.clone(), self.property(schema, k, v))).collect();
            out["properties"] = Value::Object(all);
        }
        if !schema.required.is_empty() {
            out["required"] = schema.required.clone().into();
        }
        if let Some(items) = &schema.items {
            out["items"] = self.write(items, false);
        }
        if let Some(additional) = &schema.additional {
            out["additionalProperties"] = self.write(additional, false);
        }
        Self::extensions(schema, &mut out);
        out
    }

    /// Writes a field with its description, if there is one.
    fn property(&mut self, holder: &Schema, name: &str, schema: &Schema) -> Value {
        let mut out = self.write(schema, false);
        let description = Some(holder.type_name.as_str()).filter(|t| !t.is_empty());
        let Some(description) = description.and_then(|t| builtin::describe_field(t, name)) else {
            return out;
        };
        // Keywords next to `$ref` are ignored, so a described reference is wrapped into `allOf`.
        if out.get("$ref").is_some() {
            if self.prefix == V2_PREFIX {
                return out;
            }
            out = json!({"allOf": [out]});
        }
        out["description"] = description.into();
        out
    }

    fn extensions(schema: &Schema, out: &mut Value) {
        match &schema.list {
            ListType::Atomic => {}
            ListType::Set => out["x-kubernetes-list-type"] = "set".into(),
            ListType::Map(keys) => {
                out["x-kubernetes-list-type"] = "map".into();
                out["x-kubernetes-list-map-keys"] = keys.clone().into();
            }
        }
        if schema.atomic {
            out["x-kubernetes-map-type"] = "atomic".into();
        }
        if !schema.patch.is_empty() {
            out["x-kubernetes-patch-strategy"] = schema.patch.join(",").into();
        }
        if !schema.merge_key.is_empty() {
            out["x-kubernetes-patch-merge-key"] = schema.merge_key.clone().into();
        }
        if !schema.options.is_empty() {
            out["enum"] = schema.options.clone().into();
        }
        if schema.preserve && schema.kind == Type::Object {
            out["x-kubernetes-preserve-unknown-fields"] = true.into();
        }
        if let Some(default) = &schema.default {
            out["default"] = default.clone();
        }
    }
}
