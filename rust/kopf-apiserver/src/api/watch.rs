//! Watches: the stream of one resource's changes for one reader.
//!
//! A watch remembers the version up to which it has told everything, and reads the rest from the store's history when it
//! is woken; nothing is queued for it, so nothing can be lost, and an idle watch costs nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::http::partial::partial;
use crate::http::render;
use crate::http::request::Shape;
use crate::http::response::{BodyStream, NextChunk};
use crate::http::table::{self, Include};
use crate::registry::selectors::{Fields, Labels, Shard};
use crate::scheme::resources::Resource;
use crate::storage::store::{Event, News, Stored};

/// How often a bookmark tells the newest version.
const BOOKMARK: Duration = Duration::from_mins(1);
/// Lines go out together, as far as they are there, up to about this size.
const CHUNK: usize = 64 * 1024;
/// About so many bytes of changes are made lines of at once: a reader that is far behind does not get all in memory.
const PORTION: usize = 1 << 20;
/// What a line has besides its object, at most.
const HEAD: usize = 40;

/// How a reader is told of a storm: after so many changes in so short a time, it looks for more only after a pause, and they go
/// out together. Who is told of one change after another, as an answer to what it does itself, never waits.
const STORM: usize = 64;
const STORM_TIME: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(1);

/// How fast changes come.
#[derive(Debug)]
struct Pace {
    since: Instant,
    looked: Instant,
    count: usize,
    storm: bool,
}

impl Pace {
    fn note(&mut self, count: usize) {
        let now = Instant::now();
        let passed = now - self.since;
        if passed >= STORM_TIME {
            self.storm = passed < 2 * STORM_TIME && self.count > STORM;
            self.since = now;
            self.count = 0;
        }
        self.looked = now;
        self.count += count;
        self.storm |= self.count > STORM;
    }
    async fn keep(&self) {
        let now = Instant::now();
        // Where time stands still, nothing is fast, and a pause would have no end.
        if self.storm && now > self.looked && now - self.since < 2 * STORM_TIME {
            sleep_until(now + PAUSE).await;
        }
    }
}

/// Which objects a list or a watch is about.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) labels: Labels,
    pub(crate) fields: Fields,
    pub(crate) shards: Vec<Shard>,
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

/// How a watch speaks.
#[derive(Debug)]
pub(crate) struct Manner {
    pub(crate) shape: Shape,
    pub(crate) include: Include,
    pub(crate) bookmarks: bool,
    pub(crate) initial: bool,
    pub(crate) initial_end: bool,
    pub(crate) timeout: Duration,
}

/// One open watch.
pub(crate) struct Watch {
    cluster: Arc<Cluster>,
    resource: Arc<Resource>,
    filter: Filter,
    manner: Manner,
    cursor: u64,
    wake: tokio::sync::watch::Receiver<u64>,
    fault: tokio::sync::watch::Receiver<u64>,
    fault_seen: u64,
    /// Lines that are to go out, in chunks; the last ones are still gathered in `open`.
    ready: VecDeque<Bytes>,
    open: Vec<u8>,
    /// The objects that were there at the beginning, as far as they are not yet sent; their lines are made when those can
    /// go out.
    initial: Option<std::vec::IntoIter<Arc<Stored>>>,
    pace: Pace,
    deadline: Instant,
    bookmark_at: Instant,
    columns_sent: bool,
    over: bool,
}

impl Watch {
    pub(crate) fn new(
        cluster: &Arc<Cluster>,
        resource: &Arc<Resource>,
        filter: Filter,
        from: u64,
        manner: Manner,
    ) -> Self {
        let now = Instant::now();
        let fault = cluster.faults.watch_signal();
        let fault_seen = *fault.borrow();
        let wake = cluster.store.subscribe(&resource.store_key);
        let mut out = Self {
            cluster: cluster.clone(),
            resource: resource.clone(),
            filter,
            cursor: from,
            wake,
            fault_seen,
            fault,
            ready: VecDeque::new(),
            open: Vec::new(),
            initial: None,
            pace: Pace { since: now, looked: now, count: 0, storm: false },
            deadline: now + manner.timeout,
            bookmark_at: now + BOOKMARK,
            columns_sent: false,
            over: false,
            manner,
        };
        let current = cluster.store.version();
        if from > current {
            out.fail(&Status::future_version(from, current));
        } else if out.manner.initial {
            out.begin();
        }
        out
    }

    /// Tells what there is as if it had just been added.
    fn begin(&mut self) {
        let snapshot = self.cluster.store.list(&self.resource.store_key, self.filter.namespace.as_deref());
        self.cursor = snapshot.version;
        let chosen: Vec<Arc<Stored>> =
            snapshot.objects.into_iter().filter(|object| self.filter.matches(object)).collect();
        self.initial = Some(chosen.into_iter());
    }

