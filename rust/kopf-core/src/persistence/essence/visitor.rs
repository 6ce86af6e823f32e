//! Token-by-token comparison of an essence with a stored JSON text.

use crate::json::scanner::{Cursor, Literal};

/// A consumer of an essence, part by part. A comparer returns `None` at the first difference from the stored text.
pub(super) trait EssenceVisitor {
    /// The opening brace of a mapping.
    fn open(&mut self) -> Option<()>;
    /// The closing brace of a mapping.
    fn close(&mut self) -> Option<()>;
    /// A key in a mapping.
    fn key(&mut self, key: &str) -> Option<()>;
    /// A value, as JSON that is known to be valid.
    fn value(&mut self, json: &str) -> Option<()>;
    /// The end of the text.
    fn finish(self) -> Option<()>;

    /// A mapping.
    fn mapping<'o>(&mut self, pairs: impl Iterator<Item = (&'o str, &'o str)>) -> Option<()> {
        self.open()?;
        for (key, json) in pairs {
            self.key(key)?;
            self.value(json)?;
        }
        self.close()
    }
}

/// A comparison with a stored text that may be malformed, and the position up to which it is equal.
pub(super) struct Stored<'t> {
    cursor: Cursor<'t>,
    /// Whether a member precedes at this level, so that a comma is expected.
    comma: bool,
}

impl<'t> Stored<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { cursor: Cursor::new(text), comma: false }
    }

    /// Compares token by token. `json` is valid, so the stored text is valid too if it has the same tokens.
    fn tokens(&mut self, json: &str) -> Option<()> {
        let mut model = Cursor::new(json);
        while let Some(byte) = model.peek() {
            if self.cursor.peek()? != byte {
                return None;
            }
            match byte {
                b'"' => self.string(&mut model)?,
                b'{' | b'}' | b'[' | b']' | b':' | b',' => {
                    model.advance(1);
                    self.cursor.advance(1);
                }
                _ => {
                    let word = bare_word(model.rest());
                    if bare_word(self.cursor.rest()) != word {
                        return None;
                    }
                    model.advance(word.len());
                    self.cursor.advance(word.len());
                }
            }
        }
        Some(())
    }

    fn string(&mut self, model: &mut Cursor<'_>) -> Option<()> {
        let (a, b) = (model.string().ok()?, self.cursor.string().ok()?);
        let (text, stored) = (model.text(), self.cursor.text());
        (inner(text, a) == inner(stored, b) || ((a.escaped || b.escaped) && a.read(text) == b.read(stored)))
            .then_some(())
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.cursor.take(byte).then_some(())
    }
}

impl EssenceVisitor for Stored<'_> {
    fn open(&mut self) -> Option<()> {
        self.comma = false;
        self.take(b'{')
    }

    fn close(&mut self) -> Option<()> {
        self.comma = true;
        self.take(b'}')
    }

    fn finish(mut self) -> Option<()> {
        self.cursor.finish().ok()
    }

    fn key(&mut self, key: &str) -> Option<()> {
        if self.comma {
            self.take(b',')?;
        }
        self.comma = true;
        let literal = self.cursor.string().ok()?;
        if literal.read(self.cursor.text()) != key {
            return None;
        }
        self.take(b':')
    }

    fn value(&mut self, json: &str) -> Option<()> {
        let _ = self.cursor.peek();
        let rest = self.cursor.rest().as_bytes();
        if rest.starts_with(json.as_bytes()) && ends_here(json, rest.get(json.len())) {
            self.cursor.advance(json.len());
            return Some(());
        }
        self.tokens(json)
    }
}

fn inner(text: &str, literal: Literal) -> &str {
    text.get(literal.start..literal.end).unwrap_or_default()
}

/// Whether the value ends before the next byte. Strings, lists and mappings are delimited; numbers and words end before the
/// first byte that cannot continue them.
fn ends_here(json: &str, next: Option<&u8>) -> bool {
    json.starts_with(['{', '[', '"']) || next.is_none_or(|byte| !is_bare(*byte))
}

fn bare_word(text: &str) -> &str {
    let length = text.bytes().take_while(|byte| is_bare(*byte)).count();
    text.get(..length).unwrap_or_default()
}

fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}
