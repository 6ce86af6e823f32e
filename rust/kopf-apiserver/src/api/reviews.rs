//! Access and token reviews, which are answered and not stored.

use serde_json::{Value, json};

use super::{Call, body};
use crate::authz::{self, Attributes};
use crate::base::json::text;
use crate::base::random;
use crate::base::user::User;
use crate::error::status::{Cause, Status};
use crate::http::response::Response;
use crate::schema::formats;
use crate::scheme::resources::Resource;

pub(crate) fn is_review(resource: &Resource) -> bool {
    matches!(resource.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
}

pub(crate) fn create(call: &Call<'_>) -> Result<Response, Status> {
    let (mut value, _) = body::read(call)?;
    body::check_type(call, &mut value)?;
    let user = &call.request.user;
    value["kind"] = call.resource.kind.clone().into();
    value["apiVersion"] = call.resource.api_version().into();
    if !value["metadata"].is_object() {
        value["metadata"] = json!({});
    }
    match call.resource.kind.as_str() {
        "SelfSubjectReview" => {
            value["metadata"]["creationTimestamp"] = formats::now().into();
            value["status"] = json!({"userInfo": user.info()});
        }
        "TokenReview" => {
            let token = text(&value, "/spec/token").to_owned();
            value["status"] = match call.cluster.authenticate(&token) {
                Some(user) => json!({"authenticated": true, "user": user.info()}),
                None => json!({"user": {}, "error": "[invalid bearer token]"}),
            };
        }
        "SelfSubjectRulesReview" => {
            value["status"] = rules(call, text(&value, "/spec/namespace"));
        }
        kind => {
            let subject =
                if kind == "SelfSubjectAccessReview" { User::clone(user) } else { named_user(&value) };
            let allowed = !call.cluster.options.authorization
                || authz::allowed(call.cluster, &subject, &attributes_of(&value));
            value["status"] = json!({"allowed": allowed});
        }
    }
    Ok(Response::json(201, &value))
}

/// Rules of the user, for `kubectl auth can-i --list`.
fn rules(call: &Call<'_>, namespace: &str) -> Value {
    let user = &call.request.user;
    let master = !call.cluster.options.authorization || user.groups.iter().any(|g| g == "system:masters");
    let mut all = if master {
        vec![
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
            json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
        ]
    } else {
        authz::rules(call.cluster, user, namespace)
    };
    let non_resource: Vec<Value> = all.extract_if(.., |rule| rule.get("nonResourceURLs").is_some()).collect();
    json!({"resourceRules": all, "nonResourceRules": non_resource, "incomplete": false})
}

fn named_user(value: &Value) -> User {
    User {
        name: text(value, "/spec/user").to_owned(),
        groups: crate::base::json::strings(value.pointer("/spec/groups")),
        ..User::default()
    }
}

fn attributes_of(value: &Value) -> Attributes {
    let given = |key: &str| text(value, &format!("/spec/resourceAttributes/{key}")).to_owned();
    if value.pointer("/spec/nonResourceAttributes").is_some() {
        let given = |key: &str| text(value, &format!("/spec/nonResourceAttributes/{key}")).to_owned();
        return Attributes { verb: given("verb"), path: given("path"), ..Attributes::default() };
    }
    Attributes {
        verb: given("verb"),
        group: given("group"),
        resource: given("resource"),
        subresource: given("subresource"),
        namespace: given("namespace"),
        name: given("name"),
        path: String::new(),
    }
}

/// Limits of the duration of tokens, in seconds.
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

/// Issues a random token for a service account. It does not expire.
pub(crate) fn token(call: &Call<'_>) -> Result<Response, Status> {
    let name = call.name.as_deref().unwrap_or_default();
    let Some(account) = call.cluster.get(&call.resource, &call.namespace, name) else {
        return Err(Status::not_found(call.resource.group_resource(), name));
    };
    let (mut value, _) = body::read(call)?;
    let given_name = text(&value, "/metadata/name");
    let invalid =
        |name: &str, cause: Cause| Status::invalid("authentication.k8s.io", "TokenRequest", name, &[cause]);
    if !given_name.is_empty() && given_name != name {
        let why = "must match the service account name if specified";
        return Err(invalid(name, Cause::invalid("metadata.name", &given_name.into(), why)));
    }
    let given = |key: &str| value.pointer(&format!("/spec/{key}")).filter(|given| !given.is_null()).cloned();
    let seconds = given("expirationSeconds").and_then(|seconds| seconds.as_i64()).unwrap_or(3600);
    let why = match seconds {
        ..SHORTEST => Some("may not specify a duration less than 10 minutes"),
        SHORTEST..=LONGEST => None,
        _ => Some("may not specify a duration larger than 2^32 seconds"),
    };
    if let Some(why) = why {
        return Err(invalid("", Cause::invalid("spec.expirationSeconds", &seconds.into(), why)));
    }
    let spec = json!({
        "audiences": given("audiences").unwrap_or_else(|| json!(["https://kubernetes.default.svc"])),
        "expirationSeconds": seconds,
        "boundObjectRef": given("boundObjectRef").unwrap_or_default(),
    });
    let expiration = crate::base::clock::now()
        .saturating_add(jiff::SignedDuration::from_secs(seconds))
        .unwrap_or(jiff::Timestamp::MAX);
    let token = call.cluster.issue_token(&call.namespace, name, &account.uid);
    value["kind"] = "TokenRequest".into();
    value["apiVersion"] = "authentication.k8s.io/v1".into();
    value["metadata"] = json!({"name": name, "namespace": call.namespace, "uid": random::uid(),
        "creationTimestamp": formats::now()});
    value["spec"] = spec;
    value["status"] = json!({"token": token, "expirationTimestamp": formats::stamp(expiration, false)});
    Ok(Response::json(201, &value))
}
