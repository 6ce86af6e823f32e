//! Status errors: reasons, codes, messages, details and causes.
//!
//! All rejections are built here, so their vocabulary is in one file.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::base::names::GroupResource;

/// A rejected request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
    /// No `details` in the response if `None`; `{}` if empty.
    pub(crate) details: Option<Box<Map<String, Value>>>,
    pub(crate) retry_after: Option<u64>,
    /// Token that continues the list.
    next: Option<Box<str>>,
}

/// Field error of `details.causes`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) field: String,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Formats a value for messages: strings in quotes, structures as JSON.
pub(crate) fn quote_value(value: &Value) -> String {
    value.to_string()
}

impl Cause {
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message =
            if detail.is_empty() { "Required value".into() } else { format!("Required value: {detail}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::invalid_raw(field, &quote_value(value), detail)
    }
    pub(crate) fn invalid_raw(field: impl Into<String>, shown: &str, detail: &str) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {shown}: {detail}"),
        }
    }
    pub(crate) fn type_invalid(field: impl Into<String>, shown: &str, detail: &str) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: {shown}: {detail}"),
        }
    }
    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self { field: field.into(), reason: "FieldValueForbidden", message: format!("Forbidden: {detail}") }
    }
    pub(crate) fn internal(field: impl Into<String>, detail: &str) -> Self {
        Self { field: field.into(), reason: "InternalError", message: format!("Internal error: {detail}") }
    }
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::duplicate_raw(field, &quote_value(value))
    }
    pub(crate) fn duplicate_raw(field: impl Into<String>, shown: &str) -> Self {
        let message = format!("Duplicate value: {shown}");
        Self { field: field.into(), reason: "FieldValueDuplicate", message }
    }
    pub(crate) fn too_long(field: impl Into<String>, max: u64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {max} {unit}");
        Self { field: field.into(), reason: "FieldValueTooLong", message }
    }
    pub(crate) fn too_many(field: impl Into<String>, count: usize, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {count}: must have at most {max} {unit}");
        Self { field: field.into(), reason: "FieldValueTooMany", message }
    }
    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, supported: &[String]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        let message =
            format!("Unsupported value: {}: supported values: {}", quote_value(value), list.join(", "));
        Self { field: field.into(), reason: "FieldValueNotSupported", message }
    }
    fn to_value(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

fn details(pairs: &[(&str, &str)]) -> Map<String, Value> {
    pairs.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect()
}

impl Status {
    pub(crate) fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.into(), message.into());
        Self { code, reason, message, details: None, retry_after: None, next: None }
    }
    pub(crate) fn with(mut self, details: Map<String, Value>) -> Self {
        self.details = Some(Box::new(details));
        self
    }
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }
    /// 500 with its reason, and the error as a cause.
    pub(crate) fn internal_error(error: &str) -> Self {
        let mut found = Map::new();
        found.insert("causes".into(), json!([{"message": error}]));
        Self::new(500, "InternalError", format!("Internal error occurred: {error}")).with(found)
    }
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }
    /// 404 for an unknown resource of a served version.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with(Map::new())
    }
    pub(crate) fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} \"{name}\" not found");
        Self::new(404, "NotFound", message).with(details(&[
            ("name", name),
            ("group", resource.group),
            ("kind", resource.resource),
        ]))
    }
    pub(crate) fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} \"{name}\" already exists");
        Self::new(409, "AlreadyExists", message).with(details(&[
            ("name", name),
            ("group", resource.group),
            ("kind", resource.resource),
        ]))
    }
    pub(crate) fn conflict(resource: GroupResource<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(409, "Conflict", message).with(details(&[
            ("name", name),
            ("group", resource.group),
            ("kind", resource.resource),
        ]))
    }
    /// Conflict with the kind instead of the resource in its message.
    pub(crate) fn conflict_of_kind(group: &str, kind: &str, name: &str, why: &str) -> Self {
        let subject = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {subject} \"{name}\": {why}"))
            .with(details(&[("name", name), ("group", group), ("kind", kind)]))
    }
    pub(crate) fn modified(resource: GroupResource<'_>, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with(Map::new())
    }
    pub(crate) fn unprocessable() -> Self {
        Self::new(422, "Invalid", "the server rejected our request due to an error in our request")
            .with(Map::new())
    }
    pub(crate) fn gone(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }
    /// 410 for a list that can be continued with another token.
    pub(crate) fn gone_with_token(message: &str, token: String) -> Self {
        Self { next: Some(token.into()), ..Self::gone(message) }
    }
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }
    pub(crate) fn forbidden(resource: GroupResource<'_>, name: &str, why: &str, causes: &[Cause]) -> Self {
        let mut found = details(&[("name", name), ("group", resource.group), ("kind", resource.resource)]);
        if !causes.is_empty() {
            found.insert("causes".into(), causes.iter().map(Cause::to_value).collect());
        }
        let subject = if name.is_empty() { resource.to_string() } else { format!("{resource} \"{name}\"") };
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {why}")).with(found)
    }
    /// 422 for an invalid object. `group` and `kind` are those of what was validated.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let lines: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        // The message contains duplicate causes once.
        let mut unique: Vec<&String> = Vec::new();
        for line in &lines {
            if !unique.contains(&line) {
                unique.push(line);
            }
        }
        let joined = match unique.as_slice() {
            [one] => (*one).clone(),
            many => format!("[{}]", many.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ")),
        };
        let subject = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut found = details(&[("name", name), ("group", group), ("kind", kind)]);
        if !causes.is_empty() {
            found.insert("causes".into(), causes.iter().map(Cause::to_value).collect());
        }
        Self::new(422, "Invalid", format!("{subject} \"{name}\" is invalid: {joined}")).with(found)
    }
    /// 422 for a patch whose result cannot be decoded.
    pub(crate) fn invalid_patch(patched: &Value, why: &str) -> Self {
        let mut sorted: Vec<(&String, &Value)> = patched.as_object().into_iter().flatten().collect();
        sorted.sort_by_key(|(key, _)| *key);
        let sorted: Map<String, Value> = sorted.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let escaped = Value::Object(sorted)
            .to_string()
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026");
        let shown = Value::from(escaped).to_string();
        Self::invalid("", "", "", &[Cause::invalid_raw("patch", &shown, why)])
    }
    /// 422 for invalid request options.
    pub(crate) fn bad_options(kind: &str, causes: &[Cause]) -> Self {
        Self::invalid("meta.k8s.io", kind, "", causes)
    }
    /// 409 for an apply: pairs of manager and field.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let message = if let [(manager, field)] = conflicts {
            format!("Apply failed with 1 conflict: conflict with {manager}: {field}")
        } else {
            let mut text = format!("Apply failed with {} conflicts: ", conflicts.len());
            let mut managers: Vec<&String> = conflicts.iter().map(|(manager, _)| manager).collect();
            managers.dedup();
            let parts: Vec<String> = managers
                .iter()
                .map(|m| {
                    let fields =
                        conflicts.iter().filter(|(manager, _)| manager == *m).map(|(_, f)| format!("- {f}"));
                    format!("conflicts with {m}:\n{}", fields.collect::<Vec<_>>().join("\n"))
                })
                .collect();
            text.push_str(&parts.join("\n"));
            text
        };
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(manager, field)| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": field}))
            .collect();
        let mut found = Map::new();
        found.insert("causes".into(), Value::from(causes));
        Self::new(409, "Conflict", message).with(found)
    }
    /// 504 for a version that this server has not reached.
    pub(crate) fn future_version(requested: u64, current: u64) -> Self {
        let mut found = Map::new();
        let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        found.insert("causes".into(), cause);
        found.insert("retryAfterSeconds".into(), 1.into());
        let mut status = Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {requested}, current: {current}"),
        );
        status.retry_after = Some(1);
        status.with(found)
    }
    pub(crate) fn unsupported_media(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }
    /// 406 for the metadata of one object where there is a list.
    pub(crate) fn is_a_list(go_type: &str) -> Self {
        let text = "you requested PartialObjectMetadata, but the requested object is a list";
        Self::new(406, "NotAcceptable", format!("{text} (*{go_type}List)"))
    }
    /// 406 for a metadata list where there is one object.
    pub(crate) fn not_a_list(go_type: &str) -> Self {
        let text = "you requested PartialObjectMetadataList, but the requested object is not a list";
        Self::new(406, "NotAcceptable", format!("{text} (*{go_type})"))
    }
    pub(crate) fn too_many_requests(seconds: u64) -> Self {
        let mut found = Map::new();
        found.insert("retryAfterSeconds".into(), seconds.into());
        let mut status = Self::new(429, "TooManyRequests", "too many requests, please try again later");
        status.retry_after = Some(seconds);
        status.with(found)
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut out = Map::new();
        out.insert("kind".into(), "Status".into());
        out.insert("apiVersion".into(), "v1".into());
        out.insert(
            "metadata".into(),
            self.next.as_ref().map_or_else(|| json!({}), |token| json!({"continue": token})),
        );
        out.insert("status".into(), "Failure".into());
        out.insert("message".into(), self.message.clone().into());
        if !self.reason.is_empty() {
            out.insert("reason".into(), self.reason.as_ref().into());
        }
        if let Some(details) = &self.details {
            out.insert("details".into(), Value::Object((**details).clone()));
        }
        out.insert("code".into(), self.code.into());
        Value::Object(out)
    }
}
