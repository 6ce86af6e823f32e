//! Conversion of custom resources by the webhook of their CRD (strategy `Webhook`).

use std::sync::Arc;

use base64::Engine;
use serde_json::{Value, json};

use super::{client, review};
use crate::base::json::{go_kind, member_text, strings};
use crate::base::{names, random};
use crate::error::status::{Cause, Status};
use crate::registry::meta::{self, qualified_name_error};
use crate::schema;
use crate::scheme::conversion;
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;

/// Timeout of a call, in seconds.
const TIMEOUT: u64 = 30;

/// Converts stored objects to the version of the resource, with one call for all that have another version. The values of fields
/// that the version does not have are dropped. Defaults are those of the stored version.
pub(crate) async fn from_storage(
    resource: &Resource,
    stored: Vec<Arc<Stored>>,
) -> Result<Vec<Arc<Stored>>, Status> {
    if !resource.is_converted_by_webhook() || stored.is_empty() {
        return Ok(stored);
    }
    let values = stored.iter().map(|object| object.value()).collect();
    let converted = convert(resource, values, &resource.api_version()).await?;
    let in_version = stored.iter().zip(converted).map(|(object, mut value)| {
        decode(resource, &mut value);
        Arc::new(object.with_value(&value))
    });
    Ok(in_version.collect())
}

/// Drops unknown fields of a converted object, and sets the defaults of the stored version.
fn decode(resource: &Resource, value: &mut Value) {
    let schema = resource.schema();
    schema::prune(value, &schema, &mut Vec::new());
    if resource.is_of_version(&resource.storage_api_version) {
        schema::fill_defaults(value, &schema);
    }
}

/// Converts an object to the version in which it is stored.
pub(crate) async fn to_storage(resource: &Resource, value: Value) -> Result<Value, Status> {
    one(resource, value, &resource.storage_api_version).await
}

/// The object as it is read after it is stored.
pub(crate) async fn round_trip(resource: &Resource, value: Value) -> Result<Value, Status> {
    let stored = to_storage(resource, value).await?;
    let mut value = one(resource, stored, &resource.api_version()).await?;
    if resource.is_converted_by_webhook() {
        decode(resource, &mut value);
    } else if resource.custom.is_some() {
        conversion::to_storage(&mut value, resource);
        conversion::from_storage(&mut value, resource);
    }
    Ok(value)
}

/// Converts an object to a version. If the resource has no conversion webhook, it stays as it is.
pub(crate) async fn one(resource: &Resource, value: Value, api_version: &str) -> Result<Value, Status> {
    if !resource.is_converted_by_webhook() {
        return Ok(value);
    }
    let converted = convert(resource, vec![value], api_version).await?;
    converted.into_iter().next().ok_or_else(|| Status::internal("no converted object"))
}

async fn convert(resource: &Resource, mut values: Vec<Value>, desired: &str) -> Result<Vec<Value>, Status> {
    let is_other = |value: &Value| member_text(value, "apiVersion") != desired;
    let others: Vec<usize> =
        values.iter().enumerate().filter(|(_, value)| is_other(value)).map(|(i, _)| i).collect();
    let Some(first) = others.first().and_then(|i| values.get(*i)) else { return Ok(values) };
    let subject = {
        let (group, version) = names::split_api_version(member_text(first, "apiVersion"));
        format!("conversion webhook for {group}/{version}, Kind={}", resource.kind)
    };
    let objects: Vec<&Value> = others.iter().filter_map(|i| values.get(*i)).collect();
    let converted = call(resource, &objects, desired)
        .await
        .map_err(|why| Status::internal(format!("{subject} failed: {why}")))?;
    if converted.len() != objects.len() {
        let (given, expected) = (converted.len(), objects.len());
        return Err(Status::internal(format!("{subject} returned {given} objects, expected {expected}")));
    }
    for (index, (i, mut new)) in others.into_iter().zip(converted).enumerate() {
        let Some(old) = values.get_mut(i) else { continue };
        check_object(&new).map_err(Status::internal)?;
        let invalid = |why| Status::internal(format!("{subject} returned invalid object{why}"));
        check(old, &new, desired, index).map_err(invalid)?;
        keep_metadata(old, &mut new)
            .map_err(|why| Status::internal(format!("{subject} returned invalid metadata: {why}")))?;
        *old = new;
    }
    Ok(values)
}

