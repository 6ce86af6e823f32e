//! Serialization of an essence in the format of its storage, from JSON to JSON, without building values.
//!
//! It supports names, strings, and integers. For other numbers it returns `None`, and the caller serializes values instead.

use super::visitor::EssenceVisitor;
use crate::json::scanner::Cursor;
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

    fn string(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        let literal = cursor.string().ok()?;
        let inner = cursor.text().get(literal.start..literal.end)?;
        if literal.escaped || !inner.is_ascii() || inner.contains('\u{7f}') {
            write_json_string(&mut self.out, &literal.read(cursor.text()));
        } else {
            self.out.push_str(cursor.text().get(literal.start - 1..=literal.end)?);
        }
        Some(())
    }
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
        while let Some(byte) = cursor.peek() {
            match byte {
                b'"' => self.string(&mut cursor)?,
                b'{' | b'}' | b'[' | b']' | b':' | b',' => {
                    self.out.push(char::from(byte));
                    cursor.advance(1);
                }
                _ => {
                    let range = cursor.skip_known();
                    let word = json.get(range)?;
                    let digits = word.strip_prefix('-').unwrap_or(word);
                    let is_integer = (1..=DIGITS).contains(&digits.len())
                        && digits.bytes().all(|byte| byte.is_ascii_digit());
                    let is_copied = matches!(word, "true" | "false" | "null") || (is_integer && word != "-0");
                    is_copied.then(|| self.out.push_str(word))?;
                }
            }
        }
        Some(())
    }

    fn finish(self) -> Option<()> {
        Some(())
    }
}
