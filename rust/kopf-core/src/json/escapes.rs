//! Escaping and unescaping of JSON strings.
//!
//! Most strings with escapes are JSON within JSON, where the runs between escapes are short. A copy of a constant size is faster
//! than a search and a copy of each run: so whole words of eight bytes are written, of which a part counts.

use super::words::{HIGHS, ONES, eight, quotes_and_slashes};

/// The unescaped string whose content begins at an offset, in a text that was validated before; also the offset of its closing
/// quote, or of the end of the text.
pub(super) fn unescape(text: &str, start: usize) -> (String, usize) {
    let bytes = text.as_bytes();
    let mut out = WordBuffer::new(bytes.len() - start.min(bytes.len()));
    let mut at = start;
    loop {
        let (read, written) = unescape_usual(bytes.get(at..).unwrap_or_default(), out.free());
        at += read;
        out.length += written;
        let (word, run) = run_before(quotes_and_slashes, bytes, at);
        at += run;
        match bytes.get(at..).and_then(<[u8]>::first_chunk) {
            Some(b"\\u") => {
                let c = escaped_char(text, at);
                let mut special = [0; 8];
                let length = c.encode_utf8(&mut special).len();
                out.push(word, run, special, length);
                // Skip both halves of a surrogate pair.
                at += 6 * c.len_utf16();
            }
            Some([b'\\', escape]) => {
                let byte = UNESCAPED[usize::from(*escape)];
                out.push(word, run, [byte, 0, 0, 0, 0, 0, 0, 0], 1);
                at += 2;
            }
            _ => {
                out.push(word, run, [0; 8], 0);
                // A shorter run ends before the quote.
                if run < 8 {
                    break;
                }
            }
        }
    }
    (out.into_string(), at)
}

/// Unescapes up to the end of the string, the first escaped code unit, or the last bytes of the text or of the buffer. Returns the
/// numbers of read and of written bytes.
#[inline]
fn unescape_usual(bytes: &[u8], out: &mut [u8]) -> (usize, usize) {
    let (mut read, mut written) = (0, 0);
    while let Some(word) = eight(bytes, read)
        && let Some(end) = out.get_mut(written..).and_then(<[u8]>::first_chunk_mut::<9>)
    {
        // The lowest mark is never false.
        let run = quotes_and_slashes(word).trailing_zeros() as usize / 8;
        if let Some(first) = end.first_chunk_mut() {
            *first = word.to_le_bytes();
        }
        read += run;
        written += run;
        if run == 8 {
            continue;
        }
        let Some([b'\\', escape]) = bytes.get(read..).and_then(<[u8]>::first_chunk) else { break };
        let byte = UNESCAPED[usize::from(*escape)];
        if byte == 0 {
            break;
        }
        end[run] = byte;
        read += 2;
        written += 1;
    }
    (read, written)
}

/// The text as the content of a JSON string, as `json.dumps()` of Python writes it: all characters but printable ASCII characters are
/// escaped.
pub(crate) fn escape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = WordBuffer::new(bytes.len() + bytes.len() / 2);
    let mut at = 0;
    while at < bytes.len() {
        let (read, written) = escape_usual(bytes.get(at..).unwrap_or_default(), out.free());
        at += read;
        out.length += written;
        let (word, run) = run_before(unprintables, bytes, at);
        at += run;
        out.push(word, run, [0; 8], 0);
        // The run may be as long as its word.
        let special = text
            .get(at..)
            .and_then(|rest| rest.chars().next())
            .filter(|c| !matches!(c, ' '..='~') || matches!(c, '"' | '\\'));
        let Some(c) = special else { continue };
        match u8::try_from(c).map(|byte| ESCAPES[usize::from(byte)]) {
            Ok(letter) if letter > 0 => out.push([b'\\', letter, 0, 0, 0, 0, 0, 0], 2, [0; 8], 0),
            _ => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push(code(*unit), 6, [0; 8], 0)),
        }
        at += c.len_utf8();
    }
    out.into_string()
}

/// Escapes up to the first character without an escape of two bytes, or the last bytes of the text or of the buffer. Returns the numbers
/// of read and of written bytes.
#[inline]
fn escape_usual(bytes: &[u8], out: &mut [u8]) -> (usize, usize) {
    let (mut read, mut written) = (0, 0);
    while let Some(word) = eight(bytes, read)
        && let Some(end) = out.get_mut(written..).and_then(<[u8]>::first_chunk_mut::<10>)
    {
        // The lowest mark is never false.
        let run = unprintables(word).trailing_zeros() as usize / 8;
        if let Some(first) = end.first_chunk_mut() {
            *first = word.to_le_bytes();
        }
        read += run;
        written += run;
        if run == 8 {
            continue;
        }
        let letter = ESCAPES[usize::from(word.to_le_bytes()[run])];
        if letter == 0 {
            break;
        }
        (end[run], end[run + 1]) = (b'\\', letter);
        read += 1;
        written += 2;
    }
    (read, written)
}

/// The offset of the first byte at or after an offset that [`escape`] changes, or the end.
#[inline]
pub(crate) fn printable_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        let (_, run) = run_before(unprintables, bytes, at);
        at += run;
        if run < 8 {
            return at;
        }
    }
}

