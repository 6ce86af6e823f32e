//! The diff-base (last-handled configuration): the essence at the last completed handling, and its storages.

pub(crate) mod compact;
pub mod observed;

use std::borrow::Cow;
use std::fmt;

pub use compact::restored;
use serde::{Deserialize, Serialize};

use crate::json::merge_patch::Patch;
use crate::json::path::{self, FieldPath};
use crate::json::scanner::is_json;
use crate::json::value::{self, Map, Value, to_python_json};
use crate::object::Object;
use crate::persistence::annotation_keys::{
    IgnoredAnnotations, drop_empty_stanzas, make_keys, retain_annotations, store_marker,
};
use crate::persistence::progress::Malformed;

/// The top-level fields that do not express the author's intent.
pub(crate) const SYSTEM_STANZAS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// A storage of the diff-base.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(tag = "type")]
pub enum DiffBaseStorage {
    /// An annotation (or two, under the keys of both schemes).
    Annotations {
        /// The prefix of the keys.
        prefix: String,
        /// The name of the annotation.
        key: String,
        /// Fields that are excluded from the essence.
        #[serde(default)]
        ignored_fields: Vec<FieldPath>,
        /// Whether keys of the old scheme (v1) are read and written too.
        v1: bool,
    },
    /// A string in the status.
    Status {
        /// The field with the string.
        field: FieldPath,
        /// Fields that are excluded from the essence.
        #[serde(default)]
        ignored_fields: Vec<FieldPath>,
    },
    /// Several storages: the diff-base is written to all of them, and read from the first that has one.
    Multi {
        /// The storages.
        storages: Vec<DiffBaseStorage>,
    },
    /// A storage implemented in Python, reached by commands. The methods here treat it as empty.
    Custom,
}

/// Parses the first text that is not `null`.
pub(crate) fn parsed(texts: Vec<(StorageLocation<'_>, Cow<'_, str>)>) -> Result<Option<Value>, Malformed> {
    for (place, text) in texts {
        match value::parse(&text) {
            Ok(Value::Null) => {}
            Ok(essence) => return Ok(Some(essence)),
            Err(error) => return Err(Malformed { place: place.to_string(), problem: error }),
        }
    }
    Ok(None)
}

/// The location of a stored essence on the object, for error messages.
#[derive(Debug)]
pub(crate) enum StorageLocation<'o> {
    /// The annotation with this key.
    Annotation(String),
    /// This field.
    Field(&'o FieldPath),
}

impl fmt::Display for StorageLocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(key) => write!(f, "annotation {key}"),
            Self::Field(field) => write!(f, "field {field}"),
        }
    }
}

impl Default for DiffBaseStorage {
    fn default() -> Self {
        Self::Annotations {
            prefix: "kopf.zalando.org".to_owned(),
            key: "last-handled-configuration".to_owned(),
            ignored_fields: Vec::new(),
            v1: true,
        }
    }
}

impl DiffBaseStorage {
    /// The essence of an object, with the extra fields that handlers declare.
    pub fn build(&self, object: &Object, extra: &[FieldPath]) -> Value {
        let mut essence = base(object, extra);
        self.strip(object, &mut essence);
        essence
    }

    /// The diff-base of the object, if there is one.
    pub fn fetch(&self, object: &Object) -> Result<Option<Value>, Malformed> {
        parsed(self.texts(object))
    }

    /// Whether the object has a diff-base that `fetch` can read. Usually, no values are built.
    pub(crate) fn is_readable(&self, object: &Object) -> bool {
        let texts = self.texts(object);
        let is_value = |text: &str| text.trim() != "null" && is_json(text);
        match texts.first() {
            None => false,
            Some((_, text)) => is_value(text) || matches!(parsed(texts), Ok(Some(_))),
        }
    }

    /// Adds the essence to the patch, condensed if it does not fit into annotations.
    pub fn store(&self, object: &Object, patch: &mut Patch, essence: &Value) {
        let fitting = |keys: &[String]| compact::text(object, essence, keys);
        self.put(object, patch, &fitting, &|| to_python_json(essence));
    }

