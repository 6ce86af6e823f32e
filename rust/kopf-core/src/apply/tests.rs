//! Tests of the rules of applying.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::request_error::ApiError;
use crate::user_request::Failure;

fn owner() -> Owner {
    Owner::read(&json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
    }))
    .unwrap()
}

fn cluster_owner() -> Owner {
    Owner { kind: "Cluster".to_owned(), namespace: None, ..owner() }
}

fn child(kind: &str, name: &str) -> Child {
    Child::read(json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})).unwrap()
}

fn options(prune: bool) -> PlanOptions {
    PlanOptions { name: String::new(), prune, order: true, conflict: ConflictPolicy::Fail }
}

fn key(kind: &str, namespace: Option<&str>, name: &str) -> ChildKey {
    let namespace = namespace.map(str::to_owned);
    ChildKey { group: String::new(), kind: kind.to_owned(), namespace, name: name.to_owned() }
}

/// Scenario 6.6.11: the marks are those of the specification of `ApplySets`, as `kubectl` writes and reads them.
#[test]
fn marks_equal_the_golden_file() {
    let far = Child::read(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "far", "namespace": "zone"},
    }));
    let near = Child::read(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "near", "namespace": "alpha"},
    }));
    let children = vec![child("Secret", "key"), far.unwrap(), child("ConfigMap", "files"), near.unwrap()];
    let owner = owner();
    let planned = plan(children, &owner, &[true; 4], &options(true)).unwrap();
    let mut membership = Membership::default();
    for child in &planned {
        membership.add(&child.key, &owner);
    }
    let patch = owner_patch(&owner, &membership, "1.2.3", true).unwrap();
    let documents: Vec<_> = planned.iter().map(|child| &child.document).collect();
    let found = json!({"owner": patch, "children": documents});
    let golden: Value = serde_json::from_str(include_str!("golden.json")).unwrap();
    assert_eq!(found, golden, "{found:#}");
    assert_eq!(apply_set_id(&cluster_owner()), "applyset-hjU46Sv4PVa2NKeXp_YPl8LiH4ow-9HmdWJpjREkPyc-v1");
}

#[test]
fn owners_with_all_marks_are_not_patched() {
    let mut owner = owner();
    let mut membership = Membership::default();
    membership.add(&key("ConfigMap", Some("shop"), "x"), &owner);
    assert_eq!(membership.namespaces.len(), 0, "that of the owner is no additional one");
    let patch = owner_patch(&owner, &membership, "1", true).unwrap();
    let marked = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "8", "uid": patch["metadata"]["uid"],
                     "labels": patch["metadata"]["labels"], "annotations": patch["metadata"]["annotations"],
                     "finalizers": patch["metadata"]["finalizers"]},
    });
    owner = Owner::read(&marked).unwrap();
    assert_eq!(Membership::of(&owner), membership);
    assert_eq!(owner_patch(&owner, &membership, "2", true), None, "another version alone is no reason");
    membership.add(&key("Secret", Some("far"), "x"), &owner);
    let patch = owner_patch(&owner, &membership, "2", true).unwrap();
    let annotations = json!({
        "applyset.kubernetes.io/contains-group-kinds": "ConfigMap,Secret",
        "applyset.kubernetes.io/additional-namespaces": "far",
        "applyset.kubernetes.io/tooling": "kopf/2",
    });
    assert_eq!(patch, json!({"metadata": {"uid": "u1", "resourceVersion": "8", "annotations": annotations}}));
}

#[test]
fn only_the_newest_state_of_the_owner_counts() {
    let newer = Owner { resource_version: "10".to_owned(), ..owner() };
    let recreated = Owner { uid: "u2".to_owned(), ..newer.clone() };
    assert_eq!(owner().newest(Some(newer.clone())), newer);
    assert_eq!(newer.clone().newest(Some(owner())), newer);
    assert_eq!(owner().newest(Some(recreated)), owner());
    assert_eq!(owner().newest(None), owner());
}

