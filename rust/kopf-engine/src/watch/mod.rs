//! One watch-stream: list, then watch, in an endless loop.
//!
//! Each record is decoded once, here, without the interpreter. After a dropped connection, the watch resumes from the last
//! version that was seen; a version that is too old leads to a new listing. No response of the server ends a watch-stream: it
//! logs the error, backs off, and retries. Only missing credentials end it. Rules: contract/engine 1.8.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::handler::label_selector::DerivedSelector;
use kopf_core::handler::projection::Projection;
use kopf_core::handling::backoff::{Backoff, doubling};
use kopf_core::json::DecodeError;
use kopf_core::json::value::{Value, python_repr};
use kopf_core::log_level::Level;
use kopf_core::object::{Object, RejectedObject, WatchRecord, decode_watch_line};
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Api, RequestBody};
use crate::error::{ApiError, RequestError};
use crate::host::{Host, LogRecord};
use crate::metrics::{Health, StreamFailure};
use crate::supervision::Panicked;
use crate::time::duration::seconds;
use crate::time::pause::Pause;

mod lines;
mod query;
mod rejected;

use lines::Lines;
use rejected::Rejections;

const LOGGER: &str = "kopf._cogs.clients.watching";
/// Objects per page of a listing, unless the settings specify it. It bounds the memory.
const PAGE: u64 = 500;
/// The delays after failures in a row, in seconds.
const RETRIES: Backoff = Backoff::endless(&[1.0, 2.0, 5.0, 10.0, 20.0, 30.0]).with_jitter(0.2);
/// Number of failures in a row after which the resource is relisted.
const MOST_FAILURES: u32 = 6;
/// Maximum length of a line in bytes: far more than a server stores of an object.
const MAX_LINE: usize = 64 * 1024 * 1024;
/// Number of broken connections in a row from which on they are logged.
const LOGGED_BREAKS: u32 = 4;
/// Maximum delay after broken connections, in seconds.
const LONGEST_BREAK: f64 = 5.0;
/// Jitter of this delay, as a fraction of it.
const BREAK_JITTER: f64 = 0.2;
/// A connection that is closed within so many seconds without any data is broken.
const VERY_SHORT: f64 = 1.0;

/// The consumer of the events of a watch.
pub trait EventHandler: Send {
    /// Takes a new state of an object.
    fn event(&mut self, kind: EventType, object: Object);
    /// Takes an object that cannot be handled. It is neither new nor changed, and it is gone only if it is deleted. `identity`
    /// has only its names and its version.
    fn rejected(&mut self, identity: Object, deleted: bool);
    /// A listing has begun: objects that it does not deliver do not exist.
    fn on_init(&mut self);
    /// The listing is complete.
    fn on_init_done(&mut self);
    /// Waits until more events can be taken, so that a burst of events fills the server's buffers, not our memory.
    fn ready(&self) -> impl Future<Output = ()> + Send;
    /// Whether to retry after such a rejection.
    fn retries_on(&self, rejection: &ApiError) -> bool;
}

/// The watch of one resource, in one namespace or in all of them.
pub struct Stream {
    /// The API client.
    pub api: Api,
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
    pub health: Arc<Health>,
    /// Suspends this watch while the operator is paused; none for watches that detect pauses (of peerings).
    pub pause: Option<Arc<Pause>>,
}

/// The position of a watch.
#[derive(Debug, Default)]
struct Cursor {
    /// The resource version of the last record.
    version: Option<String>,
    /// The initial objects are still being sent, as added ones.
    initial: bool,
    /// The current connection has delivered a record.
    received: bool,
    /// The objects that cannot be handled.
    rejections: Rejections,
}

/// The reason why one connection of a watch has ended.
enum End {
    /// We closed it: resume from the last version.
    Reconnect,
    /// The server, or a proxy, closed it: resume from the last version.
    Closed,
    /// The version is too old: relist.
    Relist,
}

