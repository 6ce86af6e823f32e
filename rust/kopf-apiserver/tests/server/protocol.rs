//! Integration tests of the protocol: HTTP/2, compression, response formats, encodings, limits, and authentication.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;

use crate::support::client::connector_for;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kopf_apiserver::{Server, ServerOptions, start};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const THINGS: &str = "/apis/protocol.test/v1/namespaces/default/things";

async fn plain() -> Server {
    start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server")
}

type Headers<'h> = &'h [(&'h str, &'h str)];

/// Sends a request over HTTP/1.1.
async fn send(
    server: &Server,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: impl Into<Bytes>,
) -> Response<Bytes> {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).await.expect("a connection");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
    if !headers.iter().any(|(name, _)| *name == "authorization") {
        request = request.header("authorization", format!("Bearer {}", server.token()));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into())).expect("a request");
    let (parts, body) = sender.send_request(request).await.expect("an answer").into_parts();
    Response::from_parts(parts, body.collect().await.expect("a body").to_bytes())
}

fn json_of(answer: &Response<Bytes>) -> Value {
    serde_json::from_slice(answer.body()).expect("JSON")
}

fn header<'a>(answer: &'a Response<Bytes>, name: &str) -> &'a str {
    answer.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

async fn create_crd(server: &Server) {
    let crd = json!({"metadata": {"name": "things.protocol.test"}, "spec": {
        "group": "protocol.test", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large"}],
            "schema": {"openAPIV3Schema": {"type": "object", "description": "A thing.", "properties": {"spec": {"type": "object",
                "properties": {"size": {"type": "integer", "description": "How large."}}}}}}}]}});
    server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await.expect("declared");
}

fn thing(name: &str, size: u32) -> Value {
    json!({"apiVersion": "protocol.test/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"size": size}})
}

#[tokio::test]
async fn http_2_works_with_alpn_and_with_prior_knowledge() {
    for tls in [true, false] {
        let server = start(ServerOptions { tls, ..ServerOptions::default() }).await.expect("a server");
        let stream = TcpStream::connect(("127.0.0.1", server.port())).await.expect("a connection");
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let mut sender = if tls {
            let name = ServerName::try_from("127.0.0.1").expect("a name");
            let stream = connector_for(&[b"h2"]).connect(name, stream).await.expect("TLS");
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("a handshake");
            tokio::spawn(connection);
            sender
        } else {
            let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("a handshake");
            tokio::spawn(connection);
            sender
        };
        let request = |path: &str| {
            let url = format!("{}{path}", server.url());
            let authorization = format!("Bearer {}", server.token());
            let request = Request::builder().uri(url).header("authorization", authorization);
            request.body(Full::new(Bytes::new())).expect("a request")
        };
        // A watch and other requests share the connection.
        let watch = sender.send_request(request(&format!("{MAPS}?watch=1"))).await.expect("a watch");
        let listed = sender.send_request(request(MAPS)).await.expect("an answer");
        assert_eq!(listed.version(), http::Version::HTTP_2);
        assert_eq!(listed.status(), 200);
        server.create(MAPS, &json!({"metadata": {"name": "m"}})).await.expect("created");
        let frame = watch.into_body().frame().await.expect("a frame").expect("a frame");
        let line: Value = serde_json::from_slice(frame.data_ref().expect("data")).expect("JSON");
        assert_eq!(
            (line["type"].as_str(), line["object"]["metadata"]["name"].as_str()),
            (Some("ADDED"), Some("m"))
        );
    }
}

/// Opens a watch over HTTP/2 in a separate runtime, reports that, and reads until the server closes the connection.
fn watch_over_http_2(port: u16, token: &str, opened: oneshot::Sender<()>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("a handshake");
        tokio::spawn(connection);
        let request = Request::builder()
            .uri(format!("http://127.0.0.1:{port}{MAPS}?watch=1"))
            .header("authorization", format!("Bearer {token}"))
            .body(Full::new(Bytes::new()))
            .expect("a request");
        let watch = sender.send_request(request).await.expect("a watch");
        opened.send(()).expect("the test waits");
        assert!(watch.into_body().collect().await.is_err(), "the connection is closed");
    });
}

