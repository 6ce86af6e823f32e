//! The essence that the first handlers of a sequence have seen, while others are still to be called: with the progress.
//!
//! If the operator dies in between, and the object changes meanwhile, the next operator knows by this that those who have
//! finished have missed a change. It is short: what is long is replaced by its digest. Whoever removes the progress, the
//! reference included, removes it, too.

use super::compact::{compact_text, restored};
use crate::json::value::{self, Value};
use crate::object::Object;

/// What is kept.
pub fn seen(object: &Object, essence: &Value) -> String {
    compact_text(object, essence)
}

/// What was seen, as far as it can be known from the present essence. What cannot be read is none.
pub fn recalled(kept: &str, present: &Value) -> Option<Value> {
    Some(restored(value::parse(kept).ok()?, present))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(kind: &str, essence: &Value) -> String {
        let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}});
        seen(&Object::decode(&body.to_string()).unwrap(), essence)
    }

    #[test]
    fn what_is_short_is_kept_as_it_is() {
        let essence = json!({"spec": {"x": 1}});
        assert_eq!(recalled(&kept("K", &essence), &json!({"spec": {"x": 2}})), Some(essence));
        assert_eq!(recalled("{", &json!({})), None);
    }

    #[test]
    fn what_is_long_is_short_and_tells_what_has_changed() {
        let essence = |value: &str, x: u8| json!({"spec": {"long": value.repeat(2000), "same": "s".repeat(2000), "x": x}});
        let text = kept("K", &essence("a", 1));
        assert!(text.len() < 1024);
        assert_eq!(recalled(&text, &essence("a", 1)), Some(essence("a", 1)));
        let mut expected = essence("a", 1);
        expected["spec"].as_object_mut().unwrap().shift_remove("long");
        assert_eq!(recalled(&text, &essence("b", 2)), Some(expected));
    }

    #[test]
    fn payloads_of_secrets_are_not_copied() {
        assert!(!kept("Secret", &json!({"data": {"password": "cGxhbnRlZA=="}})).contains("cGxhbnRlZA"));
    }
}
