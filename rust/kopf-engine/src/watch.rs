//! One watch-stream: list, then watch, for ever.
//!
//! Each record is decoded once, right here, off the interpreter. A dropped connection goes on from the last version that was
//! seen; a version that is too old leads to a new listing. Whatever the server answers, the stream itself never gives up:
//! it backs off, says so, and tries again. Only the lack of credentials ends it. Rules: contract/engine 1.8.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use http_body_util::BodyExt as _;
use kopf_core::cause::EventType;
use kopf_core::derivation::Derivation;
use kopf_core::notes::Level;
use kopf_core::object::{DecodeError, Object, WatchRecord, decode_watch_line};
use kopf_core::projection::Projection;
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use kopf_core::value::{Value, python_repr};
use tokio::time::{sleep, timeout};

use crate::api::{Api, Payload, seconds};
use crate::error::{ApiError, RequestError};
use crate::health::{Health, Trouble};
use crate::invoke::{Entry, Invoker};
use crate::toggles::Pause;

mod lines;
mod selecting;

use lines::Lines;

const LOGGER: &str = "kopf._cogs.clients.watching";
/// How many objects come in one response of a listing, unless the settings say otherwise: it bounds the memory.
const PAGE: u64 = 500;
/// Pauses after failures in a row, in seconds; the last one repeats.
const PAUSES: [f64; 6] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0];
/// How much longer a pause can be by chance.
const JITTER: f64 = 0.2;
/// How many times the pause between broken connections is doubled at most, and what it does not exceed, in seconds.
/// From so many breaks in a row on, they are told.
const TOLD_BREAKS: u32 = 4;
const MOST_BREAKS: u32 = 10;
const LONGEST_BREAK: f64 = 5.0;

/// Who takes the events of a stream.
pub trait Sink: Send {
    /// A new state of an object.
    fn event(&mut self, kind: EventType, object: Object);
    /// A listing has begun: what does not come until it ends has vanished.
    fn listing(&mut self);
    /// The listing is over.
    fn listed(&mut self);
    /// Waits until there is room for more: so that a storm of events fills the server's buffers, not our memory.
    fn room(&self) -> impl Future<Output = ()> + Send;
    /// Whether it makes sense to try again after such a refusal.
    fn insists(&self, refusal: &ApiError) -> bool;
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
    pub derived: Option<Derivation>,
    /// Timeouts and sizes.
    pub settings: Arc<Settings>,
    /// For the log.
    pub invoker: Arc<dyn Invoker>,
    /// Where it is told how the stream is.
    pub health: Arc<Health>,
    /// What holds the stream; nothing does if it is of those that tell of pauses.
    pub pause: Option<Arc<Pause>>,
}

/// How far a stream is.
#[derive(Debug, Default)]
struct Place {
    /// The last version that was seen.
    version: Option<String>,
    /// The objects that are already there are still being sent, as if they were new.
    initial: bool,
    /// Something has come through the last connection.
    heard: bool,
}

/// Why one connection of a stream has ended.
enum End {
    /// Go on from the last version.
    Reconnect,
    /// The version is too old: list again.
    Relist,
}

impl Stream {
    /// Lists and watches until it is cancelled, or until there are no credentials.
    ///
    /// # Errors
    /// Of the API: the sink does not insist after a refusal. Of the login: fatal for the operator.
    pub async fn follow<S: Sink>(&self, sink: &mut S) -> Result<Infallible, RequestError> {
        let held = self.pause.as_ref().is_some_and(|pause| pause.is_on());
        self.tell("Starting", || if held { " (paused)" } else { "" }.to_owned());
        let mut failures: usize = 0;
        let mut streaming = self.settings.watching.initial_streaming;
        self.health.selected(&self.what(), &self.selection());
        loop {
            let pauses = self.stand_by().await;
            let outcome = tokio::select! {
                // A pause that has begun allows no request more, not even one that is due in the same moment.
                biased;
                // However short the pause was: everything that relies on a new listing afterwards gets one.
                () = self.interrupted(pauses) => continue,
                outcome = self.list_and_watch(sink, &mut streaming, &mut failures) => outcome,
            };
            match outcome {
                Ok(()) => self.debug("Restarting"),
                Err(error @ RequestError::Login(_)) => return Err(error),
                Err(RequestError::Api(refusal)) if !sink.insists(&refusal) => {
                    return Err(RequestError::Api(refusal));
                }
                Err(error) => self.back_off(&error, &mut failures).await,
            }
            let _busy = self.api.clock().busy();
            sleep(seconds(self.settings.watching.reconnect_backoff)).await;
        }
    }

