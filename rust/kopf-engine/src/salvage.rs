//! Salvaging: what can be kept of a patch that the server refuses as a whole, again and again.
//!
//! The outcomes of handlers come first: they are in annotations of ours, and nobody else's schema is about them. Then, what
//! the server has not named in its refusal. What remains is told, and given up: it would be refused for ever.

use std::sync::Arc;

use kopf_core::discretion::shown;
use kopf_core::ledger;
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::patch::Patch;
use kopf_core::path;
use kopf_core::settings::Persistence;
use kopf_core::value::{Map, Value, python_repr};

use crate::error::RequestError;
use crate::invoke::Entry;
use crate::patching::{Applied, Patching, PatchingError};

/// How many times a patch is sent as it is, before it is taken apart.
pub const PATIENCE: u32 = 3;

impl Patching<'_> {
    /// Writes as much of a refused patch as the server takes; an error if it takes nothing of it.
    pub async fn salvage(
        &self,
        object: &Arc<Object>,
        patch: &Map<String, Value>,
        refusal: &PatchingError,
        persistence: &Persistence,
        applied: &mut Applied,
    ) -> Result<(), PatchingError> {
        let own = ledger::own_part(object, patch, persistence);
        let rest = ledger::without(patch.clone(), &own);
        let named = named_fields(refusal, &rest);
        let unnamed = ledger::without(rest.clone(), &named);
        let mut attempts = vec![(own.clone(), rest)];
        if !named.is_empty() && !unnamed.is_empty() {
            let mut more = Patch(own);
            more.merge(unnamed);
            attempts.insert(0, (more.0, named));
        }
        for (kept, given_up) in attempts {
            let outcome =
                if kept.is_empty() { Ok(()) } else { self.merge(object, Patch(kept), applied).await };
            match outcome {
                Ok(()) => {
                    let text = format!(
                        "The server does not accept a part of the patch, and it is given up: {}. The rest is kept. {refusal}",
                        python_repr(&shown(object, &Value::Object(given_up)))
                    );
                    self.invoker.log(Entry::local(Level::Error, object, text));
                    applied.unwritten.clear();
                    return Ok(());
                }
                Err(error) if error.is_rejection() => {}
                Err(error) => return Err(error),
            }
        }
        Err(PatchingError::Request(RequestError::Malformed(refusal.to_string())))
    }
}

/// The part of the patch that the server complains of, as far as it names it.
fn named_fields(refusal: &PatchingError, patch: &Map<String, Value>) -> Map<String, Value> {
    let mut named = Patch::default();
    let PatchingError::Request(RequestError::Api(refusal)) = refusal else { return named.0 };
    let causes = refusal.payload.as_ref().and_then(|status| status.get("details")?.get("causes")?.as_array());
    for cause in causes.into_iter().flatten() {
        let field = cause.get("field").and_then(Value::as_str).unwrap_or_default();
        // Items of lists cannot be left out alone.
        let field = field.split('[').next().unwrap_or_default();
        let keys: Vec<&str> = field.split('.').filter(|key| !key.is_empty()).collect();
        // The field itself, or the last one above it that the patch is about.
        for end in (1..=keys.len()).rev() {
            let keys = keys.get(..end).unwrap_or_default();
            let (Some(first), Some(rest)) = (keys.first(), keys.get(1..)) else { continue };
            if let Some(value) = patch.get(*first).and_then(|value| path::resolve(value, rest)) {
                named.set(keys, value.clone());
                break;
            }
        }
    }
    named.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ApiError;
    use serde_json::json;

    fn named(field: &str) -> Value {
        let payload = json!({"kind": "Status", "details": {"causes": [{"field": field}]}});
        let error = ApiError::from_response(422, None, payload.to_string().as_bytes());
        let Value::Object(patch) = json!({"spec": {"size": -1, "name": "x"}, "status": {"list": [1]}}) else {
            panic!()
        };
        let refusal = PatchingError::Request(RequestError::Api(Box::new(error)));
        Value::Object(named_fields(&refusal, &patch))
    }

    #[test]
    fn the_server_names_what_it_does_not_accept() {
        assert_eq!(named("spec.size"), json!({"spec": {"size": -1}}));
        assert_eq!(named("status.list[0].deep"), json!({"status": {"list": [1]}}));
        assert_eq!(named("spec.size.deep"), json!({"spec": {"size": -1}}));
        assert_eq!(named("metadata.annotations"), json!({}));
        assert_eq!(named(""), json!({}));
    }
}
