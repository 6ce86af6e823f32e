//! Decoding of protobuf bodies of built-in kinds, as typed Go clients and kubectl send them.
//!
//! `builtin/protobuf.txt` has the fields of each message. Types: `s` string, `i` integer, `b` boolean, `f` float, `y`
//! bytes, `q` quantity, `t`/`u` time and micro time, `o` integer or string, `r` raw JSON, `w` a wrapper of strings,
//! `A`/`B`/`S` a schema or a list of schemas, a boolean, or strings; `[]` and `{}` lists and maps; else another
//! message. Responses are JSON, which these clients accept as well.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine;
use serde_json::{Map, Value};

use crate::base::names::split_api_version;
use crate::schema::formats;

const DESCRIPTORS: &str = include_str!("builtin/protobuf.txt");
/// Media type of protobuf bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// Prefix of protobuf bodies.
const MAGIC: &[u8] = b"k8s\0";
/// Maximum nesting of messages.
const DEPTH_LIMIT: usize = 64;

struct FieldDescriptor {
    name: &'static str,
    kind: &'static str,
    /// Omitted if zero.
    omitted: bool,
}

type MessageFields = HashMap<u64, FieldDescriptor>;

static TYPES: LazyLock<HashMap<&'static str, MessageFields>> = LazyLock::new(|| {
    let mut out: HashMap<&str, MessageFields> = HashMap::new();
    let mut current = "";
    for line in DESCRIPTORS.lines().filter(|l| !l.starts_with('#')) {
        let mut words = line.trim_start().split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some(number), Some(name), Some(kind)) => {
                let field =
                    FieldDescriptor { name: name.trim_end_matches('?'), kind, omitted: name.ends_with('?') };
                if let Ok(number) = number.parse() {
                    out.entry(current).or_default().insert(number, field);
                }
            }
            (Some(name), None, None) => {
                current = name;
                out.entry(current).or_default();
            }
            _ => {}
        }
    }
    out
});

/// Whether a field of a type is omitted if it is zero.
pub(crate) fn omits_zero(type_name: &str, field: &str) -> bool {
    descriptor(type_name, field).is_some_and(|f| f.omitted)
}

/// Descriptor of a field, also of one in an embedded struct.
fn descriptor(type_name: &str, field: &str) -> Option<&'static FieldDescriptor> {
    let fields = TYPES.get(type_name)?;
    let own = fields.values().find(|f| f.name == field);
    own.or_else(|| fields.values().filter(|f| f.name == "*").find_map(|f| descriptor(f.kind, field)))
}

/// Names of the embedded structs through which a type has a field, joined by dots; empty for its own fields.
pub(crate) fn embedding_of(type_name: &str, field: &str) -> String {
    let Some(fields) = TYPES.get(type_name) else { return String::new() };
    if fields.values().any(|f| f.name == field) {
        return String::new();
    }
    let holder = fields.values().find(|f| f.name == "*" && descriptor(f.kind, field).is_some());
    holder.map_or_else(String::new, |f| {
        let short = f.kind.rsplit('.').next().unwrap_or_default();
        [short, &embedding_of(f.kind, field)].join(".").trim_end_matches('.').to_owned()
    })
}

/// Types that a type embeds.
pub(crate) fn embedded_types(type_name: &str) -> Vec<&'static str> {
    TYPES.get(type_name).into_iter().flatten().filter(|(_, f)| f.name == "*").map(|(_, f)| f.kind).collect()
}

/// Fields of a type in the order of its Go struct.
pub(crate) fn field_order(type_name: &str) -> Vec<&'static str> {
    let mut fields: Vec<_> = TYPES.get(type_name).into_iter().flatten().collect();
    fields.sort_by_key(|(number, _)| **number);
    let names = |f: &FieldDescriptor| if f.name == "*" { field_order(f.kind) } else { vec![f.name] };
    fields.into_iter().flat_map(|(_, f)| names(f)).collect()
}

