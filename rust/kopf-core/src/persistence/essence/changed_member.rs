//! The search for the only changed member of two objects, by the first difference of their texts.
//!
//! Most changes are of one field. Then the texts before and after it are equal, and need no scan.

use crate::json::scanner::{Cursor, Literal};
use memchr::memmem;

/// The only member in which two objects differ.
pub(super) struct ChangedMember<'t> {
    /// The keys that lead to the member.
    pub(super) path: Vec<Literal>,
    /// The old value.
    pub(super) old: &'t str,
    /// The new value.
    pub(super) new: &'t str,
    /// The old object.
    pub(super) old_object: &'t str,
}

impl<'t> ChangedMember<'t> {
    /// The innermost changed member, at most `depth` levels deep. `new` is valid and has no escapes in its keys, as far as they are
    /// ASCII; `old` may be malformed. `None` if there is no such member, or if it is not certain.
    pub(super) fn find(old: &'t str, new: &'t str, depth: usize) -> Option<Self> {
        let equal = new.get(..common_prefix(old.as_bytes(), new.as_bytes()))?;
        let (mut path, mut start) = (Vec::new(), 0);
        while path.len() < depth
            && let Some((key, value)) = unfinished_member(equal, start)
        {
            path.push(key);
            start = value;
        }
        let (mut before, mut after) = (Cursor::new(old), Cursor::new(new));
        before.advance(start);
        after.advance(start);
        // If this value is valid, all of the old text is: the rest is that of the new one.
        let (before, after) = (before.skip().ok()?, after.skip_known());
        let rest = old.get(before.end..)?.trim_end_matches([' ', '\t', '\n', '\r']);
        let is_only = rest == new.get(after.end..)? && path.iter().all(|key| is_unique(new, *key));
        let old_object = old.get(..before.end + rest.len())?;
        (is_only && !path.is_empty()).then_some(Self {
            path,
            old: old.get(before)?,
            new: new.get(after)?,
            old_object,
        })
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let blocks = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK)).take_while(|(a, b)| a == b).count();
    let rest = a.iter().zip(b).skip(blocks * BLOCK);
    blocks * BLOCK + rest.take_while(|(a, b)| a == b).count()
}

/// The key and the offset of the value of the member that does not end before the end of the text. The object begins at an offset.
fn unfinished_member(text: &str, at: usize) -> Option<(Literal, usize)> {
    let mut cursor = Cursor::new(text);
    cursor.advance(at);
    let mut next = b'{';
    while cursor.take(next) {
        if cursor.peek() != Some(b'"') {
            return None;
        }
        let key = Literal::known(text, cursor.at())?;
        cursor.advance(key.end + 1 - cursor.at());
        if !cursor.take(b':') {
            return None;
        }
        let value = cursor.skip_known();
        if value.end >= text.len() {
            return Some((key, value.start));
        }
        next = b',';
    }
    None
}

/// Whether no other key in the text equals this one. Of repeated keys, the last one counts.
fn is_unique(text: &str, key: Literal) -> bool {
    let key = text.get(key.start - 1..key.end + 1).unwrap_or_default();
    let mut found = memmem::find_iter(text.as_bytes(), key);
    found.next().is_some() && found.next().is_none()
}
