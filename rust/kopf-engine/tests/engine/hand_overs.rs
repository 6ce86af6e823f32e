//! Data between the server and the engine, for tests in virtual time that wait until all of it is taken.

use std::collections::BTreeSet;
use std::sync::Arc;

use kopf_engine::time::clock::Clock;
use kopf_engine::time::traffic::{Endpoint, in_transit};
use kopf_engine::time::virtual_time::VirtualTime;
use serde_json::json;

use crate::fixture::{Fixture, handler};

async fn fixture() -> (Fixture, Arc<VirtualTime>) {
    let time = Arc::new(VirtualTime::default());
    time.use_it();
    let mut fixture = Fixture::new().await;
    fixture.clock = Clock::under(Arc::clone(&time));
    fixture.serve(vec![handler("make", "create")], |_| {}).await;
    fixture.settle().await;
    (fixture, time)
}

fn servers() -> Vec<Endpoint> {
    let open = kopf_apiserver::open_connections();
    let endpoint = |connection: &kopf_apiserver::OpenConnection| Endpoint {
        local: connection.local,
        peer: connection.peer,
        read: connection.read,
        written: connection.written,
        is_blocked: connection.is_blocked,
        is_pooled: false,
    };
    open.iter().map(endpoint).collect()
}

fn pending(time: &VirtualTime) -> Vec<String> {
    let mut pending = in_transit(&time.connections(), &servers(), &kopf_apiserver::listeners());
    pending.extend(time.busy_operations());
    pending
}

#[tokio::test]
async fn every_hand_over_of_an_event_is_known_until_it_is_taken() {
    let (fixture, time) = fixture().await;
    assert!(!time.connections().is_empty() && pending(&time).is_empty(), "{:?}", pending(&time));
    fixture.create("one", json!({"x": 1})).await;
    let mut seen = BTreeSet::new();
    for _ in 0..1_000_000 {
        seen.extend(pending(&time));
        if fixture.is_handled("one").await && pending(&time).is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    for part in
        ["from the server to the client connection", "to the server", "the request PATCH /apis/example.com"]
    {
        assert!(seen.iter().any(|text| text.contains(part)), "{part}: {seen:?}");
    }
    fixture.settle().await;
    assert!(pending(&time).is_empty(), "{:?}", pending(&time));
}

#[tokio::test]
async fn a_watch_that_the_server_closes_is_known_until_the_engine_notices() {
    let (fixture, time) = fixture().await;
    fixture.server.faults().cut_watches("widgets");
    let mut seen = BTreeSet::new();
    for _ in 0..10_000 {
        seen.extend(pending(&time));
        tokio::task::yield_now().await;
    }
    assert!(!seen.is_empty());
    fixture.pass_until("the next watch", 0.1, 10.0, |_| pending(&time).is_empty()).await;
}
