//! How much of the server's objects is in our memory at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kopf_core::registry::Plan;
use serde_json::json;
use tokio::time::timeout;

use super::{BACKLOG, DispatchSink, ROOM};
use crate::dispatch::Dispatcher;
use crate::testing::{Stage, resource};
use crate::watch::Sink;

#[tokio::test(start_paused = true)]
async fn streams_are_not_read_while_enough_waits_for_the_other_side() {
    let stage = Stage::new(&json!({}), |_| (200, None));
    let plan = stage.shared.rules.registry.plan(&resource("example.com", "things", true), &|_| true);
    let plan: Arc<Plan> = Arc::new(plan);
    let dispatcher = Dispatcher::new(Arc::clone(&stage.shared), plan, None);
    let sink = DispatchSink { dispatcher, filling: None };
    let backlog = &stage.other_side.backlog;

    backlog.store(BACKLOG, Ordering::Relaxed);
    assert!(timeout(Duration::from_mins(1), sink.room()).await.is_ok());
    backlog.store(BACKLOG + 1, Ordering::Relaxed);
    assert!(timeout(Duration::from_mins(1), sink.room()).await.is_err());
    let (room, ()) = tokio::join!(timeout(Duration::from_mins(1), sink.room()), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        backlog.store(BACKLOG, Ordering::Relaxed);
    });
    assert!(room.is_ok());
    backlog.store(BACKLOG + 1, Ordering::Relaxed);
    stage.shared.stopping.cancel();
    assert!(timeout(Duration::from_mins(1), sink.room()).await.is_ok(), "nobody waits at the end");
}

#[tokio::test(start_paused = true)]
async fn streams_are_not_held_by_those_who_wait_for_the_time() {
    let stage = Stage::new(&json!({}), |_| (200, None));
    let plan = stage.shared.rules.registry.plan(&resource("example.com", "things", true), &|_| true);
    let dispatcher = Dispatcher::new(Arc::clone(&stage.shared), Arc::new(plan), None);
    let sink = DispatchSink { dispatcher, filling: None };
    let shared = &stage.shared;
    for _ in 0..=ROOM {
        shared.workers.spawn(std::future::pending::<()>());
    }
    assert!(timeout(Duration::from_mins(1), sink.room()).await.is_err());
    let nap = shared.nap();
    assert!(timeout(Duration::from_mins(1), sink.room()).await.is_ok());
    drop(nap);
    assert!(timeout(Duration::from_mins(1), sink.room()).await.is_err());
}
