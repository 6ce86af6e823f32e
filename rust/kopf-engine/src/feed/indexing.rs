//! The initial indexing: all objects of the indexed resources are indexed before any other handler is called.
//!
//! The index gate is closed at the start of an operator with indices. Until it opens, the events of indexed resources wait in
//! their slots. The first state of each object is indexed without a worker, so the worker limit does not apply. Feeds of other
//! resources wait. The guards that keep the gate closed are dropped with their feed, so a feed that ends cannot keep it closed.
//! Once open, the gate stays open: resources that appear later are indexed with their handling. Operators without indices have
//! no gate.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kopf_core::activation::{Activation, Command, Completion};
use kopf_core::cause::EventType;
use kopf_core::indexing::IndexPass;
use kopf_core::object::Object;
use kopf_core::object_worker::QueuedEvent;
use kopf_core::slot::GateReaction;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use super::backpressure::wait_for_room;
use crate::context::index_gate::{IndexGate, IndexGateGuard};
use crate::host::{ActivationTask, CycleId, HostTask, Responder};
use crate::object_key::key_of;
use crate::objects::dispatcher::Dispatcher;
use crate::spans::indexing_span;
use crate::task_context::TaskContext;

/// Maximum number of objects of one watch that are indexed concurrently.
const WINDOW: usize = 1_000;

/// Blocks events until the index gate opens.
#[derive(Debug)]
pub(super) struct InitialIndexing {
    index_gate: Arc<IndexGate>,
    what: Arc<str>,
    /// Keeps the gate closed until the first listing is complete.
    listing: Option<IndexGateGuard>,
    sender: UnboundedSender<(Arc<str>, IndexGateGuard)>,
}

impl InitialIndexing {
    /// Blocks the events of the guard's resource. The keys of the objects are sent to the indexer.
    pub(super) fn new(
        index_gate: Arc<IndexGate>,
        listing: IndexGateGuard,
        sender: UnboundedSender<(Arc<str>, IndexGateGuard)>,
    ) -> Self {
        Self { index_gate, what: Arc::clone(&listing.what), listing: Some(listing), sender }
    }

    /// Blocks an event; false if the gate is open. The events of an object that has passed the gate are dispatched as all later ones.
    pub(super) fn block(&self, dispatcher: &Arc<Dispatcher>, kind: EventType, object: &Arc<Object>) -> bool {
        let key = key_of(object);
        let mut slots = dispatcher.slots();
        let first = dispatcher.first_observed_by(kind, &slots);
        // The first state is being indexed; of the following ones, only the newest is needed.
        let first_and_last = !dispatcher.shared.base.startup_config.settings.compat;
        let event = QueuedEvent::of(kind, Arc::clone(object));
        let close = || {
            let Some(gate_guard) = self.index_gate.block(Arc::clone(&self.what)) else { return false };
            // The indexer runs as long as the watch.
            let _ = self.sender.send((Arc::clone(&key), gate_guard));
            true
        };
        match slots.entry(&key, first).on_gated_event(event, first_and_last, close) {
            GateReaction::Waits => true,
            GateReaction::Open => false,
            GateReaction::Passed => {
                drop(slots);
                dispatcher.dispatch(kind, Arc::clone(object));
                true
            }
        }
    }

    /// Called when the first listing is complete.
    pub(super) fn listed(&mut self) {
        self.listing = None;
    }
}

/// Indexes the buffered objects, and releases their events when the gate opens.
pub(super) struct InitialIndexer {
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) receiver: UnboundedReceiver<(Arc<str>, IndexGateGuard)>,
    pub(super) index_gate: Arc<IndexGate>,
}

/// An object that is being indexed.
struct Indexing {
    key: Arc<str>,
    /// The state that is indexed.
    object: Arc<Object>,
    cycle: IndexingCycle,
    index_pass: IndexPass,
    reply: oneshot::Receiver<Completion>,
    _blocker: IndexGateGuard,
}

