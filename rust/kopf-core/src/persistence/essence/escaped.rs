//! A stored JSON text as it stands in its annotation, quoted and escaped: compared byte by byte, with nothing unescaped.
//!
//! Owns: the comparison of what we (or another operator of this kind) have written and nobody has rewritten. Anything else
//! is unlike it here; `walk` finds out whether it still says the same.

use super::visitor::EssenceVisitor;
use crate::json::scanner::read_as;

/// A comparison with JSON that is escaped inside of a string.
pub(super) struct EscapedComparer<'t> {
    rest: &'t [u8],
    /// Whether something precedes at this level, so that a comma is due.
    comma: bool,
}

impl<'t> EscapedComparer<'t> {
    /// The text in this JSON string.
    pub(super) fn new(literal: &'t str) -> Option<Self> {
        let rest = literal.strip_prefix('"')?.strip_suffix('"')?.as_bytes();
        Some(Self { rest, comma: false })
    }

    fn bytes(&mut self, expected: &[u8]) -> Option<()> {
        let length = read_as(self.rest, expected)?;
        self.rest = self.rest.get(length..)?;
        Some(())
    }
}

impl EssenceVisitor for EscapedComparer<'_> {
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
