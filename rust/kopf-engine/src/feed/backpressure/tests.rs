//! Waiting for room: no notification is missed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::log_level::Level;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{MAX_HOST_BACKLOG, wait_for_room};
use crate::client::credentials::CredentialStore;
use crate::host::{Host, HostTask, LogRecord};
use crate::objects::dispatcher::Dispatcher;
use crate::testing::{credential_store_options, lock, resource, shared};

/// A host that takes its items just after its backlog was read for the last of these times.
struct TakingHost {
    backlogs: Mutex<VecDeque<usize>>,
    taken: Notify,
}

impl TakingHost {
    /// A host whose queue is full for the next `reads`.
    fn full_for(reads: u64) -> Arc<Self> {
        let backlogs = (0..reads).map(|_| MAX_HOST_BACKLOG + 1).collect();
        Arc::new(Self { backlogs: Mutex::new(backlogs), taken: Notify::new() })
    }
}

impl Host for TakingHost {
    fn submit(&self, _: HostTask) {}

    fn log(&self, _: LogRecord) {}

    fn backlog(&self) -> usize {
        let mut backlogs = lock(&self.backlogs);
        let Some(backlog) = backlogs.pop_front() else { return 0 };
        if backlogs.is_empty() {
            self.taken.notify_waiters();
        }
        backlog
    }

    fn taken(&self) -> Option<&Notify> {
        Some(&self.taken)
    }

    fn enabled(&self, _: Level) -> bool {
        false
    }
}

fn dispatcher(host: &Arc<TakingHost>) -> Arc<Dispatcher> {
    let as_host: Arc<dyn Host> = Arc::<TakingHost>::clone(host);
    let store = CredentialStore::new(Arc::clone(&as_host), credential_store_options(), &[]).unwrap();
    let registry = Arc::new(Registry { handlers: vec![] });
    let config = OperatorConfig { registry, settings: Arc::default(), lifecycle: Lifecycle::Asap };
    let shared = shared(config, Arc::new(store), as_host);
    let things = resource("example.com", "things", true);
    let handlers = shared.base.startup_config.registry.handlers_of(&things, &|_| true);
    Dispatcher::new(shared, &crate::worker::Pool, Arc::new(handlers), None)
}

#[tokio::test(start_paused = true)]
async fn a_watch_continues_as_soon_as_the_host_takes_its_items() {
    for reads in 0..6 {
        let host = TakingHost::full_for(reads);
        let begun = Instant::now();
        wait_for_room(&dispatcher(&host)).await;
        assert!(lock(&host.backlogs).is_empty(), "the queue was read until there was room");
        // The check of each second would hide a missed notification. It is needed only until the queue is not full.
        assert_eq!(begun.elapsed().as_secs(), reads.saturating_sub(1) / 2, "{reads}");
    }
}
