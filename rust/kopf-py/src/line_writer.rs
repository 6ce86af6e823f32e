//! Log lines of the framework, written to the stream of Kopf's log handler without a log record.
//!
//! A line is written only if nothing but this log handler can observe it. The check is repeated for each line, so that log
//! handlers, filters and agents that are installed later get the very next one. Only `logging` creates log records.

use kopf_core::object;
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyType};

use crate::json_line::JsonLine;
use crate::line_format::{Field, LineFormat, Style, TextFormat};
use crate::views::Object;

/// Writes lines of one logger. Everything in it is as Python's `logging` has it.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct LineWriter {
    logger: Py<PyAny>,
    logger_name: String,
    adapters: Vec<Class>,
    instances: Vec<Class>,
    others: Vec<Class>,
    handler: Py<PyType>,
    poster: Py<PyType>,
    /// Returns a dict with the fields of JSON lines about the running call.
    call_fields: Py<PyAny>,
    record: Py<PyAny>,
    logging: Py<PyModule>,
    time: Py<PyModule>,
}

/// A class with those of its methods that a record passes on its way to the stream, as they were at the beginning.
struct Class {
    class: Py<PyType>,
    methods: Vec<(Py<PyString>, Py<PyAny>)>,
}

/// Classes with the names of their methods.
type Classes<'py> = Vec<(Bound<'py, PyType>, Vec<Bound<'py, PyString>>)>;

#[pymethods]
impl LineWriter {
    /// `classes` are those of adapters, of other instances (the logger, handlers, formatters), and of all else. `call_fields`
    /// returns a dict with the fields of JSON lines about the running call: strings, and numbers.
    #[new]
    fn new(
        logger: &Bound<'_, PyAny>,
        classes: (Classes<'_>, Classes<'_>, Classes<'_>),
        handler: Py<PyType>,
        poster: Py<PyType>,
        call_fields: Py<PyAny>,
    ) -> PyResult<Self> {
        let (adapters, instances, others) = classes;
        let py = logger.py();
        let logging = py.import("logging")?;
        Ok(Self {
            logger: logger.clone().unbind(),
            logger_name: logger.getattr("name")?.extract()?,
            adapters: Class::all(adapters)?,
            instances: Class::all(instances)?,
            others: Class::all(others)?,
            handler,
            poster,
            call_fields,
            record: logging.getattr("LogRecord")?.unbind(),
            logging: logging.unbind(),
            time: py.import("time")?.unbind(),
        })
    }

    /// Writes a line whose level is enabled; false if it needs a log record, and is not written. `adapter` is the logger of an
    /// object, `source` the mapping with the values of the object.
    #[pyo3(signature = (adapter, source, level, text, /))]
    fn write(
        &self,
        adapter: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        level: i64,
        text: &Bound<'_, PyString>,
    ) -> PyResult<bool> {
        self.try_write(adapter, source, level, text).or_else(|error| {
            // It is reported as `logging` does, when it fails there again.
            if error.is_instance_of::<PyException>(adapter.py()) { Ok(false) } else { Err(error) }
        })
    }
}

impl LineWriter {
    fn try_write(
        &self,
        adapter: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        level: i64,
        text: &Bound<'_, PyString>,
    ) -> PyResult<bool> {
        let py = adapter.py();
        let Some(class) = class_of(adapter, &self.adapters) else { return Ok(false) };
        if !class.is_original(py)? || self.is_patched(py)? {
            return Ok(false);
        }
        let Some(handler) = self.sole_handler(adapter)? else { return Ok(false) };
        let formatter = handler.getattr(intern!(py, "formatter"))?;
        if !self.is_original(&handler)? || !self.is_original(&formatter)? {
            return Ok(false);
        }
        if level < handler.getattr(intern!(py, "level"))?.extract()? {
            return Ok(true);
        }
        let Some(mut line) = self.format(&formatter, source, level, text)? else { return Ok(false) };
        line.push_str(handler.getattr(intern!(py, "terminator"))?.cast::<PyString>()?.to_str()?);
        write_to_stream(&handler, &line)?;
        Ok(true)
    }

