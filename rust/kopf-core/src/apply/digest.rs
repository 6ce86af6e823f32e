//! Digests of JSON values, independent of the order of keys.

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest as _};

use crate::json::value::Value;

/// The digest of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 16]);

/// Collects parts of a digest.
pub(super) struct Digester(Blake2b<U16>);

impl Digest {
    /// The digest of a value.
    pub fn of(value: &Value) -> Self {
        let mut digester = Digester::new();
        digester.value(value);
        digester.finish()
    }
}

impl Digester {
    pub(super) fn new() -> Self {
        Self(Blake2b::new())
    }

    pub(super) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }

    /// Adds a text, so that no other sequence of texts has the same digest.
    pub(super) fn text(&mut self, text: &str) {
        self.0.update(text.len().to_le_bytes());
        self.0.update(text);
    }

    pub(super) fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.update(b"0"),
            Value::Bool(value) => self.0.update(if *value { b"t" } else { b"f" }),
            Value::Number(number) => {
                self.0.update(b"n");
                self.text(&number.to_string());
            }
            Value::String(text) => {
                self.0.update(b"s");
                self.text(text);
            }
            Value::Array(items) => {
                self.0.update(b"a");
                self.0.update(items.len().to_le_bytes());
                for item in items {
                    self.value(item);
                }
            }
            Value::Object(map) => {
                self.0.update(b"o");
                self.0.update(map.len().to_le_bytes());
                let mut sorted: Vec<_> = map.iter().collect();
                sorted.sort_by_key(|(key, _)| *key);
                for (key, value) in sorted {
                    self.text(key);
                    self.value(value);
                }
            }
        }
    }
}