/// The cycle of an indexing, until its completion. If the watch ends before that, its functions are cancelled.
struct IndexingCycle {
    id: CycleId,
    base: Arc<TaskContext>,
    is_complete: bool,
}

impl Drop for IndexingCycle {
    fn drop(&mut self) {
        if !self.is_complete {
            drop(self.base.cancel_cycle(self.id));
        }
        self.base.host.submit(HostTask::CycleClosed { cycle: self.id, keep_fns: false });
    }
}

impl InitialIndexer {
    pub(super) async fn run(mut self) -> Infallible {
        let limit = self.dispatcher.shared.base.startup_config.settings.queueing.worker_limit;
        let window = limit.unwrap_or(WINDOW).clamp(1, WINDOW);
        let mut held = vec![];
        let mut indexing = VecDeque::new();
        loop {
            while indexing.len() < window
                && let Ok((key, gate_guard)) = self.receiver.try_recv()
            {
                held.push(Arc::clone(&key));
                indexing.extend(self.start_indexing(key, gate_guard));
            }
            if let Some(first) = indexing.pop_front() {
                self.finish_indexing(first).await;
                continue;
            }
            tokio::select! {
                Some((key, gate_guard)) = self.receiver.recv() => {
                    held.push(Arc::clone(&key));
                    indexing.extend(self.start_indexing(key, gate_guard));
                }
                () = self.index_gate.opened() => break,
            }
        }
        for key in held {
            self.dispatcher.release(&key);
            wait_for_room(&self.dispatcher).await;
        }
        self.dispatcher.is_filling.store(false, Ordering::Release);
        std::future::pending().await
    }

    /// Starts indexing the first state of an object; none if no index needs it.
    fn start_indexing(&self, key: Arc<str>, gate_guard: IndexGateGuard) -> Option<Indexing> {
        let Dispatcher { shared, resource_handlers, .. } = &*self.dispatcher;
        let mut slots = self.dispatcher.slots();
        let slot = slots.get(&key)?;
        let event = slot.first_gated()?.clone();
        let current = shared.base.live_config.get();
        let index_pass =
            slot.worker.index_pass(&event, self.dispatcher.worker_context(&current), shared.base.clock.now());
        let Some(index_pass) = index_pass else {
            slot.mark_indexed(&event.object);
            return None;
        };
        drop(slots);
        let (sender, reply) = oneshot::channel();
        let cycle = shared.base.next_id();
        shared.base.host.submit(HostTask::Activation(ActivationTask {
            cycle,
            uid: Arc::clone(&key),
            resource: Arc::clone(&resource_handlers.resource),
            event: event.kind,
            span: indexing_span(cycle, &resource_handlers.resource, &event.object),
            object: Arc::clone(&event.object),
            activation: Activation {
                commands: vec![Command::CallIndexers(index_pass.clone())],
                ..Activation::default()
            },
            reply: Responder::through(sender),
        }));
        let cycle = IndexingCycle { id: cycle, base: Arc::clone(&shared.base), is_complete: false };
        Some(Indexing { key, object: event.object, cycle, index_pass, reply, _blocker: gate_guard })
    }

