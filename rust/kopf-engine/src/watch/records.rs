//! One connection of a watch: its request, and the records of its response.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::json::DecodeError;
use kopf_core::json::value::{Value, python_repr};
use kopf_core::log_level::Level;
use kopf_core::object::{Object, RejectedObject, WatchRecord, decode_watch_line};
use kopf_core::stream::End;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use super::lines::Lines;
use super::{Cursor, Stream, WatchConsumer};
use crate::client::RequestBody;
use crate::error::{ApiError, RequestError};
use crate::host::LogRecord;
use crate::time::duration::seconds;
use crate::watch_health::StreamFailure;

/// Maximum length of a line in bytes: far more than a server stores of an object.
const MAX_LINE: usize = 64 * 1024 * 1024;

impl Stream {
    /// Watches over one connection.
    pub(super) async fn watch(
        &self,
        cursor: &mut Cursor,
        consumer: &mut dyn WatchConsumer,
    ) -> Result<End, RequestError> {
        let mut query = vec![("watch", "true".to_owned()), ("allowWatchBookmarks", "true".to_owned())];
        query.extend(self.selection());
        query.extend(cursor.position.parameters());
        let watching = &self.settings.watching;
        query.extend(watching.server_timeout.map(|limit| ("timeoutSeconds", format!("{limit}"))));
        let span = tracing::debug_span!(
            "watch",
            resource = %self.resource,
            namespace = self.namespace.as_deref().unwrap_or("(all)"),
            resource_version = cursor.position.version().unwrap_or("(none)"),
        );
        let following = self.read(&query, cursor, consumer).instrument(span);
        match watching.client_timeout {
            Some(limit) => timeout(seconds(limit), following).await.unwrap_or(Ok(End::Reconnect)),
            None => following.await,
        }
    }

    async fn read(
        &self,
        query: &[(&str, String)],
        cursor: &mut Cursor,
        consumer: &mut dyn WatchConsumer,
    ) -> Result<End, RequestError> {
        let inactivity = self.settings.watching.inactivity_timeout;
        let silence = inactivity.map(seconds);
        self.activity.wait(None);
        let mut body =
            self.client.stream(&self.url(query), self.or_partial(RequestBody::PartialObjects)).await?;
        // The initial objects are like a listing: the failure lasts until all of them are received.
        if !cursor.position.is_initial() {
            self.health.accepted(&self.what());
        }
        self.activity.wait(inactivity);
        let mut lines = Lines::default();
        // One timer for all frames: it is moved, which is cheaper than a new one.
        let mut timer = silence.map(|limit| (limit, Box::pin(sleep(limit))));
        loop {
            let frame = match &mut timer {
                Some((limit, timer)) => {
                    timer.as_mut().reset(Instant::now() + *limit);
                    tokio::select! {
                        biased;
                        frame = body.frame() => Some(frame),
                        () = timer => None,
                    }
                }
                None => Some(body.frame().await),
            };
            self.activity.step();
            let Some(frame) = frame else {
                if !cursor.position.is_initial() {
                    self.health.record_failure(&self.what(), StreamFailure::Silent, None);
                }
                self.log(
                    Level::Debug,
                    format!("Watch-stream for {} is inactive, reconnecting.", self.what()),
                );
                return Ok(End::Silent);
            };
            let Some(Ok(frame)) = frame else {
                let is_expired = lines.rest(|line| self.record(line, cursor, consumer))?;
                return Ok(if is_expired { End::Expired } else { End::Closed });
            };
            if let Ok(data) = frame.into_data() {
                self.activity.metrics().inspect(|metrics| metrics.bytes.add(data.len()));
                if lines.feed(&data, |line| self.record(line, cursor, consumer))? {
                    return Ok(End::Expired);
                }
            }
            if lines.pending() > MAX_LINE {
                return Err(
                    self.malformed(&format_args!("a line is longer than {} MiB", MAX_LINE / 1024 / 1024))
                );
            }
            if let Some(ready) = consumer.ready() {
                self.activity.wait(None);
                ready.await;
                self.activity.wait(inactivity);
            }
        }
    }

    /// Processes one record; true if a new listing is needed.
    fn record(
        &self,
        line: &[u8],
        cursor: &mut Cursor,
        consumer: &mut dyn WatchConsumer,
    ) -> Result<bool, RequestError> {
        let metrics = self.activity.metrics();
        let (kind, object) = match decode_watch_line(line).map_err(|error| self.malformed(&error))? {
            WatchRecord::Added(object) => (cursor.position.type_of_added(), object),
            WatchRecord::Modified(object) => (EventType::Modified, object),
            WatchRecord::Deleted(object) => (EventType::Deleted, object),
            WatchRecord::Bookmark { resource_version, initial_events_end } => {
                self.on_data(cursor, Some(resource_version));
                metrics.inspect(|metrics| metrics.on_bookmark());
                if initial_events_end && cursor.position.on_initial_events_end() {
                    self.health.on_data(&self.what());
                    self.end_listing(cursor, consumer);
                }
                return Ok(false);
            }
            WatchRecord::Rejected { deleted, rejected } => {
                self.on_data(cursor, rejected.identity.resource_version().map(str::to_owned));
                self.reject(rejected, deleted, cursor, consumer);
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
        self.on_data(cursor, object.resource_version().map(str::to_owned));
        metrics.inspect(|metrics| metrics.on_record(kind));
        self.event(kind, object, cursor, consumer)?;
        Ok(false)
    }

    /// Passes on an object, unless it does not belong to this watch.
    pub(super) fn event(
        &self,
        kind: EventType,
        object: Object,
        cursor: &mut Cursor,
        consumer: &mut dyn WatchConsumer,
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
        consumer.event(kind, &Arc::new(object));
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
    pub(super) fn reject(
        &self,
        rejected: RejectedObject,
        deleted: bool,
        cursor: &mut Cursor,
        consumer: &mut dyn WatchConsumer,
    ) {
        let RejectedObject { identity, error } = rejected;
        let identity = Arc::new(identity);
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
            self.host.log(LogRecord::local(Level::Error, &identity, text));
        }
        self.health.rejected(&self.what(), cursor.rejections.len());
        consumer.rejected(&identity, deleted);
    }

    /// The object with its type, which objects with only metadata do not have.
    pub(super) fn restored(&self, object: Object) -> Result<Object, RequestError> {
        let restored: Result<_, DecodeError> = self.projection.with_type_meta(object, &self.resource);
        restored.map_err(|error| self.malformed(&error))
    }

    /// A record was received, with its version.
    fn on_data(&self, cursor: &mut Cursor, version: Option<String>) {
        if cursor.position.on_record(version) {
            self.health.on_data(&self.what());
        }
    }
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
