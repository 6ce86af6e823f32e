//! Backpressure of watches.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kopf_core::handler::registry::ResourceHandlers;
use serde_json::json;
use tokio::time::timeout;

use super::super::backpressure::{MAX_HOST_BACKLOG, MAX_WORKING};
use super::DispatchHandler;
use crate::objects::dispatcher::Dispatcher;
use crate::testing::{Stage, resource};
use crate::watch::EventHandler;

#[tokio::test(start_paused = true)]
async fn watches_are_not_read_while_the_host_queue_is_full() {
    let stage = Stage::new(&json!({}), |_| (200, None));
    let plan = stage.shared.rules.registry.plan(&resource("example.com", "things", true), &|_| true);
    let plan: Arc<ResourceHandlers> = Arc::new(plan);
    let dispatcher = Dispatcher::new(Arc::clone(&stage.shared), &crate::worker::Pool, plan, None);
    let sink = DispatchHandler { dispatcher, gated: None };
    let backlog = &stage.other_side.backlog;

    backlog.store(MAX_HOST_BACKLOG, Ordering::Relaxed);
    assert!(timeout(Duration::from_mins(1), sink.ready()).await.is_ok());
    backlog.store(MAX_HOST_BACKLOG + 1, Ordering::Relaxed);
    assert!(timeout(Duration::from_mins(1), sink.ready()).await.is_err());
    let (room, ()) = tokio::join!(timeout(Duration::from_mins(1), sink.ready()), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        backlog.store(MAX_HOST_BACKLOG, Ordering::Relaxed);
    });
    assert!(room.is_ok());
    backlog.store(MAX_HOST_BACKLOG + 1, Ordering::Relaxed);
    stage.shared.stopping.cancel();
    assert!(
        timeout(Duration::from_mins(1), sink.ready()).await.is_ok(),
        "still waiting after all completions"
    );
}

#[tokio::test(start_paused = true)]
async fn sleeping_workers_do_not_block_watches() {
    let stage = Stage::new(&json!({}), |_| (200, None));
    let plan = stage.shared.rules.registry.plan(&resource("example.com", "things", true), &|_| true);
    let dispatcher = Dispatcher::new(Arc::clone(&stage.shared), &crate::worker::Pool, Arc::new(plan), None);
    let sink = DispatchHandler { dispatcher, gated: None };
    let shared = &stage.shared;
    for _ in 0..=MAX_WORKING {
        shared.workers.spawn(std::future::pending::<()>());
    }
    assert!(timeout(Duration::from_mins(1), sink.ready()).await.is_err());
    let nap = shared.sleeping();
    assert!(timeout(Duration::from_mins(1), sink.ready()).await.is_ok());
    drop(nap);
    assert!(timeout(Duration::from_mins(1), sink.ready()).await.is_err());
}
