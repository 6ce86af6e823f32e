//! The objects that a cache selects: by labels and by fields (2.3).

use crate::handler::caching::Caching;
use crate::json::path::FieldPath;
use crate::json::value::Value;
use crate::object::Object;
use crate::selectors::{LabelSelector, SelectorError};

/// The selectors of a cache, evaluated in memory: other consumers of the stream may need other objects.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    labels: LabelSelector,
    fields: Vec<SelectedField>,
}

/// A field and its value in the form of field selectors.
#[derive(Clone, Debug)]
struct SelectedField {
    path: FieldPath,
    value: String,
    /// The value of a missing field.
    default: &'static str,
}

impl Selected {
    /// The selectors of the declaration.
    pub fn of(declared: &Caching) -> Result<Self, SelectorError> {
        let labels = LabelSelector::parse(&declared.label_selector)?;
        let fields = declared.fields.iter().map(|(path, value)| SelectedField::of(path, value));
        Ok(Self { labels, fields: fields.collect() })
    }

    /// Whether all objects are selected.
    pub fn is_everything(&self) -> bool {
        self.labels == LabelSelector::default() && self.fields.is_empty()
    }

    /// Whether the whole object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        self.labels.matches(object) && self.fields.iter().all(|field| field.matches(object))
    }
}

impl SelectedField {
    /// The field as API servers read it: some have other names in selectors, and defaults.
    fn of(path: &FieldPath, value: &str) -> Self {
        let keys: Vec<&str> = path.keys().iter().map(AsRef::as_ref).collect();
        let (path, default) = match keys[..] {
            ["status", "successful"] => (FieldPath::parse("status.succeeded"), "0"),
            ["status", "replicas"] => (path.clone(), "0"),
            ["spec", "unschedulable" | "hostNetwork"] => (path.clone(), "false"),
            _ => (path.clone(), ""),
        };
        Self { path, value: value.to_owned(), default }
    }

    fn matches(&self, object: &Object) -> bool {
        match object.field(&self.path) {
            Some(Value::String(value)) => value == self.value,
            Some(Value::Null) | None => self.default == self.value,
            Some(value) => {
                let text = value.to_string();
                text == self.value
            }
        }
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

    #[test]
    fn s2_3_missing_fields_have_the_defaults_of_api_servers() {
        for (path, value, other) in [
            ("spec.unschedulable", "false", json!({"spec": {"unschedulable": true}})),
            ("spec.hostNetwork", "false", json!({"spec": {"hostNetwork": true}})),
            ("status.replicas", "0", json!({"status": {"replicas": 1}})),
            ("status.successful", "0", json!({"status": {"succeeded": 1}})),
            ("spec.nodeName", "", json!({"spec": {"nodeName": "n1"}})),
        ] {
            let path: Vec<_> = path.split('.').collect();
            let selected = Selected::of(&declared("", &json!([[path, value]]))).unwrap();
            let matches =
                |body: &serde_json::Value| selected.matches(&Object::decode(&body.to_string()).unwrap());
            assert_eq!((matches(&json!({})), matches(&other)), (true, false), "{path:?}");
        }
    }
}
