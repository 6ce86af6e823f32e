//! Tests of the flow with a scripted server: requests that a cache saves (6.3).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kopf_core::apply::{ConflictPolicy, Digest, PlanOptions, owned_digest};
use kopf_core::json::value::Value;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use kopf_core::user_request::{Class, DefaultNamespace, WriteOptions};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::testing::{Fixture, Got};

const MANAGER: &str = "me";

/// A cache with one object, or without it, or without its kind.
#[derive(Default)]
struct OneObject {
    cached: Mutex<Option<CachedChild>>,
    /// The version of the object, if it is known without a cache.
    version: Mutex<Option<&'static str>>,
    is_paused: AtomicBool,
    pauses: AtomicU64,
}

impl OneObject {
    fn set(&self, cached: Option<CachedChild>) {
        *self.cached.lock().unwrap() = cached;
    }

    fn set_version(&self, version: &'static str) {
        *self.version.lock().unwrap() = Some(version);
    }
}

impl ChildCache for OneObject {
    fn cached(
        &self,
        _: &Resource,
        namespace: Option<&str>,
        name: &str,
        manager: &str,
    ) -> Option<CachedChild> {
        assert_eq!((namespace, name, manager), (Some("shop"), "one", MANAGER));
        self.cached.lock().unwrap().clone()
    }

    fn pauses(&self) -> Option<u64> {
        let is_paused = self.is_paused.load(Ordering::Relaxed);
        (!is_paused).then(|| self.pauses.load(Ordering::Relaxed))
    }

    fn knows_versions(&self, _: &Resource) -> bool {
        self.version.lock().unwrap().is_some()
    }

    fn is_newest(&self, child: &Object) -> bool {
        *self.version.lock().unwrap() == child.resource_version()
    }
}

fn live(version: &str, value: &str) -> Value {
    let fields = json!({"f:data": {"f:x": {}}});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"x": value},
        "metadata": {"name": "one", "namespace": "shop", "uid": "c1", "resourceVersion": version, "managedFields": [
            {"manager": MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields},
        ]},
    })
}

fn present(object: &Value, owned: Option<Digest>) -> CachedChild {
    CachedChild::Present { object: Arc::new(Object::decode(&object.to_string()).unwrap()), owned }
}

/// The server has the object with the version 5.
fn scene() -> (Fixture, Applier, Arc<OneObject>) {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        let answer = match got.path.as_str() {
            "/api/v1" => {
                let resources = json!([{"name": "configmaps", "kind": "ConfigMap", "namespaced": true}]);
                json!({"kind": "APIResourceList", "resources": resources})
            }
            _ => live("5", "1"),
        };
        (200, Some(answer))
    });
    let cache = Arc::new(OneObject::default());
    let api = Api::new(fixture.shared.base.client.clone(), CancellationToken::new());
    let known = KnownState { cache: Arc::clone(&cache) as Arc<dyn ChildCache>, ..KnownState::default() };
    let applier = Applier::new(api, known);
    (fixture, applier, cache)
}

fn request(value: &str) -> Request {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap",
                       "metadata": {"name": "owner", "namespace": "shop", "uid": "u1"}});
    let child =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"x": value}});
    let plan = PlanOptions { name: String::new(), prune: false, order: true, conflict: ConflictPolicy::Fail };
    let options = Options { plan, recreate: false, takeover: vec![], share: false, version: "1".to_owned() };
    Request { owner, children: vec![child], options }
}

fn call_options() -> CallOptions {
    let write = WriteOptions { manager: Some(MANAGER.to_owned()), ..WriteOptions::default() };
    CallOptions {
        write,
        namespace: DefaultNamespace::OfCredentials,
        timeout: None,
        retries: true,
        headers: http::HeaderMap::new(),
        run: None,
    }
}

/// Applies the object; returns the methods of the requests for it.
async fn requests(fixture: &Fixture, applier: &Applier, value: &str) -> Vec<String> {
    let before = fixture.requests().len();
    let result = applier.apply(request(value), &call_options()).await.unwrap();
    assert!(result.failures.is_empty(), "{:?}", result.failures);
    assert_eq!(result.objects.len(), 1);
    let sent = fixture.requests().into_iter().skip(before).filter(|got| got.path.contains("/one"));
    sent.map(|got| got.method).collect()
}

