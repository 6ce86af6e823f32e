//! The difference between the diff-base and the current essence.
//!
//! Usually both are known as texts, and little of them differs. Only that is parsed: building the values of both costs more than the rest
//! of a cycle.

use std::borrow::Cow;
use std::sync::Arc;

use super::changed_member::ChangedMember;
use super::lazy::LazyEssence;
use crate::json::diff::{DiffItem, diff};
use crate::json::path::FieldPath;
use crate::json::scanner::Cursor;
use crate::json::value::{Value, parse_checked};
use crate::persistence::diffbase::compact;
use memchr::memmem;

/// Objects below this level are compared as values: their texts would be scanned once per level.
const DEPTH: usize = 8;

/// Two essences that are not equal, and their diff. The diff can still be empty: it treats `null` as absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The diff-base.
    pub old: Arc<LazyEssence>,
    /// The current essence.
    pub new: Arc<LazyEssence>,
    /// The diff from the old one to the new one.
    pub diff: Vec<DiffItem>,
}

impl Difference {
    /// The difference between two values.
    pub fn of_values(old: Value, new: Value) -> Self {
        let diff = diff(Some(&old), Some(&new));
        Self { old: LazyEssence::of(old), new: LazyEssence::of(new), diff }
    }

    /// The difference between a stored text, which may be malformed, and a serialized essence. `None` if it takes values to decide:
    /// the stored text may have state of Kopf or digests, or both may be equal.
    pub(super) fn of_texts(old: &str, new: &str) -> Option<Self> {
        if let Some(found) = Self::of_member(old, new) {
            return Some(found);
        }
        let mut cursor = Cursor::new(old);
        let stored = old.get(cursor.skip().ok()?)?;
        cursor.finish().ok()?;
        let (before, after) = (members(stored)?, members(new)?);
        let is_plain = |(key, json): &(Cow<'_, str>, &str)| match &**key {
            "status" | compact::MARK => false,
            "metadata" => after.contains(&(Cow::Borrowed("metadata"), json)),
            _ => true,
        };
        if !before.iter().all(is_plain) {
            return None;
        }
        Self::of_walk(Vec::new(), (stored, new), (stored, new))
    }

    /// The difference if only one member has changed, and it is none that may have state of Kopf.
    fn of_member(old: &str, new: &str) -> Option<Self> {
        let member = ChangedMember::find(old, new, DEPTH)?;
        let path: Vec<_> = member.path.iter().map(|key| key.read(new)).collect();
        let has = |key: &str| memmem::find(new.as_bytes(), key.as_bytes()).is_some();
        if path.first().is_none_or(|key| key == "metadata") || has("\"status\"") || has(compact::MARK) {
            return None;
        }
        Self::of_walk(path, (member.old, member.new), (member.old_object, new))
    }

    /// The difference of two objects whose only differences are in these values.
    fn of_walk<'t>(
        path: Vec<Cow<'t, str>>,
        values: (&'t str, &'t str),
        objects: (&str, &str),
    ) -> Option<Self> {
        let mut walk = Walk { path, found: Vec::new() };
        walk.compare(values.0, values.1)?;
        let [old, new] = [objects.0, objects.1].map(|text| LazyEssence::of_text(text.to_owned()));
        (!walk.found.is_empty()).then_some(Self { old, new, diff: walk.found })
    }
}

struct Walk<'t> {
    path: Vec<Cow<'t, str>>,
    found: Vec<DiffItem>,
}

impl<'t> Walk<'t> {
    /// Adds the diff of two texts; the order is that of [`diff`].
    fn compare(&mut self, old: &'t str, new: &'t str) -> Option<()> {
        if old == new {
            return Some(());
        }
        if self.path.len() < DEPTH
            && let (Some(before), Some(after)) = (members(old), members(new))
            && let Some(pairs) = paired(before, after)
        {
            for (key, old, new) in pairs {
                self.path.push(key);
                self.compare(old, new)?;
                self.path.pop();
            }
            return Some(());
        }
        let (old, new): (Value, Value) = (parse_checked(old).ok()?, parse_checked(new).ok()?);
        let path = FieldPath::from_keys(self.path.iter().map(|key| &**key));
        let items = diff(Some(&old), Some(&new));
        self.found.extend(items.into_iter().map(|item| DiffItem { path: path.join(&item.path), ..item }));
        Some(())
    }
}

type Member<'t> = (Cow<'t, str>, &'t str);

/// The keys and the values of an object in a text that was validated before; `None` if it is not an object.
fn members(text: &str) -> Option<Vec<Member<'_>>> {
    let mut found = Vec::new();
    let mut add = |cursor: &mut Cursor<'_>, key: crate::json::scanner::Literal| {
        found.push((key, cursor.skip_known()));
        Ok(())
    };
    if !text.starts_with('{') {
        return None;
    }
    Cursor::new(text).members(&mut add).ok()?;
    found.into_iter().map(|(key, value)| Some((key.read(text), text.get(value)?))).collect()
}