    /// Records the results of one object. If a filter has raised, the object is indexed again when it is handled, and the error
    /// is treated there. The initial indexing does not wait for that.
    async fn finish_indexing(&self, indexing: Indexing) {
        let mut cycle = indexing.cycle;
        let reply = indexing.reply.await;
        cycle.is_complete = true;
        drop(cycle);
        let shared = &self.dispatcher.shared;
        let Ok(mut reply) = reply else { return };
        // A listing did not have the object meanwhile, but its values may have been stored just now.
        if self.dispatcher.is_removed(&indexing.key) {
            return shared.base.host.submit(HostTask::ObjectDeleted(indexing.key));
        }
        if let Some(slot) = self.dispatcher.slots().get(&indexing.key)
            && slot.worker.record_indexing(
                &indexing.index_pass,
                &mut reply,
                &shared.base.startup_config.registry,
            )
        {
            slot.mark_indexed(&indexing.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::testing::{Fixture, lock, resource};
    use crate::worker::Pool;

    fn dispatcher(fixture: &Fixture) -> Arc<Dispatcher> {
        let things = resource("example.com", "things", true);
        let handlers = fixture.shared.base.startup_config.registry.handlers_of(&things, &|_| true);
        Dispatcher::new(Arc::clone(&fixture.shared), &Pool, Arc::new(handlers), None)
    }

    fn object(version: u64) -> Arc<Object> {
        let text = format!(r#"{{"metadata":{{"name":"n","uid":"u","resourceVersion":"{version}"}}}}"#);
        Arc::new(Object::decode(&text).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn held_events_keep_the_first_and_the_newest_state() {
        let fixture = Fixture::new(&serde_json::json!({}), |_| (200, None));
        let dispatcher = dispatcher(&fixture);
        let index_gate = Arc::new(IndexGate::default());
        let (sender, mut receiver) = unbounded_channel();
        let indexing = InitialIndexing::new(Arc::clone(&index_gate), index_gate.block("x").unwrap(), sender);
        for version in 1..=5 {
            assert!(indexing.block(&dispatcher, EventType::Modified, &object(version)));
        }
        assert!(receiver.try_recv().is_ok() && receiver.try_recv().is_err(), "one message per object");
        let mut slots = dispatcher.slots();
        let pending = slots.get("u").unwrap().worker.pending();
        let versions: Vec<_> = pending.filter_map(|event| event.object.resource_version()).collect();
        assert_eq!(versions, ["1", "5"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_cycle_is_followed_by_all_later_events() {
        let handler = serde_json::json!({"id": "see", "kind": "watching", "selector": {"plural": "things"}});
        let fixture = Fixture::with_handlers(vec![handler], &serde_json::json!({}), |_| (200, None));
        let dispatcher = dispatcher(&fixture);
        let index_gate = Arc::new(IndexGate::default());
        let (sender, mut receiver) = unbounded_channel();
        let mut indexing =
            InitialIndexing::new(Arc::clone(&index_gate), index_gate.block("x").unwrap(), sender);
        assert!(indexing.block(&dispatcher, EventType::Listed, &object(1)));
        indexing.listed();
        drop(receiver.try_recv().unwrap());
        assert!(index_gate.is_open());
        dispatcher.release(&Arc::from("u"));
        assert!(matches!(&lock(&fixture.host.tasks)[..], [HostTask::Activation(_)]), "its cycle is running");
        for version in 2..=5 {
            assert!(indexing.block(&dispatcher, EventType::Modified, &object(version)));
        }
        let mut slots = dispatcher.slots();
        let pending = slots.get("u").unwrap().worker.pending();
        let versions: Vec<_> = pending.filter_map(|event| event.object.resource_version()).collect();
        assert_eq!(versions, ["2", "3", "4", "5"]);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_wait_for_the_gate_are_indexed_in_the_next_version_of_their_resource() {
        let handler = serde_json::json!({"id": "see", "kind": "indexing", "selector": {"plural": "things"}});
        let fixture = Fixture::with_handlers(vec![handler], &serde_json::json!({}), |_| (200, None));
        let [first, second] = [dispatcher(&fixture), dispatcher(&fixture)];
        let index_gate = Arc::new(IndexGate::default());
        let [(indexing, mut received), (next, mut received_next)] = ["v1", "v2"].map(|what| {
            let (sender, receiver) = unbounded_channel();
            (InitialIndexing::new(Arc::clone(&index_gate), index_gate.block(what).unwrap(), sender), receiver)
        });
        assert!(indexing.block(&first, EventType::Listed, &object(1)));
        assert!(received.try_recv().is_ok());
        first.hand_over(&second);
        assert!(next.block(&second, EventType::Listed, &object(1)));
        assert!(received_next.try_recv().is_ok(), "it is indexed again");
        second.shutdown();
        assert!(matches!(&lock(&fixture.host.tasks)[..], [HostTask::ObjectDeleted(key)] if **key == *"u"));
        second.release(&Arc::from("u"));
        assert_eq!(lock(&fixture.host.tasks).len(), 1, "it is not handled");
    }

    #[tokio::test(start_paused = true)]
    async fn index_functions_are_cancelled_if_the_watch_ends_before_they_do() {
        let handler = serde_json::json!({"id": "see", "kind": "indexing", "selector": {"plural": "things"}});
        let fixture = Fixture::with_handlers(vec![handler], &serde_json::json!({}), |_| (200, None));
        let dispatcher = dispatcher(&fixture);
        let index_gate = Arc::new(IndexGate::default());
        let (sender, receiver) = unbounded_channel();
        let indexing = InitialIndexing::new(Arc::clone(&index_gate), index_gate.block("x").unwrap(), sender);
        assert!(indexing.block(&dispatcher, EventType::Listed, &object(1)));
        let indexer = InitialIndexer { dispatcher, receiver, index_gate };
        let task = tokio::spawn(indexer.run());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        task.abort();
        assert!(task.await.is_err_and(|error| error.is_cancelled()));
        let tasks = lock(&fixture.host.tasks);
        let [
            HostTask::Activation(started),
            HostTask::CancelCycle(cancelled),
            HostTask::CycleClosed { cycle, .. },
        ] = &tasks[..]
        else {
            panic!("{tasks:?}")
        };
        assert_eq!((cancelled.cycle, *cycle), (started.cycle, started.cycle));
    }

    /// A listing did not have the object meanwhile.
    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_back_before_the_gate_opens_has_one_cycle() {
        let handler = serde_json::json!({"id": "see", "kind": "watching", "selector": {"plural": "things"}});
        let fixture = Fixture::with_handlers(vec![handler], &serde_json::json!({}), |_| (200, None));
        let dispatcher = dispatcher(&fixture);
        let index_gate = Arc::new(IndexGate::default());
        let (sender, mut receiver) = unbounded_channel();
        let indexing = InitialIndexing::new(Arc::clone(&index_gate), index_gate.block("x").unwrap(), sender);
        assert!(indexing.block(&dispatcher, EventType::Listed, &object(1)));
        dispatcher.slots().begin_listing(0, 0);
        drop(dispatcher.slots().end_listing());
        assert!(indexing.block(&dispatcher, EventType::Added, &object(2)));
        for _ in 0..2 {
            let (key, _) = receiver.try_recv().unwrap();
            dispatcher.release(&key);
        }
        dispatcher.dispatch(EventType::Modified, object(3));
        let is_activation = |task: &&HostTask| matches!(task, HostTask::Activation(_));
        assert_eq!(lock(&fixture.host.tasks).iter().filter(is_activation).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_changes_leaves_the_backlog_although_its_watch_may_be_gated() {
        let handler = serde_json::json!({"id": "see", "kind": "watching", "selector": {"plural": "things"}});
        let settings = serde_json::json!({"queueing": {"worker_limit": 1}});
        let fixture = Fixture::with_handlers(vec![handler], &settings, |_| (200, None));
        let dispatcher = dispatcher(&fixture);
        let index_gate = Arc::new(IndexGate::default());
        let (sender, mut receiver) = unbounded_channel();
        let mut indexing =
            InitialIndexing::new(Arc::clone(&index_gate), index_gate.block("x").unwrap(), sender);
        let other = r#"{"metadata":{"name":"o","uid":"other","resourceVersion":"1"}}"#;
        let other = Arc::new(Object::decode(other).unwrap());
        for object in [&other, &object(1)] {
            assert!(indexing.block(&dispatcher, EventType::Listed, object));
        }
        indexing.listed();
        while let Ok((key, gate_guard)) = receiver.try_recv() {
            drop(gate_guard);
            dispatcher.release(&key);
        }
        assert!(index_gate.is_open() && dispatcher.slots().get("u").unwrap().is_parked());
        assert!(indexing.block(&dispatcher, EventType::Modified, &object(2)));
        assert!(!dispatcher.slots().get("u").unwrap().is_parked());
    }
}
