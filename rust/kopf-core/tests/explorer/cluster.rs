//! The API server of the model: one object, its versions, and undelivered watch events.
//!
//! The module must not depend on operators, handlers, or invariants.

use kopf_core::cause::EventType;
use kopf_core::object::Object;
use kopf_core::persistence::Persistence;
use kopf_core::persistence::essence::essence;
use kopf_core::persistence::finalizer::{self, Edit};
use kopf_core::time::Timestamp;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

pub const OURS: &str = "kopf.zalando.org/KopfFinalizerMarker";
pub const THEIRS: &str = "example.com/theirs";
pub const BASE: &str = "kopf.zalando.org/last-handled-configuration";

/// One version of the object, decoded once and shared by all copies of the model.
#[derive(Debug)]
pub struct Version {
    pub number: u64,
    pub body: Value,
    pub object: Arc<Object>,
    /// The author's part of the essence, without changes by handlers.
    pub essence: String,
    /// The diff-base.
    pub base: Option<String>,
    /// A hash of the body without the resource version.
    pub digest: u64,
}

impl Version {
    fn new(number: u64, mut body: Value) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        body["metadata"]["resourceVersion"] = json!("");
        body.to_string().hash(&mut hasher);
        body["metadata"]["resourceVersion"] = json!(number.to_string());
        let object = Arc::new(Object::decode(&body.to_string()).unwrap());
        let ours = Persistence::default();
        let essence = intent(&essence(&object, &ours, &[]));
        let in_status = || Some(body.pointer("/status/base")?.as_str()?.to_owned().into());
        let base = object.annotation(BASE).or_else(in_status).map(|text| match serde_json::from_str(&text) {
            Ok(base) => intent(&base),
            Err(_) => text.into_owned(),
        });
        Arc::new(Self { number, body, object, essence, base, digest: hasher.finish() })
    }

    pub fn is_deleting(&self) -> bool {
        self.object.deletion_timestamp().is_some()
    }

    pub fn is_blocked(&self) -> bool {
        self.object.has_finalizer(OURS)
    }

    pub fn has_theirs(&self) -> bool {
        self.object.has_finalizer(THEIRS)
    }
}

/// The author's part of an essence: without the field that handlers write.
pub fn intent(essence: &Value) -> String {
    let mut intent = essence.clone();
    if let Some(spec) = intent.get_mut("spec").and_then(Value::as_object_mut) {
        spec.shift_remove("stamp");
    }
    intent.to_string()
}

/// An undelivered watch event.
#[derive(Clone, Debug)]
pub struct QueuedEvent {
    pub kind: EventType,
    pub version: Arc<Version>,
    /// The time by which it is delivered.
    pub by: Timestamp,
}

/// A rejection of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Status 404.
    Gone,
    /// Status 409 or 422: another client has changed the object.
    Conflict,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub latest: Arc<Version>,
    pub exists: bool,
    pub stream: VecDeque<QueuedEvent>,
    pub now: Timestamp,
    /// Maximum delay of watch events, in seconds.
    pub lag: f64,
    /// The duration of a handler's call, in seconds.
    pub call_time: f64,
    /// Whether the operator wrote the latest version.
    pub ours: bool,
    /// Number of writes of the operator that changed the object.
    pub writes: u32,
    /// All versions, in order.
    history: Vec<Arc<Version>>,
}

impl Cluster {
    pub fn new(lag: f64, call_time: f64) -> Self {
        let body = json!({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "spec": {"x": 0},
                          "metadata": {"name": "x", "namespace": "ns", "uid": "u"}});
        let now = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        let latest = Version::new(100, body);
        let event = QueuedEvent { kind: EventType::Added, version: Arc::clone(&latest), by: now.plus(lag) };
        let history = vec![Arc::clone(&latest)];
        Self {
            latest,
            exists: true,
            stream: VecDeque::from([event]),
            now,
            lag,
            call_time,
            ours: false,
            writes: 0,
            history,
        }
    }

    /// The version with this state.
    pub fn version_of(&self, object: &Object) -> Arc<Version> {
        let is_it = |version: &&Arc<Version>| version.object.resource_version() == object.resource_version();
        Arc::clone(self.history.iter().rev().find(is_it).unwrap())
    }

    /// Whether the clock may advance to this time before the next watch event is delivered.
    pub fn may_pass(&self, until: Timestamp) -> bool {
        self.stream.front().is_none_or(|event| until <= event.by && self.lag > 0.0)
    }

    /// Another client changes the object by a merge patch.
    pub fn edit(&mut self, patch: &Value) {
        let mut body = self.latest.body.clone();
        merge(&mut body, patch);
        self.put(body);
    }

    /// Another client deletes the object.
    pub fn delete(&mut self) {
        self.edit(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    }

    /// Another client removes all annotations.
    pub fn strip(&mut self) {
        self.edit(&json!({"metadata": {"annotations": null}}));
    }

    /// Another controller adds or removes its finalizer.
    pub fn set_foreign_finalizer(&mut self, on: bool) {
        let mut body = self.latest.body.clone();
        finalizer::edit(&mut body, THEIRS, if on { Edit::Block } else { Edit::Allow });
        self.put(body);
    }

    /// The operator's merge patch.
    pub fn merge_patch(&mut self, patch: &Value) -> Result<(), Rejection> {
        let mut body = self.latest.body.clone();
        merge(&mut body, patch);
        self.write(body)
    }

    /// The effect of a JSON patch of the operator: made for one version, and rejected for any other.
    pub fn replace(&mut self, made_for: u64, body: Value) -> Result<(), Rejection> {
        if self.exists && made_for != self.latest.number {
            return Err(Rejection::Conflict);
        }
        self.write(body)
    }

    fn write(&mut self, body: Value) -> Result<(), Rejection> {
        if !self.exists {
            return Err(Rejection::Gone);
        }
        let (before, ours) = (self.latest.number, self.ours);
        self.put(body);
        let is_changed = self.latest.number != before;
        self.writes += u32::from(is_changed);
        self.ours = is_changed || ours;
        Ok(())
    }

    fn put(&mut self, body: Value) {
        let version = Version::new(self.latest.number + 1, body);
        // A write that changes nothing creates no version and causes no watch event.
        if version.digest == self.latest.digest {
            return;
        }
        self.exists = !version.is_deleting() || version.is_blocked() || version.has_theirs();
        let kind = if self.exists { EventType::Modified } else { EventType::Deleted };
        self.latest = Arc::clone(&version);
        self.history.push(Arc::clone(&version));
        self.ours = false;
        self.stream.push_back(QueuedEvent { kind, version, by: self.now.plus(self.lag) });
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        let map = target.as_object_mut().unwrap();
        if value.is_null() {
            map.shift_remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
    // The API server drops labels and annotations that have become empty.
    if let Some(metadata) = target.get_mut("metadata").and_then(Value::as_object_mut) {
        let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
        metadata.retain(|key, value| !(matches!(key.as_str(), "labels" | "annotations") && is_empty(value)));
    }
}
