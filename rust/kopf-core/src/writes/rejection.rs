//! Rejected parts of patches: the fields named in a response, and the log lines.

use crate::durations::Seconds;
use crate::json::diff::{DiffItem, Op};
use crate::json::merge_patch::Patch;
use crate::json::path;
use crate::json::value::{Map, Value, python_repr};
use crate::object::Object;
use crate::object::redaction::shown;
use crate::request_error::{ApiError, RequestError};
use crate::resource::Resource;

/// A part of a patch that the server has rejected or could not write, while the rest was written.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// The merge patch, including the progress that was not sent because the diff-base is rejected.
    pub patch: Map<String, Value>,
    /// The part was sent to the status subresource.
    pub is_status: bool,
    /// The failure of the request.
    pub error: RequestError,
}

impl Rejection {
    /// Whether the permission for the status subresource is missing.
    pub fn is_denied(&self) -> bool {
        self.is_status && self.error.status() == Some(403)
    }

    /// The log line: the fields, the reason, the consequence, the remedy. `delay` is the delay before the next attempt
    /// in seconds; none if the part is dropped.
    pub fn text(&self, object: &Object, resource: &Resource, delay: Option<f64>) -> String {
        let follows = match delay {
            Some(delay) => format!(
                "The rest of the patch is written. This part is kept in memory, and sent again in {} seconds and with the \
                 next patch",
                Seconds(delay)
            ),
            None => "The rest of the patch is written".to_owned(),
        };
        let Self { patch, error, .. } = self;
        let why = reason(error);
        if self.is_denied() {
            let (plural, group) = (&resource.plural, &resource.group);
            return format!(
                "The operator may not write the status of {plural}: {why}. {follows}. Add this rule to its role: \
                 apiGroups: [{group:?}], resources: [\"{plural}/status\"], verbs: [\"patch\"]. This is logged once for \
                 {plural}."
            );
        }
        let named = field_names(&named_fields(error, patch));
        if let Some(schema) = schema_of(resource, error).filter(|_| !named.is_empty()) {
            return format!(
                "{schema} rejects {}: {why}. {follows}. Change the schema, or the values that handlers give to these \
                 fields.",
                named.join(", ")
            );
        }
        let value = python_repr(&shown(object, &Value::Object(patch.clone())));
        format!("The server does not accept a part of the patch: {value}: {why}. {follows}.")
    }
}

/// The fields of the patch that the server names as invalid.
pub(super) fn named_fields(error: &RequestError, patch: &Map<String, Value>) -> Map<String, Value> {
    let mut named = Patch::default();
    for cause in causes(error) {
        let field = cause.get("field").and_then(Value::as_str).unwrap_or_default();
        // Items of lists cannot be left out separately.
        let field = field.split('[').next().unwrap_or_default();
        let keys: Vec<&str> = field.split('.').filter(|key| !key.is_empty()).collect();
        // The field itself, or the closest of its parents that the patch contains.
        for end in (1..=keys.len()).rev() {
            let keys = keys.get(..end).unwrap_or_default();
            let (Some(first), Some(rest)) = (keys.first(), keys.get(1..)) else { continue };
            if let Some(value) = patch.get(*first).and_then(|value| path::resolve(value, rest)) {
                named.set(keys, value.clone());
                break;
            }
        }
    }
    named.0
}

/// The advice for fields that the schema of a CRD drops; empty if there are none.
pub(super) fn advice(resource: &Resource, lost: &[DiffItem]) -> String {
    let keys = |item: &DiffItem| item.path.keys().iter().map(ToString::to_string).collect::<Vec<_>>();
    let dropped = lost.iter().filter(|item| item.op == Op::Remove).map(keys);
    let dropped: Vec<String> = dropped
        .filter(|keys| keys.first().is_some_and(|key| !matches!(&**key, "metadata" | "apiVersion" | "kind")))
        .map(|keys| keys.join("."))
        .collect();
    if dropped.is_empty() || !is_custom(resource) {
        return String::new();
    }
    format!(
        ". The CRD's schema drops {}: declare it or set x-kubernetes-preserve-unknown-fields.",
        dropped.join(", ")
    )
}

