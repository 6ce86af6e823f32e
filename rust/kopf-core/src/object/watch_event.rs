//! Watch events: lines of a watch response.
//!
//! Objects are indexed in the same single pass. An object that cannot be decoded is rejected alone if its name is readable:
//! the scan skips its text by counting brackets.

use super::Object;
use super::text::{ListedObject, Readable, RejectedObject, rejected};
use crate::json::DecodeError;
use crate::json::scanner::Cursor;
use crate::json::value::{self, Value};

/// One line of a watch response.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchRecord {
    /// The object is new, or new to this watch.
    Added(Object),
    /// The object has changed.
    Modified(Object),
    /// The object was deleted; this is its last state.
    Deleted(Object),
    /// A bookmark: there are no more events up to this version.
    Bookmark {
        /// The version to continue from.
        resource_version: String,
        /// Whether it ends the initial objects of a streamed list.
        initial_events_end: bool,
    },
    /// The object cannot be decoded. Other events of the watch are not affected.
    Rejected {
        /// Whether the event is a deletion.
        deleted: bool,
        /// The identity of the object, and the error.
        rejected: RejectedObject,
    },
    /// The watch has failed: a `Status`.
    Error(Value),
    /// An unknown type of event.
    Unknown(String),
}

/// Decodes one line of a watch response.
///
/// # Errors
/// If it is not a watch event, or if its object cannot be decoded and has no readable name.
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
    let Some(ListedObject { range, index }) = object else {
        return match &*kind {
            "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR" => {
                cursor.fault("a watch event without an object")
            }
            _ => Ok(WatchRecord::Unknown(kind.into_owned())),
        };
    };
    let is_object = matches!(&*kind, "ADDED" | "MODIFIED" | "DELETED");
    let index = match index {
        Ok(index) => index,
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
        "ADDED" => WatchRecord::Added(index.finish(json, None, None)?),
        "MODIFIED" => WatchRecord::Modified(index.finish(json, None, None)?),
        "DELETED" => WatchRecord::Deleted(index.finish(json, None, None)?),
        "BOOKMARK" => bookmark(&index.finish(json, None, None)?),
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
