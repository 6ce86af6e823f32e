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

/// The answer to a request: the body, or why it is not accepted.
pub type Answer = Result<Value, Rejection>;

/// An error response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// This status, without details.
    Status(u16),
    /// 422, because of this field.
    Field(&'static str),
    /// 404, which names the object.
    NoObject,
}

impl Rejection {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::Status(status) => status,
            Self::Field(_) => 422,
            Self::NoObject => 404,
        }
    }

    /// The body of the response.
    pub fn body(self) -> Value {
        let causes = |field: &str| json!({"causes": [{"field": field}]});
        let (reason, details) = match self {
            Self::Status(_) => (None, json!({})),
            Self::Field(field) => (Some("Invalid"), causes(field)),
            Self::NoObject => (Some("NotFound"), json!({"name": NAME})),
        };
        json!({"kind": "Status", "message": "no", "reason": reason, "details": details})
    }
}

/// The name of the object.
const NAME: &str = "x";

/// The uid of an object with the same name that follows a deleted one.
const SUCCESSOR: &str = "another";

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Cluster {
    pub latest: Arc<Version>,
    pub exists: bool,
    /// Whether another object has the name of the deleted one now.
    pub is_replaced: bool,
    pub stream: VecDeque<QueuedEvent>,
    pub now: Timestamp,
    /// Maximum delay of watch events, in seconds.
    pub lag: f64,
    /// The duration of a handler's call, in seconds.
    pub call_time: f64,
    /// Whether the status subresource checks the uid in a merge patch, as those of built-in resources do.
    pub is_built_in: bool,
    /// Whether the operator wrote the latest version.
    pub ours: bool,
    /// Number of writes of the operator that changed the object.
    pub writes: u32,
    /// All versions, in order.
    history: Vec<Arc<Version>>,
}

