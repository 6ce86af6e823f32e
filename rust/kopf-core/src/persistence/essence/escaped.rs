//! Comparison with a JSON text in the form in which an annotation contains it: quoted and escaped, byte by byte, without
//! unescaping.
//!
//! It recognizes only text that Kopf (or a compatible operator) wrote and no other client reformatted. Any other text
//! counts as different here; [`super::visitor::Stored`] then compares it token by token.

use super::visitor::EssenceVisitor;
use crate::json::scanner::read_as;

/// A comparison with JSON text that is escaped inside a JSON string.
pub(super) struct EscapedComparer<'t> {
    rest: &'t [u8],
    /// Whether a member precedes at this level, so that a comma is expected.
    comma: bool,
}

impl<'t> EscapedComparer<'t> {
    /// Starts a comparison with the content of this JSON string literal. `None` if the literal has no quotes.
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
