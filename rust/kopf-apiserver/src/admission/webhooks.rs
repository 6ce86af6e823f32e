//! Admission webhooks: matching, reviews, JSON patches and denials.

use std::sync::Arc;

use base64::Engine;
use serde_json::{Value, json};

use super::attributes::{Attributes, Objects, Operation};
use super::expressions;
use super::matching::{list, matched_resource};
use crate::base::json::member_text;
use crate::error::status::Status;
use crate::patch;
use crate::registry::prepare;
use crate::scheme::resources::Resource;
use crate::webhook::client;

const GROUP: &str = "admissionregistration.k8s.io";

/// Webhooks of one configuration resource, ordered by the names of their configurations.
fn configured(request: &Attributes<'_>, plural: &str) -> Vec<Arc<Value>> {
    if request.resource.group == GROUP {
        return Vec::new();
    }
    let configurations = request.cluster.store.list(&format!("{GROUP}/{plural}"), None).objects;
    let webhooks = configurations.iter().flat_map(|c| match c.value()["webhooks"].take() {
        Value::Array(webhooks) => webhooks,
        _ => Vec::new(),
    });
    webhooks.map(Arc::new).collect()
}

fn review(request: &Attributes<'_>, matched: &Resource, objects: &Objects<'_>) -> Value {
    let mut review = request.admission_request(matched, objects);
    review["uid"] = crate::base::random::uid().into();
    review["object"] = objects.new.cloned().into();
    review["oldObject"] = objects.old.cloned().into();
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": review})
}

/// A response of a webhook, about the resource in this version.
struct Answer {
    response: Value,
    matched: Arc<Resource>,
}

/// Calls a webhook if it matches. `None` if it does not, or if its failure is ignored. The error is a denial or a failure.
async fn call_matching(
    request: &Attributes<'_>,
    hook: &Arc<Value>,
    objects: &Objects<'_>,
) -> Result<Option<Answer>, Status> {
    let Some(matched) = matched_resource(request, hook, list(hook, "rules"), objects) else {
        return Ok(None);
    };
    let (new, old) = objects.in_version(request, &matched).await?;
    let objects = Objects { new: new.as_ref(), old: old.as_ref() };
    if !expressions::webhook_is_called(request, hook, &matched, &objects).await? {
        return Ok(None);
    }
    let review = review(request, &matched, &objects);
    let Some(response) = call_webhook(request, hook, &review).await? else { return Ok(None) };
    if response["allowed"] != true {
        return Err(denied(hook, &response));
    }
    Ok(Some(Answer { response, matched }))
}

/// Calls one webhook. `Ok(None)` means that the call failed and `failurePolicy` is `Ignore`. Warnings of the response
/// are added to the request's.
async fn call_webhook(
    request: &Attributes<'_>,
    hook: &Value,
    review: &Value,
) -> Result<Option<Value>, Status> {
    let name = hook["name"].as_str().unwrap_or_default();
    let config = &hook["clientConfig"];
    let ca =
        config["caBundle"].as_str().and_then(|t| base64::engine::general_purpose::STANDARD.decode(t).ok());
    let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10);
    let answer = match config["url"].as_str() {
        Some(url) => {
            let url = format!("{url}{}timeout={seconds}s", if url.contains('?') { '&' } else { '?' });
            client::post(&url, ca.as_deref(), review, seconds).await
        }
        None => Err("services cannot be reached from the in-memory server: use clientConfig.url".to_owned()),
    };
    let checked = answer.and_then(|value| match value.get("response") {
        Some(response) if response["uid"] == review["request"]["uid"] => Ok(response.clone()),
        Some(_) => Err("expected response.uid to be the same as request.uid".to_owned()),
        None => Err("webhook response was absent".to_owned()),
    });
    match checked {
        Ok(response) => {
            for warning in crate::base::json::strings(response.get("warnings")) {
                request.warnings.add(&warning);
            }
            Ok(Some(response))
        }
        Err(_) if hook["failurePolicy"] == "Ignore" => Ok(None),
        Err(why) => {
            let message = format!(
                "Internal error occurred: failed calling webhook \"{name}\": failed to call webhook: {why}"
            );
            let status = Status::new(500, "InternalError", message);
            let causes = json!([{"message": format!("failed calling webhook \"{name}\": failed to call webhook: {why}")}]);
            let mut details = serde_json::Map::new();
            details.insert("causes".into(), causes);
            Err(status.with(details))
        }
    }
}

