//! Decoding of request bodies.

use serde_json::{Map, Value};

use super::Call;
use crate::base::json::{json_complaint, parse_json, text};
use crate::base::names::split_api_version;
use crate::error::status::Status;
use crate::registry::prepare::{self, FieldWarnings, decode_error};

/// Decodes the body as a JSON object. Returns it with its duplicate fields.
pub(crate) fn read(call: &Call<'_>) -> Result<(Value, Vec<String>), Status> {
    let media = call.request.header("content-type").split(';').next().unwrap_or_default().trim().to_owned();
    if !matches!(media.as_str(), "" | "application/json" | "application/yaml") {
        let mut accepted = "application/json, application/yaml".to_owned();
        if !matches!(call.request.method, http::Method::PATCH) {
            accepted.push_str(", application/vnd.kubernetes.protobuf");
        }
        return Err(Status::unsupported_media(&accepted));
    }
    let bytes = &call.request.body;
    let kind = &call.resource.kind;
    let unrecognized = |why: &str, shown: &str| {
        let message = format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({shown})"
        );
        Status::bad_request(message)
    };
    match parse_json(bytes) {
        Ok((value, duplicates)) if value.is_object() => Ok((value, duplicates)),
        Ok((value, _)) => {
            let found = match value {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            let target = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
            let why = format!("json: cannot unmarshal {found} into Go value of type {target}");
            Err(unrecognized(&why, &excerpt(bytes)))
        }
        Err(error) => Err(unrecognized(&json_complaint(bytes, &error), &excerpt(bytes))),
    }
}

/// Beginning of a body for error messages: text if it looks like JSON, else hexadecimal.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.trim_start().starts_with('{') {
        return bytes
            .iter()
            .take(30)
            .flat_map(|b| [b >> 4, b & 15])
            .filter_map(|d| char::from_digit(d.into(), 16))
            .collect();
    }
    if bytes.len() <= 30 {
        return text.into_owned();
    }
    format!("{} ...", text.chars().take(30).collect::<String>())
}

/// Checks `apiVersion` and `kind` of the object against the resource of the path, and sets them if they may be absent.
pub(crate) fn check_type(call: &Call<'_>, value: &mut Value) -> Result<(), Status> {
    let resource = &call.resource;
    let api_version = text(value, "/apiVersion").to_owned();
    let kind = text(value, "/kind").to_owned();
    if resource.custom.is_some() {
        if kind.is_empty() || api_version.is_empty() {
            let missing = if kind.is_empty() { "Kind" } else { "apiVersion" };
            let body = String::from_utf8_lossy(&call.request.body);
            let message = format!(
                "the object provided is unrecognized (must be of type {}): Object '{missing}' is missing in '{}' ({})",
                resource.kind,
                body,
                excerpt(&call.request.body)
            );
            return Err(Status::bad_request(message));
        }
        if api_version != resource.api_version() {
            return Err(version_mismatch(&api_version, &resource.api_version()));
        }
        return Ok(());
    }
    let expected = resource.api_version();
    if (!kind.is_empty() && kind != resource.kind) || (!api_version.is_empty() && api_version != expected) {
        let kind = if kind.is_empty() { &resource.kind } else { &kind };
        let version = if api_version.is_empty() { &expected } else { &api_version };
        return Err(kind_mismatch(call, kind, version));
    }
    if let Value::Object(map) = value {
        map.insert("kind".into(), resource.kind.clone().into());
        map.insert("apiVersion".into(), expected.into());
    }
    Ok(())
}

fn version_mismatch(found: &str, expected: &str) -> Status {
    let message =
        format!("the API version in the data ({found}) does not match the expected API version ({expected})");
    Status::bad_request(message)
}

fn kind_mismatch(call: &Call<'_>, kind: &str, api_version: &str) -> Status {
    let resource = &call.resource;
    let (group, version) = split_api_version(api_version);
    let registered =
        call.cluster.registry().by_kind(group, version, kind).is_some_and(|r| r.custom.is_none());
    let why = if !registered {
        format!(
            "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"pkg/runtime/scheme.go:111\""
        )
    } else if kind == resource.kind {
        return version_mismatch(api_version, &resource.api_version());
    } else {
        let place = if resource.group.is_empty() {
            "core"
        } else {
            resource.group.split('.').next().unwrap_or_default()
        };
        format!("converting ({version}.{kind}) to ({place}.{}): unknown conversion", resource.kind)
    };
    Status::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {}: {why}",
        resource.kind
    ))
}

/// Checks the namespace of the object against the path, and sets it if it is absent.
pub(crate) fn check_namespace_matches(call: &Call<'_>, value: &mut Value) -> Result<(), Status> {
    let Some(map) = value.as_object_mut() else { return Ok(()) };
    let meta = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if meta.is_null() {
        *meta = Value::Object(Map::new());
    }
    let Some(meta) = meta.as_object_mut() else { return Ok(()) };
    let given = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !given.is_empty() && given != call.namespace && call.resource.namespaced {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    if call.resource.namespaced {
        meta.insert("namespace".into(), call.namespace.clone().into());
    } else if given.is_empty() {
        meta.shift_remove("namespace");
    }
    Ok(())
}

/// Decodes an object of a request body. A decoding error becomes a 400 Status.
pub(crate) fn decode_object(
    call: &Call<'_>,
    value: Value,
    warnings: &mut FieldWarnings,
) -> Result<Value, Status> {
    prepare::decode_object(&call.resource, value, None, warnings)
        .map_err(|why| decode_error(&call.resource, &call.resource.version, &why))
}