    /// Whether a function of `logging` is replaced, or the logger filters records.
    fn is_patched(&self, py: Python<'_>) -> PyResult<bool> {
        for class in &self.others {
            if !class.is_original(py)? {
                return Ok(true);
            }
        }
        let logger = self.logger.bind(py);
        let factory = self.logging.bind(py).call_method0(intern!(py, "getLogRecordFactory"))?;
        Ok(!factory.is(&self.record)
            || logger.getattr(intern!(py, "filters"))?.is_truthy()?
            || !self.is_original(logger)?)
    }

    /// Whether the class of the instance is known, and its methods are not replaced, neither in the class nor in the instance.
    fn is_original(&self, instance: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = instance.py();
        let Some(class) = class_of(instance, &self.instances) else { return Ok(false) };
        let own = instance.getattr(intern!(py, "__dict__"))?;
        let own = own.cast::<PyDict>()?;
        for (name, _) in &class.methods {
            if own.contains(name)? {
                return Ok(false);
            }
        }
        class.is_original(py)
    }

    /// Kopf's handler of the root logger, if nothing else can observe the line.
    fn sole_handler<'py>(&self, adapter: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = adapter.py();
        let mut found = None;
        let mut logger = self.logger.bind(py).clone();
        loop {
            let handlers = logger.getattr(intern!(py, "handlers"))?;
            for handler in handlers.cast::<PyList>()?.iter() {
                let class = handler.get_type();
                if class.is(&self.poster) {
                    let settings = adapter.getattr(intern!(py, "settings"))?;
                    let posting = settings.getattr(intern!(py, "posting"))?;
                    if posting.getattr(intern!(py, "loggers"))?.is_truthy()? {
                        return Ok(None);
                    }
                } else if class.is(&self.handler)
                    && found.is_none()
                    && !handler.getattr(intern!(py, "filters"))?.is_truthy()?
                {
                    found = Some(handler);
                } else {
                    return Ok(None);
                }
            }
            if !logger.getattr(intern!(py, "propagate"))?.is_truthy()? {
                return Ok(found);
            }
            logger = logger.getattr(intern!(py, "parent"))?;
            if logger.is_none() {
                return Ok(found);
            }
        }
    }

    /// The line as it would be formatted from a record; none if that needs a record.
    fn format(
        &self,
        formatter: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        level: i64,
        text: &Bound<'_, PyString>,
    ) -> PyResult<Option<String>> {
        let py = formatter.py();
        let format = formatter.getattr(intern!(py, "line_format"))?;
        let (Ok(format), Ok(source)) = (format.cast::<LineFormat>(), source.cast::<Object>()) else {
            return Ok(None);
        };
        let (format, object, text) = (format.get(), source.get().object(), text.to_str()?);
        let Some(name) = object.name() else { return Ok(None) };
        let namespace = object.namespace().unwrap_or_default();
        let slash = if namespace.is_empty() { "" } else { "/" };
        let message = ["[", namespace, slash, name, "] ", text];
        let message = if format.is_prefixed { &message[..] } else { &message[5..] };
        match &format.style {
            // Formatters of texts escape control characters.
            Style::Text(_) if message.iter().any(|piece| has_control(piece)) => Ok(None),
            Style::Text(format) => self.format_text(format, formatter, level, message).map(Some),
            // In JSON, only those of the prefix are escaped in this way.
            Style::Json(_) if format.is_prefixed && (has_control(name) || has_control(namespace)) => Ok(None),
            Style::Json(key) => self.format_json(py, key, object, level, message).map(Some),
        }
    }

