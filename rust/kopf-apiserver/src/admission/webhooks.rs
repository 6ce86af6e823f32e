//! Admission webhooks: matching, reviews, JSON patches and denials.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine};
use bytes::Bytes;
use serde_json::{Value, json};

use super::attributes::{Attributes, Objects};
use super::expressions;
use super::matching::{list, matched_resource};
use crate::base::json::{go_kind, json_complaint, member_text, parse_json, strings};
use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::patch::{self, json::PatchError};
use crate::registry::prepare;
use crate::schema;
use crate::scheme::resources::Resource;
use crate::webhook::{self, client};

const GROUP: &str = "admissionregistration.k8s.io";
/// Versions of reviews.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

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

/// `apiVersion` of the reviews that a webhook gets: the first one that is known.
fn review_version(hook: &Value) -> String {
    let accepted = strings(hook.get("admissionReviewVersions"));
    let version = accepted.iter().find(|version| REVIEW_VERSIONS.contains(&version.as_str()));
    format!("admission.k8s.io/{}", version.map_or("v1", String::as_str))
}

fn review(request: &Attributes<'_>, hook: &Value, matched: &Resource, objects: &Objects<'_>) -> Value {
    let mut review = request.admission_request(matched);
    review["uid"] = crate::base::random::uid().into();
    review["object"] = objects.new.cloned().into();
    review["oldObject"] = objects.old.cloned().into();
    json!({"kind": "AdmissionReview", "apiVersion": review_version(hook), "request": review})
}

/// A call of a webhook that matches the request.
struct Invocation {
    /// The resource in the version of the matching rule.
    matched: Arc<Resource>,
    review: Value,
}

/// The call of a webhook; `None` if it does not match.
async fn invocation(
    request: &Attributes<'_>,
    hook: &Arc<Value>,
    objects: &Objects<'_>,
) -> Result<Option<Invocation>, Status> {
    let Some(matched) = matched_resource(request, hook, list(hook, "rules"), objects) else {
        return Ok(None);
    };
    let (new, old) = objects.in_version(request, &matched).await?;
    let objects = Objects { new: new.as_ref(), old: old.as_ref() };
    if !expressions::webhook_is_called(request, hook, &matched, &objects).await? {
        return Ok(None);
    }
    let review = review(request, hook, &matched, &objects);
    Ok(Some(Invocation { matched, review }))
}

/// Why a call does not admit the request.
enum CallError {
    /// No usable response. The failure policy of the webhook decides.
    Failed(String),
    Rejected(Status),
}

impl CallError {
    /// The rejection of the request, unless the failure policy ignores the error.
    fn into_result(self, hook: &Value) -> Result<(), Status> {
        match self {
            Self::Failed(_) if expressions::ignores_failures(hook) => Ok(()),
            Self::Failed(why) => {
                let name = member_text(hook, "name");
                Err(Status::internal_error(&format!("failed calling webhook \"{name}\": {why}")))
            }
            Self::Rejected(status) => Err(status),
        }
    }
}

/// Calls a webhook, and adds its warnings to those of the request. Returns the response that allows the request.
async fn call(
    request: &Attributes<'_>,
    hook: &Value,
    review: &Value,
    is_mutating: bool,
) -> Result<Value, CallError> {
    let failed = |why: String| CallError::Failed(format!("failed to call webhook: {why}"));
    let answer = post(hook, review).await.and_then(|bytes| decoded(&bytes, review)).map_err(failed)?;
    let invalid = |why: String| CallError::Failed(format!("received invalid webhook response: {why}"));
    let response = checked(answer, review, is_mutating).map_err(invalid)?;
    for warning in strings(response.get("warnings")) {
        request.warnings.add(&warning);
    }
    if response["allowed"] == true { Ok(response) } else { Err(CallError::Rejected(denied(hook, &response))) }
}

async fn post(hook: &Value, review: &Value) -> Result<Bytes, String> {
    let config = &hook["clientConfig"];
    let ca = config["caBundle"].as_str().and_then(|text| STANDARD.decode(text).ok());
    let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10);
    let Some(url) = config["url"].as_str() else {
        return Err("services cannot be reached from the in-memory server: use clientConfig.url".to_owned());
    };
    let url = format!("{url}{}timeout={seconds}s", if url.contains('?') { '&' } else { '?' });
    client::post(&url, ca.as_deref(), review, seconds).await
}

/// Decodes the review in a response, with its patch, which becomes a text.
fn decoded(bytes: &[u8], review: &Value) -> Result<Value, String> {
    let mut answer = webhook::review::decode(bytes, review)?;
    let Some(patch) = answer.pointer_mut("/response/patch") else { return Ok(answer) };
    if let Some(text) = patch.as_str() {
        let decoded = STANDARD.decode(text).map_err(|error| {
            let at = match error {
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                DecodeError::InvalidLength(length) => length / 4 * 4,
                DecodeError::InvalidPadding => text.len(),
            };
            format!("illegal base64 data at input byte {at}")
        })?;
        *patch = String::from_utf8_lossy(&decoded).into_owned().into();
    }
    Ok(answer)
}