/// Whether a field of a type is written even if it is empty, since it is a pointer in Go.
pub(crate) fn is_pointer(type_name: &str, field: &str) -> bool {
    descriptor(type_name, field).is_some_and(|f| !f.omitted)
}

/// Error of decoding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The prefix is missing.
    NotProtobuf,
    /// The kind is not registered.
    UnknownKind(String),
    /// The message is truncated or malformed.
    Malformed,
}

/// Encoded value of a field.
enum FieldValue<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// Iterator over the fields of a message.
struct FieldReader<'b>(&'b [u8]);

impl<'b> FieldReader<'b> {
    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut out = 0_u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first().ok_or(DecodeError::Malformed)?;
            self.0 = rest;
            out |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Ok(out);
            }
        }
        Err(DecodeError::Malformed)
    }
    fn take(&mut self, length: u64) -> Result<&'b [u8], DecodeError> {
        let length = usize::try_from(length).map_err(|_| DecodeError::Malformed)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
    fn next(&mut self) -> Result<Option<(u64, FieldValue<'b>)>, DecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field_value = match tag & 7 {
            0 => FieldValue::Number(self.varint()?),
            1 => FieldValue::Number(little_endian(self.take(8)?)),
            2 => {
                let length = self.varint()?;
                FieldValue::Bytes(self.take(length)?)
            }
            5 => FieldValue::Number(little_endian(self.take(4)?)),
            _ => return Err(DecodeError::Malformed),
        };
        Ok(Some((tag >> 3, field_value)))
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b))
}

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Malformed)
}

/// Bytes of a field; empty if absent.
fn bytes_of(message: &[u8], number: u64) -> Result<&[u8], DecodeError> {
    let mut reader = FieldReader(message);
    let mut out: &[u8] = &[];
    while let Some((found, field_value)) = reader.next()? {
        if let (true, FieldValue::Bytes(bytes)) = (found == number, field_value) {
            out = bytes;
        }
    }
    Ok(out)
}

fn number_of(message: &[u8], number: u64) -> Result<u64, DecodeError> {
    let mut reader = FieldReader(message);
    let mut out = 0;
    while let Some((found, field_value)) = reader.next()? {
        if let (true, FieldValue::Number(n)) = (found == number, field_value) {
            out = n;
        }
    }
    Ok(out)
}

/// Decodes a body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(DecodeError::NotProtobuf)?;
    let head = bytes_of(envelope, 1)?;
    let (api_version, kind) = (text(bytes_of(head, 1)?)?, text(bytes_of(head, 2)?)?);
    let (group, version) = split_api_version(api_version);
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    let qualified = format!("{package}.{version}.{kind}");
    let name = if TYPES.contains_key(qualified.as_str()) { qualified } else { format!("meta.v1.{kind}") };
    if !TYPES.contains_key(name.as_str()) {
        return Err(DecodeError::UnknownKind(format!("{kind} in version \"{api_version}\"")));
    }
    let mut out = Map::new();
    out.insert("kind".into(), kind.into());
    out.insert("apiVersion".into(), api_version.into());
    message(bytes_of(envelope, 2)?, &name, &mut out, DEPTH_LIMIT)?;
    Ok(Value::Object(out))
}

