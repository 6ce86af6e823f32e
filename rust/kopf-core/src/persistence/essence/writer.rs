//! Serialization of an essence in the format of its storage, from JSON to JSON, without building values.
//!
//! It supports names, strings, and integers. For other numbers it returns `None`, and the caller serializes values instead.

use std::ops::Range;

use super::visitor::EssenceVisitor;
use crate::json::printable_end;
use crate::json::scanner::{Cursor, Literal};
use crate::json::value::write_json_string;

/// Integers with at most this many digits are copied as they are.
const DIGITS: usize = 18;

/// Serializes an essence as `json.dumps()` of Python does.
pub(super) struct EssenceWriter {
    out: String,
    /// Whether a member precedes at this level, so that a comma is needed.
    comma: bool,
}

impl EssenceWriter {
    pub(super) fn new(size: usize) -> Self {
        Self { out: String::with_capacity(size), comma: false }
    }

    pub(super) fn text(self) -> String {
        self.out
    }

    /// Copies a part of the text. Usually, there is no white space in it, and it is copied as a whole.
    fn copy(&mut self, json: &str, part: Range<usize>) -> Option<()> {
        self.out.push_str(json.get(part)?);
        Some(())
    }
}

/// The offset after a string whose content is the same in the format of the storage.
fn end_of_copied_string(json: &str, at: usize) -> Option<usize> {
    let end = printable_end(json.as_bytes(), at + 1);
    (json.as_bytes().get(end)? == &b'"').then_some(end + 1)
}

/// Whether the number or the word is the same in the format of the storage.
fn is_same(word: &str) -> bool {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let is_integer = (1..=DIGITS).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    matches!(word, "true" | "false" | "null") || (is_integer && word != "-0")
}

impl EssenceVisitor for EssenceWriter {
    fn open(&mut self) -> Option<()> {
        self.comma = false;
        self.out.push('{');
        Some(())
    }

    fn close(&mut self) -> Option<()> {
        self.comma = true;
        self.out.push('}');
        Some(())
    }

    fn key(&mut self, key: &str) -> Option<()> {
        if self.comma {
            self.out.push(',');
        }
        self.comma = true;
        write_json_string(&mut self.out, key);
        self.out.push(':');
        Some(())
    }

    fn value(&mut self, json: &str) -> Option<()> {
        let mut cursor = Cursor::new(json);
        // The part that is still to be copied.
        let (mut start, mut end) = (0, 0);
        while let Some(byte) = cursor.peek() {
            if cursor.at() != end {
                self.copy(json, start..end)?;
                start = cursor.at();
            }
            match byte {
                b'"' => {
                    let at = cursor.at();
                    if let Some(after) = end_of_copied_string(json, at) {
                        cursor.advance(after - at);
                    } else {
                        let literal = Literal::known(json, at)?;
                        self.copy(json, start..at)?;
                        write_json_string(&mut self.out, &literal.read(json));
                        cursor.advance(literal.end + 1 - at);
                        start = cursor.at();
                    }
                }
                b'{' | b'}' | b'[' | b']' | b':' | b',' => cursor.advance(1),
                _ => {
                    let range = cursor.skip_known();
                    is_same(json.get(range)?).then_some(())?;
                }
            }
            end = cursor.at();
        }
        self.copy(json, start..end)
    }

    fn finish(self) -> Option<()> {
        Some(())
    }
}
