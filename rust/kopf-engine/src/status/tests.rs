//! Responses over real connections, and the lifetime of kept results in paused time.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::probing::collect;
use super::*;
use crate::admission::AdmissionRouter;
use crate::host::HostTask;
use crate::testing::{FakeHost, Fixture, lock};
use serde_json::json;
use tokio::sync::oneshot;

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

fn liveness(path: &str) -> StatusOptions {
    let endpoint = Endpoint { host: "localhost".to_owned(), port: 0, path: path.to_owned() };
    StatusOptions { liveness: Some(endpoint), ..StatusOptions::default() }
}

async fn listening(options: StatusOptions) -> (StatusServer, Vec<SocketAddr>) {
    let server = StatusServer::start(&Handle::current(), options);
    let addresses = server.listening().await.unwrap();
    (server, addresses)
}

/// As of Kopf 1.45: only the probes.
fn with_probes(host: Arc<dyn Host>) -> Connected {
    Connected { host, failing: Arc::default(), has_probes: true, status: None }
}

/// An operator with everything but probes, and without any streams yet.
fn with_status(fixture: &Fixture) -> Connected {
    let registry = Arc::clone(&fixture.shared.base.startup_config.registry);
    let host = Arc::clone(&fixture.shared.base.host);
    let monitored = Monitored {
        dispatch: Arc::clone(&fixture.shared),
        health: Arc::clone(&fixture.health),
        awaited: Awaited::default(),
        admission: Arc::new(AdmissionRouter::new(registry, Arc::clone(&host))),
        heartbeats: Arc::new(Heartbeats::start()),
        replica: None,
    };
    let monitor = Arc::new(HealthMonitor::new(monitored));
    let health = Arc::clone(&fixture.health);
    let status = OperatorStatus { health, awaited: Awaited::default(), monitor };
    Connected { host, failing: Arc::default(), has_probes: false, status: Some(status) }
}

// contract: api 10.2
#[tokio::test]
async fn only_the_path_is_served_and_only_for_reading() {
    let host = Arc::new(FakeHost::default());
    let (server, addresses) = listening(liveness("/healthz")).await;
    let address = addresses[0];
    server.connect(with_probes(Arc::<FakeHost>::clone(&host)));
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
        ("GET /livez", "404 not found", false),
        ("GET /statusz", "404 not found", false),
        ("POST /healthz", "405 method not allowed", false),
        ("POST /other", "404 not found", false),
    ];
    for (request, status, empty) in table {
        let response = ask(address, request).await;
        assert!(response.starts_with(&format!("http/1.1 {status}\r\n")), "{request}: {response}");
        assert_eq!(response.ends_with("\r\n\r\n"), empty, "{request}: {response}");
    }
    assert!(lock(&host.tasks).is_empty());
    server.stop();
}

#[tokio::test]
async fn an_address_that_is_set_later_replaces_that_of_the_probes() {
    let fixture = Fixture::new(&json!({}), |_| (200, None));
    let (server, addresses) = listening(liveness("/healthz")).await;
    let own = addresses[0];
    assert!(ask(own, "GET /startupz").await.starts_with("http/1.1 503 "));
    // The same address changes nothing.
    server.serve_status_at("localhost".to_owned(), 0);
    assert_eq!(server.listening().await.unwrap(), addresses);
    server.serve_status_at("127.0.0.1".to_owned(), 0);
    let all = server.listening().await.unwrap();
    assert_eq!(all.len(), addresses.len() + 1);
    server.connect(with_status(&fixture));
    let status = all[addresses.len()];
    assert!(ask(status, "GET /metrics").await.contains("kopf_build_info"));
    assert!(ask(status, "GET /healthz").await.starts_with("http/1.1 404 "));
    assert!(ask(own, "GET /healthz").await.starts_with("http/1.1 200 "));
    assert!(ask(own, "GET /metrics").await.starts_with("http/1.1 404 "));
    server.stop();
}

#[tokio::test]
async fn an_address_that_is_set_before_the_server_has_begun_is_served_too() {
    let server = StatusServer::start(&Handle::current(), liveness("/healthz"));
    server.serve_status_at("127.0.0.1".to_owned(), 0);
    let addresses = timeout(Duration::from_secs(30), server.listening()).await.unwrap().unwrap();
    assert!(addresses.len() >= 2, "{addresses:?}");
    server.stop();
}

#[tokio::test]
async fn a_later_address_in_use_is_a_failure_and_the_probes_are_still_served() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (server, addresses) = listening(liveness("/healthz")).await;
    server.serve_status_at("127.0.0.1".to_owned(), taken.local_addr().unwrap().port());
    let failure = server.listening().await.unwrap_err();
    assert!(failure.message.starts_with("Cannot serve the health status at 127.0.0.1:"));
    assert!(ask(addresses[0], "GET /healthz").await.starts_with("http/1.1 200 "));
    server.stop();
}