#[test]
fn the_shutdown_leaves_no_task() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = runtime.block_on(async {
        let server = plain().await;
        // Deletions of CRDs are retried as long as there are custom resources.
        create_crd(&server).await;
        let mut blocked = thing("one", 3);
        blocked["metadata"]["finalizers"] = json!(["protocol.test/blocked"]);
        server.create(THINGS, &blocked).await.expect("created");
        let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.protocol.test";
        server.call("DELETE", crd, None).await.expect("deleted");
        let mut idle = TcpStream::connect(("127.0.0.1", server.port())).await.expect("a connection");
        let (opened, is_open) = oneshot::channel();
        let (port, token) = (server.port(), server.token().to_owned());
        let client = thread::spawn(move || watch_over_http_2(port, &token, opened));
        is_open.await.expect("a watch");
        let metrics = Handle::current().metrics();
        // The controllers, the listener, two connections, and the request over HTTP/2; sometimes the retry.
        assert!(metrics.num_alive_tasks() >= 5, "{}", metrics.num_alive_tasks());
        server.shutdown().await;
        assert_eq!(metrics.num_alive_tasks(), 0);
        assert_eq!(idle.read(&mut [0]).await.expect("the end of the connection"), 0);
        client
    });
    client.join().expect("the client ends");
}

#[tokio::test]
async fn large_responses_are_compressed_if_the_client_accepts_it() {
    let server = plain().await;
    let data: serde_json::Map<String, Value> =
        (0..200).map(|i| (format!("k{i}"), "x".repeat(1000).into())).collect();
    server.create(MAPS, &json!({"metadata": {"name": "large"}, "data": data})).await.expect("created");
    let gzip = [("accept-encoding", "gzip")];
    let compressed = send(&server, "GET", &format!("{MAPS}/large"), &gzip, "").await;
    assert_eq!(header(&compressed, "content-encoding"), "gzip");
    assert!(compressed.body().len() < 20_000);
    let mut text = String::new();
    flate2::read::GzDecoder::new(&compressed.body()[..]).read_to_string(&mut text).expect("gzip");
    let open = send(&server, "GET", &format!("{MAPS}/large"), &[], "").await;
    assert_eq!(header(&open, "content-encoding"), "");
    assert_eq!(text.as_bytes(), open.body());
    let small = send(&server, "GET", "/version", &gzip, "").await;
    assert_eq!(header(&small, "content-encoding"), "");
}

#[tokio::test]
async fn tables_have_the_columns_of_the_crd() {
    let server = plain().await;
    create_crd(&server).await;
    server.create(THINGS, &thing("one", 3)).await.expect("created");
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let listed = json_of(&send(&server, "GET", THINGS, &table, "").await);
    assert_eq!(listed["kind"], "Table");
    let names: Vec<&Value> =
        listed["columnDefinitions"].as_array().into_iter().flatten().map(|c| &c["name"]).collect();
    assert_eq!(names, ["Name", "Size"]);
    assert_eq!(listed["columnDefinitions"][1]["description"], "How large");
    assert_eq!(listed["rows"][0]["cells"], json!(["one", 3]));
    assert_eq!(listed["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let whole =
        json_of(&send(&server, "GET", &format!("{THINGS}/one?includeObject=Object"), &table, "").await);
    assert_eq!(whole["rows"][0]["object"]["spec"]["size"], 3);

    let wide = json_of(&send(&server, "GET", "/api/v1/services?includeObject=None", &table, "").await);
    assert_eq!(wide["rows"][0]["cells"][0], "kubernetes");
    assert_eq!(wide["rows"][0]["object"], Value::Null);

    let partial = [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")];
    let partial = json_of(&send(&server, "GET", THINGS, &partial, "").await);
    assert_eq!(partial["kind"], "PartialObjectMetadataList");
    assert_eq!(partial["items"][0]["metadata"]["name"], "one");
    assert_eq!(partial["items"][0].get("spec"), None);
    let first = "application/json;q=0.5, application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(json_of(&send(&server, "GET", THINGS, &[("accept", first)], "").await)["kind"], "Table");
}

/// The expected responses are those of kube-apiserver 1.36 for all its kinds.
#[tokio::test]
async fn partial_metadata_of_lists_and_of_objects_have_different_names() {
    let server = plain().await;
    create_crd(&server).await;
    server.create(THINGS, &thing("one", 3)).await.expect("created");
    let one = [("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json")];
    let many =
        [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json")];
    let single = format!("{THINGS}/one");
    let found = json_of(&send(&server, "GET", &single, &one, "").await);
    assert_eq!((&found["kind"], found.get("spec")), (&json!("PartialObjectMetadata"), None));
    assert_eq!(send(&server, "GET", THINGS, &many, "").await.status(), 200);

    let lists = [
        (MAPS, "core.ConfigMapList"),
        ("/apis/events.k8s.io/v1/events", "core.EventList"),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "rbac.ClusterRoleList"),
        ("/apis/apps/v1/deployments", "apps.DeploymentList"),
        (THINGS, "unstructured.UnstructuredList"),
    ];
    for (path, name) in lists {
        let rejected = send(&server, "GET", path, &one, "").await;
        let text =
            format!("you requested PartialObjectMetadata, but the requested object is a list (*{name})");
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": text, "reason": "NotAcceptable", "code": 406});
        assert_eq!((rejected.status().as_u16(), json_of(&rejected)), (406, status));
    }
    for (path, name) in [
        ("/api/v1/namespaces/default", "core.Namespace"),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.protocol.test",
            "apiextensions.CustomResourceDefinition",
        ),
    ] {
        let rejected = send(&server, "GET", path, &many, "").await;
        let text = format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{name})"
        );
        let response = json_of(&rejected);
        assert_eq!((rejected.status().as_u16(), &response["reason"]), (406, &json!("NotAcceptable")));
        assert_eq!(response["message"], text);
    }
    // For custom resources, the check comes later.
    let rejected = send(&server, "GET", &single, &many, "").await;
    assert_eq!(
        (rejected.status().as_u16(), json_of(&rejected)),
        (
            500,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "content is not a list", "code": 500})
        )
    );
}

