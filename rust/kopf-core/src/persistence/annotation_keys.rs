//! Keys of Kopf's annotations, and recognition of annotations of other Kopf operators.
//!
//! The keys are exactly those of Kopf 1.45, because other operators look for the same keys.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake2::digest::consts::U4;
use blake2::{Blake2b, Digest};
use serde_json::json;

use crate::json::merge_patch::Patch;
use crate::json::value::{Value, truthy};
use crate::object::Object;

/// The longest name that Kubernetes accepts after a prefix, in characters.
pub(crate) const LIMIT: usize = 63;

/// The name of the annotation that marks a custom prefix as used by a Kopf operator.
pub(crate) const MARKER: &str = "kopf-managed";

/// The suffix of keys on objects that inherit annotations.
const INHERITED: &str = "-ofDRS";

/// The annotation of `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The keys of the annotations for one value, in the order of reading. All of them are written.
pub fn make_keys(prefix: &str, key: &str, v1: bool, object: Option<&Object>) -> Vec<String> {
    if is_simple(prefix, key) && object.is_none_or(is_no_replica_set) {
        return vec![[prefix, "/", key].concat()];
    }
    let key = match object {
        Some(object) if inherits_annotations(object) => Cow::Owned(format!("{key}{INHERITED}")),
        _ => Cow::Borrowed(key),
    };
    let mut keys = vec![make_v2_key(prefix, &key)];
    if v1 {
        let old = make_v1_key(prefix, &key);
        if !keys.contains(&old) {
            keys.push(old);
        }
    }
    keys
}

/// Whether the object certainly has no annotation with one of the keys for a value. Most objects have none for most handlers: then
/// no keys are made.
pub(crate) fn lacks_annotation(prefix: &str, key: &str, object: &Object) -> bool {
    let is_key = |name: &str| name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')) == Some(key);
    is_simple(prefix, key)
        && is_no_replica_set(object)
        && !object.raw_annotations().any(|(name, _)| is_key(name))
}

fn is_no_replica_set(object: &Object) -> bool {
    object.kind() != Some("ReplicaSet")
}

/// Whether a key is the same in both schemes, with no characters replaced or cut. Nearly all keys are, and keys are
/// computed for every event.
fn is_simple(prefix: &str, key: &str) -> bool {
    prefix.len() + 1 + key.len() <= LIMIT
        && prefix.is_ascii()
        && key.bytes().all(|byte| byte.is_ascii() && !matches!(byte, b'/' | b'<' | b'>'))
}

/// Marks a custom prefix as used by a Kopf operator, unless it is marked already.
pub fn store_marker(prefix: &str, object: &Object, patch: &mut Patch) {
    if prefix.starts_with("kopf.") {
        return;
    }
    let key = format!("{prefix}/{MARKER}");
    let field = ["metadata", "annotations", &*key];
    let present = object.raw_annotations().any(|(name, _)| name == key) || patch.get(&field).is_some();
    if !present {
        patch.set(&field, json!("yes"));
    }
}

/// The prefix of the marks of `ApplySets`, and the annotation that names the tool that manages them.
const APPLY_SET: &str = "applyset.kubernetes.io/";
const APPLY_SET_TOOL: &str = "applyset.kubernetes.io/tooling";

/// Annotations of operators and tools that are not the intent of the object's author.
#[derive(Clone, Debug, Default)]
pub struct IgnoredAnnotations<'k> {
    /// Prefixes that are marked as managed.
    marked: Vec<&'k str>,
    /// Whether the object is the owner of an `ApplySet` of a Kopf operator.
    has_apply_set: bool,
}

impl<'k> IgnoredAnnotations<'k> {
    /// Those of an object.
    pub fn of(object: &'k Object) -> Self {
        let keys = object.raw_annotations().map(|(key, _)| key);
        let marked = keys.filter_map(|key| key.strip_suffix(MARKER)?.strip_suffix('/')).collect();
        let mut entries = object.raw_annotations();
        let has_apply_set = entries.any(|(key, json)| key == APPLY_SET_TOOL && json.starts_with("\"kopf/"));
        Self { marked, has_apply_set }
    }

    /// Whether this label is excluded from the essence. The marks of `ApplySets` of other tools are part of it, as in Kopf.
    pub fn covers_label(&self, key: &str) -> bool {
        self.has_apply_set && key.starts_with(APPLY_SET)
    }

    /// Whether this annotation is excluded from the essence.
    pub fn covers(&self, key: &str) -> bool {
        let Some((prefix, _)) = key.split_once('/') else { return false };
        prefix == "kopf.zalando.org"
            || prefix.ends_with(".kopf.zalando.org")
            || self.marked.contains(&prefix)
            || key == LAST_APPLIED
            || self.covers_label(key)
    }
}

/// Removes annotations by their keys, and then the stanzas that became empty.
pub(crate) fn retain_annotations(essence: &mut Value, keep: impl Fn(&str) -> bool) {
    let annotations = essence.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(Value::Object(annotations)) = annotations {
        annotations.retain(|key, _| keep(key));
    }
    drop_empty_stanzas(essence);
}

