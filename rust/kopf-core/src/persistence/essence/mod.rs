//! The essence: what in an object is its author's intent; and whether it is still what was handled.
//!
//! Owns: the comparison of the essence with the diff-base. Must not know: what follows from it.
//!
//! Nearly every object that is seen is already handled. So the comparison walks the texts first, the object's and the
//! stored one, side by side: byte by byte as it stands in its annotation, then token by token; and builds values only if
//! the texts differ, or if it is not sure.

use std::borrow::Cow;

use crate::json::path::FieldPath;
use crate::json::value::{Value, equal};
use crate::object::Object;
use crate::persistence::annotation_keys::IgnoredAnnotations;
use crate::persistence::diffbase::{DiffBaseStorage, SYSTEM_STANZAS, StorageLocation, compact, parsed};
use crate::persistence::progress::{Malformed, ProgressStorage};

mod escaped;
mod lazy;
mod visitor;
mod writer;

pub use lazy::LazyEssence;

use escaped::EscapedComparer;
use visitor::{EssenceVisitor, Stored};
use writer::EssenceWriter;

/// The two storages that say what in an object is ours. The persistence settings convert into it.
#[derive(Clone, Copy, Debug)]
pub struct Storages<'s> {
    /// Where the last essence is kept.
    pub diffbase: &'s DiffBaseStorage,
    /// Where progress is kept.
    pub progress: &'s ProgressStorage,
}

/// How the essence of an object relates to the one that was handled last.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// Nothing was handled yet.
    Absent,
    /// They are equal.
    Same,
    /// They are not equal (though there may be no difference for handlers: `null` is as good as absent there).
    Different {
        /// What was handled.
        old: Value,
        /// What it is now.
        new: Value,
    },
}

/// The essence of an object, with some extra fields that handlers have asked for.
pub fn essence<'s>(object: &Object, storages: impl Into<Storages<'s>>, extra: &[FieldPath]) -> Value {
    let Storages { diffbase, progress } = storages.into();
    let mut essence = diffbase.build(object, extra);
    progress.clear(&mut essence);
    essence
}

/// The text by which an essence is kept, straight from the text of the object; none if it takes the values to write it.
pub fn serialize_raw<'s>(
    object: &Object,
    storages: impl Into<Storages<'s>>,
    extra: &[FieldPath],
) -> Option<String> {
    let mut transcript = EssenceWriter::new(object.raw().len());
    visit(object, storages.into(), extra, &mut transcript)?;
    Some(transcript.text())
}

/// Compares the essence of an object with the stored one.
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
        Some(_) => compare_values(object, storages, extra, stored),
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
    Ok(if equal(&old, &new) { Comparison::Same } else { Comparison::Different { old, new } })
}

/// Whether the stored text is what the essence would be written as, up to escapes and white space. If not, they may
/// still be equal.
fn equals_raw(
    object: &Object,
    storages: Storages<'_>,
    extra: &[FieldPath],
    mut text: impl EssenceVisitor,
) -> bool {
    visit(object, storages, extra, &mut text).and_then(|()| text.finish()).is_some()
}

/// Goes through the essence and the text side by side; none if the text is another, or if the essence is not simply a part
/// of the object.
fn visit(
    object: &Object,
    storages: Storages<'_>,
    extra: &[FieldPath],
    text: &mut impl EssenceVisitor,
) -> Option<()> {
    if !storages.diffbase.is_plain() || !storages.progress.is_plain() {
        return None;
    }
    let managed = IgnoredAnnotations::among(object.raw_annotations().map(|(key, _)| key));
    let own = storages.diffbase.own_keys(object);
    let counts = |key: &str| {
        !managed.covers(key) && !own.iter().any(|own| own == key) && !storages.progress.clears_annotation(key)
    };
    if !extra.iter().all(|field| is_redundant_field(object, field, counts)) {
        return None;
    }
    walk(object, counts, text)
}

fn walk(object: &Object, counts: impl Fn(&str) -> bool, stored: &mut impl EssenceVisitor) -> Option<()> {
    let labels = || object.raw_labels();
    let annotations = || object.raw_annotations().filter(|(key, _)| counts(key));
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

/// Whether an extra field is in the essence anyway, or is not there at all.
fn is_redundant_field(object: &Object, field: &FieldPath, counts: impl Fn(&str) -> bool) -> bool {
    let mut keys = field.keys().iter().map(|key| &**key);
    match (keys.next(), keys.next(), keys.next()) {
        (None, ..) | (Some("metadata"), Some("labels"), _) => true,
        (Some("metadata"), Some("annotations"), Some(key)) if counts(key) => true,
        (Some(key), ..) if !SYSTEM_STANZAS.contains(&key) => true,
        _ => object.field(field).is_none(),
    }
}

#[cfg(test)]
mod tests;
