//! Watches: the event stream of one resource for one client.
//!
//! A watch stores the resource version up to which it has sent events, and reads the rest from the store's history when
//! it is notified. There is no queue per watch, so no event is lost, and an idle watch costs nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::base::user::User;
use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::http::accept::OutputFormat;
use crate::http::partial::partial;
use crate::http::render;
use crate::http::response::{BodyStream, NextChunk};
use crate::http::table::{self, IncludeObject};
use crate::registry::selectors::{FieldSelector, LabelSelector, ShardSelector};
use crate::scheme::resources::Resource;
use crate::storage::object::{Event, Stored};
use crate::storage::store::{EventBatch, TableWatch};
use crate::testkit::faults::RequestClient;
use crate::webhook::conversion;

/// Interval of bookmarks.
const BOOKMARK: Duration = Duration::from_mins(1);
/// Target size of a chunk: events that are available together are sent together.
const CHUNK: usize = 64 * 1024;
/// Bytes of events that are read from the history at once, to limit the memory of slow clients.
const READ_BYTES: usize = 1 << 20;
/// Maximum size of an event without its object.
const EVENT_OVERHEAD: usize = 40;

/// A burst is more than `BURST_EVENTS` events within `BURST_WINDOW`. During a burst, a watch pauses before it reads
/// more events and sends them in one chunk. Single events are sent without delay.
const BURST_EVENTS: usize = 64;
const BURST_WINDOW: Duration = Duration::from_millis(10);
const BURST_PAUSE: Duration = Duration::from_millis(1);

/// Detection of bursts of events.
#[derive(Debug)]
struct RateMonitor {
    window_start: Instant,
    last_recorded: Instant,
    count: usize,
    burst: bool,
}

impl RateMonitor {
    fn record(&mut self, count: usize) {
        let now = Instant::now();
        let elapsed = now - self.window_start;
        if elapsed >= BURST_WINDOW {
            self.burst = elapsed < 2 * BURST_WINDOW && self.count > BURST_EVENTS;
            self.window_start = now;
            self.count = 0;
        }
        self.last_recorded = now;
        self.count += count;
        self.burst |= self.count > BURST_EVENTS;
    }
    async fn pause_if_busy(&self) {
        let now = Instant::now();
        // With a paused clock, the pause would not end.
        if self.burst && now > self.last_recorded && now - self.window_start < 2 * BURST_WINDOW {
            sleep_until(now + BURST_PAUSE).await;
        }
    }
}

/// Selection of objects by a list or a watch.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    pub(crate) shards: Vec<ShardSelector>,
}

impl Filter {
    pub(crate) fn matches(&self, object: &Stored) -> bool {
        self.namespace.as_deref().is_none_or(|ns| *object.namespace == *ns)
            && self.name.as_deref().is_none_or(|name| *object.name == *name)
            && self.labels.matches(|key| object.label(key))
            && (self.fields.is_empty() || self.fields.matches(object))
            && (self.shards.is_empty() || self.shards.iter().any(|s| s.matches(object)))
    }
}

/// Options of a watch.
#[derive(Debug)]
pub(crate) struct WatchOptions {
    pub(crate) format: OutputFormat,
    pub(crate) include: IncludeObject,
    pub(crate) bookmarks: bool,
    pub(crate) initial: bool,
    pub(crate) initial_end: bool,
    pub(crate) timeout: Duration,
    /// The user and the `user-agent` of the client, which faults select.
    pub(crate) user: Arc<User>,
    pub(crate) agent: Box<str>,
}

/// An open watch.
pub(crate) struct Watch {
    cluster: Arc<Cluster>,
    resource: Arc<Resource>,
    filter: Filter,
    options: WatchOptions,
    cursor: u64,
    wake: TableWatch,
    fault_signal: tokio::sync::watch::Receiver<u64>,
    fault_seen: u64,
    /// Chunks to send. The last one is still being filled in `open`.
    ready: VecDeque<Bytes>,
    open: Vec<u8>,
    /// Objects of the initial state that are not sent yet. Their events are written when chunks can be sent.
    initial: Option<std::vec::IntoIter<Arc<Stored>>>,
    /// Whether these objects have the version of the resource.
    is_initial_converted: bool,
    rate: RateMonitor,
    deadline: Instant,
    bookmark_at: Instant,
    columns_sent: bool,
    is_finished: bool,
}

