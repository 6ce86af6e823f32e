//! Discovery: legacy lists, and the aggregated document.

use std::sync::Arc;

use base64::Engine;
use serde_json::{Map, Value, json};

use crate::base::names::{api_version, split_api_version};
use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::http::accept::{Accept, Endpoint};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::scheme::resources::{Registry, Resource, Subresource};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/version`: the emulated version.
pub(crate) fn build_info() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.3", "gitCommit": "in-memory", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, "amd64"),
    })
}

pub(crate) fn root(cluster: &Arc<Cluster>) -> Response {
    let registry = cluster.registry();
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for name in registry.groups.keys().filter(|n| !n.is_empty()) {
        paths.push(format!("/apis/{name}"));
        paths.extend(versions(&registry, name).into_iter().map(|v| format!("/apis/{name}/{v}")));
    }
    paths.extend(
        ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(str::to_owned),
    );
    Response::json(200, &json!({"paths": paths}))
}

fn versions(registry: &Registry, group: &str) -> Vec<String> {
    registry.groups.get(group).into_iter().flat_map(|g| g.versions.iter().map(|(v, _)| v.clone())).collect()
}

/// The endpoint of discovery, for the core group or for others.
pub(crate) fn endpoint(core: bool) -> Endpoint {
    if core { Endpoint::CoreDiscovery } else { Endpoint::GroupDiscovery }
}

/// `/api` and `/apis`: the legacy lists, or the aggregated document if the client accepts it.
pub(crate) fn groups(cluster: &Arc<Cluster>, request: &Request, core: bool) -> Result<Response, Status> {
    let registry = cluster.registry();
    let accept = Accept::parse(request.header("accept"));
    if accept.requests("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") {
        let chosen = registry.order.iter().filter(|name| name.is_empty() == core);
        let is_stale = |version: &str| cluster.faults.affects_discovery(version, request.client());
        let items: Vec<Value> = chosen.map(|name| aggregated(&registry, name, is_stale)).collect();
        let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
        let mut out = Response::json(200, &list);
        out.content_type = AGGREGATED;
        out.headers.push(("vary", "Accept".into()));
        return Ok(out);
    }
    request.output_format(endpoint(core))?;
    if core {
        return Ok(Response::json(
            200,
            &json!({"kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": request.header("host")}]}),
        ));
    }
    let named_groups = registry.order.iter().filter(|n| !n.is_empty());
    let list: Vec<Value> = named_groups.map(|name| group_value(&registry, name)).collect();
    Ok(Response::json(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list})))
}

fn group_value(registry: &Registry, name: &str) -> Value {
    let all: Vec<Value> = versions(registry, name)
        .iter()
        .map(|v| json!({"groupVersion": api_version(name, v), "version": v}))
        .collect();
    json!({"name": name, "versions": all, "preferredVersion": all.first()})
}

pub(crate) fn group(cluster: &Arc<Cluster>, request: &Request, name: &str) -> Result<Response, Status> {
    let registry = cluster.registry();
    if name.is_empty() || !registry.groups.contains_key(name) {
        return Ok(Response::page_not_found());
    }
    request.output_format(Endpoint::GroupDiscovery)?;
    let mut out = Map::new();
    out.insert("kind".into(), "APIGroup".into());
    out.insert("apiVersion".into(), "v1".into());
    if let Value::Object(rest) = group_value(&registry, name) {
        out.extend(rest);
    }
    Ok(Response::json(200, &Value::Object(out)))
}

pub(crate) fn version(cluster: &Arc<Cluster>, group: &str, version: &str) -> Response {
    let registry = cluster.registry();
    let Some(resources) = registry.version(group, version) else {
        return version_not_served(&registry, group);
    };
    let list: Vec<Value> = resources.values().flat_map(|r| resource_entries(r)).collect();
    let gv = api_version(group, version);
    if group.is_empty() {
        // The core group has an older format.
        return Response::json(
            200,
            &json!({"kind": "APIResourceList", "groupVersion": gv, "resources": list}),
        );
    }
    Response::json(
        200,
        &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": list}),
    )
}

/// 404 for a version that is not served. Groups of built-in kinds answer with a Status, others with plain text.
pub(crate) fn version_not_served(registry: &Registry, group: &str) -> Response {
    let known = registry.groups.get(group).is_some_and(|g| {
        g.versions.iter().any(|(_, resources)| resources.values().any(|r| r.custom.is_none()))
    });
    if known { Status::no_such_resource().into() } else { Response::page_not_found() }
}

/// Verbs of a resource in the order of kube-apiserver's discovery.
fn verbs(resource: &Resource) -> Vec<&str> {
    match &resource.custom {
        Some(custom) if custom.is_terminating => vec!["delete", "deletecollection", "get", "list", "watch"],
        Some(_) => vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        None => resource.verbs.iter().map(String::as_str).collect(),
    }
}

fn resource_entries(resource: &Resource) -> Vec<Value> {
    let mut main = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        main["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        main["categories"] = resource.categories.clone().into();
    }
    if resource.has_verb("get") && resource.has_verb("create") {
        main["storageVersionHash"] = storage_hash(resource).into();
    }
    let mut out = vec![main];
    out.extend(resource.subresources.iter().map(|sub| subresource_entry(resource, sub)));
    out
}

fn subresource_entry(resource: &Resource, sub: &Subresource) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), format!("{}/{}", resource.plural, sub.name).into());
    out.insert("singularName".into(), "".into());
    out.insert("namespaced".into(), resource.namespaced.into());
    let (group, version, kind) = match &sub.kind {
        Some((g, v, k)) => (g.as_str(), v.as_str(), k.as_str()),
        None => ("", "", resource.kind.as_str()),
    };
    if !group.is_empty() {
        out.insert("group".into(), group.into());
        out.insert("version".into(), version.into());
    }
    out.insert("kind".into(), kind.into());
    out.insert("verbs".into(), sub.verbs.clone().into());
    Value::Object(out)
}

/// `storageVersionHash` of a resource.
fn storage_hash(resource: &Resource) -> String {
    let (group, version) = split_api_version(&resource.storage_api_version);
    let text = format!("{group}/{version}/{}", resource.kind);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(digest.as_ref().get(..8).unwrap_or_default())
}

fn aggregated(registry: &Registry, name: &str, is_stale: impl Fn(&str) -> bool) -> Value {
    let all: Vec<Value> = registry
        .groups
        .get(name)
        .into_iter()
        .flat_map(|g| &g.versions)
        .map(|(version, resources)| {
            if is_stale(&format!("{name}/{version}")) {
                return json!({"version": version, "resources": [], "freshness": "Stale"});
            }
            let list: Vec<Value> = resources.values().map(|r| aggregated_resource(r)).collect();
            json!({"version": version, "resources": list, "freshness": "Current"})
        })
        .collect();
    let meta = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    json!({"metadata": meta, "versions": all})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind_of = |sub: Option<&Subresource>| match sub.and_then(|s| s.kind.as_ref()) {
        Some((g, v, k)) if !g.is_empty() => json!({"group": g, "version": v, "kind": k}),
        Some((_, _, k)) => json!({"group": "", "version": "", "kind": k}),
        None if resource.custom.is_some() => {
            json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
        }
        None => json!({"group": "", "version": "", "kind": resource.kind}),
    };
    let mut out = json!({
        "resource": resource.plural, "responseKind": kind_of(None),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        out["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        out["categories"] = resource.categories.clone().into();
    }
    if !resource.subresources.is_empty() {
        let subs: Vec<Value> = resource
            .subresources
            .iter()
            .map(|s| json!({"subresource": s.name, "responseKind": kind_of(Some(s)), "verbs": s.verbs}))
            .collect();
        out["subresources"] = subs.into();
    }
    out
}
