//! Pages of a list.

use super::Object;
use super::text::{ListedObject, Readable, RejectedObject, rejected};
use crate::json::DecodeError;
use crate::json::scanner::Cursor;

/// One page of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The `resourceVersion` of the list.
    pub resource_version: Option<String>,
    /// The `continue` token of the next page, if there is one.
    pub continue_token: Option<String>,
    /// The objects.
    pub items: Vec<Object>,
    /// The objects that cannot be decoded.
    pub rejected: Vec<RejectedObject>,
    /// The length of the response in bytes.
    pub size: usize,
}

/// Decodes one page of a list. Items get the `kind` and `apiVersion` that the list specifies.
///
/// # Errors
/// If it is not a list, or if an item cannot be decoded and has no readable name.
pub fn decode_page(json: &[u8]) -> Result<Page, DecodeError> {
    let readable = Readable::of(json);
    let text = &*readable.json;
    let mut cursor = Cursor::new(text);
    let (mut kind, mut api_version) = (None, None);
    let mut page = Page { size: json.len(), ..Page::default() };
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
            // Go serializes an empty list as `null`.
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

    // An empty page means that all objects are deleted, so other responses must not be taken for one. Some servers for tests, such
    // as KMock, send no kind.
    let is_list = kind.as_deref().map_or(page.resource_version.is_some(), |kind| kind.ends_with("List"));
    if !has_items || !is_list {
        return Err(DecodeError::NotList);
    }
    // A generic `List` does not specify the kind of its items.
    let kind = kind.as_deref().and_then(|kind| kind.strip_suffix("List")).filter(|kind| !kind.is_empty());
    let api_version = api_version.as_deref().filter(|_| kind.is_some());
    page.items.reserve(items.len());
    for ListedObject { range, index } in items {
        match index {
            Ok(index) => page.items.push(index.finish(text, api_version, kind)?),
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
