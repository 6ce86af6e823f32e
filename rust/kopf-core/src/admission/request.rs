//! The parsing of admission reviews. Objects stay text until a handler needs their fields.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::error::Category;
use serde_json::json;
use serde_json::value::RawValue;

use super::ReviewError;
use crate::json::DecodeError;
use crate::json::value::{Value, truthy};
use crate::object::Object;

/// The request of an admission review.
#[derive(Debug, Clone)]
pub struct Request {
    /// The API version of the review, also used in the response.
    pub api_version: Option<Value>,
    /// The unique id of the request, also used in the response.
    pub uid: Option<Value>,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    pub operation: Option<String>,
    /// The subresource of the request; none for the object itself.
    pub subresource: Option<String>,
    /// Whether the API server discards the result: a dry run.
    pub dry_run: bool,
    /// The user who made the request.
    pub user_info: Value,
    /// The new object; none for deletions.
    pub new: Option<Arc<Object>>,
    /// The old object; none for creations.
    pub old: Option<Arc<Object>>,
    /// The object that handlers get: the new one, or the old one if there is no new one.
    pub body: Arc<Object>,
}

/// The resource of a review.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The plural name.
    pub plural: String,
    /// The resource as in the review, for error messages.
    pub raw: Value,
}

#[derive(Deserialize)]
struct Review<'t> {
    #[serde(rename = "apiVersion", default)]
    api_version: Option<Value>,
    #[serde(borrow, default)]
    request: Option<&'t RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload<'t> {
    #[serde(default)]
    uid: Option<Value>,
    #[serde(default)]
    resource: Option<Value>,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    dry_run: Option<Value>,
    #[serde(default)]
    user_info: Option<Value>,
    #[serde(borrow, default)]
    object: Option<&'t RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'t RawValue>,
}

/// A review that is parsed up to its resource.
pub struct ParsedReview<'t> {
    api_version: Option<Value>,
    payload: Payload<'t>,
    /// The resource of the review.
    pub requested: RequestedResource,
}

impl Request {
    /// Parses a review up to its resource. For a resource without handlers, the rest is not parsed.
    pub fn open(text: &[u8]) -> Result<ParsedReview<'_>, ReviewError> {
        let review: Review<'_> = serde_json::from_slice(text).map_err(unreadable)?;
        let payload = review.request.ok_or_else(|| missing("request"))?;
        let payload: Payload<'_> = serde_json::from_str(payload.get()).map_err(unreadable)?;
        let resource = payload.resource.clone().ok_or_else(|| missing("resource"))?;
        let word = |key: &str| {
            resource.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| missing(key))
        };
        let (group, version, plural) = (word("group")?, word("version")?, word("resource")?);
        let requested = RequestedResource { group, version, plural, raw: resource };
        Ok(ParsedReview { api_version: review.api_version, payload, requested })
    }
}

impl ParsedReview<'_> {
    /// Parses the rest of the review.
    pub fn read(self) -> Result<Request, ReviewError> {
        let payload = self.payload;
        let user_info = payload
            .user_info
            .ok_or(ReviewError::MissingData("User info is missing from the admission request."))?;
        let decode = |text: &RawValue| {
            Object::decode(text.get()).map(Arc::new).map_err(|error| match error {
                DecodeError::Depth { .. } => {
                    too_deep(&error, self.api_version.as_ref(), payload.uid.as_ref())
                }
                error => ReviewError::Malformed(error.to_string()),
            })
        };
        let new = payload.object.map(decode).transpose()?;
        let old = payload.old_object.map(decode).transpose()?;
        let body = new.as_ref().or(old.as_ref()).ok_or(ReviewError::MissingData(
            "Either old or new object is missing from the admission request.",
        ))?;
        Ok(Request {
            api_version: self.api_version,
            uid: payload.uid,
            operation: payload.operation,
            subresource: payload.sub_resource,
            dry_run: payload.dry_run.as_ref().is_some_and(truthy),
            user_info,
            body: Arc::clone(body),
            new,
            old,
        })
    }
}

fn too_deep(error: &DecodeError, api_version: Option<&Value>, uid: Option<&Value>) -> ReviewError {
    let message = format!("The object cannot be checked: {error}.");
    let api_version = api_version.cloned().unwrap_or_else(|| json!("admission.k8s.io/v1"));
    let response = json!({
        "uid": uid.cloned().unwrap_or_else(|| json!("")), "allowed": false,
        "status": {"message": message, "code": 400},
    });
    let denial = json!({"apiVersion": api_version, "kind": "AdmissionReview", "response": response});
    ReviewError::TooDeep { message, denial: denial.to_string() }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn unreadable(error: serde_json::Error) -> ReviewError {
    match error.classify() {
        Category::Data => ReviewError::Malformed(error.to_string()),
        Category::Io | Category::Syntax | Category::Eof => ReviewError::NotJson(error.to_string()),
    }
}

/// The text of Python's `KeyError`, which Kopf 1.45 raises for such reviews.
fn missing(key: &str) -> ReviewError {
    ReviewError::Malformed(format!("'{key}'"))
}