impl Stream {
    /// Lists and watches until it is cancelled, or until there are no credentials.
    ///
    /// # Errors
    /// Of the API, if the event handler does not retry on it. Of the login: fatal for the operator.
    pub async fn follow<S: EventHandler>(&self, sink: &mut S) -> Result<Infallible, RequestError> {
        let held = self.pause.as_ref().is_some_and(|pause| pause.is_on());
        self.log_debug("Starting", || if held { " (paused)" } else { "" }.to_owned());
        let mut failures: u32 = 0;
        let mut streaming = self.settings.watching.initial_streaming;
        let mut cursor = Cursor::default();
        self.health.selected(&self.what(), &self.selection());
        loop {
            let pauses = self.wait_resumed().await;
            let outcome = tokio::select! {
                // A pause cancels a request that is due at the same moment.
                biased;
                // Even after the shortest pause, there is a new listing, on which the handling of pauses relies.
                () = self.interrupted(pauses) => continue,
                outcome = self.list_and_watch(sink, &mut cursor, &mut streaming, &mut failures) => outcome,
            };
            match outcome {
                Ok(()) => self.debug("Restarting"),
                Err(error @ RequestError::Login(_)) => return Err(error),
                Err(RequestError::Api(rejection)) if !sink.retries_on(&rejection) => {
                    return Err(RequestError::Api(rejection));
                }
                Err(error) => self.back_off(&error, &mut failures).await,
            }
            let _busy = self.api.clock().busy();
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
        self.health.selected(&self.what(), &self.selection());
    }

    /// Reports a panic of the watch's task, and waits before the restart.
    pub async fn recover(&self, panicked: &Panicked, panics: usize) {
        let earlier = u32::try_from(panics.saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = RETRIES.step(earlier).unwrap_or_default();
        self.health.troubled(&self.what(), StreamFailure::Broken, Some(panicked.to_string()));
        let text = format!(
            "{panicked}. This is a bug in Kopf; please report it. The stream begins again in {pause} seconds."
        );
        self.log(Level::Error, text);
        sleep(seconds(pause)).await;
    }

    /// Waits while the operator is paused; returns the number of pauses so far.
    async fn wait_resumed(&self) -> u64 {
        let Some(pause) = &self.pause else { return 0 };
        if pause.is_on() {
            self.log_debug("Pausing", || format!(" (blockers: {})", pause.blockers().join(", ")));
            pause.over().await;
            self.debug("Resuming");
        }
        pause.count()
    }

    async fn interrupted(&self, pauses: u64) {
        match &self.pause {
            Some(pause) => pause.paused_since(pauses).await,
            None => std::future::pending().await,
        }
    }

    /// Lists, then watches until a new listing is needed.
    async fn list_and_watch<S: EventHandler>(
        &self,
        sink: &mut S,
        cursor: &mut Cursor,
        streaming: &mut bool,
        failures: &mut u32,
    ) -> Result<(), RequestError> {
        (cursor.initial, cursor.version) = (*streaming, None);
        if cursor.initial {
            begin_listing(cursor, sink);
        } else {
            cursor.version = self.list(cursor, sink).await?;
        }
        let mut breaks: u32 = 0;
        loop {
            cursor.received = false;
            let begun = Instant::now();
            let ended = match self.watch(cursor, sink).await {
                Ok(End::Closed) if !cursor.received && begun.elapsed() < seconds(VERY_SHORT) => {
                    Err(RequestError::Transport(
                        "the connection was closed at once, before anything came".to_owned(),
                    ))
                }
                ended => ended,
            };
            if cursor.initial {
                match ended {
                    // The server does not support streaming lists.
                    Err(RequestError::Api(rejection)) if matches!(rejection.status, 400 | 422) => {
                        let what = self.what();
                        self.log(
                            Level::Debug,
                            format!("The initial objects of {what} cannot be streamed, listing."),
                        );
                        *streaming = false;
                        return Ok(());
                    }
                    // The missing initial objects need a new start.
                    Ok(_) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            // Malformed data again and again leads to longer and longer pauses.
            if cursor.received && !matches!(ended, Err(RequestError::Malformed(_))) {
                (*failures, breaks) = (0, 0);
            }
            match ended {
                // It has delivered data, but the server may close each connection like this: no tight loop.
                Ok(End::Closed) if begun.elapsed() < seconds(VERY_SHORT) => {
                    let _busy = self.api.clock().busy();
                    sleep(seconds(self.settings.watching.reconnect_backoff)).await;
                }
                Ok(End::Reconnect | End::Closed) => {}
                Ok(End::Relist) => return self.relist(failures).await,
                Err(RequestError::Api(rejection)) if rejection.status == 410 => {
                    return self.relist(failures).await;
                }
                Err(error @ (RequestError::Transport(_) | RequestError::Timeout)) => {
                    self.health.troubled(&self.what(), StreamFailure::Broken, Some(error.to_string()));
                    // The connection broke before it delivered data: no tight loop.
                    let _busy = self.api.clock().busy();
                    let pause = doubling(self.settings.watching.reconnect_backoff, breaks, LONGEST_BREAK);
                    breaks = breaks.saturating_add(1);
                    // A single break is not worth a log line.
                    if breaks >= LOGGED_BREAKS {
                        self.log_failure(&error, pause);
                    }
                    sleep(seconds(pause * (1.0 + BREAK_JITTER * self.chance()))).await;
                }
                // No event is lost: the watch resumes from the last version, unless it fails too often.
                Err(RequestError::Api(rejection))
                    if *failures + 1 < MOST_FAILURES && sink.retries_on(&rejection) =>
                {
                    self.back_off(&RequestError::Api(rejection), failures).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Prepares a new listing: at once, unless the last one only led to this one.
    async fn relist(&self, failures: &mut u32) -> Result<(), RequestError> {
        if let Some(earlier) = failures.checked_sub(1)
            && let Some(delay) = RETRIES.delay(earlier, None, self.chance())
        {
            self.api.clock().sleep(seconds(delay)).await;
        }
        *failures = failures.saturating_add(1);
        Ok(())
    }

    async fn back_off(&self, error: &RequestError, failures: &mut u32) {
        let planned = pause_after(error, *failures);
        let pause = RETRIES.delay(*failures, retry_after(error), self.chance()).unwrap_or(planned);
        *failures = failures.saturating_add(1);
        let failure = if error.status().is_some() { StreamFailure::Rejected } else { StreamFailure::Broken };
        self.health.troubled(&self.what(), failure, Some(error.to_string()));
        self.log_failure(error, planned);
        self.api.clock().sleep(seconds(pause)).await;
    }

    /// A random number for the jitter, so that watches that were disconnected together do not reconnect together.
    fn chance(&self) -> f64 {
        let mut hasher = DefaultHasher::new();
        (self.what(), self.api.clock().now().micros()).hash(&mut hasher);
        f64::from(u16::try_from(hasher.finish() & 0xffff).unwrap_or_default()) / 65_536.0
    }

    async fn list<S: EventHandler>(
        &self,
        cursor: &mut Cursor,
        sink: &mut S,
    ) -> Result<Option<String>, RequestError> {
        let (mut token, mut limit) = (None, Some(self.settings.watching.chunk_size.unwrap_or(PAGE)));
        begin_listing(cursor, sink);
        loop {
            let payload = self.or_partial(RequestBody::PartialList);
            let is_first = token.is_none();
            let page = match self.page(self.selection(), payload, token.take(), limit).await {
                // Reading was held for so long that the next page has expired. Another attempt in pages would fail the same
                // way.
                Err(RequestError::Api(rejection)) if rejection.status == 410 && !is_first => {
                    let what = self.what();
                    self.log(
                        Level::Info,
                        format!(
                            "The listing of {what} has expired between its pages, listing at once instead."
                        ),
                    );
                    limit = None;
                    begin_listing(cursor, sink);
                    continue;
                }
                page => page?,
            };
            for object in page.items {
                self.event(EventType::Listed, object, cursor, sink)?;
            }
            for rejected in page.rejected {
                self.reject(rejected, false, cursor, sink);
            }
            sink.ready().await;
            token = page.continue_token;
            if token.is_none() {
                self.health.on_data(&self.what());
                self.end_listing(cursor, sink);
                return Ok(page.resource_version);
            }
        }
    }

    /// Completes the listing.
    fn end_listing<S: EventHandler>(&self, cursor: &mut Cursor, sink: &mut S) {
        cursor.rejections.end_listing();
        self.health.rejected(&self.what(), cursor.rejections.len());
        sink.on_init_done();
    }

    /// Passes on an object, unless it does not belong to this watch.
    fn event<S: EventHandler>(
        &self,
        kind: EventType,
        object: Object,
        cursor: &mut Cursor,
        sink: &mut S,
    ) -> Result<(), RequestError> {
        let object = self.restored(object)?;
        if let Some(problem) = self.problem_of(&object) {
            if cursor.rejections.add(&object) {
                let what = self.what();
                self.log(
                    Level::Error,
                    format!("Ignoring an object of the watch-stream for {what}: {problem}."),
                );
            }
            return Ok(());
        }
        if cursor.rejections.remove(&object) {
            self.health.rejected(&self.what(), cursor.rejections.len());
        }
        sink.event(kind, object);
        Ok(())
    }

    /// The reason why the object cannot belong to this watch, if there is one.
    fn problem_of(&self, object: &Object) -> Option<String> {
        if object.name().is_none_or(str::is_empty) {
            return Some("it has no name".to_owned());
        }
        let resource = &self.resource;
        let is_other_kind = matches!((object.kind(), &resource.kind), (Some(its), Some(ours)) if its != ours);
        let is_other_version = object.api_version().is_some_and(|its| {
            let (group, version) = its.split_once('/').unwrap_or(("", its));
            (group, version) != (&resource.group, &resource.version)
        });
        (is_other_kind || is_other_version).then(|| {
            let described = [object.api_version(), object.kind(), object.namespace(), object.name()];
            format!("it is of another kind: {}", described.map(Option::unwrap_or_default).join(" "))
        })
    }

    /// Excludes an object that cannot be handled.
    fn reject<S: EventHandler>(
        &self,
        rejected: RejectedObject,
        deleted: bool,
        cursor: &mut Cursor,
        sink: &mut S,
    ) {
        let RejectedObject { identity, error } = rejected;
        if deleted {
            cursor.rejections.remove(&identity);
        } else if cursor.rejections.add(&identity) {
            let kind = identity.kind().unwrap_or("object");
            let name =
                [identity.namespace(), identity.name()].into_iter().flatten().collect::<Vec<_>>().join("/");
            let text = format!(
                "{kind} {name} cannot be read and is not handled: {error}. It is handled as soon as it is changed so that \
                 it can be read. All other objects are handled."
            );
            let identity = Arc::new(identity.clone());
            self.host.log(LogRecord::local(Level::Error, &identity, text));
        }
        self.health.rejected(&self.what(), cursor.rejections.len());
        sink.rejected(identity, deleted);
    }

    async fn watch<S: EventHandler>(&self, cursor: &mut Cursor, sink: &mut S) -> Result<End, RequestError> {
        let mut query = vec![("watch", "true".to_owned()), ("allowWatchBookmarks", "true".to_owned())];
        query.extend(self.selection());
        query.extend(cursor.version.clone().map(|version| ("resourceVersion", version)));
        if cursor.initial {
            query.push(("sendInitialEvents", "true".to_owned()));
            query.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
        }
        let watching = &self.settings.watching;
        query.extend(watching.server_timeout.map(|limit| ("timeoutSeconds", format!("{limit}"))));
        let following = self.read(&query, cursor, sink);
        match watching.client_timeout {
            Some(limit) => timeout(seconds(limit), following).await.unwrap_or(Ok(End::Reconnect)),
            None => following.await,
        }
    }

    async fn read<S: EventHandler>(
        &self,
        query: &[(&str, String)],
        cursor: &mut Cursor,
        sink: &mut S,
    ) -> Result<End, RequestError> {
        let silence = self.settings.watching.inactivity_timeout.map(seconds);
        let mut body =
            self.api.stream(&self.url(query), self.or_partial(RequestBody::PartialObjects)).await?;
        self.health.accepted(&self.what());
        let mut lines = Lines::default();
        loop {
            let frame = match silence {
                Some(limit) => timeout(limit, body.frame()).await,
                None => Ok(body.frame().await),
            };
            let Ok(frame) = frame else {
                self.health.troubled(&self.what(), StreamFailure::Silent, None);
                self.log(
                    Level::Debug,
                    format!("Watch-stream for {} is inactive, reconnecting.", self.what()),
                );
                return Ok(End::Reconnect);
            };
            let Some(Ok(frame)) = frame else {
                lines.rest(|line| self.record(line, cursor, sink))?;
                return Ok(End::Closed);
            };
            if let Ok(data) = frame.into_data()
                && lines.feed(&data, |line| self.record(line, cursor, sink))?
            {
                return Ok(End::Relist);
            }
            if lines.pending() > MAX_LINE {
                return Err(
                    self.malformed(&format_args!("a line is longer than {} MiB", MAX_LINE / 1024 / 1024))
                );
            }
            sink.ready().await;
        }
    }

    /// Processes one record; true if a new listing is needed.
    fn record<S: EventHandler>(
        &self,
        line: &[u8],
        cursor: &mut Cursor,
        sink: &mut S,
    ) -> Result<bool, RequestError> {
        let (kind, object) = match decode_watch_line(line).map_err(|error| self.malformed(&error))? {
            WatchRecord::Added(object) if cursor.initial => (EventType::Listed, object),
            WatchRecord::Added(object) => (EventType::Added, object),
            WatchRecord::Modified(object) => (EventType::Modified, object),
            WatchRecord::Deleted(object) => (EventType::Deleted, object),
            WatchRecord::Bookmark { resource_version, initial_events_end } => {
                self.on_data(cursor);
                cursor.version = Some(resource_version);
                if cursor.initial && initial_events_end {
                    cursor.initial = false;
                    self.end_listing(cursor, sink);
                }
                return Ok(false);
            }
            WatchRecord::Rejected { deleted, rejected } => {
                self.on_data(cursor);
                if let Some(seen) = rejected.identity.resource_version() {
                    cursor.version = Some(seen.to_owned());
                }
                self.reject(rejected, deleted, cursor, sink);
                return Ok(false);
            }
            WatchRecord::Error(status) => return stream_error(&status),
            WatchRecord::Unknown(kind) => {
                self.log(
                    Level::Warning,
                    format!("Ignoring an unsupported event type: {}", python_repr(&Value::String(kind))),
                );
                return Ok(false);
            }
        };
        self.on_data(cursor);
        if let Some(seen) = object.resource_version() {
            cursor.version = Some(seen.to_owned());
        }
        self.event(kind, object, cursor, sink)?;
        Ok(false)
    }

    /// The body of a request: `partial` if only metadata is requested.
    fn or_partial(&self, partial: RequestBody<'static>) -> RequestBody<'static> {
        match self.projection {
            Projection::Whole => RequestBody::None,
            Projection::Metadata => partial,
        }
    }

    fn restored(&self, object: Object) -> Result<Object, RequestError> {
        let restored: Result<_, DecodeError> = self.projection.with_type_meta(object, &self.resource);
        restored.map_err(|error| self.malformed(&error))
    }

    fn on_data(&self, cursor: &mut Cursor) {
        if !std::mem::replace(&mut cursor.received, true) {
            self.health.on_data(&self.what());
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

    fn log_failure(&self, error: &RequestError, pause: f64) {
        let hint = match error.status() {
            Some(403) => " The operator's account needs the verbs list and watch for it (check RBAC).",
            Some(404) => " The resource is not served any more.",
            _ => "",
        };
        let what = self.what();
        self.log(
            Level::Error,
            format!("Cannot watch {what}: {error}.{hint} The next attempt is in {pause} seconds."),
        );
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
        self.health.forget(&self.what());
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

fn begin_listing<S: EventHandler>(cursor: &mut Cursor, sink: &mut S) {
    cursor.rejections.begin_listing();
    sink.on_init();
}

/// Processes an error record of the watch; true if a new listing is needed.
fn stream_error(status: &Value) -> Result<bool, RequestError> {
    let code =
        status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
    if code == 410 {
        return Ok(true);
    }
    let error = ApiError::from_response(code, None, status.to_string().as_bytes());
    Err(RequestError::Api(Box::new(error)))
}

/// Seconds to wait after this failure and `failures` earlier ones in a row.
pub fn pause_after(error: &RequestError, failures: u32) -> f64 {
    RETRIES.delay(failures, retry_after(error), 0.0).unwrap_or_default()
}

/// Seconds of the server's `Retry-After`, if there is one.
fn retry_after(error: &RequestError) -> Option<f64> {
    match error {
        RequestError::Api(rejection) => rejection.retry_after,
        _ => None,
    }
}

#[cfg(test)]
mod tests;
