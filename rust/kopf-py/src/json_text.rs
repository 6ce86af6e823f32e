//! Conversion of an object's JSON text to Python's dicts, lists and scalars.
//!
//! Each event handler gets its object as a dict, so that this is a large part of the cost of an event. The text is converted
//! without intermediate values, and the strings of keys and of short values are shared between documents.

use std::sync::{Mutex, MutexGuard};

use kopf_core::json::{escaped_string, plain_string};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyNone, PyString};
use serde_json::Number;

use crate::errors::decoding;

/// Converts JSON text that is a part of a decoded object: its syntax and its depth were checked then.
pub(crate) fn text_to_python<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let mut reader = Reader { py, text, at: 0, strings: SharedStrings::lock(), error: None };
    match reader.value() {
        Some(value) if reader.peek().is_none() => Ok(value),
        _ => Err(reader.error.take().unwrap_or_else(|| reader.malformed())),
    }
}

/// A position in the text. Its methods return `None` after an error: a result would be several times as large as a value.
struct Reader<'py, 't> {
    py: Python<'py>,
    text: &'t str,
    at: usize,
    strings: SharedStrings,
    /// The error, unless the text is malformed.
    error: Option<PyErr>,
}

impl<'py> Reader<'py, '_> {
    fn value(&mut self) -> Option<Bound<'py, PyAny>> {
        let py = self.py;
        match self.peek()? {
            b'"' => self.string().map(Bound::into_any),
            b'{' => self.object(),
            b'[' => self.array(),
            b't' => self.word(b"true", || PyBool::new(py, true).to_owned().into_any()),
            b'f' => self.word(b"false", || PyBool::new(py, false).to_owned().into_any()),
            b'n' => self.word(b"null", || PyNone::get(py).to_owned().into_any()),
            _ => self.number(),
        }
    }

    fn object(&mut self) -> Option<Bound<'py, PyAny>> {
        self.at += 1;
        let dict = PyDict::new(self.py);
        if self.take(b'}') {
            return Some(dict.into_any());
        }
        loop {
            if self.peek() != Some(b'"') {
                return None;
            }
            let key = self.key()?;
            if !self.take(b':') {
                return None;
            }
            let value = self.value()?;
            let added = dict.set_item(key, value);
            self.check(added)?;
            if self.take(b'}') {
                return Some(dict.into_any());
            }
            if !self.take(b',') {
                return None;
            }
        }
    }

    fn array(&mut self) -> Option<Bound<'py, PyAny>> {
        self.at += 1;
        let list = PyList::empty(self.py);
        if self.take(b']') {
            return Some(list.into_any());
        }
        loop {
            let value = self.value()?;
            let added = list.append(value);
            self.check(added)?;
            if self.take(b']') {
                return Some(list.into_any());
            }
            if !self.take(b',') {
                return None;
            }
        }
    }

    /// The key at the position.
    #[inline]
    fn key(&mut self) -> Option<Bound<'py, PyString>> {
        if let Some(key) = plain_string(self.text, self.at) {
            self.at += key.len() + 2;
            return Some(self.strings.key(self.py, key));
        }
        let key = self.escaped_string()?;
        Some(self.strings.key(self.py, &key))
    }

    /// The string at the position.
    #[inline]
    fn string(&mut self) -> Option<Bound<'py, PyString>> {
        if let Some(string) = plain_string(self.text, self.at) {
            self.at += string.len() + 2;
            return Some(self.strings.value(self.py, string));
        }
        let string = self.escaped_string()?;
        Some(self.strings.value(self.py, &string))
    }

    fn escaped_string(&mut self) -> Option<String> {
        let (string, end) = escaped_string(self.text, self.at)?;
        self.at = end;
        Some(string)
    }

    fn number(&mut self) -> Option<Bound<'py, PyAny>> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length =
            rest.bytes().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
        let text = rest.get(..length.unwrap_or(rest.len())).unwrap_or_default();
        if let Some(number) = short_integer(text) {
            self.at += text.len();
            return Some(PyInt::new(self.py, number).into_any());
        }
        let number = serde_json::from_str(text).ok()?;
        self.at += text.len();
        Some(number_to_python(self.py, &number))
    }

    fn word<const N: usize>(
        &mut self,
        word: &[u8; N],
        value: impl FnOnce() -> Bound<'py, PyAny>,
    ) -> Option<Bound<'py, PyAny>> {
        let found = self.text.as_bytes().get(self.at..)?.first_chunk::<N>()?;
        if found != word {
            return None;
        }
        self.at += N;
        Some(value())
    }

    /// The next byte that is not white space.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        // API servers write no white space.
        if let Some(&byte) = bytes.get(self.at)
            && byte > b' '
        {
            return Some(byte);
        }
        while let Some(&byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    #[inline]
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Keeps the error, if it is one.
    #[inline]
    fn check(&mut self, result: PyResult<()>) -> Option<()> {
        match result {
            Ok(()) => Some(()),
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    #[cold]
    fn malformed(&self) -> PyErr {
        decoding(format!("unexpected text at byte {}", self.at))
    }
}

/// An integer that fits into 64 bits by its number of digits. `-0` is a float in JSON of Python and of API servers.
fn short_integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    if digits.is_empty() || digits.len() > 18 || (digits == b"0" && digits.len() < text.len()) {
        return None;
    }
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Some(if digits.len() < text.len() { -number } else { number })
}

/// A number as an `int` if it is an integer of 64 bits; else as a `float`.
pub(crate) fn number_to_python<'py>(py: Python<'py>, number: &Number) -> Bound<'py, PyAny> {
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => PyInt::new(py, number).into_any(),
        (None, Some(number)) => PyInt::new(py, number).into_any(),
        (None, None) => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
    }
}

