//! Integration tests of admission: which webhooks and policies are called, in which order, and with which objects.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use kopf_apiserver::{Server, ServerOptions, start};
use serde_json::{Value, json};

use crate::running::wait_until;
use crate::support::client::{Answer, Client};
use crate::support::webhook::{Webhook, patched};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

async fn plain() -> Server {
    start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server")
}

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

async fn post(server: &Server, path: &str, body: &Value) -> Answer {
    let client = Client::plain(server.port(), server.token());
    let headers: BTreeMap<String, String> = [
        ("authorization".to_owned(), format!("Bearer {}", server.token())),
        ("content-type".to_owned(), "application/json".to_owned()),
    ]
    .into();
    client.send("POST", path, &headers, &body.to_string()).await
}

fn rule(group: &str, version: &str, resource: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": ["*"]})
}

/// Creates a configuration. Each webhook is a name, which is its path as well, and further members.
async fn configure(server: &Server, plural: &str, webhook: &Webhook, webhooks: &[(&str, Value)]) {
    let webhooks = webhooks.iter().map(|(name, more)| {
        let mut hook = json!({"name": format!("{name}.test.dev"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": webhook.client_config(&format!("/{name}")), "rules": [rule("", "v1", "configmaps")]});
        for (key, value) in more.as_object().into_iter().flatten() {
            hook[key] = value.clone();
        }
        hook
    });
    let body = json!({"metadata": {"name": "hooks"}, "webhooks": webhooks.collect::<Vec<_>>()});
    server.create(&format!("{CONFIGURATIONS}/{plural}"), &body).await.expect("created");
}

fn paths(calls: &[(String, Value)]) -> Vec<&str> {
    calls.iter().map(|(path, _)| path.as_str()).collect()
}

#[tokio::test]
async fn webhooks_are_called_again_if_a_later_one_changes_the_object() {
    let server = plain().await;
    let webhook = Webhook::start(|path, request| match path {
        "/second" if request["object"]["data"]["b"].is_null() => {
            patched(&json!([{"op": "add", "path": "/data/b", "value": "2"}]))
        }
        _ => json!({"allowed": true}),
    });
    let webhook = webhook.await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = [("first", again.clone()), ("never", json!({})), ("second", again.clone()), ("third", again)];
    configure(&server, "mutatingwebhookconfigurations", &webhook, &hooks).await;
    server.create(MAPS, &map("changed", &json!({"a": "1"}))).await.expect("created");
    let calls = webhook.take_calls();
    assert_eq!(paths(&calls), ["/first", "/never", "/second", "/third", "/first"]);
    assert_eq!(calls.last().expect("a call").1["object"]["data"], json!({"a": "1", "b": "2"}));
    server.create(MAPS, &map("same", &json!({"b": "1"}))).await.expect("created");
    assert_eq!(paths(&webhook.take_calls()), ["/first", "/never", "/second", "/third"]);
}

#[tokio::test]
async fn selectors_see_the_changes_of_earlier_webhooks() {
    let server = plain().await;
    let webhook = Webhook::start(|path, _| match path {
        "/first" => patched(&json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}])),
        _ => json!({"allowed": true}),
    });
    let webhook = webhook.await;
    let selector = json!({"objectSelector": {"matchLabels": {"a": "b"}}});
    let hooks = [("before", selector.clone()), ("first", json!({})), ("after", selector)];
    configure(&server, "mutatingwebhookconfigurations", &webhook, &hooks).await;
    server.create(MAPS, &map("m", &json!({}))).await.expect("created");
    assert_eq!(paths(&webhook.take_calls()), ["/first", "/after"]);
}

#[tokio::test]
async fn match_conditions_decide_about_calls() {
    let server = plain().await;
    let webhook = Webhook::start(|_, _| json!({"allowed": true})).await;
    let conditions = |expressions: &[&str]| -> Value {
        let all = expressions
            .iter()
            .enumerate()
            .map(|(i, text)| json!({"name": format!("c{i}"), "expression": text}));
        json!({"matchConditions": all.collect::<Vec<_>>()})
    };
    let mut ignoring = conditions(&["object.data.absent == 'x'"]);
    ignoring["failurePolicy"] = "Ignore".into();
    let hooks = [
        ("met", conditions(&["object.data.a == '1'", "request.operation == 'CREATE' && oldObject == null"])),
        ("unmet", conditions(&["object.data.a == '1'", "has(object.data.b)"])),
        ("ignored", ignoring),
        ("failing-unmet", conditions(&["object.data.absent == 'x'", "false"])),
    ];
    configure(&server, "validatingwebhookconfigurations", &webhook, &hooks).await;
    server.create(MAPS, &map("m", &json!({"a": "1"}))).await.expect("created");
    assert_eq!(paths(&webhook.take_calls()), ["/met"]);
    let answer = post(&server, MAPS, &map("n", &json!({"b": "1"}))).await;
    assert_eq!(answer.code, 403, "{answer:?}");
    let expected = "configmaps \\\"n\\\" is forbidden: expression 'object.data.a == '1'' resulted in error: no such key: a";
    assert!(answer.body.contains(expected), "{}", answer.body);
}

