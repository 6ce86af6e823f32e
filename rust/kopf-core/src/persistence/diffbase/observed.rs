//! The observed essence: the essence with which the first handlers of a handling were called, stored with the progress.
//!
//! If the operator crashes before the other handlers are called, and the object changes meanwhile, the next operator
//! recognizes by this record that the finished handlers have missed a change. Long values are replaced by their digests. It
//! is removed together with the progress, also by Kopf 1.45.

use super::compact::{compact_text, restored};
use crate::json::value::{self, Value};
use crate::object::Object;

/// The observed essence in its stored form.
pub fn encode(object: &Object, essence: &Value) -> String {
    compact_text(object, essence)
}

/// The observed essence, restored with values of the present one: fields that changed and were stored as digests are
/// missing. `None` if the stored text is not JSON.
pub fn decode(encoded: &str, present: &Value) -> Option<Value> {
    Some(restored(value::parse(encoded).ok()?, present))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn encoded(kind: &str, essence: &Value) -> String {
        let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}});
        encode(&Object::decode(&body.to_string()).unwrap(), essence)
    }

    #[test]
    fn a_short_essence_is_stored_as_it_is() {
        let essence = json!({"spec": {"x": 1}});
        assert_eq!(decode(&encoded("K", &essence), &json!({"spec": {"x": 2}})), Some(essence));
        assert_eq!(decode("{", &json!({})), None);
    }

    #[test]
    fn a_long_essence_is_stored_as_digests_that_identify_changed_fields() {
        let essence = |value: &str, x: u8| json!({"spec": {"long": value.repeat(2000), "same": "s".repeat(2000), "x": x}});
        let text = encoded("K", &essence("a", 1));
        assert!(text.len() < 1024);
        assert_eq!(decode(&text, &essence("a", 1)), Some(essence("a", 1)));
        let mut expected = essence("a", 1);
        expected["spec"].as_object_mut().unwrap().shift_remove("long");
        assert_eq!(decode(&text, &essence("b", 2)), Some(expected));
    }

    #[test]
    fn payloads_of_secrets_are_not_stored() {
        assert!(!encoded("Secret", &json!({"data": {"password": "cGxhbnRlZA=="}})).contains("cGxhbnRlZA"));
    }
}
