//! Eight bytes at a time: the positions of bytes in a word, as marks in their highest bits.

pub(super) const ONES: u64 = 0x0101_0101_0101_0101;
pub(super) const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The word at an offset; `None` near the end.
#[inline]
pub(super) fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(<[u8]>::first_chunk::<8>).map(|chunk| u64::from_le_bytes(*chunk))
}

/// Marks the bytes among eight that equal this one; no other byte is marked.
#[inline]
pub(super) fn equal_bytes(word: u64, byte: u8) -> u64 {
    zero_bytes(word ^ (ONES * u64::from(byte)))
}

/// Marks the zeros among eight bytes; no other byte is marked.
#[inline]
pub(super) fn zero_bytes(word: u64) -> u64 {
    !(((word & !HIGHS) + !HIGHS) | word) & HIGHS
}

/// Marks the quotes, the backslashes and the control characters among eight bytes. Bytes after them can be marked falsely.
#[inline]
pub(super) fn specials(word: u64) -> u64 {
    let quote = word ^ (ONES * u64::from(b'"'));
    let slash = word ^ (ONES * u64::from(b'\\'));
    let hits = (word.wrapping_sub(ONES * 0x20) & !word)
        | (quote.wrapping_sub(ONES) & !quote)
        | (slash.wrapping_sub(ONES) & !slash);
    hits & HIGHS
}

/// Marks the quotes and the backslashes among eight bytes. Bytes after them can be marked falsely.
#[inline]
pub(super) fn quotes_and_slashes(word: u64) -> u64 {
    let quote = word ^ (ONES * u64::from(b'"'));
    let slash = word ^ (ONES * u64::from(b'\\'));
    ((quote.wrapping_sub(ONES) & !quote) | (slash.wrapping_sub(ONES) & !slash)) & HIGHS
}
