//! Compressed text of an idle object; decompressed on first access.

use std::sync::OnceLock;

use lz4_flex::block::{compress, decompress};

use super::Object;
use super::span::Span;

/// Texts below this length, in bytes, are not compressed: the savings do not justify some microseconds.
const MIN_LENGTH: usize = 1024;

/// The text of an object, plain or compressed.
#[derive(Clone)]
pub(super) enum ObjectText {
    /// Plain JSON.
    Plain(Box<str>),
    /// Compressed JSON.
    Compressed(Box<CompressedObject>),
}

/// The compressed text of an object.
#[derive(Clone)]
pub(super) struct CompressedObject {
    bytes: Box<[u8]>,
    length: usize,
    /// The scalar fields, which are read without decompression.
    head: Box<str>,
    /// The text, once it was decompressed.
    plain: OnceLock<Box<str>>,
}

impl ObjectText {
    /// The whole text; decompresses it if necessary.
    pub(super) fn get(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Compressed(compressed) => compressed.plain.get_or_init(|| compressed.decompressed()),
        }
    }

    /// The text that the ranges of the scalar fields refer to.
    pub(super) fn head(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Compressed(compressed) => &compressed.head,
        }
    }

    /// The allocated memory, in bytes.
    pub(super) fn allocated(&self) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Compressed(compressed) => {
                let CompressedObject { bytes, head, plain, .. } = &**compressed;
                let plain = plain.get().map_or(0, |text| text.len());
                size_of::<CompressedObject>() + bytes.len() + head.len() + plain
            }
        }
    }

    /// Whether the text is readable without decompression.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Compressed(compressed) => compressed.plain.get().is_some(),
        }
    }
}

impl CompressedObject {
    fn without_plain(&self) -> Self {
        let Self { bytes, length, head, .. } = self;
        Self { bytes: bytes.clone(), length: *length, head: head.clone(), plain: OnceLock::new() }
    }

    fn decompressed(&self) -> Box<str> {
        // The bytes were compressed from a valid text, so this cannot fail.
        let bytes = decompress(&self.bytes, self.length).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default().into_boxed_str()
    }
}

impl Object {
    /// The same object with its text compressed; `None` if that saves too little. Reading more than names, versions, and
    /// times decompresses the text, and keeps it.
    #[must_use]
    pub fn to_compressed(&self) -> Option<Self> {
        if let ObjectText::Compressed(compressed) = &self.text {
            return Some(Self {
                text: ObjectText::Compressed(Box::new(compressed.without_plain())),
                length: self.length,
                head: self.head.clone(),
                sections: self.sections,
                entries: self.entries.clone(),
            });
        }
        let text = self.text.get();
        if text.len() < MIN_LENGTH {
            return None;
        }
        let bytes = compress(text.as_bytes()).into_boxed_slice();
        if bytes.len() > text.len() / 2 {
            return None;
        }
        let (mut head, mut names) = (self.head.clone(), String::new());
        head.each(|span| {
            if let Some(value) = self.read(*span) {
                let start = names.len();
                names.push_str(value);
                *span = Span::new(start, names.len());
            }
        });
        let head_text = names.into_boxed_str();
        let compressed =
            CompressedObject { bytes, length: text.len(), head: head_text, plain: OnceLock::new() };
        Some(Self {
            text: ObjectText::Compressed(Box::new(compressed)),
            length: self.length,
            head,
            sections: self.sections,
            entries: self.entries.clone(),
        })
    }

    /// Whether the text is readable without decompression: it was never compressed, or is decompressed already.
    pub fn is_plain(&self) -> bool {
        self.text.is_plain()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::{Value, json};

    use super::*;

    fn long() -> Value {
        let items: Vec<_> =
            (0..40).map(|port| json!({"name": format!("part-{port}"), "port": port})).collect();
        json!({
            "apiVersion": "example.com/v1",
            "kind": "Load",
            "metadata": {
                "name": "näme", "namespace": "default", "uid": "1-2", "resourceVersion": "7",
                "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"one": "1"}, "annotations": {"tra\"ce": "ü"}, "finalizers": ["kept"],
                "ownerReferences": [{"kind": "Owner", "name": "x"}],
            },
            "spec": {"items": items},
        })
    }

    #[test]
    fn a_compressed_object_equals_the_plain_one() {
        let object = Object::decode(&long().to_string()).unwrap();
        let compressed = object.to_compressed().unwrap();
        assert_eq!(compressed.name(), Some("näme"));
        assert_eq!(compressed.namespace(), Some("default"));
        assert_eq!(compressed.uid(), Some("1-2"));
        assert_eq!(compressed.resource_version(), Some("7"));
        assert_eq!((compressed.api_version(), compressed.kind()), (object.api_version(), object.kind()));
        assert_eq!(compressed.creation_timestamp(), object.creation_timestamp());
        assert_eq!(compressed.deletion_timestamp(), None);
        assert!(!compressed.is_plain(), "names are readable without decompression");
        assert_eq!(compressed.to_value(), long());
        assert!(compressed.is_plain());
        assert_eq!(compressed, object);
        assert_eq!(compressed.annotation("tra\"ce").unwrap(), "ü");
        assert_eq!(compressed.label("one").unwrap(), "1");
        assert!(compressed.has_finalizer("kept"));
        assert_eq!(compressed.owner_kinds().collect::<Vec<_>>(), ["Owner"]);
        assert_eq!(compressed.top_level("spec"), object.top_level("spec"));
    }

    #[test]
    fn a_compressed_object_can_be_compressed_again_and_get_another_kind() {
        let object = Object::decode(&long().to_string()).unwrap();
        let once = object.to_compressed().unwrap();
        assert!(once.label("one").is_some() && once.is_plain());
        let twice = once.to_compressed().unwrap();
        assert!(!twice.is_plain(), "the text that was read is not kept");
        assert_eq!(twice, object);
        let recast = object.to_compressed().unwrap().with_type_meta("v1", "Other").unwrap();
        assert_eq!(recast, object.with_type_meta("v1", "Other").unwrap());
        assert_eq!((recast.name(), recast.kind()), (Some("näme"), Some("Other")));
    }

    #[test]
    fn short_texts_are_not_compressed() {
        let object = Object::decode(r#"{"metadata":{"name":"short"}}"#).unwrap();
        assert!(object.to_compressed().is_none());
        assert!(object.is_plain());
    }

    #[test]
    fn incompressible_texts_are_not_compressed() {
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:016x}", state.rotate_left(17))
        };
        let text: String = (0..200).map(|_| noise()).collect();
        let object = Object::decode(&json!({"data": text}).to_string()).unwrap();
        assert!(object.to_compressed().is_none());
    }

    #[test]
    fn compression_saves_at_least_half_of_the_size() {
        let object = Object::decode(&long().to_string()).unwrap();
        let ObjectText::Compressed(compressed) = object.to_compressed().unwrap().text else {
            panic!("it is compressed")
        };
        assert!(compressed.bytes.len() + compressed.head.len() < object.raw().len() / 2);
    }
}
