//! The options of caches, as data. The rules that use them are in `caches`.

use serde::Deserialize;

use crate::handler::namespaces::DeclaredNamespaces;
use crate::json::path::FieldPath;

/// The options of a cache: `kopf.cache`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Caching {
    /// The label selector in the grammar of Kubernetes; empty for all objects.
    pub label_selector: String,
    /// The values of fields, as an API server selects objects by them.
    pub fields: Vec<(FieldPath, String)>,
    /// The namespaces.
    pub namespaces: DeclaredNamespaces,
    /// The declared keys, by their names.
    pub by: Vec<(String, KeySource)>,
    /// The fields that are not kept.
    pub drop: Vec<FieldPath>,
    /// Whether the operator works while the cache is not filled.
    pub optional: bool,
    /// Seconds after which an object that is not read is compressed.
    pub rest: f64,
    /// The memory size of all caches in bytes from which on there is a warning.
    pub warn_above: u64,
    /// Only objects that are owned by the primaries of a reconciler are kept: its children.
    pub owner: Option<CacheOwner>,
}

/// The reconciler whose primaries own the objects of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct CacheOwner {
    /// Its index among the handlers.
    pub reconciler: usize,
    /// Only the reference of the controller counts.
    pub controller: bool,
}

/// The source of the values of a declared key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// A path with dots, in which `[*]` stands for all items of a list.
    Path(String),
    /// A path whose keys may have dots.
    Field(FieldPath),
    /// A function in Python.
    Function,
}

impl Caching {
    /// The field selector for the API server; empty for all objects.
    pub fn field_selector(&self) -> String {
        let escaped = |value: &str| value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let requirement = |(path, value): &(FieldPath, String)| {
            let path: Vec<&str> = path.keys().iter().map(AsRef::as_ref).collect();
            format!("{}={}", path.join("."), escaped(value))
        };
        self.fields.iter().map(requirement).collect::<Vec<_>>().join(",")
    }

    /// Whether Python computes some keys.
    pub fn has_functions(&self) -> bool {
        self.by.iter().any(|(_, source)| *source == KeySource::Function)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::handler::Handler;

    #[test]
    fn a_cache_is_one_flat_dictionary() {
        let handler: Handler = serde_json::from_value(json!({
            "id": "pods", "kind": "caching", "selector": {"plural": "pods"}, "metadata_only": false,
            "label_selector": "app", "fields": [[["spec", "nodeName"], "n,1"], [["metadata", "name"], "x"]],
            "namespaces": {"named": ["a"]}, "drop": [["status"]], "optional": true, "rest": 60.0, "warn_above": 1,
            "by": [["node", {"path": "spec.nodeName"}], ["app", {"field": ["metadata", "labels", "a.b"]}], ["f", "function"]],
        }))
        .unwrap();
        let options = handler.caching().unwrap();
        assert_eq!((handler.title(), options.has_functions()), ("Cache", true));
        assert_eq!(options.field_selector(), "spec.nodeName=n\\,1,metadata.name=x");
        assert_eq!(options.namespaces, DeclaredNamespaces::Named(vec!["a".to_owned()]));
        let default: Handler = serde_json::from_value(json!({"id": "c", "kind": "caching"})).unwrap();
        assert_eq!(default.caching().unwrap().namespaces, DeclaredNamespaces::Served);
    }
}
