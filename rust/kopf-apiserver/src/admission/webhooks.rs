//! Admission webhooks: matching, reviews, JSON patches and denials.

use std::sync::{Mutex, PoisonError};

use base64::Engine;
use serde_json::{Value, json};

use super::client;
use crate::base::user::User;
use crate::error::status::Status;
use crate::patch;
use crate::registry::prepare;
use crate::registry::selectors::LabelSelector;
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;
use crate::storage::store::Store;

/// Operation of an admission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// Warnings of a response, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds a warning. Errors carry the warnings as well.
    pub(crate) fn add(&self, warning: &str) {
        let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !warnings.iter().any(|known| known == warning) {
            warnings.push(warning.to_owned());
        }
    }
    /// Warnings within the size limits of kube-apiserver: 4096 characters together, or else 256 each.
    pub(crate) fn shortened(&self) -> Vec<String> {
        const TOTAL: usize = 4096;
        const EACH: usize = 256;
        let warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.iter().map(|warning| warning.chars().count()).sum::<usize>() <= TOTAL {
            return warnings.clone();
        }
        warnings.iter().take(TOTAL / EACH).map(|warning| warning.chars().take(EACH).collect()).collect()
    }
}

/// Attributes of an admission request.
pub(crate) struct Attributes<'a> {
    pub(crate) store: &'a Store,
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: Option<&'a str>,
    pub(crate) namespace: &'a str,
    pub(crate) user: &'a User,
    pub(crate) operation: Operation,
    pub(crate) dry_run: bool,
    pub(crate) warnings: &'a Warnings,
}

const GROUP: &str = "admissionregistration.k8s.io";

/// Webhooks of one configuration resource that match the request, ordered by the names of their configurations.
fn matching_webhooks(
    request: &Attributes<'_>,
    plural: &str,
    object: &Value,
    old: Option<&Value>,
) -> Vec<Value> {
    if request.resource.group == GROUP {
        return Vec::new();
    }
    let configurations = request.store.list(&format!("{GROUP}/{plural}"), None).objects;
    if configurations.is_empty() {
        return Vec::new();
    }
    let hooks =
        configurations.iter().flat_map(|c| c.value()["webhooks"].as_array().cloned().unwrap_or_default());
    hooks.filter(|hook| matches(request, hook, object, old)).collect()
}

fn matches(request: &Attributes<'_>, hook: &Value, object: &Value, old: Option<&Value>) -> bool {
    let rules = hook["rules"].as_array().cloned().unwrap_or_default();
    if !rules.iter().any(|rule| rule_matches(request, rule)) {
        return false;
    }
    let selector = LabelSelector::from_json(&hook["objectSelector"]);
    let matches_labels = |v: &Value| {
        selector.matches(|key| v.pointer("/metadata/labels").and_then(|l| l.get(key)).and_then(Value::as_str))
    };
    if !selector.is_empty() && !matches_labels(object) && !old.is_some_and(matches_labels) {
        return false;
    }
    let selector = LabelSelector::from_json(&hook["namespaceSelector"]);
    if selector.is_empty() || !request.resource.namespaced {
        return true;
    }
    let namespace = request.store.get("namespaces", "", request.namespace);
    namespace.is_some_and(|ns| selector.matches(|key| Stored::label(&ns, key)))
}

fn rule_matches(request: &Attributes<'_>, rule: &Value) -> bool {
    let list = |key: &str| crate::base::json::strings(rule.get(key));
    let has = |key: &str, value: &str| list(key).iter().any(|v| v == "*" || v == value);
    let plural = &request.resource.plural;
    let resource = match request.subresource {
        None => list("resources").iter().any(|r| r == "*" || r == "*/*" || r == plural),
        Some(sub) => list("resources").iter().any(|r| {
            r == "*/*"
                || *r == format!("{plural}/{sub}")
                || *r == format!("{plural}/*")
                || *r == format!("*/{sub}")
        }),
    };
    let scope = match rule.get("scope").and_then(Value::as_str) {
        Some("Namespaced") => request.resource.namespaced,
        Some("Cluster") => !request.resource.namespaced,
        _ => true,
    };
    has("operations", request.operation.name())
        && has("apiGroups", &request.resource.group)
        && has("apiVersions", &request.resource.version)
        && resource
        && scope
}