/// Sends a `ConversionReview`.
async fn call(resource: &Resource, objects: &[&Value], desired: &str) -> Result<Vec<Value>, String> {
    let Some(webhook) = resource.custom.as_ref().and_then(|custom| custom.conversion.as_ref()) else {
        return Err("there is no webhook".to_owned());
    };
    let config = &webhook["clientConfig"];
    let Some(url) = config.get("url").and_then(Value::as_str) else {
        return Err("services cannot be reached from the in-memory server: use clientConfig.url".to_owned());
    };
    let ca = config.get("caBundle").and_then(Value::as_str);
    let ca = ca.and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
    let url = format!("{url}{}timeout={TIMEOUT}s", if url.contains('?') { '&' } else { '?' });
    let versions = strings(webhook.get("conversionReviewVersions"));
    let version =
        versions.iter().find(|v| matches!(v.as_str(), "v1" | "v1beta1")).map_or("v1", String::as_str);
    let uid = random::uid();
    let request = json!({
        "kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects},
    });
    let mut answer = review::decode(&client::post(&url, ca.as_deref(), &request, TIMEOUT).await?, &request)?;
    review::check_type(&answer, &request)?;
    let response = &mut answer["response"];
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    if version == "v1" && member_text(response, "uid") != uid {
        let given = member_text(response, "uid");
        return Err(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    let status = response.pointer("/result/status").and_then(Value::as_str).unwrap_or_default();
    if status != "Success" {
        return Err(match response.pointer("/result/message").and_then(Value::as_str) {
            None | Some("") => format!("response.result.status was '{status}', not 'Success'"),
            Some(message) => message.to_owned(),
        });
    }
    match response["convertedObjects"].take() {
        Value::Array(converted) => Ok(converted),
        _ => Ok(Vec::new()),
    }
}

/// Checks that a converted object is one. The error is that of Go's decoder.
fn check_object(new: &Value) -> Result<(), String> {
    match new {
        Value::Object(map) if map.get("kind").is_some_and(|kind| kind.is_string() && kind != "") => Ok(()),
        Value::Object(_) => Err(format!("Object 'Kind' is missing in '{new}'")),
        Value::Null => Err("unexpected end of JSON input".to_owned()),
        _ => Err(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_kind(new)
        )),
    }
}

/// Checks that a converted object has the desired version, and is still the same object.
fn check(old: &Value, new: &Value, desired: &str, index: usize) -> Result<(), String> {
    let given = member_text(new, "apiVersion");
    if given != desired {
        return Err(format!(
            " at index {index}: invalid groupVersion (expected {desired}, received {given})"
        ));
    }
    let (expected, given) = (member_text(old, "kind"), member_text(new, "kind"));
    if expected != given {
        return Err(format!(" at index {index}: invalid kind (expected {expected}, received {given})"));
    }
    for (key, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, given) = (member_text(&old["metadata"], key), member_text(&new["metadata"], key));
        if expected != given {
            return Err(format!(": must have the same {name}: {expected} != {given}"));
        }
    }
    Ok(())
}

/// Restores the metadata; labels and annotations may change.
fn keep_metadata(old: &Value, new: &mut Value) -> Result<(), String> {
    let mut metadata = old.get("metadata").cloned().unwrap_or_default();
    let Some(kept) = metadata.as_object_mut() else { return Ok(()) };
    let given = new.get("metadata").unwrap_or(&Value::Null);
    for key in ["labels", "annotations"] {
        let Some(found) = given.get(key).filter(|found| !found.is_null()) else {
            kept.shift_remove(key);
            continue;
        };
        let Some(texts) = found.as_object() else {
            return Err(format!("invalid metadata.{key} of type {} in converted object", go_type(found)));
        };
        if let Some((name, odd)) = texts.iter().find(|(_, text)| !text.is_string()) {
            let type_ = go_type(odd);
            return Err(format!(
                "metadata.{key}[{name}] must be a string, but is {type_} in converted object"
            ));
        }
        if kept.get(key) != Some(found) {
            check_texts(key, found)?;
        }
        kept.insert(key.to_owned(), found.clone());
    }
    new["metadata"] = metadata;
    Ok(())
}

/// Checks changed labels or annotations.
fn check_texts(key: &str, found: &Value) -> Result<(), String> {
    let mut causes = Vec::new();
    for (name, value) in found.as_object().into_iter().flatten() {
        if key == "labels" {
            meta::check_label("metadata.labels", name, value, &mut causes);
        } else if let Some(error) = qualified_name_error(&name.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotation", &name.as_str().into(), &error));
        }
    }
    let lines: Vec<String> =
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    match lines.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// Type of a decoded value in Go.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
