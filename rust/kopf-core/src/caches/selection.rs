//! The objects that a cache selects: by labels and by fields (2.3).

use crate::handler::caching::Caching;
use crate::json::value::Value;
use crate::object::Object;
use crate::selectors::{LabelSelector, SelectorError};

/// The selectors of a cache, evaluated in memory: other consumers of the stream may need other objects.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    labels: LabelSelector,
    fields: Vec<(crate::json::path::FieldPath, String)>,
}

impl Selected {
    /// The selectors of the declaration.
    pub fn of(declared: &Caching) -> Result<Self, SelectorError> {
        let labels = LabelSelector::parse(&declared.label_selector)?;
        Ok(Self { labels, fields: declared.fields.clone() })
    }

    /// Whether all objects are selected.
    pub fn is_everything(&self) -> bool {
        self.labels == LabelSelector::default() && self.fields.is_empty()
    }

    /// Whether the object is selected. As for API servers, a missing field has an empty value.
    pub fn matches(&self, object: &Object) -> bool {
        let text = |value| match value {
            Some(Value::String(value)) => value,
            Some(Value::Null) | None => String::new(),
            Some(value) => value.to_string(),
        };
        let is_equal = |(path, expected): &(_, String)| text(object.field(path)) == *expected;
        self.labels.matches(object) && self.fields.iter().all(is_equal)
    }
}

/// The selectors, as names and values of query parameters, of a stream that only these caches and secondary kinds of reconcilers
/// need: their common requirements. `related` are the label selectors of the secondary kinds.
pub fn stream_selectors(caches: &[&Caching], related: &[String]) -> Vec<(&'static str, String)> {
    let of_caches = caches.iter().map(|declared| &declared.label_selector);
    let labels: Result<Vec<_>, _> =
        of_caches.chain(related).map(|labels| LabelSelector::parse(labels)).collect();
    let labels = labels.map(|labels| LabelSelector::common(&labels).to_string()).unwrap_or_default();
    let of_related = related.iter().map(|_| String::new());
    let mut fields = caches.iter().map(|declared| declared.field_selector()).chain(of_related);
    let first = fields.next().unwrap_or_default();
    let fields = if fields.all(|other| other == first) { first } else { String::new() };
    let selectors = [("labelSelector", labels), ("fieldSelector", fields)];
    selectors.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared(labels: &str, fields: &serde_json::Value) -> Caching {
        serde_json::from_value(json!({"label_selector": labels, "fields": fields})).unwrap()
    }

    #[test]
    fn s2_3_the_server_selects_what_all_caches_have_in_common() {
        let (none, n1) = (json!([]), json!([[["spec", "nodeName"], "n1"]]));
        let (web, api, any) = (declared("app=web,x", &n1), declared("app=api", &n1), declared("", &none));
        assert_eq!(
            stream_selectors(&[&web], &[]),
            [("labelSelector", "app=web,x".to_owned()), ("fieldSelector", "spec.nodeName=n1".to_owned()),]
        );
        assert_eq!(
            stream_selectors(&[&web, &api], &[]),
            [
                ("labelSelector", "app in (api,web)".to_owned()),
                ("fieldSelector", "spec.nodeName=n1".to_owned()),
            ]
        );
        assert_eq!(stream_selectors(&[&web, &any], &[]), []);
    }

    #[test]
    fn s2_3_caches_of_shared_kinds_filter_the_objects() {
        let fields = json!([
            [["spec", "nodeName"], "n1"],
            [["spec", "hostNetwork"], "true"],
            [["status", "phase"], ""]
        ]);
        let selected = Selected::of(&declared("app", &fields)).unwrap();
        for (expected, body) in [
            (
                true,
                json!({"metadata": {"labels": {"app": "x"}}, "spec": {"nodeName": "n1", "hostNetwork": true}}),
            ),
            (false, json!({"metadata": {"labels": {}}, "spec": {"nodeName": "n1", "hostNetwork": true}})),
            (
                false,
                json!({"metadata": {"labels": {"app": "x"}}, "spec": {"nodeName": "n2", "hostNetwork": true}}),
            ),
            (false, json!({"metadata": {"labels": {"app": "x"}}, "spec": {"nodeName": "n1"}})),
        ] {
            assert_eq!(selected.matches(&Object::decode(&body.to_string()).unwrap()), expected, "{body}");
        }
        assert!(Selected::of(&declared("=", &json!([]))).is_err());
    }
}