#[tokio::test]
async fn a_port_in_use_is_a_failure_that_names_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port, path: "/".to_owned() };
    let options = StatusOptions { liveness: Some(endpoint), ..StatusOptions::default() };
    let failure = StatusServer::start(&Handle::current(), options).listening().await.unwrap_err();
    assert!(failure.message.starts_with(&format!("Cannot serve the health status at 127.0.0.1:{port}: ")));
}

// contract: api 10.2
#[tokio::test(start_paused = true)]
async fn results_are_kept_for_a_while_failures_are_not_and_abandoned_requests_cause_no_collection() {
    let host = Arc::new(FakeHost::default());
    let (server, _) = listening(StatusOptions::default()).await;
    let (askers, receiver) = channel(MAX_WAITING);
    server.0.connected.set(with_probes(Arc::<FakeHost>::clone(&host))).ok().unwrap();
    let collector = tokio::spawn(collect(Arc::clone(&server.0), receiver));
    let ask = || {
        let (asker, results) = oneshot::channel();
        askers.try_send(asker).unwrap();
        async move {
            let results: Option<bytes::Bytes> = results.await.unwrap();
            results.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
        }
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
    let fixture = Fixture::new(&json!({}), |_| (200, None));
    let rejected = crate::watch_health::StreamFailure::Rejected;
    fixture.health.record_failure("pods", rejected, Some("403".to_owned()));
    let (server, addresses) = listening(liveness("/healthz")).await;
    server.connect(with_status(&fixture));
    let address = addresses[0];
    let streams = ask(address, "GET /streams").await;
    assert!(streams.starts_with("http/1.1 200 ok\r\n"), "{streams}");
    assert!(streams.contains("\"trouble\":\"refused\""), "{streams}");
    let metrics = ask(address, "GET /metrics").await;
    for family in ["kopf_watch_events_total", "kopf_handler_calls_total", "kopf_logins_total"] {
        assert!(metrics.contains(&format!("# type {family} counter\n")), "{family}: {metrics}");
    }
    for sample in ["kopf_border_waiting 0", "kopf_border_oldest_seconds 0", "kopf_requests_active 0"] {
        assert!(metrics.contains(&format!("\n{sample}\n")), "{sample}: {metrics}");
    }
    assert!(!metrics.contains("kopf_loop_tick_age_seconds"), "no heartbeat was sent: {metrics}");
    assert!(ask(address, "POST /metrics").await.starts_with("http/1.1 405 "));
    assert!(ask(address, "GET /other").await.starts_with("http/1.1 404 "));
    assert!(lock(&fixture.host.tasks).is_empty(), "no response depends on the host");
    server.stop();
}

#[tokio::test]
async fn endpoints_name_the_failed_checks_and_are_not_cached() {
    let fixture = Fixture::new(&json!({}), |_| (200, None));
    let (server, addresses) = listening(liveness("/healthz")).await;
    let address = addresses[0];
    for (request, status, body) in [
        ("GET /livez", 200, "ok"),
        ("GET /startupz", 503, "[-]started failed: the startup handlers have not finished\n"),
        ("GET /readyz", 503, "[-]started failed: the startup handlers have not finished\n"),
        ("GET /healthz", 200, "{}"),
    ] {
        let response = ask(address, request).await;
        assert!(response.starts_with(&format!("http/1.1 {status} ")), "{request}: {response}");
        assert!(response.ends_with(&format!("\r\n\r\n{body}")), "{request}: {response}");
    }
    let status = ask(address, "GET /statusz").await;
    assert!(status.contains("\"state\":\"starting\""), "{status}");
    server.connect(with_status(&fixture));
    for path in ["/readyz", "/ready", "/startupz"] {
        let response = ask(address, &format!("GET {path}")).await;
        assert!(response.starts_with("http/1.1 503 "), "{response}");
        assert!(response.contains("cache-control: no-store\r\n"), "{response}");
        assert!(response.contains("[-]synced failed: the cluster is not scanned yet\n"), "{response}");
        let excluded = ask(address, &format!("GET {path}?exclude=synced&exclude=started")).await;
        assert!(
            excluded.starts_with("http/1.1 200 ok\r\n") && excluded.ends_with("\r\n\r\nok"),
            "{excluded}"
        );
    }
    let verbose = ask(address, "GET /livez?verbose").await;
    assert!(verbose.contains("[+]loop ok\n") && verbose.contains("[+]probes ok\n"), "{verbose}");
    let status = ask(address, "GET /statusz").await;
    assert!(status.contains("\"check\":\"synced\"") && status.contains("\"watching\":{"), "{status}");
    server.stop();
}

#[tokio::test]
async fn with_two_addresses_the_probes_are_alone_at_theirs() {
    let fixture = Fixture::new(&json!({}), |_| (200, None));
    let options = StatusOptions { address: Some(("127.0.0.1".to_owned(), 0)), ..liveness("/healthz") };
    let (server, addresses) = listening(options).await;
    server.connect(with_status(&fixture));
    let (probes, status) = (addresses[0], *addresses.last().unwrap());
    assert_ne!(probes.port(), status.port());
    for (address, path, code) in [
        (probes, "/healthz", 200),
        (probes, "/livez", 404),
        (probes, "/metrics", 404),
        (status, "/healthz", 404),
        (status, "/livez", 200),
        (status, "/metrics", 200),
    ] {
        let response = ask(address, &format!("GET {path}")).await;
        assert!(response.starts_with(&format!("http/1.1 {code} ")), "{path}: {response}");
    }
    server.stop();
}

#[tokio::test]
async fn the_path_of_the_probes_precedes_an_endpoint_of_the_same_path() {
    let fixture = Fixture::new(&json!({}), |_| (200, None));
    let (server, addresses) = listening(liveness("/readyz")).await;
    server.connect(with_status(&fixture));
    assert!(ask(addresses[0], "GET /readyz").await.ends_with("\r\n\r\n{}"));
    assert!(ask(addresses[0], "GET /ready").await.starts_with("http/1.1 503 "));
    let text = "The path /readyz of the liveness endpoint replaces the status endpoint of the same path.";
    assert_eq!(fixture.host.lines(text).len(), 1);
    server.stop();
}

#[tokio::test(start_paused = true)]
async fn probes_without_results_within_5_seconds_are_a_failed_check() {
    let (askers, mut receiver) = channel::<Waiter>(MAX_WAITING);
    let begun = tokio::time::Instant::now();
    let failure = probing::check(&askers).await;
    assert_eq!(failure.as_deref(), Some("no results within 5 s"));
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert!(receiver.recv().await.unwrap().is_closed(), "it does not wait any more");
    let failing = async { receiver.recv().await.unwrap().send(None).unwrap() };
    let (failure, ()) = tokio::join!(probing::check(&askers), failing);
    assert_eq!(failure.as_deref(), Some("a probe has failed"));
}

#[tokio::test]
async fn idle_connections_are_evicted_for_the_next_probe() {
    let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port: 0, path: "/healthz".to_owned() };
    let host = Arc::new(FakeHost::default());
    let (server, addresses) =
        listening(StatusOptions { liveness: Some(endpoint), ..StatusOptions::default() }).await;
    server.connect(with_probes(Arc::<FakeHost>::clone(&host)));
    let address = addresses[0];
    let mut idle = vec![];
    for _ in 0..=serving::CONNECTIONS {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    // The first connection is closed, without any bytes, in favour of the last one.
    assert_eq!(idle[0].read(&mut [0]).await.unwrap(), 0);
    let (healthy, ()) = tokio::join!(ask(address, "GET /healthz"), reply(&host, Some("{}")));
    assert!(healthy.starts_with("http/1.1 200 ok\r\n"), "{healthy}");
    assert_eq!(idle[1].read(&mut [0]).await.unwrap(), 0);
    server.stop();
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
    let (server, addresses) = listening(liveness("/healthz")).await;
    let failing = Arc::<Failing>::default();
    let host = Arc::new(Broken);
    server.connect(Connected { host, failing: Arc::clone(&failing), has_probes: true, status: None });
    let mut stream = TcpStream::connect(addresses[0]).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let failure = failing.failed().await;
    assert!(failure.message.starts_with("The server of probes has panicked: no jobs."), "{failure}");
}

#[tokio::test]
async fn a_failed_check_of_liveness_is_a_failed_probe() {
    let fixture = Fixture::new(&json!({"health": {"supervision_limit": 0.0}}), |_| (200, None));
    let (server, addresses) = listening(liveness("/healthz")).await;
    server.connect(with_status(&fixture));
    assert!(ask(addresses[0], "GET /healthz").await.starts_with("http/1.1 200 ok"));
    fixture.health.expect(std::collections::BTreeSet::from(["pods cluster-wide".to_owned()]));
    ask(addresses[0], "GET /livez").await;
    let failed = ask(addresses[0], "GET /healthz").await;
    assert!(failed.starts_with("http/1.1 500 "), "{failed}");
    assert!(failed.contains("[-]streams failed: pods cluster-wide has had no task for 0 s\n"), "{failed}");
    fixture.health.selected("pods cluster-wide", &[]);
    assert!(ask(addresses[0], "GET /healthz").await.starts_with("http/1.1 200 ok"));
    server.stop();
}
