//! Look-ups of cached objects by declared keys and by owners (K3, K4, K7).

use thiserror::Error;

use crate::json::path::FieldPath;
use crate::json::value::{Value, to_python_json};
use crate::object::Object;
use crate::selectors::{ListPath, ReverseIndex};

/// A key that the cache does not declare in `by`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the cache has no key {0:?}: declare it in `by`")]
pub struct UnknownKey(pub String);

/// The declared keys of one cache, with the objects of each key. `O` identifies objects; results are in its order.
#[derive(Clone, Debug)]
pub struct CacheIndices<O> {
    by: Vec<DeclaredKey<O>>,
    owners: ReverseIndex<O, Box<str>>,
}

#[derive(Clone, Debug)]
struct DeclaredKey<O> {
    name: String,
    /// The path to the keys; none if a function in Python computes them.
    path: Option<ListPath>,
    index: ReverseIndex<O, Box<str>>,
}

impl<O: Ord + Clone> CacheIndices<O> {
    /// The indices of a cache with these keys: names with their paths, or with none for functions.
    pub fn new(by: impl IntoIterator<Item = (String, Option<ListPath>)>) -> Self {
        let declared = |(name, path)| DeclaredKey { name, path, index: ReverseIndex::default() };
        Self { by: by.into_iter().map(declared).collect(), owners: ReverseIndex::default() }
    }

    /// Records the newest state of an object. The keys of functions are set by [`CacheIndices::set_computed`] at the same time.
    pub fn observe(&mut self, key: &O, object: &Object) {
        for declared in &mut self.by {
            if let Some(path) = &declared.path {
                declared.index.set(key.clone(), path.values(object).iter().map(key_text));
            }
        }
        self.owners.set(key.clone(), owner_uids(object));
    }

    /// Records the keys that a function has returned; none if it has failed (K7).
    pub fn set_computed(&mut self, name: &str, key: &O, values: &[Value]) -> Result<(), UnknownKey> {
        let declared = self.by.iter_mut().find(|declared| declared.name == name);
        let declared = declared.ok_or_else(|| UnknownKey(name.to_owned()))?;
        declared.index.set(key.clone(), values.iter().map(key_text));
        Ok(())
    }

    /// Forgets an object that is gone.
    pub fn remove(&mut self, key: &O) {
        self.by.iter_mut().for_each(|declared| declared.index.remove(key.clone()));
        self.owners.remove(key.clone());
    }

    /// The objects with this value of a declared key, in their order.
    pub fn select(&self, name: &str, value: &Value) -> Result<impl Iterator<Item = &O>, UnknownKey> {
        Ok(self.declared(name)?.index.objects(&*key_text(value)))
    }

    /// The present values of a declared key, as JSON texts.
    pub fn keys(&self, name: &str) -> Result<impl Iterator<Item = &str>, UnknownKey> {
        Ok(self.declared(name)?.index.keys().map(AsRef::as_ref))
    }

    /// The objects that have an owner with this uid, in their order.
    pub fn owned_by(&self, uid: &str) -> impl Iterator<Item = &O> {
        self.owners.objects(uid)
    }

    fn declared(&self, name: &str) -> Result<&DeclaredKey<O>, UnknownKey> {
        self.by.iter().find(|declared| declared.name == name).ok_or_else(|| UnknownKey(name.to_owned()))
    }
}

/// The text of a key: equal for values that are equal in Python, except for `1 == True`.
fn key_text(value: &Value) -> Box<str> {
    let integral = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
    match integral {
        Some(number) => format!("{number:.0}").into(),
        None => to_python_json(value).into(),
    }
}

fn owner_uids(object: &Object) -> Vec<Box<str>> {
    if object.owner_kinds().next().is_none() {
        return Vec::new();
    }
    match object.field(&FieldPath::from_keys(["metadata", "ownerReferences"])) {
        Some(Value::Array(owners)) => {
            owners.iter().filter_map(|owner| owner.get("uid")?.as_str().map(Box::from)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(node: &str, images: &[&str]) -> Object {
        let owners = json!([{"apiVersion": "v1", "kind": "K", "uid": format!("owner-of-{node}")}]);
        let containers: Vec<_> = images.iter().map(|image| json!({"image": image})).collect();
        let spec = json!({"nodeName": node, "containers": containers});
        Object::decode(&json!({"metadata": {"ownerReferences": owners}, "spec": spec}).to_string()).unwrap()
    }

    fn indices() -> CacheIndices<&'static str> {
        let path = |path| Some(ListPath::parse(path).unwrap());
        let by = [("node", path("spec.nodeName")), ("image", path("spec.containers[*].image")), ("f", None)];
        CacheIndices::new(by.map(|(name, path)| (name.to_owned(), path)))
    }

    fn select(indices: &CacheIndices<&'static str>, name: &str, value: &Value) -> Vec<&'static str> {
        indices.select(name, value).unwrap().copied().collect()
    }

    #[test]
    fn s2_7_1_objects_are_found_by_keys_and_owners() {
        let mut indices = indices();
        indices.observe(&"b", &pod("n1", &["x", "y"]));
        indices.observe(&"a", &pod("n1", &["x"]));
        indices.observe(&"c", &pod("n2", &[]));
        assert_eq!(select(&indices, "node", &json!("n1")), ["a", "b"]);
        assert_eq!(select(&indices, "image", &json!("y")), ["b"]);
        assert_eq!(indices.owned_by("owner-of-n2").collect::<Vec<_>>(), [&"c"]);
        assert_eq!(indices.keys("node").unwrap().collect::<Vec<_>>(), ["\"n1\"", "\"n2\""]);
        indices.observe(&"b", &pod("n2", &["x"]));
        indices.remove(&"c");
        assert_eq!(select(&indices, "node", &json!("n2")), ["b"]);
        assert_eq!(select(&indices, "image", &json!("y")), [""; 0]);
        assert_eq!(indices.owned_by("owner-of-n2").count(), 1);
    }

    #[test]
    fn k7_functions_compute_keys() {
        let mut indices = indices();
        indices.set_computed("f", &"a", &[json!(1), json!(true)]).unwrap();
        assert_eq!(select(&indices, "f", &json!(1.0)), ["a"]);
        indices.set_computed("f", &"a", &[]).unwrap();
        assert_eq!(indices.keys("f").unwrap().count(), 0);
    }

    #[test]
    fn k3_undeclared_keys_are_errors() {
        let error = indices().select("zone", &json!(1)).err().map(|error| error.to_string());
        assert_eq!(error.unwrap(), "the cache has no key \"zone\": declare it in `by`");
        assert!(indices().keys("zone").is_err() && indices().set_computed("zone", &"a", &[]).is_err());
    }
}
