//! JSON strings: their end, their content, and comparisons with it. The scan compares eight bytes at a time.

use std::borrow::Cow;

use super::escapes::unescape;
use super::words::{HIGHS, ONES, eight, equal_bytes, quotes_and_slashes, specials, zero_bytes};

/// The position of a string in the text, without its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Literal {
    /// After the opening quote.
    pub(crate) start: usize,
    /// At the closing quote.
    pub(crate) end: usize,
    /// Whether it has escapes.
    pub(crate) escaped: bool,
}

impl Literal {
    /// The string whose opening quote is at an offset, in a text that was validated before; `None` if the text ends within it.
    ///
    /// Each special byte of a word is handled without loading the word again.
    pub(crate) fn known(text: &str, at: usize) -> Option<Self> {
        let (bytes, start) = (text.as_bytes(), at + 1);
        let (mut at, mut escaped) = (start, false);
        while let Some(word) = eight(bytes, at) {
            let mut hits = quotes_and_slashes(word);
            let mut step = 8;
            while hits != 0 {
                let offset = hits.trailing_zeros() as usize / 8;
                match bytes.get(at + offset) {
                    Some(b'"') => return Some(Self { start, end: at + offset, escaped }),
                    Some(b'\\') => {
                        escaped = true;
                        step = step.max(offset + 2);
                        // The escaped byte is a part of the string.
                        hits &=
                            !(0xffff_u64.checked_shl(8 * u32::try_from(offset).unwrap_or(8)).unwrap_or(0));
                    }
                    _ => hits &= hits - 1,
                }
            }
            at += step;
        }
        loop {
            match bytes.get(at)? {
                b'"' => return Some(Self { start, end: at, escaped }),
                b'\\' => (at, escaped) = (at + 2, true),
                _ => at += 1,
            }
        }
    }

    /// The unescaped string.
    pub(crate) fn read<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let inner = text.get(self.start..self.end).unwrap_or_default();
        if self.escaped { Cow::Owned(unescape(inner, 0).0) } else { Cow::Borrowed(inner) }
    }
}

/// The content of the string without escapes whose opening quote is at an offset, in a text that was validated before. `None` if the
/// string has escapes, or the text ends within it.
#[must_use]
#[inline]
pub fn plain_string(text: &str, at: usize) -> Option<&str> {
    let (bytes, start) = (text.as_bytes(), at + 1);
    let mut end = start;
    while let Some(word) = eight(bytes, end) {
        let hits = quotes_and_slashes(word);
        if hits == 0 {
            end += 8;
            continue;
        }
        // The lowest mark is never false.
        end += hits.trailing_zeros() as usize / 8;
        return if bytes.get(end)? == &b'"' { text.get(start..end) } else { None };
    }
    while !matches!(bytes.get(end)?, b'"' | b'\\') {
        end += 1;
    }
    if bytes.get(end)? == &b'"' { text.get(start..end) } else { None }
}

/// The unescaped string whose opening quote is at an offset, and the offset after its closing quote, in a text that was validated
/// before; `None` if the text ends within the string.
#[must_use]
pub fn escaped_string(text: &str, at: usize) -> Option<(String, usize)> {
    let (string, end) = unescape(text, at + 1);
    (text.as_bytes().get(end)? == &b'"').then_some((string, end + 1))
}

/// The offset of the first quote, backslash or control character at or after an offset; eight bytes at a time.
#[inline]
pub(crate) fn next_special(bytes: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let hits = specials(u64::from_le_bytes(*chunk));
        if hits != 0 {
            return at + hits.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)) {
        at += 1;
    }
    at
}

/// The offset after the closing quote of a string whose content begins at `at`. `None` if the string has rare escapes or
/// errors, or ends within the last eight bytes.
#[inline]
pub(crate) fn end_of_usual_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(word) = eight(bytes, at) {
        let hits = specials(word);
        if hits == 0 {
            at += 8;
            continue;
        }
        // The lowest mark is never false.
        at += hits.trailing_zeros() as usize / 8;
        return match bytes.get(at) {
            Some(b'"') => Some(at + 1),
            Some(b'\\') => end_of_escaped_string(bytes, at),
            _ => None,
        };
    }
    None
}

/// The same for a string with escapes. In JSON within JSON, every fifth byte is special, and nearly all escapes are of quotes: these
/// are recognised in a whole word at once. Inlined, it would make the scan of all other strings slower.
#[inline(never)]
fn end_of_escaped_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    // The highest bit of the first byte, if the byte before it is the backslash of its escape.
    let mut escaped_first = 0;
    while let Some(word) = eight(bytes, at) {
        let (quotes, slashes) = (equal_bytes(word, b'"'), equal_bytes(word, b'\\'));
        let controls = zero_bytes(word & (ONES * 0xe0));
        let escaped = slashes << 8 | escaped_first;
        let (ends, others) = ((quotes & !escaped) | controls, escaped & !quotes);
        let first = (ends | others).trailing_zeros();
        if first == u64::BITS {
            escaped_first = slashes >> 56;
            at += 8;
            continue;
        }
        at += first as usize / 8;
        // The marks after this byte may be wrong, as it may be an escaped backslash.
        match bytes.get(at) {
            Some(byte) if others >> first & 1 == 1 && is_simple_escape(*byte) => at += 1,
            Some(b'"') => return Some(at + 1),
            _ => return None,
        }
        escaped_first = 0;
    }
    None
}

