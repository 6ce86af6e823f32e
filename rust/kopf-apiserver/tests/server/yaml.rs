//! Bodies in YAML. The expected values are those of kube-apiserver 1.36.

use std::collections::BTreeMap;

use crate::support::client::Client;
use kopf_apiserver::{Server, ServerOptions, start};
use serde_json::{Value, json};

const APPLY: &str = "application/apply-patch+yaml";

async fn server() -> Server {
    start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server")
}

/// Sends text, and returns the code, the message of the error and the warnings.
async fn send_text(
    server: &Server,
    (method, path): (&str, &str),
    media: &str,
    body: &str,
) -> (u16, String, Vec<String>) {
    let client = Client::plain(server.port(), server.token());
    let headers: BTreeMap<String, String> = [
        ("authorization".to_owned(), format!("Bearer {}", server.token())),
        ("content-type".to_owned(), media.to_owned()),
    ]
    .into();
    let answer = client.send(method, path, &headers, body).await;
    let value: Value = serde_json::from_str(&answer.body).expect("JSON");
    (answer.code, value["message"].as_str().unwrap_or_default().to_owned(), answer.warnings)
}

const MAP_WITH_DUPLICATES: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata:\n  a: '1'\n  a: '2'\n";

#[tokio::test]
async fn duplicate_keys_of_applied_yaml_are_reported() {
    let server = server().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let path = format!("{maps}/one?fieldManager=x");
    let strict = format!("{path}&fieldValidation=Strict");
    let (code, message, _) = send_text(&server, ("PATCH", &strict), APPLY, MAP_WITH_DUPLICATES).await;
    let expected = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"a\" already \
                    set in map";
    assert_eq!((code, &*message), (400, expected));
    let warning = r#"299 - "line 6: key \"a\" already set in map""#.to_owned();
    let (code, _, warnings) = send_text(&server, ("PATCH", &path), APPLY, MAP_WITH_DUPLICATES).await;
    assert_eq!((code, warnings), (201, vec![warning]));
    let found = server.get(&format!("{maps}/one")).await.expect("found");
    assert_eq!(found["data"], json!({"a": "2"}));
    let path = format!("{path}&fieldValidation=Ignore");
    let (code, _, warnings) = send_text(&server, ("PATCH", &path), APPLY, MAP_WITH_DUPLICATES).await;
    assert_eq!((code, warnings), (200, vec![]));
}

/// The keys are checked after the configuration has been applied.
#[tokio::test]
async fn conflicts_are_reported_before_duplicate_keys() {
    let server = server().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1"}});
    server.create(&format!("{maps}?fieldManager=first"), &map).await.expect("created");
    for validation in ["Strict", "Warn"] {
        let path = format!("{maps}/one?fieldManager=x&fieldValidation={validation}");
        let (code, _, warnings) = send_text(&server, ("PATCH", &path), APPLY, MAP_WITH_DUPLICATES).await;
        assert_eq!((code, warnings), (409, vec![]));
    }
}

#[tokio::test]
async fn duplicate_keys_of_created_yaml_are_reported() {
    let server = server().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let strict = format!("{maps}?fieldValidation=Strict");
    let body = format!("{MAP_WITH_DUPLICATES}other: 1\n");
    let (code, message, _) = send_text(&server, ("POST", &strict), "application/yaml", &body).await;
    let expected = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  \
                    line 6: key \"a\" already set in map, unknown field \"other\"";
    assert_eq!((code, &*message), (400, expected));
    let warning = r#"299 - "line 6: key \"a\" already set in map""#.to_owned();
    let (code, _, warnings) =
        send_text(&server, ("POST", maps), "application/yaml", MAP_WITH_DUPLICATES).await;
    assert_eq!((code, warnings), (201, vec![warning]));
}