/// Python strings that repeat from object to object: the keys, and short values. Each kind is a direct-mapped cache.
///
/// It has no entries if it is in use already: a garbage collection during a conversion may run other conversions.
pub(crate) struct SharedStrings(Option<MutexGuard<'static, [Cache; 2]>>);

type Cache = Vec<Option<SharedString>>;

struct SharedString {
    ends: Ends,
    string: Py<PyString>,
}

/// The sizes of the caches: powers of two.
const KEY_SLOTS: usize = 2048;
const VALUE_SLOTS: usize = 1024;

/// The lengths of the longest shared strings, in bytes.
const MAX_SHARED_KEY: usize = 64;
const MAX_SHARED_VALUE: usize = 16;

static SHARED_STRINGS: Mutex<[Cache; 2]> = Mutex::new([Vec::new(), Vec::new()]);

impl SharedStrings {
    pub(crate) fn lock() -> Self {
        Self(SHARED_STRINGS.try_lock().ok())
    }

    pub(crate) fn key<'py>(&mut self, py: Python<'py>, text: &str) -> Bound<'py, PyString> {
        match self.0.as_deref_mut() {
            Some([keys, _]) if text.len() <= MAX_SHARED_KEY => shared(py, keys, KEY_SLOTS, text),
            _ => PyString::new(py, text),
        }
    }

    fn value<'py>(&mut self, py: Python<'py>, text: &str) -> Bound<'py, PyString> {
        match self.0.as_deref_mut() {
            Some([_, values]) if text.len() <= MAX_SHARED_VALUE => shared(py, values, VALUE_SLOTS, text),
            _ => PyString::new(py, text),
        }
    }
}

#[inline]
fn shared<'py>(py: Python<'py>, cache: &mut Cache, size: usize, text: &str) -> Bound<'py, PyString> {
    let ends = Ends::of(text.as_bytes());
    if let Some(Some(known)) = cache.get(ends.hash() & (size - 1))
        && known.ends == ends
        && (ends.is_whole() || known.string.bind(py).to_str().is_ok_and(|known| known == text))
    {
        return known.string.bind(py).clone();
    }
    newly_shared(py, cache, size, text, ends)
}

#[cold]
fn newly_shared<'py>(
    py: Python<'py>,
    cache: &mut Cache,
    size: usize,
    text: &str,
    ends: Ends,
) -> Bound<'py, PyString> {
    if cache.is_empty() {
        cache.resize_with(size, || None);
    }
    // Not interned: CPython 3.12.0 to 3.12.5 never frees interned strings, and keys of objects are unlimited.
    let string = PyString::new(py, text);
    if let Some(slot) = cache.get_mut(ends.hash() & (size - 1)) {
        *slot = Some(SharedString { ends, string: string.clone().unbind() });
    }
    string
}

/// The first and the last bytes of a text, which may overlap, and its length: they identify a short text.
#[derive(PartialEq)]
struct Ends {
    head: u64,
    tail: u64,
    length: usize,
}

impl Ends {
    #[inline]
    fn of(text: &[u8]) -> Self {
        let length = text.len();
        if let (Some(head), Some(tail)) = (text.first_chunk(), text.last_chunk()) {
            return Self { head: u64::from_le_bytes(*head), tail: u64::from_le_bytes(*tail), length };
        }
        if let (Some(head), Some(tail)) = (text.first_chunk(), text.last_chunk()) {
            let [head, tail] = [head, tail].map(|half| u32::from_le_bytes(*half).into());
            return Self { head, tail, length };
        }
        let head = text.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
        Self { head, tail: 0, length }
    }

    fn is_whole(&self) -> bool {
        self.length <= 16
    }

    fn hash(&self) -> usize {
        let mixed = self.head ^ self.tail.rotate_left(29) ^ self.length as u64;
        usize::try_from(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53).unwrap_or_default()
    }
}
