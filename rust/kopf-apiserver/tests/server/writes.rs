//! Writes that change nothing, or only the owners of fields. The expected values are those of kube-apiserver 1.36.

use std::collections::BTreeMap;

use crate::support::client::Client;
use kopf_apiserver::{Server, ServerOptions, start};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const THINGS: &str = "/apis/test.dev/v1/namespaces/default/things";

async fn server() -> Server {
    start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server")
}

async fn send(server: &Server, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
    let client = Client::plain(server.port(), server.token());
    let headers: BTreeMap<String, String> = [
        ("authorization".to_owned(), format!("Bearer {}", server.token())),
        ("content-type".to_owned(), media.to_owned()),
    ]
    .into();
    let answer = client.send(method, path, &headers, &body.to_string()).await;
    (answer.code, serde_json::from_str(&answer.body).expect("JSON"))
}

/// The entry of a field manager.
fn entry<'v>(object: &'v Value, manager: &str) -> Option<&'v Value> {
    let list = object["metadata"]["managedFields"].as_array().expect("managed fields");
    list.iter().find(|entry| entry["manager"] == manager)
}

async fn with_things() -> Server {
    let server = server().await;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "note": {"type": "string", "nullable": true},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
                    "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "protocol"],
                        "items": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string"}, "protocol": {"type": "string", "default": "TCP"}}}}}}}}}}]}});
    let (code, answer) =
        send(&server, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", JSON, &crd).await;
    assert_eq!(code, 201, "{answer}");
    server
}

fn thing(spec: &Value) -> Value {
    json!({"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": spec})
}

#[tokio::test]
async fn an_update_of_an_unchanged_pod_keeps_its_generation() {
    let server = server().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {"containers": [{"name": "main", "image": "x:1"}]}});
    send(&server, "POST", pods, JSON, &pod).await;
    let (code, updated) = send(&server, "PUT", &format!("{pods}/one"), JSON, &pod).await;
    assert_eq!((code, &updated["metadata"]["generation"]), (200, &json!(1)));
    let mut changed = pod.clone();
    changed["spec"]["containers"][0]["image"] = "x:2".into();
    let (_, changed) = send(&server, "PUT", &format!("{pods}/one"), JSON, &changed).await;
    assert_eq!(changed["metadata"]["generation"], 2);
}

#[tokio::test]
async fn the_template_generation_of_a_daemon_set_counts_template_changes() {
    let server = server().await;
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let annotation =
        |set: &Value| set["metadata"]["annotations"]["deprecated.daemonset.template.generation"].clone();
    let mut set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "one"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "main", "image": "x:1"}]}}}});
    let (_, created) = send(&server, "POST", &format!("{sets}?fieldManager=first"), JSON, &set).await;
    assert_eq!(annotation(&created), "1");
    let path = format!("{sets}/one?fieldManager=second");
    let (_, updated) = send(&server, "PUT", &path, JSON, &set).await;
    assert_eq!(annotation(&updated), "1");
    // A request without the annotation sets it to zero before the server sets it: its manager owns it.
    let owned = json!({"f:metadata": {"f:annotations": {"f:deprecated.daemonset.template.generation": {}}}});
    assert_eq!(entry(&updated, "second").expect("an entry")["fieldsV1"], owned);
    set["spec"]["template"]["spec"]["containers"][0]["image"] = "x:2".into();
    let (_, updated) = send(&server, "PUT", &path, JSON, &set).await;
    assert_eq!(annotation(&updated), "2");
}

#[tokio::test]
async fn undeclared_fields_of_custom_resources_cannot_be_applied() {
    let server = with_things().await;
    let path = format!("{THINGS}/one?fieldManager=m");
    for (spec, errors) in [
        (json!({"nope": 1}), ".spec.nope: field not declared in schema"),
        (json!({"nope": null}), ".spec.nope: field not declared in schema"),
        (
            json!({"ports": [{"name": "a", "more": 2}]}),
            ".spec.ports[name=\"a\",protocol=\"TCP\"].more: field not declared in schema",
        ),
        (
            json!({"nope": 1, "pod": {"kind": "Pod", "metadata": {"nope": 1}}}),
            "errors:\n  .spec.nope: field not declared in schema\n  .spec.pod.metadata.nope: field not declared in schema",
        ),
    ] {
        let (code, status) = send(&server, "PATCH", &path, APPLY, &thing(&spec)).await;
        let expected =
            format!("failed to create typed patch object (/one; test.dev/v1, Kind=Thing): {errors}");
        assert_eq!((code, status["message"].as_str()), (500, Some(expected.as_str())), "{spec}");
    }
    let free =
        json!({"free": {"any": {"thing": 1}}, "pod": {"apiVersion": "v1", "kind": "Pod", "spec": {"x": 1}}});
    assert_eq!(send(&server, "PATCH", &path, APPLY, &thing(&free)).await.0, 201);
}

