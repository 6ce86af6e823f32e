//! Responses over real connections, and the lifetime of kept results in paused time.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::testing::{FakeHost, lock};

async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let text = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response.to_lowercase()
}

async fn reply(host: &FakeHost, results: Option<&str>) {
    loop {
        if let Some(HostTask::Probe(task)) = lock(&host.tasks).pop() {
            let _gone = task.reply.send(results.map(str::to_owned));
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn only_the_path_is_served_and_only_for_reading() {
    let host = Arc::new(FakeHost::default());
    let endpoint = Endpoint { host: "localhost".to_owned(), port: 0, path: "/healthz".to_owned() };
    let probes = Probes::listen(endpoint, Arc::<FakeHost>::clone(&host), None).await.unwrap();
    let address = probes.addresses()[0];
    let server = tokio::spawn(probes.serve());
    let (failed, ()) = tokio::join!(ask(address, "GET /healthz"), reply(&host, None));
    assert!(failed.starts_with("http/1.1 500 "), "{failed}");
    assert!(
        failed.ends_with("\r\n\r\n500 internal server error\n\nserver got itself in trouble"),
        "{failed}"
    );
    let (healthy, ()) = tokio::join!(ask(address, "GET /healthz?x=1"), reply(&host, Some("{\"a\": 1}")));
    assert!(healthy.starts_with("http/1.1 200 ok\r\n"), "{healthy}");
    assert!(healthy.contains("content-type: application/json; charset=utf-8\r\n"), "{healthy}");
    assert!(healthy.ends_with("\r\n\r\n{\"a\": 1}"), "{healthy}");
    // From here on, the results are kept.
    let table = [
        ("HEAD /healthz", "200 ok", true),
        ("GET /healthz/", "404 not found", false),
        ("GET /", "404 not found", false),
        ("POST /healthz", "405 method not allowed", false),
        ("POST /other", "404 not found", false),
    ];
    for (request, status, empty) in table {
        let response = ask(address, request).await;
        assert!(response.starts_with(&format!("http/1.1 {status}\r\n")), "{request}: {response}");
        assert_eq!(response.ends_with("\r\n\r\n"), empty, "{request}: {response}");
    }
    assert!(lock(&host.tasks).is_empty());
    server.abort();
}

#[tokio::test]
async fn a_port_in_use_is_a_failure_that_names_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port, path: "/".to_owned() };
    let failure = Probes::listen(endpoint, Arc::new(FakeHost::default()), None).await.err().unwrap();
    assert!(failure.message.starts_with(&format!("Cannot serve the health status at 127.0.0.1:{port}: ")));
}

#[tokio::test(start_paused = true)]
async fn results_are_kept_for_a_while_failures_are_not_and_abandoned_requests_cause_no_collection() {
    let host = Arc::new(FakeHost::default());
    let (askers, receiver) = channel(MAX_WAITING);
    let collector = tokio::spawn(collect(Arc::<FakeHost>::clone(&host), receiver));
    let ask = || {
        let (asker, results) = oneshot::channel();
        askers.try_send(asker).unwrap();
        async move { results.await.unwrap().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()) }
    };
    let (got, ()) = tokio::join!(ask(), reply(&host, None));
    assert_eq!(got, None);
    let (one, two, ()) = tokio::join!(ask(), ask(), reply(&host, Some("1")));
    assert_eq!((one.as_deref(), two.as_deref()), (Some("1"), Some("1")));
    sleep(Duration::from_millis(9_999)).await;
    assert_eq!(ask().await.as_deref(), Some("1"));
    sleep(Duration::from_millis(1)).await;
    drop(ask());
    let (got, ()) = tokio::join!(ask(), reply(&host, Some("2")));
    assert_eq!(got.as_deref(), Some("2"));
    assert!(lock(&host.tasks).is_empty());
    collector.abort();
}

