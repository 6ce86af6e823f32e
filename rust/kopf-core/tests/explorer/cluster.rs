//! The server's side of the model: one object, its versions, and what the operator's stream has not told yet.
//!
//! Must not know: operators, handlers, laws.

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

/// One state of the object. It is decoded once, however many operators and copies of the model look at it.
#[derive(Debug)]
pub struct Version {
    pub number: u64,
    pub body: Value,
    pub object: Arc<Object>,
    /// What the author wants, without what handlers have written.
    pub essence: String,
    /// What is kept as handled.
    pub base: Option<String>,
    /// Of everything but the number.
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

/// What of an essence is the author's: handlers write a field of theirs.
pub fn intent(essence: &Value) -> String {
    let mut intent = essence.clone();
    if let Some(spec) = intent.get_mut("spec").and_then(Value::as_object_mut) {
        spec.shift_remove("stamp");
    }
    intent.to_string()
}

/// What the stream has yet to tell.
#[derive(Clone, Debug)]
pub struct Told {
    pub kind: EventType,
    pub version: Arc<Version>,
    /// It comes before this moment.
    pub by: Timestamp,
}

/// The server did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such object.
    Gone,
    /// Somebody was faster.
    Conflict,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub latest: Arc<Version>,
    pub exists: bool,
    pub stream: VecDeque<Told>,
    pub now: Timestamp,
    /// Seconds for which news may be under way.
    pub lag: f64,
    /// The latest version is the operator's own.
    pub ours: bool,
    /// How many writes of the operator have changed the object.
    pub writes: u32,
}

impl Cluster {
    pub fn new(lag: f64) -> Self {
        let body = json!({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "spec": {"x": 0},
                          "metadata": {"name": "x", "namespace": "ns", "uid": "u"}});
        let now = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        let latest = Version::new(100, body);
        let told = Told { kind: EventType::Added, version: Arc::clone(&latest), by: now.plus(lag) };
        Self { latest, exists: true, stream: VecDeque::from([told]), now, lag, ours: false, writes: 0 }
    }

    /// Whether that much time may go by without any of the news having come.
    pub fn may_pass(&self, until: Timestamp) -> bool {
        self.stream.front().is_none_or(|told| until <= told.by && self.lag > 0.0)
    }

    /// Somebody else changes the object.
    pub fn edit(&mut self, patch: &Value) {
        let mut body = self.latest.body.clone();
        merge(&mut body, patch);
        self.put(body);
    }

    /// Somebody wants the object to go.
    pub fn delete(&mut self) {
        self.edit(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    }

    /// Somebody cleans up what they do not know.
    pub fn strip(&mut self) {
        self.edit(&json!({"metadata": {"annotations": null}}));
    }

    /// Somebody else's finalizer comes or goes.
    pub fn guard(&mut self, on: bool) {
        let mut body = self.latest.body.clone();
        finalizer::edit(&mut body, THEIRS, if on { Edit::Block } else { Edit::Allow });
        self.put(body);
    }

    /// The operator's merge patch.
    pub fn merge_patch(&mut self, patch: &Value) -> Result<(), Refusal> {
        let mut body = self.latest.body.clone();
        merge(&mut body, patch);
        self.write(body)
    }

    /// The operator's JSON patch: made for one version, and refused for any other one.
    pub fn replace(&mut self, made_for: u64, body: Value) -> Result<(), Refusal> {
        if self.exists && made_for != self.latest.number {
            return Err(Refusal::Conflict);
        }
        self.write(body)
    }

    fn write(&mut self, body: Value) -> Result<(), Refusal> {
        if !self.exists {
            return Err(Refusal::Gone);
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
        // What changes nothing makes no version, and nobody hears of it.
        if version.digest == self.latest.digest {
            return;
        }
        self.exists = !version.is_deleting() || version.is_blocked() || version.has_theirs();
        let kind = if self.exists { EventType::Modified } else { EventType::Deleted };
        self.latest = Arc::clone(&version);
        self.ours = false;
        self.stream.push_back(Told { kind, version, by: self.now.plus(self.lag) });
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
    // The server drops maps that have become empty, in the metadata.
    if let Some(metadata) = target.get_mut("metadata").and_then(Value::as_object_mut) {
        let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
        metadata.retain(|key, value| !(matches!(key.as_str(), "labels" | "annotations") && is_empty(value)));
    }
}