    fn format_text(
        &self,
        format: &TextFormat,
        formatter: &Bound<'_, PyAny>,
        level: i64,
        message: &[&str],
    ) -> PyResult<String> {
        let py = formatter.py();
        format.format(|field, line| {
            match field {
                Field::Time => format.push_time(line, self.now(py)?, |second| {
                    formatter.call_method1(intern!(py, "format_second"), (second,))?.extract()
                })?,
                Field::LoggerName => line.push_str(&self.logger_name),
                Field::LevelName => {
                    let name = self.logging.bind(py).call_method1(intern!(py, "getLevelName"), (level,))?;
                    line.push_str(name.cast::<PyString>()?.to_str()?);
                }
                Field::Message => message.iter().for_each(|piece| line.push_str(piece)),
            }
            Ok(())
        })
    }

    fn format_json(
        &self,
        py: Python<'_>,
        key: &str,
        object: &object::Object,
        level: i64,
        message: &[&str],
    ) -> PyResult<String> {
        let mut line = JsonLine::new();
        line.add_string("message", message);
        line.add_time("timestamp", self.now(py)?);
        line.add_reference(key, object);
        line.add_string("severity", &[severity(level)]);
        for (name, value) in self.call_fields.bind(py).call0()?.cast::<PyDict>()?.iter() {
            let name = name.cast::<PyString>()?.to_str()?;
            if name == key {
                continue;
            }
            match value.cast::<PyString>() {
                Ok(text) => line.add_string(name, &[text.to_str()?]),
                Err(_) => line.add_number(name, value.extract()?),
            }
        }
        Ok(line.finish())
    }

    /// The time of a record.
    fn now(&self, py: Python<'_>) -> PyResult<f64> {
        self.time.bind(py).call_method0(intern!(py, "time"))?.extract()
    }
}

/// The severity in JSON.
fn severity(level: i64) -> &'static str {
    match level {
        ..=10 => "debug",
        11..=20 => "info",
        21..=30 => "warn",
        31..=40 => "error",
        _ => "fatal",
    }
}

impl Class {
    fn all(classes: Classes<'_>) -> PyResult<Vec<Self>> {
        let with_methods = |(class, names): (Bound<'_, PyType>, Vec<Bound<'_, PyString>>)| {
            let method =
                |name: Bound<'_, PyString>| Ok((name.clone().unbind(), class.getattr(name)?.unbind()));
            let methods = names.into_iter().map(method).collect::<PyResult<_>>()?;
            Ok(Self { class: class.unbind(), methods })
        };
        classes.into_iter().map(with_methods).collect()
    }

    fn is_original(&self, py: Python<'_>) -> PyResult<bool> {
        let class = self.class.bind(py);
        for (name, method) in &self.methods {
            // By identity: the wrappers of some agents are equal to what they wrap.
            if !class.getattr(name)?.is(method) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The class of the object; none if it is another one, or a subclass.
fn class_of<'c>(object: &Bound<'_, PyAny>, classes: &'c [Class]) -> Option<&'c Class> {
    let class = object.get_type();
    classes.iter().find(|known| class.is(&known.class))
}

/// Whether the text has characters that the formatters escape: control characters except tabs, and line separators.
fn has_control(text: &str) -> bool {
    if text.is_ascii() {
        // Without a branch per byte.
        let is_escaped = |byte: u8| (byte < b' ' && byte != b'\t') || byte == b'\x7f';
        return text.bytes().fold(false, |found, byte| found | is_escaped(byte));
    }
    let is_escaped =
        |char: char| (char.is_control() && char != '\t') || matches!(char, '\u{2028}' | '\u{2029}');
    text.chars().any(is_escaped)
}

/// Writes the line as `logging.StreamHandler` does.
fn write_to_stream(handler: &Bound<'_, PyAny>, line: &str) -> PyResult<()> {
    let py = handler.py();
    let lock = handler.getattr(intern!(py, "lock"))?;
    lock.call_method0(intern!(py, "acquire"))?;
    let written = handler.getattr(intern!(py, "stream")).and_then(|stream| {
        stream.call_method1(intern!(py, "write"), (line,))?;
        stream.call_method0(intern!(py, "flush"))
    });
    lock.call_method0(intern!(py, "release"))?;
    written.map(drop)
}