    /// Adds the essence to the patch, never condensed. If it does not fit, the API server rejects the patch.
    pub fn store_whole(&self, object: &Object, patch: &mut Patch, essence: &Value) {
        self.put(object, patch, &|_| to_python_json(essence) + "\n", &|| to_python_json(essence));
    }

    /// Adds an essence that is serialized already. Returns false, and adds nothing, if it may be too large to fit.
    pub(crate) fn store_text(&self, object: &Object, patch: &mut Patch, text: &str) -> bool {
        let fits = compact::is_small(object, text);
        if fits {
            self.put(object, patch, &|_| [text, "\n"].concat(), &|| text.to_owned());
        }
        fits
    }

    /// Adds the diff-base to the patch: `annotation` serializes it for annotations with these keys, `plain` for fields.
    fn put(
        &self,
        object: &Object,
        patch: &mut Patch,
        annotation: &dyn Fn(&[String]) -> String,
        plain: &dyn Fn() -> String,
    ) {
        match self {
            Self::Annotations { prefix, .. } => {
                let keys = self.own_keys(object);
                let text = annotation(&keys);
                if let Some((last, others)) = keys.split_last() {
                    for key in others {
                        patch.set_annotation(key, Some(text.clone()));
                    }
                    patch.set_annotation(last, Some(text));
                }
                store_marker(prefix, object, patch);
            }
            Self::Status { field, .. } => patch.set(field.keys(), Value::String(plain())),
            Self::Custom => {}
            Self::Multi { storages } => {
                for storage in storages {
                    storage.put(object, patch, annotation, plain);
                }
            }
        }
    }

    /// All stored texts, each with its location, in the order in which they are used.
    pub(crate) fn texts<'o>(&'o self, object: &'o Object) -> Vec<(StorageLocation<'o>, Cow<'o, str>)> {
        match self {
            Self::Annotations { .. } => self
                .own_keys(object)
                .into_iter()
                .filter_map(|key| {
                    object.annotation(&key).map(|text| (StorageLocation::Annotation(key), text))
                })
                .collect(),
            Self::Status { field, .. } => match object.field(field) {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::String(text)) => vec![(StorageLocation::Field(field), Cow::Owned(text))],
                // Not a string, so Kopf did not write it. The empty text makes it malformed when it is parsed.
                Some(_) => vec![(StorageLocation::Field(field), Cow::Borrowed(""))],
            },
            Self::Custom => Vec::new(),
            Self::Multi { storages } => storages.iter().flat_map(|storage| storage.texts(object)).collect(),
        }
    }

    /// The first stored text as a JSON string literal, if it is in an annotation.
    pub(crate) fn literal<'o>(&self, object: &'o Object) -> Option<&'o str> {
        match self {
            Self::Annotations { .. } => {
                self.own_keys(object).iter().find_map(|key| object.raw_annotation(key))
            }
            Self::Status { .. } | Self::Custom => None,
            Self::Multi { storages } => storages.first()?.literal(object),
        }
    }

    /// The keys of all annotations with the diff-base.
    pub(crate) fn own_keys(&self, object: &Object) -> Vec<String> {
        match self {
            Self::Annotations { prefix, key, v1, .. } => make_keys(prefix, key, *v1, Some(object)),
            Self::Status { .. } | Self::Custom => Vec::new(),
            Self::Multi { storages } => {
                storages.iter().flat_map(|storage| storage.own_keys(object)).collect()
            }
        }
    }

    /// The fields with the diff-base.
    pub(crate) fn own_fields(&self) -> Vec<&FieldPath> {
        match self {
            Self::Status { field, .. } => vec![field],
            Self::Annotations { .. } | Self::Custom => Vec::new(),
            Self::Multi { storages } => storages.iter().flat_map(Self::own_fields).collect(),
        }
    }

    /// Whether `build` leaves out only annotations and parts of the status.
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            Self::Annotations { ignored_fields, .. } => ignored_fields.is_empty(),
            Self::Status { field, ignored_fields } => {
                ignored_fields.is_empty() && field.keys().first().is_some_and(|key| &**key == "status")
            }
            Self::Custom => false,
            Self::Multi { storages } => storages.iter().all(Self::is_plain),
        }
    }

    fn strip(&self, object: &Object, essence: &mut Value) {
        match self {
            Self::Annotations { ignored_fields, .. } => {
                remove_all(essence, ignored_fields);
                let own = self.own_keys(object);
                retain_annotations(essence, |key| !own.iter().any(|own| own == key));
            }
            Self::Status { field, ignored_fields } => {
                remove_all(essence, ignored_fields);
                path::remove(essence, field.keys());
                drop_empty_stanzas(essence);
            }
            Self::Custom => {}
            Self::Multi { storages } => storages.iter().for_each(|storage| storage.strip(object, essence)),
        }
    }
}

