//! Watches of users' code.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kopf_core::cause::EventType;
use kopf_core::handler::projection::Projection;
use kopf_core::object::Object;
use kopf_core::user_request::{Call, Class, Failure, KnownObjects};
use tokio::runtime::Handle;

use super::attempts::failed;
use super::streams::{Queue, StreamItem, UserStream};
use super::{Api, CallError, CallOptions};
use crate::time::duration::seconds;
use crate::watch::{FatalRejections, Stream, WatchConsumer};
use crate::watch_health::WatchHealth;

impl Api {
    /// Opens a watch. `initial` is whether the objects that exist already are delivered, `timeout` when it ends, in seconds.
    ///
    /// # Errors
    /// There are too many streams.
    pub fn watch(
        &self,
        runtime: &Handle,
        (kind, call): (String, Call),
        options: CallOptions,
        (initial, timeout): (bool, Option<f64>),
    ) -> Result<UserStream, CallError> {
        let api = self.clone();
        self.open_stream(runtime, move |queue| async move {
            let mut sink = Sink { queue, known: KnownObjects::default(), is_silent: !initial };
            let expired = async {
                match timeout {
                    Some(limit) => api.client.clock().sleep(seconds(limit)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                error = api.follow(&kind, &call, &options, &mut sink) => Err(error),
                () = expired => {
                    let failure = Failure::unanswered(Class::TimedOut, "the time is over");
                    Err(CallError::Failed(Box::new(failure)).about(&format!("watch {kind}")))
                }
            }
        })
    }

    /// Follows the stream until it ends.
    async fn follow(&self, kind: &str, call: &Call, options: &CallOptions, sink: &mut Sink) -> CallError {
        let stream = match self.stream(kind, call, options).await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let subject = format!("watch {}", stream.name());
        match stream.follow(sink).await {
            Ok(never) => match never {},
            Err(error) => {
                let error = failed(&error).about(&subject);
                if let CallError::Failed(failure) = &error {
                    self.discovery.on_failure(&stream.resource, failure);
                }
                error
            }
        }
    }

    async fn stream(&self, kind: &str, call: &Call, options: &CallOptions) -> Result<Stream, CallError> {
        let (resource, ..) = self.prepare(kind, call, options).await?;
        let of_credentials = self.default_namespace().await?;
        let namespace = call.namespace(&resource, &options.namespace, of_credentials.as_deref());
        let selectors = ["labelSelector", "fieldSelector"].into_iter().filter_map(|name| {
            let (_, value) = call.query.iter().find(|(known, _)| known == name)?;
            Some((name, value.clone()))
        });
        let client = self.client.with_headers(&options.headers);
        Ok(Stream {
            namespace: namespace.map_err(CallError::Misuse)?,
            projection: if call.metadata_only { Projection::Metadata } else { Projection::Whole },
            selectors: selectors.collect(),
            derived: None,
            settings: Arc::clone(client.settings()),
            host: Arc::clone(client.host()),
            // The operator's health does not depend on watches of users' code.
            health: Arc::new(WatchHealth::new(client.clock().clone())),
            activity: Arc::default(),
            fatal: FatalRejections::Permanent,
            pause: None,
            on_missing: None,
            resource,
            client,
        })
    }
}

/// The consumer of the stream.
struct Sink {
    queue: Arc<Queue>,
    known: KnownObjects,
    /// The first listing is not delivered.
    is_silent: bool,
}

impl WatchConsumer for Sink {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        if let Some(change) = self.known.observe(kind, Arc::clone(object))
            && !self.is_silent
        {
            self.queue.put(StreamItem::Change(change));
        }
    }

    // The stream has logged it.
    fn rejected(&mut self, _identity: &Arc<Object>, _deleted: bool) {}

    fn on_init(&mut self) {
        self.known.begin_listing();
    }

    fn on_init_done(&mut self) {
        self.is_silent = false;
        for change in self.known.end_listing() {
            self.queue.put(StreamItem::Change(change));
        }
        self.queue.put(StreamItem::Synced);
    }

    fn ready(&mut self) -> Option<BoxFuture<'_, ()>> {
        self.queue.is_full().then(|| self.queue.until_taken().boxed())
    }
}
