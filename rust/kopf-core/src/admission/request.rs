//! Reading of admission reviews. The objects in them stay text until somebody wants more.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::error::Category;
use serde_json::json;
use serde_json::value::RawValue;

use super::ReviewError;
use crate::json::DecodeError;
use crate::json::value::{Value, truthy};
use crate::object::Object;

/// What a review asks.
#[derive(Debug, Clone)]
pub struct Request {
    /// The version of the review, which is also that of the answer.
    pub api_version: Option<Value>,
    /// The name of this very question.
    pub uid: Option<Value>,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    pub operation: Option<String>,
    /// Which part of the object is asked about; none is the object itself.
    pub subresource: Option<String>,
    /// Whether nothing will come of it, whatever we say.
    pub dry_run: bool,
    /// Who asks.
    pub user_info: Value,
    /// The object as it will be.
    pub new: Option<Arc<Object>>,
    /// The object as it is.
    pub old: Option<Arc<Object>>,
    /// The object that the review is about: as it will be, or as it is if it will not be.
    pub body: Arc<Object>,
}

/// The resource and subresource of a review.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedResource {
    /// Its API group; empty for the core.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its plural name.
    pub plural: String,
    /// All these as they were written.
    pub told: Value,
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

/// A review that is parsed as far as its resource.
pub struct ParsedReview<'t> {
    api_version: Option<Value>,
    payload: Payload<'t>,
    /// What it is about.
    pub wanted: RequestedResource,
}

impl Request {
    /// Reads a review up to what it is about: whoever is not concerned need not read the rest.
    pub fn open(text: &[u8]) -> Result<ParsedReview<'_>, ReviewError> {
        let review: Review<'_> = serde_json::from_slice(text).map_err(unreadable)?;
        let payload = review.request.ok_or_else(|| missing("request"))?;
        let payload: Payload<'_> = serde_json::from_str(payload.get()).map_err(unreadable)?;
        let told = payload.resource.clone().ok_or_else(|| missing("resource"))?;
        let word =
            |key: &str| told.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| missing(key));
        let (group, version, plural) = (word("group")?, word("version")?, word("resource")?);
        let wanted = RequestedResource { group, version, plural, told };
        Ok(ParsedReview { api_version: review.api_version, payload, wanted })
    }
}

impl ParsedReview<'_> {
    /// Reads the rest.
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

/// The text of Python's `KeyError`, which is what such reviews cause in it.
fn missing(key: &str) -> ReviewError {
    ReviewError::Malformed(format!("'{key}'"))
}
