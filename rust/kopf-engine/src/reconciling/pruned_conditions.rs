//! The warning about conditions that the API server does not store: the schema of the CRD does not declare them.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use kopf_core::conditions::{ConditionChange, ConditionChanges};
use kopf_core::object::{Found, Object};
use kopf_core::resource::Resource;

/// The kinds for which the warning was already logged.
#[derive(Debug, Default)]
pub(super) struct PrunedConditions(Mutex<HashSet<String>>);

impl PrunedConditions {
    /// The warning if conditions were set, but the object in the response has none: once per kind.
    pub(super) fn warning(
        &self,
        resource: &Resource,
        conditions: &ConditionChanges,
        response: &Object,
    ) -> Option<String> {
        let has_set = conditions.changes.iter().any(|change| matches!(change, ConditionChange::Set { .. }));
        let is_stored = matches!(response.text_at(&["status", "conditions"]), Found::Text(_));
        if !has_set || is_stored {
            return None;
        }
        let kind = format!("{}.{}", resource.plural, resource.group);
        let kind = kind.trim_end_matches('.');
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(kind.to_owned()).then(|| {
            format!(
                "The API server does not store status.conditions of {kind}: the schema of the CRD does not declare the field. \
                 Add it to the properties of the status: `conditions: {{type: array, items: {{type: object, \
                 x-kubernetes-preserve-unknown-fields: true}}}}`. This is logged once for {kind}."
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::resource;

    fn set() -> ConditionChange {
        ConditionChange::Set {
            type_: "Ready".to_owned(),
            status: Some(true),
            reason: "Done".to_owned(),
            message: String::new(),
        }
    }

    #[test]
    fn s1_9_a_schema_without_conditions_is_logged_once_per_kind() {
        let pruned = PrunedConditions::default();
        let warning = |plural: &str, change: ConditionChange, status: Value| {
            let conditions = ConditionChanges { changes: vec![change], generation: None };
            let response = Object::decode(&json!({"status": status}).to_string()).unwrap();
            pruned.warning(&resource("example.com", plural, true), &conditions, &response)
        };
        assert_eq!(warning("shops", set(), json!({"conditions": []})), None);
        assert_eq!(warning("shops", ConditionChange::Drop("Ready".to_owned()), json!({})), None);
        let text = warning("shops", set(), json!({})).unwrap();
        assert!(text.contains("does not store status.conditions of shops.example.com: "), "{text}");
        assert!(text.contains("`conditions: {type: array, items: {type: object, "), "{text}");
        assert_eq!(warning("shops", set(), json!({})), None);
        assert!(warning("others", set(), json!(null)).is_some());
    }
}
