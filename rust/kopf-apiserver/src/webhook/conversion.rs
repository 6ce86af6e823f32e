//! Conversion of custom resources by the webhook of their CRD (strategy `Webhook`).

use std::sync::Arc;

use base64::Engine;
use serde_json::{Value, json};

use super::client;
use crate::base::json::{member_text, strings};
use crate::base::{names, random};
use crate::error::status::Status;
use crate::schema;
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;

/// Timeout of a call, in seconds.
const TIMEOUT: u64 = 30;

/// Converts stored objects to the version of the resource, with one call for all that have another version. The values of fields
/// that the version does not have are dropped, and its defaults are set.
pub(crate) async fn from_storage(
    resource: &Resource,
    stored: Vec<Arc<Stored>>,
) -> Result<Vec<Arc<Stored>>, Status> {
    if !resource.is_converted_by_webhook() || stored.is_empty() {
        return Ok(stored);
    }
    let schema = resource.schema();
    let values = stored.iter().map(|object| object.value()).collect();
    let converted = convert(resource, values, &resource.api_version()).await?;
    let in_version = stored.iter().zip(converted).map(|(object, mut value)| {
        schema::prune(&mut value, &schema, &mut Vec::new());
        schema::fill_defaults(&mut value, &schema);
        Arc::new(object.with_value(&value))
    });
    Ok(in_version.collect())
}

/// Converts an object to the version in which it is stored.
pub(crate) async fn to_storage(resource: &Resource, value: Value) -> Result<Value, Status> {
    one(resource, value, &resource.storage_api_version).await
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
        let invalid = |why| Status::internal(format!("{subject} returned invalid object{why}"));
        check(old, &new, desired, index).map_err(invalid)?;
        keep_metadata(old, &mut new);
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
    let review = json!({
        "kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects},
    });
    let mut answer = client::post(&url, ca.as_deref(), &review, TIMEOUT).await?;
    let response = &mut answer["response"];
    if version == "v1" && member_text(response, "uid") != uid {
        let given = member_text(response, "uid");
        return Err(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    if response.pointer("/result/status").and_then(Value::as_str) != Some("Success") {
        let message = response.pointer("/result/message").and_then(Value::as_str).unwrap_or_default();
        return Err(message.to_owned());
    }
    match response["convertedObjects"].take() {
        Value::Array(converted) => Ok(converted),
        _ => Ok(Vec::new()),
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
fn keep_metadata(old: &Value, new: &mut Value) {
    let mut metadata = old.get("metadata").cloned().unwrap_or_default();
    let (Some(kept), Some(given)) = (metadata.as_object_mut(), new.get("metadata")) else { return };
    for key in ["labels", "annotations"] {
        match given.get(key) {
            Some(value) => kept.insert(key.to_owned(), value.clone()),
            None => kept.shift_remove(key),
        };
    }
    new["metadata"] = metadata;
}
