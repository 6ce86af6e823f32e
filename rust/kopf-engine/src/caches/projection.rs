//! The form in which a cache keeps objects: without the dropped fields, or with the metadata only.

use std::sync::Arc;

use kopf_core::apply::owned_digests;
use kopf_core::caches::StoredObject;
use kopf_core::json::path::FieldPath;
use kopf_core::object::Object;
use kopf_core::resource::Resource;

/// The parts of objects that a cache keeps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) metadata_only: bool,
    pub(super) drop: Vec<FieldPath>,
}

impl Kept {
    /// The object as a cache keeps it that selects it.
    pub(super) fn store(&self, object: &Arc<Object>, resource: &Resource) -> StoredObject {
        let owned = owned_digests(object).into();
        let mut kept = Arc::clone(object);
        if self.metadata_only
            && object.stanzas().any(|(key, _)| !matches!(key, "apiVersion" | "kind" | "metadata"))
        {
            let kind = object.kind().or(resource.kind.as_deref()).unwrap_or_default();
            if let Ok(metadata) = object.with_type_meta(object.api_version().unwrap_or_default(), kind) {
                kept = Arc::new(metadata);
            }
        }
        let rest = kept.without(&self.drop).map(Arc::new);
        StoredObject { object: rest.unwrap_or(kept), owned, is_selected: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn caches_keep_what_was_declared() {
        let managed = json!([{"manager": "kopf", "operation": "Apply", "fieldsV1": {"f:spec": {"f:x": {}}}}]);
        let body = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"x": 1},
                          "metadata": {"name": "n", "managedFields": managed}});
        let object = Arc::new(Object::decode(&body.to_string()).unwrap());
        let resource = crate::testing::resource("", "pods", true);
        let drop = vec![FieldPath::parse("metadata.managedFields")];
        let whole = Kept { metadata_only: false, drop: vec![] }.store(&object, &resource);
        assert!(Arc::ptr_eq(&whole.object, &object) && whole.owned.len() == 1);
        let stored = Kept { metadata_only: true, drop }.store(&object, &resource);
        assert_eq!(
            stored.object.to_value(),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}})
        );
        assert_eq!(stored.owned[0].0, "kopf");
    }
}
