//! One Kubernetes object.
use crate::path::FieldPath;
use crate::value::Value;
use std::borrow::Cow;
/// An object.
#[derive(Debug, Clone)]
pub struct Object {
    text: Box<str>,
}
/// Why a text is not an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON.
    #[error("{problem} at byte {at}")]
    Json {
        /// What.
        problem: &'static str,
        /// Where.
        at: usize,
    },
}
impl Object {
    /// Decodes.
    pub fn decode(_json: &str) -> Result<Object, DecodeError> {
        todo!()
    }
    /// Decodes a list item.
    pub fn decode_with_defaults(
        _json: &str,
        _api_version: Option<&str>,
        _kind: Option<&str>,
    ) -> Result<Object, DecodeError> {
        todo!()
    }
    /// The text.
    pub fn raw(&self) -> &str {
        &self.text
    }
    /// apiVersion
    pub fn api_version(&self) -> Option<&str> {
        todo!()
    }
    /// kind
    pub fn kind(&self) -> Option<&str> {
        todo!()
    }
    /// name
    pub fn name(&self) -> Option<&str> {
        todo!()
    }
    /// namespace
    pub fn namespace(&self) -> Option<&str> {
        todo!()
    }
    /// uid
    pub fn uid(&self) -> Option<&str> {
        todo!()
    }
    /// resourceVersion
    pub fn resource_version(&self) -> Option<&str> {
        todo!()
    }
    /// creationTimestamp
    pub fn creation_timestamp(&self) -> Option<&str> {
        todo!()
    }
    /// deletionTimestamp
    pub fn deletion_timestamp(&self) -> Option<&str> {
        todo!()
    }
    /// finalizers
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }
    /// has it
    pub fn has_finalizer(&self, _finalizer: &str) -> bool {
        todo!()
    }
    /// labels
    pub fn labels(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        std::iter::empty()
    }
    /// annotations
    pub fn annotations(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        std::iter::empty()
    }
    /// label
    pub fn label(&self, _key: &str) -> Option<Cow<'_, str>> {
        todo!()
    }
    /// annotation
    pub fn annotation(&self, _key: &str) -> Option<Cow<'_, str>> {
        todo!()
    }
    /// owners
    pub fn owner_kinds(&self) -> impl Iterator<Item = Cow<'_, str>> {
        std::iter::empty()
    }
    /// stanza
    pub fn stanza(&self, _key: &str) -> Option<&str> {
        todo!()
    }
    /// stanzas
    pub fn stanzas(&self) -> impl Iterator<Item = (&str, &str)> {
        std::iter::empty()
    }
    /// field
    pub fn field(&self, _path: &FieldPath) -> Option<Value> {
        todo!()
    }
    /// whole
    pub fn to_value(&self) -> Value {
        todo!()
    }
}
/// One line of a watch stream.
#[derive(Debug, Clone)]
pub enum WatchRecord {
    /// New.
    Added(Object),
    /// Changed.
    Modified(Object),
    /// Gone.
    Deleted(Object),
    /// Only a version.
    Bookmark {
        /// The version.
        resource_version: String,
        /// The end of the initial list in a streamed list.
        initial_events_end: bool,
    },
    /// A `Status`.
    Error(Value),
    /// Something else.
    Unknown(String),
}
/// One page.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Version.
    pub resource_version: Option<String>,
    /// Next page.
    pub continue_token: Option<String>,
    /// Objects.
    pub items: Vec<Object>,
}
/// Decodes a line.
pub fn decode_watch_line(_line: &[u8]) -> Result<WatchRecord, DecodeError> {
    todo!()
}
/// Decodes a page.
pub fn decode_page(_json: &[u8]) -> Result<Page, DecodeError> {
    todo!()
}
