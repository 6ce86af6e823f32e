//! JSON values with Python's equality, truth, and text forms.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Number;
pub use serde_json::{Map, Value};

use crate::json::escapes::escape;
use crate::json::scanner::Cursor;
use crate::json::{DecodeError, printable_end};

/// Parses a text that was validated when its object was decoded, so that its depth is bounded.
///
/// # Errors
///
/// If it is not JSON.
pub fn parse_checked<'t, T: Deserialize<'t>>(text: &'t str) -> serde_json::Result<T> {
    let mut source = serde_json::Deserializer::from_str(text);
    // The parser's own limit is lower than `MAX_DEPTH`.
    source.disable_recursion_limit();
    let value = T::deserialize(&mut source)?;
    source.end()?;
    Ok(value)
}

/// Parses a text that is not validated yet, such as an annotation: as deep as an object may be.
///
/// # Errors
///
/// If it is not JSON, or nested too deeply.
pub fn parse(text: &str) -> Result<Value, String> {
    // Few texts are deeper than the parser's default limit.
    serde_json::from_str(text).or_else(|error| match Cursor::new(text).skip() {
        Ok(_) => parse_checked(text).map_err(|error| error.to_string()),
        Err(deep @ DecodeError::Depth { .. }) => Err(deep.to_string()),
        Err(_) => Err(error.to_string()),
    })
}

/// Python's `==`: `1 == 1.0 == true`, mappings unordered, lists ordered.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            // Usually the order is the same, and no lookup is needed.
            let mut others = b.iter();
            a.len() == b.len()
                && a.iter().all(|(key, a)| match others.next() {
                    Some((same, b)) if same == key => equal(a, b),
                    _ => b.get(key).is_some_and(|b| equal(a, b)),
                })
        }
        _ => match (numeric(a), numeric(b)) {
            (Some(a), Some(b)) => a.equals(b),
            _ => false,
        },
    }
}

/// `bool(v)` of Python.
pub fn truthy(v: &Value) -> bool {
    match v {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// Python's `json.dumps(v, separators=(',', ':'))`: compact, with all non-ASCII characters escaped.
pub fn to_python_json(v: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, v);
    out
}

/// Python's `repr()` of the value, for log lines.
pub fn python_repr(v: &Value) -> String {
    let mut out = String::new();
    write_repr(&mut out, v);
    out
}

#[derive(Clone, Copy)]
enum Numeric {
    Int(i128),
    Float(f64),
}

impl Numeric {
    fn equals(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b) == Some(Ordering::Equal),
            (Self::Int(int), Self::Float(float)) | (Self::Float(float), Self::Int(int)) => {
                exact_integer(float) == Some(int)
            }
        }
    }
}

fn numeric(v: &Value) -> Option<Numeric> {
    match v {
        Value::Bool(flag) => Some(Numeric::Int(i128::from(*flag))),
        Value::Number(n) => n
            .as_i64()
            .map(i128::from)
            .or_else(|| n.as_u64().map(i128::from))
            .map(Numeric::Int)
            .or_else(|| n.as_f64().map(Numeric::Float)),
        _ => None,
    }
}

/// The integer that equals a float, if it is in the range where the conversion is exact.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked before")]
fn exact_integer(float: f64) -> Option<i128> {
    (float.trunc().total_cmp(&float) == Ordering::Equal && float.abs() < 1e30).then_some(float as i128)
}

fn write_json(out: &mut String, v: &Value) {
    match v {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(n) => write_number(out, n),
        Value::String(text) => write_json_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            map.iter().for_each(|(key, value)| write_json_member(out, key, value));
            out.push('}');
        }
    }
}

/// Appends a member of an object in the format of [`to_python_json`], after a comma if it is not the first one.
pub fn write_json_member(out: &mut String, key: &str, value: &Value) {
    if !out.ends_with('{') {
        out.push(',');
    }
    write_json_string(out, key);
    out.push(':');
    write_json(out, value);
}

pub(crate) fn write_json_string(out: &mut String, text: &str) {
    out.reserve(text.len() + 2);
    out.push('"');
    let (printable, rest) = text.split_at(printable_end(text.as_bytes(), 0));
    out.push_str(printable);
    if !rest.is_empty() {
        out.push_str(&escape(rest));
    }
    out.push('"');
}