impl Cluster {
    pub fn new(lag: f64, call_time: f64, is_built_in: bool) -> Self {
        let body = json!({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "spec": {"x": 0},
                          "metadata": {"name": NAME, "namespace": "ns", "uid": "u"}});
        let now = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        let latest = Version::new(100, body);
        let event = QueuedEvent { kind: EventType::Added, version: Arc::clone(&latest), by: now.plus(lag) };
        let history = vec![Arc::clone(&latest)];
        Self {
            latest,
            exists: true,
            is_replaced: false,
            stream: VecDeque::from([event]),
            now,
            lag,
            call_time,
            is_built_in,
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

    /// Another client removes the operator's finalizer.
    pub fn unblock(&mut self) {
        let mut body = self.latest.body.clone();
        finalizer::edit(&mut body, OURS, Edit::Allow);
        self.put(body);
    }

    /// A list with the object of this name, if there is one.
    pub fn list(&self) -> Value {
        let items = if self.exists || self.is_replaced { vec![self.named()] } else { vec![] };
        json!({"kind": "KopfExampleList", "apiVersion": "kopf.dev/v1", "metadata": {}, "items": items})
    }

    /// The operator's merge patch: for all of the object, or for its status or the rest, if the status is a subresource.
    pub fn merge_patch(&mut self, patch: &Value, is_status: Option<bool>) -> Answer {
        let body = self.existing()?;
        let mut patch = patch.clone();
        if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
            // The uid in the patch of the status subresource of a custom resource is ignored.
            let is_checked = is_status != Some(true) || self.is_built_in;
            let uid = metadata.shift_remove("uid").filter(|_| is_checked);
            if uid.is_some_and(|uid| uid != body["metadata"]["uid"]) {
                return Err(Rejection::Field("metadata.uid"));
            }
            let version = metadata.shift_remove("resourceVersion");
            if version.is_some_and(|version| version != body["metadata"]["resourceVersion"]) {
                return Err(Rejection::Status(409));
            }
            if metadata.is_empty() {
                patch.as_object_mut().unwrap().shift_remove("metadata");
            }
        }
        let mut after = body.clone();
        merge(&mut after, &patch);
        self.write(&body, after, is_status)
    }

    /// The operator's JSON patch.
    pub fn json_patch(&mut self, operations: &Value, is_status: Option<bool>) -> Answer {
        let body = self.existing()?;
        let mut after = body.clone();
        if !apply(&mut after, operations) {
            return Err(Rejection::Status(422));
        }
        self.write(&body, after, is_status)
    }

    /// The object after a JSON patch, if it is the version that the patch is for.
    pub fn body_after(&self, operations: &Value) -> Option<Value> {
        let mut versions = self.history.iter().rev().map(|version| version.body.clone());
        versions.find_map(|mut body| apply(&mut body, operations).then_some(body))
    }

    /// Another object gets the name of the deleted one.
    pub fn replace(&mut self) {
        self.is_replaced = true;
    }

    /// The object with this name.
    fn named(&self) -> Value {
        let mut body = self.latest.body.clone();
        if self.is_replaced {
            body["metadata"]["uid"] = json!(SUCCESSOR);
            body["metadata"]["resourceVersion"] = json!(SUCCESSOR);
        }
        body
    }

    fn existing(&self) -> Answer {
        if self.exists || self.is_replaced { Ok(self.named()) } else { Err(Rejection::NoObject) }
    }

    fn write(&mut self, before: &Value, mut after: Value, is_status: Option<bool>) -> Answer {
        match is_status {
            Some(true) => {
                let status = after.get("status").cloned();
                after = before.clone();
                set_status(&mut after, status);
            }
            Some(false) => set_status(&mut after, before.get("status").cloned()),
            None => {}
        }
        if self.is_replaced {
            return Ok(after);
        }
        if self.latest.is_deleting() && has_new_finalizers(before, &after) {
            return Err(Rejection::Field("metadata.finalizers"));
        }
        let (before, ours) = (self.latest.number, self.ours);
        self.put(after);
        let is_changed = self.latest.number != before;
        self.writes += u32::from(is_changed);
        self.ours = is_changed || ours;
        Ok(self.latest.body.clone())
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

/// Whether finalizers are added, which the API server rejects if the object is being deleted.
fn has_new_finalizers(before: &Value, after: &Value) -> bool {
    let finalizers = |body: &Value| body["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let before = finalizers(before);
    finalizers(after).iter().any(|finalizer| !before.contains(finalizer))
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

fn set_status(body: &mut Value, status: Option<Value>) {
    let body = body.as_object_mut().unwrap();
    match status {
        Some(status) => body.insert("status".to_owned(), status),
        None => body.shift_remove("status"),
    };
}

/// Applies a JSON patch; false if a test fails, or if a path does not exist.
fn apply(body: &mut Value, operations: &Value) -> bool {
    operations.as_array().unwrap().iter().all(|operation| apply_one(body, operation).is_some())
}

fn apply_one(body: &mut Value, operation: &Value) -> Option<()> {
    let (path, value) = (operation["path"].as_str()?, operation.get("value").cloned().unwrap_or_default());
    if operation["op"] == "test" {
        return (body.pointer(path) == Some(&value)).then_some(());
    }
    let (parent, key) = path.rsplit_once('/')?;
    let key = key.replace("~1", "/").replace("~0", "~");
    match (operation["op"].as_str()?, body.pointer_mut(parent)?) {
        ("remove", Value::Object(map)) => map.shift_remove(&key).map(drop),
        ("remove", Value::Array(items)) => {
            let index: usize = key.parse().ok()?;
            (index < items.len()).then(|| drop(items.remove(index)))
        }
        (_, Value::Object(map)) => {
            map.insert(key, value);
            Some(())
        }
        ("add", Value::Array(items)) if key == "-" => {
            items.push(value);
            Some(())
        }
        ("add", Value::Array(items)) => {
            let index: usize = key.parse().ok()?;
            (index <= items.len()).then(|| items.insert(index, value))
        }
        ("replace", Value::Array(items)) => {
            *items.get_mut(key.parse::<usize>().ok()?)? = value;
            Some(())
        }
        _ => None,
    }
}