/// Reasons that a webhook can give.
const REASONS: [&str; 18] = [
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "Expired",
    "ServiceUnavailable",
];

/// The error with the status of a denial. Its code is at least 400.
fn denied(hook: &Value, response: &Value) -> Status {
    let name = hook["name"].as_str().unwrap_or_default();
    let given = &response["status"];
    let (message, reason) = (member_text(given, "message"), member_text(given, "reason"));
    let code = given["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
    let denied = format!("admission webhook \"{name}\" denied the request");
    let text = match (message, reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let reason = REASONS.into_iter().find(|known| *known == reason).unwrap_or_default();
    let status = Status::new(code.max(400), reason, text);
    match given["details"].as_object() {
        Some(details) => status.with(details.clone()),
        None => status,
    }
}

/// Calls the matching mutating webhooks in order and returns the patched object. Webhooks with `reinvocationPolicy: IfNeeded`
/// are called once more if a later one has changed the object.
pub(crate) async fn mutate(
    request: &Attributes<'_>,
    mut object: Value,
    old: Option<&Value>,
) -> Result<Value, Status> {
    let hooks = configured(request, "mutatingwebhookconfigurations");
    // Webhooks that are called again if a later one changes the object, and those that will be.
    let (mut reinvocable, mut reinvoked) = (Vec::new(), Vec::new());
    for (i, hook) in hooks.iter().enumerate() {
        let Some(answer) = call_matching(request, hook, &Objects { new: Some(&object), old }).await? else {
            continue;
        };
        if let Some(patched) = patched(request, &object, &answer).await? {
            reinvoked.append(&mut reinvocable);
            object = patched;
        }
        if member_text(hook, "reinvocationPolicy") == "IfNeeded" {
            reinvocable.push(i);
        }
    }
    for hook in reinvoked.into_iter().filter_map(|i| hooks.get(i)) {
        let answer = call_matching(request, hook, &Objects { new: Some(&object), old }).await?;
        let Some(answer) = answer else { continue };
        if let Some(patched) = patched(request, &object, &answer).await? {
            object = patched;
        }
    }
    Ok(object)
}

/// The object with the patch of a response; `None` if it does not change.
async fn patched(request: &Attributes<'_>, object: &Value, answer: &Answer) -> Result<Option<Value>, Status> {
    let Some(text) = answer.response["patch"].as_str() else { return Ok(None) };
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    let patch: Value = serde_json::from_slice(&bytes).map_err(|e| {
        Status::internal(format!("Internal error occurred: malformed patch of a webhook: {e}"))
    })?;
    let mut new = request.in_version_of(object, &answer.matched).await?;
    patch::json::apply(&mut new, &patch)
        .map_err(|_| Status::internal("Internal error occurred: the patch of a webhook cannot be applied"))?;
    let new = request.back_from_version_of(&new, &answer.matched).await?;
    if request.subresource == Some("scale") {
        return Ok((new != *object).then_some(new));
    }
    let new = prepare::decode_object(request.resource, new, None, &mut prepare::FieldWarnings::default())
        .map_err(Status::internal)?;
    Ok((new != *object).then_some(new))
}

/// Calls the matching validating webhooks; the error is the first denial.
pub(super) async fn validate(request: &Attributes<'_>, objects: &Objects<'_>) -> Result<(), Status> {
    let plurals: &[&str] = if request.operation == Operation::Delete {
        // Patches of a deletion are ignored, but mutating webhooks are called for it as well.
        &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    } else {
        &["validatingwebhookconfigurations"]
    };
    for plural in plurals {
        for hook in configured(request, plural) {
            call_matching(request, &hook, objects).await?;
        }
    }
    Ok(())
}
