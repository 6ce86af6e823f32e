//! Predicates: the digests of those parts of an object whose changes are triggers (1.2).

use std::hash::{DefaultHasher, Hash, Hasher};

use thiserror::Error;

use crate::handler::reconciling::ChangedPart;
use crate::json::path::FieldPath;
use crate::json::value::{Value, to_python_json};
use crate::object::{Found, Object};
use crate::persistence::annotation_keys::IgnoredAnnotations;
use crate::persistence::diffbase::SYSTEM_STANZAS;
use crate::persistence::essence::{Storages, essence};

/// A word of the argument `changed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// `"essence"`: the parts that change handlers compare.
    Essence,
    /// `"generation"`; the essence, for kinds without a generation.
    Generation,
    /// `"labels"`.
    Labels,
    /// `"annotations"`, except those that reconcilers have rules for.
    Annotations,
    /// `"finalizers"`.
    Finalizers,
    /// `"owners"`: `metadata.ownerReferences`.
    Owners,
    /// `"any"`: the resource version.
    Any,
    /// The value at a path; a missing value and `null` are the same.
    Field(FieldPath),
    /// A function in Python.
    Function,
}

/// An unknown word of `changed`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is neither a word for `changed` nor a path: a path contains a dot, or is `spec`, `status`, `data`"
)]
pub struct UnknownWord(pub String);

impl TryFrom<&ChangedPart> for Changed {
    type Error = UnknownWord;

    fn try_from(part: &ChangedPart) -> Result<Self, UnknownWord> {
        match part {
            ChangedPart::Word(word) => Self::parse(word),
            ChangedPart::Path(path) => Ok(Self::Field(path.clone())),
            ChangedPart::Function => Ok(Self::Function),
        }
    }
}

impl Changed {
    /// Parses a word, or a path with dots.
    pub fn parse(word: &str) -> Result<Self, UnknownWord> {
        Ok(match word {
            "essence" => Self::Essence,
            "generation" | "metadata.generation" => Self::Generation,
            "labels" | "metadata.labels" => Self::Labels,
            "annotations" | "metadata.annotations" => Self::Annotations,
            "finalizers" | "metadata.finalizers" => Self::Finalizers,
            "owners" | "metadata.ownerReferences" => Self::Owners,
            "any" | "metadata.resourceVersion" => Self::Any,
            "spec" | "status" | "data" => Self::Field(FieldPath::parse(word)),
            _ if word.contains('.') && word.split('.').all(|key| !key.is_empty()) => {
                Self::Field(FieldPath::parse(word))
            }
            _ => return Err(UnknownWord(word.to_owned())),
        })
    }
}

/// The digests of one state of an object: 8 bytes per word of `changed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    values: Box<[u64]>,
    /// A function has failed: this state is a change.
    has_failed: bool,
}

impl Digests {
    /// The digests of a state. `functions` are the hashed values of the functions, in their order; none for a failed one.
    ///
    /// Texts are compared, not values: API servers serialise equal values as equal texts. Digests are comparable within one
    /// process only.
    pub fn of<'s>(
        changed: &[Changed],
        object: &Object,
        storages: impl Into<Storages<'s>>,
        functions: &[Option<u64>],
    ) -> Self {
        let storages = storages.into();
        let mut functions = functions.iter();
        let mut has_failed = false;
        let digest = |word: &Changed| match word {
            Changed::Function => functions.next().copied().flatten().unwrap_or_else(|| {
                has_failed = true;
                0
            }),
            other => digest(other, object, storages),
        };
        let values = changed.iter().map(digest).collect();
        Self { values, has_failed }
    }

    /// One digest of all of them, for the memory of relations; none if a function has failed.
    pub fn combined(&self) -> Option<u64> {
        (!self.has_failed).then(|| hash(&self.values))
    }

    /// Whether a difference to the digests of the previous state is a trigger.
    pub fn differ_from(&self, previous: &Self) -> bool {
        self.has_failed || previous.has_failed || self.values != previous.values
    }
}

fn digest(word: &Changed, object: &Object, storages: Storages<'_>) -> u64 {
    let at = |keys: &[&str]| match object.text_at(keys) {
        Found::Text("null") | Found::Missing(_) | Found::NotAMapping => 0,
        Found::Text(text) => hash(&text),
    };
    match word {
        Changed::Essence => essence_digest(object, storages),
        Changed::Generation => match at(&["metadata", "generation"]) {
            0 => essence_digest(object, storages),
            generation => generation,
        },
        Changed::Labels => entries(object.raw_labels().filter(|(key, _)| !is_mark(key))),
        Changed::Annotations => entries(object.raw_annotations().filter(|(key, _)| !is_mark(key))),
        Changed::Finalizers => at(&["metadata", "finalizers"]),
        Changed::Owners => at(&["metadata", "ownerReferences"]),
        Changed::Any => hash(&object.resource_version()),
        Changed::Field(path) => match object.text_at(path.keys()) {
            Found::Text("null") | Found::Missing(_) | Found::NotAMapping => 0,
            Found::Text(text) => hash(&text),
        },
        Changed::Function => 0,
    }
}

/// The digest of the essence without the marks of reconcilers and `ApplySets`.
fn essence_digest(object: &Object, storages: Storages<'_>) -> u64 {
    let Storages { diffbase, progress } = storages;
    if !diffbase.is_plain() || !progress.is_plain() {
        return hash(&to_python_json(&without_marks(essence(object, storages, &[]))));
    }
    let ignored = IgnoredAnnotations::of(object);
    let own = diffbase.own_keys(object);
    let is_included = |key: &str| {
        !is_mark(key)
            && !ignored.covers(key)
            && !progress.clears_annotation(key)
            && !own.iter().any(|own| own == key)
    };
    let stanzas = entries(object.stanzas().filter(|(key, _)| !SYSTEM_STANZAS.contains(key)));
    let labels = entries(object.raw_labels().filter(|(key, _)| !is_mark(key)));
    let annotations = entries(object.raw_annotations().filter(|(key, _)| is_included(key)));
    hash(&(stanzas, labels, annotations))
}

/// Whether it is the key of an annotation or label that reconcilers have rules for, and that is in no digest.
fn is_mark(key: &str) -> bool {
    key.starts_with("kit.kopf.zalando.org/") || key.starts_with("applyset.kubernetes.io/")
}

fn without_marks(mut essence: Value) -> Value {
    if let Some(Value::Object(metadata)) = essence.get_mut("metadata") {
        for stanza in ["labels", "annotations"] {
            if let Some(Value::Object(entries)) = metadata.get_mut(stanza) {
                entries.retain(|key, _| !is_mark(key));
                if entries.is_empty() {
                    metadata.shift_remove(stanza);
                }
            }
        }
        if metadata.is_empty()
            && let Value::Object(essence) = &mut essence
        {
            essence.shift_remove("metadata");
        }
    }
    essence
}

/// The digest of a mapping, independent of the order of its keys.
fn entries<'t>(entries: impl Iterator<Item = (&'t str, &'t str)>) -> u64 {
    entries.map(|entry| hash(&entry)).fold(0, u64::wrapping_add)
}

/// A hash that is not zero: zero stands for a missing value.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests;
