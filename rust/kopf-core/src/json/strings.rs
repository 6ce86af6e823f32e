//! JSON strings: their end, their escapes, and their unescaped form. The scan compares eight bytes at a time.

use std::borrow::Cow;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

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

/// The unescaped string whose opening quote is at an offset, and the offset after its closing quote, in a text that was validated
/// before; `None` if the text ends within the string. One pass is enough, also for a string with escapes.
#[must_use]
pub fn read_known(text: &str, at: usize) -> Option<(Cow<'_, str>, usize)> {
    let (bytes, start) = (text.as_bytes(), at + 1);
    let mut end = start;
    while let Some(word) = eight(bytes, end) {
        let hits = quotes_and_slashes(word);
        // The lowest mark is never false.
        end += hits.trailing_zeros() as usize / 8;
        if hits != 0 {
            break;
        }
    }
    while bytes.get(end).is_some_and(|byte| !matches!(byte, b'"' | b'\\')) {
        end += 1;
    }
    if bytes.get(end)? == &b'"' {
        return Some((Cow::Borrowed(text.get(start..end)?), end + 1));
    }
    let (string, end) = unescape(text, start);
    (bytes.get(end)? == &b'"').then_some((Cow::Owned(string), end + 1))
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
///
/// Each special byte of a word is handled in turn, without loading the word again: in JSON within JSON, every fifth byte is
/// special.
#[inline]
pub(crate) fn end_of_usual_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let mut hits = specials(u64::from_le_bytes(*chunk));
        let mut step = 8;
        while hits != 0 {
            let offset = hits.trailing_zeros() as usize / 8;
            match chunk[offset & 7] {
                b'"' => return Some(at + offset + 1),
                b'\\' if bytes.get(at + offset + 1).is_some_and(|byte| is_simple_escape(*byte)) => {
                    step = step.max(offset + 2);
                    hits &= (!0xffff_u64).wrapping_shl(8 * u32::try_from(offset).unwrap_or(7));
                }
                b'\\' | 0..0x20 => return None,
                // A false mark: a byte after a special one can be marked too.
                _ => hits &= hits - 1,
            }
        }
        at += step;
    }
    None
}

/// Marks the quotes, the backslashes and the control characters among eight bytes. Bytes after them can be marked falsely.
#[inline]
fn specials(word: u64) -> u64 {
    let quote = word ^ (ONES * u64::from(b'"'));
    let slash = word ^ (ONES * u64::from(b'\\'));
    let hits = (word.wrapping_sub(ONES * 0x20) & !word)
        | (quote.wrapping_sub(ONES) & !quote)
        | (slash.wrapping_sub(ONES) & !slash);
    hits & HIGHS
}

/// Marks the quotes and the backslashes among eight bytes. Bytes after them can be marked falsely.
#[inline]
fn quotes_and_slashes(word: u64) -> u64 {
    let quote = word ^ (ONES * u64::from(b'"'));
    let slash = word ^ (ONES * u64::from(b'\\'));
    ((quote.wrapping_sub(ONES) & !quote) | (slash.wrapping_sub(ONES) & !slash)) & HIGHS
}

/// Whether a backslash and this byte are a complete escape.
pub(crate) fn is_simple_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')
}

/// The offset after the closing quote of a string, in a text that was validated before. `at` is after the opening quote.
#[inline]
pub(crate) fn end_of_known_string(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = next_special(bytes, at);
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(_) => return at + 1,
            None => return at,
        }
    }
}

/// The code unit of `\uXXXX` at an offset.
pub(crate) fn code_unit(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Unescapes the string whose content begins at an offset, in a text that was validated before; also returns the offset of its
/// closing quote, or of the end of the text.
fn unescape(text: &str, start: usize) -> (String, usize) {
    let bytes = text.as_bytes();
    let mut out = Unescaped::new(bytes.len() - start.min(bytes.len()));
    let mut at = start;
    loop {
        at += out.push_run(bytes, at);
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b'\\'), Some(b'u')) => {
                let c = escaped_char(text, at);
                let mut word = [0; 8];
                let length = c.encode_utf8(&mut word).len();
                out.push(word, length);
                // Skip both halves of a surrogate pair.
                at += 6 * c.len_utf16();
            }
            (Some(b'\\'), Some(escape)) => {
                out.push([unescaped(*escape), 0, 0, 0, 0, 0, 0, 0], 1);
                at += 2;
            }
            (Some(b'\\'), None) => at += 1,
            (Some(b'"') | None, _) => break,
            // The run has no end in its word.
            _ => {}
        }
    }
    (out.into_string(), at)
}

/// The byte of an escape of one character.
fn unescaped(escape: u8) -> u8 {
    match escape {
        b'b' => 0x8,
        b'f' => 0xc,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        byte => byte,
    }
}

