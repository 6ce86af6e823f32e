//! A cursor over JSON text: it validates and skips values, and returns their positions, but builds no values.
//!
//! All text that it accepts is accepted by `serde_json` too: escapes, numbers and depth are checked accordingly.

use std::ops::Range;

use crate::json::{DecodeError, MAX_DEPTH};

use crate::json::escapes::code_unit;
pub(crate) use crate::json::strings::{Literal, read_as};
use crate::json::strings::{end_of_known_string, end_of_usual_string, is_simple_escape, next_special};

/// The number of nesting levels in one word, one bit each.
const WORD: u32 = u128::BITS;
/// The maximum number of full words before the current one.
const FULL_WORDS: usize = (MAX_DEPTH / WORD) as usize;

/// A position in the text.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

type Scanned<T> = Result<T, DecodeError>;

/// Whether the text is one JSON value.
pub(crate) fn is_json(text: &str) -> bool {
    let mut cursor = Cursor::new(text);
    cursor.skip().is_ok() && cursor.finish().is_ok()
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) fn text(&self) -> &'t str {
        self.text
    }

    /// The next byte that is not white space, without moving past it.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        // API servers write no white space.
        if let Some(byte) = bytes.get(self.at)
            && *byte > b' '
        {
            return Some(*byte);
        }
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The rest of the text.
    pub(crate) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Moves past this many bytes.
    pub(crate) fn advance(&mut self, by: usize) {
        self.at += by;
    }

    #[cold]
    pub(crate) fn fault<T>(&self, problem: &'static str) -> Scanned<T> {
        Err(DecodeError::Json { problem, at: self.at })
    }

    /// Moves past this byte if it is the next one.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    #[inline]
    fn expect(&mut self, byte: u8, problem: &'static str) -> Scanned<()> {
        if self.take(byte) { Ok(()) } else { self.fault(problem) }
    }

    /// Only white space may follow.
    pub(crate) fn finish(&mut self) -> Scanned<()> {
        if self.peek().is_some() { self.fault("something after the end") } else { Ok(()) }
    }

    /// Calls `each` for each member of an object, with the cursor at its value, which `each` must consume.
    pub(crate) fn members(&mut self, mut each: impl FnMut(&mut Self, Literal) -> Scanned<()>) -> Scanned<()> {
        self.expect(b'{', "an object is expected")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':', "a colon is expected")?;
            each(self, key)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',', "a comma is expected")?;
        }
    }

    /// Calls `each` for each item of a list, with the cursor at the item, which `each` must consume.
    pub(crate) fn items(&mut self, mut each: impl FnMut(&mut Self) -> Scanned<()>) -> Scanned<()> {
        self.expect(b'[', "a list is expected")?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            each(self)?;
            if self.take(b']') {
                return Ok(());
            }
            self.expect(b',', "a comma is expected")?;
        }
    }

    /// Reads a string; skips any other value.
    pub(crate) fn string_or_skip(&mut self) -> Scanned<Option<Literal>> {
        if self.peek() == Some(b'"') {
            self.string().map(Some)
        } else {
            self.skip()?;
            Ok(None)
        }
    }

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Scanned<Literal> {
        self.expect(b'"', "a string is expected")?;
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut at = start;
        let mut escaped = false;
        loop {
            at = next_special(bytes, at);
            match bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(Literal { start, end: at, escaped });
                }
                // JSON within JSON has many of these.
                Some(b'\\') if bytes.get(at + 1).is_some_and(|byte| is_simple_escape(*byte)) => {
                    escaped = true;
                    at += 2;
                }
                _ => {
                    self.at = at;
                    self.scan_escaped()?;
                    escaped = true;
                    at = self.at;
                }
            }
        }
    }

    /// Handles a rare part of a string: an escaped code point, or an error.
    #[cold]
    fn scan_escaped(&mut self) -> Scanned<()> {
        match self.text.as_bytes().get(self.at) {
            Some(b'\\') => self.unicode_escape(),
            Some(_) => self.fault("a control character in a string"),
            None => self.fault("the text ends within a string"),
        }
    }

    fn unicode_escape(&mut self) -> Scanned<()> {
        match self.text.as_bytes().get(self.at + 1) {
            Some(b'u') => {
                let unit = self.code_unit(self.at)?;
                let paired = (0xd800..0xdc00).contains(&unit)
                    && (0xdc00..0xe000).contains(&self.code_unit(self.at + 6)?);
                if (0xd800..0xe000).contains(&unit) && !paired {
                    return self.fault("half of a surrogate pair");
                }
                self.at += if paired { 12 } else { 6 };
                Ok(())
            }
            _ => self.fault("an unknown escape"),
        }
    }

    fn code_unit(&self, at: usize) -> Scanned<u32> {
        code_unit(self.text, at).map_or_else(|| self.fault("four hexadecimal digits are expected"), Ok)
    }

    /// Validates any value, moves past it, and returns its range.
    pub(crate) fn skip(&mut self) -> Scanned<Range<usize>> {
        let _ = self.peek();
        let start = self.at;
        // One bit per level: whether it is an object. This needs neither allocation nor recursion.
        let (mut objects, mut depth) = (0_u128, 0_u32);
        let mut outer = [0_u128; FULL_WORDS];
        loop {
            match self.peek() {
                Some(b'"') => self.pass_string()?,
                Some(open @ (b'{' | b'[')) => {
                    self.at += 1;
                    let is_object = open == b'{';
                    if !self.take(if is_object { b'}' } else { b']' }) {
                        if depth == MAX_DEPTH {
                            return self.too_deep();
                        }
                        if depth.is_multiple_of(WORD)
                            && let Some(full) = outer_word(&mut outer, depth)
                        {
                            *full = objects;
                        }
                        objects = objects << 1 | u128::from(is_object);
                        depth += 1;
                        if is_object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word("true")?,
                Some(b'f') => self.word("false")?,
                Some(b'n') => self.word("null")?,
                Some(_) => return self.fault("a value is expected"),
                None => return self.fault("the text ends too early"),
            }
            loop {
                if depth == 0 {
                    return Ok(start..self.at);
                }
                let is_object = objects & 1 == 1;
                if self.take(b',') {
                    if is_object {
                        self.key()?;
                    }
                    break;
                }
                self.expect(if is_object { b'}' } else { b']' }, "a comma or an end is expected")?;
                objects >>= 1;
                depth -= 1;
                if depth.is_multiple_of(WORD)
                    && let Some(full) = outer_word(&mut outer, depth)
                {
                    objects = *full;
                }
            }
        }
    }

    #[cold]
    fn too_deep<T>(&self) -> Scanned<T> {
        Err(DecodeError::Depth { at: self.at })
    }

    /// Moves past a string.
    #[inline]
    fn pass_string(&mut self) -> Scanned<()> {
        if self.is_next(b'"')
            && let Some(end) = end_of_usual_string(self.text.as_bytes(), self.at + 1)
        {
            self.at = end;
            return Ok(());
        }
        self.string().map(drop)
    }

    /// Moves past a value of a text that was validated before: finds only its end.
    pub(crate) fn skip_known(&mut self) -> Range<usize> {
        let first = self.peek();
        let (bytes, start) = (self.text.as_bytes(), self.at);
        let mut at = start;
        if matches!(first, Some(b'{' | b'[')) {
            let mut depth = 0_u32;
            while let Some(byte) = bytes.get(at) {
                at += 1;
                match byte {
                    b'"' => at = end_of_known_string(bytes, at),
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            break;
                        }
                    }
                    _ => {}
                }
            }
        } else if first == Some(b'"') {
            at = end_of_known_string(bytes, at + 1);
        } else {
            while bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)) {
                at += 1;
            }
        }
        self.at = at;
        start..at
    }

    #[inline]
    fn key(&mut self) -> Scanned<()> {
        self.pass_string()?;
        self.expect(b':', "a colon is expected")
    }

    fn word(&mut self, word: &'static str) -> Scanned<()> {
        if self.text.as_bytes().get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            self.at += word.len();
            Ok(())
        } else {
            self.fault("a value is expected")
        }
    }

    fn number(&mut self) -> Scanned<()> {
        let start = self.at;
        self.at += usize::from(self.is_next(b'-'));
        if self.is_next(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        let mut risky = false;
        if self.is_next(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if self.is_next(b'e') || self.is_next(b'E') {
            risky = true;
            self.at += 1;
            self.at += usize::from(self.is_next(b'+') || self.is_next(b'-'));
            self.digits()?;
        }
        if risky || self.at - start > 300 {
            let finite = self.text.get(start..self.at).and_then(|n| n.parse::<f64>().ok());
            if !finite.is_some_and(f64::is_finite) {
                return self.fault("a number out of range");
            }
        }
        Ok(())
    }

    fn digits(&mut self) -> Scanned<()> {
        let start = self.at;
        while self.text.as_bytes().get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start { self.fault("a digit is expected") } else { Ok(()) }
    }

    fn is_next(&self, byte: u8) -> bool {
        self.text.as_bytes().get(self.at) == Some(&byte)
    }
}

/// The word with the levels right before the depth, which is a multiple of the word's size.
fn outer_word(outer: &mut [u128; FULL_WORDS], depth: u32) -> Option<&mut u128> {
    outer.get_mut(((depth / WORD) as usize).checked_sub(1)?)
}

#[cfg(test)]
mod tests;
