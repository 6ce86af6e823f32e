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
use crate::kinds::Resource;
use crate::request::Shape;
use crate::response;
use crate::selectors::{Fields, Labels, Shard};
use crate::status::Status;
use crate::store::{Event, Stored};
use crate::table::{self, Include};

/// How often a bookmark tells the newest version.
const BOOKMARK: Duration = Duration::from_mins(1);

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
    ready: VecDeque<Bytes>,
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
        let chosen: Vec<&Arc<Stored>> = snapshot.objects.iter().filter(|o| self.filter.matches(o)).collect();
        for object in chosen {
            let line = self.line("ADDED", object);
            self.tell(line);
        }
        self.cursor = snapshot.version;
        if self.manner.initial_end {
            let line = self.bookmark(true);
            self.tell(line);
        }
    }

    /// An object cannot be shown as a list of objects: a real server gives up at the first one. It can tell errors.
    fn tell(&mut self, line: Bytes) {
        if self.manner.shape == Shape::PartialList {
            self.over = true;
        } else {
            self.ready.push_back(line);
        }
    }

    fn fail(&mut self, status: &Status) {
        let line = format!("{}\n", json!({"type": "ERROR", "object": status.to_value()}));
        self.ready.push_back(line.into());
        self.over = true;
    }

    /// The next line, or the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.cluster.faults.cuts(&self.resource.plural, &mut self.fault_seen) {
                return None;
            }
            if !self.cluster.faults.silences(&self.resource.plural) {
                if let Some(line) = self.ready.pop_front() {
                    return Some(line);
                }
                if self.over {
                    return None;
                }
                self.wake.borrow_and_update();
                self.collect();
                if self.over || !self.ready.is_empty() {
                    continue;
                }
            }
            let next =
                if self.manner.bookmarks { self.deadline.min(self.bookmark_at) } else { self.deadline };
            tokio::select! {
                changed = self.wake.changed() => {
                    // The kind is gone: so is its stream.
                    if changed.is_err() && self.ready.is_empty() { return None; }
                }
                _ = self.fault.changed() => {}
                () = sleep_until(next) => {
                    let now = Instant::now();
                    if now >= self.deadline {
                        return None;
                    }
                    self.bookmark_at = now + BOOKMARK;
                    self.collect();
                    let line = self.bookmark(false);
                    self.tell(line);
                }
            }
        }
    }

    fn collect(&mut self) {
        match self.cluster.store.since(&self.resource.store_key, self.cursor) {
            Ok((events, version)) => {
                for event in events {
                    if let Some(line) = self.told(&event) {
                        self.tell(line);
                    }
                }
                // Complete up to here, which is what a bookmark may promise.
                self.cursor = self.cursor.max(version);
            }
            Err(oldest) => {
                self.fail(&Status::gone(format!("too old resource version: {} ({oldest})", self.cursor)));
            }
        }
    }

    /// An event as this reader sees it: what enters its selection is added, what leaves it is deleted, as it was before that.
    fn told(&mut self, event: &Event) -> Option<Bytes> {
        let before = event.before.as_ref().filter(|o| self.filter.matches(o));
        let after = !event.deleted && self.filter.matches(&event.after);
        match (before, after) {
            (None, true) => Some(self.line("ADDED", &event.after)),
            (Some(_), true) => Some(self.line("MODIFIED", &event.after)),
            (Some(_), false) if event.deleted => Some(self.line("DELETED", &event.after)),
            (Some(before), false) => Some(self.line("DELETED", &before.at(event.version))),
            (None, false) => None,
        }
    }

    fn line(&mut self, kind: &str, object: &Stored) -> Bytes {
        let mut out = Vec::with_capacity(object.json.len() + 40);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        match self.manner.shape {
            Shape::Object => out.extend_from_slice(&response::view(object, &self.resource)),
            Shape::Partial | Shape::PartialList => {
                let value = response::view_value(object, &self.resource);
                out.extend_from_slice(response::partial(&value).to_string().as_bytes());
            }
            Shape::Table => {
                let value = response::view_value(object, &self.resource);
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
        out.into()
    }

    fn bookmark(&self, end: bool) -> Bytes {
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
        format!("{}\n", json!({"type": "BOOKMARK", "object": object})).into()
    }
}
