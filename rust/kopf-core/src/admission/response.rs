//! The answers to admission reviews: whether it is allowed, what to say, what to change.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{Request, as_map};
use crate::json::json_patch;
use crate::json::value::{Map, Value};

/// The code of refusals that name none.
const DEFAULT_CODE: i64 = 500;

/// The precedence of error kinds: of several errors, the first kind in this order is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorPrecedence {
    /// Made for this very purpose.
    Admission,
    /// For good.
    Permanent,
    /// For now.
    Temporary,
    /// Whatever else.
    Arbitrary,
}

/// The error of a handler that denies a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// What kind of error it is.
    pub rank: ErrorPrecedence,
    /// What it says.
    pub message: String,
    /// A code for the client; none (or zero) is the default one.
    pub code: Option<i64>,
}

/// The answer. The patch and the warnings are in it even if the answer is no.
pub fn answer(request: &Request, refusals: &[Denial], warnings: &[String], operations: &[Value]) -> Value {
    let mut response = Map::new();
    response.insert("uid".to_owned(), request.uid.clone().unwrap_or_else(|| json!("")));
    response.insert("allowed".to_owned(), json!(refusals.is_empty()));
    if !warnings.is_empty() {
        response.insert("warnings".to_owned(), json!(warnings));
    }
    if !operations.is_empty() {
        let text = Value::Array(operations.to_vec()).to_string();
        response.insert("patch".to_owned(), json!(STANDARD.encode(text)));
        response.insert("patchType".to_owned(), json!("JSONPatch"));
    }
    // Of equals, the first one is taken, in the order of the handlers.
    if let Some(told) = refusals.iter().min_by_key(|refusal| refusal.rank) {
        let code = told.code.filter(|code| *code != 0).unwrap_or(DEFAULT_CODE);
        response.insert("status".to_owned(), json!({"message": told.message, "code": code}));
    }
    let api_version = request.api_version.clone().unwrap_or_else(|| json!("admission.k8s.io/v1"));
    json!({"apiVersion": api_version, "kind": "AdmissionReview", "response": response})
}

/// A merge patch as RFC 6902 operations on the object that the review is about.
pub fn operations(request: &Request, patch: &Map<String, Value>) -> Vec<Value> {
    let before = Value::Object(as_map(&request.body));
    let mut after = before.clone();
    json_patch::apply_merge(&mut after, patch);
    json_patch::operations(&before, &after)
}