    /// Makes the next lines of what there was at the beginning.
    fn go_on(&mut self) {
        while let (Some(initial), true) = (&mut self.initial, self.ready.is_empty()) {
            if let Some(object) = initial.next() {
                self.tell("ADDED", &object);
                continue;
            }
            self.initial = None;
            if self.manner.initial_end {
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

    fn fail(&mut self, status: &Status) {
        let line = format!("{}\n", json!({"type": "ERROR", "object": status.to_value()}));
        self.open.extend_from_slice(line.as_bytes());
        self.close_chunk();
        self.over = true;
    }

    /// The next lines, or the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.cluster.faults.cuts(&self.resource.plural, &mut self.fault_seen) {
                return None;
            }
            if !self.cluster.faults.silences(&self.resource.plural) {
                self.go_on();
                if let Some(lines) = self.ready.pop_front() {
                    return Some(lines);
                }
                if self.over {
                    return None;
                }
                self.pace.keep().await;
                self.wake.borrow_and_update();
                let is_behind = self.collect();
                if self.over || is_behind || !self.ready.is_empty() {
                    continue;
                }
            }
            let next =
                if self.manner.bookmarks { self.deadline.min(self.bookmark_at) } else { self.deadline };
            tokio::select! {
                changed = self.wake.changed() => {
                    // The kind is gone: so is its stream.
                    if changed.is_err() { return None; }
                }
                _ = self.fault.changed() => {}
                () = sleep_until(next) => {
                    let now = Instant::now();
                    if now >= self.deadline {
                        return None;
                    }
                    self.bookmark_at = now + BOOKMARK;
                    // A watch that is behind, or silenced, has no use for it.
                    let is_behind = self.initial.is_some() || self.collect();
                    if !is_behind && !self.cluster.faults.silences(&self.resource.plural) {
                        self.bookmark(false);
                        self.close_chunk();
                    }
                }
            }
        }
    }

    /// Makes lines of the next changes; whether there are more of them.
    fn collect(&mut self) -> bool {
        match self.cluster.store.since(&self.resource.store_key, self.cursor, PORTION) {
            Ok(News { events, version, is_all }) => {
                self.pace.note(events.len());
                let size = |event: &Arc<Event>| event.after.json.len() + HEAD;
                let mut left: usize = events.iter().map(size).sum();
                for event in &events {
                    if self.open.is_empty() {
                        self.open.reserve(left.min(CHUNK + CHUNK / 4));
                    }
                    left = left.saturating_sub(size(event));
                    self.told(event);
                }
                self.close_chunk();
                // Complete up to here, which is what a bookmark may promise.
                self.cursor = self.cursor.max(version);
                !is_all
            }
            Err(oldest) => {
                self.fail(&Status::gone(format!("too old resource version: {} ({oldest})", self.cursor)));
                false
            }
        }
    }

    /// An event as this reader sees it: what enters its selection is added, what leaves it is deleted, as it was before that.
    fn told(&mut self, event: &Event) {
        let before = event.before.as_ref().filter(|o| self.filter.matches(o));
        let after = !event.deleted && self.filter.matches(&event.after);
        match (before, after) {
            (None, true) => self.tell("ADDED", &event.after),
            (Some(_), true) => self.tell("MODIFIED", &event.after),
            (Some(_), false) if event.deleted => self.tell("DELETED", &event.after),
            (Some(before), false) => self.tell("DELETED", &before.at(event.version)),
            (None, false) => {}
        }
    }

    fn tell(&mut self, kind: &str, object: &Stored) {
        if self.refuses_lists() {
            return;
        }
        // Taken out, since what is written into it asks for what is beside it.
        let mut out = std::mem::take(&mut self.open);
        out.reserve(object.json.len() + HEAD);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        match self.manner.shape {
            Shape::Object => out.extend_from_slice(&render::view(object, &self.resource)),
            Shape::Partial | Shape::PartialList => {
                let value = render::view_value(object, &self.resource);
                out.extend_from_slice(partial(&value).to_string().as_bytes());
            }
            Shape::Table => {
                let value = render::view_value(object, &self.resource);
                let version = object.version.to_string().into();
                // Only the first row brings the columns along.
                let mut head = table::head(&self.resource, &version, !self.columns_sent);
                if self.columns_sent {
                    head.insert("columnDefinitions".into(), Value::Null);
                }
                self.columns_sent = true;
                let row = table::row(&self.resource, &value, self.manner.include, true);
                head.insert("rows".into(), Value::Array(vec![row]));
                out.extend_from_slice(Value::Object(head).to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"}\n");
        self.open = out;
        if self.open.len() >= CHUNK {
            self.close_chunk();
        }
    }

    /// An object cannot be shown as a list of objects: a real server gives up at the first one. It can tell errors.
    fn refuses_lists(&mut self) -> bool {
        self.over |= self.manner.shape == Shape::PartialList;
        self.over
    }

    fn bookmark(&mut self, end: bool) {
        if self.refuses_lists() {
            return;
        }
        let mut meta = json!({"resourceVersion": self.cursor.to_string()});
        if end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = match self.manner.shape {
            Shape::Object => (self.resource.kind.clone(), self.resource.api_version()),
            Shape::Partial | Shape::PartialList => ("PartialObjectMetadata".into(), "meta.k8s.io/v1".into()),
            Shape::Table => ("Table".into(), "meta.k8s.io/v1".into()),
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
