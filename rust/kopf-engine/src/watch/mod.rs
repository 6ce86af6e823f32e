//! One watch-stream: list, then watch, in an endless loop.
//!
//! Each record is decoded once, here, without the interpreter. After a dropped connection, the watch resumes from the last
//! version that was seen; a version that is too old leads to a new listing. No response of the server ends a watch-stream: it
//! logs the error, backs off, and retries. Only missing credentials end it.

use std::convert::Infallible;
use std::sync::Arc;

use futures::future::BoxFuture;
use kopf_core::cause::EventType;
use kopf_core::handler::label_selector::DerivedSelector;
use kopf_core::handler::projection::Projection;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
pub use kopf_core::stream::FatalRejections;
use kopf_core::stream::{Next, Position, StreamState};
use tokio::time::sleep;

use crate::client::{Client, RequestBody};
use crate::error::RequestError;
use crate::host::{Host, LogRecord, Logger};
use crate::metrics;
use crate::operator_pause::Pause;
use crate::supervision::Panicked;
use crate::time::duration::seconds;
use crate::watch_health::{StreamActivity, StreamFailure, WatchHealth};

pub(crate) mod lines;
mod list;
mod query;
mod reconnect;
mod records;
mod rejected;

use rejected::Rejections;

const LOGGER: Logger = Logger::Watching;

/// A consumer of the events of a watch.
pub trait WatchConsumer: Send {
    /// Takes a new state of an object.
    fn event(&mut self, kind: EventType, object: &Arc<Object>);
    /// Takes an object that cannot be handled. It is neither new nor changed, and it is gone only if it is deleted. `identity`
    /// has only its names and its version.
    fn rejected(&mut self, identity: &Arc<Object>, deleted: bool);
    /// A stream starts, after so many pauses and terms. Its listing is from a later time.
    fn on_start(&mut self, _pauses: u64) {}
    /// A listing has begun: objects that it does not deliver do not exist.
    fn on_init(&mut self);
    /// The listing is complete.
    fn on_init_done(&mut self);
    /// Waits until more events can be taken, so that a burst of events fills the server's buffers, not our memory. None if
    /// more can be taken now.
    fn ready(&mut self) -> Option<BoxFuture<'_, ()>> {
        None
    }
}

/// Called when the server does not serve the resource of a watch, at each attempt after the first ones.
pub type MissingHook = Arc<dyn Fn() + Send + Sync>;

/// The watch of one resource, in one namespace or in all of them.
pub struct Stream {
    /// The API client.
    pub client: Client,
    /// The watched resource.
    pub resource: Arc<Resource>,
    /// The namespace; all namespaces if none.
    pub namespace: Option<String>,
    /// Whole objects, or their metadata.
    pub projection: Projection,
    /// Server-side selectors: names and values of query parameters.
    pub selectors: Vec<(&'static str, String)>,
    /// The label selector derived from the handlers, if enabled.
    pub derived: Option<DerivedSelector>,
    /// Timeouts and sizes.
    pub settings: Arc<Settings>,
    /// Receives log records.
    pub host: Arc<dyn Host>,
    /// The health of the watches, which this one is reported to.
    pub health: Arc<WatchHealth>,
    /// The progress of this watch, for the health monitor.
    pub activity: Arc<StreamActivity>,
    /// The rejections that end the watch; all others are retried.
    pub fatal: FatalRejections,
    /// Suspends this watch while the operator is paused; none for watches that detect pauses (of peerings).
    pub pause: Option<Arc<Pause>>,
    /// Called when the resource is not served, if set.
    pub on_missing: Option<MissingHook>,
}

/// The state of a watch that its records change.
#[derive(Debug, Default)]
struct Cursor {
    position: Position,
    /// The objects that cannot be handled.
    rejections: Rejections,
}

/// The state of a watch between its connections.
#[derive(Debug)]
struct WatchState {
    cursor: Cursor,
    rules: StreamState,
}

impl Stream {
    /// Lists and watches until it is cancelled, or until there are no credentials.
    ///
    /// # Errors
    /// Of the API, if it is forbidden and ends then. Of the login: fatal for the operator.
    pub async fn follow(&self, consumer: &mut dyn WatchConsumer) -> Result<Infallible, RequestError> {
        let held = self.pause.as_ref().is_some_and(|pause| pause.holds_streams());
        self.log_debug("Starting", || if held { " (paused)" } else { "" }.to_owned());
        let watching = &self.settings.watching;
        let rules = StreamState::new(self.fatal, watching.reconnect_backoff, watching.initial_streaming);
        let mut state = WatchState { cursor: Cursor::default(), rules };
        self.announce();
        loop {
            let pauses = self.wait_resumed().await;
            consumer.on_start(pauses);
            let step = tokio::select! {
                // A pause cancels a request that is due at the same moment.
                biased;
                // Even after the shortest pause, there is a new listing, on which the handling of pauses relies.
                () = self.interrupted(pauses) => continue,
                step = self.list_and_watch(consumer, &mut state) => step,
            };
            self.execute(&step).await;
            match step.next {
                Next::Stop(error) => return Err(error),
                Next::Relist => self.debug("Restarting"),
                Next::Resume | Next::CheckVersion | Next::Restart => {}
            }
            let _busy = self.client.clock().busy(|| format!("the restart of a watch of {}", self.what()));
            self.activity.wait(Some(self.settings.watching.reconnect_backoff));
            sleep(seconds(self.settings.watching.reconnect_backoff)).await;
        }
    }

