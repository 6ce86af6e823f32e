//! Access to JSON values, and parsing with the error messages of Go.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::base::field_path::FieldPath;

/// Value at a path like `/metadata/name`. Unlike `Value::pointer`, it has no escapes and allocates nothing.
pub(crate) fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('/').skip(1).try_fold(value, |above, name| above.get(name))
}

/// String member of an object; empty if it is absent or not a string.
pub(crate) fn member_text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// String at a path like `/metadata/name`; empty if it is absent or not a string.
pub(crate) fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Drops empty members, as Go's `omitempty`.
pub(crate) fn drop_empty(meta: &mut Map<String, Value>) {
    meta.retain(|_, value| match value {
        Value::Null => false,
        Value::String(s) => !s.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    });
}

/// Maximum depth of objects. The managed fields of an object are five levels deeper, and the library parses 127.
pub(crate) const DEPTH_LIMIT: usize = 120;
const TOO_DEEP: &str = "exceeded max depth";

/// Parses JSON and collects the paths of duplicate fields.
pub(crate) fn parse_json(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = DuplicateReader { path: &FieldPath::Root, levels: DEPTH_LIMIT, duplicates: &mut duplicates }
        .deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, duplicates))
}

struct DuplicateReader<'t, 'p> {
    path: &'p FieldPath<'p>,
    /// How deep the value may be.
    levels: usize,
    duplicates: &'t mut Vec<String>,
}

impl DuplicateReader<'_, '_> {
    /// The permitted levels below a map or list.
    fn levels_below<E: serde::de::Error>(&self) -> Result<usize, E> {
        self.levels.checked_sub(1).ok_or_else(|| E::custom(TOO_DEEP))
    }
}

impl<'de> DeserializeSeed<'de> for DuplicateReader<'_, '_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateReader<'_, '_> {
    type Value = Value;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let (levels, mut out) = (self.levels_below()?, Vec::new());
        loop {
            let path = FieldPath::Item(self.path, out.len());
            let duplicates = &mut *self.duplicates;
            match items.next_element_seed(DuplicateReader { path: &path, levels, duplicates })? {
                Some(item) => out.push(item),
                None => return Ok(out.into()),
            }
        }
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let (levels, mut out) = (self.levels_below()?, Map::new());
        while let Some(key) = members.next_key::<String>()? {
            let path = FieldPath::Member(self.path, &key);
            if out.contains_key(&key) {
                let path = path.text();
                if !self.duplicates.contains(&path) {
                    self.duplicates.push(path);
                }
            }
            let duplicates = &mut *self.duplicates;
            let value = members.next_value_seed(DuplicateReader { path: &path, levels, duplicates })?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

/// Kind of a JSON value in messages of Go's decoder.
pub(crate) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => "null",
    }
}

/// Message about a literal with another character, such as `nule`.
fn literal_complaint(bytes: &[u8], at: usize) -> Option<String> {
    let start = bytes.get(..at)?.iter().rposition(|byte| !byte.is_ascii_alphabetic()).map_or(0, |i| i + 1);
    let given = bytes.get(start..at)?;
    let literal = ["null", "true", "false"].into_iter().find(|it| it.as_bytes().starts_with(given))?;
    let expected = char::from(*literal.as_bytes().get(given.len()).filter(|_| !given.is_empty())?);
    let found = char::from(*bytes.get(at)?);
    Some(format!("invalid character '{found}' in literal {literal} (expecting '{expected}')"))
}

/// Message of Go's decoder for malformed JSON.
pub(crate) fn json_complaint(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    // The library counts lines and columns from one. The message contains the offending byte.
    let line_start: usize =
        bytes.split(|b| *b == b'\n').take(error.line().saturating_sub(1)).map(|l| l.len() + 1).sum();
    let at = (line_start + error.column()).saturating_sub(1);
    let found = bytes.get(at).map_or(' ', |b| char::from(*b));
    let text = error.to_string();
    if text.starts_with(TOO_DEEP) {
        return TOO_DEEP.to_owned();
    }
    if text.starts_with("expected ident")
        && let Some(complaint) = literal_complaint(bytes, at)
    {
        return complaint;
    }
    let path = if text.starts_with("key must be a string") || text.starts_with("expected `\"`") {
        "looking for beginning of object key string"
    } else if text.starts_with("expected `,` or `}`") {
        "after object key:value pair"
    } else if text.starts_with("expected `:`") {
        "after object key"
    } else if text.starts_with("expected `,` or `]`") {
        "after array element"
    } else if text.starts_with("trailing characters") {
        "after top-level value"
    } else {
        "looking for beginning of value"
    };
    format!("invalid character '{found}' {path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_of_values_is_limited() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels)).into_bytes();
        assert!(parse_json(&nested(DEPTH_LIMIT)).is_ok());
        for levels in [DEPTH_LIMIT + 1, 10_000] {
            let bytes = nested(levels);
            let error = parse_json(&bytes).unwrap_err();
            assert_eq!(json_complaint(&bytes, &error), "exceeded max depth");
        }
    }
}
