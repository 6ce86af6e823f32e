//! Benchmarks: start-up, writes over HTTP, many watches, memory per object, a burst of updates in memory.
//!
//! Server and clients share a process, but not threads. CPU time is counted per thread, as wall clock time depends on the load
//! of the machine. Clients are plain sockets, to keep their cost low.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark may stop, and prints figures"
)]

use std::time::{Duration, Instant};

use kopf_apiserver::{Server, ServerOptions, start};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

const WIDGETS: &str = "/apis/bench.example.com/v1/namespaces/default/widgets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GUSTS: &str = "/apis/bench.example.com/v1/namespaces/default/gusts";
const CONNECTIONS: usize = 8;
/// Objects per connection: each is created, then updated.
const OBJECTS: usize = 5_000;
const WATCHERS: usize = 1_000;
const CHANGES: usize = 100;
/// Objects of the burst, and its updates: every second one is of the first object, as in `scripts/load.py`.
const KEPT: usize = 100_000;
const HOT: usize = 2_000;
const UPDATES: usize = 100_000;

fn crd() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.bench.example.com"},
        "spec": {"group": "bench.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 0},
                        "colour": {"type": "string"}, "parts": {"type": "array", "items": {"type": "object",
                            "properties": {"name": {"type": "string"}, "weight": {"type": "number"}}}}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
}

/// A typical custom resource: labels, annotations, a spec.
fn widget(name: &str, size: usize) -> Value {
    let parts: Vec<Value> = (0..4).map(|i| json!({"name": format!("part-{i}"), "weight": 1.5})).collect();
    json!({"apiVersion": "bench.example.com/v1", "kind": "Widget", "metadata": {"name": name,
        "labels": {"app.kubernetes.io/name": "bench", "app.kubernetes.io/instance": name},
        "annotations": {"example.com/note": "a note about this object"}},
        "spec": {"size": size, "colour": "red", "parts": parts}})
}

fn map(i: usize) -> Value {
    let data: serde_json::Map<String, Value> =
        (0..20).map(|k| (format!("key-{k}"), "v".repeat(100).into())).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("object-{i}"), "labels": {"app": "bench"}}, "data": data})
}

/// Resident memory in kilobytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// CPU time of all threads with this name.
fn consumed(name: &str) -> Duration {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let Some((head, tail)) = text.rsplit_once(')') else { continue };
        if head.ends_with(&format!("({name}")) {
            let numbers = tail.split_whitespace().skip(11).take(2);
            ticks += numbers.filter_map(|n| n.parse::<u64>().ok()).sum::<u64>();
        }
    }
    Duration::from_millis(ticks * 10)
}

fn runtime(name: &str, threads: usize) -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()
        .expect("a runtime")
}

async fn fresh(tls: bool) -> Server {
    start(ServerOptions { tls, ..ServerOptions::default() }).await.expect("a server")
}

/// A persistent connection with its read buffer.
struct Client {
    stream: TcpStream,
    token: String,
    buffer: Vec<u8>,
}