#[test]
fn tools_other_than_this_one_are_foreign() {
    let with = |tool: &str| {
        let mut owner = owner();
        owner.annotations.insert("applyset.kubernetes.io/tooling".to_owned(), tool.to_owned());
        foreign_tool(&owner).is_some()
    };
    assert!(with("kubectl/v1.34.0"));
    assert!(with("kopfer/1"));
    assert!(!with("kopf/0.1.0"));
    assert_eq!(foreign_tool(&owner()), None);
}

#[test]
fn children_without_an_identity_are_rejected() {
    let text = |document: Value| Child::read(document).unwrap_err();
    assert!(text(json!({"kind": "X", "metadata": {"name": "x"}})).contains("no apiVersion"));
    assert!(text(json!({"apiVersion": "v1", "kind": "X"})).contains("no metadata.name"));
    assert!(
        text(json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": ""}})).contains("no metadata.name")
    );
    assert!(
        text(json!({"apiVersion": "v1", "kind": "X", "metadata": {"generateName": "x-"}}))
            .contains("generateName")
    );
}

#[test]
fn children_are_planned_in_ranks_and_in_namespaces() {
    let kinds = ["Pod", "Service", "ConfigMap", "ServiceAccount"];
    let planned =
        plan(kinds.map(|kind| child(kind, "x")).to_vec(), &owner(), &[true; 4], &options(false)).unwrap();
    let order: Vec<_> = planned.iter().map(|child| child.key.to_string()).collect();
    assert_eq!(order, ["ServiceAccount shop/x", "ConfigMap shop/x", "Service shop/x", "Pod shop/x"]);
    let flat = PlanOptions { order: false, ..options(false) };
    let planned = plan(kinds.map(|kind| child(kind, "x")).to_vec(), &owner(), &[true; 4], &flat).unwrap();
    assert!(planned.iter().all(|child| child.rank == 0));
    assert_eq!(planned[0].key.kind, "Pod");
}

#[test]
fn ranks_put_needed_kinds_first_and_webhooks_last() {
    let order = [
        "Namespace",
        "CustomResourceDefinition.apiextensions.k8s.io",
        "ServiceAccount",
        "ClusterRole.rbac.authorization.k8s.io",
        "RoleBinding.rbac.authorization.k8s.io",
        "Secret",
        "PersistentVolumeClaim",
        "Service",
        "Deployment.apps",
        "ValidatingWebhookConfiguration.admissionregistration.k8s.io",
    ];
    let ranks: Vec<_> = order.iter().map(|group_kind| PlannedChild::rank_of(group_kind)).collect();
    assert!(ranks.windows(2).all(|pair| pair[0] < pair[1]), "{ranks:?}");
    assert_eq!(PlannedChild::rank_of("Widget.example.com"), PlannedChild::rank_of("Pod"));
}

#[test]
fn links_are_references_where_kubernetes_allows_them() {
    let namespaced = |namespace: &str| {
        let mut one = child("ConfigMap", "x");
        one.namespace = Some(namespace.to_owned());
        one
    };
    let planned =
        plan(vec![namespaced("shop"), namespaced("far")], &owner(), &[true; 2], &options(true)).unwrap();
    assert_eq!(planned.iter().map(|child| child.link).collect::<Vec<_>>(), [Link::Reference, Link::Mark]);
    assert_eq!(planned[1].document["metadata"]["annotations"], json!({MARK: "u1"}));
    assert_eq!(planned[1].document["metadata"]["ownerReferences"], Value::Null);
    let planned = plan(vec![child("Namespace", "x")], &owner(), &[false], &options(true)).unwrap();
    assert_eq!(planned[0].link, Link::Mark);
    let planned = plan(vec![namespaced("far")], &cluster_owner(), &[true], &options(false)).unwrap();
    assert_eq!(planned[0].link, Link::Reference);

    let error = |children, owner: &Owner, is_namespaced: &[bool], prune| {
        plan(children, owner, is_namespaced, &options(prune)).unwrap_err()
    };
    assert!(error(vec![namespaced("far")], &owner(), &[true], false).contains("prune=True"));
    assert!(
        error(vec![child("ConfigMap", "x")], &cluster_owner(), &[true], true)
            .contains("needs metadata.namespace")
    );
    assert!(error(vec![namespaced("far")], &owner(), &[false], true).contains("cluster-scoped"));
    assert!(
        error(vec![namespaced("shop"), child("ConfigMap", "x")], &owner(), &[true; 2], true)
            .contains("twice")
    );
}

#[test]
fn children_of_declared_kinds_wait_for_their_crd() {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": "Thing"}},
    });
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}});
    let children = vec![Child::read(thing).unwrap(), Child::read(crd).unwrap()];
    let declared = declared_kinds(&children);
    assert!(!declared[&("example.com".to_owned(), "Thing".to_owned())].is_namespaced);
    for order in [true, false] {
        let options = PlanOptions { order, ..options(true) };
        let planned = plan(children.clone(), &cluster_owner(), &[false; 2], &options).unwrap();
        assert!(planned[0].rank < planned[1].rank);
        assert_eq!(planned[0].crd, None);
        assert_eq!(planned[1].crd.as_deref(), Some("things.example.com"));
    }
}

