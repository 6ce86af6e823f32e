//! The index of an object, built in a single pass over its text. Offsets count from the first byte of the object.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::Object;
use super::compressed::ObjectText;
use super::span::{ASIDE, Span};
use crate::json::DecodeError;
use crate::json::scanner::{Cursor, Literal};

/// A key (without quotes) and a value (JSON, or bare text for finalizers and owners, which have no key).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FieldSpan {
    pub(super) key: Span,
    pub(super) value: Span,
}

/// The kinds of entries, in their order in the index.
#[derive(Clone, Copy, Debug)]
pub(super) enum Section {
    Stanzas,
    Labels,
    Annotations,
    Finalizers,
    Owners,
}

impl Section {
    pub(super) const COUNT: usize = 5;
    pub(super) const ALL: [Self; Self::COUNT] =
        [Self::Stanzas, Self::Labels, Self::Annotations, Self::Finalizers, Self::Owners];
}

/// The scalar fields that are read most often.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) api_version: Span,
    pub(super) kind: Span,
    pub(super) name: Span,
    pub(super) namespace: Span,
    pub(super) uid: Span,
    pub(super) resource_version: Span,
    pub(super) creation_timestamp: Span,
    pub(super) deletion_timestamp: Span,
}

impl Head {
    pub(super) fn each(&mut self, act: impl FnMut(&mut Span)) {
        // The length proves that no field is missing.
        let spans: [&mut Span; size_of::<Self>() / size_of::<Span>()] = [
            &mut self.api_version,
            &mut self.kind,
            &mut self.name,
            &mut self.namespace,
            &mut self.uid,
            &mut self.resource_version,
            &mut self.creation_timestamp,
            &mut self.deletion_timestamp,
        ];
        spans.into_iter().for_each(act);
    }
}

/// The index of offsets over the text of one object.
#[derive(Debug, Default)]
pub(super) struct ObjectIndex {
    base: usize,
    length: usize,
    head: Head,
    stanzas: Vec<FieldSpan>,
    labels: Vec<FieldSpan>,
    annotations: Vec<FieldSpan>,
    finalizers: Vec<FieldSpan>,
    owners: Vec<FieldSpan>,
    /// Names that contain escapes, in unescaped form; they are appended to the text.
    aside: String,
}

type Scanned<T> = Result<T, DecodeError>;

