//! Properties that hold for any input, for fuzz targets and a bounded test.
//!
//! The coverage-guided targets of `fuzz/` call these functions; `fuzzing/mutations.rs` calls them with mutated inputs
//! in `cargo test`. They panic if a property is violated. Not compiled into releases.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "a broken law ends the run")]

#[cfg(test)]
mod mutations;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::apply::{field_set as fields, managed_fields as managers, merge};
use crate::base::options::ServerOptions;
use crate::base::user::User;
use crate::base::{json, json_path};
use crate::cluster::Cluster;
use crate::http::request::{Query, Request};
use crate::http::response::Body;
use crate::http::route;
use crate::registry::selectors::{FieldSelector, LabelSelector, ShardSelector};
use crate::schema::{Schema, cel, decode, fill_defaults, formats, prune, validate};
use crate::scheme::{builtin, protobuf};
use crate::server::{content, service};
use crate::{api, controllers, patch};

/// A cluster under test, and its number of requests.
struct Target {
    runtime: Runtime,
    cluster: Arc<Cluster>,
    seen: usize,
}

impl Target {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let cluster = Cluster::new(ServerOptions { tls: false, ..ServerOptions::default() });
        runtime.block_on(async {
            let crds_path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let code = service::handle(&cluster, "POST", crds_path, Some(&test_crd())).await.code;
            assert_eq!(code, 201);
        });
        Self { runtime, cluster, seen: 0 }
    }
}

