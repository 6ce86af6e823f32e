//! Essences that do not fit into annotations: all annotations of an object are limited to 256 KiB, regardless of its size.
//!
//! Large values are replaced by their digests. A digest shows that a field has changed, but not its old value. Payloads of
//! Secrets are always replaced, also short ones.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest};
use serde::Serialize;
use serde_json::json;

use crate::json::printable_end;
use crate::json::value::{Map, Value, to_python_json};
use crate::object::Object;

/// The API server's limit for all annotations of an object, keys and values, in bytes.
const LIMIT: usize = 256 * 1024;
/// Bytes reserved for the progress of handlers and for annotations of other clients.
const RESERVE: usize = 16 * 1024;
/// Objects below this size, in bytes, always have space for a full diff-base.
const SMALL: usize = LIMIT / 4;
/// The API server's limit for a whole object, in bytes, with some reserve.
const OBJECT_LIMIT: usize = 1_400_000;
/// Values whose JSON is at most this long are not replaced by digests.
const SHORT: usize = 128;
/// The target size of an observed essence, in bytes.
const BRIEF: usize = 1024;
/// The depths to which large values are split into digests; the first depth whose result fits is used.
const DEPTHS: [usize; 4] = [6, 3, 2, 1];

/// The only key of a condensed essence.
pub(crate) const MARK: &str = "kopf.dev/condensed";
const DIGEST: &str = "kopf.dev/digest";

/// The serialized essence, condensed if necessary so that it fits into the annotations of the object under all keys of
/// `own`.
pub(super) fn text(object: &Object, essence: &Value, own: &[String]) -> String {
    let text = to_python_json(essence) + "\n";
    if is_small(object, &text) {
        return text;
    }
    let others = object.raw_annotations().filter(|(key, _)| !own.iter().any(|own| own == key));
    let taken: usize = others.map(|(key, value)| key.len() + value.len()).sum::<usize>() + RESERVE;
    let known: usize = own.iter().filter_map(|key| object.raw_annotation(key)).map(str::len).sum();
    let left = OBJECT_LIMIT.saturating_sub(object.raw().len().saturating_sub(known));
    // Quotation marks are escaped in the request: each takes two bytes.
    let available = LIMIT.saturating_sub(taken).min(left / 2) / own.len().max(1);
    if text.len() <= available {
        return text;
    }
    let is_secret = object.kind() == Some("Secret");
    let mut condensed = String::new();
    for depth in DEPTHS {
        let tree = json!({ MARK: condense(essence, depth, is_secret) });
        condensed = to_python_json(&tree) + "\n";
        if condensed.len() <= available {
            break;
        }
    }
    condensed
}

/// Whether the text certainly fits; a fast check.
pub(super) fn is_small(object: &Object, text: &str) -> bool {
    object.raw().len() < SMALL && text.len() < SMALL - 1
}

/// The serialized essence, condensed to the size of a progress record.
pub(super) fn compact_text(object: &Object, essence: &Value) -> String {
    let is_secret = object.kind() == Some("Secret");
    if !is_secret && let Some(text) = short_text(essence, BRIEF) {
        return text;
    }
    let mut condensed = String::new();
    for depth in DEPTHS {
        condensed = to_python_json(&json!({ MARK: condense(essence, depth, is_secret) }));
        if condensed.len() <= BRIEF {
            break;
        }
    }
    condensed
}

/// The stored essence, restored with values of the present one. Values that were stored as digests and have changed are
/// missing.
pub fn restored(stored: Value, present: &Value) -> Value {
    match stored {
        Value::Object(mut map) if map.len() == 1 && map.contains_key(MARK) => {
            let tree = map.shift_remove(MARK).unwrap_or_default();
            restore(tree, Some(present)).unwrap_or_else(|| Value::Object(Map::new()))
        }
        plain => plain,
    }
}

fn condense(value: &Value, depth: usize, is_secret: bool) -> Value {
    match value {
        Value::Object(map) if depth > 0 && !is_digest(value) => {
            let condensed = map.iter().map(|(key, value)| {
                let is_payload = is_secret && !(depth == DEPTHS[0] && key == "metadata");
                (key.clone(), condense(value, depth - 1, is_payload))
            });
            Value::Object(condensed.collect())
        }
        _ if !is_secret && short_text(value, SHORT).is_some() && !is_digest(value) => value.clone(),
        _ => json!({ DIGEST: digest(value) }),
    }
}

/// The serialized value, if it has at most so many bytes. Long values are recognised without serializing them.
fn short_text(value: &Value, limit: usize) -> Option<String> {
    let mut left = limit;
    let text = (!takes_more(value, &mut left)).then(|| to_python_json(value));
    text.filter(|text| text.len() <= limit)
}

/// Whether the serialized value certainly has more than `left` bytes, which are reduced by its length.
fn takes_more(value: &Value, left: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.len() + 1,
        Value::Object(map) => 2 * map.len() + map.keys().map(|key| key.len() + 2).sum::<usize>() + 1,
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 1,
    };
    let Some(rest) = left.checked_sub(own) else { return true };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().any(|item| takes_more(item, left)),
        Value::Object(map) => map.values().any(|value| takes_more(value, left)),
        _ => false,
    }
}

fn restore(tree: Value, present: Option<&Value>) -> Option<Value> {
    if is_digest(&tree) {
        return present.filter(|present| tree.get(DIGEST) == Some(&json!(digest(present)))).cloned();
    }
    let Value::Object(map) = tree else { return Some(tree) };
    let fields = map.into_iter().filter_map(|(key, tree)| {
        let value = restore(tree, present.and_then(|present| present.get(&key)))?;
        Some((key, value))
    });
    Some(Value::Object(fields.collect()))
}

