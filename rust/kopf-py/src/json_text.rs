//! Conversion of an object's JSON text to Python's dicts, lists and scalars.
//!
//! Each event handler gets its object as a dict, so that this is a large part of the cost of an event. The text is converted
//! without intermediate values, and the strings of keys and of short values are shared between documents.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard};

use kopf_core::json::read_known;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyNone, PyString};
use serde_json::Number;

use crate::errors::decoding;

/// Converts JSON text that is a part of a decoded object: its syntax and its depth were checked then.
pub(crate) fn text_to_python<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let mut reader = Reader { py, text, at: 0, strings: SharedStrings::lock() };
    let value = reader.value()?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.malformed()),
    }
}

/// A position in the text.
struct Reader<'py, 't> {
    py: Python<'py>,
    text: &'t str,
    at: usize,
    strings: SharedStrings,
}

impl<'py, 't> Reader<'py, 't> {
    fn value(&mut self) -> PyResult<Bound<'py, PyAny>> {
        match self.peek() {
            Some(b'"') => {
                let text = self.string()?;
                Ok(self.strings.value(self.py, &text).into_any())
            }
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b't') => self.word("true", PyBool::new(self.py, true).to_owned().into_any()),
            Some(b'f') => self.word("false", PyBool::new(self.py, false).to_owned().into_any()),
            Some(b'n') => self.word("null", PyNone::get(self.py).to_owned().into_any()),
            _ => self.number(),
        }
    }

    fn object(&mut self) -> PyResult<Bound<'py, PyAny>> {
        self.at += 1;
        let dict = PyDict::new(self.py);
        if self.take(b'}') {
            return Ok(dict.into_any());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.malformed());
            }
            let key = self.string()?;
            let key = self.strings.key(self.py, &key);
            if !self.take(b':') {
                return Err(self.malformed());
            }
            let value = self.value()?;
            dict.set_item(key, value)?;
            if self.take(b'}') {
                return Ok(dict.into_any());
            }
            if !self.take(b',') {
                return Err(self.malformed());
            }
        }
    }

    fn array(&mut self) -> PyResult<Bound<'py, PyAny>> {
        self.at += 1;
        let list = PyList::empty(self.py);
        if self.take(b']') {
            return Ok(list.into_any());
        }
        loop {
            list.append(self.value()?)?;
            if self.take(b']') {
                return Ok(list.into_any());
            }
            if !self.take(b',') {
                return Err(self.malformed());
            }
        }
    }

    /// The string at the position.
    #[inline]
    fn string(&mut self) -> PyResult<Cow<'t, str>> {
        let (string, end) = read_known(self.text, self.at).ok_or_else(|| self.malformed())?;
        self.at = end;
        Ok(string)
    }

    fn number(&mut self) -> PyResult<Bound<'py, PyAny>> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length =
            rest.bytes().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
        let number = rest.get(..length.unwrap_or(rest.len())).unwrap_or_default();
        self.at += number.len();
        if let Some(number) = short_integer(number) {
            return Ok(PyInt::new(self.py, number).into_any());
        }
        let number = serde_json::from_str(number).map_err(|_| self.malformed())?;
        Ok(number_to_python(self.py, &number))
    }

    fn word(&mut self, word: &str, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.malformed())
    }

    /// The next byte that is not white space.
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

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
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

fn shared<'py>(py: Python<'py>, cache: &mut Cache, size: usize, text: &str) -> Bound<'py, PyString> {
    if cache.is_empty() {
        cache.resize_with(size, || None);
    }
    let ends = Ends::of(text.as_bytes());
    let Some(slot) = cache.get_mut(ends.hash() & (size - 1)) else { return PyString::new(py, text) };
    if let Some(known) = slot
        && known.ends == ends
        && (ends.is_whole() || known.string.bind(py).to_str().is_ok_and(|known| known == text))
    {
        return known.string.bind(py).clone();
    }
    // Not interned: CPython 3.12.0 to 3.12.5 never frees interned strings, and keys of objects are unlimited.
    let string = PyString::new(py, text);
    *slot = Some(SharedString { ends, string: string.clone().unbind() });
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
    fn of(text: &[u8]) -> Self {
        let short = || text.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
        let halves = || Some((text.first_chunk()?, text.last_chunk()?));
        let (head, tail) = match (text.first_chunk(), text.last_chunk()) {
            (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
            _ => halves().map_or_else(
                || (short(), 0),
                |(head, tail)| (u32::from_le_bytes(*head).into(), u32::from_le_bytes(*tail).into()),
            ),
        };
        Self { head, tail, length: text.len() }
    }

    fn is_whole(&self) -> bool {
        self.length <= 16
    }

    fn hash(&self) -> usize {
        let mixed = self.head ^ self.tail.rotate_left(29) ^ self.length as u64;
        usize::try_from(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53).unwrap_or_default()
    }
}
