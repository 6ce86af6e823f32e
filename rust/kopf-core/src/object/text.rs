//! The text around objects: a watch event or a page of a list, even if it is not UTF-8 or one object is malformed.

use std::borrow::Cow;
use std::ops::Range;

use super::Object;
use super::index::ObjectIndex;
use crate::json::DecodeError;
use crate::json::scanner::Cursor;
use crate::json::value::{Map, Value};

/// An object that cannot be decoded, but can be identified.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectedObject {
    /// An object with only its kind, name, namespace, uid, and version.
    pub identity: Object,
    /// The reason.
    pub error: DecodeError,
}

/// A JSON text with invalid UTF-8 bytes replaced, so that it can be scanned.
pub(super) struct Readable<'t> {
    /// The text, with the same length as the original bytes.
    pub(super) json: Cow<'t, str>,
    /// The offsets of the invalid bytes, in order.
    broken: Vec<usize>,
}

/// An object in the text.
pub(super) struct ListedObject {
    pub(super) range: Range<usize>,
    pub(super) index: Result<ObjectIndex, DecodeError>,
}

impl<'t> Readable<'t> {
    pub(super) fn of(bytes: &'t [u8]) -> Self {
        if let Ok(json) = str::from_utf8(bytes) {
            return Self { json: Cow::Borrowed(json), broken: vec![] };
        }
        let (mut json, mut broken) = (String::with_capacity(bytes.len()), vec![]);
        for chunk in bytes.utf8_chunks() {
            json.push_str(chunk.valid());
            for _ in chunk.invalid() {
                broken.push(json.len());
                json.push('?');
            }
        }
        Self { json: Cow::Owned(json), broken }
    }

    /// The error of the text as a whole, if it has invalid bytes.
    pub(super) fn fault(&self) -> Option<DecodeError> {
        self.broken.first().map(|at| DecodeError::Encoding { at: *at })
    }

    /// Rejects the whole text if it has invalid bytes outside of the objects.
    pub(super) fn check_outside(&self, items: &[ListedObject]) -> Result<(), DecodeError> {
        let is_inside = |at: usize| {
            let item = items.get(items.partition_point(|item| item.range.end <= at));
            item.is_some_and(|item| item.range.contains(&at))
        };
        match self.broken.iter().find(|at| !is_inside(**at)) {
            Some(at) => Err(DecodeError::Encoding { at: *at }),
            None => Ok(()),
        }
    }

    /// Moves past an object, also a malformed one.
    pub(super) fn item(&self, cursor: &mut Cursor<'_>) -> ListedObject {
        let _ = cursor.peek();
        let start = cursor.clone();
        let read = ObjectIndex::read(cursor);
        if read.is_err() {
            *cursor = start.clone();
            cursor.skip_known();
        }
        let range = start.at()..cursor.at();
        let first = self.broken.partition_point(|at| *at < range.start);
        let broken = self.broken.get(first).copied().filter(|at| *at < range.end);
        let index = match broken {
            Some(at) => Err(DecodeError::Encoding { at }),
            None => read,
        };
        ListedObject { range, index }
    }
}

/// The identity of an object that cannot be decoded; the error itself if the object has no readable name.
pub(super) fn rejected(
    json: &str,
    api_version: Option<&str>,
    kind: Option<&str>,
    error: DecodeError,
) -> Result<RejectedObject, DecodeError> {
    let (mut body, mut metadata) = (Map::new(), Map::new());
    for (key, value) in [("apiVersion", api_version), ("kind", kind)] {
        body.extend(value.map(|value| (key.to_owned(), value.into())));
    }
    let mut cursor = Cursor::new(json);
    let text = |cursor: &mut Cursor<'_>| {
        let text = json.get(cursor.skip_known()).unwrap_or_default();
        serde_json::from_str::<String>(text).ok()
    };
    // An error ends the scan: either the name was read before, or there is no identity.
    let _ = cursor.members(|cursor, key| {
        match &*key.read(json) {
            key @ ("apiVersion" | "kind") => body.extend(text(cursor).map(|it| (key.to_owned(), it.into()))),
            "metadata" if cursor.peek() == Some(b'{') => {
                let mut walked = cursor.clone();
                let _ = walked.members(|cursor, key| {
                    match &*key.read(json) {
                        key @ ("name" | "namespace" | "uid" | "resourceVersion") => {
                            metadata.extend(text(cursor).map(|it| (key.to_owned(), it.into())));
                        }
                        _ => drop(cursor.skip_known()),
                    }
                    Ok(())
                });
                cursor.skip_known();
            }
            _ => drop(cursor.skip_known()),
        }
        Ok(())
    });
    let is_known = metadata.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    body.insert("metadata".to_owned(), Value::Object(metadata));
    match Object::decode(&Value::Object(body).to_string()) {
        Ok(identity) if is_known => Ok(RejectedObject { identity, error }),
        _ => Err(error),
    }
}