    /// The resource and the namespace, as in log lines and in the health.
    pub fn name(&self) -> String {
        self.what()
    }

    /// The name of the task in reports of its panics.
    pub fn task_name(&self) -> String {
        format!("The watch-stream for {}", self.what())
    }

    /// Registers the watch in the health.
    pub fn announce(&self) {
        let name = self.what();
        self.health.follow(&name, metrics::name_of(&self.resource), &self.activity);
        self.health.selected(&name, &self.selection());
    }

    /// Reports a panic of the watch's task, which is restarted in `delay` seconds.
    pub fn on_panic(&self, panicked: &Panicked, delay: f64) {
        self.health.record_failure(&self.what(), StreamFailure::Broken, Some(panicked.to_string()));
        let text = format!(
            "{panicked}. This is a bug in Kopf; please report it. The watch is restarted in {delay} seconds."
        );
        self.log(Level::Error, text);
    }

    /// Logs that the watch is still forbidden.
    pub fn log_forbidden(&self, error: &RequestError, delay: f64) {
        if self.host.enabled(Level::Debug) {
            let what = self.what();
            let text = format!("Cannot watch {what}: {error}. The next attempt is in {delay} seconds.");
            self.log(Level::Debug, text);
        }
    }

    /// Waits while the operator is paused; returns the number of pauses so far.
    async fn wait_resumed(&self) -> u64 {
        let Some(pause) = &self.pause else { return 0 };
        if pause.holds_streams() {
            self.activity.hold();
            self.log_debug("Pausing", || format!(" (blockers: {})", pause.blockers().join(", ")));
            pause.streams_released().await;
            self.activity.wait(None);
            self.debug("Resuming");
        }
        pause.count()
    }

    async fn interrupted(&self, pauses: u64) {
        match &self.pause {
            Some(pause) => pause.streams_interrupted(pauses).await,
            None => std::future::pending().await,
        }
    }

    /// The body of a request: `partial` if only metadata is requested.
    fn or_partial(&self, partial: RequestBody<'static>) -> RequestBody<'static> {
        match self.projection {
            Projection::Whole => RequestBody::None,
            Projection::Metadata => partial,
        }
    }

    fn malformed(&self, error: &dyn std::fmt::Display) -> RequestError {
        RequestError::Malformed(format!("the server's answer on {} cannot be read: {error}", self.what()))
    }

    fn url(&self, query: &[(&str, String)]) -> String {
        query::url(&self.resource, self.namespace.as_deref(), query)
    }

    /// The resource and the namespace, as in log lines.
    fn what(&self) -> String {
        name_of(&self.resource, self.namespace.as_deref())
    }

    fn debug(&self, doing: &str) {
        self.log_debug(doing, String::new);
    }

    fn log_debug(&self, doing: &str, how: impl FnOnce() -> String) {
        if self.host.enabled(Level::Debug) {
            self.log(Level::Debug, format!("{doing} the watch-stream for {}{}.", self.what(), how()));
        }
    }

    fn log(&self, level: Level, text: String) {
        self.host.log(LogRecord::general(level, LOGGER, text));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.health.forget(&self.what(), &self.activity);
        self.debug("Stopping");
    }
}

/// The name of a watch: the resource and the namespace.
pub fn name_of(resource: &Resource, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{resource} in '{namespace}'"),
        None => format!("{resource} cluster-wide"),
    }
}

#[cfg(test)]
mod tests;
