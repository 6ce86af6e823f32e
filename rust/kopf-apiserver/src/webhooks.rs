//! Admission webhooks: who is asked about a change, what is sent, and what comes of the answers.

use base64::Engine;
use serde_json::{Value, json};

use crate::patch;
use crate::request::WriteOptions;
use crate::selectors::Labels;
use crate::status::Status;
use crate::store::Stored;
use crate::verbs::{Call, conform};
use crate::webhook_client;

/// What is done to an object.
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

const GROUP: &str = "admissionregistration.k8s.io";

/// The webhooks of a kind of configuration that are about this call, in the order of their names.
fn relevant(
    call: &Call<'_>,
    plural: &str,
    operation: Operation,
    object: &Value,
    old: Option<&Value>,
) -> Vec<Value> {
    if call.resource.group == GROUP {
        return Vec::new();
    }
    let configurations = call.cluster.store.list(&format!("{GROUP}/{plural}"), None).objects;
    if configurations.is_empty() {
        return Vec::new();
    }
    let hooks =
        configurations.iter().flat_map(|c| c.value()["webhooks"].as_array().cloned().unwrap_or_default());
    hooks.filter(|hook| concerns(call, hook, operation, object, old)).collect()
}

fn concerns(
    call: &Call<'_>,
    hook: &Value,
    operation: Operation,
    object: &Value,
    old: Option<&Value>,
) -> bool {
    let rules = hook["rules"].as_array().cloned().unwrap_or_default();
    if !rules.iter().any(|rule| rule_matches(call, rule, operation)) {
        return false;
    }
    let selector = Labels::from_json(&hook["objectSelector"]);
    let labelled = |v: &Value| {
        selector.matches(|key| v.pointer("/metadata/labels").and_then(|l| l.get(key)).and_then(Value::as_str))
    };
    if !selector.is_empty() && !labelled(object) && !old.is_some_and(labelled) {
        return false;
    }
    let selector = Labels::from_json(&hook["namespaceSelector"]);
    if selector.is_empty() || !call.resource.namespaced {
        return true;
    }
    let namespace = call.cluster.store.get("namespaces", "", &call.namespace);
    namespace.is_some_and(|ns| selector.matches(|key| Stored::label(&ns, key)))
}

fn rule_matches(call: &Call<'_>, rule: &Value, operation: Operation) -> bool {
    let list = |key: &str| crate::schema::strings(rule.get(key));
    let has = |key: &str, wanted: &str| list(key).iter().any(|v| v == "*" || v == wanted);
    let plural = &call.resource.plural;
    let resource = match &call.subresource {
        None => list("resources").iter().any(|r| r == "*" || r == "*/*" || r == plural),
        Some(sub) => list("resources").iter().any(|r| {
            r == "*/*"
                || *r == format!("{plural}/{sub}")
                || *r == format!("{plural}/*")
                || *r == format!("*/{sub}")
        }),
    };
    let scope = match rule.get("scope").and_then(Value::as_str) {
        Some("Namespaced") => call.resource.namespaced,
        Some("Cluster") => !call.resource.namespaced,
        _ => true,
    };
    has("operations", operation.name())
        && has("apiGroups", &call.resource.group)
        && has("apiVersions", &call.resource.version)
        && resource
        && scope
}

fn review(
    call: &Call<'_>,
    operation: Operation,
    object: Option<&Value>,
    old: Option<&Value>,
    options: &WriteOptions,
) -> Value {
    let resource = &call.resource;
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let what = json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let named = object.or(old).and_then(|o| o.pointer("/metadata/name")).cloned();
    let user = &call.request.user;
    let mut request = json!({
        "uid": crate::meta::uid(), "kind": kind, "resource": what, "requestKind": kind, "requestResource": what,
        "name": named, "operation": operation.name(), "userInfo": {"username": user.name, "uid": user.name, "groups": user.groups},
        "object": object, "oldObject": old, "dryRun": options.dry_run,
        "options": {"kind": match operation { Operation::Create => "CreateOptions", Operation::Update => "UpdateOptions", Operation::Delete => "DeleteOptions" },
            "apiVersion": "meta.k8s.io/v1"},
    });
    if resource.namespaced {
        request["namespace"] = call.namespace.clone().into();
    }
    if let Some(sub) = &call.subresource {
        request["subResource"] = sub.clone().into();
        request["requestSubResource"] = sub.clone().into();
    }
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
}

/// Asks one webhook. `Ok(None)` when it failed and failures are ignored. Its warnings are given to the client in any case.
async fn ask(call: &Call<'_>, hook: &Value, review: &Value) -> Result<Option<Value>, Status> {
    let name = hook["name"].as_str().unwrap_or_default();
    let config = &hook["clientConfig"];
    let ca =
        config["caBundle"].as_str().and_then(|t| base64::engine::general_purpose::STANDARD.decode(t).ok());
    let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10);
    let answer = match config["url"].as_str() {
        Some(url) => {
            let url = format!("{url}{}timeout={seconds}s", if url.contains('?') { '&' } else { '?' });
            webhook_client::post(&url, ca.as_deref(), review, seconds).await
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
            for warning in crate::schema::strings(response.get("warnings")) {
                call.warn(&warning);
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

/// Lets the mutating webhooks change an object.
pub(crate) async fn mutate(
    call: &Call<'_>,
    operation: Operation,
    mut object: Value,
    old: Option<&Value>,
    options: &WriteOptions,
) -> Result<Value, Status> {
    for hook in relevant(call, "mutatingwebhookconfigurations", operation, &object, old) {
        let review = review(call, operation, Some(&object), old, options);
        let Some(response) = ask(call, &hook, &review).await? else { continue };
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
        object = conform::shape(&call.resource, object, None, &mut conform::Findings::default())
            .map_err(Status::internal)?;
    }
    Ok(object)
}

/// Lets the validating webhooks refuse a change.
pub(crate) async fn validate(
    call: &Call<'_>,
    operation: Operation,
    object: Option<&Value>,
    old: Option<&Value>,
    options: &WriteOptions,
) -> Result<(), Status> {
    let about = object.or(old).unwrap_or(&Value::Null);
    let plurals: &[&str] = if operation == Operation::Delete {
        // A deletion cannot be altered, but mutating webhooks are asked about it as well.
        &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    } else {
        &["validatingwebhookconfigurations"]
    };
    for plural in plurals {
        for hook in relevant(call, plural, operation, about, old) {
            let review = review(call, operation, object, old, options);
            if let Some(response) = ask(call, &hook, &review).await?
                && response["allowed"] != true
            {
                return Err(denied(&hook, &response));
            }
        }
    }
    Ok(())
}
