//! The feed of a resource: one list and watch, with all its consumers.
//!
//! Each event goes to each consumer. The consumer of handlers is [`DispatchConsumer`]: there, an event passes the
//! check of the derived selector and the initial indexing, and then goes to the dispatcher.

pub(crate) mod backpressure;
pub(crate) mod deselected_lookup;
pub(crate) mod dispatch_consumer;
pub(crate) mod indexing;
mod unselected_finalizers;

use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kopf_core::cause::EventType;
use kopf_core::object::Object;

use crate::error::{Failure, RequestError};
use crate::supervision::{Panicked, Restartable};
use crate::watch::{FatalRejections, Stream, WatchConsumer};

pub use dispatch_consumer::DispatchConsumer;

/// A task of a consumer that runs together with the stream. It ends only with an error, which ends the feed.
pub type ConsumerTask<'s> = BoxFuture<'s, Result<Infallible, RequestError>>;

/// A consumer of the events of a feed.
pub trait Consumer: WatchConsumer {
    /// Called before the stream is started, also after a panic. The stream waits for the future, if there is one.
    fn prepare(&mut self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// The tasks that run together with the stream.
    fn tasks<'s>(&mut self, _stream: &'s Stream) -> Vec<ConsumerTask<'s>> {
        vec![]
    }

    /// Whether the feed can be restarted after a panic now.
    fn is_restartable(&self) -> bool {
        true
    }
}

/// The feed of a resource. If it panics, it is restarted, with a new listing.
pub struct Feed {
    stream: Stream,
    consumers: Consumers,
    /// Called when the watch is forbidden, which ends the feed.
    on_forbidden: Option<Box<dyn Fn() + Send + Sync>>,
}

struct Consumers(Vec<Box<dyn Consumer>>);

impl Feed {
    /// A feed without consumers.
    pub fn new(stream: Stream) -> Self {
        Self { stream, consumers: Consumers(vec![]), on_forbidden: None }
    }

    /// Adds a consumer.
    #[must_use]
    pub fn with(mut self, consumer: impl Consumer + 'static) -> Self {
        self.consumers.0.push(Box::new(consumer));
        self
    }

    /// Ends the feed when its watch is forbidden, instead of retrying; the function is called then.
    #[must_use]
    pub fn ending_if_forbidden(mut self, on_forbidden: impl Fn() + Send + Sync + 'static) -> Self {
        self.stream.fatal = FatalRejections::Forbidden;
        self.on_forbidden = Some(Box::new(on_forbidden));
        self
    }

    /// Passes on the events until the feed is cancelled or fails.
    async fn follow(&mut self) -> Result<Infallible, RequestError> {
        let Self { stream, consumers, .. } = self;
        let mut tasks = FuturesUnordered::new();
        for consumer in &mut consumers.0 {
            if let Some(prepared) = consumer.prepare() {
                prepared.await;
            }
            tasks.extend(consumer.tasks(stream));
        }
        tokio::select! {
            ended = stream.follow(consumers) => ended,
            Some(ended) = tasks.next() => ended,
        }
    }
}

impl Restartable for Feed {
    fn name(&self) -> String {
        self.stream.task_name()
    }

    async fn run(&mut self) -> Result<(), Failure> {
        match (self.follow().await, &self.on_forbidden) {
            (Ok(never), _) => match never {},
            (Err(RequestError::Api(_)), Some(on_forbidden)) => {
                on_forbidden();
                Ok(())
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    fn on_panic(&mut self, panicked: Panicked, delay: f64) -> Result<(), Failure> {
        if self.consumers.0.iter().all(|consumer| consumer.is_restartable()) {
            self.stream.on_panic(&panicked, delay);
            Ok(())
        } else {
            Err(panicked.into())
        }
    }
}

impl WatchConsumer for Consumers {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        for consumer in &mut self.0 {
            consumer.event(kind, object);
        }
    }

    fn rejected(&mut self, identity: &Arc<Object>, deleted: bool) {
        for consumer in &mut self.0 {
            consumer.rejected(identity, deleted);
        }
    }

    fn on_init(&mut self) {
        for consumer in &mut self.0 {
            consumer.on_init();
        }
    }

    fn on_init_done(&mut self) {
        for consumer in &mut self.0 {
            consumer.on_init_done();
        }
    }

    fn ready(&mut self) -> Option<BoxFuture<'_, ()>> {
        let waits: Vec<_> = self.0.iter_mut().filter_map(|consumer| consumer.ready()).collect();
        if waits.is_empty() {
            return None;
        }
        Some(Box::pin(async {
            for wait in waits {
                wait.await;
            }
        }))
    }
}

#[cfg(test)]
mod tests;