/// Whether a backslash and this byte are a complete escape.
pub(crate) fn is_simple_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')
}

/// The offset after the closing quote of a string, in a text that was validated before. `at` is after the opening quote.
#[inline]
pub(crate) fn end_of_known_string(bytes: &[u8], mut at: usize) -> usize {
    if let Some(end) = end_of_usual_string(bytes, at) {
        return end;
    }
    loop {
        at = next_special(bytes, at);
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(_) => return at + 1,
            None => return at,
        }
    }
}

/// The number of bytes of an escaped string that unescape to `expected`; `None` if they differ. Rare escapes count as
/// different.
pub(crate) fn read_as(found: &[u8], expected: &[u8]) -> Option<usize> {
    let (mut at, mut matched) = (0, 0);
    while let Some(a) = eight(found, at)
        && let Some(b) = eight(expected, matched)
    {
        let slash = a ^ (ONES * u64::from(b'\\'));
        // The lowest mark is never false.
        let slashes = slash.wrapping_sub(ONES) & !slash & HIGHS;
        let same = (a ^ b).trailing_zeros().min(slashes.trailing_zeros()) as usize / 8;
        at += same;
        matched += same;
        if same < 8 {
            let Some([b'\\', escape]) = found.get(at..).and_then(<[u8]>::first_chunk) else { return None };
            if !is_plain_escape(*escape, *expected.get(matched)?) {
                return None;
            }
            at += 2;
            matched += 1;
        }
    }
    // Near the end, fewer than eight bytes are left to compare.
    for byte in expected.get(matched..)? {
        match (found.get(at)?, found.get(at + 1)) {
            (b'\\', Some(escape)) if is_plain_escape(*escape, *byte) => at += 2,
            (one, _) if one == byte && *one != b'\\' => at += 1,
            _ => return None,
        }
    }
    Some(at)
}

/// Whether a byte has this escape, which is one of the most common ones.
#[inline]
fn is_plain_escape(escape: u8, byte: u8) -> bool {
    (escape == byte && matches!(byte, b'"' | b'\\')) || (escape == b'n' && byte == b'\n')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn strings_are_unescaped() {
        let text = r#""a\"b\\c\/d\b\f\n\r\t\u00e9\ud83d\ude00\u0041é""#;
        let literal = super::super::scanner::Cursor::new(text).string().unwrap();
        assert_eq!(literal.read(text), serde_json::from_str::<String>(text).unwrap());
        assert_eq!(plain_string(text, 0), None);
        assert_eq!(escaped_string(text, 0), Some((literal.read(text).into_owned(), text.len())));
    }

    proptest! {
        #[test]
        fn strings_of_json_are_read_as_they_were_written(before in ".{0,12}", value in "[a-c#\\]\"\\\\\n\u{1}é😀/]{0,40}") {
            let text = format!("{}:{}", serde_json::to_string(&before).unwrap(), serde_json::to_string(&value).unwrap());
            let first = Literal::known(&text, 0).unwrap();
            prop_assert_eq!(first.read(&text), before.as_str());
            let second = Literal::known(&text, first.end + 2).unwrap();
            prop_assert_eq!(second.read(&text), value.as_str());
            prop_assert_eq!(second.end + 1, text.len());
            prop_assert!(Literal::known(&text[..second.end], first.end + 2).is_none());
            for (literal, string) in [(first, before), (second, value)] {
                let at = literal.start - 1;
                prop_assert_eq!(plain_string(&text, at), (!literal.escaped).then_some(string.as_str()));
                prop_assert_eq!(escaped_string(&text, at), Some((string, literal.end + 1)));
                prop_assert!(plain_string(&text[..literal.end], at).is_none());
                prop_assert!(escaped_string(&text[..literal.end], at).is_none());
            }
        }
    }

    #[test]
    fn escaped_strings_are_compared_with_unescaped_text() {
        for (inner, text) in
            [("", ""), (r#"{\"a\":\"12345678\"}\n"#, "{\"a\":\"12345678\"}\n"), (r"a\\b", r"a\b"), ("é", "é")]
        {
            assert_eq!(read_as(inner.as_bytes(), text.as_bytes()), Some(inner.len()), "{inner}");
        }
        for (inner, text) in
            [("a", "b"), (r"\u0061", "a"), ("a", "ab"), ("\\", "\\"), ("12345678", "12345679")]
        {
            assert_eq!(read_as(inner.as_bytes(), text.as_bytes()), None, "{inner}");
        }
        assert_eq!(read_as(b"abc", b"ab"), Some(2));
    }
}
