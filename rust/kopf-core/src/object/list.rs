//! Pages of a list.

use super::Object;
use super::text::{Item, Readable, RejectedObject, rejected};
use crate::json::DecodeError;
use crate::json::scanner::Cursor;

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