#[tokio::test]
async fn the_health_of_streams_is_served_next_to_the_probes() {
    let endpoint = Endpoint { host: "localhost".to_owned(), port: 0, path: "/healthz".to_owned() };
    let health = Arc::new(WatchHealth::new(crate::time::clock::Clock::start()));
    health.record_failure("pods", crate::watch_health::StreamFailure::Rejected, Some("403".to_owned()));
    let host = Arc::new(FakeHost::default());
    let probes = Probes::listen(endpoint, Arc::<FakeHost>::clone(&host), Some(health)).await.unwrap();
    let address = probes.addresses()[0];
    let server = tokio::spawn(probes.serve());
    let streams = ask(address, "GET /streams").await;
    assert!(streams.starts_with("http/1.1 200 ok\r\n"), "{streams}");
    assert!(streams.contains("\"trouble\":\"refused\""), "{streams}");
    let metrics = ask(address, "GET /metrics").await;
    assert!(metrics.contains("\nkopf_stream_failures_total{stream=\"pods\"} 1\n"), "{metrics}");
    assert!(ask(address, "POST /metrics").await.starts_with("http/1.1 405 "));
    assert!(ask(address, "GET /other").await.starts_with("http/1.1 404 "));
    assert!(lock(&host.tasks).is_empty());
    server.abort();
}

#[tokio::test]
async fn idle_connections_are_evicted_for_the_next_probe() {
    let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port: 0, path: "/healthz".to_owned() };
    let host = Arc::new(FakeHost::default());
    let probes = Probes::listen(endpoint, Arc::<FakeHost>::clone(&host), None).await.unwrap();
    let address = probes.addresses()[0];
    let server = tokio::spawn(probes.serve());
    let mut idle = vec![];
    for _ in 0..=CONNECTIONS {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    // The first connection is closed, without any bytes, in favour of the last one.
    assert_eq!(idle[0].read(&mut [0]).await.unwrap(), 0);
    let (healthy, ()) = tokio::join!(ask(address, "GET /healthz"), reply(&host, Some("{}")));
    assert!(healthy.starts_with("http/1.1 200 ok\r\n"), "{healthy}");
    assert_eq!(idle[1].read(&mut [0]).await.unwrap(), 0);
    server.abort();
}

/// A host that panics.
struct Broken;

impl Host for Broken {
    fn submit(&self, _: HostTask) {
        panic!("no jobs");
    }

    fn log(&self, _: LogRecord) {}

    fn enabled(&self, _: Level) -> bool {
        true
    }
}

#[tokio::test]
async fn a_panic_of_the_server_is_reported() {
    let endpoint = Endpoint { host: "localhost".to_owned(), port: 0, path: "/healthz".to_owned() };
    let probes = Probes::listen(endpoint, Arc::new(Broken), None).await.unwrap();
    let address = probes.addresses()[0];
    let failing = Arc::<crate::supervision::Failing>::default();
    let asking = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = failing.guard("The server of probes", probes.serve()) => {}
        () = asking => {}
    }
    assert!(failing.failed().await.message.starts_with("The server of probes has panicked: no jobs."));
}

#[tokio::test]
async fn a_stream_that_is_missing_is_a_failed_probe() {
    let endpoint = Endpoint { host: "localhost".to_owned(), port: 0, path: "/healthz".to_owned() };
    let health = Arc::new(WatchHealth::new(crate::time::clock::Clock::start()));
    health.expect(std::collections::BTreeSet::from(["pods cluster-wide".to_owned()]));
    let host = Arc::new(FakeHost::default());
    let health_of = Some(Arc::clone(&health));
    let probes = Probes::listen(endpoint, Arc::<FakeHost>::clone(&host), health_of).await.unwrap();
    let address = probes.addresses()[0];
    let server = tokio::spawn(probes.serve());
    let failed = ask(address, "GET /healthz").await;
    assert!(
        failed.starts_with("http/1.1 500 ") && failed.ends_with("not watched: pods cluster-wide"),
        "{failed}"
    );
    health.selected("pods cluster-wide", &[]);
    let (healthy, ()) = tokio::join!(ask(address, "GET /healthz"), reply(&host, Some("{}")));
    assert!(healthy.starts_with("http/1.1 200 ok"), "{healthy}");
    server.abort();
}