#[tokio::test]
async fn denials_have_the_status_of_the_webhook() {
    let server = plain().await;
    let webhook = Webhook::start(|_, request| {
        let status = match request["name"].as_str() {
            Some("message") => json!({"message": "no"}),
            Some("reason") => json!({"reason": "NotFound"}),
            Some("details") => json!({"code": 422, "message": "no", "details": {"causes": [{"field": "f"}]}}),
            _ => Value::Null,
        };
        json!({"allowed": false, "status": status})
    });
    configure(&server, "validatingwebhookconfigurations", &webhook.await, &[("a", json!({}))]).await;
    for (name, expected) in [
        ("silent", (400, " without explanation", Value::Null)),
        ("message", (400, ": no", Value::Null)),
        ("reason", (400, ": NotFound", Value::Null)),
        ("details", (422, ": no", json!({"causes": [{"field": "f"}]}))),
    ] {
        let answer = post(&server, MAPS, &map(name, &json!({}))).await;
        let status: Value = serde_json::from_str(&answer.body).expect("a Status");
        let message = format!("admission webhook \"a.test.dev\" denied the request{}", expected.1);
        assert_eq!((answer.code, &status["message"]), (expected.0, &message.into()), "{name}");
        assert_eq!(status["details"], expected.2, "{name}");
    }
}

#[tokio::test]
async fn webhooks_match_equivalent_versions_and_get_objects_in_theirs() {
    let server = plain().await;
    let webhook = Webhook::start(|path, _| match path {
        "/equivalent" => patched(&json!([{"op": "replace", "path": "/spec/maxReplicas", "value": 4}])),
        _ => json!({"allowed": true}),
    });
    let webhook = webhook.await;
    let rules = json!([rule("autoscaling", "v2", "horizontalpodautoscalers")]);
    let hooks =
        [("equivalent", json!({"rules": rules})), ("exact", json!({"rules": rules, "matchPolicy": "Exact"}))];
    configure(&server, "mutatingwebhookconfigurations", &webhook, &hooks).await;
    let scaler = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "s"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 50}});
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let made = server.create(path, &scaler).await.expect("created");
    assert_eq!((&made["apiVersion"], &made["spec"]["maxReplicas"]), (&"autoscaling/v1".into(), &4.into()));
    let calls = webhook.take_calls();
    assert_eq!(paths(&calls), ["/equivalent"]);
    let request = &calls.first().expect("a call").1;
    assert_eq!(request["object"]["apiVersion"], "autoscaling/v2");
    assert_eq!(request["object"]["spec"]["metrics"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&request["kind"]["version"], &request["requestKind"]["version"]),
        (&"v2".into(), &"v1".into())
    );
}

#[tokio::test]
async fn policies_deny_and_warn() {
    let server = plain().await;
    let spec = json!({"matchConstraints": {"resourceRules": [rule("", "v1", "configmaps")]},
        "variables": [{"name": "a", "expression": "object.data.a"}],
        "validations": [{"expression": "variables.a == '1'", "messageExpression": "'a is ' + variables.a", "reason": "Forbidden"}]});
    let policy = json!({"metadata": {"name": "one"}, "spec": spec});
    server.create(&format!("{CONFIGURATIONS}/validatingadmissionpolicies"), &policy).await.expect("created");
    server.create(MAPS, &map("unbound", &json!({"a": "2"}))).await.expect("created");
    let binding = json!({"metadata": {"name": "bound"}, "spec": {"policyName": "one", "validationActions": ["Deny", "Audit"]}});
    let bindings = format!("{CONFIGURATIONS}/validatingadmissionpolicybindings");
    server.create(&bindings, &binding).await.expect("created");
    server.create(MAPS, &map("good", &json!({"a": "1"}))).await.expect("created");
    let denied = post(&server, MAPS, &map("bad", &json!({"a": "2"}))).await;
    let status: Value = serde_json::from_str(&denied.body).expect("a Status");
    let why = "ValidatingAdmissionPolicy 'one' with binding 'bound' denied request: a is 2";
    assert_eq!((denied.code, &status["reason"]), (403, &"Forbidden".into()));
    assert_eq!(status["message"], format!("configmaps \"bad\" is forbidden: {why}"));
    assert_eq!(status["details"]["causes"], json!([{"message": why}]));
    let warning = json!({"spec": {"validationActions": ["Warn"]}});
    server.call("PATCH", &format!("{bindings}/bound"), Some(&warning)).await.expect("patched");
    let warned = post(&server, MAPS, &map("bad", &json!({}))).await;
    assert_eq!(warned.code, 201);
    let why = "expression 'variables.a == '1'' resulted in error: composited variable \\\"a\\\" fails to evaluate: no such key: data";
    let why = format!("Validation failed for ValidatingAdmissionPolicy 'one' with binding 'bound': {why}");
    assert_eq!(warned.warnings, [format!("299 - \"{why}\"")]);
}