/// The expected responses are those of kube-apiserver 1.36.
#[tokio::test]
async fn unknown_response_formats_are_rejected() {
    let server = plain().await;
    create_crd(&server).await;
    let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let only = format!("only the following media types are accepted: {known}");
    let routes = format!("406: Not Acceptable\n\nAvailable representations: {known}");
    for (path, accept, message) in [
        (MAPS, "application/json;as=Poem;v=v1;g=meta.k8s.io", &only),
        (MAPS, "text/plain", &format!("{routes}, {streams}")),
        ("/api/v1/namespaces/default", "text/plain", &routes),
        (THINGS, "application/json;as=Poem;v=v1;g=meta.k8s.io", &only),
        (THINGS, "text/plain", &only),
        ("/api", "text/plain", &routes),
        ("/api/v1", "application/json;as=Table;v=v1;g=meta.k8s.io", &only),
        ("/apis", "text/plain", &only),
        ("/apis", "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList", &only),
        ("/apis/protocol.test", "text/plain", &only),
        ("/apis/protocol.test/v1", "text/plain", &only),
    ] {
        let rejected = send(&server, "GET", path, &[("accept", accept)], "").await;
        let status = json_of(&rejected);
        assert_eq!((rejected.status().as_u16(), &status["message"]), (406, &json!(message)), "{path}");
        assert_eq!((&status["reason"], &status["code"]), (&json!("NotAcceptable"), &json!(406)));
    }
}

