//! Log lines as JSON, as `json.dumps` writes them.

use std::fmt::Write as _;

use kopf_core::object::Object;
use kopf_core::time::Timestamp;

/// A JSON object in one line, with the separators of Python's `json`.
pub(crate) struct JsonLine(String);

impl JsonLine {
    pub(crate) fn new() -> Self {
        let mut line = String::with_capacity(512);
        line.push('{');
        Self(line)
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }

    /// Adds a string; its pieces are joined.
    pub(crate) fn add_string(&mut self, key: &str, pieces: &[&str]) {
        self.add_key(key);
        self.0.push('"');
        for piece in pieces {
            self.escape(piece);
        }
        self.0.push('"');
    }

    pub(crate) fn add_number(&mut self, key: &str, number: i64) {
        self.add_key(key);
        // Writing to a string does not fail.
        let _ = write!(self.0, "{number}");
    }

    /// Adds the reference to the object.
    pub(crate) fn add_reference(&mut self, key: &str, object: &Object) {
        self.add_key(key);
        self.0.push('{');
        let fields = [
            ("apiVersion", object.api_version()),
            ("kind", object.kind()),
            ("name", object.name()),
            ("uid", object.uid()),
            ("namespace", object.namespace()),
        ];
        for (key, value) in fields {
            if let Some(value) = value {
                self.add_string(key, &[value]);
            } else {
                self.add_key(key);
                self.0.push_str("null");
            }
        }
        self.0.push('}');
    }

    /// Adds the time in seconds since the epoch, in ISO 8601 as Python's `datetime` has it.
    pub(crate) fn add_time(&mut self, key: &str, time: f64) {
        let second = time.trunc();
        let text = Timestamp::from_micros(0).plus(second).plus(time - second).to_string();
        match text.split_once(".000000") {
            Some((second, offset)) => self.add_string(key, &[second, offset]),
            None => self.add_string(key, &[&text]),
        }
    }

    fn add_key(&mut self, key: &str) {
        self.0.push_str(if self.0.ends_with('{') { "\"" } else { ", \"" });
        self.escape(key);
        self.0.push_str("\": ");
    }

    /// Appends the text in ASCII.
    fn escape(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find(|char| !matches!(char, ' '..='~') || matches!(char, '"' | '\\')) {
            let (plain, escaped) = rest.split_at(at);
            self.0.push_str(plain);
            let Some(char) = escaped.chars().next() else { break };
            self.escape_char(char);
            rest = escaped.get(char.len_utf8()..).unwrap_or_default();
        }
        self.0.push_str(rest);
    }

    fn escape_char(&mut self, char: char) {
        match char {
            '"' => self.0.push_str("\\\""),
            '\\' => self.0.push_str("\\\\"),
            '\n' => self.0.push_str("\\n"),
            '\r' => self.0.push_str("\\r"),
            '\t' => self.0.push_str("\\t"),
            '\u{8}' => self.0.push_str("\\b"),
            '\u{c}' => self.0.push_str("\\f"),
            _ => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    let _ = write!(self.0, "\\u{unit:04x}");
                }
            }
        }
    }
}
