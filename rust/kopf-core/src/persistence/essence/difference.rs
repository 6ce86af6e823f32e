//! The difference between the diff-base and the current essence.
//!
//! Usually both are known as texts, and little of them differs. Only that is parsed: building the values of both costs more than the rest
//! of a cycle.

use std::borrow::Cow;
use std::sync::Arc;

use super::lazy::LazyEssence;
use crate::json::diff::{DiffItem, diff};
use crate::json::path::FieldPath;
use crate::json::scanner::Cursor;
use crate::json::value::{Value, parse_checked};
use crate::persistence::diffbase::compact;

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
        let mut walk = Walk { path: Vec::new(), found: Vec::new() };
        walk.compare(stored, new)?;
        let diff = walk.found;
        let (old, new) = (stored.to_owned(), new.to_owned());
        (!diff.is_empty()).then(|| Self {
            old: LazyEssence::of_text(old),
            new: LazyEssence::of_text(new),
            diff,
        })
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
}