fn remove_all(essence: &mut Value, fields: &[FieldPath]) {
    for field in fields {
        path::remove(essence, field.keys());
    }
}

/// The essence before this storage's own fields are removed. Keys are in the order of the object, then the metadata, then
/// the extra fields; the stored text has this order.
fn base(object: &Object, extra: &[FieldPath]) -> Value {
    // The texts were validated when the object was decoded, so parsing cannot fail.
    let parse = |(key, json): (&str, &str)| (key.to_owned(), value::parse_checked(json).unwrap_or_default());
    let ours = IgnoredAnnotations::of(object);
    let labels: Map<_, _> =
        object.raw_labels().filter(|(key, _)| !ours.covers_label(key)).map(parse).collect();
    let annotations: Map<_, _> =
        object.raw_annotations().filter(|(key, _)| !ours.covers(key)).map(parse).collect();
    let mut metadata = Map::new();
    for (key, stanza) in [("labels", labels), ("annotations", annotations)] {
        if !stanza.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(stanza));
        }
    }

    let mut essence: Map<_, _> =
        object.stanzas().filter(|(key, _)| !SYSTEM_STANZAS.contains(key)).map(parse).collect();
    if !metadata.is_empty() {
        essence.insert("metadata".to_owned(), Value::Object(metadata));
    }
    for field in extra.iter().filter(|field| !field.is_empty()) {
        if let Some(value) = object.field(field) {
            path::ensure_in(&mut essence, field.keys(), value);
        }
    }
    let mut essence = Value::Object(essence);
    drop_empty_stanzas(&mut essence);
    essence
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(text: &str) -> Object {
        Object::decode(text).unwrap()
    }

    fn storage(value: Value) -> DiffBaseStorage {
        serde_json::from_value(value).unwrap()
    }

    const TEXT: &str = r#"{"kind":"K","metadata":{"name":"n","generation":3,"annotations":{"kopf.zalando.org/x":"1","a/b":"2",
        "kubectl.kubernetes.io/last-applied-configuration":"{}"},"labels":{"l":"1"}},"status":{"s":1},"spec":{"n":null,"e":[]},"data":{}}"#;

    // contract: engine 4.1
    #[test]
    fn the_essence_is_the_intent_in_the_order_of_the_object() {
        let essence = DiffBaseStorage::default().build(&object(TEXT), &[]);
        assert_eq!(
            essence.to_string(),
            r#"{"spec":{"n":null,"e":[]},"data":{},"metadata":{"labels":{"l":"1"},"annotations":{"a/b":"2"}}}"#
        );
        assert_eq!(
            DiffBaseStorage::default().build(&object(r#"{"metadata":null,"status":null}"#), &[]),
            json!({})
        );
    }

    // contract: engine 4.1
    #[test]
    fn extra_fields_are_included() {
        let extra = ["status.s", "metadata.generation", "status.s.deeper", "nowhere", ""]
            .map(FieldPath::parse)
            .to_vec();
        let mut extra = extra;
        extra.push(FieldPath::from_keys(["metadata", "annotations", "kopf.zalando.org/x"]));
        let essence = DiffBaseStorage::default().build(&object(TEXT), &extra);
        assert_eq!(
            essence.to_string(),
            r#"{"spec":{"n":null,"e":[]},"data":{},"metadata":{"labels":{"l":"1"},"annotations":{"a/b":"2","kopf.zalando.org/x":"1"},"generation":3},"status":{"s":1}}"#
        );
    }

    // contract: engine 4.1
    #[test]
    fn ignored_fields_and_stored_diffbases_are_excluded() {
        let storage = storage(json!({"type": "Multi", "storages": [
            {"type": "Annotations", "prefix": "my.org", "key": "last", "v1": true, "ignored_fields": [["spec", "n"], ["metadata", "labels", "l"]]},
            {"type": "Status", "field": ["status", "mine", "last"]},
        ]}));
        let object = object(
            r#"{"metadata":{"annotations":{"my.org/last":"x"},"labels":{"l":"1"}},"spec":{"n":1},"status":{"mine":{"last":"x"}}}"#,
        );
        assert_eq!(storage.build(&object, &[FieldPath::parse("status")]), json!({}));
    }

    #[test]
    fn a_stored_diffbase_is_fetched() {
        let storage = storage(json!({"type": "Multi", "storages": [
            {"type": "Annotations", "prefix": "my.org", "key": "last", "v1": true},
            {"type": "Status", "field": ["status", "kopf", "last"]},
        ]}));
        let mut patch = Patch::default();
        storage.store(&object("{}"), &mut patch, &json!({"spec": "é"}));
        let patch = Value::Object(patch.0);
        assert_eq!(
            patch,
            json!({
                "metadata": {"annotations": {"my.org/last": "{\"spec\":\"\\u00e9\"}\n", "my.org/kopf-managed": "yes"}},
                "status": {"kopf": {"last": "{\"spec\":\"\\u00e9\"}"}},
            })
        );
        assert_eq!(storage.fetch(&object(&patch.to_string())), Ok(Some(json!({"spec": "é"}))));
        assert_eq!(storage.fetch(&object(r#"{"status":{"kopf":{"last":"{}"}}}"#)), Ok(Some(json!({}))));
        assert_eq!(storage.fetch(&object("{}")), Ok(None));
    }

    #[test]
    fn a_text_is_readable_if_a_diffbase_can_be_fetched_from_it() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let texts = [
            "{}",
            " {} \n",
            "{}}",
            "",
            "1",
            "1e999",
            "-1e-999",
            "[1e400]",
            "123456789e300",
            "99999999999999999999",
            "0.1e309",
            "01",
            "null",
            " null",
            "null\n",
            "nul",
            "\"\\ud83d\"",
            "\"\\ud83d\\ude00\"",
            "\"\u{1}\"",
        ];
        let texts = texts.map(str::to_owned).into_iter();
        for text in texts.chain(["9".repeat(309), "9".repeat(308), deep(127), deep(300), deep(301)]) {
            let annotations = json!({"kopf.zalando.org/last-handled-configuration": text});
            let object = object(&json!({"metadata": {"annotations": annotations}}).to_string());
            let fetched = DiffBaseStorage::default().fetch(&object);
            let is_fetched = matches!(fetched, Ok(Some(_)));
            assert_eq!(DiffBaseStorage::default().is_readable(&object), is_fetched, "{text}: {fetched:?}");
        }
    }

    #[test]
    fn malformed_texts_are_errors_that_name_the_annotation() {
        let broken =
            object(r#"{"metadata":{"annotations":{"kopf.zalando.org/last-handled-configuration":"{"}}}"#);
        let error = DiffBaseStorage::default().fetch(&broken).unwrap_err();
        assert_eq!(error.place, "annotation kopf.zalando.org/last-handled-configuration");
        let storage = storage(json!({"type": "Status", "field": ["status", "x"]}));
        assert!(storage.fetch(&object(r#"{"status":{"x":{}}}"#)).is_err());
    }
}
