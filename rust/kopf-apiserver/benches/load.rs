//! How much the server bears: start-up, writes a second, many watchers, memory for an object.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark may stop, and prints figures"
)]

use std::time::Instant;

use kopf_apiserver::{Server, ServerOptions, start};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const OBJECTS: usize = 20_000;
const WATCHERS: usize = 1_000;
const CHANGES: usize = 100;

fn object(i: usize) -> Value {
    let data: serde_json::Map<String, Value> =
        (0..20).map(|k| (format!("key-{k}"), "v".repeat(100).into())).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("object-{i}"), "labels": {"app": "bench"}}, "data": data})
}

/// Resident memory in kilobytes, as the system counts it.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

async fn fresh(tls: bool) -> Server {
    start(ServerOptions { tls, ..ServerOptions::default() }).await.expect("a server")
}

async fn starting() {
    let before = Instant::now();
    for _ in 0..20 {
        fresh(true).await.shutdown().await;
    }
    println!("start and stop with TLS: {:?} each", before.elapsed() / 20);
}

async fn writing() {
    let server = fresh(false).await;
    let idle = resident();
    let objects: Vec<Value> = (0..OBJECTS).map(object).collect();
    let size: usize = objects.iter().map(|o| o.to_string().len()).sum::<usize>() / OBJECTS;
    let loaded = resident();
    let before = Instant::now();
    for object in &objects {
        server.create(MAPS, object).await.expect("created");
    }
    let rate = OBJECTS as f64 / before.elapsed().as_secs_f64();
    let each = (resident() - loaded) as f64 * 1024.0 / OBJECTS as f64;
    println!(
        "idle: {idle} kB resident; {rate:.0} creations/s through memory; {each:.0} bytes for an object of {size}"
    );
}

/// Opens a watch over a bare socket and counts its lines.
async fn watcher(port: u16, token: String) -> usize {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
    let request = format!(
        "GET {MAPS}?watch=1&resourceVersion=1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut seen = 0;
    let mut buffer = vec![0; 64 * 1024];
    while seen < CHANGES {
        let n = stream.read(&mut buffer).await.expect("read");
        assert!(n > 0, "the watch ended after {seen}");
        seen += buffer
            .iter()
            .take(n)
            .collect::<Vec<_>>()
            .windows(8)
            .filter(|w| w.iter().copied().eq(b"\"ADDED\","))
            .count();
    }
    seen
}

async fn watching() {
    let server = fresh(false).await;
    let tasks: Vec<_> =
        (0..WATCHERS).map(|_| tokio::spawn(watcher(server.port(), server.token().to_owned()))).collect();
    let before = Instant::now();
    for i in 0..CHANGES {
        let small = json!({"metadata": {"name": format!("c{i}")}});
        server.create(MAPS, &small).await.expect("created");
    }
    let mut told = 0;
    for task in tasks {
        told += task.await.expect("a watcher");
    }
    println!("{WATCHERS} watchers told {told} changes in {:?}", before.elapsed());
}

#[tokio::main]
async fn main() {
    starting().await;
    writing().await;
    watching().await;
}
