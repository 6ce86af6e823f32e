//! A Kubernetes object: its JSON text, decoded once into an index of offsets into that text.
//!
//! Decoding is on the hot path: one pass over the text, no values built, two allocations per object. Fields are parsed on
//! access.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memmem};

use crate::json::DecodeError;
use crate::json::path::FieldPath;
use crate::json::scanner::{Cursor, Literal};
use crate::json::value::{self, Value};

mod compressed;
mod contains;
mod index;
mod list;
pub mod redaction;
mod span;
mod text;
mod type_meta;
mod watch_event;
mod without;

use compressed::ObjectText;
use index::{FieldSpan, ObjectIndex, Section};
pub use list::{Page, decode_page};
use span::Span;
pub use text::RejectedObject;
pub use watch_event::{WatchRecord, decode_watch_line};

/// A Kubernetes object. Cheap to share, expensive to copy: use it as `Arc<Object>`.
#[derive(Clone)]
pub struct Object {
    /// The JSON, followed by the unescaped form of names that contain escapes (normally none do).
    text: ObjectText,
    length: u32,
    head: index::Head,
    sections: [u32; Section::COUNT],
    entries: Box<[FieldSpan]>,
}

impl Object {
    /// Decodes an object from its JSON.
    pub fn decode(json: &str) -> Result<Object, DecodeError> {
        Self::decode_with_defaults(json, None, None)
    }

    /// Decodes an item of a list, which lacks the `apiVersion` and `kind` that the list specifies for all its items.
    pub fn decode_with_defaults(
        json: &str,
        api_version: Option<&str>,
        kind: Option<&str>,
    ) -> Result<Object, DecodeError> {
        let mut cursor = Cursor::new(json);
        let index = ObjectIndex::read(&mut cursor)?;
        cursor.finish()?;
        index.finish(json, api_version, kind)
    }

    /// The JSON text.
    pub fn raw(&self) -> &str {
        self.text.get().get(..self.length as usize).unwrap_or_default()
    }

    /// `apiVersion`.
    pub fn api_version(&self) -> Option<&str> {
        self.read(self.head.api_version)
    }

    /// `kind`.
    pub fn kind(&self) -> Option<&str> {
        self.read(self.head.kind)
    }

    /// `metadata.name`.
    pub fn name(&self) -> Option<&str> {
        self.read(self.head.name)
    }

    /// `metadata.namespace`.
    pub fn namespace(&self) -> Option<&str> {
        self.read(self.head.namespace)
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> Option<&str> {
        self.read(self.head.uid)
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> Option<&str> {
        self.read(self.head.resource_version)
    }

    /// `metadata.creationTimestamp`.
    pub fn creation_timestamp(&self) -> Option<&str> {
        self.read(self.head.creation_timestamp)
    }

    /// `metadata.deletionTimestamp`.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.read(self.head.deletion_timestamp)
    }

    /// `metadata.finalizers`.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.section(Section::Finalizers).iter().map(|entry| self.slice(entry.value))
    }

