//! Objects without some of their fields, and the memory that objects take.

use super::Object;
use super::index::FieldSpan;
use crate::json::path::FieldPath;
use crate::json::scanner::Cursor;

impl Object {
    /// The same object without these fields; none if it has none of them.
    pub fn without(&self, fields: &[FieldPath]) -> Option<Self> {
        let fields: Vec<&[Box<str>]> = fields.iter().map(FieldPath::keys).collect();
        let text = stripped(self.raw(), &fields)?;
        // The rest of a valid object is one.
        Self::decode(&text).ok()
    }

    /// The memory that the object takes, in bytes.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>() + self.text.allocated() + self.entries.len() * size_of::<FieldSpan>()
    }
}

/// The JSON of an object without these fields; none if it has none of them.
fn stripped(json: &str, fields: &[&[Box<str>]]) -> Option<String> {
    let mut result = String::with_capacity(json.len());
    let mut is_changed = false;
    let mut cursor = Cursor::new(json);
    result.push('{');
    let walked = cursor.members(|cursor, key| {
        let name = key.read(json);
        let below: Vec<&[Box<str>]> = fields
            .iter()
            .filter_map(|field| field.split_first())
            .filter(|(first, _)| ***first == *name)
            .map(|(_, rest)| rest)
            .collect();
        let value = json.get(cursor.skip_known()).unwrap_or_default();
        if below.iter().any(|rest| rest.is_empty()) {
            is_changed = true;
            return Ok(());
        }
        let inner = if below.is_empty() || !value.starts_with('{') { None } else { stripped(value, &below) };
        is_changed |= inner.is_some();
        if result.len() > 1 {
            result.push(',');
        }
        let quoted = json.get(key.start - 1..key.end + 1).unwrap_or_default();
        result.push_str(quoted);
        result.push(':');
        result.push_str(inner.as_deref().unwrap_or(value));
        Ok(())
    });
    result.push('}');
    (walked.is_ok() && is_changed).then_some(result)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_removed_at_any_depth() {
        let json = json!({"kind": "K", "metadata": {"name": "n", "managedFields": [{"a": 1}],
            "annotations": {"a.b/c": "x", "ü\"": "y"}}, "status": {"x": 1}, "spec": null});
        let object = Object::decode(&json.to_string()).unwrap();
        let fields = [
            FieldPath::parse("metadata.managedFields"),
            FieldPath::from_keys(["metadata", "annotations", "a.b/c"]),
            FieldPath::parse("status"),
            FieldPath::parse("spec.deep.er"),
        ];
        let expected =
            json!({"kind": "K", "metadata": {"name": "n", "annotations": {"ü\"": "y"}}, "spec": null});
        let rest = object.without(&fields).unwrap();
        assert_eq!(rest.to_value(), expected);
        assert_eq!((rest.name(), rest.annotation("ü\"").as_deref()), (Some("n"), Some("y")));
        assert_eq!(rest.without(&fields), None);
        assert!(rest.memory_size() < object.memory_size());
    }

    #[test]
    fn compressed_objects_take_less_memory_until_they_are_read() {
        let items: Vec<_> = (0..100).map(|index| json!({"name": format!("part-{index}")})).collect();
        let object = Object::decode(&json!({"metadata": {"name": "n"}, "spec": items}).to_string()).unwrap();
        let compressed = object.to_compressed().unwrap();
        let size = compressed.memory_size();
        assert!(size < object.memory_size() / 2);
        assert_eq!(compressed.top_level("spec"), object.top_level("spec"));
        assert!(compressed.memory_size() > object.memory_size());
    }
}