/// Removes empty `metadata`, `labels`, `annotations`, and `status` stanzas.
pub(crate) fn drop_empty_stanzas(essence: &mut Value) {
    let drop_from = |level: &mut Value, key: &str| {
        let Value::Object(map) = level else { return };
        if map.get(key).is_some_and(|stanza| !truthy(stanza)) {
            map.shift_remove(key);
        }
    };
    if let Some(metadata) = essence.get_mut("metadata") {
        drop_from(metadata, "annotations");
        drop_from(metadata, "labels");
    }
    drop_from(essence, "metadata");
    drop_from(essence, "status");
}

/// Whether the object inherits Kopf's annotations: Kubernetes copies them from a Deployment to its `ReplicaSets`. Keys for
/// those have a suffix.
fn inherits_annotations(object: &Object) -> bool {
    object.kind() == Some("ReplicaSet") && object.owner_kinds().any(|kind| kind == "Deployment")
}

/// The name in a key without the suffix for objects that inherit annotations.
pub(crate) fn inherited_name(name: &str, object: &Object) -> String {
    let own = if inherits_annotations(object) { name.strip_suffix(INHERITED) } else { None };
    own.unwrap_or(name).to_owned()
}

/// The current scheme (v2): the limit applies to the name, and the hash is of the original key.
fn make_v2_key(prefix: &str, key: &str) -> String {
    let suffix = if key.chars().count() > LIMIT { make_suffix(key) } else { String::new() };
    let room = LIMIT - suffix.len();
    format!("{prefix}/{}{suffix}", head(&make_safe(key), room.cast_signed()))
}

/// The old scheme (v1): the limit applies to the prefix and the name together, and the hash is of the sanitized key.
fn make_v1_key(prefix: &str, key: &str) -> String {
    let safe = make_safe(key);
    let room = LIMIT.cast_signed() - (prefix.chars().count() + 1).cast_signed();
    let fits = safe.chars().count().cast_signed() <= room;
    let suffix = if fits { String::new() } else { make_suffix(&safe) };
    format!("{prefix}/{}{suffix}", head(&safe, room - suffix.len().cast_signed()))
}

pub(crate) fn make_safe(key: &str) -> String {
    key.chars()
        .map(|c| match c {
            '/' => '.',
            '<' | '>' => '_',
            other => other,
        })
        .collect()
}

fn make_suffix(key: &str) -> String {
    let digest = Blake2b::<U4>::digest(key.as_bytes());
    let text = STANDARD.encode(digest).replace('+', "-").replace('/', ".");
    format!("-{text}").trim_end_matches(['=', '-', '.']).to_owned()
}

/// The first characters of a text. A negative length drops that many at the end, as Python slices do.
fn head(text: &str, length: isize) -> String {
    let total = text.chars().count();
    let kept = if length < 0 { total.saturating_sub(length.unsigned_abs()) } else { length.unsigned_abs() };
    text.chars().take(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // contract: engine 4.1
    #[test]
    fn marked_prefixes_are_recognized() {
        let keys = ["my.org/kopf-managed", "my.org/x", "other.org/x", "kopf-managed", "a.kopf.zalando.org/x"];
        let annotations: serde_json::Map<_, _> =
            keys.map(|key| (key.to_owned(), "x".into())).into_iter().collect();
        let object = Object::decode(&json!({"metadata": {"annotations": annotations}}).to_string()).unwrap();
        let managed = IgnoredAnnotations::of(&object);
        for key in
            ["my.org/x", "my.org/kopf-managed", "kopf.zalando.org/y", "a.kopf.zalando.org/z", LAST_APPLIED]
        {
            assert!(managed.covers(key), "{key}");
        }
        for key in ["other.org/x", "kopf-managed", "plain", "notkopf.zalando.org.x/y", "kopf.dev/x"] {
            assert!(!managed.covers(key), "{key}");
        }
    }

    #[test]
    fn an_annotation_is_certainly_absent_only_if_its_key_is_simple() {
        for (kind, name, key, is_absent) in [
            ("K", "my.org/fn", "fn", false),
            ("K", "my.org/fn2", "fn", true),
            ("K", "my.orgfn", "fn", true),
            ("K", "other.org/fn", "fn", true),
            ("K", "my.org/a.b", "a/b", false),
            ("ReplicaSet", "my.org/fn-ofDRS", "fn", false),
        ] {
            let body = json!({"kind": kind, "metadata": {"annotations": {name: "x"}}});
            let object = Object::decode(&body.to_string()).unwrap();
            assert_eq!(lacks_annotation("my.org", key, &object), is_absent, "{kind} {name} {key}");
        }
    }

    // contract: engine 7.2
    #[test]
    fn the_marker_is_set_once_for_custom_prefixes() {
        let plain = Object::decode("{}").unwrap();
        let mut patch = Patch::default();
        store_marker("kopf.zalando.org", &plain, &mut patch);
        assert!(patch.is_empty());
        let marked = Object::decode(r#"{"metadata":{"annotations":{"my.org/kopf-managed":"yes"}}}"#).unwrap();
        store_marker("my.org", &marked, &mut patch);
        assert!(patch.is_empty());
        store_marker("my.org", &plain, &mut patch);
        assert_eq!(patch.get(&["metadata", "annotations", "my.org/kopf-managed"]), Some(&json!("yes")));
    }
}
