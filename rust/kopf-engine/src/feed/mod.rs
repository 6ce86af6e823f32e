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
use kopf_core::backoff::Backoff;
use kopf_core::cause::EventType;
use kopf_core::object::Object;
use tokio::time::Instant;

use crate::error::{Failure, RequestError};
use crate::supervision::{Panicked, Restartable};
use crate::time::duration::seconds;
use crate::watch::{FatalRejections, Stream, WatchConsumer};

pub use dispatch_consumer::DispatchConsumer;

/// The delays between the attempts of a forbidden watch, in seconds: permissions may be granted later.
const FORBIDDEN_RETRIES: Backoff =
    Backoff::endless(&[1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0]).with_jitter(0.2);
/// A watch that is forbidden after it ran for so many seconds was permitted meanwhile.
const PERMITTED: f64 = 60.0;

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
    /// Called when the watch is forbidden, which is not logged then.
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

    /// Calls the function instead of logging errors when the watch is forbidden: once, until it was permitted meanwhile. The
    /// feed retries with growing delays.
    #[must_use]
    pub fn reporting_if_forbidden(mut self, on_forbidden: impl Fn() + Send + Sync + 'static) -> Self {
        self.stream.fatal = FatalRejections::Forbidden;
        self.on_forbidden = Some(Box::new(on_forbidden));
        self
    }

    /// Passes on the events until the feed is cancelled or fails.
    async fn follow(&mut self) -> Result<Infallible, RequestError> {
        let Self { stream, consumers, .. } = self;
        let mut tasks = FuturesUnordered::new();
        // Consumers are prepared by other parts of the operator, with other checks.
        stream.activity.wait(None);
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
        let mut retries = FORBIDDEN_RETRIES.retries();
        loop {
            let begun = Instant::now();
            let error = match self.follow().await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            let Some(on_forbidden) = self.on_forbidden.as_ref().filter(|_| error.status() == Some(403))
            else {
                return Err(error.into());
            };
            if begun.elapsed() > seconds(PERMITTED) {
                retries.reset();
            }
            if retries.failures() == 0 {
                on_forbidden();
            }
            // The operator works without it.
            self.stream.health.forget(&self.stream.name(), &self.stream.activity);
            let Some(delay) = retries.next(None, fastrand::f64()) else { return Err(error.into()) };
            self.stream.activity.wait(Some(delay.seconds));
            self.stream.log_forbidden(&error, delay.planned);
            self.stream.client.clock().sleep(seconds(delay.seconds)).await;
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

    fn on_start(&mut self, pauses: u64) {
        for consumer in &mut self.0 {
            consumer.on_start(pauses);
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
