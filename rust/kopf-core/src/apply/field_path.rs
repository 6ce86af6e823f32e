//! Fields as servers name them in conflicts: `.spec.containers[name="app"].image`, `.metadata.finalizers[="x"]`.

use crate::json::value::Value;

/// Whether the field is the path, or below it. The path may be given without the first dot.
pub fn is_under(field: &str, path: &str) -> bool {
    let (field, path) = (field.trim_start_matches('.'), path.trim_start_matches('.'));
    field.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Removes a field from a document; returns whether it was there. Names with dots are found, because the document is followed.
pub fn remove_field(document: &mut Value, field: &str) -> bool {
    match document {
        Value::Object(fields) => {
            let Some(rest) = field.strip_prefix('.') else { return false };
            let candidates = fields.keys().filter(|key| is_step(rest, key)).cloned();
            // The longest name that fits, as names may contain dots.
            let mut candidates: Vec<String> = candidates.collect();
            candidates.sort_by_key(|key| std::cmp::Reverse(key.len()));
            candidates.into_iter().any(|key| {
                let below = &rest[key.len()..];
                if below.is_empty() {
                    return fields.shift_remove(&key).is_some();
                }
                fields.get_mut(&key).is_some_and(|value| remove_field(value, below))
            })
        }
        Value::Array(items) => {
            let Some((selector, below)) = ItemSelector::parse(field) else { return false };
            let Some(position) = items.iter().position(|item| selector.matches(item)) else { return false };
            if below.is_empty() {
                items.remove(position);
                return true;
            }
            remove_field(&mut items[position], below)
        }
        _ => false,
    }
}

fn is_step(rest: &str, key: &str) -> bool {
    rest.strip_prefix(key).is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
}

/// The selector of a list's item.
enum ItemSelector {
    /// An item of a set.
    Value(Value),
    /// The item with these values.
    Keys(Vec<(String, Value)>),
}

impl ItemSelector {
    /// Parses `[="x"]` or `[name="x",port=1]`; returns the rest as well.
    fn parse(text: &str) -> Option<(Self, &str)> {
        let mut rest = text.strip_prefix('[')?;
        let mut keys = vec![];
        loop {
            let (key, after) = rest.split_once('=')?;
            let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
            let value = values.next()?.ok()?;
            let after = after.get(values.byte_offset()..)?;
            if key.is_empty() && keys.is_empty() {
                return Some((Self::Value(value), after.strip_prefix(']')?));
            }
            keys.push((key.to_owned(), value));
            if let Some(end) = after.strip_prefix(']') {
                return Some((Self::Keys(keys), end));
            }
            rest = after.strip_prefix(',')?;
        }
    }

    fn matches(&self, item: &Value) -> bool {
        match self {
            Self::Value(value) => item == value,
            Self::Keys(keys) => keys.iter().all(|(key, value)| match item.get(key) {
                Some(found) => found == value,
                // The schema's default of the only key that has one in practice.
                None => key == "protocol" && value == "TCP",
            }),
        }
    }
}
