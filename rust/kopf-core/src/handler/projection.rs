//! Projection: the part of a resource's objects that is requested from the API server.
//!
//! If all handlers of a resource are declared with `metadata_only`, only the metadata is requested; otherwise, whole objects.

use crate::handler::Handler;
use crate::handler::registry::{Registry, ResourceHandlers};
use crate::json::DecodeError;
use crate::json::path::FieldPath;
use crate::object::Object;
use crate::resource::Resource;

/// The kind of objects that consist of their metadata.
const PARTIAL: &str = "PartialObjectMetadata";

/// The requested part of each object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Projection {
    /// The whole object.
    #[default]
    Whole,
    /// The metadata only.
    Metadata,
}

impl Projection {
    /// The projection that satisfies all handlers of the resource.
    ///
    /// Change handlers compare whole objects, so they always need them.
    pub fn of(resource_handlers: &ResourceHandlers, registry: &Registry) -> Self {
        let mut handlers = [
            &resource_handlers.watching,
            &resource_handlers.indexing,
            &resource_handlers.spawning,
            &resource_handlers.caching,
        ]
        .into_iter()
        .flatten()
        .filter_map(|index| registry.handlers.get(*index));
        if resource_handlers.changing.is_empty()
            && resource_handlers.reconciling.is_empty()
            && resource_handlers.related.iter().all(|related| needs_only_metadata(registry, *related))
            && handlers.all(|handler| handler.metadata_only && !selects_by_content(handler))
            && resource_handlers.resource.kind.is_some()
        {
            Self::Metadata
        } else {
            Self::Whole
        }
    }

    /// Sets the resource's `apiVersion` and `kind` in an object that was received as `PartialObjectMetadata`.
    ///
    /// # Errors
    /// If the resulting text is too long.
    pub fn with_type_meta(self, object: Object, resource: &Resource) -> Result<Object, DecodeError> {
        let is_partial = self == Self::Metadata
            && object.kind() == Some(PARTIAL)
            && object.top_level("metadata").is_some();
        let Some(kind) = resource.kind.as_deref().filter(|_| is_partial) else { return Ok(object) };
        let api_version = match &*resource.group {
            "" => resource.version.clone(),
            group => format!("{group}/{}", resource.version),
        };
        object.with_type_meta(&api_version, kind)
    }
}

/// Whether a cache selects objects by fields outside of their metadata.
fn selects_by_content(handler: &Handler) -> bool {
    let is_content = |path: &FieldPath| path.keys().first().is_some_and(|key| **key != *"metadata");
    handler.caching().is_some_and(|options| options.fields.iter().any(|(path, _)| is_content(path)))
}

/// Whether the reconciler needs only the metadata of this secondary kind.
fn needs_only_metadata(registry: &Registry, (reconciler, position): (usize, usize)) -> bool {
    let options = registry.handlers.get(reconciler).and_then(Handler::reconciling);
    options.and_then(|options| options.related().nth(position)).is_some_and(|related| related.metadata_only)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn resource(group: &str) -> Resource {
        let resource = json!({"group": group, "version": "v1", "plural": "pods", "kind": "Pod", "namespaced": true,
            "preferred": true});
        serde_json::from_value(resource).unwrap()
    }

    fn projection(handlers: &[Value]) -> Projection {
        let handlers = handlers
            .iter()
            .map(|extra| {
                let mut handler = json!({"id": "h", "kind": "watching", "metadata_only": true,
                    "selector": {"any_name": "pods"}});
                handler.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
                serde_json::from_value(handler).unwrap()
            })
            .collect();
        let registry = Arc::new(Registry { handlers });
        let resource_handlers = registry.handlers_of(&Arc::new(resource("")), &|_| true);
        Projection::of(&resource_handlers, &registry)
    }

    #[test]
    fn only_metadata_is_requested_if_all_handlers_declare_it() {
        for (handlers, expected) in [
            (vec![json!({})], Projection::Metadata),
            (vec![json!({"kind": "indexing"}), json!({"kind": "daemon"})], Projection::Metadata),
            (vec![json!({"kind": "timer", "interval": 1.0})], Projection::Metadata),
            (vec![json!({}), json!({"metadata_only": false})], Projection::Whole),
            (vec![json!({"metadata_only": false})], Projection::Whole),
            (vec![json!({}), json!({"kind": "changing", "reason": "delete"})], Projection::Whole),
        ] {
            assert_eq!(projection(&handlers), expected, "{handlers:?}");
        }
    }

    #[test]
    fn secondary_kinds_of_reconcilers_may_need_only_metadata() {
        let of = |metadata_only: bool| {
            json!({"kind": "reconciling", "metadata_only": false, "selector": {"any_name": "shops"}, "owns": [
                {"selector": {"any_name": "pods"}, "relation": {"owned": {"controller": false, "own_writes": true}},
                 "metadata_only": metadata_only}]})
        };
        let primary = json!({"kind": "reconciling", "metadata_only": true});
        for (handlers, expected) in [
            (vec![of(true)], Projection::Metadata),
            (vec![of(true), json!({})], Projection::Metadata),
            (vec![of(true), of(false)], Projection::Whole),
            (vec![of(true), json!({"metadata_only": false})], Projection::Whole),
            (vec![of(true), primary], Projection::Whole),
        ] {
            assert_eq!(projection(&handlers), expected, "{handlers:?}");
        }
    }

    #[test]
    fn caches_that_select_by_content_need_whole_objects() {
        let of = |path: &[&str]| json!({"kind": "caching", "fields": [[path, "n1"]]});
        assert_eq!(projection(&[of(&["metadata", "name"])]), Projection::Metadata);
        assert_eq!(projection(&[of(&["spec", "nodeName"])]), Projection::Whole);
    }

    #[test]
    fn handlers_of_other_resources_do_not_matter() {
        let other = json!({"metadata_only": false, "selector": {"any_name": "services"}});
        assert_eq!(projection(&[json!({}), other]), Projection::Metadata);
    }

    #[test]
    fn partial_objects_get_the_type_of_their_resource() {
        let partial = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","labels":{"b":"c"}}}"#;
        for (group, version) in [("", "v1"), ("apps", "apps/v1")] {
            let object = Object::decode(partial).unwrap();
            let restored = Projection::Metadata.with_type_meta(object, &resource(group)).unwrap();
            let expected = json!({"apiVersion": version, "kind": "Pod", "metadata": {"name": "a", "labels": {"b": "c"}}});
            assert_eq!(restored.to_value(), expected);
        }
    }

    #[test]
    fn whole_objects_are_accepted_too() {
        let whole = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{}}"#;
        let object = Object::decode(whole).unwrap();
        assert_eq!(Projection::Metadata.with_type_meta(object, &resource("")).unwrap().raw(), whole);
    }
}
