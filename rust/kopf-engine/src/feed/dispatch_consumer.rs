//! The consumer that feeds a dispatcher, with backpressure.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kopf_core::cause::EventType;
use kopf_core::handler::label_selector;
use kopf_core::object::Object;
use tokio::sync::mpsc::unbounded_channel;

use super::backpressure::{has_room, wait_for_room};
use super::deselected_lookup::DeselectedLookup;
use super::indexing::{InitialIndexer, InitialIndexing};
use super::{Consumer, ConsumerTask};
use crate::object_key::key_of;
use crate::objects::dispatcher::Dispatcher;
use crate::watch::{Stream, WatchConsumer};

/// The consumer that feeds a dispatcher.
pub struct DispatchConsumer {
    dispatcher: Arc<Dispatcher>,
    /// Blocks the events until the index gate opens; none if there are no indices, and afterwards.
    indexing: Option<InitialIndexing>,
    /// The number of pauses and terms at the start of the stream.
    pauses: u64,
}

impl DispatchConsumer {
    /// The consumer of this dispatcher.
    pub fn new(dispatcher: Arc<Dispatcher>) -> Self {
        let pauses = dispatcher.shared.pause.count();
        Self { dispatcher, indexing: None, pauses }
    }

    /// Starts the initial indexing of the objects; none if they have no indices, or are indexed already.
    fn start_indexing(&mut self) -> Option<InitialIndexer> {
        let index_gate = self.dispatcher.shared.index_gate.clone()?;
        // The guard exists from before the first listing until its end.
        let gate_guard = self.dispatcher.take_gate_guard()?;
        self.dispatcher.is_filling.store(true, Ordering::Release);
        // The channel is bounded in effect: at most one message per object.
        let (sender, receiver) = unbounded_channel();
        let indexer = InitialIndexer {
            dispatcher: Arc::clone(&self.dispatcher),
            receiver,
            index_gate: Arc::clone(&index_gate),
        };
        self.indexing = Some(InitialIndexing::new(index_gate, gate_guard, sender));
        Some(indexer)
    }
}

impl WatchConsumer for DispatchConsumer {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        let dispatcher = &self.dispatcher;
        if !dispatcher.is_selected(kind, object) {
            return;
        }
        if let Some(indexing) = &self.indexing {
            if indexing.block(dispatcher, kind, object) {
                return;
            }
            // The index gate is open.
            self.indexing = None;
        }
        dispatcher.dispatch(kind, Arc::clone(object));
    }

    fn rejected(&mut self, identity: &Arc<Object>, deleted: bool) {
        let key = key_of(identity);
        let mut slots = self.dispatcher.slots();
        if deleted {
            let vanished = slots.mark_removed(&key);
            drop(slots);
            self.dispatcher.terminate_daemons(vanished.into_iter().collect());
        } else {
            slots.keep_known(&key);
        }
    }

    fn on_start(&mut self, pauses: u64) {
        self.pauses = pauses;
    }

    fn on_init(&mut self) {
        let terms = self.dispatcher.shared.pause.terms();
        self.dispatcher.slots().begin_listing(self.pauses, terms);
    }

    fn on_init_done(&mut self) {
        if let Some(indexing) = &mut self.indexing {
            indexing.listed();
        }
        let vanished = self.dispatcher.slots().end_listing();
        self.dispatcher.terminate_daemons(vanished);
    }

    fn ready(&mut self) -> Option<BoxFuture<'_, ()>> {
        (!has_room(&self.dispatcher)).then(|| wait_for_room(&self.dispatcher).boxed())
    }
}

impl Consumer for DispatchConsumer {
    fn prepare(&mut self) -> Option<BoxFuture<'_, ()>> {
        if let Some(tracker) = &mut self.dispatcher.slots().tracker {
            tracker.restart();
        }
        let index_gate = self.dispatcher.shared.index_gate.as_ref()?;
        let registry = &self.dispatcher.shared.base.startup_config.registry;
        // Feeds without indices and caches wait for those with them.
        (!registry.is_awaited(&self.dispatcher.resource_handlers)).then(|| index_gate.opened().boxed())
    }

    fn tasks<'s>(&mut self, stream: &'s Stream) -> Vec<ConsumerTask<'s>> {
        let mut tasks: Vec<ConsumerTask<'s>> = vec![];
        if let Some(indexer) = self.start_indexing() {
            tasks.push(indexer.run().map(Ok).boxed());
        }
        if self.dispatcher.may_stall() {
            let dispatcher = Arc::clone(&self.dispatcher);
            tasks.push(async move { dispatcher.advance_stalled().await }.map(Ok).boxed());
        }
        if let Some(resolver) = DeselectedLookup::new(stream, &self.dispatcher) {
            let (resource_handlers, registry) =
                (&self.dispatcher.resource_handlers, &self.dispatcher.shared.base.startup_config.registry);
            if label_selector::uses_finalizer(resource_handlers, registry) {
                tasks.push(resolver.clone().release_unselected().boxed());
            }
            tasks.push(resolver.run().boxed());
        }
        tasks
    }

    fn is_restartable(&self) -> bool {
        // Objects whose initial indexing was in progress would wait without end.
        !self.dispatcher.is_filling.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