#[tokio::test]
async fn the_null_of_a_nullable_field_can_be_applied() {
    let server = with_things().await;
    let path = format!("{THINGS}/one?fieldManager=m");
    let (code, created) = send(&server, "PATCH", &path, APPLY, &thing(&json!({"note": null}))).await;
    assert_eq!((code, &created["spec"]), (201, &json!({"note": null})));
    assert_eq!(entry(&created, "m").expect("an entry")["fieldsV1"], json!({"f:spec": {"f:note": {}}}));
}

#[tokio::test]
async fn plain_text_of_secrets_has_owners() {
    let server = server().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "stringData": {"user": "x"}});
    let path = |manager: &str| format!("/api/v1/namespaces/default/secrets/one?fieldManager={manager}");
    for _ in 0..2 {
        let (_, applied) = send(&server, "PATCH", &path("m"), APPLY, &secret).await;
        assert_eq!(applied["data"], json!({"user": "eA=="}));
        assert_eq!(
            entry(&applied, "m").expect("an entry")["fieldsV1"],
            json!({"f:stringData": {"f:user": {}}})
        );
    }
    let (code, conflict) = send(&server, "PATCH", &path("other"), APPLY, &secret).await;
    assert_eq!((code, &conflict["details"]["causes"][0]["field"]), (409, &json!(".stringData.user")));
}

#[tokio::test]
async fn a_new_manager_of_unchanged_fields_has_no_time() {
    let server = server().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let rbac = "rbac.authorization.k8s.io";
    let mut binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "one"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "x"}, "subjects": [{"kind": "User", "name": "u"}]});
    send(&server, "POST", bindings, JSON, &binding).await;
    // Subjects are atomic: those without defaults count as changed.
    let (_, applied) =
        send(&server, "PATCH", &format!("{bindings}/one?fieldManager=m&force=true"), APPLY, &binding).await;
    assert!(entry(&applied, "m").expect("an entry")["time"].is_string(), "{applied}");
    binding["subjects"][0]["apiGroup"] = rbac.into();
    let (_, applied) =
        send(&server, "PATCH", &format!("{bindings}/one?fieldManager=n"), APPLY, &binding).await;
    assert!(entry(&applied, "n").expect("an entry")["time"].is_null(), "{applied}");
}

/// The fields of an answer's causes.
fn fields(answer: &Value) -> Vec<&str> {
    let causes = answer["details"]["causes"].as_array().map_or(&[][..], Vec::as_slice);
    causes.iter().filter_map(|cause| cause["field"].as_str()).collect()
}

/// Creates an object of the core group without storing it.
async fn dry_create(server: &Server, plural: &str, kind: &str, content: Value) -> (u16, Value) {
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "one"}});
    if let (Some(map), Value::Object(content)) = (object.as_object_mut(), content) {
        map.extend(content);
    }
    let path = format!("/api/v1/namespaces/default/{plural}?dryRun=All");
    send(server, "POST", &path, JSON, &object).await
}

