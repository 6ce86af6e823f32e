//! Built-in kinds as data.
//!
//! `kinds.txt` and `types.txt` have the resources and types of Kubernetes in a compact form. Types are parsed on first
//! use, so that starting a server costs nothing. Flags of a field: `!` required; `=x` always written, `x` if absent;
//! `list=map:a,b` / `list=set` associative lists; `patch=` and `key=` strategic merge; `atomic`; `enum=`;
//! `go=` the named Go type of a string.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::schema::{ListType, Schema, Type};
use crate::scheme::protobuf;

pub(crate) const KINDS: &str = include_str!("kinds.txt");
const TYPES: &str = include_str!("types.txt");

/// Lines of each type.
static INDEX: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let mut index = HashMap::new();
    let mut start = None;
    let mut offset = 0;
    for line in TYPES.split_inclusive('\n') {
        if !line.starts_with([' ', '#']) {
            if let Some((name, from)) = start {
                index.insert(name, TYPES.get(from..offset).unwrap_or_default());
            }
            let name = line.trim_end().split(' ').next().unwrap_or_default();
            start = Some((name, offset));
        }
        offset += line.len();
    }
    if let Some((name, from)) = start {
        index.insert(name, TYPES.get(from..).unwrap_or_default());
    }
    index
});

/// Descriptions of types and fields.
static DESCRIPTIONS: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    include_str!("descriptions.txt").lines().filter_map(|line| line.split_once(' ')).collect()
});

/// Description of a type for `kubectl explain`.
pub(crate) fn describe(type_name: &str) -> Option<&'static str> {
    DESCRIPTIONS.get(type_name).copied()
}

/// Description of a field.
pub(crate) fn describe_field(type_name: &str, field: &str) -> Option<&'static str> {
    let any = || DESCRIPTIONS.get(format!("*.{field}").as_str());
    DESCRIPTIONS.get(format!("{type_name}.{field}").as_str()).or_else(any).copied()
}

static PARSED: LazyLock<Mutex<HashMap<String, Arc<Schema>>>> = LazyLock::new(Mutex::default);

/// Schema of a type by its short name, e.g. `core.v1.Pod`. Unknown types accept everything.
pub(crate) fn schema(name: &str) -> Arc<Schema> {
    if let Some(found) = PARSED.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
        return found.clone();
    }
    let parsed = Arc::new(INDEX.get(name).map_or_else(Schema::any, |text| parse(name, text)));
    PARSED.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), parsed.clone());
    parsed
}

fn parse(name: &str, text: &str) -> Schema {
    let mut out = Schema { kind: Type::Object, type_name: name.to_owned(), ..Schema::default() };
    let mut lines = text.lines();
    out.atomic = lines.next().is_some_and(|head| head.ends_with(" atomic"));
    for line in lines {
        let mut words = line.trim_start().splitn(3, ' ');
        if let (Some(field), Some(kind)) = (words.next(), words.next()) {
            let mut schema = parse_field(kind, words.next().unwrap_or_default());
            schema.omits_zero =
                matches!(schema.kind, Type::Boolean | Type::Integer) && protobuf::omits_zero(name, field);
            schema.keeps_empty = schema.kind == Type::String && protobuf::is_pointer(name, field);
            schema.embedding = protobuf::embedding_of(name, field);
            let is_empty = schema.always_written.as_ref().is_some_and(|v| v.as_str() == Some(""));
            if is_empty && protobuf::omits_zero(name, field) {
                // Keys of associative lists have it nevertheless.
                schema.default = schema.always_written.take();
            }
            out.properties.insert(field.to_owned(), Arc::new(schema));
            if flags_of(line).any(|w| w == "!") {
                out.required.push(field.to_owned());
            }
        }
    }
    out
}

fn flags_of(line: &str) -> impl Iterator<Item = &str> {
    line.trim_start().split(' ').skip(2)
}

fn parse_type(text: &str) -> Schema {
    if let Some(item) = text.strip_prefix("[]") {
        return Schema { kind: Type::Array, items: Some(Arc::new(parse_type(item))), ..Schema::default() };
    }
    if let Some(item) = text.strip_prefix("{}") {
        return Schema {
            kind: Type::Object,
            additional: Some(Arc::new(parse_type(item))),
            ..Schema::default()
        };
    }
    let kind = match text {
        "str" => Type::String,
        "bytes" => Type::Bytes,
        "int32" | "int64" => Type::Integer,
        "num" | "double" => Type::Number,
        "bool" => Type::Boolean,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "quantity" => Type::Quantity,
        "intstr" => Type::IntOrString,
        // Raw extensions are atomic.
        "any" => return Schema { atomic: true, ..Schema::any() },
        name => return (*schema(name)).clone(),
    };
    Schema { kind, is_int32: text == "int32", ..Schema::default() }
}

fn parse_field(kind: &str, flags: &str) -> Schema {
    let mut schema = parse_type(kind);
    for flag in flags.split(' ') {
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        match name {
            "" if !value.is_empty() => schema.always_written = serde_json::from_str(value).ok(),
            "list" if value == "set" => schema.list = ListType::Set,
            "list" => schema.list = ListType::Map(keys(value)),
            "patch" => schema.patch = value.split('+').map(str::to_owned).collect(),
            "key" => value.clone_into(&mut schema.merge_key),
            "atomic" => schema.atomic = true,
            "granular" => schema.atomic = false,
            "go" if schema.kind == Type::Array => {
                if let Some(items) = &mut schema.items {
                    value.clone_into(&mut Arc::make_mut(items).go_type);
                }
            }
            "go" => value.clone_into(&mut schema.go_type),
            "enum" => schema.options = value.split('|').map(str::to_owned).collect(),
            _ => {}
        }
    }
    schema
}

fn keys(value: &str) -> Vec<String> {
    value.strip_prefix("map:").unwrap_or_default().split(',').map(str::to_owned).collect()
}