#[tokio::test(start_paused = true)]
async fn cached_children_are_skipped_while_their_owned_fields_are_the_same() {
    let (fixture, applier, cache) = scene();
    let digest = |object: &Value| owned_digest(object, MANAGER);
    let (same, foreign) = (live("5", "1"), live("9", "1"));

    // After a restart, each child is applied once. Cached objects are not read.
    cache.set(Some(present(&same, digest(&same))));
    assert_eq!(requests(&fixture, &applier, "1").await, ["PATCH"]);
    assert_eq!(requests(&fixture, &applier, "1").await, [""; 0]);
    // Others have changed other fields.
    cache.set(Some(present(&foreign, digest(&foreign))));
    assert_eq!(requests(&fixture, &applier, "1").await, [""; 0]);
    // They have changed an owned field.
    let changed = live("9", "2");
    cache.set(Some(present(&changed, digest(&changed))));
    assert_eq!(requests(&fixture, &applier, "1").await, ["PATCH"]);
    // Only the metadata is cached: the version decides.
    cache.set(Some(present(&same, None)));
    assert_eq!(requests(&fixture, &applier, "1").await, [""; 0]);
    cache.set(Some(present(&foreign, None)));
    assert_eq!(requests(&fixture, &applier, "1").await, ["PATCH"]);
    // The desired object is another one.
    cache.set(Some(present(&same, digest(&same))));
    assert_eq!(requests(&fixture, &applier, "2").await, ["PATCH"]);
    // It is gone, or not cached any more.
    cache.set(Some(CachedChild::Absent));
    assert_eq!(requests(&fixture, &applier, "2").await, ["PATCH"]);
    cache.set(None);
    assert_eq!(requests(&fixture, &applier, "2").await, ["PATCH"]);
}

#[tokio::test(start_paused = true)]
async fn children_that_are_not_cached_are_read_once() {
    let (fixture, applier, _) = scene();
    assert_eq!(requests(&fixture, &applier, "1").await, ["GET", "PATCH"]);
    assert_eq!(requests(&fixture, &applier, "1").await, ["PATCH"]);
}

#[tokio::test(start_paused = true)]
async fn children_are_read_again_after_a_pause() {
    let (fixture, applier, cache) = scene();
    assert_eq!(requests(&fixture, &applier, "1").await, ["GET", "PATCH"]);
    cache.pauses.store(1, Ordering::Relaxed);
    cache.is_paused.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(requests(&fixture, &applier, "1").await, ["GET", "PATCH"], "another operator may write");
    }
    cache.is_paused.store(false, Ordering::Relaxed);
    assert_eq!(requests(&fixture, &applier, "1").await, ["GET", "PATCH"], "it may have written");
    assert_eq!(requests(&fixture, &applier, "1").await, ["PATCH"]);
}