    /// Waits while the operator is paused; tells how many pauses there have been.
    async fn stand_by(&self) -> u64 {
        let Some(pause) = &self.pause else { return 0 };
        if pause.is_on() {
            self.tell("Pausing", || format!(" (blockers: {})", pause.blockers().join(", ")));
            pause.over().await;
            self.debug("Resuming");
        }
        pause.count()
    }

    async fn interrupted(&self, pauses: u64) {
        match &self.pause {
            Some(pause) => pause.begun_since(pauses).await,
            None => std::future::pending().await,
        }
    }

    /// From one listing to the need of another one.
    async fn list_and_watch<S: Sink>(
        &self,
        sink: &mut S,
        streaming: &mut bool,
        failures: &mut usize,
    ) -> Result<(), RequestError> {
        let mut place = Place { initial: *streaming, ..Place::default() };
        if place.initial {
            sink.listing();
        } else {
            place.version = self.list(sink).await?;
        }
        let mut breaks = 0;
        loop {
            place.heard = false;
            let ended = self.watch(&mut place, sink).await;
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
            if place.heard {
                (*failures, breaks) = (0, 0);
            }
            match ended {
                Ok(End::Reconnect) => {}
                Ok(End::Relist) => return self.relist(failures).await,
                Err(RequestError::Api(refusal)) if refusal.status == 410 => {
                    return self.relist(failures).await;
                }
                Err(error @ (RequestError::Transport(_) | RequestError::Timeout)) => {
                    self.health.troubled(&self.what(), Trouble::Broken, Some(error.to_string()));
                    // The connection broke before it gave anything: not in a tight loop.
                    let _busy = self.api.clock().busy();
                    let pause = self.settings.watching.reconnect_backoff * f64::from(1_u32 << breaks);
                    breaks = (breaks + 1).min(MOST_BREAKS);
                    let pause = pause.min(LONGEST_BREAK);
                    // One break is nothing to talk about.
                    if breaks >= TOLD_BREAKS {
                        self.complain(&error, pause);
                    }
                    sleep(seconds(self.jittered(pause))).await;
                }
                // Nothing is lost: it goes on from the last version, unless that goes on for too long.
                Err(RequestError::Api(refusal)) if *failures + 1 < PAUSES.len() && sink.insists(&refusal) => {
                    self.back_off(&RequestError::Api(refusal), failures).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A new listing is needed: at once, unless the last one has led to nothing else but this one.
    async fn relist(&self, failures: &mut usize) -> Result<(), RequestError> {
        if *failures > 0 {
            let pause = PAUSES[(*failures - 1).min(PAUSES.len() - 1)];
            self.api.clock().sleep(seconds(self.jittered(pause))).await;
        }
        *failures += 1;
        Ok(())
    }

    async fn back_off(&self, error: &RequestError, failures: &mut usize) {
        let planned = PAUSES[(*failures).min(PAUSES.len() - 1)];
        let pause = self.jittered(planned).max(asked_pause(error));
        *failures += 1;
        let trouble = if error.status().is_some() { Trouble::Refused } else { Trouble::Broken };
        self.health.troubled(&self.what(), trouble, Some(error.to_string()));
        self.complain(error, planned.max(asked_pause(error)));
        self.api.clock().sleep(seconds(pause)).await;
    }

    /// A bit longer, so that streams which were cut together do not come back together.
    fn jittered(&self, pause: f64) -> f64 {
        let mut hasher = DefaultHasher::new();
        (self.what(), self.api.clock().now().micros()).hash(&mut hasher);
        let chance = f64::from(u16::try_from(hasher.finish() & 0xffff).unwrap_or_default()) / 65_536.0;
        pause * (1.0 + JITTER * chance)
    }

    async fn list<S: Sink>(&self, sink: &mut S) -> Result<Option<String>, RequestError> {
        let mut token: Option<String> = None;
        sink.listing();
        loop {
            let payload = self.or_partial(Payload::PartialList);
            let page = self.page(self.selection(), payload, token.take()).await?;
            for object in page.items {
                sink.event(EventType::Listed, self.restored(object)?);
            }
            sink.room().await;
            token = page.continue_token;
            if token.is_none() {
                self.health.heard(&self.what());
                sink.listed();
                return Ok(page.resource_version);
            }
        }
    }

    async fn watch<S: Sink>(&self, place: &mut Place, sink: &mut S) -> Result<End, RequestError> {
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

    async fn read<S: Sink>(
        &self,
        query: &[(&str, String)],
        place: &mut Place,
        sink: &mut S,
    ) -> Result<End, RequestError> {
        let silence = self.settings.watching.inactivity_timeout.map(seconds);
        let mut body = self.api.stream(&self.url(query), self.or_partial(Payload::PartialObjects)).await?;
        self.health.accepted(&self.what());
        let mut lines = Lines::default();
        loop {
            let frame = match silence {
                Some(limit) => timeout(limit, body.frame()).await,
                None => Ok(body.frame().await),
            };
            let Ok(frame) = frame else {
                self.health.troubled(&self.what(), Trouble::Silent, None);
                self.say(
                    Level::Debug,
                    format!("Watch-stream for {} is inactive, reconnecting.", self.what()),
                );
                return Ok(End::Reconnect);
            };
            let Some(Ok(frame)) = frame else {
                lines.rest(|line| self.record(line, place, sink))?;
                return Ok(End::Reconnect);
            };
            if let Ok(data) = frame.into_data()
                && lines.feed(&data, |line| self.record(line, place, sink))?
            {
                return Ok(End::Relist);
            }
            sink.room().await;
        }
    }

    /// Takes one record of the stream; true if a new listing is needed.
    fn record<S: Sink>(&self, line: &[u8], place: &mut Place, sink: &mut S) -> Result<bool, RequestError> {
        let (kind, object) = match decode_watch_line(line).map_err(|error| self.garbage(&error))? {
            WatchRecord::Added(object) if place.initial => (EventType::Listed, object),
            WatchRecord::Added(object) => (EventType::Added, object),
            WatchRecord::Modified(object) => (EventType::Modified, object),
            WatchRecord::Deleted(object) => (EventType::Deleted, object),
            WatchRecord::Bookmark { resource_version, initial_events_end } => {
                self.heard(place);
                place.version = Some(resource_version);
                if place.initial && initial_events_end {
                    place.initial = false;
                    sink.listed();
                }
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
        self.heard(place);
        if let Some(seen) = object.resource_version() {
            place.version = Some(seen.to_owned());
        }
        sink.event(kind, self.restored(object)?);
        Ok(false)
    }

    /// The payload of a request, if only the metadata may come then.
    fn or_partial(&self, partial: Payload<'static>) -> Payload<'static> {
        match self.projection {
            Projection::Whole => Payload::None,
            Projection::Metadata => partial,
        }
    }

    fn restored(&self, object: Object) -> Result<Object, RequestError> {
        let restored: Result<_, DecodeError> = self.projection.restore(object, &self.resource);
        restored.map_err(|error| self.garbage(&error))
    }

    fn heard(&self, place: &mut Place) {
        if !std::mem::replace(&mut place.heard, true) {
            self.health.heard(&self.what());
        }
    }

    fn garbage(&self, error: &dyn std::fmt::Display) -> RequestError {
        RequestError::Malformed(format!("the server's answer on {} cannot be read: {error}", self.what()))
    }

    fn url(&self, query: &[(&str, String)]) -> String {
        selecting::url(&self.resource, self.namespace.as_deref(), query)
    }

    /// The resource and the place, as the log lines name them.
    fn what(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} in '{namespace}'", self.resource),
            None => format!("{} cluster-wide", self.resource),
        }
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
        self.tell(doing, String::new);
    }

    fn tell(&self, doing: &str, how: impl FnOnce() -> String) {
        if self.invoker.enabled(Level::Debug) {
            self.say(Level::Debug, format!("{doing} the watch-stream for {}{}.", self.what(), how()));
        }
    }

    fn say(&self, level: Level, text: String) {
        self.invoker.log(Entry::general(level, LOGGER, text));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.health.forget(&self.what());
        self.debug("Stopping");
    }
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
pub fn pause_after(error: &RequestError, failures: usize) -> f64 {
    PAUSES[failures.min(PAUSES.len() - 1)].max(asked_pause(error))
}

/// How long the server asks us to stay away.
fn asked_pause(error: &RequestError) -> f64 {
    match error {
        RequestError::Api(refusal) => refusal.retry_after.unwrap_or(0.0),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests;