#[tokio::test]
async fn authorization_checks_of_service_accounts_know_their_groups() {
    let server = plain().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    server
        .create(&format!("{rbac}/roles"), &json!({"metadata": {"name": "role"}, "rules": rules}))
        .await
        .expect("created");
    let check = "authorizer.serviceAccount('default', 'op').group('').resource('pods').namespace('default').check('list')";
    let spec = json!({"matchConstraints": {"resourceRules": [rule("", "v1", "configmaps")]},
        "validations": [{"expression": format!("{check}.allowed()")}]});
    let policy = json!({"metadata": {"name": "one"}, "spec": spec});
    server.create(&format!("{CONFIGURATIONS}/validatingadmissionpolicies"), &policy).await.expect("created");
    let bound =
        json!({"metadata": {"name": "bound"}, "spec": {"policyName": "one", "validationActions": ["Deny"]}});
    let bindings = format!("{CONFIGURATIONS}/validatingadmissionpolicybindings");
    server.create(&bindings, &bound).await.expect("created");
    for (group, expected) in [("system:serviceaccounts:other", 422), ("system:serviceaccounts:default", 201)]
    {
        let binding = json!({"metadata": {"generateName": "accounts-"},
            "subjects": [{"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "role"}});
        server.create(&format!("{rbac}/rolebindings"), &binding).await.expect("created");
        let answer = post(&server, MAPS, &map("m", &json!({}))).await;
        assert_eq!(answer.code, expected, "{group}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_rule_for_all_subresources_matches_the_objects_too() {
    let server = plain().await;
    let webhook = Webhook::start(|_, _| json!({"allowed": true})).await;
    let hooks = ["configmaps/*", "*/*", "configmaps/status", "*/scale"];
    let hooks: Vec<_> = hooks.iter().map(|resource| json!({"rules": [rule("", "v1", resource)]})).collect();
    let hooks: Vec<_> = ["all", "any", "status", "scale"].into_iter().zip(hooks).collect();
    configure(&server, "validatingwebhookconfigurations", &webhook, &hooks).await;
    server.create(MAPS, &map("m", &json!({}))).await.expect("created");
    let calls = webhook.take_calls();
    let mut called = paths(&calls);
    called.sort_unstable();
    assert_eq!(called, ["/all", "/any"]);
}

#[tokio::test]
async fn a_webhook_that_makes_a_scale_invalid_fails_the_request() {
    let server = plain().await;
    let webhook =
        Webhook::start(|_, _| patched(&json!([{"op": "replace", "path": "/spec", "value": "none"}]))).await;
    let hooks = [("broken", json!({"rules": [rule("apps", "v1", "deployments/scale")]}))];
    configure(&server, "mutatingwebhookconfigurations", &webhook, &hooks).await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    server.create(path, &deployment).await.expect("created");
    let change = json!({"spec": {"replicas": 3}});
    let failed = server.call("PATCH", &format!("{path}/d/scale"), Some(&change)).await;
    let failed = failed.expect_err("rejected").to_string();
    assert!(failed.contains("(500)") && failed.contains("cannot unmarshal string"), "{failed}");
    assert_eq!(server.get(&format!("{path}/d")).await.expect("found")["spec"]["replicas"], 2);
}

#[tokio::test]
async fn webhooks_decide_about_the_deletions_of_the_garbage_collector() {
    let server = plain().await;
    // The first attempt is denied.
    let denied = AtomicUsize::new(0);
    let webhook = Webhook::start(move |_, request| {
        let is_of_collector = request["operation"] == "DELETE" && request["name"] == "child";
        json!({"allowed": !is_of_collector || denied.fetch_add(1, Ordering::Relaxed) > 0})
    })
    .await;
    let owner = server.create(MAPS, &map("owner", &json!({}))).await.expect("created");
    let mut child = map("child", &json!({"a": "1"}));
    child["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    let child = server.create(MAPS, &child).await.expect("created");
    configure(&server, "validatingwebhookconfigurations", &webhook, &[("hook", json!({}))]).await;
    server.call("DELETE", &format!("{MAPS}/owner"), None).await.expect("deleted");
    wait_until(&server, &format!("{MAPS}/child"), Result::is_err).await;
    let calls: Vec<Value> = webhook.take_calls().into_iter().map(|(_, review)| review).collect();
    let names: Vec<&Value> = calls.iter().map(|review| &review["name"]).collect();
    assert_eq!(names, ["owner", "child", "child"]);
    let review = &calls[1];
    assert_eq!(review["operation"], "DELETE");
    let user = "system:serviceaccount:kube-system:generic-garbage-collector";
    assert_eq!(review["userInfo"]["username"], user);
    assert_eq!((&review["object"], &review["oldObject"]["data"]), (&Value::Null, &json!({"a": "1"})));
    let (uid, version) = (&child["metadata"]["uid"], &child["metadata"]["resourceVersion"]);
    assert_eq!(review["options"]["preconditions"], json!({"uid": uid, "resourceVersion": version}));
    assert_eq!(review["options"]["propagationPolicy"], "Background");
}