impl Watch {
    pub(crate) fn new(
        cluster: &Arc<Cluster>,
        resource: &Arc<Resource>,
        filter: Filter,
        from: u64,
        options: WatchOptions,
    ) -> Self {
        let now = Instant::now();
        let fault_signal = cluster.faults.watch_signal();
        let fault_seen = *fault_signal.borrow();
        let wake = cluster.store.subscribe(&resource.store_key);
        let mut out = Self {
            cluster: cluster.clone(),
            resource: resource.clone(),
            filter,
            cursor: from,
            wake,
            fault_seen,
            fault_signal,
            ready: VecDeque::new(),
            open: Vec::new(),
            initial: None,
            is_initial_converted: false,
            rate: RateMonitor { window_start: now, last_recorded: now, count: 0, burst: false },
            deadline: now + options.timeout,
            bookmark_at: now + BOOKMARK,
            columns_sent: false,
            is_finished: false,
            options,
        };
        let current = cluster.store.version();
        if from > current {
            out.write_error(&Status::future_version(from, current));
        } else if out.options.initial {
            out.start_initial_events();
        }
        out
    }

    /// Reads the initial state, which is sent as synthetic ADDED events.
    fn start_initial_events(&mut self) {
        let snapshot = self.cluster.store.list(&self.resource.store_key, self.filter.namespace.as_deref());
        self.cursor = snapshot.version;
        self.initial = Some(snapshot.objects.into_iter());
    }

    /// Converts the initial state, if a webhook does that.
    async fn convert_initial_events(&mut self) {
        if std::mem::replace(&mut self.is_initial_converted, true) {
            return;
        }
        let Some(objects) = self.initial.take() else { return };
        match conversion::from_storage(&self.resource, objects.collect()).await {
            Ok(objects) => self.initial = Some(objects.into_iter()),
            Err(status) => self.write_error(&status),
        }
    }

    /// Writes the next initial events.
    fn write_initial_events(&mut self) {
        while let (Some(initial), true) = (&mut self.initial, self.ready.is_empty()) {
            if let Some(object) = initial.next() {
                if self.filter.matches(&object) {
                    self.write_event("ADDED", &object);
                }
                continue;
            }
            self.initial = None;
            if self.options.initial_end {
                self.bookmark(true);
            }
            self.close_chunk();
        }
    }