#[tokio::test]
async fn services_have_target_ports_and_an_affinity() {
    let server = server().await;
    let service = |spec: Value| dry_create(&server, "services", "Service", json!({"spec": spec}));
    let (code, answer) = service(json!({"ports": [{}]})).await;
    assert_eq!((code, fields(&answer)), (422, vec!["spec.ports[0].port", "spec.ports[0].targetPort"]));
    let (_, answer) = service(json!({"ports": [{"port": 53, "targetPort": 0}]})).await;
    assert_eq!(answer["spec"]["ports"][0]["targetPort"], 53);
    let ports = json!([{"port": 80}]);
    let (_, answer) = service(
        json!({"ports": ports, "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {}}}),
    )
    .await;
    assert_eq!(answer["spec"]["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
    let (_, answer) = service(json!({"ports": ports, "sessionAffinityConfig": {}})).await;
    assert_eq!(answer["spec"]["sessionAffinityConfig"], Value::Null);
    let (_, answer) =
        service(json!({"ports": ports, "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}))
            .await;
    assert_eq!(answer["spec"]["ports"][0]["nodePort"], Value::Null);
}

#[tokio::test]
async fn the_texts_of_events_are_limited_in_bytes() {
    let server = server().await;
    let event = |time: Value, message: String| {
        let object = json!({"kind": "Pod", "name": "one", "namespace": "default"});
        let texts =
            json!({"reason": "Why", "action": "Act", "reportingComponent": "c", "reportingInstance": "i"});
        let mut content = json!({"involvedObject": object, "message": message, "eventTime": time});
        for (key, value) in texts.as_object().expect("an object") {
            content[key] = value.clone();
        }
        dry_create(&server, "events", "Event", content)
    };
    let time = json!("2026-01-01T00:00:00.000000Z");
    for (message, code) in [("a".repeat(1024), 201), ("é".repeat(512), 201), ("é".repeat(513), 422)] {
        let (responded, answer) = event(time.clone(), message).await;
        assert_eq!(responded, code, "{answer}");
        assert_eq!(fields(&answer), if code == 422 { vec!["message"] } else { vec![] });
    }
    assert_eq!(event(Value::Null, "é".repeat(2000)).await.0, 201);
}

#[tokio::test]
async fn an_item_without_the_key_of_its_list_leaves_an_object_without_managed_fields() {
    let server = server().await;
    let account = |secret: Value| {
        dry_create(&server, "serviceaccounts", "ServiceAccount", json!({"secrets": [secret]}))
    };
    let (_, answer) = account(json!({"name": "a", "uid": "x"})).await;
    assert_eq!(answer["secrets"], json!([{"name": "a"}]));
    assert!(answer["metadata"]["managedFields"].is_array());
    let (code, answer) = account(json!({})).await;
    assert_eq!((code, &answer["metadata"]["managedFields"]), (201, &Value::Null));
}

#[tokio::test]
async fn pods_have_the_priority_of_their_class() {
    let server = server().await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
        "value": 100, "preemptionPolicy": "Never"});
    let (code, _) = send(&server, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", JSON, &class).await;
    assert_eq!(code, 201);
    let pod = |extra: Value| {
        let mut spec = json!({"containers": [{"name": "main", "image": "x:1"}]});
        for (key, value) in extra.as_object().expect("an object") {
            spec[key] = value.clone();
        }
        dry_create(&server, "pods", "Pod", json!({"spec": spec}))
    };
    let (_, answer) = pod(json!({"priorityClassName": "high"})).await;
    assert_eq!(
        (&answer["spec"]["priority"], &answer["spec"]["preemptionPolicy"]),
        (&json!(100), &json!("Never"))
    );
    for (extra, why) in [
        (json!({"priorityClassName": "x"}), "no PriorityClass with name x was found"),
        (
            json!({"priority": 1}),
            "the integer value of priority (1) must not be provided in pod spec; priority admission controller computed 0 from \
             the given PriorityClass name",
        ),
        (json!({"runtimeClassName": "x"}), "pod rejected: RuntimeClass \"x\" not found"),
    ] {
        let (code, answer) = pod(extra).await;
        assert_eq!((code, &answer["message"]), (403, &json!(format!("pods \"one\" is forbidden: {why}"))));
    }
}

#[tokio::test]
async fn expressions_of_policies_are_compiled() {
    let server = server().await;
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]);
    let create = |spec: Value| {
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "one"}, "spec": {"matchConstraints": {"resourceRules": rules}, "variables": spec["variables"],
                "validations": [{"expression": spec["expression"]}]}});
        let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All";
        let server = &server;
        async move { send(server, "POST", path, JSON, &policy).await }
    };
    let limit = json!([{"name": "limit", "expression": "5"}]);
    let (code, answer) =
        create(json!({"variables": limit, "expression": "object.spec.x <= variables.limit"})).await;
    assert_eq!(code, 201, "{answer}");
    for (variables, expression, field) in [
        (json!([]), "object.spec.x <= variables.limit", "spec.validations[0].expression"),
        (limit.clone(), "variables.other > 1", "spec.validations[0].expression"),
        (json!([{"name": "limit", "expression": "other"}]), "true", "spec.variables[0].expression"),
        (limit.clone(), "params.x", "spec.validations[0].expression"),
    ] {
        let (code, answer) = create(json!({"variables": variables, "expression": expression})).await;
        assert_eq!((code, fields(&answer)), (422, vec![field]), "{expression}");
    }
}

#[tokio::test]
async fn the_status_of_a_custom_resource_is_validated_apart() {
    let server = server().await;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "parts.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": {"plural": "parts", "kind": "Part"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "status": {"type": "object", "properties": {"count": {"type": "integer"}}}}}}}]}});
    send(&server, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", JSON, &crd).await;
    let parts = "/apis/test.dev/v1/namespaces/default/parts";
    let part = json!({"apiVersion": "test.dev/v1", "kind": "Part", "metadata": {"name": "one"}});
    send(&server, "POST", parts, JSON, &part).await;
    let merge = "application/merge-patch+json";
    let (code, answer) =
        send(&server, "PATCH", &format!("{parts}/one/status"), merge, &json!({"status": {"count": "x"}}))
            .await;
    let message = "Invalid value: \"string\": count in body must be of type integer: \"string\"";
    assert_eq!((code, &answer["details"]["causes"][0]["message"]), (422, &json!(message)));
}

