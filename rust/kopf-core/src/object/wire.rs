//! What comes over the wire around objects: lines of a watch stream, pages of a list.
//!
//! Objects inside are read in the same single pass. An object that cannot be decoded costs itself only, as long as its name
//! can be read: the text is skipped to its end, by counting brackets, however deep it is.

use std::borrow::Cow;
use std::ops::Range;

use super::skeleton::Skeleton;
use super::{DecodeError, Object};
use crate::scan::Cursor;
use crate::value::{self, Map, Value};

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
    /// The object cannot be handled. It says nothing about the other records.
    Rejected {
        /// Whether the object is gone with that.
        deleted: bool,
        /// Which object, and why.
        rejected: RejectedObject,
    },
    /// The stream has failed: a `Status`.
    Error(Value),
    /// A type that is not known (yet).
    Unknown(String),
}

/// An object that cannot be decoded, though it is known which one it is.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectedObject {
    /// Its kind, name, namespace, uid, and version; nothing else of it.
    pub identity: Object,
    /// What is wrong with it.
    pub error: DecodeError,
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
    /// Those that cannot be handled.
    pub rejected: Vec<RejectedObject>,
}

/// Decodes one line of a watch stream.
///
/// # Errors
/// If it is not a watch event, or if it is not known which object it is about.
pub fn decode_watch_line(line: &[u8]) -> Result<WatchRecord, DecodeError> {
    let text = Readable::of(line);
    let json = &*text.json;
    let mut cursor = Cursor::new(json);
    let (mut kind, mut object) = (None, None);
    let read = cursor.members(|cursor, key| {
        match &*key.read(json) {
            "type" => kind = cursor.string_or_skip()?.map(|literal| literal.read(json)),
            "object" if cursor.peek() == Some(b'{') => object = Some(text.item(cursor)),
            _ => {
                cursor.skip()?;
            }
        }
        Ok(())
    });
    read.and_then(|()| cursor.finish()).map_err(|error| text.fault().unwrap_or(error))?;
    text.check_outside(object.as_slice())?;

    let Some(kind) = kind else { return cursor.fault("a watch event without a type") };
    let Some(Item { range, skeleton }) = object else {
        return match &*kind {
            "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR" => {
                cursor.fault("a watch event without an object")
            }
            _ => Ok(WatchRecord::Unknown(kind.into_owned())),
        };
    };
    let is_object = matches!(&*kind, "ADDED" | "MODIFIED" | "DELETED");
    let skeleton = match skeleton {
        Ok(skeleton) => skeleton,
        Err(error) if is_object => {
            let rejected = rejected(json.get(range).unwrap_or_default(), None, None, error)?;
            return Ok(WatchRecord::Rejected { deleted: kind == "DELETED", rejected });
        }
        Err(_) if !matches!(&*kind, "BOOKMARK" | "ERROR") => {
            return Ok(WatchRecord::Unknown(kind.into_owned()));
        }
        Err(error) => return Err(error),
    };
    Ok(match &*kind {
        "ADDED" => WatchRecord::Added(skeleton.finish(json, None, None)?),
        "MODIFIED" => WatchRecord::Modified(skeleton.finish(json, None, None)?),
        "DELETED" => WatchRecord::Deleted(skeleton.finish(json, None, None)?),
        "BOOKMARK" => bookmark(&skeleton.finish(json, None, None)?),
        "ERROR" => {
            WatchRecord::Error(value::parse_checked(json.get(range).unwrap_or_default()).unwrap_or_default())
        }
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
///
/// # Errors
/// If it is not a list, or if it is not known which of the items cannot be decoded.
pub fn decode_page(json: &[u8]) -> Result<Page, DecodeError> {
    let readable = Readable::of(json);
    let text = &*readable.json;
    let mut cursor = Cursor::new(text);
    let (mut kind, mut api_version) = (None, None);
    let mut page = Page::default();
    let mut has_items = false;
    let mut items = Vec::new();
    let read = cursor.members(|cursor, key| {
        match &*key.read(text) {
            "kind" => kind = cursor.string_or_skip()?.map(|literal| literal.read(text)),
            "apiVersion" => api_version = cursor.string_or_skip()?.map(|literal| literal.read(text)),
            "metadata" if cursor.peek() == Some(b'{') => list_metadata(cursor, &mut page)?,
            "items" if cursor.peek() == Some(b'[') => {
                has_items = true;
                cursor.items(|cursor| {
                    items.push(readable.item(cursor));
                    Ok(())
                })?;
            }
            // An empty list of Go.
            "items" if cursor.peek() == Some(b'n') => {
                has_items = true;
                cursor.skip()?;
            }
            _ => {
                cursor.skip()?;
            }
        }
        Ok(())
    });
    read.and_then(|()| cursor.finish()).map_err(|error| readable.fault().unwrap_or(error))?;
    readable.check_outside(&items)?;

    // An empty page would mean that all objects are gone: nothing else may be taken for one.
    if !has_items || !kind.as_deref().is_some_and(|kind| kind.ends_with("List")) {
        return Err(DecodeError::NotList);
    }
    // A generic `List` says nothing about its items.
    let kind = kind.as_deref().and_then(|kind| kind.strip_suffix("List")).filter(|kind| !kind.is_empty());
    let api_version = api_version.as_deref().filter(|_| kind.is_some());
    page.items.reserve(items.len());
    for Item { range, skeleton } in items {
        match skeleton {
            Ok(skeleton) => page.items.push(skeleton.finish(text, api_version, kind)?),
            Err(error) => {
                let json = text.get(range).unwrap_or_default();
                page.rejected.push(rejected(json, api_version, kind, error)?);
            }
        }
    }
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

/// A text that can be read although it is not UTF-8 everywhere.
struct Readable<'t> {
    /// Of the same length as the original.
    json: Cow<'t, str>,
    /// The places that are not UTF-8, in order.
    broken: Vec<usize>,
}

/// An object in the text.
struct Item {
    range: Range<usize>,
    skeleton: Result<Skeleton, DecodeError>,
}

impl<'t> Readable<'t> {
    fn of(bytes: &'t [u8]) -> Self {
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

    /// What is wrong with the text as a whole.
    fn fault(&self) -> Option<DecodeError> {
        self.broken.first().map(|at| DecodeError::Encoding { at: *at })
    }

    /// What is broken around the objects makes the whole text unreadable.
    fn check_outside(&self, items: &[Item]) -> Result<(), DecodeError> {
        let is_inside = |at: usize| {
            let item = items.get(items.partition_point(|item| item.range.end <= at));
            item.is_some_and(|item| item.range.contains(&at))
        };
        match self.broken.iter().find(|at| !is_inside(**at)) {
            Some(at) => Err(DecodeError::Encoding { at: *at }),
            None => Ok(()),
        }
    }

    /// Moves past an object, also if that is malformed.
    fn item(&self, cursor: &mut Cursor<'_>) -> Item {
        let _ = cursor.peek();
        let start = cursor.clone();
        let read = Skeleton::read(cursor);
        if read.is_err() {
            *cursor = start.clone();
            cursor.skip_known();
        }
        let range = start.at()..cursor.at();
        let first = self.broken.partition_point(|at| *at < range.start);
        let broken = self.broken.get(first).copied().filter(|at| *at < range.end);
        let skeleton = match broken {
            Some(at) => Err(DecodeError::Encoding { at }),
            None => read,
        };
        Item { range, skeleton }
    }
}

/// What is known of an object that cannot be decoded; the error itself if that is nothing.
fn rejected(
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
    // Where it cannot be read any further, what was read before is enough, or there is no name.
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
