//! Backpressure of watches.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kopf_core::cause::EventType;
use kopf_core::handler::registry::ResourceHandlers;
use kopf_core::object::Object;
use serde_json::json;
use tokio::time::timeout;

use super::super::backpressure::{MAX_HOST_BACKLOG, MAX_WORKING};
use super::DispatchConsumer;
use crate::objects::dispatcher::Dispatcher;
use crate::testing::{Fixture, lock, resource};
use crate::watch::WatchConsumer;

async fn ready(handler: &mut DispatchConsumer) {
    if let Some(ready) = handler.ready() {
        ready.await;
    }
}

#[tokio::test(start_paused = true)]
async fn watches_are_not_read_while_the_host_queue_is_full() {
    let fixture = Fixture::new(&json!({}), |_| (200, None));
    let resource_handlers = fixture
        .shared
        .base
        .startup_config
        .registry
        .handlers_of(&resource("example.com", "things", true), &|_| true);
    let resource_handlers: Arc<ResourceHandlers> = Arc::new(resource_handlers);
    let dispatcher =
        Dispatcher::new(Arc::clone(&fixture.shared), &crate::worker::Pool, resource_handlers, None);
    let mut handler = DispatchConsumer::new(dispatcher);
    let backlog = &fixture.host.backlog;

    backlog.store(MAX_HOST_BACKLOG, Ordering::Relaxed);
    assert!(timeout(Duration::from_mins(1), ready(&mut handler)).await.is_ok());
    backlog.store(MAX_HOST_BACKLOG + 1, Ordering::Relaxed);
    assert!(timeout(Duration::from_mins(1), ready(&mut handler)).await.is_err());
    let (room, ()) = tokio::join!(timeout(Duration::from_mins(1), ready(&mut handler)), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        backlog.store(MAX_HOST_BACKLOG, Ordering::Relaxed);
    });
    assert!(room.is_ok());
    backlog.store(MAX_HOST_BACKLOG + 1, Ordering::Relaxed);
    fixture.shared.base.stopping.cancel();
    assert!(
        timeout(Duration::from_mins(1), ready(&mut handler)).await.is_ok(),
        "still waiting after all completions"
    );
}

#[tokio::test(start_paused = true)]
async fn sleeping_workers_do_not_block_watches() {
    let fixture = Fixture::new(&json!({}), |_| (200, None));
    let resource_handlers = fixture
        .shared
        .base
        .startup_config
        .registry
        .handlers_of(&resource("example.com", "things", true), &|_| true);
    let dispatcher =
        Dispatcher::new(Arc::clone(&fixture.shared), &crate::worker::Pool, Arc::new(resource_handlers), None);
    let mut handler = DispatchConsumer::new(dispatcher);
    let shared = &fixture.shared;
    for _ in 0..=MAX_WORKING {
        shared.workers.spawn(std::future::pending::<()>());
    }
    assert!(timeout(Duration::from_mins(1), ready(&mut handler)).await.is_err());
    let nap = shared.sleeping();
    assert!(timeout(Duration::from_mins(1), ready(&mut handler)).await.is_ok());
    drop(nap);
    assert!(timeout(Duration::from_mins(1), ready(&mut handler)).await.is_err());
}

/// They may wait for an event that is not read yet.
#[tokio::test(start_paused = true)]
async fn handlers_that_run_for_long_do_not_block_watches() {
    let selector = json!({"group": "example.com", "version": "v1", "plural": "things"});
    for kind in ["changing", "watching"] {
        let handler =
            json!({"id": "fn", "key": 0, "kind": kind, "reason": "create", "selector": selector.clone()});
        let fixture = Fixture::with_handlers(vec![handler], &json!({}), |_| (200, None));
        let registry = &fixture.shared.base.startup_config.registry;
        let resource_handlers = registry.handlers_of(&resource("example.com", "things", true), &|_| true);
        let (shared, pool) = (Arc::clone(&fixture.shared), &crate::worker::Pool);
        let mut handler =
            DispatchConsumer::new(Dispatcher::new(shared, pool, Arc::new(resource_handlers), None));
        for number in 0..=MAX_WORKING {
            let text = format!(r#"{{"metadata":{{"name":"n{number}","uid":"u{number}"}}}}"#);
            handler.event(EventType::Added, &Arc::new(Object::decode(&text).unwrap()));
        }
        assert!(timeout(Duration::from_secs(4), ready(&mut handler)).await.is_err(), "{kind}");
        assert_eq!(lock(&fixture.host.tasks).len(), MAX_WORKING + 1, "{kind}");
        assert!(timeout(Duration::from_secs(4), ready(&mut handler)).await.is_ok(), "{kind}");
        fixture.host.backlog.store(MAX_HOST_BACKLOG + 1, Ordering::Relaxed);
        assert!(timeout(Duration::from_mins(1), ready(&mut handler)).await.is_err(), "{kind}");
    }
}

/// Other watches have other permits.
#[tokio::test(start_paused = true)]
async fn objects_that_wait_for_a_permit_block_only_their_own_watch() {
    let selector = json!({"group": "example.com", "version": "v1", "plural": "things"});
    let handler = json!({"id": "fn", "key": 0, "kind": "changing", "reason": "create", "selector": selector});
    let settings = json!({"queueing": {"worker_limit": 1}});
    let fixture = Fixture::with_handlers(vec![handler], &settings, |_| (200, None));
    let registry = &fixture.shared.base.startup_config.registry;
    let [mut things, mut others] = ["things", "others"].map(|plural| {
        let resource_handlers = registry.handlers_of(&resource("example.com", plural, true), &|_| true);
        let (shared, pool) = (Arc::clone(&fixture.shared), &crate::worker::Pool);
        DispatchConsumer::new(Dispatcher::new(shared, pool, Arc::new(resource_handlers), None))
    });
    for number in 0..MAX_WORKING + 2 {
        let text = format!(r#"{{"metadata":{{"name":"n{number}","uid":"u{number}"}}}}"#);
        things.event(EventType::Added, &Arc::new(Object::decode(&text).unwrap()));
    }
    assert!(timeout(Duration::from_mins(1), ready(&mut things)).await.is_err());
    assert_eq!(lock(&fixture.host.tasks).len(), 1);
    assert!(timeout(Duration::from_mins(1), ready(&mut others)).await.is_ok());
}