fn live(metadata: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    object["metadata"]["name"] = "x".into();
    object
}

fn reference(kind: &str, name: &str, uid: &str, controller: bool) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": kind, "name": name, "uid": uid, "controller": controller})
}

#[test]
fn objects_of_others_are_foreign() {
    let id = apply_set_id(&owner());
    let check = |metadata: Value| standing(&live(&metadata), &owner(), &id);
    let foreign = |text: &str| Standing::Foreign(text.to_owned());
    assert_eq!(check(json!({})), Standing::Free);
    assert_eq!(check(json!({"ownerReferences": [reference("Widget", "web", "u1", true)]})), Standing::Free);
    assert_eq!(
        check(json!({"ownerReferences": [reference("Widget", "other", "u2", false)]})),
        Standing::Free
    );
    assert_eq!(
        check(json!({"ownerReferences": [reference("Widget", "other", "u2", true)]})),
        foreign("Widget other")
    );
    assert_eq!(check(json!({"labels": {PART_OF: "x"}})), foreign("the ApplySet x"));
    assert_eq!(check(json!({"annotations": {MARK: "u2"}})), foreign("the owner with the uid u2"));
    // A former object of this name: its children are deleted by the cluster, or its marked children are taken over.
    let former = json!([reference("Widget", "web", "u0", true)]);
    let in_namespace = |namespace: &str| json!({"namespace": namespace, "ownerReferences": former});
    assert_eq!(check(in_namespace("shop")), Standing::Leaving);
    assert_eq!(check(in_namespace("elsewhere")), foreign("Widget web"));
    let former = json!({"namespace": "any", "ownerReferences": [reference("Cluster", "web", "u0", true)]});
    assert_eq!(standing(&live(&former), &cluster_owner(), &id), Standing::Leaving);
    assert_eq!(check(json!({"annotations": {MARK: "u0"}, "labels": {PART_OF: id}})), Standing::Free);
    assert_eq!(check(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})), Standing::Leaving);
}

#[test]
fn shared_documents_keep_the_marks_of_others() {
    let planned = plan(vec![child("ConfigMap", "x")], &owner(), &[true], &options(false)).unwrap();
    let found = live(&json!({
        "ownerReferences": [reference("Widget", "other", "u2", true)],
        "labels": {PART_OF: "theirs", "x": "y"},
    }));
    let shared = shared_document(&planned[0].document, &found, &owner());
    assert_eq!(shared["metadata"]["ownerReferences"], found["metadata"]["ownerReferences"]);
    assert_eq!(shared["metadata"]["labels"], json!({PART_OF: "theirs"}));
    let shared = shared_document(&planned[0].document, &live(&json!({})), &owner());
    assert_eq!(shared["metadata"], json!({"name": "x", "namespace": "shop", "labels": {}}));
}