#[tokio::test]
async fn a_csi_driver_has_a_generation_after_its_first_change() {
    let server = server().await;
    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.test.dev"}, "spec": {}});
    let (_, created) = send(&server, "POST", drivers, JSON, &driver).await;
    assert_eq!(created["metadata"]["generation"], Value::Null);
    let changed = json!({"spec": {"podInfoOnMount": true}});
    let path = format!("{drivers}/csi.test.dev");
    let (_, changed) = send(&server, "PATCH", &path, "application/merge-patch+json", &changed).await;
    assert_eq!(changed["metadata"]["generation"], 1);
}

/// `kubernetes_asyncio` sends Python's `False`.
#[tokio::test]
async fn flags_are_false_in_any_case() {
    let server = with_things().await;
    let noted = |note: &str| thing(&json!({"note": note}));
    let path = |manager: &str, force: &str| format!("{THINGS}/one?fieldManager={manager}&force={force}");
    assert_eq!(send(&server, "PATCH", &path("first", "False"), APPLY, &noted("a")).await.0, 201);
    assert_eq!(send(&server, "PATCH", &path("second", "False"), APPLY, &noted("b")).await.0, 409);
    assert_eq!(send(&server, "PATCH", &path("second", "True"), APPLY, &noted("b")).await.0, 200);
}

#[tokio::test]
async fn enumerations_apply_to_values_of_wrong_types() {
    let server = server().await;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "paints.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": {"plural": "paints", "kind": "Paint"}, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "colour": {"type": "string", "enum": ["red", "green"]}}}}}]}});
    send(&server, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", JSON, &crd).await;
    let paint =
        json!({"apiVersion": "test.dev/v1", "kind": "Paint", "metadata": {"name": "one"}, "colour": 1});
    let (code, answer) =
        send(&server, "POST", "/apis/test.dev/v1/namespaces/default/paints", JSON, &paint).await;
    assert_eq!(code, 422);
    let expected = "Paint.test.dev \"one\" is invalid: [colour: Invalid value: \"integer\": colour in body must be of type string: \
                    \"integer\", colour: Unsupported value: 1: supported values: \"red\", \"green\"]";
    assert_eq!(answer["message"], expected);
}

/// The body of an error ends as that of kube-apiserver does.
#[tokio::test]
async fn errors_end_with_a_line_break() {
    let server = server().await;
    let client = Client::plain(server.port(), server.token());
    let headers = [("authorization".to_owned(), format!("Bearer {}", server.token()))].into();
    let answer = client.send("GET", "/api/v1/namespaces/nothing", &headers, "").await;
    assert_eq!(answer.code, 404);
    assert!(answer.body.ends_with("}\n"), "{}", answer.body);
}