    fn close_chunk(&mut self) {
        if !self.open.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.open).into());
        }
    }

    fn write_error(&mut self, status: &Status) {
        let line = format!("{}\n", json!({"type": "ERROR", "object": status.to_value()}));
        self.open.extend_from_slice(line.as_bytes());
        self.close_chunk();
        self.is_finished = true;
    }

    /// Waits for the next chunk; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.cluster.faults.is_watch_cut(&self.resource.plural, &mut self.fault_seen) {
                return None;
            }
            if !self.is_silenced() {
                self.convert_initial_events().await;
                self.write_initial_events();
                if let Some(lines) = self.ready.pop_front() {
                    return Some(lines);
                }
                if self.is_finished {
                    return None;
                }
                self.rate.pause_if_busy().await;
                self.wake.borrow_and_update();
                let is_behind = self.collect().await;
                if self.is_finished || is_behind || !self.ready.is_empty() {
                    continue;
                }
            }
            let next =
                if self.options.bookmarks { self.deadline.min(self.bookmark_at) } else { self.deadline };
            tokio::select! {
                changed = self.wake.changed() => {
                    // The resource is no longer served, or its CRD has changed.
                    if changed.is_err() { return None; }
                }
                _ = self.fault_signal.changed() => {}
                () = sleep_until(next) => {
                    let now = Instant::now();
                    if now >= self.deadline {
                        return None;
                    }
                    self.bookmark_at = now + BOOKMARK;
                    // A watch that is behind or silenced sends no bookmark.
                    let is_behind = self.initial.is_some() || self.collect().await;
                    if !is_behind && !self.is_silenced() {
                        self.bookmark(false);
                        self.close_chunk();
                    }
                }
            }
        }
    }

    fn is_silenced(&self) -> bool {
        let client = RequestClient { user: &self.options.user.name, agent: &self.options.agent };
        self.cluster.faults.is_silenced(&self.resource.plural, client)
    }

    /// Reads and writes the next events. Returns whether there are more.
    async fn collect(&mut self) -> bool {
        match self.cluster.store.events_since(&self.resource.store_key, &self.wake, self.cursor, READ_BYTES) {
            Ok(EventBatch { events, version, is_complete }) => {
                self.rate.record(events.len());
                let events = match self.converted(events).await {
                    Ok(events) => events,
                    Err(status) => {
                        self.write_error(&status);
                        return false;
                    }
                };
                let size = |event: &Arc<Event>| event.after.json.len() + EVENT_OVERHEAD;
                let mut left: usize = events.iter().map(size).sum();
                for event in &events {
                    if self.open.is_empty() {
                        self.open.reserve(left.min(CHUNK + CHUNK / 4));
                    }
                    left = left.saturating_sub(size(event));
                    self.on_event(event);
                }
                self.close_chunk();
                // Events are complete up to this version, as a bookmark requires.
                self.cursor = self.cursor.max(version);
                !is_complete
            }
            Err(oldest) => {
                self.write_error(&Status::gone(format!(
                    "too old resource version: {} ({oldest})",
                    self.cursor
                )));
                false
            }
        }
    }

    /// The events with their objects in the version of the resource.
    async fn converted(&self, events: Vec<Arc<Event>>) -> Result<Vec<Arc<Event>>, Status> {
        if !self.resource.is_converted_by_webhook() {
            return Ok(events);
        }
        let mut out = Vec::with_capacity(events.len());
        for event in events {
            let states = event.before.iter().chain([&event.after]).cloned().collect();
            let mut states = conversion::from_storage(&self.resource, states).await?;
            let Some(after) = states.pop() else { continue };
            out.push(Arc::new(Event { before: states.pop(), after, ..*event }));
        }
        Ok(out)
    }

    /// Handles an event: an object that enters the selection is ADDED; one that leaves it is DELETED, in its previous
    /// state.
    fn on_event(&mut self, event: &Event) {
        let before = event.before.as_ref().filter(|o| self.filter.matches(o));
        let after = !event.deleted && self.filter.matches(&event.after);
        match (before, after) {
            (None, true) => self.write_event("ADDED", &event.after),
            (Some(_), true) => self.write_event("MODIFIED", &event.after),
            (Some(_), false) if event.deleted => self.write_event("DELETED", &event.after),
            (Some(before), false) => self.write_event("DELETED", &before.with_version(event.version)),
            (None, false) => {}
        }
    }

    fn write_event(&mut self, kind: &str, object: &Stored) {
        if self.rejects_format() {
            return;
        }
        // Taken out of `self`, since writing borrows the other fields.
        let mut out = std::mem::take(&mut self.open);
        out.reserve(object.json.len() + EVENT_OVERHEAD);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        match self.options.format {
            OutputFormat::Object => out.extend_from_slice(&render::object_json(object, &self.resource)),
            OutputFormat::Partial(version) | OutputFormat::PartialList(version) => {
                let value = render::object_value(object, &self.resource);
                out.extend_from_slice(partial(&value, version).to_string().as_bytes());
            }
            OutputFormat::Table(meta) => {
                let value = render::object_value(object, &self.resource);
                let version = object.version.to_string().into();
                // Only the first event contains the column definitions.
                let mut header = table::header(&self.resource, &version, !self.columns_sent, meta);
                if self.columns_sent {
                    header.insert("columnDefinitions".into(), Value::Null);
                }
                self.columns_sent = true;
                let row = table::row(&self.resource, &value, self.options.include, meta);
                header.insert("rows".into(), Value::Array(vec![row]));
                out.extend_from_slice(Value::Object(header).to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"}\n");
        self.open = out;
        if self.open.len() >= CHUNK {
            self.close_chunk();
        }
    }

    /// Whether events cannot be shown in the requested format. kube-apiserver ends such a watch at its first event;
    /// errors are sent.
    fn rejects_format(&mut self) -> bool {
        self.is_finished |= matches!(self.options.format, OutputFormat::PartialList(_));
        self.is_finished
    }

    fn bookmark(&mut self, end: bool) {
        if self.rejects_format() {
            return;
        }
        let mut meta = json!({"resourceVersion": self.cursor.to_string()});
        if end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = match self.options.format {
            OutputFormat::Object => (self.resource.kind.clone(), self.resource.api_version()),
            OutputFormat::Partial(version) | OutputFormat::PartialList(version) => {
                ("PartialObjectMetadata".into(), version.api_version().into())
            }
            OutputFormat::Table(version) => ("Table".into(), version.api_version().into()),
        };
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": meta});
        let line = format!("{}\n", json!({"type": "BOOKMARK", "object": object}));
        self.open.extend_from_slice(line.as_bytes());
    }
}

impl BodyStream for Watch {
    fn next_chunk(mut self: Box<Self>) -> NextChunk {
        Box::pin(async move {
            let lines = self.next().await?;
            Some((self as Box<dyn BodyStream>, lines))
        })
    }
}
