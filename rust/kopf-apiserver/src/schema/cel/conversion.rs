//! Conversion of JSON values to values of expressions, by their schemas.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine;
use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString,
};
use cel::common::value::Val;
use cel::{Context, Program};
use serde_json::{Map, Value};

use super::lists::KeyedList;
use super::{ENV, escaping};
use crate::schema::{ListType, Schema, Type, formats};

/// The value that expressions see.
pub(super) fn to_val(value: &Value, schema: &Schema) -> Box<dyn Val> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(it) => Box::new(CelBool::from(*it)),
        Value::Number(number) => match number.as_i64() {
            Some(whole) if schema.kind != Type::Number => Box::new(CelInt::from(whole)),
            _ => Box::new(CelDouble::from(number.as_f64().unwrap_or_default())),
        },
        Value::String(text) => text_to_val(text, schema),
        Value::Array(list) => list_to_val(list, schema),
        Value::Object(map) => Box::new(map_to_val(map, schema)),
    }
}

fn list_to_val(list: &[Value], schema: &Schema) -> Box<dyn Val> {
    let any = Schema::any();
    let known = schema.items.as_deref().unwrap_or(&any);
    let items: Vec<_> = list.iter().map(|item| to_val(item, known)).collect();
    match &schema.list {
        // kube-apiserver cannot compare sets of lists and objects.
        ListType::Set if !matches!(known.kind, Type::Array | Type::Object) => {
            Box::new(KeyedList::new(items, [].into()))
        }
        ListType::Map(keys) if !keys.is_empty() => {
            let keys = keys.iter().map(|key| escaping::escaped(key).into_owned()).collect();
            Box::new(KeyedList::new(items, keys))
        }
        _ => Box::new(CelList::from(items)),
    }
}

fn map_to_val(map: &Map<String, Value>, schema: &Schema) -> CelMap<'static> {
    let any = Schema::any();
    let key = |name: String| CelMapKey::String(CelString::from(name));
    let mut pairs = HashMap::with_capacity(map.len());
    // A property that is null counts as absent.
    let entries = map.iter().filter(|(_, child)| schema.properties.is_empty() || !child.is_null());
    for (name, child) in entries {
        let child = to_val(child, schema.child(name).map_or(&any, |it| it));
        if !schema.properties.contains_key(name) {
            pairs.insert(key(name.clone()), child);
            continue;
        }
        if escaping::is_reserved(name) {
            pairs.insert(key(name.clone()), child.clone());
        }
        pairs.insert(key(escaping::escaped(name).into_owned()), child);
    }
    CelMap::from(pairs)
}

fn text_to_val(text: &str, schema: &Schema) -> Box<dyn Val> {
    let format = schema.checks.as_ref().map_or("", |checks| checks.format.as_str());
    let converted = match format {
        _ if schema.kind != Type::String => None,
        "date-time" => TIMESTAMP.convert(text),
        "date" => TIMESTAMP.convert(&format!("{text}T00:00:00Z")),
        "duration" => {
            formats::duration_seconds(text).and_then(|seconds| DURATION.convert(&format!("{seconds}s")))
        }
        "byte" => {
            let data = base64::engine::general_purpose::STANDARD.decode(text).ok();
            data.map(|data| Box::new(CelBytes::from(data)) as Box<dyn Val>)
        }
        _ => None,
    };
    converted.unwrap_or_else(|| Box::new(CelString::from(text.to_owned())))
}

/// A function of the library that converts a string.
struct Conversion(LazyLock<Option<Program>>);

static TIMESTAMP: Conversion = Conversion(LazyLock::new(|| ENV.compile("timestamp(text)").ok()));
static DURATION: Conversion = Conversion(LazyLock::new(|| ENV.compile("duration(text)").ok()));

impl Conversion {
    fn convert(&self, text: &str) -> Option<Box<dyn Val>> {
        let mut context = Context::with_env(ENV.clone());
        context.add_variable_as_val("text", Box::new(CelString::from(text.to_owned())));
        self.0.as_ref()?.execute(&context).ok()?.try_into().ok()
    }
}