fn write_number(out: &mut String, n: &Number) {
    match n.as_f64() {
        Some(float) if n.is_f64() => write_float(out, float),
        _ => {
            let _ = write!(out, "{n}");
        }
    }
}

/// Python's shortest form of a float: positional between 1e-4 and 1e16, otherwise with a signed two-digit exponent.
fn write_float(out: &mut String, float: f64) {
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let positional = format!("{float}");
        out.push_str(&positional);
        if !positional.contains('.') {
            out.push_str(".0");
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
}

fn write_repr(out: &mut String, v: &Value) {
    match v {
        Value::Null => out.push_str("None"),
        Value::Bool(flag) => out.push_str(if *flag { "True" } else { "False" }),
        Value::Number(n) => write_number(out, n),
        Value::String(text) => write_repr_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (i, (key, value)) in map.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr_string(out, key);
                out.push_str(": ");
                write_repr(out, value);
            }
            out.push('}');
        }
    }
}

pub(crate) fn write_repr_string(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            _ if printable(c) => out.push(c),
            _ => {
                let code = u32::from(c);
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Whether the standard library prints the character without an escape. The leading letter is needed because combining
/// marks are escaped only at the beginning of a text.
fn printable(c: char) -> bool {
    let shown: String = format!("a{c}").escape_debug().collect();
    !shown.contains('\\')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // contract: engine 0.1
    #[test]
    fn numbers_and_flags_compare_as_in_python() {
        assert!(equal(&json!(1), &json!(1.0)));
        assert!(equal(&json!(true), &json!(1)));
        assert!(equal(&json!(0.0), &json!(false)));
        assert!(equal(&json!(-0.0), &json!(0)));
        assert!(equal(&json!(u64::MAX), &json!(u64::MAX)));
        assert!(!equal(&json!(u64::MAX), &json!(u64::MAX - 1)));
        assert!(!equal(&json!(9_007_199_254_740_993_i64), &json!(9_007_199_254_740_992.0)));
        assert!(!equal(&json!(null), &json!(false)));
        assert!(!equal(&json!("1"), &json!(1)));
    }

    // contract: engine 0.1
    #[test]
    fn mappings_compare_unordered_and_lists_ordered() {
        assert!(equal(&json!({"a": 1, "b": [1, {}]}), &json!({"b": [true, {}], "a": 1.0})));
        assert!(!equal(&json!([1, 2]), &json!([2, 1])));
        assert!(!equal(&json!({"a": null}), &json!({})));
    }

    #[test]
    fn values_are_truthy_as_in_python() {
        for falsy in [json!(null), json!(0), json!(0.0), json!(""), json!([]), json!({}), json!(false)] {
            assert!(!truthy(&falsy), "{falsy}");
        }
        for true_ in [json!(1), json!(0.1), json!("0"), json!([0]), json!({"a": null}), json!(true)] {
            assert!(truthy(&true_), "{true_}");
        }
    }

    #[test]
    fn json_is_compact_and_ascii() {
        let value = json!({"k": ["é", "😀", "\u{7f}\u{1}\n\"\\/", 1.0, 1e16, 1e-5, 1.5e-7, 123_456_789.125, null, true]});
        assert_eq!(
            to_python_json(&value),
            "{\"k\":[\"\\u00e9\",\"\\ud83d\\ude00\",\"\\u007f\\u0001\\n\\\"\\\\/\",1.0,1e+16,1e-05,1.5e-07,123456789.125,null,true]}"
        );
    }

    #[test]
    fn repr_is_that_of_python() {
        let value =
            json!({"a": [null, true, 1, 2.0], "it's": "it's", "q": "'\"", "n": "\n\u{1}\u{ad}é😀e\u{301}"});
        assert_eq!(
            python_repr(&value),
            "{'a': [None, True, 1, 2.0], \"it's\": \"it's\", 'q': '\\'\"', 'n': '\\n\\x01\\xadé😀e\u{301}'}"
        );
    }
}
