//! One watch-stream: list, then watch, for ever.
//!
//! Each record is decoded once, right here, off the interpreter. A dropped connection goes on from the last version that was
//! seen; a version that is too old leads to a new listing. Whatever the server answers, the stream itself never gives up:
//! it backs off, says so, and tries again. Only the lack of credentials ends it. Rules: contract/engine 1.8.

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
/// How many objects come in one response of a listing, unless the settings say otherwise: it bounds the memory.
const PAGE: u64 = 500;
/// The delays after failures in a row.
const RETRIES: Backoff = Backoff::endless(&[1.0, 2.0, 5.0, 10.0, 20.0, 30.0]).with_jitter(0.2);
/// After so many failures in a row, the stream lists again.
const MOST_FAILURES: u32 = 6;
/// The longest line of a stream: far more than a server keeps of an object.
const MAX_LINE: usize = 64 * 1024 * 1024;
/// From so many broken connections in a row on, they are logged.
const TOLD_BREAKS: u32 = 4;
/// The longest delay after broken connections, in seconds.
const LONGEST_BREAK: f64 = 5.0;
/// By how much of itself such a delay can be longer.
const BREAK_JITTER: f64 = 0.2;
/// A connection that is closed within so many seconds, and has brought nothing, is broken.
const VERY_SHORT: f64 = 1.0;

/// The consumer of the events of a watch.
pub trait EventHandler: Send {
    /// A new state of an object.
    fn event(&mut self, kind: EventType, object: Object);
    /// An object cannot be handled: it is neither new nor changed; and it is gone only if it is deleted. Only its names
    /// and its version are known.
    fn rejected(&mut self, identity: Object, deleted: bool);
    /// A listing has begun: what does not come until it ends has vanished.
    fn on_init(&mut self);
    /// The listing is over.
    fn on_init_done(&mut self);
    /// Waits until there is room for more: so that a storm of events fills the server's buffers, not our memory.
    fn ready(&self) -> impl Future<Output = ()> + Send;
    /// Whether it makes sense to try again after such a refusal.
    fn retries_on(&self, refusal: &ApiError) -> bool;
}

/// What to watch, and with whom to talk.
pub struct Stream {
    /// The way to the server.
    pub api: Api,
    /// What to watch.
    pub resource: Arc<Resource>,
    /// Where to watch; all namespaces if none.
    pub namespace: Option<String>,
    /// How much of each object.
    pub projection: Projection,
    /// Server-side selectors: names and values of query parameters.
    pub selectors: Vec<(&'static str, String)>,
    /// The label selector that follows from the handlers, if that is wanted.
    pub derived: Option<DerivedSelector>,
    /// Timeouts and sizes.
    pub settings: Arc<Settings>,
    /// For the log.
    pub host: Arc<dyn Host>,
    /// Where it is told how the stream is.
    pub health: Arc<Health>,
    /// What holds the stream; nothing does if it is of those that tell of pauses.
    pub pause: Option<Arc<Pause>>,
}

/// How far a stream is.
#[derive(Debug, Default)]
struct Cursor {
    /// The last version that was seen.
    version: Option<String>,
    /// The objects that are already there are still being sent, as if they were new.
    initial: bool,
    /// Something has come through the last connection.
    heard: bool,
    /// The objects that cannot be handled.
    rejections: Rejections,
}

/// Why one connection of a stream has ended.
enum End {
    /// We have left it: go on from the last version.
    Reconnect,
    /// The server, or something on the way to it, has closed it: the same.
    Closed,
    /// The version is too old: list again.
    Relist,
}

impl Stream {
    /// Lists and watches until it is cancelled, or until there are no credentials.
    ///
    /// # Errors
    /// Of the API: the sink does not insist after a refusal. Of the login: fatal for the operator.
    pub async fn follow<S: EventHandler>(&self, sink: &mut S) -> Result<Infallible, RequestError> {
        let held = self.pause.as_ref().is_some_and(|pause| pause.is_on());
        self.log_debug("Starting", || if held { " (paused)" } else { "" }.to_owned());
        let mut failures: u32 = 0;
        let mut streaming = self.settings.watching.initial_streaming;
        let mut place = Cursor::default();
        self.health.selected(&self.what(), &self.selection());
        loop {
            let pauses = self.wait_resumed().await;
            let outcome = tokio::select! {
                // A pause that has begun allows no request more, not even one that is due in the same moment.
                biased;
                // However short the pause was: everything that relies on a new listing afterwards gets one.
                () = self.interrupted(pauses) => continue,
                outcome = self.list_and_watch(sink, &mut place, &mut streaming, &mut failures) => outcome,
            };
            match outcome {
                Ok(()) => self.debug("Restarting"),
                Err(error @ RequestError::Login(_)) => return Err(error),
                Err(RequestError::Api(refusal)) if !sink.retries_on(&refusal) => {
                    return Err(RequestError::Api(refusal));
                }
                Err(error) => self.back_off(&error, &mut failures).await,
            }
            let _busy = self.api.clock().busy();
            sleep(seconds(self.settings.watching.reconnect_backoff)).await;
        }
    }

