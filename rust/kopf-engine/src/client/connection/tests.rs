//! Conversion of credentials, and the requests as they are sent.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use serde_json::json;

use super::fallback::server_of_pods;
use super::*;
use crate::testing::{connector, lock};

fn options() -> ConnectionOptions {
    ConnectionOptions { agent: "kopf".to_owned(), trust_env: false, compat: false, clock: Clock::start() }
}

fn credentials(fields: serde_json::Value) -> Credentials {
    serde_json::from_value(fields).unwrap()
}

fn rejected(fields: serde_json::Value) -> String {
    Connection::from_credentials("k", &credentials(fields), &options()).err().unwrap().0
}

#[test]
fn what_http_cannot_send_is_rejected_with_a_reason_and_without_the_secret() {
    let server = "https://host:6443";
    let table = [
        (json!({"server": server, "token": "plan\nted"}), "The token cannot be sent"),
        (json!({"server": server, "scheme": "plan\nted"}), "The scheme cannot be sent"),
        (
            json!({"server": server, "scheme": "S", "token": "plan\nted"}),
            "The token or its scheme cannot be sent",
        ),
        (json!({"server": server, "username": "plan:ted", "password": "p"}), "has a colon"),
        (json!({"server": "host:6443"}), "no scheme"),
        (json!({"server": "ftp://host"}), "no scheme, or another one"),
        (json!({"server": ""}), "is not a URL"),
        (json!({"server": "https://user:planted@ho st"}), "is not a URL"),
        (json!({"server": server, "proxy_url": "proxy:3128"}), "no scheme"),
    ];
    for (fields, part) in table {
        let text = rejected(fields);
        assert!(text.contains(part) && !text.contains("ted"), "{text}");
    }
}

#[test]
fn an_authority_is_ignored_without_verification() {
    let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    let given = credentials(json!({"server": "https://host", "insecure": true, "ca_data": pem}));
    let config = config_of(&given).unwrap();
    assert!(config.accept_invalid_certs && config.root_cert.is_some());
}

#[test]
fn other_blocks_of_an_authority_are_ignored() {
    let [certificate, key] = ["CERTIFICATE", "PRIVATE KEY"]
        .map(|tag| format!("-----BEGIN {tag}-----\nAA==\n-----END {tag}-----\n"));
    let given = credentials(json!({"server": "https://host", "ca_data": format!("{key}{certificate}{key}")}));
    assert_eq!(config_of(&given).unwrap().root_cert, Some(vec![vec![0]]));
}

#[test]
fn the_header_is_that_of_the_user_else_of_the_token() {
    let table = [
        (json!({"token": " t\n"}), Some("Bearer t")),
        (json!({"token": "t", "scheme": "S"}), Some("S t")),
        (json!({"scheme": "S"}), Some("S")),
        (json!({"username": "u", "password": "p", "token": "t"}), Some("Basic dTpw")),
        (json!({"username": "u", "token": "t"}), Some("Bearer t")),
        (json!({}), None),
    ];
    for (fields, expected) in table {
        let header = header_of(&credentials(fields)).unwrap();
        assert_eq!(header.as_ref().map(|value| value.to_str().unwrap()), expected);
    }
}

const HEAD: RequestHead<'static> = RequestHead {
    method: &Method::GET,
    url: "/x",
    accept: "a",
    content_type: None,
    is_idempotent: true,
    may_end_with_slash: false,
};

#[tokio::test]
async fn requests_have_the_headers_and_the_base_path() {
    let given = credentials(json!({"server": "http://example.com:8080/base/", "token": "t"}));
    let connection = Connection::from_credentials("k", &given, &options()).unwrap();
    let head = RequestHead {
        method: &Method::PATCH,
        url: "/apis/x?y=z",
        accept: "application/json",
        content_type: Some("application/merge-patch+json"),
        is_idempotent: true,
        may_end_with_slash: false,
    };
    let request = connection.request(head).unwrap();
    assert_eq!(request.uri(), "/base/apis/x?y=z");
    let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        ["host", "user-agent", "accept", "content-type"].map(header),
        ["example.com:8080", "kopf", "application/json", "application/merge-patch+json"]
    );
    assert_eq!(connection.authorization().await.unwrap().unwrap(), "Bearer t");
}