fn review(attributes: &Attributes<'_>, object: Option<&Value>, old: Option<&Value>) -> Value {
    let resource = attributes.resource;
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let resource_id =
        json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let name = object.or(old).and_then(|o| o.pointer("/metadata/name")).cloned();
    let user = attributes.user;
    let mut request = json!({
        "uid": crate::base::random::uid(), "kind": kind, "resource": resource_id, "requestKind": kind, "requestResource": resource_id,
        "name": name, "operation": attributes.operation.name(), "userInfo": {"username": user.name, "uid": user.name, "groups": user.groups},
        "object": object, "oldObject": old, "dryRun": attributes.dry_run,
        "options": {"kind": match attributes.operation { Operation::Create => "CreateOptions", Operation::Update => "UpdateOptions", Operation::Delete => "DeleteOptions" },
            "apiVersion": "meta.k8s.io/v1"},
    });
    if resource.namespaced {
        request["namespace"] = attributes.namespace.into();
    }
    if let Some(sub) = attributes.subresource {
        request["subResource"] = sub.into();
        request["requestSubResource"] = sub.into();
    }
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
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

fn denied(hook: &Value, response: &Value) -> Status {
    let name = hook["name"].as_str().unwrap_or_default();
    let message = response.pointer("/status/message").and_then(Value::as_str).unwrap_or_default();
    let code = response
        .pointer("/status/code")
        .and_then(Value::as_u64)
        .and_then(|c| u16::try_from(c).ok())
        .filter(|c| *c >= 400);
    let text = if message.is_empty() {
        format!("admission webhook \"{name}\" denied the request without explanation")
    } else {
        format!("admission webhook \"{name}\" denied the request: {message}")
    };
    let reason = match response.pointer("/status/reason").and_then(Value::as_str) {
        Some("Invalid") => "Invalid",
        Some("BadRequest") => "BadRequest",
        Some("Conflict") => "Conflict",
        Some("NotFound") => "NotFound",
        _ if code.is_none_or(|c| c == 403) => "Forbidden",
        _ => "",
    };
    let reason =
        if reason == "Forbidden" && code.is_none() && message.is_empty() { "Forbidden" } else { reason };
    Status::new(code.unwrap_or(403), reason, text)
}

/// Calls the matching mutating webhooks in order and returns the patched object.
pub(crate) async fn mutate(
    request: &Attributes<'_>,
    mut object: Value,
    old: Option<&Value>,
) -> Result<Value, Status> {
    for hook in matching_webhooks(request, "mutatingwebhookconfigurations", &object, old) {
        let review = review(request, Some(&object), old);
        let Some(response) = call_webhook(request, &hook, &review).await? else { continue };
        if response["allowed"] != true {
            return Err(denied(&hook, &response));
        }
        let Some(text) = response["patch"].as_str() else { continue };
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
        let patch: Value = serde_json::from_slice(&bytes).map_err(|e| {
            Status::internal(format!("Internal error occurred: malformed patch of a webhook: {e}"))
        })?;
        patch::json::apply(&mut object, &patch).map_err(|_| {
            Status::internal("Internal error occurred: the patch of a webhook cannot be applied")
        })?;
        object =
            prepare::decode_object(request.resource, object, None, &mut prepare::FieldWarnings::default())
                .map_err(Status::internal)?;
    }
    Ok(object)
}

/// Calls the matching validating webhooks; the error is the first denial.
pub(crate) async fn validate(
    request: &Attributes<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let object_or_old = object.or(old).unwrap_or(&Value::Null);
    let plurals: &[&str] = if request.operation == Operation::Delete {
        // Patches of a deletion are ignored, but mutating webhooks are called for it as well.
        &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    } else {
        &["validatingwebhookconfigurations"]
    };
    for plural in plurals {
        for hook in matching_webhooks(request, plural, object_or_old, old) {
            let review = review(request, object, old);
            if let Some(response) = call_webhook(request, &hook, &review).await?
                && response["allowed"] != true
            {
                return Err(denied(&hook, &response));
            }
        }
    }
    Ok(())
}