    /// The resource and the place, as the log lines and the health name them.
    pub fn name(&self) -> String {
        self.what()
    }

    /// What its task is called if that panics.
    pub fn task_name(&self) -> String {
        format!("The watch-stream for {}", self.what())
    }

    /// Lets it be known that there is such a stream.
    pub fn announce(&self) {
        self.health.selected(&self.what(), &self.selection());
    }

    /// Reports a panic of the stream's task, and waits before it is begun again.
    pub async fn recover(&self, panicked: &Panicked, panics: usize) {
        let earlier = u32::try_from(panics.saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = RETRIES.step(earlier).unwrap_or_default();
        self.health.troubled(&self.what(), StreamFailure::Broken, Some(panicked.to_string()));
        let text = format!(
            "{panicked}. This is a bug in Kopf; please report it. The stream begins again in {pause} seconds."
        );
        self.say(Level::Error, text);
        sleep(seconds(pause)).await;
    }

    /// Waits while the operator is paused; tells how many pauses there have been.
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

    /// From one listing to the need of another one.
    async fn list_and_watch<S: EventHandler>(
        &self,
        sink: &mut S,
        place: &mut Cursor,
        streaming: &mut bool,
        failures: &mut u32,
    ) -> Result<(), RequestError> {
        (place.initial, place.version) = (*streaming, None);
        if place.initial {
            begin_listing(place, sink);
        } else {
            place.version = self.list(place, sink).await?;
        }
        let mut breaks: u32 = 0;
        loop {
            place.heard = false;
            let begun = Instant::now();
            let ended = match self.watch(place, sink).await {
                Ok(End::Closed) if !place.heard && begun.elapsed() < seconds(VERY_SHORT) => {
                    Err(RequestError::Transport(
                        "the connection was closed at once, before anything came".to_owned(),
                    ))
                }
                ended => ended,
            };
            if place.initial {
                match ended {
                    // The server cannot do that.
                    Err(RequestError::Api(refusal)) if matches!(refusal.status, 400 | 422) => {
                        let what = self.what();
                        self.say(
                            Level::Debug,
                            format!("The initial objects of {what} cannot be streamed, listing."),
                        );
                        *streaming = false;
                        return Ok(());
                    }
                    // What is missing comes only with a new beginning.
                    Ok(_) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            // A stream that is cut short by nonsense again and again is left alone for longer and longer.
            if place.heard && !matches!(ended, Err(RequestError::Malformed(_))) {
                (*failures, breaks) = (0, 0);
            }
            match ended {
                // It has brought something, but others like it could follow in a tight loop.
                Ok(End::Closed) if begun.elapsed() < seconds(VERY_SHORT) => {
                    let _busy = self.api.clock().busy();
                    sleep(seconds(self.settings.watching.reconnect_backoff)).await;
                }
                Ok(End::Reconnect | End::Closed) => {}
                Ok(End::Relist) => return self.relist(failures).await,
                Err(RequestError::Api(refusal)) if refusal.status == 410 => {
                    return self.relist(failures).await;
                }
                Err(error @ (RequestError::Transport(_) | RequestError::Timeout)) => {
                    self.health.troubled(&self.what(), StreamFailure::Broken, Some(error.to_string()));
                    // The connection broke before it gave anything: not in a tight loop.
                    let _busy = self.api.clock().busy();
                    let pause = doubling(self.settings.watching.reconnect_backoff, breaks, LONGEST_BREAK);
                    breaks = breaks.saturating_add(1);
                    // One break is nothing to talk about.
                    if breaks >= TOLD_BREAKS {
                        self.complain(&error, pause);
                    }
                    sleep(seconds(pause * (1.0 + BREAK_JITTER * self.chance()))).await;
                }
                // Nothing is lost: it goes on from the last version, unless that goes on for too long.
                Err(RequestError::Api(refusal))
                    if *failures + 1 < MOST_FAILURES && sink.retries_on(&refusal) =>
                {
                    self.back_off(&RequestError::Api(refusal), failures).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A new listing is needed: at once, unless the last one has led to nothing else but this one.
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
        let trouble = if error.status().is_some() { StreamFailure::Refused } else { StreamFailure::Broken };
        self.health.troubled(&self.what(), trouble, Some(error.to_string()));
        self.complain(error, planned);
        self.api.clock().sleep(seconds(pause)).await;
    }

    /// A random number, so that streams which were cut together do not come back together.
    fn chance(&self) -> f64 {
        let mut hasher = DefaultHasher::new();
        (self.what(), self.api.clock().now().micros()).hash(&mut hasher);
        f64::from(u16::try_from(hasher.finish() & 0xffff).unwrap_or_default()) / 65_536.0
    }

    async fn list<S: EventHandler>(
        &self,
        place: &mut Cursor,
        sink: &mut S,
    ) -> Result<Option<String>, RequestError> {
        let (mut token, mut limit) = (None, Some(self.settings.watching.chunk_size.unwrap_or(PAGE)));
        begin_listing(place, sink);
        loop {
            let payload = self.or_partial(RequestBody::PartialList);
            let is_first = token.is_none();
            let page = match self.page(self.selection(), payload, token.take(), limit).await {
                // Reading was held for so long that the rest has expired. The next try would come no further.
                Err(RequestError::Api(refusal)) if refusal.status == 410 && !is_first => {
                    let what = self.what();
                    self.say(
                        Level::Info,
                        format!(
                            "The listing of {what} has expired between its pages, listing at once instead."
                        ),
                    );
                    limit = None;
                    begin_listing(place, sink);
                    continue;
                }
                page => page?,
            };
            for object in page.items {
                self.event(EventType::Listed, object, place, sink)?;
            }
            for rejected in page.rejected {
                self.reject(rejected, false, place, sink);
            }
            sink.ready().await;
            token = page.continue_token;
            if token.is_none() {
                self.health.on_data(&self.what());
                self.end_listing(place, sink);
                return Ok(page.resource_version);
            }
        }
    }

    /// The listing is over.
    fn end_listing<S: EventHandler>(&self, place: &mut Cursor, sink: &mut S) {
        place.rejections.end_listing();
        self.health.rejected(&self.what(), place.rejections.len());
        sink.on_init_done();
    }

    /// Takes an object, unless it is none of this stream.
    fn event<S: EventHandler>(
        &self,
        kind: EventType,
        object: Object,
        place: &mut Cursor,
        sink: &mut S,
    ) -> Result<(), RequestError> {
        let object = self.restored(object)?;
        if let Some(problem) = self.problem_of(&object) {
            if place.rejections.add(&object) {
                let what = self.what();
                self.say(
                    Level::Error,
                    format!("Ignoring an object of the watch-stream for {what}: {problem}."),
                );
            }
            return Ok(());
        }
        if place.rejections.remove(&object) {
            self.health.rejected(&self.what(), place.rejections.len());
        }
        sink.event(kind, object);
        Ok(())
    }

    /// Why the object cannot be one of this stream.
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

    /// Keeps an object out that cannot be handled.
    fn reject<S: EventHandler>(
        &self,
        rejected: RejectedObject,
        deleted: bool,
        place: &mut Cursor,
        sink: &mut S,
    ) {
        let RejectedObject { identity, error } = rejected;
        if deleted {
            place.rejections.remove(&identity);
        } else if place.rejections.add(&identity) {
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
        self.health.rejected(&self.what(), place.rejections.len());
        sink.rejected(identity, deleted);
    }

    async fn watch<S: EventHandler>(&self, place: &mut Cursor, sink: &mut S) -> Result<End, RequestError> {
        let mut query = vec![("watch", "true".to_owned()), ("allowWatchBookmarks", "true".to_owned())];
        query.extend(self.selection());
        query.extend(place.version.clone().map(|version| ("resourceVersion", version)));
        if place.initial {
            query.push(("sendInitialEvents", "true".to_owned()));
            query.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
        }
        let watching = &self.settings.watching;
        query.extend(watching.server_timeout.map(|limit| ("timeoutSeconds", format!("{limit}"))));
        let following = self.read(&query, place, sink);
        match watching.client_timeout {
            Some(limit) => timeout(seconds(limit), following).await.unwrap_or(Ok(End::Reconnect)),
            None => following.await,
        }
    }

    async fn read<S: EventHandler>(
        &self,
        query: &[(&str, String)],
        place: &mut Cursor,
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
                self.say(
                    Level::Debug,
                    format!("Watch-stream for {} is inactive, reconnecting.", self.what()),
                );
                return Ok(End::Reconnect);
            };
            let Some(Ok(frame)) = frame else {
                lines.rest(|line| self.record(line, place, sink))?;
                return Ok(End::Closed);
            };
            if let Ok(data) = frame.into_data()
                && lines.feed(&data, |line| self.record(line, place, sink))?
            {
                return Ok(End::Relist);
            }
            if lines.pending() > MAX_LINE {
                return Err(
                    self.garbage(&format_args!("a line is longer than {} MiB", MAX_LINE / 1024 / 1024))
                );
            }
            sink.ready().await;
        }
    }

    /// Takes one record of the stream; true if a new listing is needed.
    fn record<S: EventHandler>(
        &self,
        line: &[u8],
        place: &mut Cursor,
        sink: &mut S,
    ) -> Result<bool, RequestError> {
        let (kind, object) = match decode_watch_line(line).map_err(|error| self.garbage(&error))? {
            WatchRecord::Added(object) if place.initial => (EventType::Listed, object),
            WatchRecord::Added(object) => (EventType::Added, object),
            WatchRecord::Modified(object) => (EventType::Modified, object),
            WatchRecord::Deleted(object) => (EventType::Deleted, object),
            WatchRecord::Bookmark { resource_version, initial_events_end } => {
                self.on_data(place);
                place.version = Some(resource_version);
                if place.initial && initial_events_end {
                    place.initial = false;
                    self.end_listing(place, sink);
                }
                return Ok(false);
            }
            WatchRecord::Rejected { deleted, rejected } => {
                self.on_data(place);
                if let Some(seen) = rejected.identity.resource_version() {
                    place.version = Some(seen.to_owned());
                }
                self.reject(rejected, deleted, place, sink);
                return Ok(false);
            }
            WatchRecord::Error(status) => return stream_error(&status),
            WatchRecord::Unknown(kind) => {
                self.say(
                    Level::Warning,
                    format!("Ignoring an unsupported event type: {}", python_repr(&Value::String(kind))),
                );
                return Ok(false);
            }
        };
        self.on_data(place);
        if let Some(seen) = object.resource_version() {
            place.version = Some(seen.to_owned());
        }
        self.event(kind, object, place, sink)?;
        Ok(false)
    }

    /// The payload of a request, if only the metadata may come then.
    fn or_partial(&self, partial: RequestBody<'static>) -> RequestBody<'static> {
        match self.projection {
            Projection::Whole => RequestBody::None,
            Projection::Metadata => partial,
        }
    }

    fn restored(&self, object: Object) -> Result<Object, RequestError> {
        let restored: Result<_, DecodeError> = self.projection.with_type_meta(object, &self.resource);
        restored.map_err(|error| self.garbage(&error))
    }

    fn on_data(&self, place: &mut Cursor) {
        if !std::mem::replace(&mut place.heard, true) {
            self.health.on_data(&self.what());
        }
    }

    fn garbage(&self, error: &dyn std::fmt::Display) -> RequestError {
        RequestError::Malformed(format!("the server's answer on {} cannot be read: {error}", self.what()))
    }

    fn url(&self, query: &[(&str, String)]) -> String {
        query::url(&self.resource, self.namespace.as_deref(), query)
    }

    /// The resource and the place, as the log lines name them.
    fn what(&self) -> String {
        name_of(&self.resource, self.namespace.as_deref())
    }

    fn complain(&self, error: &RequestError, pause: f64) {
        let hint = match error.status() {
            Some(403) => " The operator's account needs the verbs list and watch for it (check RBAC).",
            Some(404) => " The resource is not served any more.",
            _ => "",
        };
        let what = self.what();
        self.say(
            Level::Error,
            format!("Cannot watch {what}: {error}.{hint} The next attempt is in {pause} seconds."),
        );
    }

    fn debug(&self, doing: &str) {
        self.log_debug(doing, String::new);
    }

    fn log_debug(&self, doing: &str, how: impl FnOnce() -> String) {
        if self.host.enabled(Level::Debug) {
            self.say(Level::Debug, format!("{doing} the watch-stream for {}{}.", self.what(), how()));
        }
    }

    fn say(&self, level: Level, text: String) {
        self.host.log(LogRecord::general(level, LOGGER, text));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.health.forget(&self.what());
        self.debug("Stopping");
    }
}

/// The name of a stream: the resource and the place.
pub fn name_of(resource: &Resource, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{resource} in '{namespace}'"),
        None => format!("{resource} cluster-wide"),
    }
}

fn begin_listing<S: EventHandler>(place: &mut Cursor, sink: &mut S) {
    place.rejections.begin_listing();
    sink.on_init();
}

/// An error that the server tells of in the stream; true if a new listing is all that it takes.
fn stream_error(status: &Value) -> Result<bool, RequestError> {
    let code =
        status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
    if code == 410 {
        return Ok(true);
    }
    let error = ApiError::from_response(code, None, status.to_string().as_bytes());
    Err(RequestError::Api(Box::new(error)))
}

/// Seconds to wait after so many failures in a row, and this one.
pub fn pause_after(error: &RequestError, failures: u32) -> f64 {
    RETRIES.delay(failures, retry_after(error), 0.0).unwrap_or_default()
}

/// How long the server asks us to wait.
fn retry_after(error: &RequestError) -> Option<f64> {
    match error {
        RequestError::Api(refusal) => refusal.retry_after,
        _ => None,
    }
}

#[cfg(test)]
mod tests;