#[test]
fn only_linked_members_are_pruned() {
    let id = "applyset-x-v1";
    let check = |mut metadata: Value, label: bool, link: bool| {
        if label {
            metadata["labels"] = json!({PART_OF: id});
        }
        if link {
            metadata["ownerReferences"] = json!([reference("Widget", "web", "u1", false)]);
        }
        fate(&live(&metadata), "u1", id)
    };
    assert_eq!(check(json!({}), true, true), Fate::Deleted);
    assert_eq!(check(json!({"annotations": {MARK: "u1"}}), true, false), Fate::Deleted);
    assert_eq!(check(json!({}), false, true), Fate::Unrelated);
    assert_eq!(check(json!({}), true, false), Fate::Unrelated);
    assert_eq!(check(json!({"annotations": {MARK: "u2"}}), true, false), Fate::Unrelated);
    assert_eq!(check(json!({"annotations": {"kit.kopf.zalando.org/keep": "true"}}), true, true), Fate::Kept);
    assert_eq!(check(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), true, true), Fate::Leaving);
    assert!(is_marked_elsewhere(&live(&json!({"annotations": {MARK: "u1"}})), "u1"));
    assert!(!is_marked_elsewhere(&live(&json!({"annotations": {MARK: "u2"}})), "u1"));
}

fn managed(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
           "time": "2026-01-01T00:00:00Z", "fieldsV1": fields})
}

fn pod(image: &str, note: &str, entries: &[Value]) -> Value {
    json!({
        "metadata": {"name": "x", "resourceVersion": "5", "managedFields": entries,
                     "finalizers": ["a", "b"], "annotations": {"note": note}},
        "spec": {"containers": [
            {"name": "side", "image": "side"},
            {"name": "app", "image": image, "ports": [{"containerPort": 80, "protocol": "TCP"}]},
        ]},
    })
}

fn applied_fields() -> Value {
    json!({
        "f:metadata": {"f:finalizers": {"v:\"a\"": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {
            ".": {}, "f:name": {}, "f:image": {},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
        }}},
    })
}

#[test]
fn digests_of_owned_fields_change_with_these_fields_only() {
    let entry = managed("me", "Apply", &applied_fields());
    let digest = |image, note, entries: &[Value]| owned_digest(&pod(image, note, entries), "me");
    let first = digest("1", "x", std::slice::from_ref(&entry));
    assert!(first.is_some());
    assert_eq!(digest("1", "y", std::slice::from_ref(&entry)), first);
    assert_eq!(digest("1", "x", &[managed("other", "Update", &json!({"f:spec": {}})), entry.clone()]), first);
    assert_ne!(digest("2", "x", std::slice::from_ref(&entry)), first);
    let mut fewer = entry.clone();
    fewer["fieldsV1"]["f:spec"]["f:containers"]["k:{\"name\":\"app\"}"]
        .as_object_mut()
        .unwrap()
        .shift_remove("f:image");
    assert_ne!(digest("1", "x", &[fewer]), first);
    assert_eq!(digest("1", "x", &[managed("me", "Update", &applied_fields())]), None);
    assert_eq!(write_time(&pod("1", "x", &[entry]), "me"), Some("2026-01-01T00:00:00Z"));
}