fn message(bytes: &[u8], name: &str, out: &mut Map<String, Value>, depth: usize) -> Result<(), DecodeError> {
    let depth = depth.checked_sub(1).ok_or(DecodeError::Malformed)?;
    let fields = TYPES.get(name).ok_or(DecodeError::Malformed)?;
    let mut reader = FieldReader(bytes);
    while let Some((number, field_value)) = reader.next()? {
        // Unknown fields, e.g. of a newer client, are dropped.
        let Some(field) = fields.get(&number) else { continue };
        if field.name == "*" {
            let FieldValue::Bytes(inner) = field_value else { return Err(DecodeError::Malformed) };
            message(inner, field.kind, out, depth)?;
        } else if let Some(kind) = field.kind.strip_prefix("[]") {
            let list = out.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            append(list, kind, field_value, depth)?;
        } else if let Some(kind) = field.kind.strip_prefix("{}") {
            let FieldValue::Bytes(entry) = field_value else { return Err(DecodeError::Malformed) };
            let map = out.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
            let key = text(bytes_of(entry, 1)?)?.to_owned();
            let entry_value = value(kind, FieldValue::Bytes(bytes_of(entry, 2)?), depth)?;
            if let Value::Object(map) = map {
                map.insert(key, entry_value);
            }
        } else {
            let decode = value(field.kind, field_value, depth)?;
            if !(field.omitted && is_zero(&decode)) {
                out.insert(field.name.to_owned(), decode);
            }
        }
    }
    Ok(())
}