/// `Scale` omits a number of zero.
#[tokio::test]
async fn a_scale_of_zero_has_no_manager() {
    let server = server().await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "one"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    send(&server, "POST", &format!("{sets}?fieldManager=first"), JSON, &set).await;
    let merge = "application/merge-patch+json";
    let path = format!("{sets}/one/scale?fieldManager=second");
    let mut managers = Vec::new();
    for replicas in [2, 0] {
        send(&server, "PATCH", &path, merge, &json!({"spec": {"replicas": replicas}})).await;
        let (_, found) = send(&server, "GET", &format!("{sets}/one"), JSON, &Value::Null).await;
        let list = found["metadata"]["managedFields"].as_array().expect("managed fields").clone();
        let owners = list.iter().filter(|entry| entry["fieldsV1"]["f:spec"]["f:replicas"] == json!({}));
        managers.push(owners.map(|entry| entry["manager"].clone()).collect::<Vec<_>>());
    }
    assert_eq!(managers, [vec![json!("second")], vec![]]);
}

fn lease(meta: &Value) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}})
}

#[tokio::test]
async fn a_put_creates_an_absent_object_unless_it_has_a_uid() {
    let server = server().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/one";
    let of_other = lease(&json!({"name": "one", "uid": "x", "resourceVersion": "3"}));
    let (code, answer) = send(&server, "PUT", path, JSON, &of_other).await;
    let expected = "Operation cannot be fulfilled on leases.coordination.k8s.io \"one\": StorageError: invalid object, Code: 4, Key: \
                    /registry/leases/default/one, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: x, \
                    UID in object meta: ";
    assert_eq!((code, &answer["message"]), (409, &expected.into()));
    let stale = lease(&json!({"name": "one", "resourceVersion": "3"}));
    let (code, created) = send(&server, "PUT", path, JSON, &stale).await;
    let (found_code, found) = send(&server, "GET", path, JSON, &Value::Null).await;
    assert_eq!((code, found_code), (201, 200), "{created}");
    assert_eq!(found, created);
}

#[tokio::test]
async fn an_apply_creates_an_absent_object_unless_it_has_a_uid() {
    let server = with_things().await;
    let path = format!("{THINGS}/one?fieldManager=x");
    let mut config = thing(&json!({}));
    config["metadata"]["resourceVersion"] = "3".into();
    config["metadata"]["uid"] = "x".into();
    let (code, answer) = send(&server, "PATCH", &path, APPLY, &config).await;
    let expected = "Operation cannot be fulfilled on things.test.dev \"one\": uid mismatch: the provided object specified uid x, \
                    and no existing object was found";
    assert_eq!((code, &answer["message"]), (409, &expected.into()));
    config["metadata"].as_object_mut().expect("metadata").remove("uid");
    let (code, created) = send(&server, "PATCH", &path, APPLY, &config).await;
    let (_, found) = send(&server, "GET", &format!("{THINGS}/one"), JSON, &Value::Null).await;
    assert_eq!((code, &found), (201, &created));
    config["metadata"]["uid"] = "x".into();
    config["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    let (code, answer) = send(&server, "PATCH", &path, APPLY, &config).await;
    let expected =
        "Thing.test.dev \"one\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable";
    assert_eq!((code, &answer["message"]), (422, &expected.into()));
}

#[tokio::test]
async fn an_update_of_version_0_is_unconditional() {
    let server = server().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |meta: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta});
    send(&server, "POST", maps, JSON, &map(json!({"name": "one"}))).await;
    let path = format!("{maps}/one");
    let change = json!({"name": "one", "labels": {"a": "b"}, "resourceVersion": "0"});
    let (code, found) = send(&server, "PUT", &path, JSON, &map(change)).await;
    assert_eq!((code, &found["metadata"]["labels"]), (200, &json!({"a": "b"})));
    let stale = json!({"name": "one", "resourceVersion": "1"});
    assert_eq!(send(&server, "PUT", &path, JSON, &map(stale)).await.0, 409);
}

/// The managed fields of an object are deeper than the object.
#[tokio::test]
async fn objects_with_as_many_levels_as_permitted_can_be_read_and_deleted() {
    let server = with_things().await;
    let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let (code, answer) = send(&server, "POST", THINGS, JSON, &thing(&json!({"free": nested(118)}))).await;
    assert_eq!(code, 400, "{answer}");
    let (code, answer) = send(&server, "POST", THINGS, JSON, &thing(&json!({"free": nested(117)}))).await;
    assert_eq!(code, 201, "{answer}");
    let path = format!("{THINGS}/one");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&server, "PATCH", &path, "application/merge-patch+json", &label).await.0, 200);
    assert_eq!(send(&server, "DELETE", &path, JSON, &Value::Null).await.0, 200);
    assert_eq!(send(&server, "GET", &path, JSON, &Value::Null).await.0, 404);
}

