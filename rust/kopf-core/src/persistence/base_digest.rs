//! The digest of a serialized diff-base: it recognises the diff-base later, without keeping it in memory.

use std::hash::{DefaultHasher, Hasher as _};

use memchr::memmem;

use crate::json::escape;
use crate::object::Object;

/// The digest of a serialized diff-base, valid only within the process.
///
/// A diff-base in an annotation is JSON within JSON. It takes several times as long to unescape it as to hash it, so it is hashed in
/// its escaped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseDigest {
    /// Of the text itself.
    Plain(u64),
    /// Of the text in the form that an annotation has within JSON.
    Escaped(u64),
}

impl BaseDigest {
    /// The digest of a text.
    pub(super) fn of(text: &str) -> Self {
        Self::Plain(hash(text))
    }

    /// The digest of the text in an annotation; `None` if there is no such text.
    pub(super) fn of_annotation(object: &Object, key: &str) -> Option<Self> {
        let json = object.raw_annotation(key)?;
        match json.strip_prefix('"').and_then(|json| json.strip_suffix('"')) {
            Some(escaped) if is_escaped_as_usual(escaped) => Some(Self::Escaped(hash(escaped))),
            _ => object.annotation(key).map(|text| Self::of(&text)),
        }
    }

    /// Whether it is the digest of this text.
    pub(super) fn is_of(self, text: &str) -> bool {
        match self {
            Self::Plain(known) => known == hash(text),
            Self::Escaped(known) => known == hash(&escape(text)),
        }
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Whether the content of a JSON string is certainly escaped as by [`escape`]; there are other ways to escape the same text.
fn is_escaped_as_usual(escaped: &str) -> bool {
    let largest = escaped.bytes().fold(0, u8::max);
    largest < 0x7f && !has_escape(escaped, b'u') && !has_escape(escaped, b'/')
}

/// Whether the content of a JSON string has the escape with this letter. After an odd number of backslashes, the last of them is
/// itself escaped.
fn has_escape(escaped: &str, letter: u8) -> bool {
    let bytes = escaped.as_bytes();
    memmem::find_iter(bytes, &[b'\\', letter]).any(|at| {
        let before = bytes.get(..at).unwrap_or_default();
        before.iter().rev().take_while(|byte| **byte == b'\\').count().is_multiple_of(2)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(json: &str) -> Option<BaseDigest> {
        let object = format!(r#"{{"metadata":{{"annotations":{{"key":{json}}}}}}}"#);
        BaseDigest::of_annotation(&Object::decode(&object).unwrap(), "key")
    }

    #[test]
    fn usual_texts_are_hashed_without_unescaping() {
        for text in ["", "{\"a\":\"b\"}\n", "{\"a\":\"\\u00e9 \\n \\\\u \\/\"}\n", "\t"] {
            let digest = digest(&serde_json::to_string(text).unwrap()).unwrap();
            assert!(matches!(digest, BaseDigest::Escaped(_)) && digest.is_of(text), "{text}");
        }
    }

    #[test]
    fn unusual_escapes_are_of_the_same_text() {
        for (json, text) in [
            (r#""<\u003c\u0022""#, "<<\""),
            (r#""\/""#, "/"),
            (r#""\\\/""#, "\\/"),
            (r#""é\u00e9""#, "éé"),
            ("\"\u{7f}\"", "\u{7f}"),
        ] {
            let digest = digest(json).unwrap();
            assert!(matches!(digest, BaseDigest::Plain(_)) && digest.is_of(text), "{json}");
        }
    }

    #[test]
    fn other_values_are_no_texts() {
        assert_eq!(digest("null"), None);
        assert_eq!(digest("7"), None);
    }

    proptest! {
        #[test]
        fn a_digest_is_of_its_text_alone(
            text in "[u/\\]\"\\\\\n\t\u{1}\u{7f}é😀]{0,8}",
            other in "[u/\\]\"\\\\\n\t\u{1}\u{7f}é😀]{0,8}",
        ) {
            let escaped = format!("\"{}\"", escape(&text));
            for json in [serde_json::to_string(&text).unwrap(), escaped] {
                let digest = digest(&json).unwrap();
                prop_assert!(digest.is_of(&text));
                prop_assert_eq!(digest.is_of(&other), text == other);
            }
            prop_assert_eq!(BaseDigest::of(&text).is_of(&other), text == other);
        }
    }
}
