//! Writing down an essence as its storage wants it, from JSON to JSON, with no values in between.
//!
//! Owns: the way of what is simple: names, texts, whole numbers. Anything else is refused, and takes the way over values.

use super::visitor::EssenceVisitor;
use crate::json::scanner::Cursor;
use crate::json::value::write_json_string;

/// Numbers of no more digits than this are written as they are read.
const DIGITS: usize = 18;

/// A writer of essences in the JSON style of Python.
pub(super) struct EssenceWriter {
    out: String,
    /// Whether something precedes at this level, so that a comma is due.
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
                    let is_whole = (1..=DIGITS).contains(&digits.len())
                        && digits.bytes().all(|byte| byte.is_ascii_digit());
                    let is_written_alike =
                        matches!(word, "true" | "false" | "null") || (is_whole && word != "-0");
                    is_written_alike.then(|| self.out.push_str(word))?;
                }
            }
        }
        Some(())
    }

    fn finish(self) -> Option<()> {
        Some(())
    }
}