    /// Whether the object has this finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers().any(|present| present == finalizer)
    }

    /// `metadata.labels`, only those with string values.
    pub fn labels(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        self.texts(Section::Labels)
    }

    /// `metadata.annotations`, only those with string values.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        self.texts(Section::Annotations)
    }

    /// The value of a label, if it is a string.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        self.find(Section::Labels, key).and_then(unquote)
    }

    /// The value of an annotation, if it is a string.
    pub fn annotation(&self, key: &str) -> Option<Cow<'_, str>> {
        self.find(Section::Annotations, key).and_then(unquote)
    }

    /// The value of an annotation as JSON of any type.
    pub fn raw_annotation(&self, key: &str) -> Option<&str> {
        self.find(Section::Annotations, key)
    }

    /// The keys of the labels with their values as JSON of any type.
    pub fn raw_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs(Section::Labels)
    }

    /// The keys of the annotations with their values as JSON of any type.
    pub fn raw_annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs(Section::Annotations)
    }

    /// `metadata.ownerReferences[*].kind`.
    pub fn owner_kinds(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.section(Section::Owners).iter().map(|entry| Cow::Borrowed(self.slice(entry.value)))
    }

    /// The JSON of a key at the top level.
    pub fn top_level(&self, key: &str) -> Option<&str> {
        self.find(Section::Stanzas, key)
    }

    /// All keys at the top level with their JSON, in the order of the text.
    pub fn stanzas(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs(Section::Stanzas)
    }

    /// The value at the path, also `null`. Only that part is parsed.
    pub fn field(&self, path: &FieldPath) -> Option<Value> {
        let Some((first, rest)) = path.keys().split_first() else { return Some(self.to_value()) };
        let leaf = rest.iter().try_fold(self.top_level(first)?, |level, key| member(level, key))?;
        value::parse_checked(leaf).ok()
    }

    /// The JSON text at the path, without parsing it.
    pub fn text_at<S: AsRef<str>>(&self, keys: &[S]) -> Found<'_> {
        let Some((first, rest)) = keys.split_first() else { return Found::Text(self.raw()) };
        let Some(text) = self.top_level(first.as_ref()) else { return Found::Missing(0) };
        match text_at(text, rest) {
            Found::Missing(index) => Found::Missing(index + 1),
            found => found,
        }
    }

    /// The whole object as a value.
    pub fn to_value(&self) -> Value {
        // The text was validated when it was decoded, so parsing cannot fail.
        value::parse_checked(self.raw()).unwrap_or_default()
    }

    fn read(&self, span: Span) -> Option<&str> {
        span.is_present().then(|| self.text.head().get(span.range()).unwrap_or_default())
    }

    fn slice(&self, span: Span) -> &str {
        self.text.get().get(span.range()).unwrap_or_default()
    }

    fn section(&self, section: Section) -> &[FieldSpan] {
        let end = |index: usize| self.sections.get(index).map_or(0, |end| *end as usize);
        let start = (section as usize).checked_sub(1).map_or(0, end);
        self.entries.get(start..end(section as usize)).unwrap_or_default()
    }

    fn pairs(&self, section: Section) -> impl Iterator<Item = (&str, &str)> {
        self.section(section).iter().map(|entry| (self.slice(entry.key), self.slice(entry.value)))
    }

    fn texts(&self, section: Section) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        self.pairs(section).filter_map(|(key, json)| Some((key, unquote(json)?)))
    }

    fn find(&self, section: Section, key: &str) -> Option<&str> {
        let entry = self.section(section).iter().find(|entry| self.slice(entry.key) == key)?;
        Some(self.slice(entry.value))
    }
}

/// The result of looking up a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'t> {
    /// The JSON text of the value.
    Text(&'t str),
    /// A key is missing: the first one, by its index in the path.
    Missing(usize),
    /// A value on the path is not a mapping.
    NotAMapping,
}

/// The JSON text at the path in a text that was validated before, without parsing it.
pub fn text_at<'t, S: AsRef<str>>(json: &'t str, keys: &[S]) -> Found<'t> {
    if !keys.is_empty()
        && let Some(text) = unrepeated_text_at(json, keys)
    {
        return Found::Text(text);
    }
    let mut text = json;
    for (index, key) in keys.iter().enumerate() {
        if !text.starts_with('{') {
            return Found::NotAMapping;
        }
        match member(text, key.as_ref()) {
            Some(inner) => text = inner,
            None => return Found::Missing(index),
        }
    }
    Found::Text(text)
}

/// The same, without reading the rest of the text. `None` if it is not certain that no key on the path is repeated, as then the last
/// one counts; also if there is no such value.
fn unrepeated_text_at<'t, S: AsRef<str>>(json: &'t str, keys: &[S]) -> Option<&'t str> {
    let mut cursor = Cursor::new(json);
    for key in keys {
        let key = key.as_ref();
        let mut next = b'{';
        loop {
            if !cursor.take(next) {
                return None;
            }
            let name = cursor.string().ok()?;
            if !cursor.take(b':') {
                return None;
            }
            if name.read(json) == key {
                break;
            }
            cursor.skip_known();
            next = b',';
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let rest = cursor.rest().as_bytes();
        let is_repeated = |key: &[u8]| memmem::find(rest, key).is_some();
        // Names can be escaped only as code units.
        if !key.bytes().all(is_name)
            || is_repeated(["\"", key, "\""].concat().as_bytes())
            || is_repeated(b"\\u")
        {
            return None;
        }
    }
    json.get(cursor.skip_known())
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.raw())
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }
}

impl Eq for Object {}

/// The string of a JSON string literal; `None` for other values.
fn unquote(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    let escaped = memchr(b'\\', inner.as_bytes()).is_some();
    Some(Literal { start: 1, end: 1 + inner.len(), escaped }.read(json))
}

/// The JSON of a member of an object; the last one if the key is repeated.
fn member<'t>(json: &'t str, key: &str) -> Option<&'t str> {
    let mut found = None;
    let mut cursor = Cursor::new(json);
    let walked = cursor.members(|cursor, name| {
        let range = cursor.skip_known();
        if name.read(json) == key {
            found = json.get(range);
        }
        Ok(())
    });
    walked.ok().and(found)
}

#[cfg(test)]
mod tests;
