//! The essence: the part of an object that expresses its author's intent; and its comparison with the diff-base.
//!
//! Nearly every received object is already handled. So the comparison first walks over both JSON texts in parallel: byte by
//! byte over the escaped annotation value, then token by token. If the texts differ, only the differing parts are parsed; values of
//! both are built if that cannot decide.

use std::borrow::Cow;

use crate::json::path::FieldPath;
use crate::json::value::{Value, equal};
use crate::object::Object;
use crate::persistence::annotation_keys::IgnoredAnnotations;
use crate::persistence::diffbase::{DiffBaseStorage, SYSTEM_STANZAS, StorageLocation, compact, parsed};
use crate::persistence::progress::{Malformed, ProgressStorage};

mod changed_member;
mod difference;
mod escaped;
mod lazy;
mod visitor;
mod writer;

pub use difference::Difference;
pub use lazy::LazyEssence;

use escaped::EscapedComparer;
use visitor::{EssenceVisitor, Stored};
use writer::EssenceWriter;

/// The two storages. They define which fields and annotations of an object are Kopf's. The persistence settings convert
/// into it.
#[derive(Clone, Copy, Debug)]
pub struct Storages<'s> {
    /// The storage of the diff-base.
    pub diffbase: &'s DiffBaseStorage,
    /// The storage of handler progress.
    pub progress: &'s ProgressStorage,
}

/// The result of comparing the essence of an object with its diff-base.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// The object has no diff-base.
    Absent,
    /// The essence equals the diff-base.
    Same,
    /// They are not equal.
    Different(Difference),
}

/// The comparison of one object, once it is made. The error is a diff-base that is not valid JSON.
pub type KnownComparison = Option<Result<Comparison, Malformed>>;

/// The essence of an object, with the extra fields that handlers declare.
pub fn essence<'s>(object: &Object, storages: impl Into<Storages<'s>>, extra: &[FieldPath]) -> Value {
    let Storages { diffbase, progress } = storages.into();
    let mut essence = diffbase.build(object, extra);
    progress.clear(&mut essence);
    essence
}

/// The serialized essence, copied from the JSON text of the object. `None` if it can only be serialized from values.
pub fn serialize_raw<'s>(
    object: &Object,
    storages: impl Into<Storages<'s>>,
    extra: &[FieldPath],
) -> Option<String> {
    let mut writer = EssenceWriter::new(object.raw().len());
    visit(object, storages.into(), extra, &mut writer)?;
    Some(writer.text())
}

/// Compares the essence of an object with its diff-base. The error is a diff-base that is not valid JSON.
pub fn compare<'s>(
    object: &Object,
    storages: impl Into<Storages<'s>>,
    extra: &[FieldPath],
) -> Result<Comparison, Malformed> {
    let storages = storages.into();
    let literal = storages.diffbase.literal(object);
    if literal.and_then(EscapedComparer::new).is_some_and(|text| equals_raw(object, storages, extra, text)) {
        return Ok(Comparison::Same);
    }
    let stored = storages.diffbase.texts(object);
    match stored.first() {
        None => Ok(Comparison::Absent),
        Some((_, text)) if equals_raw(object, storages, extra, Stored::new(text)) => Ok(Comparison::Same),
        Some((_, text)) => {
            let new = serialize_raw(object, storages, extra);
            match new.and_then(|new| Difference::of_texts(text, &new)) {
                Some(difference) => Ok(Comparison::Different(difference)),
                None => compare_values(object, storages, extra, stored),
            }
        }
    }
}

fn compare_values(
    object: &Object,
    storages: Storages<'_>,
    extra: &[FieldPath],
    stored: Vec<(StorageLocation<'_>, Cow<'_, str>)>,
) -> Result<Comparison, Malformed> {
    let Some(mut old) = parsed(stored)? else { return Ok(Comparison::Absent) };
    storages.progress.clear(&mut old);
    let new = essence(object, storages, extra);
    let old = compact::restored(old, &new);
    let is_same = equal(&old, &new);
    Ok(if is_same { Comparison::Same } else { Comparison::Different(Difference::of_values(old, new)) })
}

/// Whether the stored text equals the serialized essence, up to escapes and white space. If not, the values can still be
/// equal.
fn equals_raw(
    object: &Object,
    storages: Storages<'_>,
    extra: &[FieldPath],
    mut text: impl EssenceVisitor,
) -> bool {
    visit(object, storages, extra, &mut text).and_then(|()| text.finish()).is_some()
}

/// Passes the parts of the essence to the visitor. `None` if the visitor stops, or if the essence is not simply a part of
/// the object's text.
fn visit(
    object: &Object,
    storages: Storages<'_>,
    extra: &[FieldPath],
    text: &mut impl EssenceVisitor,
) -> Option<()> {
    if !storages.diffbase.is_plain() || !storages.progress.is_plain() {
        return None;
    }
    let managed = IgnoredAnnotations::of(object);
    let own = storages.diffbase.own_keys(object);
    let is_included = |key: &str| {
        !managed.covers(key) && !own.iter().any(|own| own == key) && !storages.progress.clears_annotation(key)
    };
    if !extra.iter().all(|field| is_redundant_field(object, field, is_included)) {
        return None;
    }
    walk(object, &managed, is_included, text)
}

fn walk(
    object: &Object,
    managed: &IgnoredAnnotations<'_>,
    is_included: impl Fn(&str) -> bool,
    stored: &mut impl EssenceVisitor,
) -> Option<()> {
    let labels = || object.raw_labels().filter(|(key, _)| !managed.covers_label(key));
    let annotations = || object.raw_annotations().filter(|(key, _)| is_included(key));
    let with_labels = labels().next().is_some();
    let with_annotations = annotations().next().is_some();

    stored.open()?;
    for (key, json) in object.stanzas().filter(|(key, _)| !SYSTEM_STANZAS.contains(key)) {
        stored.key(key)?;
        stored.value(json)?;
    }
    if with_labels || with_annotations {
        stored.key("metadata")?;
        stored.open()?;
        if with_labels {
            stored.key("labels")?;
            stored.mapping(labels())?;
        }
        if with_annotations {
            stored.key("annotations")?;
            stored.mapping(annotations())?;
        }
        stored.close()?;
    }
    stored.close()
}

/// Whether an extra field changes nothing: it is in the essence anyway, or the object does not have it.
fn is_redundant_field(object: &Object, field: &FieldPath, is_included: impl Fn(&str) -> bool) -> bool {
    let mut keys = field.keys().iter().map(|key| &**key);
    match (keys.next(), keys.next(), keys.next()) {
        (None, ..) | (Some("metadata"), Some("labels"), _) => true,
        (Some("metadata"), Some("annotations"), Some(key)) if is_included(key) => true,
        (Some(key), ..) if !SYSTEM_STANZAS.contains(&key) => true,
        _ => object.field(field).is_none(),
    }
}

#[cfg(test)]
mod tests;
