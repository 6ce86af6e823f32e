//! JSON encoding of objects: `apiVersion` and `kind` first, with a slot for the resource version.

use bytes::Bytes;
use serde_json::{Map, Value};

thread_local! {
    // The buffer is reused, to avoid large allocations.
    static BUFFER: std::cell::Cell<Vec<u8>> = const { std::cell::Cell::new(Vec::new()) };
}

/// Encoder of one object.
pub(crate) struct ObjectEncoder {
    out: Vec<u8>,
    /// Position of the resource version.
    version_slot: Option<usize>,
    /// Position of the members after `apiVersion` and `kind`.
    pub(crate) body: usize,
}

impl Drop for ObjectEncoder {
    fn drop(&mut self) {
        self.out.clear();
        self.out.shrink_to(64 * 1024);
        BUFFER.set(std::mem::take(&mut self.out));
    }
}

impl ObjectEncoder {
    /// Encodes an object. `versioned` reserves a slot for its resource version.
    pub(crate) fn new(value: &Value, versioned: bool) -> Self {
        let mut encoder = Self { out: BUFFER.take(), version_slot: None, body: 1 };
        encoder.write(value, versioned);
        encoder
    }
    /// JSON with this resource version. The capacity is exact, as it is stored.
    pub(crate) fn with_version(&self, version: u64) -> Bytes {
        let Some((head, tail)) =
            self.version_slot.and_then(|version_slot| self.out.split_at_checked(version_slot))
        else {
            return Bytes::copy_from_slice(&self.out);
        };
        Bytes::from([head, version.to_string().as_bytes(), tail].concat())
    }

    fn write(&mut self, value: &Value, versioned: bool) {
        self.out.push(b'{');
        if let Value::Object(map) = value {
            for key in ["kind", "apiVersion"] {
                if let Some(value) = map.get(key) {
                    self.member(key, value);
                }
            }
            self.body = self.out.len();
            for (key, value) in map.iter().filter(|(k, _)| *k != "kind" && *k != "apiVersion") {
                match value {
                    Value::Object(meta) if versioned && key == "metadata" => self.metadata(meta),
                    _ => self.member(key, value),
                }
            }
        }
        self.out.push(b'}');
        // The separating comma belongs to the first part.
        if self.out.get(self.body) == Some(&b',') {
            self.body += 1;
        }
    }

    fn metadata(&mut self, meta: &Map<String, Value>) {
        self.member_name("metadata");
        self.out.push(b'{');
        for (key, value) in meta {
            if key == "resourceVersion" {
                self.reserve_version_slot();
            } else {
                self.member(key, value);
            }
        }
        if self.version_slot.is_none() {
            self.reserve_version_slot();
        }
        self.out.push(b'}');
    }

    fn reserve_version_slot(&mut self) {
        self.member_name("resourceVersion");
        self.out.push(b'"');
        self.version_slot = Some(self.out.len());
        self.out.push(b'"');
    }

    fn member_name(&mut self, key: &str) {
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.out, key);
        self.out.push(b':');
    }

    fn member(&mut self, key: &str, value: &Value) {
        self.member_name(key);
        let _ = serde_json::to_writer(&mut self.out, value);
    }
}

/// Encodes an object, `apiVersion` and `kind` first.
pub(crate) fn encode(value: &Value) -> Bytes {
    Bytes::copy_from_slice(&ObjectEncoder::new(value, false).out)
}

/// Whether two values have the same encoding.
pub(crate) fn is_identical(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, x), (l, y))| k == l && is_identical(x, y))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| is_identical(x, y))
        }
        _ => one == other,
    }
}