/// A CRD that uses many features.
fn test_crd() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.fid.dev"},
    "spec": {"group": "fid.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [
        {"name": "v1", "served": true, "storage": true,
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "x-kubernetes-validations": [{"rule": "!has(self.n) || self.n < 1000"}],
                    "properties": {"n": {"type": "integer", "default": 1}, "s": {"type": "string", "pattern": "^[a-z]*$"},
                        "when": {"type": "string", "format": "date-time"},
                        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "port": {"x-kubernetes-int-or-string": true},
                        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
                        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
}

thread_local! {
    static TARGET: RefCell<Option<Target>> = const { RefCell::new(None) };
}

/// A request as text: `METHOD PATH?QUERY`, headers, an empty line, the body. Any request gets a valid response.
pub fn requests(data: &[u8]) {
    let Some(request) = read_request(data) else { return };
    TARGET.with_borrow_mut(|held| {
        // Limits the memory, without a new cluster for each request.
        if held.as_ref().is_none_or(|t| t.seen > 2_000) {
            *held = Some(Target::new());
        }
        if let Some(target) = held {
            target.seen += 1;
            check_response(target, request);
        }
    });
}

fn read_request(data: &[u8]) -> Option<Request> {
    let split = data.windows(2).position(|w| w == b"\n\n").unwrap_or(data.len());
    let (head, rest) = data.split_at_checked(split)?;
    let mut lines = std::str::from_utf8(head).ok()?.lines();
    let (method, target) = lines.next()?.split_once(' ')?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = HeaderMap::new();
    for line in lines.take(20) {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    Some(Request {
        method: Method::from_bytes(method.as_bytes()).ok()?,
        path: path.to_owned(),
        query: Query::parse(query),
        headers,
        body: Bytes::copy_from_slice(rest.get(2..).unwrap_or_default()),
        duplicate_keys: Vec::new(),
        user: Arc::new(User {
            name: "admin".into(),
            uid: "admin".into(),
            groups: vec!["system:masters".into()],
            ..User::default()
        }),
    })
}

fn check_response(target: &mut Target, mut request: Request) {
    let Target { runtime, cluster, .. } = target;
    let response = runtime.block_on(async {
        let route = route::parse(&request.path);
        let response = match content::decode(cluster, &mut request, &route) {
            Ok(()) => api::handle(cluster, &request, route).await,
            Err(status) => status.into(),
        };
        while let Some(work) = cluster.queue.try_next() {
            controllers::process(cluster, work);
        }
        response
    });
    assert!((200..600).contains(&response.code), "{}", response.code);
    match response.body {
        Body::Full(bytes) => {
            if response.content_type == "application/json" {
                let value: Value = serde_json::from_slice(&bytes).expect("an answer in JSON is JSON");
                if response.code >= 400 {
                    assert_eq!(value["kind"], "Status", "{value}");
                    assert_eq!(value["code"], response.code, "{value}");
                }
            }
        }
        Body::Stream(stream) => {
            let next = runtime.block_on(async {
                tokio::time::timeout(Duration::from_millis(1), stream.next_chunk()).await.ok().flatten()
            });
            let next = next.map(|(_, lines)| lines);
            if let Some(lines) = next {
                assert_eq!(lines.last(), Some(&b'\n'), "the last line of a watch is whole");
                for line in serde_json::Deserializer::from_slice(&lines).into_iter::<Value>() {
                    line.expect("a line of a watch is JSON");
                }
            }
        }
    }
}

/// Three lines: two CRDs, whose names may be in conflict, and an object of both. The server stays whole, and serves the other
/// resources of their group.
pub fn crds(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let [first, second, object] = lines.as_slice() else { return };
    TARGET.with_borrow_mut(|held| {
        if held.as_ref().is_none_or(|t| t.seen > 2_000) {
            *held = Some(Target::new());
        }
        if let Some(target) = held {
            target.seen += 10;
            check_crds(target, [first, second], object);
        }
    });
}

fn check_crds(target: &mut Target, crds: [&Value; 2], object: &Value) {
    const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let text = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().replace([' ', '/', '?', '%'], "")
    };
    for crd in crds {
        let mut crd = crd.clone();
        let name = format!("{}.{}", text(&crd, "/spec/names/plural"), text(&crd, "/spec/group"));
        if let Some(metadata) = crd.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("name".into(), name.as_str().into());
        }
        send(target, "POST", CRDS, "", &crd);
        let (group, plural) = (text(&crd, "/spec/group"), text(&crd, "/spec/names/plural"));
        for version in crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten().take(2) {
            let root = format!("/apis/{group}/{}", text(version, "/name"));
            let collection = format!("{root}/namespaces/default/{plural}");
            let mut object = object.clone();
            if let Some(map) = object.as_object_mut() {
                map.insert("apiVersion".into(), root.trim_start_matches("/apis/").into());
                map.insert("kind".into(), text(&crd, "/spec/names/kind").into());
                map.insert("metadata".into(), json!({"name": "x"}));
            }
            let one = format!("{collection}/x");
            send(target, "POST", &collection, "", &object);
            send(
                target,
                "PATCH",
                &format!("{one}?fieldManager=f&force=true"),
                "application/apply-patch+yaml",
                &object,
            );
            send(
                target,
                "PATCH",
                &one,
                "application/merge-patch+json",
                &json!({"spec": object.get("status")}),
            );
            for (path, accept) in [(&collection, TABLE), (&one, TABLE), (&root, ""), (&one, "")] {
                send(target, "GET", path, accept, &Value::Null);
            }
            send(target, "GET", &format!("/openapi/v3{root}"), "", &Value::Null);
        }
        let change = json!({"spec": {"versions": crds.map(|crd| crd.pointer("/spec/versions/0").cloned())}});
        send(target, "PATCH", &format!("{CRDS}/{name}"), "application/merge-patch+json", &change);
    }
    send(target, "GET", "/apis/fid.dev/v1/namespaces/default/things", TABLE, &Value::Null);
    for crd in crds {
        let name = format!("{}.{}", text(crd, "/spec/names/plural"), text(crd, "/spec/group"));
        if name != "things.fid.dev" {
            send(target, "DELETE", &format!("{CRDS}/{name}"), "", &Value::Null);
        }
    }
}

/// Sends a request. `kind` is the accepted type of a GET, or the type of the body.
fn send(target: &mut Target, method: &str, path: &str, kind: &str, body: &Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let header = match (method, kind) {
        (_, "") => String::new(),
        ("GET", kind) => format!("\naccept: {kind}"),
        (_, kind) => format!("\ncontent-type: {kind}"),
    };
    if let Some(request) = read_request(format!("{method} {path}{header}\n\n{body}").as_bytes()) {
        check_response(target, request);
    }
}

/// Three lines: a type name, a document, a patch. Patches do not panic, and are idempotent where they must be.
pub fn patches(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let (Some(name), Some(document), Some(change)) = (lines.next(), lines.next(), lines.next()) else {
        return;
    };
    let (Ok(document), Ok(change)) =
        (serde_json::from_str::<Value>(document), serde_json::from_str::<Value>(change))
    else {
        return;
    };
    let schema = builtin::schema(name);
    let mut once = document.clone();
    patch::merge(&mut once, &change);
    let mut twice = once.clone();
    patch::merge(&mut twice, &change);
    assert_eq!(once, twice, "a merge patch changes nothing the second time");

    let mut target = document.clone();
    // Rejections are valid results.
    let _ = patch::json::apply(&mut target, &change);
    let mut target = document.clone();
    let _ = patch::strategic::merge(&mut target, &change, &schema);
    check_managed_fields(&document, &change, &schema);
}

/// Field sets survive encoding, and applies are idempotent.
fn check_managed_fields(live: &Value, config: &Value, schema: &Schema) {
    let mut set = fields::Set::new();
    fields::collect_fields(config, schema, &mut Vec::new(), &mut set);
    fields::strip_unmanaged(&mut set, "f:status");
    let mut read = fields::Set::new();
    fields::from_json(&fields::to_json(&set), &mut Vec::new(), &mut read);
    assert_eq!(set, read, "managed fields are read as they were written");
    for path in &set {
        drop(fields::format_path(path));
    }

    let mut same = fields::Comparison::default();
    fields::compare(Some(live), Some(live), schema, &mut Vec::new(), &mut same);
    assert!(same.added.is_empty() && same.removed.is_empty() && same.modified.is_empty(), "{same:?}");

    // Such a configuration is rejected.
    if fields::first_duplicate_item(config, schema, &mut Vec::new()).is_some() {
        return;
    }
    let mut once = live.clone();
    merge::merge(&mut once, config, schema);
    let mut twice = once.clone();
    merge::merge(&mut twice, config, schema);
    assert_eq!(once, twice, "an apply changes nothing the second time");
    drop(live.as_object().map(managers::read));
}

/// Two lines: a schema and an object, which is also decoded as built-in types.
pub fn schemas(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((declared, object)) = text.split_once('\n') else { return };
    let (Ok(declared), Ok(object)) =
        (serde_json::from_str::<Value>(declared), serde_json::from_str::<Value>(object))
    else {
        return;
    };
    if !object.is_object() {
        return;
    }
    let schema = Schema::from_json(&declared);
    let mut pruned = object.clone();
    prune(&mut pruned, &schema, &mut Vec::new());
    let mut again = Vec::new();
    let before = pruned.clone();
    prune(&mut pruned, &schema, &mut again);
    assert!(before == pruned && again.is_empty(), "pruning twice prunes more: {again:?}");
    fill_defaults(&mut pruned, &schema);
    let filled = pruned.clone();
    fill_defaults(&mut pruned, &schema);
    assert_eq!(filled, pruned, "defaults come in at once");
    drop(validate::validate(&pruned, &schema));
    drop(cel::check(&pruned, Some(&before), &schema));

    for name in
        ["core.v1.Pod", "apps.v1.Deployment", "core.v1.Service", "meta.v1.ObjectMeta", "batch.v1.CronJob"]
    {
        let schema = builtin::schema(name);
        if let Ok(read) = decode::decode(object.clone(), &schema, &mut decode::DecodeWarnings::default()) {
            let mut warnings = decode::DecodeWarnings::default();
            let again = decode::decode(read.clone(), &schema, &mut warnings);
            assert_eq!(again, Ok(read), "what was read is read again as it is");
            assert!(warnings.unknown.is_empty(), "{:?}", warnings.unknown);
        }
    }
}

/// Text as selectors, query, path and YAML; bytes as protobuf.
pub fn selectors(data: &[u8]) {
    drop(protobuf::decode(data));
    drop(protobuf::decode(&[b"k8s\0", data].concat()));
    let Ok(text) = std::str::from_utf8(data) else { return };
    drop(route::parse(text));
    drop(Query::parse(text));
    if let Ok(labels) = LabelSelector::parse(text) {
        let some = |key: &str| key.len().is_multiple_of(2).then_some("1");
        // Matching is deterministic.
        assert_eq!(labels.matches(some), labels.matches(some));
    }
    drop(ShardSelector::parse(text));
    for resource in crate::scheme::resources::Registry::builtin().all().filter(|r| r.plural == "pods") {
        drop(FieldSelector::parse(text, resource));
    }
    drop(content::yaml_to_json(data));
    drop(json::parse_json(data).map_err(|e| json::json_complaint(data, &e)));
    drop(formats::quantity(&Value::from(text)));
    drop(formats::time(text, text.len().is_multiple_of(2)));
    let _ = json_path::find(&json!({"a": [{"b": 1}]}), text);
}