impl ObjectIndex {
    /// Builds the index of the object at the cursor.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Scanned<Self> {
        if cursor.peek() != Some(b'{') {
            return cursor.fault("an object is expected");
        }
        let mut it = Self { base: cursor.at(), stanzas: Vec::with_capacity(8), ..Self::default() };
        let text = cursor.text();
        cursor.members(|cursor, key| {
            let _ = cursor.peek();
            let start = cursor.at();
            match &*key.read(text) {
                "apiVersion" => it.head.api_version = it.text(cursor)?,
                "kind" => it.head.kind = it.text(cursor)?,
                "metadata" => it.metadata(cursor)?,
                _ => {
                    cursor.skip()?;
                }
            }
            let entry = FieldSpan { key: it.name(text, key)?, value: it.span(start, cursor.at())? };
            it.stanzas.push(entry);
            Ok(())
        })?;
        it.length = cursor.at() - it.base;
        Ok(it)
    }

    fn metadata(&mut self, cursor: &mut Cursor<'_>) -> Scanned<()> {
        self.forget_metadata();
        let text = cursor.text();
        if cursor.peek() != Some(b'{') {
            return cursor.skip().map(drop);
        }
        cursor.members(|cursor, key| {
            match &*key.read(text) {
                "name" => self.head.name = self.text(cursor)?,
                "namespace" => self.head.namespace = self.text(cursor)?,
                "uid" => self.head.uid = self.text(cursor)?,
                "resourceVersion" => self.head.resource_version = self.text(cursor)?,
                "creationTimestamp" => self.head.creation_timestamp = self.text(cursor)?,
                "deletionTimestamp" => self.head.deletion_timestamp = self.text(cursor)?,
                "labels" => self.labels = self.mapping(cursor)?,
                "annotations" => self.annotations = self.mapping(cursor)?,
                "finalizers" => self.finalizers = self.list(cursor, Self::text)?,
                "ownerReferences" => self.owners = self.list(cursor, Self::owner)?,
                _ => {
                    cursor.skip()?;
                }
            }
            Ok(())
        })
    }

    /// Drops the metadata read so far: of repeated keys, the last one counts.
    fn forget_metadata(&mut self) {
        let (api_version, kind) = (self.head.api_version, self.head.kind);
        self.head = Head { api_version, kind, ..Head::default() };
        self.labels.clear();
        self.annotations.clear();
        self.finalizers.clear();
        self.owners.clear();
    }

    fn mapping(&mut self, cursor: &mut Cursor<'_>) -> Scanned<Vec<FieldSpan>> {
        let mut entries = Vec::new();
        if cursor.peek() != Some(b'{') {
            cursor.skip()?;
            return Ok(entries);
        }
        entries.reserve(8);
        let text = cursor.text();
        cursor.members(|cursor, key| {
            let value = cursor.skip()?;
            entries.push(FieldSpan { key: self.name(text, key)?, value: self.span(value.start, value.end)? });
            Ok(())
        })?;
        Ok(entries)
    }

    fn list(
        &mut self,
        cursor: &mut Cursor<'_>,
        read: fn(&mut Self, &mut Cursor<'_>) -> Scanned<Span>,
    ) -> Scanned<Vec<FieldSpan>> {
        let mut entries = Vec::new();
        if cursor.peek() != Some(b'[') {
            cursor.skip()?;
            return Ok(entries);
        }
        cursor.items(|cursor| {
            let value = read(self, cursor)?;
            if value.is_present() {
                entries.push(FieldSpan { key: Span::default(), value });
            }
            Ok(())
        })?;
        Ok(entries)
    }

    fn owner(&mut self, cursor: &mut Cursor<'_>) -> Scanned<Span> {
        let mut kind = Span::default();
        let text = cursor.text();
        if cursor.peek() != Some(b'{') {
            cursor.skip()?;
            return Ok(kind);
        }
        cursor.members(|cursor, key| {
            if key.read(text) == "kind" {
                kind = self.text(cursor)?;
            } else {
                cursor.skip()?;
            }
            Ok(())
        })?;
        Ok(kind)
    }

    fn text(&mut self, cursor: &mut Cursor<'_>) -> Scanned<Span> {
        let text = cursor.text();
        cursor.string_or_skip()?.map_or(Ok(Span::default()), |literal| self.name(text, literal))
    }

    /// The span of a string. A string with escapes is kept aside in unescaped form.
    fn name(&mut self, text: &str, literal: Literal) -> Scanned<Span> {
        if !literal.escaped {
            return self.span(literal.start, literal.end);
        }
        let aside = |at: usize| u32::try_from(at).map_err(|_| DecodeError::Size { length: at });
        let start = aside(self.aside.len())?;
        self.aside.push_str(&literal.read(text));
        let end = aside(self.aside.len())?;
        if end >= ASIDE {
            return Err(DecodeError::Size { length: self.aside.len() });
        }
        Ok(Span { start: start | ASIDE, end: end | ASIDE })
    }

    fn span(&self, start: usize, end: usize) -> Scanned<Span> {
        let offset = |at: usize| match u32::try_from(at - self.base) {
            Ok(offset) if offset < ASIDE => Ok(offset),
            _ => Err(DecodeError::Size { length: at - self.base }),
        };
        Ok(Span { start: offset(start)?, end: offset(end)? })
    }

    /// Builds the object from the text, with the `apiVersion` and `kind` of its list if it lacks them.
    pub(super) fn finish(
        mut self,
        text: &str,
        api_version: Option<&str>,
        kind: Option<&str>,
    ) -> Scanned<Object> {
        let json = text.get(self.base..self.base + self.length).unwrap_or_default();
        let (defaults, added) = self.defaults(json, api_version, kind);
        let length = json.len() + defaults.len();
        let mut text = String::with_capacity(length + self.aside.len());
        text.push('{');
        text.push_str(&defaults);
        text.push_str(json.get(1..).unwrap_or_default());
        text.push_str(&self.aside);

        let too_long = |_| DecodeError::Size { length };
        let length = u32::try_from(length).map_err(too_long)?;
        let by = u32::try_from(defaults.len()).map_err(too_long)?;
        if length >= ASIDE || u32::try_from(text.len()).is_err() {
            return Err(DecodeError::Size { length: text.len() });
        }
        if by > 0 || !self.aside.is_empty() {
            self.each_span(|span| *span = span.settled(by, length));
        }
        for entry in &added {
            let inner = Span { start: entry.value.start + 1, end: entry.value.end - 1 };
            match text.get(entry.key.range()) {
                Some("kind") => self.head.kind = inner,
                _ => self.head.api_version = inner,
            }
        }
        self.stanzas.splice(0..0, added);
        for entries in [&mut self.stanzas, &mut self.labels, &mut self.annotations] {
            keep_last(&text, entries);
        }
        Ok(self.assemble(text.into_boxed_str(), length))
    }

    /// The text to insert after the opening brace, and its entries.
    fn defaults(
        &self,
        json: &str,
        api_version: Option<&str>,
        kind: Option<&str>,
    ) -> (String, Vec<FieldSpan>) {
        let (mut out, mut added) = (String::new(), Vec::new());
        for (key, value) in [("apiVersion", api_version), ("kind", kind)] {
            let Some(value) = value else { continue };
            let present = self.stanzas.iter().any(|entry| json.get(entry.key.range()) == Some(key));
            let needs_no_escapes = !value.bytes().any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            if present || !needs_no_escapes {
                continue;
            }
            if !out.is_empty() {
                out.push(',');
            }
            let from_end = |out: &String| u32::try_from(out.len() + 1).unwrap_or_default();
            let start = from_end(&out);
            let _ = write!(out, "\"{key}\":\"{value}\"");
            let colon = start + 1 + u32::try_from(key.len()).unwrap_or_default();
            added.push(FieldSpan {
                key: Span { start: start + 1, end: colon },
                value: Span { start: colon + 2, end: from_end(&out) },
            });
        }
        if !out.is_empty() && !self.stanzas.is_empty() {
            out.push(',');
        }
        (out, added)
    }

    fn each_span(&mut self, act: impl Fn(&mut Span)) {
        self.head.each(&act);
        let lists = [
            &mut self.stanzas,
            &mut self.labels,
            &mut self.annotations,
            &mut self.finalizers,
            &mut self.owners,
        ];
        for entry in lists.into_iter().flatten() {
            act(&mut entry.key);
            act(&mut entry.value);
        }
    }

    fn assemble(self, text: Box<str>, length: u32) -> Object {
        let lists = [self.stanzas, self.labels, self.annotations, self.finalizers, self.owners];
        let mut entries = Vec::with_capacity(lists.iter().map(Vec::len).sum());
        let sections = lists.map(|list| {
            entries.extend(list);
            u32::try_from(entries.len()).unwrap_or(u32::MAX)
        });
        Object {
            text: ObjectText::Plain(text),
            length,
            head: self.head,
            sections,
            entries: entries.into_boxed_slice(),
        }
    }
}

/// Removes repeated keys: the last value stays, at the position of the first one, as in a Python dict.
fn keep_last(text: &str, entries: &mut Vec<FieldSpan>) {
    let key = |entry: &FieldSpan| text.get(entry.key.range()).unwrap_or_default();
    let repeated = if entries.len() <= 32 {
        let later = |i: usize| entries.get(i + 1..).unwrap_or_default();
        entries.iter().enumerate().any(|(i, entry)| later(i).iter().any(|other| key(entry) == key(other)))
    } else {
        entries.iter().map(key).collect::<HashSet<_>>().len() != entries.len()
    };
    if repeated {
        let last: HashMap<&str, Span> = entries.iter().map(|entry| (key(entry), entry.value)).collect();
        let mut seen = HashSet::new();
        entries.retain(|entry| seen.insert(key(entry)));
        for entry in entries {
            entry.value = last.get(key(entry)).copied().unwrap_or(entry.value);
        }
    }
}