/// Checks the review in a response, and takes the response out of it.
fn checked(mut answer: Value, review: &Value, is_mutating: bool) -> Result<Value, String> {
    let mut response = answer["response"].take();
    if !response.is_object() {
        return Err("webhook response was absent".to_owned());
    }
    let version = member_text(review, "apiVersion");
    if version.ends_with("v1beta1") {
        // Reviews of this version are not checked.
        response["patchType"] = "JSONPatch".into();
        return Ok(response);
    }
    let uid = &review["request"]["uid"];
    if member_text(&response, "uid") != uid {
        let given = Value::from(member_text(&response, "uid"));
        return Err(format!("expected response.uid={uid}, got {given}"));
    }
    webhook::review::check_type(&answer, review)?;
    let has_patch = !member_text(&response, "patch").is_empty();
    let patch_type = response.get("patchType").and_then(Value::as_str);
    let problem = match (is_mutating, has_patch, patch_type) {
        (true, true, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (true, false, Some(_)) => "webhook returned response.patchType but not response.patch",
        (false, true, _) => "validating webhook may not return response.patch",
        (false, false, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(response),
    };
    Err(problem.to_owned())
}

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
    let mut status = Status::new(code.max(400), reason.to_owned(), text);
    status.retry_after = given["details"]["retryAfterSeconds"].as_u64().filter(|seconds| *seconds > 0);
    match given["details"].as_object() {
        Some(details) => status.with(details.clone()),
        None => status,
    }
}

/// Effect of a mutating webhook.
enum Mutation {
    /// It does not match.
    NotCalled,
    Unchanged,
    Changed(Value),
}

/// Whether there are mutating webhooks.
pub(crate) fn has_mutating_webhooks(cluster: &Cluster) -> bool {
    !cluster.store.list(&format!("{GROUP}/mutatingwebhookconfigurations"), None).objects.is_empty()
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
        match mutation(request, hook, &object, old).await? {
            Mutation::NotCalled => continue,
            Mutation::Unchanged => {}
            Mutation::Changed(changed) => {
                reinvoked.append(&mut reinvocable);
                object = changed;
            }
        }
        if member_text(hook, "reinvocationPolicy") == "IfNeeded" {
            reinvocable.push(i);
        }
    }
    for hook in reinvoked.into_iter().filter_map(|i| hooks.get(i)) {
        if let Mutation::Changed(changed) = mutation(request, hook, &object, old).await? {
            object = changed;
        }
    }
    Ok(object)
}

/// Calls a mutating webhook if it matches, and applies its patch.
async fn mutation(
    request: &Attributes<'_>,
    hook: &Arc<Value>,
    object: &Value,
    old: Option<&Value>,
) -> Result<Mutation, Status> {
    let Some(invocation) = invocation(request, hook, &Objects { new: Some(object), old }).await? else {
        return Ok(Mutation::NotCalled);
    };
    let patched = match call(request, hook, &invocation.review, true).await {
        Ok(response) => patched(request, object, &response, &invocation.matched).await,
        Err(error) => Err(error),
    };
    match patched {
        Ok(changed) => Ok(changed.map_or(Mutation::Unchanged, Mutation::Changed)),
        Err(error) => error.into_result(hook).map(|()| Mutation::Unchanged),
    }
}

/// The operations of the patch in a response. The error is the text for a Status.
fn operations(response: &Value) -> Result<Vec<Value>, String> {
    let patch = member_text(response, "patch").as_bytes();
    if patch.is_empty() {
        return Ok(Vec::new());
    }
    let (patch, _) = parse_json(patch).map_err(|e| json_complaint(patch, &e))?;
    let (found, list) = match patch {
        Value::Array(operations) => match operations.iter().find(|operation| !operation.is_object()) {
            None => return Ok(operations),
            Some(odd) => (go_kind(odd), "jsonpatch.Operation"),
        },
        Value::Null => return Ok(Vec::new()),
        other => (go_kind(&other), "jsonpatch.Patch"),
    };
    Err(format!("json: cannot unmarshal {found} into Go value of type {list}"))
}

#[expect(clippy::needless_pass_by_value, reason = "maps errors")]
fn undecodable(why: String) -> CallError {
    CallError::Failed(format!("received undecodable patch in webhook response: {why}"))
}

