//! Metadata of an object with another `apiVersion` and `kind`, without decoding it again.

use super::Object;
use super::compressed::ObjectText;
use super::index::{FieldSpan, Head, Section};
use super::span::Span;
use crate::json::DecodeError;

impl Object {
    /// An object with this `apiVersion` and `kind`, and only the metadata of this one.
    pub fn with_type_meta(&self, api_version: &str, kind: &str) -> Result<Self, DecodeError> {
        let metadata =
            self.section(Section::Stanzas).iter().find(|entry| self.slice(entry.key) == "metadata");
        let json = metadata.map_or("{}", |entry| self.slice(entry.value));
        let (api, of) = (quoted(api_version), quoted(kind));
        let text = format!(r#"{{"apiVersion":{api},"kind":{of},"metadata":{json}}}"#);
        let is_plain = api.len() == api_version.len() + 2 && of.len() == kind.len() + 2;
        let Some(metadata) = metadata.filter(|_| is_plain && matches!(self.text, ObjectText::Plain(_)))
        else {
            return Self::decode(&text);
        };

        let too_long = |_| DecodeError::Size { length: text.len() };
        let length = u32::try_from(text.len()).map_err(too_long)?;
        let aside = self.text.get().get(self.length as usize..).unwrap_or_default();
        u32::try_from(text.len() + aside.len()).map_err(too_long)?;
        let ahead = u32::try_from(text.len() - json.len() - 1).map_err(too_long)?;

        let moved = |span: Span| {
            let begins = metadata.value.range().start;
            let end = self.length;
            span.moved(|at| if at >= end { at - end + length } else { at - Span::offset(begins) + ahead })
        };
        let mut head = Head { api_version: Span::default(), kind: Span::default(), ..self.head.clone() };
        head.each(|span| *span = moved(*span));
        let name = |key: &str, from: usize, value: &str| {
            let from = from + key.len() + 3;
            FieldSpan {
                key: Span::new(from - key.len() - 2, from - 2),
                value: Span::new(from, from + value.len()),
            }
        };
        let first = name("apiVersion", 1, &api);
        let second = name("kind", first.value.range().end + 1, &of);
        let third = name("metadata", second.value.range().end + 1, json);
        head.api_version = first.value.inner();
        head.kind = second.value.inner();

        let mut entries = vec![first, second, third];
        let mut sections = [3; Section::COUNT];
        for (section, end) in Section::ALL.into_iter().zip(&mut sections).skip(1) {
            let move_entry =
                |entry: &FieldSpan| FieldSpan { key: moved(entry.key), value: moved(entry.value) };
            entries.extend(self.section(section).iter().map(move_entry));
            *end = u32::try_from(entries.len()).map_err(too_long)?;
        }
        let text = ObjectText::Plain((text + aside).into_boxed_str());
        Ok(Self { text, length, head, sections, entries: entries.into_boxed_slice() })
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Checks that both objects have the same text, index, and fields.
    fn assert_same(one: &Object, other: &Object) {
        assert_eq!(one.raw(), other.raw());
        assert_eq!(one.sections, other.sections);
        let parts = |object: &Object| {
            let mut head = vec![];
            object.head.clone().each(|span| head.push(object.read(*span).map(str::to_owned)));
            let entry = |entry: &FieldSpan| {
                (object.slice(entry.key).to_owned(), object.slice(entry.value).to_owned())
            };
            (head, object.entries.iter().map(entry).collect::<Vec<_>>())
        };
        assert_eq!(parts(one), parts(other));
    }

    #[test]
    fn the_result_equals_the_decoded_object() {
        let metadatas = [
            r"{}",
            "null",
            r#"{"name":"n","namespace":"ns","uid":"u","resourceVersion":"1","creationTimestamp":"t","deletionTimestamp":"d"}"#,
            r#"{ "labels" : {"a":"b", "c\u0061":"\"d"} , "annotations": {"e": "f"}, "name":"n\u0061" }"#,
            r#"{"finalizers":["x","y\u0061"],"ownerReferences":[{"kind":"K"}],"labels":{"a":"1","a":"2"},"odd":[1]}"#,
        ];
        for metadata in metadatas {
            for (before, after) in [
                ("", ""),
                (r#""kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#, ""),
                ("\"metadata\":{\"name\":\"old\"} , ", r#", "spec":{"a":"\u0061"}, "sp\u0065c":1"#),
            ] {
                let original =
                    Object::decode(&format!("{{{before}\"metadata\": {metadata}{after}}}")).unwrap();
                for (api_version, kind) in [("v1", "Pod"), ("apps/v1", "Deployment"), ("v\"1", "K\\")] {
                    let (api, of) = (quoted(api_version), quoted(kind));
                    let expected = format!(r#"{{"apiVersion":{api},"kind":{of},"metadata":{metadata}}}"#);
                    let expected = Object::decode(&expected).unwrap();
                    assert_same(&original.with_type_meta(api_version, kind).unwrap(), &expected);
                }
            }
        }
        let bare = Object::decode(r#"{"spec":{}}"#).unwrap().with_type_meta("v1", "Pod").unwrap();
        assert_same(&bare, &Object::decode(r#"{"apiVersion":"v1","kind":"Pod","metadata":{}}"#).unwrap());
    }
}