#[tokio::test]
async fn paths_with_empty_or_relative_names_are_never_requested() {
    let paths: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&paths);
    let connection = Connection::fake(
        "k",
        connector(move |_, path, _| {
            lock(&seen).push(path.to_owned());
            (200, Some(vec![]))
        }),
    );
    let none = HeaderMap::new();
    let send = |url: &'static str, may_end_with_slash: bool| {
        let head = RequestHead { url, may_end_with_slash, ..HEAD };
        connection.send(head, &none, b"", None, (Pool::Shared, None, None))
    };
    let wrong = [
        "",
        "x",
        "x/",
        "//",
        "/x//y",
        "/x//",
        "/x/./y",
        "/x/../y",
        "/x/..",
        "/x/../",
        "/x/..?a=b",
        "/x//?a=b",
    ];
    let rejected = wrong.into_iter().flat_map(|url| [(url, false), (url, true)]);
    for (url, may_end_with_slash) in rejected.chain([("/", false), ("/apis/x/", false)]) {
        let failure = send(url, may_end_with_slash).await.err().unwrap();
        assert!(matches!(failure.error, RequestError::Malformed(_)), "{url:?}");
    }
    let accepted = [("/apis/x/a..b?c=../d", false), ("/apis/x/", true), ("/", true), ("/x/?a=b/", true)];
    for (url, may_end_with_slash) in accepted {
        assert!(send(url, may_end_with_slash).await.is_ok(), "{url:?}");
    }
    assert_eq!(*lock(&paths), accepted.map(|(url, _)| url));
}

#[tokio::test]
async fn a_service_account_needs_only_its_token() {
    let folder = std::env::temp_dir().join(format!("kopf-service-account-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let connected = || Connection::of_service_account(&folder, server_of_pods("", ""), &options());
    assert!(connected().err().unwrap().0.ends_with("there is no token"));
    std::fs::write(folder.join("token"), "t\n").unwrap();
    let connection = connected().unwrap();
    assert_eq!(connection.authorization().await.unwrap().unwrap(), "Bearer t");
    assert_eq!((&*connection.server, connection.default_namespace), ("https://kubernetes.default.svc", None));
    std::fs::write(folder.join("namespace"), "n\n").unwrap();
    std::fs::write(folder.join("ca.crt"), "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n")
        .unwrap();
    assert!(connected().err().unwrap().0.contains("cannot be used"), "its authority is used");
    std::fs::remove_file(folder.join("ca.crt")).unwrap();
    assert_eq!(connected().unwrap().default_namespace.as_deref(), Some("n"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_server_of_pods_is_that_of_their_variables_if_these_are_valid() {
    let table = [
        ("10.0.0.1", "443", "https://10.0.0.1/"),
        ("10.0.0.1", "6443", "https://10.0.0.1:6443/"),
        ("fd00::1", "443", "https://[fd00::1]/"),
        ("fd00::1", "6443", "https://[fd00::1]:6443/"),
        ("api.example.com", "443", "https://api.example.com/"),
        ("10.0.0.1", "", "https://kubernetes.default.svc/"),
        ("10.0.0.1", "tcp://10.0.0.1:443", "https://kubernetes.default.svc/"),
        ("", "443", "https://kubernetes.default.svc/"),
        ("", "6443", "https://kubernetes.default.svc/"),
        ("a b", "443", "https://kubernetes.default.svc/"),
    ];
    for (host, port, expected) in table {
        assert_eq!(server_of_pods(host, port), expected, "{host} {port}");
    }
}

fn kubeconfig(cluster: &str, user: &str) -> Kubeconfig {
    Kubeconfig::from_yaml(&format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {cluster}}}]\n\
         users: [{{name: u, user: {user}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u, namespace: n}}}}]\n"
    ))
    .unwrap()
}

async fn connected(cluster: &str, user: &str) -> Result<Connection, String> {
    Connection::of_kubeconfig(kubeconfig(cluster, user), &options()).await.map_err(|failure| failure.error.0)
}

#[tokio::test]
async fn a_plugin_runs_once_per_connection_and_its_token_is_sent() {
    let runs = std::env::temp_dir().join(format!("kopf-client-plugin-{}", std::process::id()));
    let _ = std::fs::remove_file(&runs);
    let script = format!("echo run >> {}; echo 'status: {{token: of-the-plugin}}'", runs.display());
    let user = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, {script:?}], interactiveMode: Never}}}}"
    );
    let connection = connected("{server: 'https://h:1'}", &user).await.unwrap();
    for _ in 0..5 {
        assert_eq!(connection.authorization().await.unwrap().unwrap(), "Bearer of-the-plugin");
    }
    let count = std::fs::read_to_string(&runs).unwrap().lines().count();
    std::fs::remove_file(&runs).unwrap();
    assert_eq!(count, 1);
    assert_eq!(connection.default_namespace.as_deref(), Some("n"));
}

