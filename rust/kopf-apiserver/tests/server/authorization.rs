//! Integration tests of RBAC for single objects.

use std::collections::BTreeMap;

use kopf_apiserver::{Server, ServerOptions, User, start};
use serde_json::{Value, json};

use crate::running::MAPS;
use crate::support::client::{Answer, Client};

/// A server, and a user with this rule in the default namespace.
async fn with_rule(rule: &Value) -> Server {
    let user = User { name: "jane".into(), groups: vec!["system:authenticated".into()] };
    let options = ServerOptions {
        tls: false,
        authorization: true,
        users: vec![("jane-token".into(), user)],
        ..ServerOptions::default()
    };
    let server = start(options).await.expect("a server");
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let granting = json!({"metadata": {"name": "role"}, "rules": [rule]});
    server.create(&format!("{rbac}/roles"), &granting).await.expect("created");
    let binding = json!({"metadata": {"name": "jane"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "role"}});
    server.create(&format!("{rbac}/rolebindings"), &binding).await.expect("created");
    server
}

async fn ask(server: &Server, method: &str, query: &str) -> Answer {
    let client = Client::plain(server.port(), "jane-token");
    let headers: BTreeMap<String, String> =
        [("authorization".to_owned(), "Bearer jane-token".to_owned())].into();
    client.send(method, &format!("{MAPS}{query}"), &headers, "").await
}

#[tokio::test]
async fn lists_and_watches_of_one_name_need_only_the_right_for_this_name() {
    let verbs = ["list", "watch", "deletecollection"];
    let rule =
        json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs, "resourceNames": ["mine"]});
    let server = with_rule(&rule).await;
    for (query, expected) in [
        ("?fieldSelector=metadata.name%3Dmine", 200),
        ("?fieldSelector=metadata.name%3D%3Dmine", 200),
        ("?fieldSelector=metadata.namespace%3Ddefault,metadata.name%3Dmine", 200),
        ("?fieldSelector=metadata.name%3Dmine&watch=1&timeoutSeconds=1", 200),
        ("?fieldSelector=metadata.name%3Dother", 403),
        ("?fieldSelector=metadata.name!%3Dmine", 403),
        ("?fieldSelector=metadata.namespace%3Ddefault", 403),
        ("?fieldSelector=metadata.name%3Dother&watch=1&timeoutSeconds=1", 403),
        ("", 403),
        ("?watch=1&timeoutSeconds=1", 403),
    ] {
        assert_eq!(ask(&server, "GET", query).await.code, expected, "{query}");
    }
    let answer = ask(&server, "GET", "?fieldSelector=metadata.name%3Dother").await;
    let status: Value = serde_json::from_str(&answer.body).expect("a Status");
    assert_eq!(status["details"]["name"], "other");
    let text = status["message"].as_str().unwrap_or_default();
    assert!(text.starts_with("configmaps \"other\" is forbidden: User \"jane\" cannot list"), "{text}");
    // The deletion of a collection has no name, also with a field selector.
    assert_eq!(ask(&server, "DELETE", "?fieldSelector=metadata.name%3Dmine").await.code, 403);
}