impl Client {
    async fn to(port: u16, token: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        Self { stream, token: token.to_owned(), buffer: vec![0; 64 * 1024] }
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Vec<u8> {
        let body = body.to_string();
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let (token, length) = (&self.token, body.len());
        format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nuser-agent: bench/1\r\n\
             content-type: {media}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    /// Sends a request and reads the response. Returns the resource version in it.
    async fn send(&mut self, request: &[u8]) -> String {
        self.stream.write_all(request).await.expect("sent");
        let mut have = 0;
        loop {
            let free = self.buffer.get_mut(have..).expect("room for an answer");
            let n = self.stream.read(free).await.expect("read");
            assert!(n > 0, "the connection was closed");
            have += n;
            let text = std::str::from_utf8(self.buffer.get(..have).unwrap_or_default()).expect("text");
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            assert!(head.starts_with("HTTP/1.1 20"), "{text}");
            let length = head.split("content-length: ").nth(1).and_then(|t| t.split("\r\n").next());
            if body.len() >= length.and_then(|l| l.parse().ok()).expect("a length") {
                let version = body.split("\"resourceVersion\":\"").nth(1).and_then(|t| t.split('"').next());
                return version.unwrap_or_default().to_owned();
            }
        }
    }
}

async fn startup() {
    let before = Instant::now();
    for _ in 0..20 {
        fresh(true).await.shutdown().await;
    }
    println!("start and stop with TLS: {:?} each", before.elapsed() / 20);
}

/// Writes of one client with one verb. `versions` are those of its objects.
async fn write_all(
    port: u16,
    token: String,
    index: usize,
    verb: &'static str,
    versions: Vec<String>,
) -> Vec<String> {
    let mut client = Client::to(port, &token).await;
    let request = |i: usize, version: &String| {
        let name = format!("object-{index}-{i}");
        let path = format!("{WIDGETS}/{name}");
        match verb {
            "POST" => client.request(verb, WIDGETS, &widget(&name, 1)),
            "PUT" => {
                let mut changed = widget(&name, 2);
                changed["metadata"]["resourceVersion"] = version.as_str().into();
                client.request(verb, &path, &changed)
            }
            _ => client.request(verb, &path, &json!({"spec": {"size": 3}})),
        }
    };
    let requests: Vec<Vec<u8>> = versions.iter().enumerate().map(|(i, v)| request(i, v)).collect();
    let mut out = Vec::with_capacity(versions.len());
    for request in &requests {
        out.push(client.send(request).await);
    }
    out
}

fn writes(servers: &Runtime, clients: &Runtime) {
    let server = servers.block_on(fresh(false));
    servers
        .block_on(server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd()))
        .expect("declared");
    let (mut spent, mut wall, mut writes) = (Duration::ZERO, Duration::ZERO, 0);
    let mut versions = vec![vec![String::new(); OBJECTS]; CONNECTIONS];
    for (verb, name) in [("POST", "creations"), ("PUT", "replacements"), ("PATCH", "merge patches")] {
        let (before, server_before, client_before) = (Instant::now(), consumed("server"), consumed("client"));
        clients.block_on(async {
            let mut tasks = Vec::new();
            for (index, known) in versions.iter_mut().enumerate() {
                let (port, token) = (server.port(), server.token().to_owned());
                tasks.push(tokio::spawn(write_all(port, token, index, verb, std::mem::take(known))));
            }
            for (task, known) in tasks.into_iter().zip(&mut versions) {
                *known = task.await.expect("a client");
            }
        });
        let count = CONNECTIONS * OBJECTS;
        let (elapsed, server_time) = (before.elapsed(), consumed("server").saturating_sub(server_before));
        println!(
            "{count} {name} over {CONNECTIONS} connections: {:.0}/s wall clock; {:.1} us of CPU time each in the \
             server, {:.1} us in the clients",
            count as f64 / elapsed.as_secs_f64(),
            server_time.as_secs_f64() * 1e6 / count as f64,
            consumed("client").saturating_sub(client_before).as_secs_f64() * 1e6 / count as f64,
        );
        (spent, wall, writes) = (spent + server_time, wall + elapsed, writes + count);
    }
    println!(
        "all writes: {:.0}/s wall clock; {:.0}/s per core of the server",
        writes as f64 / wall.as_secs_f64(),
        writes as f64 / spent.as_secs_f64()
    );
}

async fn memory(name: &str) {
    let large = name == "large";
    let make = |i: usize| if large { map(i) } else { widget(&format!("object-{i}"), 1) };
    let path = if large { MAPS } else { WIDGETS };
    let server = fresh(false).await;
    let crds_path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    server.create(crds_path, &crd()).await.expect("declared");
    let (before, count) = (resident(), 20_000_u32);
    for i in 0..count {
        server.create(path, &make(i as usize)).await.expect("created");
    }
    let stored = server.get(&format!("{path}/object-1")).await.expect("an object").to_string().len();
    let each = (resident() - before) as f64 * 1024.0 / f64::from(count);
    println!(
        "{count} {name} objects: {each:.0} bytes in memory for {stored} of JSON ({:.2} times); {before} kB before",
        each / stored as f64
    );
}

/// Opens a watch over a socket and counts its events.
async fn reader(port: u16, token: String, path: String, changes: usize) -> usize {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut seen = 0;
    let mut buffer = vec![0; 64 * 1024];
    let mut rest = Vec::new();
    while seen < changes {
        let n = stream.read(&mut buffer).await.expect("read");
        assert!(n > 0, "the watch ended after {seen}");
        rest.extend_from_slice(buffer.get(..n).unwrap_or_default());
        // The end of an event follows a brace, unlike the line ends of the chunked framing.
        let ends = rest.windows(2).filter(|w| *w == b"}\n").count();
        seen += ends;
        let kept = rest.len().saturating_sub(1);
        rest.drain(..kept);
    }
    seen
}

fn watches(servers: &Runtime, clients: &Runtime) {
    let server = servers.block_on(fresh(false));
    let (before, server_before) = (Instant::now(), consumed("server"));
    let received: usize = clients.block_on(async {
        let path = || format!("{MAPS}?watch=1&resourceVersion=1");
        let tasks: Vec<_> = (0..WATCHERS)
            .map(|_| tokio::spawn(reader(server.port(), server.token().to_owned(), path(), CHANGES)))
            .collect();
        let mut writer = Client::to(server.port(), server.token()).await;
        for i in 0..CHANGES {
            let request = writer.request("POST", MAPS, &json!({"metadata": {"name": format!("c{i}")}}));
            writer.send(&request).await;
        }
        let mut received = 0;
        for task in tasks {
            received += task.await.expect("a watch");
        }
        received
    });
    let spent = consumed("server").saturating_sub(server_before);
    assert_eq!(received, WATCHERS * CHANGES, "events are missing or duplicate");
    println!(
        "{WATCHERS} watches received {received} events in {:?}; {:.1} us of CPU time per event in the server",
        before.elapsed(),
        spent.as_secs_f64() * 1e6 / received as f64
    );
}

/// An object of 2 kB with an operator's annotations and status.
fn reconciled_object(name: &str) -> Value {
    let spec = json!({"value": 0, "ballast": format!("{name:.<850}")});
    let last = format!("{}\n", json!({"spec": &spec}));
    json!({"apiVersion": "bench.example.com/v1", "kind": "Gust",
        "metadata": {"name": name, "annotations": {"kopf.zalando.org/last-handled-configuration": last}}, "spec": spec})
}

/// Updates in memory, with one watch.
fn burst(servers: &Runtime, clients: &Runtime) {
    let server = servers.block_on(fresh(false));
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gusts.bench.example.com"},
        "spec": {"group": "bench.example.com", "scope": "Namespaced", "names": {"plural": "gusts", "kind": "Gust"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let crds_path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    servers.block_on(server.create(crds_path, &crd)).expect("declared");
    clients.block_on(async {
        for i in 0..KEPT {
            server
                .execute("POST", GUSTS, Some(&reconciled_object(&format!("gust-{i}"))))
                .await
                .expect("created");
        }
    });
    let from = server.resource_version();
    let path = format!("{GUSTS}?watch=1&resourceVersion={from}");
    let reader = servers.spawn(reader(server.port(), server.token().to_owned(), path, UPDATES));
    let (before, server_before) = (Instant::now(), consumed("server"));
    let mut own = Duration::ZERO;
    // In this thread, like the server's owner.
    clients.block_on(async {
        for i in 0..UPDATES {
            // Any order without short periods.
            let index = if i % 2 == 0 { 0 } else { i * 7_919 % HOT };
            let change = json!({"spec": {"value": format!("burst {i}")}});
            server.execute("PATCH", &format!("{GUSTS}/gust-{index}"), Some(&change)).await.expect("patched");
        }
        own = before.elapsed();
        reader.await.expect("a reader");
    });
    let spent = consumed("server").saturating_sub(server_before);
    println!(
        "a burst of {UPDATES} updates: {:.1} us each wall clock ({:.1} us until the watch received them), and {:.1} us of CPU \
         time for the watch (with the client)",
        own.as_secs_f64() * 1e6 / UPDATES as f64,
        before.elapsed().as_secs_f64() * 1e6 / UPDATES as f64,
        spent.as_secs_f64() * 1e6 / UPDATES as f64,
    );
}

fn main() {
    let (servers, clients) = (runtime("server", 2), runtime("client", 1));
    let only = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let is_selected = |name: &str| only.as_deref().is_none_or(|only| only == name);
    for name in ["large", "small"] {
        if only.as_deref() == Some(name) {
            servers.block_on(memory(name));
        } else if is_selected("memory") {
            // In a separate process, for a clean measurement of memory.
            let own = std::env::current_exe().expect("this program");
            std::process::Command::new(own).arg(name).status().expect("the measurement");
        }
    }
    if is_selected("startup") {
        servers.block_on(startup());
    }
    if is_selected("writes") {
        writes(&servers, &clients);
    }
    if is_selected("watches") {
        watches(&servers, &clients);
    }
    if is_selected("burst") {
        burst(&servers, &clients);
    }
}