/// The members with both values, sorted by their keys; `None` if the objects have different keys, or keys in another order.
fn paired<'t>(
    before: Vec<Member<'t>>,
    after: Vec<Member<'t>>,
) -> Option<Vec<(Cow<'t, str>, &'t str, &'t str)>> {
    if before.len() != after.len() || before.iter().zip(&after).any(|(old, new)| old.0 != new.0) {
        return None;
    }
    let pairs = before.into_iter().zip(after);
    let mut pairs: Vec<_> = pairs.map(|((key, old), (_, new))| (key, old, new)).collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    let is_repeated = pairs.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0));
    (!is_repeated).then_some(pairs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_texts_without_own_state_are_compared() {
        let new = r#"{"spec":{"a":1,"b":[2]},"metadata":{"labels":{"l":"1"}}}"#;
        let old = |text: &str| Difference::of_texts(text, new).map(|found| found.diff);
        let plain = r#"{"spec":{"a":3,"b":[2]},"metadata":{"labels":{"l":"1"}}}"#;
        let item = DiffItem {
            op: crate::json::diff::Op::Change,
            path: FieldPath::parse("spec.a"),
            old: Some(3.into()),
            new: Some(1.into()),
        };
        assert_eq!(old(plain), Some(vec![item.clone()]));
        assert_eq!(old(&format!(" {plain}\n")), Some(vec![item]));
        for left_to_values in [
            new,
            "12",
            "null",
            r#"{"spec":{"a":3}"#,
            r#"{"spec":{"a":3}} x"#,
            r#"{"spec":{"a":3,"b":[2]},"status":{}}"#,
            r#"{"spec":{"a":3,"b":[2]},"metadata":{"labels":{"l":"2"}}}"#,
            r#"{"kopf.dev/condensed":{"spec":{"a":3}}}"#,
            r#"{"spec":{"b":[2],"a":1.0},"metadata":{"labels":{"l":"1"}}}"#,
        ] {
            assert_eq!(old(left_to_values), None, "{left_to_values}");
        }
    }

    #[test]
    fn the_values_are_those_of_the_texts() {
        let found =
            Difference::of_texts("{\"spec\":{\"x\":[1,{\"y\":\"\\u00e9\"}]}}\n", r#"{"spec":{"x":[]}}"#)
                .unwrap();
        assert_eq!(
            found,
            Difference::of_values(
                serde_json::json!({"spec": {"x": [1, {"y": "é"}]}}),
                serde_json::json!({"spec": {"x": []}}),
            )
        );
        assert_eq!(found.new.text(), Some(r#"{"spec":{"x":[]}}"#));
    }

    #[test]
    fn only_the_last_of_repeated_keys_counts() {
        let old = r#"{"spec":{"a":1,"b":2,"a":2}}"#;
        let new = r#"{"spec":{"a":3,"b":2,"a":2}}"#;
        assert_eq!(Difference::of_texts(old, new), None);
        let last = r#"{"spec":{"a":3,"b":2,"a":1}}"#;
        let found = Difference::of_texts(old, last);
        assert!(found.is_none_or(|found| found.diff[0].old == Some(2.into())));
    }

    /// JSON with digits as its only scalars.
    fn json() -> impl Strategy<Value = String> {
        let member = |(key, value): &(String, String)| format!("{key:?}:{value}");
        let scalar = "[1-9]{1,2}|null|\"[0-9]é?\"";
        scalar.prop_recursive(4, 24, 4, move |inner| {
            let members = proptest::collection::vec(("[a-c]|spec|metadata", inner.clone()), 0..4);
            let object = members.prop_map(move |members| {
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
            });
            let list = proptest::collection::vec(inner, 0..3);
            prop_oneof![3 => object, 1 => list.prop_map(|items| format!("[{}]", items.join(",")))]
        })
    }

    proptest! {
        #[test]
        fn the_difference_of_texts_is_that_of_their_values(
            text in json(),
            (position, digit) in (any::<prop::sample::Index>(), 1..9_u8),
            (more, with_more, end) in (json(), any::<bool>(), "\n?"),
        ) {
            let digits: Vec<usize> = text.char_indices().filter(|(_, c)| matches!(c, '1'..='9')).map(|(at, _)| at).collect();
            let mut new = text.clone();
            if let Some(at) = (!digits.is_empty()).then(|| *position.get(&digits)) {
                let other = if with_more && !text[..at].ends_with('"') { more } else { digit.to_string() };
                new.replace_range(at..=at, &other);
            }
            prop_assume!(serde_json::from_str::<Value>(&new).is_ok());
            if let Some(found) = Difference::of_texts(&(text.clone() + &end), &new) {
                let [old, new] = [&text, &new].map(|text| serde_json::from_str::<Value>(text).unwrap());
                prop_assert_eq!(found, Difference::of_values(old, new));
            }
        }
    }
}