#[tokio::test(start_paused = true)]
async fn children_of_the_known_version_are_skipped() {
    let (fixture, applier, cache) = scene();
    cache.set_version("4");
    assert_eq!(requests(&fixture, &applier, "1").await, ["GET", "PATCH"]);
    // The watch has not delivered the response yet.
    assert_eq!(requests(&fixture, &applier, "1").await, ["PATCH"]);
    cache.set_version("5");
    let result = applier.apply(request("1"), &call_options()).await.unwrap();
    assert_eq!((result.unchanged.len(), result.objects[0].object.to_value()), (1, live("5", "1")));
    assert_eq!(requests(&fixture, &applier, "1").await, [""; 0]);
    assert_eq!(requests(&fixture, &applier, "2").await, ["PATCH"]);
    // Others have changed the object.
    cache.set_version("6");
    assert_eq!(requests(&fixture, &applier, "2").await, ["PATCH"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_for_owners_that_are_gone() {
    let (fixture, applier, _) = scene();
    applier.known.deleted_owners.add("u1");
    let result = applier.apply(request("1"), &call_options()).await;
    assert!(matches!(result, Err(ApplyError::OwnerGone(_))), "{result:?}");
    assert!(fixture.requests().iter().all(|got| got.path == "/api/v1"));
}

#[tokio::test(start_paused = true)]
async fn children_of_owners_that_are_gone_are_forgotten() {
    let (_fixture, applier, cache) = scene();
    let KnownState { memory, deleted_owners, .. } = &applier.known;
    deleted_owners.register(memory);
    cache.set_version("5");
    applier.apply(request("1"), &call_options()).await.unwrap();
    assert_eq!(memory.counts(), (1, 0));
    deleted_owners.add("u1");
    assert_eq!(memory.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn pruned_children_are_forgotten() {
    let id = apply_set_id(&Owner::read(&request("1").owner).unwrap());
    let (marked, is_pruned) = (id.clone(), Arc::new(AtomicBool::new(false)));
    let pruned = Arc::clone(&is_pruned);
    let fixture = Fixture::new(&json!({}), move |got: &Got| {
        let answer = match (got.method.as_str(), got.path.as_str()) {
            (_, "/api/v1") => {
                let resources = json!([{"name": "configmaps", "kind": "ConfigMap", "namespaced": true}]);
                json!({"kind": "APIResourceList", "resources": resources})
            }
            (_, "/api") => {
                let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
                let resources =
                    json!([{"resource": "configmaps", "responseKind": kind, "scope": "Namespaced"}]);
                let versions = json!([{"version": "v1", "resources": resources}]);
                json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {}, "versions": versions}]})
            }
            (_, "/apis") => json!({"kind": "APIGroupDiscoveryList", "items": []}),
            (_, path) if path.contains("/owner") => {
                let mut owner = request("1").owner;
                owner["metadata"]["resourceVersion"] = "2".into();
                owner["metadata"]["labels"] = json!({"applyset.kubernetes.io/id": marked});
                owner["metadata"]["annotations"] = json!({
                    "applyset.kubernetes.io/contains-group-kinds": "ConfigMap",
                    "applyset.kubernetes.io/additional-namespaces": "",
                    "applyset.kubernetes.io/tooling": "kopf/1",
                });
                owner
            }
            ("DELETE", _) => {
                pruned.store(true, Ordering::Relaxed);
                json!({"kind": "Status", "status": "Success"})
            }
            ("GET", path) if !path.contains("/one") => {
                let mut member = live("5", "1");
                member["metadata"]["labels"] = json!({"applyset.kubernetes.io/part-of": marked});
                member["metadata"]["ownerReferences"] =
                    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u1"}]);
                json!({"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "9"}, "items": [member]})
            }
            _ => live("5", "1"),
        };
        (200, Some(answer))
    });
    let api = Api::new(fixture.shared.base.client.clone(), CancellationToken::new());
    let applier = Applier::new(api, KnownState::default());
    let pruning = |has_child: bool| {
        let mut request = request("1");
        request.options.plan.prune = true;
        if !has_child {
            request.children.clear();
        }
        request
    };
    let first = applier.apply(pruning(true), &call_options()).await.unwrap();
    assert!(first.failures.is_empty() && first.pruned.is_empty(), "{first:?}");
    assert_eq!(applier.known.memory.counts(), (1, 1));
    let second = applier.apply(pruning(false), &call_options()).await.unwrap();
    assert!(second.failures.is_empty() && is_pruned.load(Ordering::Relaxed), "{second:?}");
    assert_eq!(second.pruned.len(), 1);
    assert_eq!(applier.known.memory.counts(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn members_of_groups_that_are_unavailable_are_not_forgotten() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        let groups = match got.path.as_str() {
            "/api" => json!([]),
            "/apis" => {
                let versions = json!([{"version": "v1", "freshness": "Stale", "resources": []}]);
                json!([{"metadata": {"name": "down.dev"}, "versions": versions}])
            }
            _ => return (404, Some(json!({}))),
        };
        (200, Some(json!({"kind": "APIGroupDiscoveryList", "items": groups})))
    });
    let api = Api::new(fixture.shared.base.client.clone(), CancellationToken::new());
    let mut request = request("1");
    let id = apply_set_id(&Owner::read(&request.owner).unwrap());
    request.owner["metadata"]["resourceVersion"] = "1".into();
    request.owner["metadata"]["labels"] = json!({"applyset.kubernetes.io/id": id});
    request.owner["metadata"]["annotations"] = json!({
        "applyset.kubernetes.io/contains-group-kinds": "Thing.down.dev",
        "applyset.kubernetes.io/additional-namespaces": "",
        "applyset.kubernetes.io/tooling": "kopf/1",
    });
    request.children.clear();
    request.options.plan.prune = true;
    let applied = Applier::new(api, KnownState::default()).apply(request, &call_options()).await.unwrap();
    let [(_, ChildError::Call(CallError::Failed(failure)))] = &*applied.failures else {
        panic!("{:?}", applied.failures);
    };
    assert_eq!(failure.class, Class::ServerFailed);
    assert!(failure.text().ends_with("Thing.down.dev is unknown, but the API is unavailable now: down.dev"));
    assert!(fixture.requests().iter().all(|got| got.method == "GET"));
}

#[tokio::test(start_paused = true)]
async fn as_many_conflicts_as_are_yielded_may_come_one_by_one() {
    let count = Arc::new(AtomicUsize::new(0));
    let fixture = Fixture::new(&json!({}), move |got: &Got| match (got.method.as_str(), got.path.as_str()) {
        (_, "/api/v1") => {
            let resources = json!([{"name": "configmaps", "kind": "ConfigMap", "namespaced": true}]);
            (200, Some(json!({"kind": "APIResourceList", "resources": resources})))
        }
        ("PATCH", _) if got.body["data"].as_object().is_some_and(|data| !data.is_empty()) => {
            let field = format!(".data.x{}", count.fetch_add(1, Ordering::Relaxed));
            let message = "conflict with \"other\" using v1";
            let causes = json!([{"reason": "FieldManagerConflict", "message": message, "field": field}]);
            let status = json!({"kind": "Status", "reason": "Conflict", "details": {"causes": causes}});
            (409, Some(status))
        }
        _ => (200, Some(live("5", "1"))),
    });
    let api = Api::new(fixture.shared.base.client.clone(), CancellationToken::new());
    let mut request = request("1");
    request.children[0]["data"] = json!({"x0": "", "x1": "", "x2": "", "x3": "", "x4": ""});
    request.options.plan.conflict = ConflictPolicy::Yield(None);
    let applied = Applier::new(api, KnownState::default()).apply(request, &call_options()).await.unwrap();
    assert!(applied.failures.is_empty(), "{:?}", applied.failures);
    assert_eq!(fixture.requests().iter().filter(|got| got.method == "PATCH").count(), 6);
}