#[tokio::test]
async fn a_write_is_stored_although_its_response_format_is_rejected() {
    let server = plain().await;
    let many = [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")];
    let typed = [many[0], ("content-type", "application/json")];
    let body = json!({"metadata": {"name": "m"}}).to_string();
    assert_eq!(send(&server, "POST", MAPS, &typed, body).await.status(), 406);
    assert_eq!(send(&server, "GET", &format!("{MAPS}/m"), &[], "").await.status(), 200);
    // A Status has one format.
    let gone = json_of(&send(&server, "DELETE", &format!("{MAPS}/m"), &many, "").await);
    assert_eq!(gone["status"], "Success");
    assert_eq!(send(&server, "GET", &format!("{MAPS}/m"), &many, "").await.status(), 404);
}

#[tokio::test]
async fn a_watch_for_metadata_lists_ends_before_its_first_event() {
    let server = plain().await;
    server.create(MAPS, &json!({"metadata": {"name": "m"}})).await.expect("created");
    let many = [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")];
    let begin = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let none = "/api/v1/namespaces/kube-system/configmaps";
    // Objects and bookmarks.
    for path in
        [format!("{MAPS}?watch=1&timeoutSeconds=30"), format!("{none}?watch=1&timeoutSeconds=30&{begin}")]
    {
        let answer = send(&server, "GET", &path, &many, "").await;
        assert_eq!((answer.status().as_u16(), answer.body().len()), (200, 0), "{path}");
    }
    // Errors are sent.
    server.compact();
    let old = send(&server, "GET", &format!("{MAPS}?watch=1&resourceVersion=1"), &many, "").await;
    let response = json_of(&old);
    assert_eq!((&response["type"], &response["object"]["code"]), (&json!("ERROR"), &json!(410)));
}

#[tokio::test]
async fn published_schemas_are_those_of_the_crds() {
    let server = plain().await;
    let before = json_of(&send(&server, "GET", "/openapi/v3", &[], "").await);
    assert_eq!(before["paths"].get("apis/protocol.test/v1"), None);
    create_crd(&server).await;
    let index = json_of(&send(&server, "GET", "/openapi/v3", &[], "").await);
    let url =
        index["paths"]["apis/protocol.test/v1"]["serverRelativeURL"].as_str().expect("an address").to_owned();
    let document = json_of(&send(&server, "GET", &url, &[], "").await);
    let schema = &document["components"]["schemas"]["test.protocol.v1.Thing"];
    assert_eq!(schema["description"], "A thing.");
    assert_eq!(schema["properties"]["spec"]["properties"]["size"]["description"], "How large.");
    assert_eq!(
        schema["x-kubernetes-group-version-kind"],
        json!([{"group": "protocol.test", "version": "v1", "kind": "Thing"}])
    );
    let meta = schema["properties"]["metadata"]["allOf"][0]["$ref"].as_str().expect("a reference");
    let name = meta.rsplit('/').next().expect("a name");
    assert!(document["components"]["schemas"][name]["properties"]["labels"]["description"].is_string());

    let second = json_of(&send(&server, "GET", "/openapi/v2", &[], "").await);
    assert!(second["definitions"]["test.protocol.v1.Thing"]["properties"]["spec"].is_object());
    let expected = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let empty = send(&server, "GET", "/openapi/v2", &[("accept", expected)], "").await;
    assert!(header(&empty, "content-type").ends_with("+protobuf"));
    assert!(empty.body().starts_with(b"\x0a\x032.0"));
}

#[tokio::test]
async fn all_references_of_the_published_schemas_exist() {
    fn references<'v>(value: &'v Value, out: &mut Vec<&'v str>) {
        match value {
            Value::Object(map) => {
                out.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|v| references(v, out));
            }
            Value::Array(list) => list.iter().for_each(|v| references(v, out)),
            _ => {}
        }
    }
    let server = plain().await;
    create_crd(&server).await;
    let index = json_of(&send(&server, "GET", "/openapi/v3", &[], "").await);
    for entry in index["paths"].as_object().into_iter().flatten().map(|(_, v)| v) {
        let url = entry["serverRelativeURL"].as_str().expect("an address");
        let document = json_of(&send(&server, "GET", url, &[], "").await);
        let mut all = Vec::new();
        references(&document, &mut all);
        for reference in all {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{url}: {reference}");
        }
    }
}

#[tokio::test]
async fn large_yaml_bodies_are_decoded() {
    let server = plain().await;
    create_crd(&server).await;
    let yaml = [("content-type", "application/yaml")];
    let text = "# as people write it\napiVersion: protocol.test/v1\nkind: Thing\nmetadata:\n  name: one\n  labels: &all {a: \"1\"}\n\
                \u{20} annotations: *all\nspec:\n  size: 3\n";
    let made = send(&server, "POST", THINGS, &yaml, text).await;
    assert_eq!(made.status(), 201, "{:?}", made.body());
    assert_eq!(json_of(&made)["metadata"]["annotations"], json!({"a": "1"}));

    let patch = [("content-type", "application/apply-patch+yaml")];
    let text = "apiVersion: protocol.test/v1\nkind: Thing\nmetadata: {name: one}\nspec: {size: 4}\n";
    let one = format!("{THINGS}/one?fieldManager=me&force=true");
    assert_eq!(json_of(&send(&server, "PATCH", &one, &patch, text).await)["spec"]["size"], 4);

    let mut large = String::from("metadata:\n  name: large\ndata:\n");
    for i in 0..800 {
        large = format!("{large}{}", format_args!("  key-{i}: |\n    {}\n", "line of text ".repeat(90)));
    }
    assert!(large.len() > 900_000);
    let made = send(&server, "POST", MAPS, &yaml, large).await;
    assert_eq!(made.status(), 201);
    assert_eq!(json_of(&made)["data"].as_object().map(serde_json::Map::len), Some(800));
    let broken = send(&server, "POST", MAPS, &yaml, "metadata: [").await;
    assert_eq!((broken.status().as_u16(), json_of(&broken)["reason"].as_str()), (400, Some("BadRequest")));
}

/// Encodes a field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).expect("a short field");
    [&[number << 3 | 2, length], bytes].concat()
}

