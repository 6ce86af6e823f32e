//! The formats of log lines that are formatted without a log record: those of Kopf's formatters.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// The format of a formatter, if all its fields are known here.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct LineFormat {
    pub(crate) style: Style,
    /// Whether the message of a line begins with the namespace and name of the object.
    pub(crate) is_prefixed: bool,
    /// The format or the key, as given.
    text: Py<PyString>,
}

pub(crate) enum Style {
    Text(TextFormat),
    /// JSON, with the key of the object.
    Json(String),
}

#[pymethods]
impl LineFormat {
    /// A %-format as `logging` has it; none if it has other fields or conversions than those of Kopf's formats.
    #[staticmethod]
    fn parse(format: &Bound<'_, PyString>, is_prefixed: bool) -> Option<Self> {
        let style = Style::Text(TextFormat::parse(format.to_str().ok()?)?);
        Some(Self { style, is_prefixed, text: format.clone().unbind() })
    }

    /// JSON, with the key of the object; none if fields of all lines have that key.
    #[staticmethod]
    fn json(key: &Bound<'_, PyString>, is_prefixed: bool) -> Option<Self> {
        let text = key.to_str().ok()?;
        let is_other = matches!(text, "message" | "timestamp" | "severity");
        let style = Style::Json(text.to_owned());
        (!is_other).then(|| Self { style, is_prefixed, text: key.clone().unbind() })
    }

    /// Formatters can be copied and pickled.
    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, LineFormatArgs)> {
        let make = match self.style {
            Style::Text(_) => "parse",
            Style::Json(_) => "json",
        };
        let make = PyType::new::<Self>(py).getattr(make)?;
        Ok((make.unbind(), (self.text.clone_ref(py), self.is_prefixed)))
    }
}

/// The arguments of the constructors.
type LineFormatArgs = (Py<PyString>, bool);

/// A %-format.
pub(crate) struct TextFormat {
    parts: Vec<Part>,
    /// The last second that was made into text, with its text: most lines come in bursts.
    second: Mutex<(i64, String)>,
}

enum Part {
    Literal(String),
    Field(Field, Layout),
}

/// A field of a %-format.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    Time,
    LoggerName,
    LevelName,
    Message,
}

/// Flags, width and precision of a field, such as `-20.20`; in characters.
#[derive(Default)]
struct Layout {
    is_left: bool,
    width: usize,
    precision: Option<usize>,
}

impl TextFormat {
    fn parse(format: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = format;
        while let Some((literal, conversion)) = rest.split_once('%') {
            parts.push(Part::Literal(literal.to_owned()));
            if let Some(after) = conversion.strip_prefix('%') {
                parts.push(Part::Literal("%".to_owned()));
                rest = after;
                continue;
            }
            let (name, conversion) = conversion.strip_prefix('(')?.split_once(')')?;
            let (layout, after) = conversion.split_once('s')?;
            parts.push(Part::Field(Field::parse(name)?, Layout::parse(layout)?));
            rest = after;
        }
        parts.push(Part::Literal(rest.to_owned()));
        Some(Self { parts, second: Mutex::new((i64::MIN, String::new())) })
    }

    /// Formats a line; `push` appends the value of a field.
    pub(crate) fn format(
        &self,
        mut push: impl FnMut(Field, &mut String) -> PyResult<()>,
    ) -> PyResult<String> {
        let mut line = String::with_capacity(256);
        for part in &self.parts {
            match part {
                Part::Literal(text) => line.push_str(text),
                Part::Field(field, layout) => {
                    let start = line.len();
                    push(*field, &mut line)?;
                    layout.apply(&mut line, start);
                }
            }
        }
        Ok(line)
    }

    /// Appends the time in seconds since the epoch, with milliseconds; `format` makes a second into text.
    pub(crate) fn push_time(
        &self,
        line: &mut String,
        time: f64,
        format: impl FnOnce(i64) -> PyResult<String>,
    ) -> PyResult<()> {
        #[expect(clippy::cast_possible_truncation, reason = "as `int()` for times of this era")]
        let (second, millisecond) = (time as i64, ((time - time.trunc()) * 1000.0) as i64);
        if !self.push_known(line, second) {
            // Not locked: it runs Python code.
            let text = format(second)?;
            line.push_str(&text);
            *self.second() = (second, text);
        }
        // Writing to a string does not fail.
        let _ = write!(line, ",{millisecond:03}");
        Ok(())
    }

    fn push_known(&self, line: &mut String, second: i64) -> bool {
        let known = self.second();
        if known.0 == second {
            line.push_str(&known.1);
        }
        known.0 == second
    }

    fn second(&self) -> MutexGuard<'_, (i64, String)> {
        self.second.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Field {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "asctime" => Self::Time,
            "name" => Self::LoggerName,
            "levelname" => Self::LevelName,
            "message" => Self::Message,
            _ => return None,
        })
    }
}

impl Layout {
    fn parse(text: &str) -> Option<Self> {
        let (is_left, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (width, precision) = match text.split_once('.') {
            Some((width, precision)) => (width, Some(number(precision)?)),
            None => (text, None),
        };
        Some(Self { is_left, width: number(width)?, precision })
    }

    /// Truncates and pads what follows `start`.
    fn apply(&self, line: &mut String, start: usize) {
        if self.width == 0 && self.precision.is_none() {
            return;
        }
        let value = line.get(start..).unwrap_or_default();
        if let Some(precision) = self.precision
            && let Some((end, _)) = value.char_indices().nth(precision)
        {
            line.truncate(start + end);
        }
        let length = line.get(start..).unwrap_or_default().chars().count();
        let padding = " ".repeat(self.width.saturating_sub(length));
        line.insert_str(if self.is_left { line.len() } else { start }, &padding);
    }
}

/// A decimal number of at most three digits; nothing is 0.
fn number(digits: &str) -> Option<usize> {
    let is_number = digits.len() <= 3 && digits.bytes().all(|digit| digit.is_ascii_digit());
    if digits.is_empty() { Some(0) } else { digits.parse().ok().filter(|_| is_number) }
}