/// The buffer of an unescaped string. Whole words are written, of which a part counts.
///
/// Most escaped strings are JSON within JSON, where the runs between escapes are short: a copy of a constant size is faster than
/// a search and a copy of each run.
struct Unescaped {
    bytes: Vec<u8>,
    length: usize,
}

impl Unescaped {
    /// The size of the buffer at first, as the end of the string is not known.
    const SIZE: usize = 4096;

    fn new(longest: usize) -> Self {
        Self { bytes: vec![0; longest.min(Self::SIZE) + 8], length: 0 }
    }

    /// Appends the first bytes of a word.
    #[inline]
    fn push(&mut self, word: [u8; 8], length: usize) {
        if let Some(end) = self.bytes.get_mut(self.length..).and_then(<[u8]>::first_chunk_mut::<8>) {
            *end = word;
        } else {
            self.bytes.resize(2 * self.bytes.len(), 0);
            return self.push(word, length);
        }
        self.length += length;
    }

    /// Appends the bytes up to the next quote or backslash, at most eight; returns their number.
    #[inline]
    fn push_run(&mut self, bytes: &[u8], at: usize) -> usize {
        if let Some(word) = eight(bytes, at) {
            // The lowest mark is never false.
            let run = quotes_and_slashes(word).trailing_zeros() as usize / 8;
            self.push(word.to_le_bytes(), run);
            return run;
        }
        match bytes.get(at) {
            Some(byte) if !matches!(byte, b'"' | b'\\') => {
                self.push([*byte, 0, 0, 0, 0, 0, 0, 0], 1);
                1
            }
            _ => 0,
        }
    }

    /// The input is UTF-8 and only whole characters are added, so this cannot fail. The rest of the buffer is freed: the string may
    /// be kept for long.
    fn into_string(mut self) -> String {
        self.bytes.truncate(self.length);
        self.bytes.shrink_to_fit();
        String::from_utf8(self.bytes).unwrap_or_default()
    }
}

/// The character of `\uXXXX`, or of a surrogate pair, at an offset.
fn escaped_char(inner: &str, at: usize) -> char {
    let units = [code_unit(inner, at), code_unit(inner, at + 6)];
    let units = units.map(|unit| unit.and_then(|unit| u16::try_from(unit).ok()).unwrap_or_default());
    char::decode_utf16(units).next().and_then(Result::ok).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The number of bytes of an escaped string that unescape to `expected`; `None` if they differ. Rare escapes count as
/// different.
pub(crate) fn read_as(found: &[u8], expected: &[u8]) -> Option<usize> {
    let (mut at, mut matched) = (0, 0);
    loop {
        if let (Some(a), Some(b)) = (eight(found, at), eight(expected, matched)) {
            let slash = a ^ (ONES * u64::from(b'\\'));
            // The lowest mark is never false.
            let slashes = slash.wrapping_sub(ONES) & !slash & HIGHS;
            let same = (a ^ b).trailing_zeros().min(slashes.trailing_zeros()) as usize / 8;
            at += same;
            matched += same;
            if same == 8 {
                continue;
            }
        }
        let Some(byte) = expected.get(matched) else { return Some(at) };
        match (found.get(at), found.get(at + 1)) {
            (Some(b'\\'), Some(escape)) if plain(*escape) == Some(*byte) => at += 2,
            // Near the end, fewer than eight bytes are left to compare.
            (Some(one), _) if one == byte && *one != b'\\' => at += 1,
            _ => return None,
        }
        matched += 1;
    }
}

#[inline]
fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(<[u8]>::first_chunk::<8>).map(|chunk| u64::from_le_bytes(*chunk))
}

/// The character of the most common escapes.
fn plain(escape: u8) -> Option<u8> {
    match escape {
        b'"' | b'\\' => Some(escape),
        b'n' => Some(b'\n'),
        _ => None,
    }
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
        let (string, end) = read_known(text, 0).unwrap();
        assert_eq!((string, end), (literal.read(text), text.len()));
    }

    #[test]
    fn long_strings_are_unescaped() {
        for length in (Unescaped::SIZE - 9..Unescaped::SIZE + 9).chain([3 * Unescaped::SIZE]) {
            let string = "é\n".repeat(length / 3) + &"x".repeat(length % 3);
            let text = serde_json::to_string(&string).unwrap() + ",";
            assert_eq!(read_known(&text, 0), Some((Cow::Owned(string), text.len() - 1)));
        }
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
            let (one, end) = read_known(&text, 0).unwrap();
            prop_assert_eq!((&*one, end), (before.as_str(), first.end + 1));
            let (other, end) = read_known(&text, end + 1).unwrap();
            prop_assert_eq!((&*other, end), (value.as_str(), text.len()));
            prop_assert!(read_known(&text[..second.end], first.end + 2).is_none());
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
