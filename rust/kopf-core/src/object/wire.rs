//! What comes over the wire around objects: lines of a watch stream, pages of a list.
//!
//! Owns: their form. Must not know: what to do about them. Objects inside are read in the same single pass.

use super::skeleton::Skeleton;
use super::{DecodeError, Object};
use crate::scan::Cursor;
use crate::value::Value;

/// One line of a watch stream.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchRecord {
    /// The object is new, or new to this stream.
    Added(Object),
    /// The object is in another state now.
    Modified(Object),
    /// The object is gone; this is its last state.
    Deleted(Object),
    /// Nothing happened up to this version.
    Bookmark {
        /// The version to continue from.
        resource_version: String,
        /// Whether it ends the initial objects of a streamed list.
        initial_events_end: bool,
    },
    /// The stream has failed: a `Status`.
    Error(Value),
    /// A type that is not known (yet).
    Unknown(String),
}

/// One page of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The version of the whole list.
    pub resource_version: Option<String>,
    /// What to ask the next page with, if there is one.
    pub continue_token: Option<String>,
    /// The objects.
    pub items: Vec<Object>,
}

/// Decodes one line of a watch stream.
pub fn decode_watch_line(line: &[u8]) -> Result<WatchRecord, DecodeError> {
    let text = utf8(line)?;
    let mut cursor = Cursor::new(text);
    let (mut kind, mut object, mut skeleton) = (None, None, None);
    cursor.members(|cursor, key| {
        match &*key.read(text) {
            "type" => kind = cursor.string_or_skip()?.map(|literal| literal.read(text)),
            "object" if cursor.peek() == Some(b'{') => {
                let start = cursor.at();
                skeleton = Some(Skeleton::read(cursor)?);
                object = text.get(start..cursor.at());
            }
            _ => {
                cursor.skip()?;
            }
        }
        Ok(())
    })?;
    cursor.finish()?;

    let Some(kind) = kind else { return cursor.fault("a watch event without a type") };
    let Some((skeleton, json)) = skeleton.zip(object) else {
        return match &*kind {
            "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR" => {
                cursor.fault("a watch event without an object")
            }
            _ => Ok(WatchRecord::Unknown(kind.into_owned())),
        };
    };
    Ok(match &*kind {
        "ADDED" => WatchRecord::Added(skeleton.finish(text, None, None)?),
        "MODIFIED" => WatchRecord::Modified(skeleton.finish(text, None, None)?),
        "DELETED" => WatchRecord::Deleted(skeleton.finish(text, None, None)?),
        "BOOKMARK" => bookmark(&skeleton.finish(text, None, None)?),
        "ERROR" => WatchRecord::Error(serde_json::from_str(json).unwrap_or_default()),
        _ => WatchRecord::Unknown(kind.into_owned()),
    })
}

fn bookmark(object: &Object) -> WatchRecord {
    WatchRecord::Bookmark {
        resource_version: object.resource_version().unwrap_or_default().to_owned(),
        initial_events_end: object
            .annotation("k8s.io/initial-events-end")
            .is_some_and(|value| value == "true"),
    }
}

/// Decodes one page of a list. The items get the `kind` and `apiVersion` that the list names for all of them.
pub fn decode_page(json: &[u8]) -> Result<Page, DecodeError> {
    let text = utf8(json)?;
    let mut cursor = Cursor::new(text);
    let (mut kind, mut api_version) = (None, None);
    let mut page = Page::default();
    let mut skeletons = Vec::new();
    cursor.members(|cursor, key| {
        match &*key.read(text) {
            "kind" => kind = cursor.string_or_skip()?.map(|literal| literal.read(text)),
            "apiVersion" => api_version = cursor.string_or_skip()?.map(|literal| literal.read(text)),
            "metadata" if cursor.peek() == Some(b'{') => list_metadata(cursor, &mut page)?,
            "items" if cursor.peek() == Some(b'[') => cursor.items(|cursor| {
                skeletons.push(Skeleton::read(cursor)?);
                Ok(())
            })?,
            _ => {
                cursor.skip()?;
            }
        }
        Ok(())
    })?;
    cursor.finish()?;

    // A generic `List` says nothing about its items.
    let kind = kind.as_deref().and_then(|kind| kind.strip_suffix("List")).filter(|kind| !kind.is_empty());
    let api_version = api_version.as_deref().filter(|_| kind.is_some());
    page.items = skeletons
        .into_iter()
        .map(|skeleton| skeleton.finish(text, api_version, kind))
        .collect::<Result<_, _>>()?;
    Ok(page)
}

fn list_metadata(cursor: &mut Cursor<'_>, page: &mut Page) -> Result<(), DecodeError> {
    let text = cursor.text();
    cursor.members(|cursor, key| {
        let read = |cursor: &mut Cursor<'_>| {
            let literal = cursor.string_or_skip()?;
            Ok(literal.map(|literal| literal.read(text).into_owned()).filter(|value| !value.is_empty()))
        };
        match &*key.read(text) {
            "resourceVersion" => page.resource_version = read(cursor)?,
            "continue" => page.continue_token = read(cursor)?,
            _ => {
                cursor.skip()?;
            }
        }
        Ok(())
    })
}

fn utf8(bytes: &[u8]) -> Result<&str, DecodeError> {
    str::from_utf8(bytes).map_err(|error| DecodeError::Encoding { at: error.valid_up_to() })
}