#[tokio::test]
async fn protobuf_is_accepted_for_built_in_kinds_only() {
    let server = plain().await;
    create_crd(&server).await;
    let media = [("content-type", "application/vnd.kubernetes.protobuf")];
    let body = |version: &str, kind: &str| {
        let head = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        let entry = [field(1, b"a"), field(2, b"b")].concat();
        let raw = [field(1, &field(1, b"m")), field(2, &entry)].concat();
        [b"k8s\0", &field(1, &head)[..], &field(2, &raw)].concat()
    };
    let made = send(&server, "POST", MAPS, &media, body("v1", "ConfigMap")).await;
    assert_eq!(made.status(), 201, "{:?}", made.body());
    assert_eq!(json_of(&made)["data"], json!({"a": "b"}));
    assert_eq!(header(&made, "content-type"), "application/json");
    assert_eq!(send(&server, "POST", MAPS, &media, "{}").await.status(), 400);
    assert_eq!(send(&server, "POST", THINGS, &media, body("protocol.test/v1", "Thing")).await.status(), 415);
}

#[tokio::test]
async fn sizes_of_bodies_and_objects_are_limited() {
    let server = plain().await;
    let json = [("content-type", "application/json")];
    let map = |size: usize| json!({"metadata": {"name": "m"}, "data": {"k": "x".repeat(size)}}).to_string();
    let rejected = send(&server, "POST", MAPS, &json, map(4 << 20)).await;
    assert_eq!(rejected.status(), 413);
    assert_eq!(json_of(&rejected)["kind"], "Status");
    let rejected = send(&server, "POST", MAPS, &json, map(1_900_000)).await;
    assert!(rejected.status().is_client_error() || rejected.status() == 500, "{}", rejected.status());
    assert_eq!(send(&server, "POST", MAPS, &json, map(900_000)).await.status(), 201);
    let nested =
        format!("{{\"metadata\":{{\"name\":\"n\"}},\"x\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(send(&server, "POST", MAPS, &json, nested).await.status(), 400);
}

#[tokio::test]
async fn the_server_listens_on_loopback_only() {
    let server = plain().await;
    // The outgoing address of the machine; no packet is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let outside = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()).map(|a| a.ip());
    let Some(outside) = outside.ok().filter(|ip: &IpAddr| !ip.is_loopback() && !ip.is_unspecified()) else {
        return;
    };
    let rejected = TcpStream::connect(SocketAddr::new(outside, server.port())).await;
    assert!(rejected.is_err(), "{outside}:{} is open", server.port());
}

#[tokio::test]
async fn requests_are_authenticated_and_impersonation_is_authorized() {
    let jane = kopf_apiserver::User {
        name: "jane".into(),
        groups: vec!["system:authenticated".into()],
        ..Default::default()
    };
    let options = ServerOptions {
        tls: false,
        authorization: true,
        users: vec![("jane-token".into(), jane)],
        ..ServerOptions::default()
    };
    let server = start(options).await.expect("a server");
    let wrong = send(&server, "GET", MAPS, &[("authorization", "Bearer wrong")], "").await;
    assert_eq!((wrong.status().as_u16(), json_of(&wrong)["message"].as_str()), (401, Some("Unauthorized")));
    let anonymous = send(&server, "GET", MAPS, &[("authorization", "")], "").await;
    assert_eq!(anonymous.status(), 401);
    // Discovery and health require a token too.
    for path in [
        "/",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/apps/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/version",
        "/readyz",
    ] {
        assert_eq!(send(&server, "GET", path, &[("authorization", "")], "").await.status(), 401, "{path}");
    }
    assert_eq!(send(&server, "GET", MAPS, &[], "").await.status(), 200);
    let asked =
        send(&server, "GET", MAPS, &[("impersonate-user", "bob"), ("impersonate-group", "staff")], "").await;
    assert!(
        json_of(&asked)["message"].as_str().is_some_and(|m| m.contains("User \"bob\" cannot list")),
        "{asked:?}"
    );
    let janes = [("authorization", "Bearer jane-token"), ("impersonate-user", "admin")];
    let rejected = json_of(&send(&server, "GET", MAPS, &janes, "").await);
    assert!(
        rejected["message"].as_str().is_some_and(|m| m.contains("cannot impersonate resource \"users\"")),
        "{rejected}"
    );
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let who = send(
        &server,
        "POST",
        path,
        &[("impersonate-user", "system:serviceaccount:a:b"), ("impersonate-group", "system:masters")],
        review,
    )
    .await;
    assert_eq!(json_of(&who)["status"]["userInfo"]["username"], "system:serviceaccount:a:b");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_if_the_head_of_its_request_does_not_end() {
    let server = plain().await;
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.expect("a connection");
    stream.write_all(b"GET /version HTTP/1.1\r\nHost: ").await.expect("it is open");
    let begun = tokio::time::Instant::now();
    let mut response = Vec::new();
    // It waits without an end if the server does not close the connection.
    drop(stream.read_to_end(&mut response).await);
    assert!(begun.elapsed().as_secs() >= 100, "{:?}", begun.elapsed());
}