#[tokio::test]
async fn an_apply_that_only_reorders_items_is_a_write() {
    let server = with_things().await;
    let path = format!("{THINGS}/one?fieldManager=x");
    let ports = |names: &[&str]| -> Value {
        let ports: Vec<_> = names.iter().map(|name| json!({"name": name, "protocol": "TCP"})).collect();
        json!({"ports": ports})
    };
    for (generation, names) in [(1, vec!["a", "c"]), (2, vec!["a", "b", "c"]), (3, vec!["c", "b", "a"])] {
        let (_, applied) = send(&server, "PATCH", &path, APPLY, &thing(&ports(&names))).await;
        assert_eq!(
            (&applied["metadata"]["generation"], &applied["spec"]),
            (&generation.into(), &ports(&names))
        );
    }
}

#[tokio::test]
async fn duplicate_keys_of_an_applied_configuration_are_reported() {
    let server = server().await;
    let client = Client::plain(server.port(), server.token());
    let headers: BTreeMap<String, String> = [
        ("authorization".to_owned(), format!("Bearer {}", server.token())),
        ("content-type".to_owned(), APPLY.to_owned()),
    ]
    .into();
    let body = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1", "a": "2"}}"#;
    let path = "/api/v1/namespaces/default/configmaps/one?fieldManager=x";
    let strict = client.send("PATCH", &format!("{path}&fieldValidation=Strict"), &headers, body).await;
    let answer: Value = serde_json::from_str(&strict.body).expect("JSON");
    let expected = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 1: key \"a\" already \
                    set in map";
    assert_eq!((strict.code, &answer["message"]), (400, &expected.into()));
    let applied = client.send("PATCH", path, &headers, body).await;
    let expected = r#"299 - "line 1: key \"a\" already set in map""#;
    assert_eq!((applied.code, applied.warnings), (201, vec![expected.to_owned()]));
    let path = format!("{path}&fieldValidation=Ignore");
    assert_eq!(client.send("PATCH", &path, &headers, body).await.warnings, Vec::<String>::new());
}

#[tokio::test]
async fn finalizers_without_a_domain_have_warnings_unless_they_are_those_of_deletions() {
    let server = with_things().await;
    let client = Client::plain(server.port(), server.token());
    let headers: BTreeMap<String, String> = [
        ("authorization".to_owned(), format!("Bearer {}", server.token())),
        ("content-type".to_owned(), JSON.to_owned()),
    ]
    .into();
    let mut new = thing(&json!({}));
    new["metadata"]["finalizers"] = json!(["orphan", "foregroundDeletion", "mine", "test.dev/mine"]);
    let answer = client.send("POST", THINGS, &headers, &new.to_string()).await;
    assert_eq!((answer.code, answer.warnings.len()), (201, 1), "{:?}", answer.warnings);
    assert!(answer.warnings[0].contains(r#"metadata.finalizers: \"mine\": prefer"#), "{:?}", answer.warnings);
}

#[tokio::test]
async fn the_name_of_an_applied_object_may_be_absent_if_it_exists() {
    let server = server().await;
    let path = "/api/v1/namespaces/default/configmaps/one?fieldManager=x";
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}});
    let (code, answer) = send(&server, "PATCH", path, APPLY, &config).await;
    assert_eq!(code, 400, "{answer}");
    let mut named = config.clone();
    named["metadata"] = json!({"name": "one"});
    assert_eq!(send(&server, "PATCH", path, APPLY, &named).await.0, 201);
    assert_eq!(send(&server, "PATCH", path, APPLY, &config).await.0, 200);
}

#[tokio::test]
async fn applied_values_of_wrong_types_do_not_fit_the_schema() {
    let server = server().await;
    let path = "/api/v1/namespaces/default/configmaps/one?fieldManager=x";
    for (member, value, why) in [
        ("data", json!({"a": 1}), ".data.a: expected string, got &value.valueUnstructured{Value:1}"),
        ("data", json!("x"), ".data: expected map, got &{x}"),
        ("immutable", json!("x"), ".immutable: expected boolean, got &{x}"),
    ] {
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, member: value});
        let (code, answer) = send(&server, "PATCH", path, APPLY, &config).await;
        let expected = format!("failed to create typed patch object (/one; /v1, Kind=ConfigMap): {why}");
        assert_eq!((code, &answer["message"]), (500, &expected.into()));
    }
}
