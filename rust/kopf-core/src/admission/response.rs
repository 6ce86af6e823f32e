//! The responses to admission reviews: the verdict, the message, the warnings and the patch.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{Request, as_map};
use crate::json::json_patch;
use crate::json::value::{Map, Value};

/// The code of denials without a code.
const DEFAULT_CODE: i64 = 500;

/// The precedence of error kinds: of several errors, the first kind in this order is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorPrecedence {
    /// `AdmissionError`.
    Admission,
    /// `PermanentError`.
    Permanent,
    /// `TemporaryError`.
    Temporary,
    /// Any other exception.
    Arbitrary,
}

/// The error of a handler that denies a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The kind of the error.
    pub rank: ErrorPrecedence,
    /// The message of the error.
    pub message: String,
    /// The code for the client; none or zero for the default one.
    pub code: Option<i64>,
}

/// The result of a review in the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The request is allowed.
    Allowed,
    /// A handler denies it by an error of Kopf.
    Denied,
    /// A handler has failed with another exception, which denies the request, too; or there is no response.
    Errored,
}

impl Verdict {
    /// The result of a review with these errors of its handlers: that of the reported one.
    pub fn of(denials: &[Denial]) -> Self {
        match reported(denials).map(|denial| denial.rank) {
            None => Self::Allowed,
            Some(ErrorPrecedence::Arbitrary) => Self::Errored,
            Some(_) => Self::Denied,
        }
    }
}

/// The response. It contains the patch and the warnings even if the request is denied.
pub fn admission_response(
    request: &Request,
    denials: &[Denial],
    warnings: &[String],
    operations: &[Value],
) -> Value {
    let mut response = Map::new();
    response.insert("uid".to_owned(), request.uid.clone().unwrap_or_else(|| json!("")));
    response.insert("allowed".to_owned(), json!(denials.is_empty()));
    if !warnings.is_empty() {
        response.insert("warnings".to_owned(), json!(warnings));
    }
    if !operations.is_empty() {
        let text = Value::Array(operations.to_vec()).to_string();
        response.insert("patch".to_owned(), json!(STANDARD.encode(text)));
        response.insert("patchType".to_owned(), json!("JSONPatch"));
    }
    if let Some(denial) = reported(denials) {
        let code = denial.code.filter(|code| *code != 0).unwrap_or(DEFAULT_CODE);
        response.insert("status".to_owned(), json!({"message": denial.message, "code": code}));
    }
    let api_version = request.api_version.clone().unwrap_or_else(|| json!("admission.k8s.io/v1"));
    json!({"apiVersion": api_version, "kind": "AdmissionReview", "response": response})
}

/// Of several errors of the same kind, the first one is reported, in the order of the handlers.
fn reported(denials: &[Denial]) -> Option<&Denial> {
    denials.iter().min_by_key(|denial| denial.rank)
}

/// A merge patch as RFC 6902 operations on the object of the review.
pub fn operations(request: &Request, patch: &Map<String, Value>) -> Vec<Value> {
    let before = Value::Object(as_map(&request.body));
    let mut after = before.clone();
    json_patch::apply_merge(&mut after, patch);
    json_patch::operations(&before, &after)
}