/// The word at an offset, and the number of its first bytes before the first marked one or the end.
#[inline]
fn run_before(marks: impl Fn(u64) -> u64, bytes: &[u8], at: usize) -> ([u8; 8], usize) {
    let rest = bytes.get(at..).unwrap_or_default();
    let (mut word, length) = ([0; 8], rest.len().min(8));
    if let Some(whole) = rest.first_chunk() {
        word = *whole;
    } else {
        word.iter_mut().zip(rest).for_each(|(byte, known)| *byte = *known);
    }
    // The lowest mark is never false.
    let run = marks(u64::from_le_bytes(word)).trailing_zeros() as usize / 8;
    (word, run.min(length))
}

/// Marks the bytes among eight that are escaped. Bytes after them can be marked falsely.
#[inline]
fn unprintables(word: u64) -> u64 {
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    let others = word.wrapping_add(ONES) | word;
    quotes_and_slashes(word) | ((controls | others) & HIGHS)
}

/// The bytes of the escapes of one character, by their second byte; 0 for `\u`.
const UNESCAPED: [u8; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        table[index] = match index.to_le_bytes()[0] {
            b'u' => 0,
            b'b' => 0x8,
            b'f' => 0xc,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            byte => byte,
        };
        index += 1;
    }
    table
};

/// The second bytes of the escapes of two bytes, by the escaped byte; 0 if it has no such escape.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut letters: &[u8] = b"\"\\bfnrt";
    while let [letter, rest @ ..] = letters {
        table[UNESCAPED[*letter as usize] as usize] = *letter;
        letters = rest;
    }
    table
};

/// The escape of a code unit, of six bytes.
fn code(unit: u16) -> [u8; 8] {
    let digit = |shift: u16| b"0123456789abcdef"[usize::from(unit >> shift & 0xf)];
    [b'\\', b'u', digit(12), digit(8), digit(4), digit(0), 0, 0]
}

/// The code unit of `\uXXXX` at an offset.
pub(crate) fn code_unit(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// The character of `\uXXXX`, or of a surrogate pair, at an offset.
fn escaped_char(text: &str, at: usize) -> char {
    let units = [code_unit(text, at), code_unit(text, at + 6)];
    let units = units.map(|unit| unit.and_then(|unit| u16::try_from(unit).ok()).unwrap_or_default());
    char::decode_utf16(units).next().and_then(Result::ok).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// A buffer to which words are appended, of which only the first bytes count.
struct WordBuffer {
    bytes: Vec<u8>,
    length: usize,
}

impl WordBuffer {
    /// The largest size of the buffer at first, as the end of the string is not known.
    const SIZE: usize = 4096;

    fn new(expected: usize) -> Self {
        Self { bytes: vec![0; expected.min(Self::SIZE) + 16], length: 0 }
    }

    /// The rest of the buffer.
    fn free(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.length..).unwrap_or_default()
    }

    /// Appends the first `run` bytes of a word, at most eight, and the first `length` bytes of another word.
    #[inline]
    fn push(&mut self, word: [u8; 8], run: usize, other: [u8; 8], length: usize) {
        let end = self.bytes.get_mut(self.length..).and_then(<[u8]>::first_chunk_mut::<16>);
        let Some(end) = end else {
            self.bytes.resize(2 * self.bytes.len(), 0);
            return self.push(word, run, other, length);
        };
        if let Some(first) = end.first_chunk_mut() {
            *first = word;
        }
        if let Some(second) = end.get_mut(run..).and_then(<[u8]>::first_chunk_mut) {
            *second = other;
        }
        self.length += run + length;
    }

    /// The input is UTF-8 and only whole characters are added, so this cannot fail. The rest of the buffer is freed: the string may
    /// be kept for long.
    fn into_string(mut self) -> String {
        self.bytes.truncate(self.length);
        self.bytes.shrink_to_fit();
        String::from_utf8(self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn strings_longer_than_the_buffer_are_escaped_and_unescaped() {
        for length in (WordBuffer::SIZE - 17..WordBuffer::SIZE + 17).chain([3 * WordBuffer::SIZE]) {
            let string = "é\n".repeat(length / 3) + &"x".repeat(length % 3);
            let text = serde_json::to_string(&string).unwrap() + ",";
            assert_eq!(unescape(&text, 1), (string.clone(), text.len() - 2));
            let escaped = escape(&string);
            assert_eq!(escaped, "\\u00e9\\n".repeat(length / 3) + &"x".repeat(length % 3));
            assert_eq!(unescape(&escaped, 0), (string, escaped.len()));
        }
    }

    proptest! {
        #[test]
        fn escaped_strings_are_ascii_and_are_unescaped_again(value in "[a-c#\\]\"\\\\\n\t\u{1}\u{7f}é😀/]{0,40}", more in ".{0,20}") {
            for string in [value, more] {
                let escaped = escape(&string);
                prop_assert!(escaped.bytes().all(|byte| matches!(byte, b' '..=b'~')));
                prop_assert_eq!(serde_json::from_str::<String>(&format!("\"{escaped}\"")).unwrap(), string.as_str());
                prop_assert_eq!(unescape(&escaped, 0), (string.clone(), escaped.len()));
                let length = printable_end(string.as_bytes(), 0);
                prop_assert_eq!(&escaped[..length], &string[..length]);
                prop_assert_eq!(length == string.len(), escaped == string);
            }
        }
    }
}
