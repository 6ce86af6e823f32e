//! Sizes that values of a schema can have at most, from its limits or from the size of a request.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::super::{Checks, Schema, Type};
use super::escaping::escaped;

/// Maximum size of a request, in bytes.
pub(super) const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// The maximum number of items, properties or bytes of a value; 0 for other types. `None` if rules cannot read the value.
pub(super) fn max_elements(schema: &Schema) -> Option<u64> {
    let checks = schema.checks.as_deref();
    let available = MAX_REQUEST - 2;
    Some(match schema.kind {
        Type::IntOrString => text_length(checks).unwrap_or(available),
        Type::Array => {
            let items = min_size(schema.items.as_deref()?)?;
            checks.and_then(|it| it.items.1).unwrap_or(available / (items + 1))
        }
        Type::Object => match schema.additional.as_deref() {
            // A pair has quotes, a colon and a comma, and a key of at least two bytes.
            Some(values) => {
                let pair = min_size(values)? + 6;
                checks.and_then(|it| it.properties.1).unwrap_or(available / pair)
            }
            None => 0,
        },
        Type::String => max_length(checks),
        Type::Integer | Type::Number | Type::Boolean => 0,
        _ => return None,
    })
}

fn max_length(checks: Option<&Checks>) -> u64 {
    let limit = checks.and_then(|it| it.length.1);
    match checks.map_or("", |it| it.format.as_str()) {
        "byte" => limit.unwrap_or(MAX_REQUEST - 2),
        "duration" | "date-time" => 32,
        "date" => 12,
        _ => text_length(checks).unwrap_or_else(|| {
            let options = checks.and_then(|it| it.options.as_ref()).filter(|options| !options.is_empty());
            options.map_or(MAX_REQUEST - 2, |options| options.iter().map(length).max().unwrap_or(0))
        }),
    }
}

/// `maxLength` in bytes: it counts characters, of which each can have four.
fn text_length(checks: Option<&Checks>) -> Option<u64> {
    checks.and_then(|it| it.length.1).map(|characters| characters.saturating_mul(4))
}

fn length(option: &Value) -> u64 {
    option.as_str().map_or(0, |text| u64::try_from(text.len()).unwrap_or(u64::MAX))
}

/// The minimum number of bytes of a value in JSON; `None` if rules cannot read the value.
pub(super) fn min_size(schema: &Schema) -> Option<u64> {
    Some(match schema.kind {
        Type::Integer | Type::Number | Type::IntOrString => 1,
        Type::Boolean => 4,
        Type::String => match schema.checks.as_deref().map_or("", |it| it.format.as_str()) {
            "duration" => 3,
            "date" => 12,
            "date-time" => 21,
            _ => 2,
        },
        Type::Array => min_size(schema.items.as_deref()?).map(|_| 2)?,
        Type::Object if schema.additional.is_some() => 2,
        // Braces, and the names and values of required properties. Defaults are not in the request.
        Type::Object => schema.required.iter().fold(2, |size, name| {
            let property = schema.properties.get(name).filter(|it| it.default.is_none());
            let value = property.and_then(|it| min_size(it));
            value.map_or(size, |value| size + u64::try_from(name.len()).unwrap_or(0) + value + 4)
        }),
        _ => return None,
    })
}

/// The schema of a member, by its name in expressions. At the root of a resource, the metadata is known without being declared.
pub(super) fn member<'s>(schema: &'s Schema, name: &str, is_root: bool) -> Option<&'s Schema> {
    let known = || ROOT.properties.get(name).filter(|_| is_root || schema.embedded);
    if is_root && name == "metadata" {
        return known().map(AsRef::as_ref);
    }
    property(schema, name).or(schema.additional.as_ref()).or_else(known).map(AsRef::as_ref)
}

/// The schema of a property, by its name in expressions.
fn property<'s>(schema: &'s Schema, name: &str) -> Option<&'s Arc<Schema>> {
    if name.contains("__") {
        return schema.properties.iter().find(|(known, _)| escaped(known) == name).map(|(_, schema)| schema);
    }
    schema.properties.get(name)
}

static ROOT: LazyLock<Schema> = LazyLock::new(|| {
    let text = || Arc::new(Schema { kind: Type::String, ..Schema::default() });
    let object = |names: &[&str]| Schema {
        kind: Type::Object,
        properties: names.iter().map(|&name| (name.to_owned(), text())).collect(),
        ..Schema::default()
    };
    let mut root = object(&["apiVersion", "kind"]);
    root.properties.insert("metadata".to_owned(), Arc::new(object(&["name", "generateName"])));
    root
});
