//! Watched objects that primaries name by their fields: `by=` (1.7).

use crate::json::path::FieldPath;
use crate::object::Object;
use crate::selectors::{ListPath, ReverseIndex};

/// The fields by which a primary names objects: of `by=`, or of `kopf.reference`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencePath {
    /// The field with the names.
    pub name: ListPath,
    /// The field with the namespace; by default, it is that of the primary.
    pub namespace: Option<FieldPath>,
}

/// The name of an object, with its namespace if it is namespaced.
pub type ObjectName = (Option<Box<str>>, Box<str>);

impl ReferencePath {
    /// The objects that the primary names. `is_namespaced` is whether the named kind is namespaced.
    ///
    /// A cluster-scoped primary without a namespace field names no namespaced object.
    pub fn references(&self, primary: &Object, is_namespaced: bool) -> Vec<ObjectName> {
        let namespace = match &self.namespace {
            _ if !is_namespaced => None,
            Some(field) => ListPath::from_field(field.clone()).names(primary).into_iter().next(),
            None => primary.namespace().map(Box::from),
        };
        if is_namespaced && namespace.is_none() {
            return Vec::new();
        }
        self.name.names(primary).into_iter().map(|name| (namespace.clone(), name)).collect()
    }
}

/// The objects that primaries name, with look-ups by object. Objects that do not exist are included: their creation triggers
/// the primaries.
#[derive(Clone, Debug)]
pub struct References<P>(ReverseIndex<P, ObjectName>);

impl<P> Default for References<P> {
    fn default() -> Self {
        Self(ReverseIndex::default())
    }
}

impl<P: Ord + Clone> References<P> {
    /// Records the names in the newest state of a primary.
    pub fn observe(&mut self, primary: P, references: Vec<ObjectName>) {
        self.0.set(primary, references);
    }

    /// Forgets a primary that is gone.
    pub fn remove(&mut self, primary: P) {
        self.0.remove(primary);
    }

    /// The primaries that name this object.
    pub fn primaries(&self, object: &ObjectName) -> impl Iterator<Item = &P> {
        self.0.objects(object)
    }

    /// The objects that primaries name.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectName> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn path(name: &str, namespace: Option<&str>) -> ReferencePath {
        ReferencePath { name: ListPath::parse(name).unwrap(), namespace: namespace.map(FieldPath::parse) }
    }

    fn primary(namespace: Option<&str>, spec: &Value) -> Object {
        let metadata = json!({"name": "p", "namespace": namespace});
        Object::decode(&json!({"metadata": metadata, "spec": spec}).to_string()).unwrap()
    }

    #[test]
    fn s1_14_12_primaries_are_found_by_names_that_do_not_exist_yet() {
        let by = path("spec.volumes[*].secret", None);
        let mut references = References::default();
        let spec = json!({"volumes": [{"secret": "a"}, {"secret": "b"}, {"secret": ""}, {}]});
        references.observe(1, by.references(&primary(Some("x"), &spec), true));
        references.observe(2, by.references(&primary(Some("y"), &spec), true));
        let primaries = |references: &References<u8>, namespace: &str, name: &str| {
            let object = (Some(namespace.into()), name.into());
            references.primaries(&object).copied().collect::<Vec<_>>()
        };
        assert_eq!(primaries(&references, "x", "b"), [1]);
        assert_eq!(primaries(&references, "x", ""), [0; 0]);
        references.observe(1, by.references(&primary(Some("x"), &json!({})), true));
        references.remove(2);
        assert_eq!(primaries(&references, "x", "b"), [0; 0]);
        assert_eq!(primaries(&references, "y", "b"), [0; 0]);
    }

    #[test]
    fn the_namespace_comes_from_a_field_or_from_the_primary() {
        let spec = json!({"name": "a", "in": "z"});
        let (own, other) = (path("spec.name", None), path("spec.name", Some("spec.in")));
        let named = |namespace: Option<&str>| vec![(namespace.map(Box::from), "a".into())];
        assert_eq!(own.references(&primary(Some("x"), &spec), true), named(Some("x")));
        assert_eq!(other.references(&primary(None, &spec), true), named(Some("z")));
        assert_eq!(own.references(&primary(Some("x"), &spec), false), named(None));
        assert_eq!(own.references(&primary(None, &spec), true), []);
    }
}