pub(super) fn causes(error: &RequestError) -> impl Iterator<Item = &Value> {
    let status = match error {
        RequestError::Api(error) => error.payload.as_ref(),
        _ => None,
    };
    let causes = status.and_then(|status| status.get("details")?.get("causes")?.as_array());
    causes.into_iter().flatten()
}

/// The message in the response, without the rest of it.
fn reason(error: &RequestError) -> String {
    match error {
        RequestError::Api(error) => {
            let ApiError { message, status, .. } = &**error;
            format!("{} (status {status})", message.trim_end_matches('.'))
        }
        other => other.to_string(),
    }
}

/// The subject of the log line if the rejection is a validation error.
fn schema_of(resource: &Resource, error: &RequestError) -> Option<&'static str> {
    (error.status() == Some(422)).then(|| if is_custom(resource) { "The CRD's schema" } else { "The server" })
}

/// Whether the resource is a custom one: built-in groups have no dots or end with `.k8s.io`.
pub(super) fn is_custom(resource: &Resource) -> bool {
    resource.group.contains('.') && !resource.group.ends_with(".k8s.io")
}

fn field_names(named: &Map<String, Value>) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(map) if !map.is_empty() && at.matches('.').count() < 3 => {
                for (key, value) in map {
                    walk(value, &format!("{at}.{key}"), found);
                }
            }
            _ => found.push(at.to_owned()),
        }
    }
    let mut found = Vec::new();
    for (key, value) in named {
        walk(value, key, &mut found);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn response_with(code: u16, field: &str) -> RequestError {
        let payload = json!({
            "kind": "Status", "message": "it is invalid", "reason": "Invalid",
            "details": {"causes": [{"field": field, "reason": "FieldValueInvalid"}]},
        });
        RequestError::Api(Box::new(ApiError::from_response(code, None, payload.to_string().as_bytes())))
    }

    fn resource(group: &str, plural: &str) -> Resource {
        let resource = json!({
            "group": group, "version": "v1", "plural": plural, "kind": "Thing", "singular": "thing",
            "shortcuts": [], "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
        });
        serde_json::from_value(resource).unwrap()
    }

    fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("{value}") };
        map
    }

    fn named(field: &str) -> Value {
        let patch = map(json!({"spec": {"size": -1, "name": "x"}, "status": {"list": [1]}}));
        Value::Object(named_fields(&response_with(422, field), &patch))
    }

    #[test]
    fn fields_named_in_the_response_are_found_in_the_patch() {
        assert_eq!(named("spec.size"), json!({"spec": {"size": -1}}));
        assert_eq!(named("status.list[0].deep"), json!({"status": {"list": [1]}}));
        assert_eq!(named("spec.size.deep"), json!({"spec": {"size": -1}}));
        assert_eq!(named("metadata.annotations"), json!({}));
        assert_eq!(named(""), json!({}));
    }

    fn text(code: u16, delay: Option<f64>) -> String {
        let resource = resource("example.com", "things");
        let object = Object::decode(r#"{"metadata": {"name": "x"}}"#).unwrap();
        let patch = map(json!({"status": {"greet": {"x": 1}, "other": 2}}));
        Rejection { patch, is_status: true, error: response_with(code, "status.greet") }
            .text(&object, &resource, delay)
    }

    #[test]
    fn the_line_names_the_field_and_the_schema() {
        let text = text(422, Some(4.0));
        assert!(text.starts_with("The CRD's schema rejects status.greet.x: "), "{text}");
        assert!(text.contains("sent again in 4 seconds"), "{text}");
    }

    #[test]
    fn a_missing_permission_is_described_as_a_rule() {
        let text = text(403, Some(1.0));
        let rule = r#"apiGroups: ["example.com"], resources: ["things/status"], verbs: ["patch"]"#;
        assert!(text.contains(rule), "{text}");
    }

    #[test]
    fn advice_on_dropped_fields_is_given_for_custom_resources_only() {
        let lost = [DiffItem {
            op: Op::Remove,
            path: crate::json::path::FieldPath::from_keys(["status", "greet"]),
            old: Some(json!(1)),
            new: None,
        }];
        let custom = resource("example.com", "things");
        let builtin = resource("apps", "deployments");
        assert!(advice(&custom, &lost).contains("The CRD's schema drops status.greet: declare it"));
        assert_eq!(advice(&builtin, &lost), "");
    }
}
