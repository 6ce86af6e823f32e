//! Strings of JSON: where they end, what is escaped in them, and what they mean.
//!
//! Owns: words of eight bytes, and escapes. Must not know: where in the text a string stands.

use std::borrow::Cow;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Where a string stands in the text, without its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Literal {
    pub start: usize,
    pub end: usize,
    pub escaped: bool,
}

impl Literal {
    /// The string that is meant.
    pub(crate) fn read<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let inner = text.get(self.start..self.end).unwrap_or_default();
        if self.escaped { Cow::Owned(unescape(inner)) } else { Cow::Borrowed(inner) }
    }
}

/// The first quote, backslash or control character at or after a place; eight bytes at a time.
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

/// The place after the closing quote of a string that begins there, if there is nothing unusual in it.
///
/// Eight bytes at a time, and each special one of them in its turn: in JSON within JSON, every fifth byte is special.
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
                // A byte after a special one may look like one.
                _ => hits &= hits - 1,
            }
        }
        at += step;
    }
    None
}

/// Marks the quotes, the backslashes and the control characters among eight bytes; and maybe, falsely, those after them.
#[inline]
fn specials(word: u64) -> u64 {
    let quote = word ^ (ONES * u64::from(b'"'));
    let slash = word ^ (ONES * u64::from(b'\\'));
    let hits = (word.wrapping_sub(ONES * 0x20) & !word)
        | (quote.wrapping_sub(ONES) & !quote)
        | (slash.wrapping_sub(ONES) & !slash);
    hits & HIGHS
}

/// Whether the byte after a backslash makes a whole escape.
pub(crate) fn is_simple_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')
}

/// The place after a string of which the opening quote is before that place, in a text that was checked before.
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

/// The code unit of `\uXXXX` at a place.
pub(crate) fn code_unit(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Undoes the escapes of a string that was scanned before.
///
/// Byte by byte: in JSON within JSON, which is what is escaped mostly, the runs between escapes are short.
fn unescape(inner: &str) -> String {
    let bytes = inner.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'b') => out.push(0x8),
            Some(b'f') => out.push(0xc),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'u') => {
                let at = bytes.len() - rest.len() - 2;
                let c = escaped_char(inner, at);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                // Four digits, and the other half of a pair.
                rest = bytes.get(at + 6 * c.len_utf16()..).unwrap_or_default().iter();
            }
            Some(&byte) => out.push(byte),
            None => {}
        }
    }
    // Whole characters come out as whole characters went in.
    String::from_utf8(out).unwrap_or_default()
}

/// The character of `\uXXXX`, or of a pair of them, at a place.
fn escaped_char(inner: &str, at: usize) -> char {
    let units = [code_unit(inner, at), code_unit(inner, at + 6)];
    let units = units.map(|unit| unit.and_then(|unit| u16::try_from(unit).ok()).unwrap_or_default());
    char::decode_utf16(units).next().and_then(Result::ok).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// How many bytes of the inside of a string read as these; none if they read otherwise. Rare escapes are not looked at: they
/// read otherwise.
pub(crate) fn read_as(found: &[u8], expected: &[u8]) -> Option<usize> {
    let (mut at, mut wanted) = (0, 0);
    while wanted < expected.len() {
        let same = equal_run(found.get(at..)?, expected.get(wanted..)?);
        at += same;
        wanted += same;
        let Some(byte) = expected.get(wanted) else { break };
        match found.get(at..)? {
            [b'\\', escape, ..] if plain(*escape) == Some(*byte) => {
                at += 2;
                wanted += 1;
            }
            // Near the end there are no eight bytes to be compared at once.
            [one, ..] if one == byte && *one != b'\\' => {
                at += 1;
                wanted += 1;
            }
            _ => return None,
        }
    }
    Some(at)
}

/// How many bytes are equal and no escapes, by eights and what is left of the last eight.
#[inline]
fn equal_run(found: &[u8], expected: &[u8]) -> usize {
    let mut at = 0;
    while let (Some(a), Some(b)) = (eight(found, at), eight(expected, at)) {
        let slash = a ^ (ONES * u64::from(b'\\'));
        // The lowest mark is always a true one.
        let slashes = slash.wrapping_sub(ONES) & !slash & HIGHS;
        let stop = (a ^ b).trailing_zeros().min(slashes.trailing_zeros()) as usize / 8;
        at += stop;
        if stop < 8 {
            break;
        }
    }
    at
}

#[inline]
fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(<[u8]>::first_chunk::<8>).map(|chunk| u64::from_le_bytes(*chunk))
}

/// What the commonest escapes stand for.
fn plain(escape: u8) -> Option<u8> {
    match escape {
        b'"' | b'\\' => Some(escape),
        b'n' => Some(b'\n'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_unescaped() {
        let text = r#""a\"b\\c\/d\b\f\n\r\t\u00e9\ud83d\ude00\u0041é""#;
        let literal = super::super::scanner::Cursor::new(text).string().unwrap();
        assert_eq!(literal.read(text), serde_json::from_str::<String>(text).unwrap());
    }

    #[test]
    fn what_is_inside_of_a_string_is_compared_with_what_it_means() {
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
