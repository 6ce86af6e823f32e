//! A stored JSON text as it stands in its annotation, quoted and escaped: compared byte by byte, with nothing unescaped.
//!
//! Owns: the comparison of what we (or another operator of this kind) have written and nobody has rewritten. Anything else
//! is unlike it here; `walk` finds out whether it still says the same.

use super::walk::Text;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The rest of the text, from the place up to which it is the same.
pub(super) struct Quoted<'t> {
    rest: &'t [u8],
    /// Whether something precedes at this level, so that a comma is due.
    comma: bool,
}

impl<'t> Quoted<'t> {
    /// The text in this JSON string.
    pub(super) fn new(literal: &'t str) -> Option<Self> {
        let rest = literal.strip_prefix('"')?.strip_suffix('"')?.as_bytes();
        Some(Self { rest, comma: false })
    }

    fn bytes(&mut self, expected: &[u8]) -> Option<()> {
        let (found, mut at, mut wanted) = (self.rest, 0, 0);
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
        self.rest = found.get(at..)?;
        Some(())
    }
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

impl Text for Quoted<'_> {
    fn open(&mut self) -> Option<()> {
        self.comma = false;
        self.bytes(b"{")
    }

    fn close(&mut self) -> Option<()> {
        self.comma = true;
        self.bytes(b"}")
    }

    fn key(&mut self, key: &str) -> Option<()> {
        if key.bytes().any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
            return None;
        }
        self.bytes(if self.comma { b",\"" } else { b"\"" })?;
        self.comma = true;
        self.bytes(key.as_bytes())?;
        self.bytes(b"\":")
    }

    fn value(&mut self, json: &str) -> Option<()> {
        self.bytes(json.as_bytes())
    }

    fn finish(self) -> Option<()> {
        matches!(self.rest, b"" | b"\\n").then_some(())
    }
}

/// What the commonest escapes stand for.
fn plain(escape: u8) -> Option<u8> {
    match escape {
        b'"' | b'\\' => Some(escape),
        b'n' => Some(b'\n'),
        _ => None,
    }
}