#[test]
fn fields_of_others_are_found_by_their_names_in_conflicts() {
    let object = pod(
        "1",
        "x",
        &[managed("other", "Apply", &applied_fields()), managed("me", "Apply", &json!({"f:data": {}}))],
    );
    let is_owned = |field: &str| is_owned_by_others(&object, "me", field);
    for field in [
        r#".spec.containers[name="app"].image"#,
        r#".spec.containers[name="app"]"#,
        r#".spec.containers[name="app"].ports[containerPort=80,protocol="TCP"].containerPort"#,
        r#".metadata.finalizers[="a"]"#,
        ".spec",
    ] {
        assert!(is_owned(field), "{field}");
    }
    for field in
        [".data", ".spec.replicas", r#".spec.containers[name="side"].image"#, r#".metadata.finalizers[="b"]"#]
    {
        assert!(!is_owned(field), "{field}");
    }
}

#[test]
fn fields_are_removed_by_their_names_in_conflicts() {
    let removed = |field: &str| {
        let mut object = pod("1", "x", &[]);
        object["metadata"]["annotations"]["example.com/a.b"] = "y".into();
        remove_field(&mut object, field).then_some(object)
    };
    let pointer = |field: &str, path: &str| removed(field).unwrap().pointer(path).cloned();
    assert_eq!(pointer(r#".spec.containers[name="app"].image"#, "/spec/containers/1/image"), None);
    assert_eq!(pointer(r#".spec.containers[name="side"]"#, "/spec/containers/0/name"), Some(json!("app")));
    assert_eq!(pointer(r#".metadata.finalizers[="a"]"#, "/metadata/finalizers"), Some(json!(["b"])));
    assert_eq!(
        pointer(".metadata.annotations.example.com/a.b", "/metadata/annotations"),
        Some(json!({"note": "x"}))
    );
    assert_eq!(
        pointer(
            r#".spec.containers[name="app"].ports[containerPort=80,protocol="TCP"]"#,
            "/spec/containers/1/ports"
        ),
        Some(json!([]))
    );
    for absent in
        [".spec.x", r#".spec.containers[name="x"].image"#, ".", "", "[", r#".spec.containers[name="app""#]
    {
        assert_eq!(removed(absent), None, "{absent}");
    }
}

#[test]
fn only_covered_conflicts_are_yielded() {
    let fields = [".spec.replicas".to_owned(), ".spec.template.x".to_owned()];
    let yielded = |paths: Option<&[&str]>| {
        let paths = paths.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
        ConflictPolicy::Yield(paths).yielded(&fields)
    };
    assert_eq!(yielded(None).unwrap().len(), 2);
    assert_eq!(yielded(Some(&["spec"])).unwrap().len(), 2);
    assert_eq!(yielded(Some(&[".spec.replicas", "spec.template"])).unwrap().len(), 2);
    assert_eq!(yielded(Some(&["spec.replicas"])), None);
    assert_eq!(yielded(Some(&["spec.rep", "spec.template"])), None);
    assert_eq!(ConflictPolicy::Fail.yielded(&fields), None);
    assert_eq!(ConflictPolicy::Force.yielded(&fields), None);
}

#[test]
fn takeovers_transfer_the_fields_of_the_managers() {
    let object = pod(
        "1",
        "x",
        &[
            managed("kubectl", "Update", &json!({"f:spec": {"f:a": {}}})),
            managed("other", "Update", &json!({"f:x": {}})),
            managed("me", "Apply", &json!({"f:spec": {"f:b": {}}})),
            json!({"manager": "kubectl", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}),
        ],
    );
    let patch = takeover_patch(&object, "me", &["kubectl".to_owned()]).unwrap();
    assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "5"}));
    let entries = patch[1]["value"].as_array().unwrap();
    let managers: Vec<_> = entries.iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert_eq!(managers, ["other", "kubectl", "me"]);
    assert_eq!(entries[2]["fieldsV1"], json!({"f:spec": {"f:a": {}, "f:b": {}}}));
    assert_eq!(entries[2]["operation"], "Apply");
    assert_eq!(takeover_patch(&object, "me", &["unknown".to_owned()]), None);
    assert_eq!(takeover_patch(&object, "me", &[]), None);
}

#[test]
fn rejections_are_classified() {
    let causes = |code, causes: Value, message: &str| {
        let status = json!({"reason": "X", "details": {"causes": causes}});
        classify(&Failure::rejected(code, message, Some(&status), None))
    };
    let conflict = |field: &str| json!([{"reason": "FieldManagerConflict", "message": "conflict with \"a\"", "field": field}]);
    assert!(matches!(causes(409, conflict(".spec.x"), ""), Rejection::Conflicts(found) if found.len() == 1));
    assert_eq!(
        causes(409, conflict(".metadata.labels.applyset.kubernetes.io/part-of"), ""),
        Rejection::Ownership
    );
    assert_eq!(
        causes(409, conflict(".metadata.annotations.kit.kopf.zalando.org/owner"), ""),
        Rejection::Ownership
    );
    let controllers =
        "Only one reference can have Controller set to true. Found \"true\" in references for A and B";
    assert_eq!(causes(422, json!([]), controllers), Rejection::Ownership);
    let immutable = json!([{"reason": "FieldValueInvalid", "message": "Invalid value: field is immutable", "field": "spec"}]);
    assert_eq!(causes(422, immutable, ""), Rejection::Immutable);
    let stateful = "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden";
    let stateful = json!([{"reason": "FieldValueForbidden", "message": stateful, "field": "spec"}]);
    assert_eq!(causes(422, stateful, ""), Rejection::Immutable);
    let invalid = json!([{"reason": "FieldValueInvalid", "message": "must be a number", "field": "spec"}]);
    assert_eq!(causes(422, invalid, ""), Rejection::Other);
    assert_eq!(causes(409, json!([]), ""), Rejection::Other);
}

#[test]
fn rejections_of_secrets_are_classified_without_their_messages() {
    let cause = |reason: &str, field: &str, message: &str| {
        let causes = json!([{"reason": reason, "field": field, "message": message}]);
        let status =
            json!({"kind": "Status", "message": message, "reason": "Invalid", "details": {"causes": causes}});
        let error = ApiError::from_response(422, None, status.to_string().as_bytes()).redacted();
        assert!(!error.to_string().contains("plant"), "{error}");
        classify(&Failure::rejected(422, &error.message, error.payload.as_ref(), None))
    };
    let immutable = "Forbidden: field is immutable when `immutable` is set";
    assert_eq!(cause("FieldValueForbidden", "data", immutable), Rejection::Immutable);
    let kind = "Invalid value: \"plant\": field is immutable";
    assert_eq!(cause("FieldValueInvalid", "type", kind), Rejection::Immutable);
    let quoted = "Invalid value: \"plant: field is immutable\"";
    assert_eq!(cause("FieldValueInvalid", "data", quoted), Rejection::Other);
    let controllers = "Invalid value: [plant]: Only one reference can have Controller set to true. Found \"true\" in \
                       references for A and B";
    assert_eq!(cause("FieldValueInvalid", "metadata.ownerReferences", controllers), Rejection::Ownership);
}

#[test]
fn managers_are_named_after_the_kind_of_the_owner() {
    assert_eq!(default_manager("example.com", "widgets"), "kopf-widgets.example.com");
    assert_eq!(default_manager("", "configmaps"), "kopf-configmaps");
    assert_eq!(default_manager(&"x".repeat(200), "widgets").len(), 128);
    assert!(is_irreplaceable("", "PersistentVolumeClaim"));
    assert!(!is_irreplaceable("batch", "Job"));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c./]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c.]{1,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().rev().map(|(key, value)| (key.clone(), reversed(value))).collect())
        }
        Value::Array(items) => items.iter().map(reversed).collect(),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn digests_depend_on_values_but_not_on_the_order_of_keys(a in values(), b in values()) {
        prop_assert_eq!(Digest::of(&a), Digest::of(&reversed(&a)));
        prop_assert_eq!(Digest::of(&a) == Digest::of(&b), a == b);
    }

    #[test]
    fn removing_any_field_never_panics_and_removes_at_most_one(mut value in values(), field in r#"[.\[\]="a-c0-9,]{0,12}"#) {
        let before = value.clone();
        let is_removed = remove_field(&mut value, &field);
        prop_assert_eq!(is_removed, value != before);
    }

    #[test]
    fn removed_names_are_gone(value in values()) {
        let mut document = value.clone();
        let keys: Vec<String> = value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
        for key in keys {
            let is_removed = remove_field(&mut document, &format!(".{key}"));
            prop_assert!(is_removed);
        }
        prop_assert!(document.as_object().is_none_or(serde_json::Map::is_empty));
    }

    #[test]
    fn widened_marks_cover_both_sides(names in prop::collection::vec(("[A-Z]", prop::option::of("[a-c]")), 0..6)) {
        let owner = owner();
        let mut all = Membership::default();
        for (kind, namespace) in &names {
            let mut one = Membership::default();
            one.add(&key(kind, namespace.as_deref(), "x"), &owner);
            let before = all.clone();
            all.widen(&one);
            prop_assert!(all.covers(&one) && all.covers(&before));
        }
    }
}