fn is_digest(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.len() == 1 && map.contains_key(DIGEST))
}

/// The digest of a value; independent of the order of keys.
fn digest(value: &Value) -> String {
    let mut text = Vec::new();
    write_sorted(&mut text, value);
    STANDARD_NO_PAD.encode(Blake2b::<U16>::digest(text))
}

/// Writes a value as JSON with sorted keys; as a whole, since many small parts are expensive for the digest.
fn write_sorted(text: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Object(map) => {
            let mut members: Vec<(&String, &Value)> = map.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            text.push(b'{');
            for (key, value) in members {
                write_string(text, key);
                text.push(b':');
                write_sorted(text, value);
            }
            text.push(b'}');
        }
        Value::Array(items) => {
            text.push(b'[');
            for item in items {
                write_sorted(text, item);
                text.push(b',');
            }
            text.push(b']');
        }
        Value::String(string) => write_string(text, string),
        plain => write_plain(text, plain),
    }
}

fn write_string(text: &mut Vec<u8>, string: &str) {
    if printable_end(string.as_bytes(), 0) == string.len() {
        text.push(b'"');
        text.extend_from_slice(string.as_bytes());
        text.push(b'"');
    } else {
        write_plain(text, string);
    }
}

/// Strings, numbers and words in a buffer: this cannot fail.
fn write_plain(text: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let _ = serde_json::to_writer(text, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::merge_patch::Patch;
    use crate::json::value::equal;
    use crate::persistence::diffbase::DiffBaseStorage;
    use crate::persistence::essence::{Comparison, Storages, compare, essence};
    use crate::persistence::progress::ProgressStorage;

    fn object(kind: &str, spec: &Value, stored: Option<&str>) -> Object {
        let mut body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}, "spec": spec});
        if let Some(stored) = stored {
            body["metadata"]["annotations"] = json!({"kopf.zalando.org/last-handled-configuration": stored});
        }
        Object::decode(&body.to_string()).unwrap()
    }

    fn stored(object: &Object) -> String {
        let (diffbase, progress) = (DiffBaseStorage::default(), ProgressStorage::default());
        let storages = Storages { diffbase: &diffbase, progress: &progress };
        let mut patch = Patch::default();
        diffbase.store(object, &mut patch, &essence(object, storages, &[]));
        let key = "kopf.zalando.org/last-handled-configuration";
        patch.get(&["metadata", "annotations", key]).unwrap().as_str().unwrap().to_owned()
    }

    fn compared(object: &Object) -> Comparison {
        let (diffbase, progress) = (DiffBaseStorage::default(), ProgressStorage::default());
        compare(object, Storages { diffbase: &diffbase, progress: &progress }, &[]).unwrap()
    }

    #[test]
    fn an_essence_that_fits_is_stored_as_it_is() {
        let text = stored(&object("K", &json!({"x": "y".repeat(100_000)}), None));
        assert!(text.len() > 100_000 && !text.contains(MARK));
    }

    #[test]
    fn an_essence_that_does_not_fit_is_compared_by_digests() {
        let spec =
            json!({"name": "short", "blob": "y".repeat(1_200_000), "other": {"list": vec![7; 50_000]}});
        let text = stored(&object("K", &spec, None));
        assert!(text.len() < 1_000, "{}", text.len());
        assert!(text.contains("short"));
        assert_eq!(compared(&object("K", &spec, Some(&text))), Comparison::Same);
    }

    #[test]
    fn a_change_of_a_digested_field_is_detected() {
        let spec = json!({"name": "short", "blob": "y".repeat(300_000), "rest": "r".repeat(1_000)});
        let text = stored(&object("K", &spec, None));
        let changed = json!({"name": "other", "blob": "z".repeat(300_000), "rest": "r".repeat(1_000)});
        let Comparison::Different(difference) = compared(&object("K", &changed, Some(&text))) else {
            panic!()
        };
        let (old, new) = (difference.old.get(), difference.new.get());
        assert_eq!(*old, json!({"spec": {"name": "short", "rest": "r".repeat(1_000)}}));
        assert!(equal(&new["spec"], &changed));
    }

    #[test]
    fn many_short_fields_are_digested_together() {
        let spec: Map<_, _> = (0..30_000).map(|n| (format!("key{n}"), json!(n))).collect();
        let spec = Value::Object(spec);
        let text = stored(&object("K", &spec, None));
        assert!(text.len() < 1_000, "{}", text.len());
        assert_eq!(compared(&object("K", &spec, Some(&text))), Comparison::Same);
    }

    #[test]
    fn payloads_of_secrets_are_never_stored_in_plain_text() {
        let spec = json!({"password": "hunter2", "blob": "y".repeat(300_000)});
        let text = stored(&object("Secret", &spec, None));
        assert!(!text.contains("hunter2"));
        assert_eq!(compared(&object("Secret", &spec, Some(&text))), Comparison::Same);
    }

    #[test]
    fn store_whole_never_condenses() {
        let large = json!({"spec": {"x": "y".repeat(300_000)}});
        let object = Object::decode(&large.to_string()).unwrap();
        let (mut whole, mut fitting) = (Patch::default(), Patch::default());
        DiffBaseStorage::default().store_whole(&object, &mut whole, &large);
        DiffBaseStorage::default().store(&object, &mut fitting, &large);
        assert!(Value::Object(whole.0).to_string().len() > 300_000);
        assert!(Value::Object(fitting.0).to_string().len() < 1_000);
    }
}