/// The object with the patch of a response; `None` if it does not change.
async fn patched(
    request: &Attributes<'_>,
    object: &Value,
    response: &Value,
    matched: &Resource,
) -> Result<Option<Value>, CallError> {
    let internal = |why: &str| CallError::Rejected(Status::internal_error(why));
    let operations = operations(response).map_err(undecodable)?;
    if operations.is_empty() {
        return Ok(None);
    }
    let patch_type = member_text(response, "patchType");
    if patch_type != "JSONPatch" {
        return Err(CallError::Failed(format!("unsupported patch type \"{patch_type}\"")));
    }
    let mut new = request.in_version_of(object, matched).await.map_err(CallError::Rejected)?;
    patch::json::apply(&mut new, &Value::Array(operations)).map_err(|error| match error {
        PatchError::Malformed(why) | PatchError::Inapplicable(why) => internal(&why),
        PatchError::TooMany(count) => internal(&format!("there are {count} operations")),
    })?;
    let new = request.back_from_version_of(&new, matched).await.map_err(CallError::Rejected)?;
    if request.has_other_kind() {
        request.check_other_kind(&new).map_err(|why| internal(&why))?;
        return Ok((new != *object).then_some(new));
    }
    let new = if request.resource.custom.is_some() {
        custom_object(request.resource, new)?
    } else {
        typed_object(request.resource, new).map_err(|why| internal(&why))?
    };
    Ok((new != *object).then_some(new))
}

/// A patched object of a built-in kind. The error is that of Go's decoder.
fn typed_object(resource: &Resource, mut object: Value) -> Result<Value, String> {
    let (kind, api_version) = (member_text(&object, "kind"), member_text(&object, "apiVersion"));
    let is_other = |given: &str, own: &str| !given.is_empty() && given != own;
    if is_other(kind, &resource.kind) || is_other(api_version, &resource.api_version()) {
        let version = &resource.version;
        return Err(format!(
            "converting ({version}.{kind}) to ({version}.{}): unknown conversion",
            resource.kind
        ));
    }
    if let Some(map) = object.as_object_mut() {
        map.insert("kind".into(), resource.kind.clone().into());
        map.insert("apiVersion".into(), resource.api_version().into());
    }
    prepare::decode_object(resource, object, None, &mut prepare::FieldWarnings::default())
}

/// A patched custom object, with the defaults of its schema. Unknown fields are dropped when it is stored.
fn custom_object(resource: &Resource, mut object: Value) -> Result<Value, CallError> {
    if member_text(&object, "kind").is_empty() {
        object.sort_all_objects();
        let why = format!("Object 'Kind' is missing in '{object}'");
        return Err(CallError::Rejected(Status::internal_error(&why)));
    }
    let given = member_text(&object, "apiVersion");
    if given != resource.api_version() {
        let why = format!("request to convert CR from an invalid group/version: {given}");
        return Err(CallError::Rejected(Status::internal(why)));
    }
    schema::fill_defaults(&mut object, &resource.schema());
    Ok(object)
}

/// Calls the mutating webhooks that match a deletion in order. They cannot change the object.
pub(super) async fn mutate_deletion(request: &Attributes<'_>, objects: &Objects<'_>) -> Result<(), Status> {
    for hook in configured(request, "mutatingwebhookconfigurations") {
        let Some(invocation) = invocation(request, &hook, objects).await? else { continue };
        let answered = call(request, &hook, &invocation.review, true).await;
        let admitted = answered.and_then(|response| match operations(&response) {
            Ok(operations) if operations.is_empty() => Ok(()),
            Ok(_) => Err(CallError::Rejected(Status::internal_error(&format!(
                "admission webhook \"{}\" attempted to modify the object, which is not supported for this operation",
                member_text(&hook, "name")
            )))),
            Err(why) => Err(undecodable(why)),
        });
        admitted.or_else(|error| error.into_result(&hook))?;
    }
    Ok(())
}

/// A call of a validating webhook.
type Call<'c> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'c>>;

/// Calls all matching validating webhooks at the same time; the error is that of the first one that rejects the request.
pub(super) async fn validate(request: &Attributes<'_>, objects: &Objects<'_>) -> Result<(), Status> {
    let hooks = configured(request, "validatingwebhookconfigurations");
    let mut calls: Vec<Call<'_>> = Vec::new();
    for hook in &hooks {
        let Some(invocation) = invocation(request, hook, objects).await? else { continue };
        calls.push(Box::pin(async move {
            match call(request, hook, &invocation.review, false).await {
                Ok(_) => Ok(()),
                Err(error) => error.into_result(hook),
            }
        }));
    }
    let mut result = Ok(());
    poll_fn(|context| {
        calls.retain_mut(|call| match call.as_mut().poll(context) {
            Poll::Ready(done) => {
                if result.is_ok() {
                    result = done;
                }
                false
            }
            Poll::Pending => true,
        });
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    result
}