#[tokio::test]
async fn the_failure_of_a_plugin_is_distinguished_from_that_of_its_kubeconfig() {
    let plugin = "{exec: {command: sh, args: [-c, 'exit 1'], interactiveMode: Never}}";
    for (server, expected) in [("https://h:1", true), ("h:1", false)] {
        let file = kubeconfig(&format!("{{server: '{server}'}}"), plugin);
        let failure = Connection::of_kubeconfig(file, &options()).await.err().unwrap();
        assert_eq!(failure.is_of_plugin, expected, "{failure:?}");
    }
}

#[tokio::test]
async fn empty_credentials_do_not_replace_a_plugin() {
    let script = "echo 'status: {token: of-the-plugin}'";
    let plugin = format!("exec: {{command: sh, args: [-c, {script:?}], interactiveMode: Never}}");
    let user = format!("{{token: '', username: '', tokenFile: '', {plugin}}}");
    let connection = connected("{server: 'https://h:1'}", &user).await.unwrap();
    assert_eq!(connection.authorization().await.unwrap().unwrap(), "Bearer of-the-plugin");
}

#[tokio::test]
async fn contradictory_kubeconfigs_are_rejected() {
    let pem = STANDARD.encode("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n");
    let cluster = format!(
        "{{server: 'https://h:1', insecure-skip-tls-verify: true, certificate-authority-data: {pem}}}"
    );
    assert!(connected(&cluster, "{token: t}").await.err().unwrap().contains("insecure flag"));
    assert!(connected("{server: 'h:1'}", "{token: t}").await.err().unwrap().contains("no scheme"));
    let text = connected("{server: 'https://h:1'}", "{token: \"plan\\nted\"}").await.err().unwrap();
    assert!(text.contains("The token cannot be sent") && !text.contains("ted"), "{text}");
}

#[tokio::test]
async fn a_rotated_certificate_file_counts_as_other_credentials() {
    let folder = std::env::temp_dir().join(format!("kopf-certificate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (path("client.crt"), path("client.key"));
    let rotate = || {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        std::fs::write(&certificate, cert.pem()).unwrap();
        std::fs::write(&key, signing_key.serialize_pem()).unwrap();
    };
    let given = json!({"server": "https://h:1", "certificate_path": certificate, "private_key_path": key});
    let user = json!({"client-certificate": certificate, "client-key": key}).to_string();
    let fingerprints = async || {
        let provided = Connection::from_credentials("k", &credentials(given.clone()), &options()).unwrap();
        [provided.fingerprint, connected("{server: 'https://h:1'}", &user).await.unwrap().fingerprint]
    };
    rotate();
    let first = fingerprints().await;
    assert_eq!(fingerprints().await, first);
    rotate();
    let second = fingerprints().await;
    assert!(first[0] != second[0] && first[1] != second[1], "{first:?} {second:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn certificates_in_base64_may_have_line_breaks() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap();
    let in_lines = |pem: &str| {
        let text = STANDARD.encode(pem);
        let lines: Vec<_> = text.as_bytes().chunks(76).map(String::from_utf8_lossy).collect();
        lines.join("\n") + "\n"
    };
    let certificate = in_lines(&cert.pem());
    let cluster = json!({"server": "https://h:1", "certificate-authority-data": certificate});
    let key = in_lines(&signing_key.serialize_pem());
    let user = json!({"client-certificate-data": certificate, "client-key-data": key});
    assert!(connected(&cluster.to_string(), &user.to_string()).await.is_ok());
}

#[tokio::test]
async fn impersonation_is_sent() {
    let connection =
        connected("{server: 'https://h:1'}", "{token: t, as: someone, as-groups: [a, b]}").await.unwrap();
    assert_eq!(connection.headers["impersonate-user"], "someone");
    assert_eq!(connection.headers.get_all("impersonate-group").iter().count(), 2);
    assert!(connected("{server: 'https://h:1'}", "{as: \"a\\r\\nb\"}").await.is_err());
}

#[tokio::test]
async fn bodies_are_limited_and_joined() {
    let connection = Connection::fake("k", connector(|_, _, _| (200, Some(vec![b'x'; 1_000_000]))));
    let head = HEAD;
    let response =
        connection.send(head, &HeaderMap::new(), b"", None, (Pool::Shared, None, None)).await.unwrap();
    assert_eq!(read_body(response.into_body(), 2_000_000).await.unwrap().len(), 1_000_000);
    let response =
        connection.send(head, &HeaderMap::new(), b"", None, (Pool::Shared, None, None)).await.unwrap();
    let error = read_body(response.into_body(), 999_999).await.err().unwrap();
    assert!(error.to_string().contains("chunk_size"), "{error}");
}
