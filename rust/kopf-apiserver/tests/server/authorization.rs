//! Integration tests of RBAC for single objects.

use std::collections::BTreeMap;

use kopf_apiserver::{Server, ServerOptions, User, start};
use serde_json::{Value, json};

use crate::running::MAPS;
use crate::support::client::{Answer, Client};

/// A server, and a user with this rule in the default namespace.
async fn with_rule(rule: &Value) -> Server {
    let user = User { name: "jane".into(), groups: vec!["system:authenticated".into()], ..User::default() };
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
    send(server, method, &format!("{MAPS}{query}"), &[]).await
}

/// Sends a request of the user, with these headers.
async fn send(server: &Server, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let client = Client::plain(server.port(), "jane-token");
    let own = [("authorization", "Bearer jane-token")];
    let headers: BTreeMap<String, String> =
        own.iter().chain(headers).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let body = if method == "POST" { "{}" } else { "" };
    client.send(method, path, &headers, body).await
}

/// Sends a request that every user may send, with these headers. Returns the code, the message and the user.
async fn review(server: &Server, headers: &[(&str, &str)]) -> (u16, String, Value) {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = send(server, "POST", path, headers).await;
    let value: Value = serde_json::from_str(&answer.body).expect("a response");
    (answer.code, text_of(&value), value["status"]["userInfo"].clone())
}

fn text_of(status: &Value) -> String {
    status["message"].as_str().unwrap_or_default().to_owned()
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

#[tokio::test]
async fn a_role_is_enough_for_its_own_namespace() {
    let rule = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create"]});
    let server = with_rule(&rule).await;
    let get = |name: &'static str| {
        let server = &server;
        async move {
            let answer = send(server, "GET", &format!("/api/v1/namespaces{name}"), &[]).await;
            (answer.code, text_of(&serde_json::from_str(&answer.body).expect("JSON")))
        }
    };
    assert_eq!(get("/default").await.0, 200);
    let (code, text) = get("/kube-system").await;
    assert_eq!(code, 403);
    assert!(text.ends_with("in API group \"\" in the namespace \"kube-system\""), "{text}");
    let (code, text) = get("").await;
    assert_eq!(code, 403);
    assert!(text.ends_with("at the cluster scope"), "{text}");
    // A namespace that does not exist is not in itself.
    assert_eq!(send(&server, "POST", "/api/v1/namespaces", &[]).await.code, 403);
}

#[tokio::test]
async fn service_accounts_are_impersonated_by_a_role_in_their_namespace() {
    let rule = json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]});
    let server = with_rule(&rule).await;
    let robot = ("impersonate-user", "system:serviceaccount:default:robot");
    let (code, text, user) = review(&server, &[robot]).await;
    assert_eq!(code, 201, "{text}");
    assert_eq!(user["username"], robot.1);
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(user["groups"], json!(groups));
    // Only those that the headers name.
    assert_eq!((&user["uid"], &user["extra"]), (&Value::Null, &Value::Null));
    for (name, expected) in [
        (
            "system:serviceaccount:kube-system:robot",
            "serviceaccounts \"robot\" is forbidden: User \"jane\" cannot impersonate resource \"serviceaccounts\" \
             in API group \"\" in the namespace \"kube-system\"",
        ),
        (
            "bob",
            "users \"bob\" is forbidden: User \"jane\" cannot impersonate resource \"users\" in API group \"\" at \
             the cluster scope",
        ),
    ] {
        let (code, text, _) = review(&server, &[("impersonate-user", name)]).await;
        assert_eq!((code, text.as_str()), (403, expected));
    }
}

#[tokio::test]
async fn each_detail_of_an_impersonated_user_needs_a_permission() {
    let rule = json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]});
    let server = with_rule(&rule).await;
    let robot = ("impersonate-user", "system:serviceaccount:default:robot");
    let group = "authentication.k8s.io";
    for (header, resource, subject, shown) in [
        (
            ("impersonate-group", "team"),
            "groups",
            "groups",
            r#"UID:"", Groups:[]string{"team"}, Extra:map[string][]string(nil)"#,
        ),
        (
            ("impersonate-uid", "team"),
            "uids",
            "uids.authentication.k8s.io",
            r#"UID:"team", Groups:[]string(nil), Extra:map[string][]string(nil)"#,
        ),
        (
            ("impersonate-extra-a%2Fb", "team"),
            "userextras/a/b",
            "userextras.authentication.k8s.io",
            r#"UID:"", Groups:[]string(nil), Extra:map[string][]string{"a/b":[]string{"team"}}"#,
        ),
    ] {
        let (code, text, _) = review(&server, &[robot, header]).await;
        let group = if resource == "groups" { "" } else { group };
        let expected = format!(
            "{subject} \"team\" is forbidden: User \"jane\" cannot impersonate resource \"{resource}\" in API group \
             \"{group}\" at the cluster scope"
        );
        assert_eq!((code, text), (403, expected));
        let (code, text, _) = review(&server, &[header]).await;
        let expected =
            format!("requested &user.DefaultInfo{{Name:\"\", {shown}}} without impersonating a user name");
        assert_eq!((code, text), (400, expected));
    }
    let rules = json!([
        {"apiGroups": [group], "resources": ["uids"], "verbs": ["impersonate"], "resourceNames": ["1"]},
        {"apiGroups": [group], "resources": ["userextras/scopes"], "verbs": ["impersonate"]},
    ]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let granting = json!({"metadata": {"name": "role"}, "rules": rules});
    server.create(&format!("{rbac}/clusterroles"), &granting).await.expect("created");
    let binding = json!({"metadata": {"name": "jane"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "role"}});
    server.create(&format!("{rbac}/clusterrolebindings"), &binding).await.expect("created");
    let extra = ("impersonate-extra-scopes", "all");
    let (code, text, user) = review(&server, &[robot, ("impersonate-uid", "1"), extra]).await;
    assert_eq!(code, 201, "{text}");
    assert_eq!((&user["uid"], &user["extra"]), (&json!("1"), &json!({"scopes": ["all"]})));
    assert_eq!(review(&server, &[robot, ("impersonate-uid", "2"), extra]).await.0, 403);
    assert_eq!(review(&server, &[robot, ("impersonate-extra-other", "all")]).await.0, 403);
}

#[tokio::test]
async fn the_token_of_a_service_account_has_its_uid_and_an_id() {
    let server = with_rule(&json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = server.create(accounts, &json!({"metadata": {"name": "robot"}})).await.expect("created");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("{accounts}/robot/token");
    let issued = server.call("POST", &path, Some(&request)).await.expect("a token");
    let bearer = format!("Bearer {}", issued["status"]["token"].as_str().expect("a token"));
    let (code, text, user) = review(&server, &[("authorization", &bearer)]).await;
    assert_eq!(code, 201, "{text}");
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    assert_eq!(user["uid"], account["metadata"]["uid"]);
    let id = &user["extra"]["authentication.kubernetes.io/credential-id"];
    assert!(id[0].as_str().is_some_and(|id| id.starts_with("JTI=")), "{user}");
}