fn append(
    list: &mut Value,
    kind: &str,
    field_value: FieldValue<'_>,
    depth: usize,
) -> Result<(), DecodeError> {
    let Value::Array(list) = list else { return Err(DecodeError::Malformed) };
    match (kind, field_value) {
        // Repeated numbers may be in the packed encoding.
        ("i", FieldValue::Bytes(values)) => {
            let mut numbers = FieldReader(values);
            while !numbers.0.is_empty() {
                list.push(numbers.varint()?.cast_signed().into());
            }
        }
        (_, field_value) => list.push(value(kind, field_value, depth)?),
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn value(kind: &str, field_value: FieldValue<'_>, depth: usize) -> Result<Value, DecodeError> {
    let bytes = match (kind, field_value) {
        ("i", FieldValue::Number(n)) => return Ok(n.cast_signed().into()),
        ("b", FieldValue::Number(n)) => return Ok((n != 0).into()),
        ("f", FieldValue::Number(n)) => return Ok(f64::from_bits(n).into()),
        (_, FieldValue::Bytes(bytes)) => bytes,
        _ => return Err(DecodeError::Malformed),
    };
    Ok(match kind {
        "s" => text(bytes)?.into(),
        "y" => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        "q" => text(bytes_of(bytes, 1)?)?.into(),
        "t" | "u" => timestamp(bytes, kind == "u")?,
        "o" if number_of(bytes, 1)? == 0 => number_of(bytes, 2)?.cast_signed().into(),
        "o" => text(bytes_of(bytes, 3)?)?.into(),
        "r" => serde_json::from_slice(bytes_of(bytes, 1)?).map_err(|_| DecodeError::Malformed)?,
        "w" => text_list(bytes, 1)?,
        "A" | "B" | "S" => schema_union(kind, bytes, depth)?,
        name => {
            let mut out = Map::new();
            message(bytes, name, &mut out, depth)?;
            Value::Object(out)
        }
    })
}

fn text_list(bytes: &[u8], number: u64) -> Result<Value, DecodeError> {
    let mut out = Vec::new();
    let mut reader = FieldReader(bytes);
    while let Some((found, field_value)) = reader.next()? {
        if let (true, FieldValue::Bytes(bytes)) = (found == number, field_value) {
            out.push(text(bytes)?.into());
        }
    }
    Ok(Value::Array(out))
}

fn timestamp(bytes: &[u8], micros: bool) -> Result<Value, DecodeError> {
    let (seconds, nanos) = (number_of(bytes, 1)?.cast_signed(), number_of(bytes, 2)?);
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|_| DecodeError::Malformed)?;
    let timestamp = jiff::Timestamp::new(seconds, nanos).map_err(|_| DecodeError::Malformed)?;
    Ok(formats::stamp(timestamp, micros).into())
}

/// Decodes the unions of a schema: one schema or several, a boolean, or strings.
fn schema_union(kind: &str, bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
    let mut schemas = Vec::new();
    let (mut allowed, mut one) = (false, None);
    let mut reader = FieldReader(bytes);
    while let Some((number, field_value)) = reader.next()? {
        match (kind, number, field_value) {
            ("B", 1, FieldValue::Number(n)) => allowed = n != 0,
            ("A" | "S", 1, FieldValue::Bytes(b)) | ("B", 2, FieldValue::Bytes(b)) => {
                one = Some(value("apiextensions.v1.JSONSchemaProps", FieldValue::Bytes(b), depth)?);
            }
            ("A", 2, FieldValue::Bytes(b)) => {
                schemas.push(value("apiextensions.v1.JSONSchemaProps", FieldValue::Bytes(b), depth)?);
            }
            ("S", 2, FieldValue::Bytes(b)) => schemas.push(text(b)?.into()),
            _ => {}
        }
    }
    Ok(match one {
        Some(schema) => schema,
        None if kind == "B" => allowed.into(),
        None => schemas.into(),
    })
}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test may stop")]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("a short field");
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let head = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &head), &field(2, raw)].concat()
    }

    #[test]
    fn a_config_map_is_decoded() {
        let meta = [field(1, b"m"), field(3, b""), field(8, b"")].concat();
        let entry = [field(1, b"a"), field(2, b"b")].concat();
        let binary = [field(1, b"x"), field(2, &[0, 255])].concat();
        let raw = [field(1, &meta), field(2, &entry), field(3, &binary), vec![4 << 3, 0]].concat();
        assert_eq!(
            decode(&body("v1", "ConfigMap", &raw)),
            Ok(
                json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "m"}, "data": {"a": "b"},
                "binaryData": {"x": "AP8="}, "immutable": false})
            )
        );
    }

    #[test]
    fn embedded_messages_and_unions_are_decoded() {
        let port = [vec![1 << 3, 0, 2 << 3, 80], field(3, b"")].concat();
        let get = field(2, &port);
        let probe = [field(1, &field(2, &get)), vec![2 << 3, 5]].concat();
        let mut out = Map::new();
        message(&probe, "core.v1.Probe", &mut out, DEPTH_LIMIT).expect("readable");
        assert_eq!(Value::Object(out), json!({"httpGet": {"port": 80}, "initialDelaySeconds": 5}));
    }

    #[test]
    fn delete_options_belong_to_every_group() {
        let raw = [vec![1 << 3, 0], field(4, b"Foreground")].concat();
        let decode = decode(&body("apps/v1", "DeleteOptions", &raw)).expect("readable");
        assert_eq!(decode["gracePeriodSeconds"], 0);
        assert_eq!(decode["propagationPolicy"], "Foreground");
    }

    #[test]
    fn malformed_bodies_are_rejected() {
        let good = body("v1", "ConfigMap", &field(1, &field(1, b"m")));
        assert_eq!(decode(b"{}"), Err(DecodeError::NotProtobuf));
        assert!(matches!(decode(&body("v1", "Nothing", b"")), Err(DecodeError::UnknownKind(_))));
        for cut in MAGIC.len() + 1..good.len() {
            assert!(decode(good.get(..cut).unwrap_or_default()).is_err() || cut < good.len() - 4, "{cut}");
        }
        let deep = (0..200).fold(
            Vec::new(),
            |inner: Vec<u8>, _| {
                if inner.len() < 120 { field(27, &inner) } else { inner }
            },
        );
        assert!(message(&deep, "core.v1.Probe", &mut Map::new(), 0).is_err());
    }

    #[test]
    fn every_type_of_the_descriptors_is_declared() {
        let scalars = ["s", "i", "b", "f", "y", "q", "t", "u", "o", "r", "w", "A", "B", "S"];
        for (name, fields) in TYPES.iter() {
            for field in fields.values() {
                let kind = field.kind.trim_start_matches("[]").trim_start_matches("{}");
                assert!(scalars.contains(&kind) || TYPES.contains_key(kind), "{name}.{}: {kind}", field.name);
            }
        }
    }
}
