//! The text of an object that is kept although nobody looks at it: compressed, until somebody does.
//!
//! Owns: when it pays, and what can be asked without the text. Must not know: who keeps objects, and what for.

use std::sync::OnceLock;

use lz4_flex::block::{compress, decompress};

use super::Object;
use super::span::Span;

/// It takes some microseconds to pack a text; for shorter ones, there is too little to win.
const WORTH: usize = 1024;

/// The text of an object, plain or compressed.
#[derive(Clone)]
pub(super) enum ObjectText {
    /// As it came.
    Plain(Box<str>),
    /// As it is kept.
    Packed(Box<CompressedObject>),
}

/// The compressed text of an object.
#[derive(Clone)]
pub(super) struct CompressedObject {
    bytes: Box<[u8]>,
    length: usize,
    /// The scalar fields, which are asked for at any time.
    head: Box<str>,
    /// The text, since somebody has looked at it.
    plain: OnceLock<Box<str>>,
}

impl ObjectText {
    /// All of it.
    pub(super) fn get(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Packed(packed) => packed.plain.get_or_init(|| packed.unpack()),
        }
    }

    /// What the ranges of the scalar fields are in.
    pub(super) fn head(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Packed(packed) => &packed.head,
        }
    }

    /// Whether it is there to be read.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Packed(packed) => packed.plain.get().is_some(),
        }
    }
}

impl CompressedObject {
    fn unpack(&self) -> Box<str> {
        // These are the very bytes that were made of a text: there is nothing to fail.
        let bytes = decompress(&self.bytes, self.length).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default().into_boxed_str()
    }
}

impl Object {
    /// The same object with its text compressed, if that is worth it. Whoever looks at more than the names, the versions and
    /// the times of it, has it unpacked, and so it stays.
    #[must_use]
    pub fn packed(&self) -> Option<Self> {
        let text = self.text.get();
        if text.len() < WORTH {
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
        let packed = CompressedObject { bytes, length: text.len(), head: head_text, plain: OnceLock::new() };
        Some(Self {
            text: ObjectText::Packed(Box::new(packed)),
            length: self.length,
            head,
            sections: self.sections,
            entries: self.entries.clone(),
        })
    }

    /// Whether the text can be read without unpacking it: it never was packed, or somebody has looked at it.
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
    fn nothing_is_different_but_the_space() {
        let object = Object::decode(&long().to_string()).unwrap();
        let packed = object.packed().unwrap();
        assert_eq!(packed.name(), Some("näme"));
        assert_eq!(packed.namespace(), Some("default"));
        assert_eq!(packed.uid(), Some("1-2"));
        assert_eq!(packed.resource_version(), Some("7"));
        assert_eq!((packed.api_version(), packed.kind()), (object.api_version(), object.kind()));
        assert_eq!(packed.creation_timestamp(), object.creation_timestamp());
        assert_eq!(packed.deletion_timestamp(), None);
        assert!(!packed.is_plain(), "names are known without the text");
        assert_eq!(packed.to_value(), long());
        assert!(packed.is_plain());
        assert_eq!(packed, object);
        assert_eq!(packed.annotation("tra\"ce").unwrap(), "ü");
        assert_eq!(packed.label("one").unwrap(), "1");
        assert!(packed.has_finalizer("kept"));
        assert_eq!(packed.owner_kinds().collect::<Vec<_>>(), ["Owner"]);
        assert_eq!(packed.top_level("spec"), object.top_level("spec"));
    }

    #[test]
    fn what_was_packed_can_be_packed_again_and_recast() {
        let object = Object::decode(&long().to_string()).unwrap();
        let twice = object.packed().unwrap().packed().unwrap();
        assert_eq!(twice, object);
        let recast = object.packed().unwrap().with_type_meta("v1", "Other").unwrap();
        assert_eq!(recast, object.with_type_meta("v1", "Other").unwrap());
        assert_eq!((recast.name(), recast.kind()), (Some("näme"), Some("Other")));
    }

    #[test]
    fn short_texts_are_left_alone() {
        let object = Object::decode(r#"{"metadata":{"name":"short"}}"#).unwrap();
        assert!(object.packed().is_none());
        assert!(object.is_plain());
    }

    #[test]
    fn texts_that_do_not_become_much_shorter_are_left_alone() {
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:016x}", state.rotate_left(17))
        };
        let text: String = (0..200).map(|_| noise()).collect();
        let object = Object::decode(&json!({"data": text}).to_string()).unwrap();
        assert!(object.packed().is_none());
    }

    #[test]
    fn it_takes_a_part_of_the_space() {
        let object = Object::decode(&long().to_string()).unwrap();
        let ObjectText::Packed(packed) = object.packed().unwrap().text else { panic!("it is packed") };
        assert!(packed.bytes.len() + packed.head.len() < object.raw().len() / 2);
    }
}
