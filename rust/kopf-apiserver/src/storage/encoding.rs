//! The JSON text of objects: with the type in front, and with a gap for a version that is known later.
//!
//! Must not know: where objects are kept.

use bytes::Bytes;
use serde_json::{Map, Value};

thread_local! {
    // Large blocks are not asked for again and again.
    static BUFFER: std::cell::Cell<Vec<u8>> = const { std::cell::Cell::new(Vec::new()) };
}

/// The JSON text of an object in the making.
pub(crate) struct ObjectEncoder {
    out: Vec<u8>,
    /// Where the version belongs.
    version_slot: Option<usize>,
    /// Where the members after the type begin.
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
    /// An object with its type in front; if it is to be versioned, with a gap where its version belongs.
    pub(crate) fn new(value: &Value, versioned: bool) -> Self {
        let mut encoder = Self { out: BUFFER.take(), version_slot: None, body: 1 };
        encoder.write(value, versioned);
        encoder
    }
    /// Of the right size at once, since it is kept.
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
        // The comma between the two parts belongs to the first.
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
        // Writing into memory cannot fail.
        let _ = serde_json::to_writer(&mut self.out, key);
        self.out.push(b':');
    }

    fn member(&mut self, key: &str, value: &Value) {
        self.member_name(key);
        let _ = serde_json::to_writer(&mut self.out, value);
    }
}

/// Writes an object with its type in front.
pub(crate) fn encode(value: &Value) -> Bytes {
    Bytes::copy_from_slice(&ObjectEncoder::new(value, false).out)
}

/// Whether two values are equal and would be written equally.
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
