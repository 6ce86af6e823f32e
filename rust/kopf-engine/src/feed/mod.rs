//! One list and watch of objects with all its consumers.

pub(crate) mod backpressure;
pub(crate) mod dispatch_handler;
pub(crate) mod indexing;
pub(crate) mod membership_resolver;
mod orphans;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kopf_core::handler::label_selector;
use tokio::sync::mpsc::unbounded_channel;

use crate::error::RequestError;
use crate::objects::dispatcher::Dispatcher;
use crate::objects::membership::MembershipTracker;
use crate::watch::Stream;

pub use dispatch_handler::DispatchHandler;

use indexing::{GatedHandler, InitialIndexer};
use membership_resolver::MembershipResolver;

/// Follows a watch. If its selector is derived, also looks up the objects that stop matching it.
///
/// # Errors
/// As of [`Stream::follow`].
pub async fn follow(stream: &Stream, dispatcher: Arc<Dispatcher>) -> Result<Infallible, RequestError> {
    let signals = |it: &MembershipTracker| (Arc::clone(&it.lookup_requested), Arc::clone(&it.listed));
    let signals = dispatcher.slots().tracker.as_deref().map(signals);
    let Some((lookup_requested, listed)) = signals else { return follow_indexed(stream, dispatcher).await };
    if let Some(tracker) = &mut dispatcher.slots().tracker {
        tracker.restart();
    }
    let resolver = MembershipResolver { stream, dispatcher: &dispatcher };
    tokio::select! {
        ended = follow_indexed(stream, Arc::clone(&dispatcher)) => ended,
        ended = resolver.run(&lookup_requested) => ended,
        ended = resolver.release_orphans(&listed), if label_selector::uses_finalizer(&dispatcher.plan, &dispatcher.shared.rules.registry) => ended,
    }
}

/// Follows a watch. With an index gate, the events are buffered until all indices are filled.
///
/// # Errors
/// As of [`Stream::follow`].
async fn follow_indexed(stream: &Stream, dispatcher: Arc<Dispatcher>) -> Result<Infallible, RequestError> {
    let mut sink = DispatchHandler { dispatcher: Arc::clone(&dispatcher), gated: None };
    let Some(index_gate) = dispatcher.shared.index_gate.clone() else {
        return stream.follow(&mut sink).await;
    };
    if dispatcher.plan.indexing.is_empty() {
        index_gate.opened().await;
        return stream.follow(&mut sink).await;
    }
    // The guard exists from before the first listing until its end.
    let Some(gate_guard) = dispatcher.take_gate_guard() else { return stream.follow(&mut sink).await };
    dispatcher.is_filling.store(true, Ordering::Release);
    // The channel is bounded in effect: at most one message per object.
    let (sender, receiver) = unbounded_channel();
    let what = Arc::clone(&gate_guard.what);
    sink.gated =
        Some(GatedHandler { index_gate: Arc::clone(&index_gate), what, listing: Some(gate_guard), sender });
    let indexer = InitialIndexer { dispatcher, receiver };
    tokio::select! {
        ended = stream.follow(&mut sink) => ended,
        never = indexer.run(&index_gate) => match never {},
    }
}
